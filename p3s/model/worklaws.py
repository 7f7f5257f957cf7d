"""Non-negative real laws for work and time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from typing import Any

import numpy as np


@dataclass(frozen=True)
class WorkLaw:
    """A non-negative law for an amount of work: sum of coefficient x shape.

    terms: (coefficient, power of n as a fraction, power of log2 n); rel_half_width: half width
    of the 90 % interval relative to the value at the largest traced count, growing with the
    extrapolation ratio; counts: the counts that were fitted; unit is the one of the samples.
    """

    terms: tuple[tuple[float, Fraction, int], ...]
    rel_half_width: float
    max_n: int

    def value(self, n: Any) -> Any:
        """Return the work at ``n`` processes (array or scalar)."""
        n = np.asarray(n, dtype=float)
        total = np.zeros_like(n)
        for coef, a, b in self.terms:
            total = total + coef * n ** float(a) * np.log2(np.maximum(n, 1)) ** b
        return total

    def half_width(self, n: float) -> float:
        """Return the relative half width of the 90 % interval at ``n``."""
        beyond = max(0.0, float(np.log2(max(n, 1) / self.max_n)))
        return self.rel_half_width * (1.0 + 0.5 * beyond)

    def to_json(self) -> dict[str, Any]:
        """Return the law as plain data."""
        return {"terms": [[c, a.numerator, a.denominator, b] for c, a, b in self.terms],
                "rel_half_width": self.rel_half_width, "max_n": self.max_n}

    @staticmethod
    def from_json(data: dict[str, Any]) -> WorkLaw:
        """Return the law from :meth:`to_json` data."""
        return WorkLaw(tuple((float(c), Fraction(int(p), int(q)), int(b))
                             for c, p, q, b in data["terms"]),
                       float(data["rel_half_width"]), int(data["max_n"]))

    def text(self, unit: str = "") -> str:
        """Return the law as one line of text."""
        parts = []
        for coef, a, b in self.terms:
            shape = "" if a == 0 else ("*n" if a == 1 else f"*n**({a})")
            parts.append(f"{coef:.4g}{shape}" + ("*log2(n)" if b else ""))
        return (" + ".join(parts) or "0") + (f" {unit}" if unit else "")


_WORK_SHAPES: tuple[tuple[Fraction, int], ...] = (
    (Fraction(0), 0), (Fraction(-1), 0), (Fraction(-1, 2), 0), (Fraction(-2, 3), 0),
    (Fraction(0), 1), (Fraction(1), 0),
)


def fit_work(ns: Sequence[int], values: Sequence[float]) -> WorkLaw:
    """Fit a non-negative law to work per occurrence; always returns one.

    One or two typed terms, relative least squares, chosen by leave-one-out error; a second
    term has to reduce that error by a third to be kept. values are in one unit; ns in counts.
    """
    from scipy.optimize import nnls

    n = np.asarray(ns, dtype=float)
    y = np.asarray(values, dtype=float)
    top = int(n.max()) if len(n) else 1
    if len(y) == 0 or np.all(y <= 0):
        return WorkLaw((), 0.0, top)
    scale = np.maximum(y, y.max() * 1e-3)

    def shape(a: Fraction, b: int) -> np.ndarray:
        return n ** float(a) * np.log2(np.maximum(n, 1)) ** b

    def solve(terms: Sequence[tuple[Fraction, int]], keep: np.ndarray) -> np.ndarray:
        design = np.stack([shape(a, b) for a, b in terms], axis=1) / scale[:, None]
        norm = np.maximum(np.linalg.norm(design, axis=0), 1e-300)
        return nnls((design / norm)[keep], (y / scale)[keep])[0] / norm

    def predict(terms: Sequence[tuple[Fraction, int]], coef: np.ndarray) -> np.ndarray:
        return np.stack([shape(a, b) for a, b in terms], axis=1) @ coef

    def loo(terms: Sequence[tuple[Fraction, int]]) -> float:
        errors = []
        for i in range(len(y)):
            keep = np.arange(len(y)) != i
            pred = predict(terms, solve(terms, keep))[i]
            errors.append(((pred - y[i]) / scale[i]) ** 2)
        return float(np.sqrt(np.mean(errors)))

    every = np.ones(len(y), dtype=bool)
    if len(y) == 1:
        chosen: tuple[tuple[Fraction, int], ...] = ((Fraction(0), 0),)
        spread = 1.0
    else:
        singles = [(loo([s]), i, (s,)) for i, s in enumerate(_WORK_SHAPES)]
        best = min(singles)
        chosen, spread = best[2], best[0]
        if len(y) >= 4:
            pairs = [(loo(pair), i, pair)
                     for i, pair in enumerate(combinations(_WORK_SHAPES, 2))]
            two = min(pairs)
            if two[0] < spread * 2 / 3:
                chosen, spread = two[2], two[0]
    coef = solve(chosen, every)
    terms = tuple((float(c), a, b) for c, (a, b) in zip(coef, chosen, strict=True) if c > 0)
    return WorkLaw(terms, float(min(1.64 * spread, 9.99)), top)
