"""Laws in the process count: exact ones for counts, non-negative real ones for work.

Exact search order is smallest description first: a constant, a multiple of one shape
(n, p_d, log2, roots, their inverses and predecessors), a product of two shapes, a shape
plus a constant. A form with more free numbers than counts minus one is never tried.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from typing import Any

import numpy as np

from p3s.model.expr import Env, Expr, add, evaluate, mul, num, power, sym

MAX_DENOMINATOR = 64
REL_TOL = 1e-9


@dataclass(frozen=True)
class Law:
    """An equation with how it was found.

    free: numbers fitted; points: counts used; even: blocks divided evenly at every count, so
    that the treatment of a remainder was never seen; rivals: other ways of cutting blocks that
    fit as well and differ at larger counts, as [extent symbol, kind, extent, other kind, other
    extent].
    """

    expr: Expr
    free: int
    points: int
    even: bool = False
    rivals: tuple[tuple[str, str, int, str, int], ...] = ()


def _shapes(ndims: int) -> list[Expr]:
    """Return the elementary shapes in n and the grid extents, simplest first."""
    n = sym("n")
    shapes: list[Expr] = [n, ["log2", n], power(n, Fraction(1, 2)), add(n, num(-1))]
    for d in range(ndims if ndims > 1 else 0):
        p = sym(f"p{d}")
        shapes += [p, ["log2", p], add(p, num(-1))]
    if ndims > 1:
        shapes.append(add(*(sym(f"p{d}") for d in range(ndims))))
        # how many dimensions have neighbours at all
        shapes.append(add(*(["min", add(sym(f"p{d}"), num(-1)), num(1)] for d in range(ndims))))
    shapes += [["ceil", ["log2", n]], ["floor", ["log2", n]], add(n, num(-2)),
               add(power(n, Fraction(1, 2)), num(-1)), power(n, Fraction(1, 3)),
               power(n, -1), power(n, Fraction(-1, 2)), power(n, Fraction(-2, 3)), power(n, 2),
               power(n, -2)]
    for d in range(ndims if ndims > 1 else 0):
        p = sym(f"p{d}")
        shapes += [power(p, -1), add(p, num(-2)), ["ceil", ["log2", p]]]
    return shapes


def _values(expr: Expr, envs: Sequence[Env]) -> np.ndarray:
    with np.errstate(all="ignore"):
        return np.array([float(evaluate(expr, e)) for e in envs])


def _as_fraction(x: float) -> Fraction | None:
    frac = Fraction(x).limit_denominator(MAX_DENOMINATOR)
    return frac if abs(float(frac) - x) <= REL_TOL * max(1.0, abs(x)) else None


def _matches(pred: np.ndarray, y: np.ndarray) -> bool:
    return bool(np.all(np.abs(pred - y) <= REL_TOL * np.maximum(1.0, np.abs(y))))


def _multiple_of(shape: np.ndarray, y: np.ndarray) -> Fraction | None:
    if not np.all(np.isfinite(shape)):
        return None
    k = int(np.argmax(np.abs(shape)))
    if shape[k] == 0:
        return None
    coef = y[k] / shape[k]
    if not _matches(coef * shape, y):
        return None
    return _as_fraction(coef)


def fit_exact(envs: Sequence[Env], values: Sequence[int], ndims: int = 1) -> Law | None:
    """Return the simplest law that reproduces every value exactly, or None.

    envs: one mapping of symbols (n, p0, ...) per count; values: one integer per count.
    """
    y = np.array([float(v) for v in values])
    m = len(y)
    if m == 0:
        return None
    if np.all(y == y[0]):
        return Law(num(int(values[0])), 1, m)
    if m < 2:
        return None
    shapes = _shapes(ndims)
    vals = [_values(s, envs) for s in shapes]
    usable = [(s, v) for s, v in zip(shapes, vals, strict=True)
              if np.all(np.isfinite(v)) and not np.all(v == v[0])]
    multiples = [(coef, s) for s, v in usable if (coef := _multiple_of(v, y)) is not None]
    if multiples:  # stages of an exchange: log2(p) stages rather than p/2 of them
        coef, s = min(multiples, key=lambda c: c[0].denominator > 1)
        return Law(mul(num(coef), s), 1, m)
    if m < 3:
        return None
    # Products of two extents, of a count and its logarithm and so on; a product of odd shapes
    # fits by chance far more often than a program computes one.
    plain = [(s, v) for s, v in usable if _is_plain(s)]
    for (s1, v1), (s2, v2) in combinations(plain, 2):
        coef = _multiple_of(v1 * v2, y)
        if coef is not None:
            return Law(mul(num(coef), s1, s2), 1, m)
    share = _share_of(envs, y, ndims)
    if share is not None:
        return Law(share, 1, m)
    for s, v in usable:
        slope, base = np.polyfit(v, y, 1) if np.ptp(v) > 0 else (np.nan, np.nan)
        if not np.isfinite(slope) or not _matches(slope * v + base, y):
            continue
        a, b = _as_fraction(float(np.round(slope, 9))), _as_fraction(float(np.round(base, 9)))
        # three points and two free numbers: only whole ones are evidence
        if a is not None and b is not None and (m > 3 or a.denominator * b.denominator == 1):
            return Law(add(mul(num(a), s), num(b)), 2, m)
    # Sums of two shapes fit many things by chance: three points more than free numbers, or none
    # that is not whole.
    for extra in (0, 1):
        if m < 5 + extra:
            break
        for (s1, v1), (s2, v2) in combinations(usable, 2):
            design = np.stack([v1, v2, np.ones(m)][:2 + extra], axis=1)
            if np.linalg.matrix_rank(design) < 2 + extra:
                continue
            sol = np.linalg.lstsq(design, y, rcond=None)[0]
            if not _matches(design @ sol, y):
                continue
            fr = [f for x in sol if (f := _as_fraction(float(np.round(x, 9)))) is not None
                  and f.denominator == 1]
            if len(fr) == 2 + extra:
                return Law(add(*(mul(num(f), s) for f, s in zip(fr, (s1, s2, num(1)),
                                                               strict=False))), 2 + extra, m)
    return None


def _share_of(envs: Sequence[Env], y: np.ndarray, ndims: int) -> Expr | None:
    """Return floor(L/p) or ceil(L/p) for p = n or an extent, where one L fits every value."""
    if np.any(y < 1):
        return None
    for name in ("n", *(f"p{d}" for d in range(ndims if ndims > 1 else 0))):
        p = np.array([float(e[name]) for e in envs])
        if np.all(p == p[0]):
            continue
        for kind, low, high in (("low", y * p, y * p + p - 1), ("high", (y - 1) * p + 1, y * p)):
            a, b = int(low.max()), int(high.min())
            if a <= b and a >= 2 * int(p.max()):
                best = max(range(a, min(b, a + 4096) + 1), key=roundness)
                return ["block", kind, num(best), sym(name), num(0)]
    return None


def roundness(e: int) -> int:
    """Return how round a number is: trailing decimal zeros first, then factors of two."""
    twos = (e & -e).bit_length() - 1
    tens = 0
    while e and e % 10 == 0:
        e //= 10
        tens += 1
    return max(2 * tens, twos // 2)


def _is_plain(shape: Expr) -> bool:
    """Return whether a shape is n or an extent, its predecessor, logarithm or inverse."""
    if shape[0] in ("sym", "log2"):
        return True
    if shape[0] == "pow":
        return bool(shape[2:] == [-1, 1])
    return bool(shape[0] == "add" and shape[2:] == [num(-1)] and shape[1][0] == "sym")


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
