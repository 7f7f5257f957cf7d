"""Numbers by position: ranks of a kind, borders, and where on a line or in a period a rank is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from p3s.laws.counts import Law
from p3s.laws.expr import Expr, add, evaluate, mul, num, sym
from p3s.laws.lawfinder import find_law
from p3s.model.sizes.hypotheses import Hypothesis, written
from p3s.model.sizes.observations import Observations

#: Periods over ranks or coordinates that are tried.
PERIODS = tuple(range(2, 9))
#: Observations needed for every free number.
ROWS_PER_NUMBER = 3
#: Coefficients are whole, or halves (a triangle's area).
MAX_DENOMINATOR = 2

Symbols = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class _Feature:
    """A position as an equation with its value at every observation."""

    expr: Expr
    value: np.ndarray

    @property
    def inside(self) -> np.ndarray:
        """Where the value is 0: what says that a rank is of no class is 1 elsewhere."""
        return np.asarray(self.value == 0)


def by_position(obs: Observations) -> Iterator[Hypothesis]:
    """Yield the laws of position that give every number."""
    if len(obs.counts) < 2 or np.all(obs.value == obs.value[0]):
        return
    yield from _of_classes(obs)
    yield from _of_borders(obs)
    yield from _of_lines(obs)


def by_class(expr: Expr) -> bool:
    """Tell whether a law speaks of ranks by class alone: of positions as zero or not."""
    if expr[0] == "min" and expr[1] == num(1):
        return True
    if expr[0] == "sym":
        return str(expr[1])[0] not in "rcq"
    return all(by_class(e) for e in expr[1:] if isinstance(e, list))


def _of_classes(obs: Observations) -> Iterator[Hypothesis]:
    """Yield the laws of two classes of ranks that have a law each."""
    for outside in _classes(obs):
        parts = obs.take(outside.inside), obs.take(~outside.inside)
        if min(len(set(each.counts) & set(parts[0].counts)) for each in parts) < 2:
            continue
        inner = _uniform(parts[0])
        outer = _uniform(parts[1]) if inner is not None else None
        if inner is None or outer is None:
            continue
        step = add(outer.expr, mul(num(-1), inner.expr))
        if outer.expr[0] == inner.expr[0] == "num":
            step = num(Fraction(*outer.expr[1:]) - Fraction(*inner.expr[1:]))
        yield written(add(inner.expr, mul(step, outside.expr)), inner.free + outer.free)


def _uniform(obs: Observations) -> Law | None:
    """Return the law in n and the extents that all ranks of a class follow."""
    law = find_law(obs.by_count(), "whole").law if obs.even() else None
    return law if law is not None and law.free < law.points else None


def _of_borders(obs: Observations) -> Iterator[Hypothesis]:
    """Yield the laws by which every border that a rank is at counts alike."""
    for kind in "cq":
        ends = [end for x, p in _lines(obs, kind) for end in _ends(obs.env, x, p)]
        value = np.sum([end.inside for end in ends], axis=0, dtype=float)
        if obs.ndims == 1 or np.ptp(value) < 2:
            continue
        coef = _solve([value, np.ones(len(obs.value))], obs.value.astype(float))
        if coef is not None:
            most = num(coef[1] + coef[0] * len(ends))
            inner = add(*(end.expr for end in ends))  # of how many lines it is no end
            yield written(add(most, mul(num(-coef[0]), inner)), 2)


def _lines(obs: Observations, kind: str) -> list[tuple[Expr, Expr]]:
    """Return coordinates (kind c) or the partner's (kind q), each with its extent."""
    if kind == "c" and obs.ndims == 1:
        return [(sym("r"), sym("n"))]
    there = [d for d in range(obs.ndims) if f"{kind}{d}" in obs.env]
    return [(sym(f"{kind}{d}"), sym(f"p{d}" if obs.ndims > 1 else "n")) for d in there]


def _feature(env: Symbols, expr: Expr) -> _Feature:
    return _Feature(expr, np.asarray(evaluate(expr, env), dtype=float) + np.zeros(len(env["n"])))


def _last(x: Expr, p: Expr) -> Expr:
    """Return how far a position is from the last one."""
    return add(p, num(-1), mul(num(-1), x))


def _ends(env: Symbols, x: Expr, p: Expr) -> list[_Feature]:
    """Return the first and the last ranks of a line."""
    return [_feature(env, ["min", num(1), e]) for e in (x, _last(x, p))]


def _classes(obs: Observations) -> Iterator[_Feature]:
    """Yield classes of ranks: ends of lines, their products and unions, all borders."""
    env = obs.env

    def union(parts: Sequence[_Feature]) -> _Feature:
        return _feature(env, mul(*(part.expr for part in parts)))

    for kind in "cq":
        lines = [_ends(env, x, p) for x, p in _lines(obs, kind)]
        if kind == "c" and obs.ndims > 1:
            yield from _ends(env, sym("r"), sym("n"))
        yield from (end for line in lines for end in line)
        sides = [union(line) for line in lines]
        yield from sides
        if len(lines) > 1:
            yield union(sides)
            for k, line in enumerate(lines):
                for a, b in ((a, b) for a in line for other in lines[k + 1 :] for b in other):
                    yield union([a, b])
                    yield _feature(env, ["max", a.expr, b.expr])


def _of_lines(obs: Observations) -> Iterator[Hypothesis]:
    """Yield the laws of one position, with a constant and an extent, of the fewest terms."""
    y = obs.value.astype(float)
    least = 0
    for terms in _models(obs):
        if least and len(terms) > least:
            return
        if len(y) < ROWS_PER_NUMBER * len(terms):
            continue
        coef = _solve([t.value for t in terms], y)
        if coef is not None:
            least = len(terms)
            parts = [mul(num(c), t.expr) for c, t in zip(coef, terms, strict=True) if c]
            yield written(add(*parts), len(terms))


def _models(obs: Observations) -> Iterator[list[_Feature]]:
    """Yield sets of terms, those with fewest numbers first."""
    positions, extents = list(_positions(obs)), _extents(obs)
    one = _Feature(num(1), np.ones(len(obs.value)))
    yield from ([p] for p in positions)
    yield from (
        [_Feature(mul(p.expr, e.expr), p.value * e.value)] for p in positions for e in extents
    )
    yield from ([p, one] for p in positions)
    yield from ([p, e] for p in positions for e in extents)
    yield from ([p, e, one] for p in positions for e in extents)


def _positions(obs: Observations) -> Iterator[_Feature]:
    """Yield what may tell ranks apart: own position, then the partner's."""
    own = [(sym("r"), sym("n")), *(_lines(obs, "c") if obs.ndims > 1 else ())]
    every = [*own, *_lines(obs, "q")]
    exprs: list[Expr] = []
    for c, p in every:
        last = _last(c, p)
        exprs += [c, add(c, num(1)), last, add(last, num(1)), ["min", c, last], ["max", c, last]]
    exprs += [["mod", c, num(k)] for c, _ in every for k in PERIODS]
    exprs += [["quot", c, num(k)] for c, _ in own for k in (2, 4)]
    features = (_feature(obs.env, e) for e in exprs)
    yield from (feature for feature in features if np.ptp(feature.value) > 0)


def _extents(obs: Observations) -> list[_Feature]:
    names = ["n", *(f"p{d}" for d in range(obs.ndims if obs.ndims > 1 else 0))]
    features = [_feature(obs.env, sym(k)) for k in names]
    return [feature for feature in features if np.ptp(feature.value) > 0]


def _solve(columns: Sequence[np.ndarray], y: np.ndarray) -> list[Fraction] | None:
    """Return rational coefficients that give ``y`` exactly, or None."""
    design = np.stack(columns, axis=1)
    found, _, rank, _ = np.linalg.lstsq(design, y, rcond=None)
    if rank < len(columns) or not np.allclose(design @ found, y, rtol=1e-6, atol=1e-6):
        return None
    coef = [Fraction(float(x)).limit_denominator(MAX_DENOMINATOR) for x in found]
    if any(c == 0 for c in coef) or not np.array_equal(
        design @ np.array([float(c) for c in coef]), y
    ):
        return None
    return coef
