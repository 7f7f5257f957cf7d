"""Laws of totals over all parts of a plane or space that is cut into n parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from p3s.base.errors import P3SError
from p3s.laws.nonnegative import nonnegative

#: One more term has to lower the error where a count is left out by this factor.
_WORTH = 0.8


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


def fit_total(
    ns: Sequence[int], values: Sequence[float], tried: Sequence[tuple[tuple[str, int], ...]]
) -> Total:
    """Return a law of a total of all parts of a cut plane or space.

    Chosen by the relative error where a count is left out (weighted by the totals), a second
    term only where it pays.
    """
    y = np.asarray(values, dtype=float)
    if not y.any():
        return Total(2, (), 0.0)  # as the bytes of messages that only say that they came
    every = np.ones(len(ns), dtype=bool)
    best: tuple[float, int, tuple[tuple[str, float], ...], int] | None = None
    for size in (1, 2):
        if len(ns) < size + 1:
            break
        for dims in (2, 3):  # along a line, neighbours have a rule
            for terms in (t for t in tried if len(t) == size):
                if dims != 2 and terms[0][0] == "bricks" and len(ns) > 2:
                    continue  # how boxes meet in space, no such simple count tells
                columns = np.array(
                    [[sign * shape_value(name, n, dims) for name, sign in terms] for n in ns]
                )
                errors = []
                for i in range(len(ns)):
                    coef = _solve(columns, y, every & (np.arange(len(ns)) != i))
                    errors.append(float(columns[i] @ coef) / max(y[i], 1e-300) - 1.0)
                error = float(np.sqrt(np.average(np.square(errors), weights=y)))
                coef = _solve(columns, y, every)
                if _falls(terms, coef, dims, max(ns)):
                    continue
                if best is None or error < best[0] * (_WORTH if size > best[1] else 1.0) - 1e-12:
                    rows = tuple(
                        (name, float(sign * c))
                        for (name, sign), c in zip(terms, coef, strict=True)
                        if c
                    )
                    best = (error, size, rows, dims)
    if best is None:
        best = (1.0, 1, (("rest", float(y[-1]) / (max(ns) - 1)),), 2)
    return Total(best[3], best[2], best[0])


def _solve(columns: np.ndarray, y: np.ndarray, keep: np.ndarray) -> np.ndarray:
    scale = np.sqrt(np.maximum(y, 1e-300))  # the more are counted, the surer their share
    scaled = columns / scale[:, None]
    norm = np.maximum(np.linalg.norm(scaled, axis=0), 1e-300)
    return np.asarray(nonnegative((scaled / norm)[keep], (y / scale)[keep]) / norm)


def _falls(terms: Sequence[tuple[str, int]], coef: np.ndarray, dims: int, top: int) -> bool:
    """Return whether a law falls further on: no part of a cut ever gets fewer neighbours."""
    far = [
        sum(
            sign * c * shape_value(name, n, dims)
            for (name, sign), c in zip(terms, coef, strict=True)
        )
        for n in (top, 4 * top, 16 * top, 64 * top)
    ]
    return any(b < a * (1.0 - 1e-9) for a, b in zip(far, far[1:], strict=False))
