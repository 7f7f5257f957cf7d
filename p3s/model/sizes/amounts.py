"""Amounts without an exact rule: non-negative laws in n and the grid extents.

What depends on the data (atoms near a face, points near a cut) follows the geometry in the mean:
the face of a block is a product of 1/p over the dimensions along it, each wider by a rim where
the ghosts of an earlier exchange are passed on. So the laws tried are such products with one rim,
and sums of inverses of products of extents, a constant and the usual shapes of n, all with
non-negative coefficients; which is taken is decided by leaving counts out, and an amount is only
as sure as it was met where it was left out and as laws that did as well agree further on.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import combinations
from typing import Any, TypeVar

import numpy as np

from p3s.laws.expr import Env, Expr, add, evaluate, mul, num, power, sym
from p3s.laws.mixture import seen
from p3s.laws.statistics import Z90, nonnegative
from p3s.model.law_types import Amount, SizeLaw
from p3s.model.partners.relation import Shift
from p3s.model.types import Item

T = TypeVar("T", bound=Hashable)

#: Features in one law at most, and counts needed for each but the first.
MAX_TERMS, COUNTS_PER_TERM = 4, 2
#: One more term has to lower the error left out by this factor.
WORTH = 0.8
#: A known rim is clearly worse than a free one from this multiple of its error on.
CLEARLY_WORSE = 3.0
#: Laws within this multiple of the smallest error could as well be true; they are compared at
#: so many times the largest count.
NEARLY, FAR = 1.25, 8.0
#: Up to this relative error an amount is met without an error; up to this half width of its
#: interval it shows its rim for certain.
EXACT, SURE = 1e-6, 1e-3
#: Widest rim tried, in shares of the whole extent.
_WIDEST_RIM = 2.0
#: Rims tried at once, and rounds: the last steps are 2 * (2 / 12) ** 11 wide.
_POINTS, _ROUNDS = 13, 12
#: Coefficients are kept as rationals of about float precision: equations hold no floats.
_DIGITS = 12


def fit_amount(
    envs: Sequence[Env],
    values: Sequence[float],
    weights: Sequence[float],
    ndims: int,
    rims: Sequence[float] = (),
) -> Amount:
    """Fit a non-negative law to the mean amount at each count; always returns one.

    envs: symbols n, p0, ... of each count; values: mean amounts, one unit; weights: how many
    were averaged; rims: those that other amounts of the program have shown for certain.
    Features are chosen by the error where a count is left out, relative.
    """
    y = np.asarray(values, dtype=float)
    ns = [float(e["n"]) for e in envs]
    top = int(max(ns, default=1))
    if not len(y) or np.all(y <= 0):
        return Amount(num(0), 0.0, top, len(y))
    if len(y) == 1 or np.all(y == y[0]):
        return Amount(_coefficient(float(y[0])), 0.0 if len(y) > 1 else 9.99, top, len(y))
    fit = _Fit(envs, y, np.asarray(weights, dtype=float), ndims)
    chosen, error = fit.choose()
    rim = fit.rimmed(error, rims)
    if rim is not None:
        expr, error, width = rim.expr, rim.error, rim.rim
    else:
        expr, width = fit.law(chosen), None
    half = max(Z90 * error, fit.disagreement(expr, error, top) if error > EXACT else 0.0)
    return Amount(expr, min(half, 9.99), top, len(y), width)


def fit_amounts(
    slots: Mapping[T, tuple[SizeLaw, Hashable]], dims: Mapping[int, Sequence[int]]
) -> dict[T, SizeLaw]:
    """Return the laws of all sizes that have no equation, each with a law of its mean.

    slots: any key -> law with ``means``, and what it has in common with those that share its law;
    dims: extents of the grid per count. Rims that some show exactly are tried for the others.
    """
    ndims = len(next(iter(dims.values()), ()))
    groups: dict[Hashable, list[T]] = {}
    for key, (law, alike) in slots.items():
        if law.means is not None:
            groups.setdefault(alike, []).append(key)
    means = [_together([slots[key][0] for key in keys]) for keys in groups.values()]
    known: dict[tuple[Any, ...], Amount] = {}

    def fit(points: Sequence[Sequence[float]], rims: Sequence[float]) -> Amount:
        key = (tuple(map(tuple, points)), tuple(rims))
        if key not in known:  # what one rank sends another receives
            known[key] = fit_anew(points, rims)
        return known[key]

    def fit_anew(points: Sequence[Sequence[float]], rims: Sequence[float]) -> Amount:
        envs = [
            {"n": int(n), **{f"p{d}": p for d, p in enumerate(dims[int(n)])}} for n, _, _ in points
        ]
        return fit_amount(envs, [p[1] for p in points], [p[2] for p in points], ndims, rims)

    first = [fit(points, ()) for points in means]
    rims: list[float] = []
    for a in sorted(first, key=lambda a: a.rel_half_width):
        if a.rim and a.rel_half_width <= SURE and all(abs(a.rim / r - 1) > 0.01 for r in rims):
            rims.append(a.rim)
    out = {}
    for keys, points, amount in zip(groups.values(), means, first, strict=True):
        again = fit(points, rims) if rims and amount.rel_half_width > SURE else amount
        for key in keys:
            out[key] = replace(slots[key][0], stat=again)
    return out


def alike(item: Item, number: int, slot: int) -> Hashable:
    """Return what sizes of one law have in common: the call and the line they are sent along.

    What one call sends both ways along a dimension has one law: the geometry is the same, and a
    plane of atoms more on one side is one less on the other.
    """
    relation = item.relation
    if not isinstance(relation, Shift) or len(item.slots) > 1:
        return (number, slot)
    vec = relation.vec
    return (item.node, max(vec, tuple(-v for v in vec)))


def _together(laws: Sequence[SizeLaw]) -> list[list[float]]:
    """Return the means per count over all laws."""
    total: dict[int, list[float]] = {}
    for law in laws:
        for n, mean, messages in law.means or ():
            row = total.setdefault(n, [0.0, 0.0])
            row[0] += mean * messages
            row[1] += messages
    return [
        [n, amount / messages, messages]
        for n, (amount, messages) in sorted(total.items())
        if messages
    ]


def rounded(expr: Expr, digits: int = 4) -> Expr:
    """Return ``expr`` with its constants cut to a few digits, for people."""
    if expr[0] == "num":
        return _coefficient(expr[1] / expr[2], digits)
    return [rounded(a, digits) if isinstance(a, list) else a for a in expr]


def _coefficient(x: float, digits: int = _DIGITS) -> Expr:
    if x == 0:
        return num(0)
    above = math.floor(math.log10(abs(x))) + 1
    if above > digits:
        return num(int(round(x, digits - above)))
    scale = 10 ** (digits - above)
    return num(Fraction(round(x * scale), scale))


def _features(ndims: int) -> list[Expr]:
    """Return the shapes tried: a constant, inverses of products of extents, shapes of n."""
    n = sym("n")
    out: list[Expr] = [
        num(1),
        power(n, -1),
        power(n, Fraction(-1, 2)),
        power(n, Fraction(-2, 3)),
        ["log2", n],
        n,
    ]
    if ndims > 1:
        for size in range(1, ndims):  # all extents at once are 1/n
            out += [
                power(mul(*(sym(f"p{d}") for d in axes)), -1)
                for axes in combinations(range(ndims), size)
            ]
    return out


@dataclass(frozen=True)
class _Rimmed:
    """A product of blocks along ``faces``, those of ``rims`` wider by ``rim`` (None: free)."""

    faces: tuple[int, ...]
    rims: tuple[int, ...]
    rim: float | None
    error: float
    expr: Expr = field(default_factory=list)


def _unit(column: np.ndarray) -> np.ndarray:
    """Return a column, not all zero, of length one: log2 n is zero at one process."""
    return np.asarray(column / np.linalg.norm(column))


def _ratio(above: np.ndarray, below: np.ndarray) -> np.ndarray:
    """Return above / below; 0 where below is: the counts left say nothing of that feature."""
    result: np.ndarray = np.divide(above, below, out=np.zeros_like(above), where=below > 0)
    return result


class _Fit:
    """Values at some counts with the features that vary there."""

    def __init__(self, envs: Sequence[Env], y: np.ndarray, weights: np.ndarray, ndims: int) -> None:
        self.y = y
        # Relative errors count; a mean of few is less sure than one of many.
        self.scale = np.maximum(y, y.max() * 1e-3) / np.sqrt(weights / weights.max())
        self.far = {
            k: float(v) * FAR ** (1.0 if k == "n" else 1.0 / ndims)
            for k, v in envs[int(np.argmax([float(e["n"]) for e in envs]))].items()
        }
        self.tried: list[tuple[float, tuple[int, ...]]] = []
        self.inverse = (
            np.array([[1.0 / float(e[f"p{d}"]) for d in range(ndims)] for e in envs])
            if ndims > 1
            else np.zeros((len(y), 0))
        )
        self.shapes: list[Expr] = []
        columns: list[np.ndarray] = []
        for shape in _features(ndims):
            column = np.array([float(evaluate(shape, e)) for e in envs])
            if len(columns) and (
                np.all(column == column[0])
                or any(np.allclose(_unit(column), _unit(c), rtol=1e-12) for c in columns)
            ):
                continue  # the same as an earlier, simpler feature at all these counts
            self.shapes.append(shape)
            columns.append(column)
        self.columns = np.stack(columns, axis=1)

    def solve(self, chosen: Sequence[int], keep: np.ndarray) -> np.ndarray:
        """Return non-negative coefficients of the features, relative least squares."""
        design = self.columns[:, list(chosen)] / self.scale[:, None]
        norm = np.linalg.norm(design, axis=0)
        return np.asarray(nonnegative((design / norm)[keep], (self.y / self.scale)[keep]) / norm)

    def left_out(self, chosen: Sequence[int]) -> float:
        """Return the root mean square relative error at counts left out one by one."""
        m = len(self.y)
        if len(chosen) <= 2:
            return self._rms(self._errors_of_two(chosen[0], chosen[-1]), len(chosen))
        errors = []
        for i in range(m):
            coef = self.solve(chosen, np.arange(m) != i)
            errors.append((float(self.columns[i, list(chosen)] @ coef) - self.y[i]) / self.scale[i])
        return self._rms(np.array(errors), len(chosen))

    def _errors_of_two(self, one: int, other: int) -> np.ndarray:
        """Return the error at each count left out for one feature or two, in closed form."""
        keep = 1.0 - np.eye(len(self.y))
        a, b, y = (v / self.scale for v in (self.columns[:, one], self.columns[:, other], self.y))
        aa, bb, ay, by = keep @ (a * a), keep @ (b * b), keep @ (a * y), keep @ (b * y)
        alone = np.maximum(_ratio(ay, aa), 0.0)
        if one == other:
            return np.asarray(alone * a - y)
        ab = keep @ (a * b)
        det = aa * bb - ab * ab
        singular = det <= 1e-12 * aa * bb
        det = np.where(singular, 1.0, det)
        first, second = (ay * bb - by * ab) / det, (by * aa - ay * ab) / det
        bad = singular | (first < 0) | (second < 0)
        # Where both cannot be had without a negative one, the better of them stands alone.
        takes_first = _ratio(np.maximum(ay, 0.0) ** 2, aa) >= _ratio(np.maximum(by, 0.0) ** 2, bb)
        first = np.where(bad, np.where(takes_first, alone, 0.0), first)
        second = np.where(bad, np.where(takes_first, 0.0, np.maximum(_ratio(by, bb), 0.0)), second)
        return np.asarray(first * a + second * b - y)

    def law(self, chosen: Sequence[int]) -> Expr:
        """Return the law of these features fitted to all counts."""
        coef = self.solve(chosen, np.ones(len(self.y), dtype=bool))
        parts = self.columns[:, list(chosen)] * coef / self.scale[:, None]
        miss = parts.sum(axis=1) - self.y / self.scale
        shown = seen(parts, float(np.sqrt(np.mean(miss**2) / len(miss))))
        coef = np.where(shown | ~shown.any(), coef, 0.0)
        return add(
            *(
                mul(_coefficient(c), self.shapes[k])
                for c, k in zip(coef, chosen, strict=True)
                if c > 0
            )
        )

    def disagreement(self, expr: Expr, error: float, top: int) -> float:
        """Return how far laws that did nearly as well are from ``expr`` far out, relative.

        In terms of the half width at the largest count, which grows with the distance.
        """
        there = float(evaluate(expr, self.far))
        others = [
            float(evaluate(self.law(terms), self.far))
            for got, terms in self.tried
            if got <= NEARLY * error
        ]
        grown = 1.0 + 0.5 * math.log2(max(self.far["n"] / top, 1.0))
        return max((abs(x - there) for x in others), default=0.0) / max(there, 1e-300) / grown

    def choose(self) -> tuple[tuple[int, ...], float]:
        """Return the features with the smallest error left out, more only where it pays."""
        every = range(len(self.shapes))
        best: tuple[int, ...]
        self.tried = [(self.left_out((k,)), (k,)) for k in every]
        error, best = min(self.tried)
        for size in range(2, MAX_TERMS + 1):
            if len(self.y) < COUNTS_PER_TERM * size - 1:
                break
            tried = (
                [tuple(sorted({*best, k})) for k in every if k not in best]
                if size > 2
                else list(combinations(every, 2))
            )
            results = [(self.left_out(t), t) for t in tried]
            self.tried += results
            got, more = min(results)
            if got > WORTH * error:
                break
            error, best = got, more
        return best, error

    def rimmed(self, error: float, known: Sequence[float]) -> _Rimmed | None:
        """Return the best product of blocks with one rim, if that is worth it.

        Two numbers, a factor and the rim in shares of the whole extent. A rim that the program
        has elsewhere is one number less: it is taken unless it is clearly worse.
        """
        if len(self.y) < 2 * COUNTS_PER_TERM - 1:
            return None
        free, best = error, None
        for faces, rims in self._products():
            got = self._rim_left_out(faces, rims, None)
            if got < WORTH * free:
                free, best = got, _Rimmed(faces, rims, None, got)
        given = [
            _Rimmed(faces, rims, rim, got)
            for faces, rims in self._products()
            for rim in known
            if (got := self._rim_left_out(faces, rims, rim)) <= max(CLEARLY_WORSE * free, EXACT)
        ]
        if given:
            best = min(given, key=lambda r: r.error)
        if best is None:
            return None
        factor, rim = self._solve_rims(best.faces, best.rims, np.ones((1, len(self.y))), best.rim)
        parts = [
            add(power(sym(f"p{d}"), -1), _coefficient(float(rim[0])))
            if d in best.rims
            else power(sym(f"p{d}"), -1)
            for d in best.faces
        ]
        return replace(best, rim=float(rim[0]), expr=mul(_coefficient(float(factor[0])), *parts))

    def _rim_left_out(
        self, faces: tuple[int, ...], rims: tuple[int, ...], known: float | None
    ) -> float:
        m = len(self.y)
        factor, rim = self._solve_rims(faces, rims, 1.0 - np.eye(m), known)
        at = factor * np.diagonal(self._product(faces, rims, rim[:, None]))
        return self._rms((at - self.y) / self.scale, 1 if known is not None else 2)

    def _rms(self, errors: np.ndarray, numbers: int) -> float:
        """Return the root mean square error; the more numbers were free, the less it tells."""
        m = len(self.y)
        return float(np.sqrt(np.mean(errors**2))) * m / max(m - numbers, 1)

    def _products(self) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
        """Return the dimensions of each product tried, and those of them that have a rim."""
        moving = [d for d in range(self.inverse.shape[1]) if np.ptp(self.inverse[:, d]) > 0]
        return [
            (faces, rims)
            for size in range(1, len(moving) + 1)
            for faces in combinations(moving, size)
            for count in range(1, size + 1)
            for rims in combinations(faces, count)
        ]

    def _product(self, faces: Sequence[int], rims: Sequence[int], rim: np.ndarray) -> np.ndarray:
        """Return the products at all counts (last axis) for an array of rims."""
        out = np.ones(np.broadcast_shapes(rim.shape, self.y.shape))
        for d in faces:
            out = out * (self.inverse[:, d] + (rim if d in rims else 0.0))
        return out

    def _solve_rims(
        self, faces: Sequence[int], rims: Sequence[int], keep: np.ndarray, known: float | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return factors and rims with the least relative squares, one per row of ``keep``.

        The best rim of a few is searched for again between its neighbours, until they are one.
        """
        rows = np.arange(len(keep))
        low, high = np.zeros(len(keep)), np.full(len(keep), _WIDEST_RIM)
        y = self.y / self.scale
        if known is not None:
            low[:] = high[:] = known
        for _ in range(1 if known is not None else _ROUNDS):
            rim = low[:, None] + (high - low)[:, None] * np.linspace(0.0, 1.0, _POINTS)
            x = self._product(faces, rims, rim[:, :, None]) / self.scale
            kept = keep[:, None, :]
            factor = np.maximum((kept * x * y).sum(axis=2) / (kept * x * x).sum(axis=2), 0.0)
            square = (kept * (factor[:, :, None] * x - y) ** 2).sum(axis=2)
            best = np.argmin(square, axis=1)
            low = rim[rows, np.maximum(best - 1, 0)]
            high = rim[rows, np.minimum(best + 1, _POINTS - 1)]
        return factor[rows, best], rim[rows, best]
