"""Values of plain data as they can be relied on: finite numbers, printable texts, objects.

A key that is missing or of another type is not known (None, empty); it is never an error here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from p3s.base.text import visible


def number(value: Any) -> float | None:
    """Return a finite number, None for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def amount(value: Any) -> float | None:
    """Return a finite number that is not negative, None for anything else."""
    found = number(value)
    return None if found is None or found < 0 else found


def lines(value: Sequence[str], limit: int = 400) -> list[str]:
    """Return texts as they can be printed, none empty and none twice."""
    return [line for line in dict.fromkeys(visible(each, limit) for each in value) if line]


def mapping(value: Any) -> Mapping[str, Any]:
    """Return a mapping, an empty one for anything else."""
    return value if isinstance(value, Mapping) else {}
