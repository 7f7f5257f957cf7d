"""Exact laws of numbers in n, grid extents or parameters, found by least description length.

Every value has to be met exactly: in integers and fractions, or where a law is irrational to the
last digits of a float. One search tries sums of up to three terms, each a number times a shape
(n, p_d, log2, roots, their inverses and predecessors, powers of two, a product of two of these);
the numbers are solved from as many points, all others check them. Beside the sums there are blocks
(shares.py), a multiple that ends at a constant, and one multiple for even and one for odd log2(n).
Of the laws that fit, the one that is named in the fewest bits is taken. Anything but a multiple of
one shape must also save bits over the list of values itself, else it is chance. Real laws for work
and time are in worklaws.py.

In parameters, of which a user chooses the values, the same sums are tried, and k times the floor or
the ceiling of a parameter over a whole number. Powers of two are not: a parameter seldom does that
to a program.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from p3s.laws import shares
from p3s.laws.exact import (
    Basis,
    Envs,
    Settings,
    Shape,
    Symbols,
    basis,
    bits_of,
    exact_value,
    parameter_basis,
)
from p3s.laws.expr import Expr, add, evaluate, mul, num, sym
from p3s.laws.statistics import FAR, FLOAT_ERROR, RIVAL_BITS
from p3s.laws.worklaws import WorkLaw as WorkLaw

#: Largest denominator of a coefficient, and of a multiple of a shape in parameters.
MAX_DENOMINATOR, MAX_MULTIPLE = 64, 1024
#: Bits a law other than a multiple must save over the values it explains.
MARGIN = 4.0
#: What a law costs besides its shapes and numbers: each further shape of a sum, and other forms.
FORM_BITS = 4.0


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

    points: values that the law's own terms tell apart; margin: bits it must save over the list of
    values to be believed; sure: it needs no such evidence.
    """

    expr: Expr
    bits: float
    free: int
    points: int
    margin: float = MARGIN
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
        return [Candidate(num(y[0]), bits_of(y[0]), 1, m, sure=True)]
    if m < 2:
        return []
    search = _Search(envs, y, basis(envs, ndims))
    found = list(search.sums())
    if m > 2 and not any(c.free == 1 and is_quotient(c.expr) for c in found):
        found += [Candidate(*share, m) for share in shares.fit(envs, y, ndims, known)]
    found += [*search.limited(), *search.by_parity(ndims)]
    return _filter_candidates(found, listed_bits(y))


def irrational(envs: Envs, values: Sequence[float], ndims: int = 1) -> list[Candidate]:
    """Return the laws that are met to the last digits of floats, shortest first, as 4n - 4 sqrt(n).

    envs differ; no value need be a fraction itself.
    """
    if len(values) < 3:
        return []
    found = _Search(envs, [float(v) for v in values], basis(envs, ndims)).sums()
    return sorted((c for c in found if c.points > c.free), key=lambda c: c.bits)


def in_parameters(settings: Settings, values: Sequence[Fraction]) -> list[Candidate]:
    """Return the laws in parameters that give every value exactly and are believed, shortest first.

    Of two settings any power meets both values: only the parameter itself is believed of those.
    """
    m = len(values)
    if all(v == values[0] for v in values):
        return [Candidate(num(values[0]), 0.0, 1, m, sure=True)]
    if m < 2:
        return []
    found = list(_Search(settings, values, parameter_basis(settings), chosen=True).sums())
    if m > 2:
        found += [Candidate(*share, m) for share in shares.find_rounded_shares(settings, values)]
    return _filter_candidates(found, listed_bits(values) + (0.0 if m > 2 else MARGIN))


def listed_bits(values: Sequence[int | Fraction]) -> float:
    """Return what the list of values itself costs, in bits."""
    return sum(bits_of(v) for v in values)


def _filter_candidates(found: Sequence[Candidate], listed: float) -> list[Candidate]:
    return sorted((c for c in found if c.sure or c.bits + c.margin <= listed), key=lambda c: c.bits)


def is_quotient(expr: Expr) -> bool:
    """Return whether a law is a number over a shape."""
    last = expr[-1] if expr[0] == "mul" else expr
    result: bool = last[0] == "pow" and last[2] < 0
    return result


class _Search:
    """The forms, each a generator of the candidates that meet all values.

    y: integers and fractions, or floats, which are met to their last digits. chosen: the symbols
    are parameters, whose values somebody chose, not process counts.
    """

    def __init__(self, envs: Envs, y: Sequence[Any], found: Basis, chosen: bool = False) -> None:
        self.envs, self.y, self.basis, self.chosen = envs, y, found, chosen
        self.values = np.array([float(v) for v in y])
        self.floats = any(isinstance(v, float) for v in y)

    def meets(self, expr: Expr) -> bool:
        """Whether a law gives every value: in exact arithmetic, or to the last digits."""
        if not self.floats:
            return all(exact_value(expr, e) == v for e, v in zip(self.envs, self.y, strict=True))
        told = np.array([float(evaluate(expr, e)) for e in self.envs])
        return bool(np.all(np.abs(told - self.values) <= FLOAT_ERROR * np.abs(self.values)))

    def sums(self, most: int = 3) -> Iterator[Candidate]:
        """Try sums of up to ``most`` terms, a number times a shape or a number alone.

        As many points as terms give the numbers, all others check them. Of numbers that leave a
        single point to check them only whole ones are evidence.
        """
        m, met = len(self.y), False
        for size in range(1, most + 1):
            if size > 1 and m <= size and not (self.chosen and m == size == 2):
                return
            if size > 2 and met:  # a longer sum is dearer
                return
            for terms in self.basis.near(size, self.values):
                parts = [self.basis.shapes[i] for i in terms]
                coef = self.solved(parts)
                if coef is None or not self.plausible(parts, coef):
                    continue
                expr = add(*(mul(num(c), p.expr) for c, p in zip(coef, parts, strict=True)))
                if self.meets(expr):
                    met = True
                    yield self.priced(expr, terms, coef)

    def plausible(self, parts: Sequence[Shape], coef: Sequence[Fraction]) -> bool:
        """Whether numbers are such as programs have, and no list of the values."""
        m, size = len(self.y), len(parts)
        largest = MAX_MULTIPLE if self.chosen and size == 1 else MAX_DENOMINATOR
        if not all(c and c.denominator <= largest for c in coef):
            return False
        if size == 1:
            return m > 2 or not parts[0].factors
        return self.chosen or m > size + 1 or all(c.denominator == 1 for c in coef)

    def priced(self, expr: Expr, terms: Sequence[int], coef: Sequence[Fraction]) -> Candidate:
        """Return a sum with its price; terms: numbers of its shapes, coef: what they are times."""
        m, size = len(self.y), len(terms)
        parts = [self.basis.shapes[i] for i in terms]
        bits = sum(p.bits + bits_of(c) for c, p in zip(coef, parts, strict=True))
        if size > 1:
            points = len(np.unique(self.basis.values[list(terms)], axis=1).T)
            further = sum(p.expr != num(1) for p in parts) - 1
            return Candidate(expr, bits + FORM_BITS * further, size, points)
        shape = parts[0]
        told = not self.chosen or shape.expr[0] == "sym" or len(set(self.y)) > 2
        sure = not shape.factors and (self.chosen or coef[0].denominator == 1)
        margin = MARGIN if shape.factors else 0.0
        return Candidate(expr, bits, 1 if told else 2, m, margin, sure)

    def solved(self, parts: Sequence[Shape]) -> list[Fraction] | None:
        """Return the numbers of a sum from the first points that determine them."""
        if self.floats:
            x = np.array([[float(evaluate(p.expr, e)) for p in parts] for e in self.envs])
            size = np.abs(x).max(axis=0)
            found = np.linalg.lstsq(x / size, self.values, rcond=None)[0] / size
            small = [_small(float(c)) for c in found]
            return None if None in small else [c for c in small if c is not None]
        rows: list[list[Fraction]] = []
        for env, v in zip(self.envs, self.y, strict=True):
            row = [p.exact(env) for p in parts]
            if None in row:
                return None
            rows.append([*(x for x in row if x is not None), Fraction(v)])
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

    def limited(self) -> Iterator[Candidate]:
        """Try min(k * shape, m) and max(k * shape, m): two points at least beyond either end."""
        for op, limit in (("min", max(self.y)), ("max", min(self.y))):
            free = [i for i, v in enumerate(self.y) if v != limit]
            rest = [i for i, v in enumerate(self.y) if v == limit]
            if len(free) < 2 or len(rest) < 2 or len({self.y[i] for i in free}) < 2:
                continue
            inner = _Search(
                [self.envs[i] for i in free], [self.y[i] for i in free], self.basis.at(free)
            )
            for c in inner.sums(1):
                beyond = [exact_value(c.expr, self.envs[i]) for i in rest]
                expr = [op, c.expr, num(limit)]
                if sum(v != limit for v in beyond) >= 2 and self.meets(expr):
                    yield Candidate(expr, FORM_BITS + c.bits + bits_of(limit), 2, len(self.y))

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
        parts: list[Candidate] = []
        for mine in halves:
            envs = [self.envs[i] for i in mine]
            part = _Search(envs, [self.y[i] for i in mine], basis(envs, ndims))
            if len(set(part.y)) == 1:
                parts.append(Candidate(num(part.y[0]), bits_of(part.y[0]), 1, len(mine)))
            else:
                parts += sorted(part.sums(1), key=lambda c: c.bits)[:1]
        if len(parts) == 2:
            parity = ["mod", ["log2", sym("n")], num(2)]
            even, odd = parts
            expr = add(mul(add(num(1), mul(num(-1), parity)), even.expr), mul(parity, odd.expr))
            if self.meets(expr):
                yield Candidate(expr, FORM_BITS + even.bits + odd.bits, 2, len(self.y))


def _small(x: float) -> Fraction | None:
    """Return the fraction with a small denominator that a float stands for, if it does."""
    if not math.isfinite(x):
        return None
    f = Fraction(x).limit_denominator(MAX_DENOMINATOR)
    return f if abs(float(f) - x) <= FLOAT_ERROR * max(1.0, abs(x)) else None


def rivals_of(
    found: Sequence[Candidate], envs: Sequence[Mapping[str, int]]
) -> tuple[list[Expr], list[Expr]]:
    """Return laws about as short as the first, found[0], that differ from it at larger counts.

    First those that differ at counts of the same form as the points' (powers of two, squares),
    then those that differ at others only.
    """
    top = max(envs, key=lambda e: e["n"])
    ns = [e["n"] for e in envs]
    same: tuple[int, ...] = (2, 3, 4, FAR)
    other: tuple[int, ...] = ()
    if all(n & (n - 1) == 0 for n in ns):
        same, other = (2, 4, FAR), (3,)
    elif all(math.isqrt(n) ** 2 == n for n in ns):
        same, other = (4, 9, FAR), (2, 3)
    formal = _apart(found, [_larger(top, factor) for factor in same])
    elsewhere = _apart(found, [_larger(top, factor) for factor in other])
    return formal, [expr for expr in elsewhere if expr not in formal]


def parameter_rivals(found: Sequence[Candidate], settings: Settings) -> list[Expr]:
    """Return laws about as short as the first that differ from it at larger parameters."""
    top = {name: max(s[name] for s in settings) for name in settings[0]}
    there = [{name: v * factor for name, v in top.items()} for factor in (2, 4)]
    return _apart(found, there)


def _larger(top: Mapping[str, int], factor: int) -> dict[str, int]:
    """Return the symbols at ``factor`` times the processes, added along the last dimension."""
    last = f"p{len(top) - 2}"
    return {k: v * factor if k in ("n", last) else v for k, v in top.items()}


def _apart(found: Sequence[Candidate], there: Envs) -> list[Expr]:
    """Return the laws within RIVAL_BITS of the first that differ from it somewhere."""
    near = [c for c in found[1:] if c.bits - found[0].bits <= RIVAL_BITS]
    return [c.expr for c in near if any(_differ(found[0].expr, c.expr, env) for env in there)]


def _differ(a: Expr, b: Expr, env: Symbols) -> bool:
    x, y = (float(evaluate(e, {k: float(v) for k, v in env.items()})) for e in (a, b))
    if not (math.isfinite(x) and math.isfinite(y)):
        return math.isfinite(x) or math.isfinite(y)  # one of them has no value there
    return abs(x - y) > 1e-9 * max(1.0, abs(x))
