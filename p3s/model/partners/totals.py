"""Laws of totals over all parts of a plane or space that is cut into n parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from p3s.errors import P3SError


@dataclass(frozen=True)
class Total:
    """A law of a total of all parts of a plane or space (dims) that is cut into n parts.

    terms: shapes with their coefficients; error: relative, where a count is left out.
    """

    dims: int
    terms: tuple[tuple[str, float], ...]
    error: float

    def at(self, n: int) -> float:
        """Return the total at ``n`` processes, never negative."""
        return float(max(sum(c * shape_value(name, n, self.dims) for name, c in self.terms), 0.0))

    def text(self) -> str:
        """Return the law for people; cutsD(n): the planes that bisect D dimensions."""
        d = self.dims
        names = {
            "rest": "(n-1)",
            "cuts": f"cuts{d}(n)",
            "power": f"(n**(1/{d})-1)",
            "outer": f"{d}*(n**({d - 1}/{d})-1)",
            "bricks": "(6*(n-1) - 4*cuts2(n))",
        }
        parts = [f"{c:.4g}" + f"*{names[name]}" for name, c in self.terms]
        return " + ".join(parts).replace("+ -", "- ") or "0"

    def to_json(self) -> dict[str, Any]:
        """Return the law as plain data."""
        return {"dims": self.dims, "terms": [list(t) for t in self.terms], "error": self.error}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Total:
        """Return the law of :meth:`to_json` data."""
        terms = tuple((str(name), float(c)) for name, c in data["terms"])
        return Total(int(data["dims"]), terms, float(data["error"]))


def shape_value(name: str, n: int, dims: int) -> float:
    """Return a shape's value at ``n`` parts of a space of so many dimensions; none at one part.

    rest: n - 1; cuts: the planes that bisect the unit cube into n parts; outer: how many more
    parts lie at its sides than there are sides; power: n^(1/dims) - 1; bricks: the pairs of n
    rectangles that bisect a plane and meet in no point by four.
    """
    if name == "rest":
        return float(n - 1)
    if name == "power":
        return float(n ** (1.0 / dims) - 1.0)
    if name == "cuts":
        return _planes(n, (1.0,) * dims)
    if name == "outer":
        return float(dims * (n ** (1.0 - 1.0 / dims) - 1.0))
    if name == "bricks":
        return 6.0 * (n - 1) - 4.0 * _planes(n, (1.0,) * dims)
    raise P3SError(f"model: unknown shape {name!r}; the file was made by another version")


@cache
def _planes(n: int, box: tuple[float, ...]) -> float:
    """Return the area of the planes that halve a box, its longest side first, into n parts."""
    if n < 2:
        return 0.0
    k = max(range(len(box)), key=lambda d: (box[d], -d))
    part = n // 2 / n
    area = float(np.prod([x for d, x in enumerate(box) if d != k]))
    here = tuple(round(x * part, 12) if d == k else x for d, x in enumerate(box))
    rest = tuple(round(x * (1.0 - part), 12) if d == k else x for d, x in enumerate(box))
    return area + _planes(n // 2, here) + _planes(n - n // 2, rest)
