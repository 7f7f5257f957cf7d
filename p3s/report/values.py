"""Values of a prediction as they can be relied on: finite numbers, printable texts, lists of rows.

A key that is missing or of another type is not known (None, empty); it is never an error here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from p3s.text import visible

Row = Mapping[str, Any]


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


def count(value: Any) -> int | None:
    """Return a process count, None for anything else."""
    found = amount(value)
    return int(found) if found is not None and found >= 1 else None


def words(value: Any, limit: int = 400) -> str:
    """Return a text that can be printed; empty where there is none."""
    return visible(value, limit) if isinstance(value, str) else ""


def lines(value: Any, limit: int = 400) -> list[str]:
    """Return the texts of a list, printable and none twice."""
    found = [words(each, limit) for each in value] if isinstance(value, (list, tuple)) else []
    return [line for line in dict.fromkeys(found) if line]


def rows(value: Any) -> list[Row]:
    """Return the mappings of a list."""
    return (
        [each for each in value if isinstance(each, Mapping)]
        if isinstance(value, (list, tuple))
        else []
    )


def mapping(value: Any) -> Row:
    """Return a mapping, an empty one for anything else."""
    return value if isinstance(value, Mapping) else {}


def pair(value: Any) -> tuple[float, float] | None:
    """Return two amounts, low and high; None where there are not two."""
    if not isinstance(value, (list, tuple)) or len(value) != 2:
        return None
    low, high = amount(value[0]), amount(value[1])
    return None if low is None or high is None else (low, high)


def total(values: Sequence[float | None]) -> float:
    """Return the sum of what is known."""
    return math.fsum(value for value in values if value is not None)
