"""How often ranks do something, where that differs by rank: laws of position.

A loop whose trips are the rank's own (r, n - 1 - r, r mod k), the partner's, or the distance to
the border. A law is a multiple of one such position, then with a constant, then with an extent as
well; all numbers whole, all ranks at all counts exactly, and far more ranks than numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from p3s.laws.counts import Law
from p3s.laws.expr import Expr, add, evaluate, mul, num, sym

#: Periods over ranks or coordinates that are tried.
PERIODS = tuple(range(2, 9))
#: Observations needed for every free number.
ROWS_PER_NUMBER = 3
#: Coefficients are whole, or halves (a triangle's area).
MAX_DENOMINATOR = 2


@dataclass(frozen=True)
class _Feature:
    """A position as an equation with its value at every observation."""

    expr: Expr
    value: np.ndarray


def fit_rank_count(env: Mapping[str, np.ndarray], values: np.ndarray, ndims: int) -> Law | None:
    """Return the simplest law of position that gives every value exactly, or None.

    env: symbols n, r, p_d, c_d and, where there are partners, q_d, int64 arrays over
    observations; values: how often, int64.
    """
    counts = np.unique(env["n"])
    if len(counts) < 2:
        return None
    names = sorted(env)
    both = np.unique(np.stack([*(env[k] for k in names), values], axis=1), axis=0)
    env = {k: both[:, i] for i, k in enumerate(names)}
    y = both[:, -1].astype(float)
    positions = list(_positions(env, ndims))
    extents = _extents(env, ndims)
    one = _Feature(num(1), np.ones(len(y)))
    for terms in _models(positions, extents, one):
        if len(y) < ROWS_PER_NUMBER * len(terms):
            continue
        coef = _solve([t.value for t in terms], y)
        if coef is not None:
            parts = [mul(num(c), t.expr) for c, t in zip(coef, terms, strict=True) if c]
            return Law(add(*parts), len(terms), len(counts))
    return None


def _models(
    positions: Sequence[_Feature], extents: Sequence[_Feature], one: _Feature
) -> Iterator[list[_Feature]]:
    """Yield sets of terms, those with fewest numbers first."""
    yield from ([p] for p in positions)
    products = [
        _Feature(mul(p.expr, e.expr), p.value * e.value) for p in positions for e in extents
    ]
    yield from ([p] for p in products)
    yield from ([p, one] for p in positions)
    yield from ([p, e] for p in positions for e in extents)
    yield from ([p, e, one] for p in positions for e in extents)


def _positions(env: Mapping[str, np.ndarray], ndims: int) -> Iterator[_Feature]:
    """Yield what may tell ranks apart, simplest first: own position, then the partner's."""
    lines = [(sym("r"), sym("n"))] if ndims == 1 or "r" in env else []
    lines += [(sym(f"c{d}"), sym(f"p{d}")) for d in range(ndims) if ndims > 1]
    there = [
        (sym(f"q{d}"), sym(f"p{d}" if ndims > 1 else "n")) for d in range(ndims) if f"q{d}" in env
    ]
    exprs: list[Expr] = []
    for c, p in (*lines, *there):
        last = add(p, num(-1), mul(num(-1), c))
        exprs += [c, add(c, num(1)), last, add(last, num(1)), ["min", c, last], ["max", c, last]]
    exprs += [["mod", c, num(k)] for c, _ in (*lines, *there) for k in PERIODS]
    exprs += [["quot", c, num(k)] for c, _ in lines for k in (2, 4)]
    for e in exprs:
        value = np.asarray(evaluate(e, env), dtype=float) + np.zeros(len(env["n"]))
        if np.ptp(value) > 0:
            yield _Feature(e, value)


def _extents(env: Mapping[str, np.ndarray], ndims: int) -> list[_Feature]:
    names = ["n", *(f"p{d}" for d in range(ndims if ndims > 1 else 0))]
    return [_Feature(sym(k), env[k].astype(float)) for k in names if np.ptp(env[k]) > 0]


def _solve(columns: Sequence[np.ndarray], y: np.ndarray) -> list[Fraction] | None:
    """Return rational coefficients that give ``y`` exactly, or None."""
    design = np.stack(columns, axis=1)
    if len(columns) > 1 and np.linalg.matrix_rank(design) < len(columns):
        return None
    found = np.linalg.lstsq(design, y, rcond=None)[0]
    coef = [Fraction(float(x)).limit_denominator(MAX_DENOMINATOR) for x in found]
    if any(c == 0 for c in coef) or not np.array_equal(
        design @ np.array([float(c) for c in coef]), y
    ):
        return None
    return coef
