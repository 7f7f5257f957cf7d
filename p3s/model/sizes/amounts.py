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
from p3s.laws.mixture import select_terms
from p3s.laws.statistics import FAR, PER_DOUBLING, Z90
from p3s.laws.sums import Sum, columns, miss_bits, near, search_sums, shapes
from p3s.model.law_types import Amount, SizeLaw
from p3s.model.partners.relation import Shift
from p3s.model.types import Item

T = TypeVar("T", bound=Hashable)

#: Counts that tell a product with a rim.
FEWEST = 3
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
    # relative errors count; a mean of few is less sure than one of many
    share = np.asarray(weights, dtype=float) / max(weights)
    scale = np.maximum(y, y.max() * 1e-3)
    terms = shapes(ndims, True)
    exprs = [term for term, _ in terms]
    x = columns(envs, exprs)
    found = near(search_sums(x, y, np.arange(len(y)), [bits for _, bits in terms], weight=share))
    best = found[0][1]
    error = best.error * len(y) / max(len(y) - len(best.which), 1)
    rim = _Rims(envs, y, scale / np.sqrt(share), ndims).best(best.bits, rims)
    expr, width = _expr(exprs, x, best, y, scale), None
    if rim is not None:
        expr, error, width = rim.expr, rim.error, rim.rim
    half = Z90 * error
    if error > EXACT:
        others = [_expr(exprs, x, s, y, scale) for _, s in found]
        half = max(half, _apart(expr, others, envs[-1]))
    return Amount(expr, min(half, 9.99), top, len(y), width)


def _expr(terms: Sequence[Expr], x: np.ndarray, one: Sum, y: np.ndarray, scale: np.ndarray) -> Expr:
    """Return a sum without the terms that are below what the values can show."""
    parts = x[:, list(one.which)] * np.array(one.coef) / scale[:, None]
    miss = parts.sum(axis=1) - y / scale
    kept = select_terms(parts, float(np.sqrt(np.mean(miss**2) / len(miss))))
    return add(
        *(
            mul(_coefficient(c), terms[i])
            for c, i, k in zip(one.coef, one.which, kept | ~kept.any(), strict=True)
            if k
        )
    )


def _apart(expr: Expr, others: Sequence[Expr], last: Env) -> float:
    """Return how far others that did nearly as well are from a law far out, relative.

    In terms of the half width at the largest count, which grows with the distance.
    """
    ndims = len(last) - 1
    far = {k: float(v) * FAR ** (1.0 if k == "n" else 1.0 / ndims) for k, v in last.items()}
    there = float(evaluate(expr, far))
    off = max((abs(float(evaluate(other, far)) - there) for other in others), default=0.0)
    return off / max(there, 1e-300) / (1.0 + PER_DOUBLING * math.log2(FAR))


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


def round_constants(expr: Expr, digits: int = 4) -> Expr:
    """Return ``expr`` with its constants cut to a few digits, for people."""
    if expr[0] == "num":
        return _coefficient(expr[1] / expr[2], digits)
    return [round_constants(a, digits) if isinstance(a, list) else a for a in expr]


def _coefficient(x: float, digits: int = _DIGITS) -> Expr:
    if x == 0:
        return num(0)
    above = math.floor(math.log10(abs(x))) + 1
    if above > digits:
        return num(int(round(x, digits - above)))
    scale = 10 ** (digits - above)
    return num(Fraction(round(x * scale), scale))


@dataclass(frozen=True)
class _RimProduct:
    """A product of blocks along ``faces``, those of ``rims`` wider by ``rim`` (None: free)."""

    faces: tuple[int, ...]
    rims: tuple[int, ...]
    rim: float | None
    error: float
    expr: Expr = field(default_factory=list)


class _Rims:
    """Values at some counts with products of blocks, wider by a rim, that may be like them."""

    def __init__(self, envs: Sequence[Env], y: np.ndarray, scale: np.ndarray, ndims: int) -> None:
        self.y, self.scale = y, scale
        self.inverse = (
            np.array([[1.0 / float(e[f"p{d}"]) for d in range(ndims)] for e in envs])
            if ndims > 1
            else np.zeros((len(y), 0))
        )

    def best(self, bits: float, known: Sequence[float]) -> _RimProduct | None:
        """Return the product of blocks with one rim, if it costs less than other ``bits``.

        A factor and the rim in shares of the whole extent; a rim that the program has elsewhere is
        no number of its own.
        """
        if len(self.y) < FEWEST:
            return None
        tried = [
            _RimProduct(faces, rims, rim, self._rim_left_out(faces, rims, rim))
            for faces, rims in self._products()
            for rim in (None, *known)
        ]
        best = min(tried, key=lambda one: one.error, default=None)
        if best is None or miss_bits(best.error, len(self.y)) + math.log2(len(tried)) >= bits:
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
