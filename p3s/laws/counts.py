"""Exact laws of numbers in n, grid extents or parameters, found by least description length.

Every value has to be met exactly, in integers and fractions. Tried are: a constant; a multiple of
one shape (n, p_d, log2, roots, their inverses and predecessors, powers of two), of a product of
two; floor(L/p), ceil(L/p), L mod p and ceil(L/p0)*ceil(M/p1); a shape plus a constant; a multiple
that ends at a constant; one multiple for even and one for odd log2(n). Of the laws that fit, the
one that is named in the fewest bits is taken. Anything but a multiple of one shape must also
save bits over the list of values itself, else it is chance; sums of several shapes are never
tried, they fit anything. Real laws for work and time are in worklaws.py.

In parameters, of which a user chooses the values, tried are multiples, a shape plus a constant,
sums of two shapes where enough settings check them, and k times the floor or the ceiling of a
parameter over a whole number. Powers of two are not: a parameter seldom does that to a program.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations

import numpy as np

from p3s.laws import shares
from p3s.laws.exact import (
    Basis,
    Envs,
    Settings,
    Shape,
    basis,
    bits_of,
    exact_value,
    parameter_basis,
    value_at,
)
from p3s.laws.expr import Expr, add, evaluate, mul, num, sym
from p3s.laws.worklaws import WorkLaw as WorkLaw

#: Largest denominator of a coefficient, and of a multiple of a shape in parameters.
MAX_DENOMINATOR, MAX_MULTIPLE = 64, 1024
#: How closely floats meet the values of a law that is then checked exactly, and a sum of shapes.
REL_TOL, ROUGHLY = 1e-9, 1e-5

#: Bits a law other than a multiple must save over the values it explains.
MARGIN = 4.0
#: What a form costs besides its shapes and numbers.
PRODUCT_BITS, AFFINE_BITS, LIMIT_BITS, PARITY_BITS = 2.0, 3.0, 4.0, 4.0
#: A law that costs so many bits more than the chosen one is no rival; rivals count where they
#: differ up to RIVALS_AT times the largest count. So many are kept of laws in parameters.
RIVAL_BITS, RIVALS_AT, MOST_RIVALS = 4.0, 16, 3


@dataclass(frozen=True)
class Law:
    """An equation with how it was found.

    free: numbers fitted; points: counts used; others: equations that fit as well and differ at
    larger counts of the same form.
    """

    expr: Expr
    free: int
    points: int
    others: tuple[Expr, ...] = ()


@dataclass(frozen=True)
class Candidate:
    """A law that meets every value: its price in bits and the numbers fitted.

    sure: it needs no further evidence (constants and whole multiples of one shape).
    """

    expr: Expr
    bits: float
    free: int
    sure: bool = False


def candidates(
    envs: Envs, values: Sequence[int], ndims: int = 1, known: Collection[int] = ()
) -> list[Candidate]:
    """Return all laws that reproduce every value exactly and are believed, shortest first."""
    y = [int(v) for v in values]
    m = len(y)
    if m == 0:
        return []
    if all(v == y[0] for v in y):
        return [Candidate(num(y[0]), bits_of(y[0]), 1, True)]
    if m < 2:
        return []
    search = _Search(envs, y, basis(envs, ndims))
    multiples = list(search.multiples())
    found = list(multiples)
    if m > 2:
        even_share = any(is_quotient(c.expr) for c in multiples)
        found += search.products()
        if not even_share:
            found += (
                Candidate(expr, bits, free)
                for expr, bits, free in shares.fit(envs, y, ndims, known)
            )
        found += search.affine()
    if m > 3:
        found += search.limited()
    if m > 4:
        found += search.by_parity(ndims)
    spent = sum(bits_of(v) for v in y)
    believed = [c for c in found if c.sure or c.bits + (0.0 if c in multiples else MARGIN) <= spent]
    return sorted(believed, key=lambda c: c.bits)


def in_parameters(settings: Settings, values: Sequence[Fraction]) -> list[Candidate]:
    """Return the laws in parameters that give every value exactly and are believed, shortest first.

    Of two settings any power meets both values: only the parameter itself is believed of those.
    """
    if all(v == values[0] for v in values):
        return [Candidate(num(values[0]), 0.0, 1, True)]
    if len(values) < 2:
        return []
    search = _Search(settings, values, parameter_basis(settings), chosen=True)
    multiples = list(search.multiples())
    more = list(search.affine())
    if len(values) > 2:
        more += [Candidate(*found) for found in shares.rounded(settings, values)]
    if len(values) > 3:
        more += search.sums()
    spent = sum(bits_of(v) for v in values) - (MARGIN if len(values) > 2 else 0.0)
    return sorted([*multiples, *(c for c in more if c.bits <= spent)], key=lambda c: c.bits)


def is_quotient(expr: Expr) -> bool:
    """Return whether a law is a number over a shape."""
    last = expr[-1] if expr[0] == "mul" else expr
    result: bool = last[0] == "pow" and last[2] < 0
    return result


class _Search:
    """The forms, each a generator of the candidates that meet all values.

    chosen: the symbols are parameters, whose values somebody chose, not process counts.
    """

    def __init__(
        self, envs: Envs, y: Sequence[int | Fraction], found: Basis, chosen: bool = False
    ) -> None:
        self.envs, self.y, self.basis, self.chosen = envs, y, found, chosen
        self.values = np.array([float(v) for v in y])
        self.size = np.maximum(1.0, np.abs(self.values))
        self.largest = MAX_MULTIPLE if chosen else MAX_DENOMINATOR

    def near(self, predicted: np.ndarray) -> np.ndarray:
        """Return which rows of predictions meet the values as far as float64 can tell."""
        return np.flatnonzero(
            np.all(np.abs(predicted - self.values) <= REL_TOL * self.size, axis=-1)
        )

    def meets(self, expr: Expr) -> bool:
        """Whether a law gives every value in exact arithmetic."""
        return all(exact_value(expr, e) == v for e, v in zip(self.envs, self.y, strict=True))

    def scaled(self, rows: np.ndarray, at: Sequence[int]) -> np.ndarray:
        """Return the rows scaled to meet the values at the points ``at``, NaN where they cannot."""
        where = np.array(at)[np.argmax(np.abs(rows[:, at]), axis=1)]
        there = rows[np.arange(len(rows)), where]
        factor = np.full(len(rows), np.nan)
        np.divide(self.values[where], there, out=factor, where=there != 0)
        return np.asarray(rows * factor[:, None])

    def coefficient(self, parts: Sequence[Shape]) -> Fraction | None:
        """Return the exact factor of a product of shapes, from a point where it is not zero."""
        for env, v in zip(self.envs, self.y, strict=True):
            size = Fraction(1)
            for part in parts:
                x = part.exact(env)
                if x is None:
                    return None
                size *= x
            if size:
                k = Fraction(v) / size
                return k if k.denominator <= self.largest else None
        return None

    def times(self, parts: Sequence[Shape], bits: float, sure: bool) -> Iterator[Candidate]:
        k = self.coefficient(parts)
        if k:
            expr = mul(num(k), *(p.expr for p in parts))
            if self.meets(expr):
                told = not self.chosen or parts[0].expr[0] == "sym" or len(set(self.y)) > 2
                yield Candidate(
                    expr,
                    bits + sum(p.bits for p in parts) + bits_of(k),
                    1 if told else 2,
                    sure and (self.chosen or k.denominator == 1),
                )

    def multiples(self) -> Iterator[Candidate]:
        """Try k * shape."""
        rows = self.basis.values
        for i in self.near(self.scaled(rows, range(len(self.y)))):
            yield from self.times([self.basis.shapes[i]], 0.0, True)

    def products(self) -> Iterator[Candidate]:
        """Try k * shape * shape."""
        rows = self.basis.products()
        for i in self.near(self.scaled(rows, range(len(self.y)))):
            a, b = self.basis.pairs[i]
            yield from self.times([self.basis.shapes[a], self.basis.shapes[b]], PRODUCT_BITS, False)

    def affine(self) -> Iterator[Candidate]:
        """Try a * shape + b; three points and two free numbers: only whole ones are evidence."""
        rows = self.basis.values
        each = np.arange(len(rows))
        low, high = np.argmin(rows, axis=1), np.argmax(rows, axis=1)
        rise = rows[each, high] - rows[each, low]
        slope = np.full(len(rows), np.nan)
        np.divide(self.values[high] - self.values[low], rise, out=slope, where=rise != 0)
        line = self.values[low][:, None] + slope[:, None] * (rows - rows[each, low][:, None])
        for i in self.near(line):
            shape = self.basis.shapes[i]
            x0, x1 = shape.exact(self.envs[low[i]]), shape.exact(self.envs[high[i]])
            if x0 is None or x1 is None or x0 == x1:
                continue
            a = Fraction(self.y[high[i]] - self.y[low[i]]) / (x1 - x0)
            b = self.y[low[i]] - a * x0
            whole = a.denominator * b.denominator == 1
            if (
                not a
                or not b
                or max(a.denominator, b.denominator) > MAX_DENOMINATOR
                or not (whole or self.chosen or len(self.y) > 3)
            ):
                continue
            expr = add(mul(num(a), shape.expr), num(b))
            if self.meets(expr):
                yield Candidate(expr, AFFINE_BITS + shape.bits + bits_of(a) + bits_of(b), 2)

    def limited(self) -> Iterator[Candidate]:
        """Try min(k * shape, m) and max(k * shape, m): two points at least beyond either end."""
        y = self.values
        for op, limit in (("min", max(self.y)), ("max", min(self.y))):
            free = [i for i, v in enumerate(self.y) if v != limit]
            if len(free) < 2 or len(self.y) - len(free) < 2 or len({self.y[i] for i in free}) < 2:
                continue
            rows = self.scaled(self.basis.values, free)
            bound = (np.minimum if op == "min" else np.maximum)(rows, float(limit))
            rest = [i for i in range(len(y)) if i not in free]
            for i in self.near(bound):
                if np.sum(np.abs(rows[i, rest] - limit) > REL_TOL * self.size[rest]) < 2:
                    continue  # the shape itself explains them
                shape = self.basis.shapes[i]
                x = shape.exact(self.envs[free[0]])
                k = Fraction(self.y[free[0]]) / x if x else Fraction(0)
                if not k or k.denominator > MAX_DENOMINATOR:
                    continue
                expr = [op, mul(num(k), shape.expr), num(limit)]
                if self.meets(expr):
                    yield Candidate(expr, LIMIT_BITS + shape.bits + bits_of(k) + bits_of(limit), 2)

    def sums(self) -> Iterator[Candidate]:
        """Try k*m + l*m' + c: the numbers follow from as many settings, all others check them."""
        one = Shape(num(1), 0.0)
        shapes = self.basis.shapes[:16]
        pairs = np.array(list(combinations(range(len(shapes)), 2)), dtype=np.int64).reshape(-1, 2)
        columns = self.basis.values[pairs].transpose(0, 2, 1)
        ones = np.ones((*columns.shape[:2], 1))
        close = [self.fitted(columns), self.fitted(np.concatenate([columns, ones], axis=2))]
        for k, (i, j) in enumerate(pairs.tolist()):
            for near, parts in zip(
                close, ((shapes[i], shapes[j]), (shapes[i], shapes[j], one)), strict=True
            ):
                coef = self.solved(parts) if near[k] and len(self.y) > len(parts) else None
                if coef is None or not all(c and c.denominator <= MAX_DENOMINATOR for c in coef):
                    continue
                expr = add(*(mul(num(c), p.expr) for c, p in zip(coef, parts, strict=True)))
                if self.meets(expr):
                    priced = sum(p.bits + bits_of(c) for c, p in zip(coef, parts, strict=True))
                    yield Candidate(expr, AFFINE_BITS * (len(parts) - 1) + priced, len(parts))

    def fitted(self, columns: np.ndarray) -> np.ndarray:
        """Return which sums (sums, points, columns) may meet the values, by least squares."""
        size = np.maximum(np.abs(columns).max(axis=1, keepdims=True), 1e-300)
        shares = np.linalg.pinv(columns / size) @ self.values
        off = np.abs((columns / size @ shares[..., None])[..., 0] - self.values)
        return np.asarray((off <= ROUGHLY * np.abs(self.values).max()).all(axis=1))

    def solved(self, parts: Sequence[Shape]) -> list[Fraction] | None:
        """Return the coefficients of a sum from the first points that determine them."""
        rows = [[p.exact(env) or Fraction(0) for p in parts] for env in self.envs]
        rows = [[*row, Fraction(v)] for row, v in zip(rows, self.y, strict=True)]
        for col in range(len(parts)):
            pivot = next((i for i in range(col, len(rows)) if rows[i][col]), None)
            if pivot is None:
                return None
            rows[col], rows[pivot] = rows[pivot], rows[col]
            rows[col] = [v / rows[col][col] for v in rows[col]]
            for i in range(len(rows)):
                if i != col and rows[i][col]:
                    times = rows[i][col]
                    rows[i] = [v - times * w for v, w in zip(rows[i], rows[col], strict=True)]
        return [rows[i][len(parts)] for i in range(len(parts))]

    def by_parity(self, ndims: int) -> Iterator[Candidate]:
        """Try one multiple where log2(n) is even and another where it is odd."""
        ns = [int(e["n"]) for e in self.envs]
        if any(n < 1 or n & (n - 1) for n in ns):
            return
        halves = [
            [i for i, n in enumerate(ns) if (n.bit_length() - 1) % 2 == odd] for odd in (0, 1)
        ]
        if min(map(len, halves)) < 2:
            return
        best: list[Candidate | None] = [None, None]
        for odd, mine in enumerate(halves):
            envs = [self.envs[i] for i in mine]
            part = _Search(envs, [int(self.y[i]) for i in mine], basis(envs, ndims))
            if len(set(part.y)) == 1:
                best[odd] = Candidate(num(part.y[0]), bits_of(part.y[0]), 1)
            else:
                best[odd] = min(part.multiples(), key=lambda c: c.bits, default=None)
        if best[0] is not None and best[1] is not None:
            parity = ["mod", ["log2", sym("n")], num(2)]
            expr = add(
                mul(add(num(1), mul(num(-1), parity)), best[0].expr), mul(parity, best[1].expr)
            )
            if self.meets(expr):
                yield Candidate(expr, PARITY_BITS + best[0].bits + best[1].bits, 2)


def rivals_of(
    found: Sequence[Candidate], envs: Sequence[Mapping[str, int]]
) -> tuple[list[Expr], list[Expr]]:
    """Return laws about as short as the first, found[0], that differ from it at larger counts.

    First those that differ at counts of the same form as the points' (powers of two, squares),
    then those that differ at others only.
    """
    top = max(envs, key=lambda e: e["n"])
    same, other = _factors([e["n"] for e in envs])
    formal: list[Expr] = []
    elsewhere: list[Expr] = []
    for c in found[1:]:
        if c.bits - found[0].bits > RIVAL_BITS:
            break
        if any(_differ(found[0].expr, c.expr, _larger(top, f)) for f in same):
            formal.append(c.expr)
        elif any(_differ(found[0].expr, c.expr, _larger(top, f)) for f in other):
            elsewhere.append(c.expr)
    return formal, elsewhere


def _factors(ns: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return factors that lead to larger counts of the same form as ``ns``, and others."""
    if all(n & (n - 1) == 0 for n in ns):
        return (2, 4, RIVALS_AT), (3,)
    if all(math.isqrt(n) ** 2 == n for n in ns):
        return (4, 9, RIVALS_AT), (2, 3)
    return (2, 3, 4, RIVALS_AT), ()


def _larger(top: Mapping[str, int], factor: int) -> dict[str, int]:
    """Return the symbols at ``factor`` times the processes, added along the last dimension."""
    last = f"p{len(top) - 2}"
    return {k: v * factor if k in ("n", last) else v for k, v in top.items()}


def _differ(a: Expr, b: Expr, env: dict[str, int]) -> bool:
    x, y = float(evaluate(a, env)), float(evaluate(b, env))
    if not (math.isfinite(x) and math.isfinite(y)):
        return math.isfinite(x) or math.isfinite(y)  # one of them has no value there
    return abs(x - y) > 1e-9 * max(1.0, abs(x))


def parameter_rivals(found: Sequence[Candidate], settings: Settings) -> list[Expr]:
    """Return laws about as short as the first that differ from it at larger parameters."""
    best = found[0]
    return [
        c.expr
        for c in found[1:]
        if c.bits - best.bits <= RIVAL_BITS
        and any(_apart(best.expr, c.expr, settings, factor) for factor in (2, 4))
    ][:MOST_RIVALS]


def _apart(a: Expr, b: Expr, settings: Settings, factor: int) -> bool:
    """Tell whether two laws differ where all parameters are ``factor`` times the largest ones."""
    at = {name: max(s[name] for s in settings) * factor for name in settings[0]}
    x, y = value_at(a, at), value_at(b, at)
    return x is not None and y is not None and x != y
