"""How often ranks do something, where that differs by rank: laws of position, or samples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from p3s.laws.counts import Law
from p3s.laws.expr import Expr, add, evaluate, mul, num, sym
from p3s.laws.lawfinder import find_law
from p3s.model.law_types import CountLaw, Sampled, SizeLaw
from p3s.model.partners.irregular import PAIRS, Sample, edges_of, fit_total, reference, stands_for
from p3s.model.partners.relation import Relation
from p3s.model.sizes.observed import Rows

#: Periods over ranks or coordinates that are tried.
PERIODS = tuple(range(2, 9))
#: Observations needed for every free number.
ROWS_PER_NUMBER = 3
#: Coefficients are whole, or halves (a triangle's area).
MAX_DENOMINATOR = 2
#: Other laws that are kept beside the one that is taken.
MAX_RIVALS = 6


@dataclass(frozen=True)
class _Feature:
    """A position as an equation with its value at every observation."""

    expr: Expr
    value: np.ndarray


@dataclass(frozen=True)
class _Class:
    """Ranks of a kind, an equation that is 0 there and 1 elsewhere, and what it costs to say."""

    outside: Expr
    inside: np.ndarray
    cost: float


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
    y = both[:, -1]
    found = [*_of_classes(env, y, ndims), *_of_borders(env, y, ndims)]
    position = _of_position(env, y, ndims, len(counts))
    found += [position] if position is not None else []
    if not found:
        return None
    found.sort(key=lambda f: f[0])
    others = tuple(law.expr for _, law in found[1 : MAX_RIVALS + 1])
    return replace(found[0][1], others=others)


def by_class(expr: Expr) -> bool:
    """Tell whether a law speaks of ranks by class alone: of positions as zero or not."""
    if expr[0] == "min" and expr[1] == num(1):
        return True
    if expr[0] == "sym":
        return str(expr[1])[0] not in "rcq"
    return all(by_class(e) for e in expr[1:] if isinstance(e, list))


def _of_position(
    env: Mapping[str, np.ndarray], y: np.ndarray, ndims: int, counts: int
) -> tuple[float, Law] | None:
    """Return the cost and the law of one position, with a constant and an extent."""
    positions = list(_positions(env, ndims))
    extents = _extents(env, ndims)
    one = _Feature(num(1), np.ones(len(y)))
    for terms in _models(positions, extents, one):
        if len(y) < ROWS_PER_NUMBER * len(terms):
            continue
        coef = _solve([t.value for t in terms], y.astype(float))
        if coef is not None:
            parts = [mul(num(c), t.expr) for c, t in zip(coef, terms, strict=True) if c]
            law = Law(add(*parts), len(terms), counts)
            plain = len(terms) == 1 or terms[0].expr[0] in ("sym", "add")
            return len(terms) + (1.0 if plain else 2.0), law
    return None


def _of_classes(
    env: Mapping[str, np.ndarray], y: np.ndarray, ndims: int
) -> Iterator[tuple[float, Law]]:
    """Yield the laws, with their costs, of two classes of ranks that have a law each."""
    for each in _classes(env, ndims):
        told = {int(n) for n in np.unique(env["n"][each.inside])}
        told &= {int(n) for n in np.unique(env["n"][~each.inside])}
        if len(told) < 2:
            continue
        inner = _uniform(env, y, each.inside, ndims)
        outer = _uniform(env, y, ~each.inside, ndims) if inner is not None else None
        if inner is None or outer is None:
            continue
        step = add(outer.expr, mul(num(-1), inner.expr))
        if outer.expr[0] == inner.expr[0] == "num":
            step = num(Fraction(*outer.expr[1:]) - Fraction(*inner.expr[1:]))
        expr = add(inner.expr, mul(step, each.outside))
        free = inner.free + outer.free
        yield each.cost + free, Law(expr, free, min(inner.points, outer.points))


def _uniform(
    env: Mapping[str, np.ndarray], y: np.ndarray, mask: np.ndarray, ndims: int
) -> Law | None:
    """Return the law in n and the extents that all ranks of a class follow."""
    points = []
    for n in np.unique(env["n"][mask]):
        mine = y[mask & (env["n"] == n)]
        if np.any(mine != mine[0]):
            return None
        at = int(np.flatnonzero(env["n"] == n)[0])
        names = ["n", *(f"p{d}" for d in range(ndims))]
        points.append(({k: int(env[k][at]) for k in names}, int(mine[0])))
    law = find_law(points, "whole").law
    return law if law is not None and law.free < law.points else None


def _of_borders(
    env: Mapping[str, np.ndarray], y: np.ndarray, ndims: int
) -> Iterator[tuple[float, Law]]:
    """Yield the laws by which every border that a rank is at counts alike."""
    for kind in ("c", "q"):
        ends = [c for x, p in _lines(env, ndims, kind) for c in _ends(env, x, p)]
        value = np.sum([c.inside for c in ends], axis=0, dtype=float)
        if ndims == 1 or np.ptp(value) < 2:
            continue
        coef = _solve([value, np.ones(len(y))], y.astype(float))
        if coef is not None:
            most = num(coef[1] + coef[0] * len(ends))
            inner = add(*(c.outside for c in ends))  # of how many lines it is no end
            expr = add(most, mul(num(-coef[0]), inner))
            yield 3.0 + (kind == "q") / 2, Law(expr, 2, len(np.unique(env["n"])))


def _lines(env: Mapping[str, np.ndarray], ndims: int, kind: str) -> list[tuple[Expr, Expr]]:
    """Return coordinates (kind c) or the partner's (kind q), each with its extent."""
    if kind == "c" and ndims == 1:
        return [(sym("r"), sym("n"))]
    there = [d for d in range(ndims) if f"{kind}{d}" in env]
    return [(sym(f"{kind}{d}"), sym(f"p{d}" if ndims > 1 else "n")) for d in there]


def _ends(env: Mapping[str, np.ndarray], x: Expr, p: Expr) -> list[_Class]:
    """Return the first and the last ranks of a line."""
    last = add(p, num(-1), mul(num(-1), x))
    return [_class(env, ["min", num(1), e], 1.0) for e in (x, last)]


def _class(env: Mapping[str, np.ndarray], outside: Expr, cost: float) -> _Class:
    value = np.asarray(evaluate(outside, env), dtype=float) + np.zeros(len(env["n"]))
    return _Class(outside, value == 0, cost)


def _classes(env: Mapping[str, np.ndarray], ndims: int) -> Iterator[_Class]:
    """Yield classes of ranks: ends of lines, their products and unions, all borders."""
    for kind in ("c", "q"):
        lines = [_ends(env, x, p) for x, p in _lines(env, ndims, kind)]
        if kind == "c" and ndims > 1:
            yield from _ends(env, sym("r"), sym("n"))
        extra = 0.0 if kind == "c" else 0.5  # the partner's position
        ends = [replace(end, cost=end.cost + extra) for line in lines for end in line]
        yield from ends
        sides = [_union(env, line, 1.5 + extra) for line in lines]
        yield from sides
        if len(lines) > 1:
            yield _union(env, sides, 2.0 + extra)
            for k, line in enumerate(lines):
                others = [end for other in lines[k + 1 :] for end in other]
                for a in line:
                    yield from (_union(env, [a, b], 2.5 + extra) for b in others)
                    yield from (_both(env, a, b, 2.5 + extra) for b in others)


def _union(env: Mapping[str, np.ndarray], parts: Sequence[_Class], cost: float) -> _Class:
    """Return the ranks that are in one class or another."""
    return _class(env, mul(*(c.outside for c in parts)), cost)


def _both(env: Mapping[str, np.ndarray], a: _Class, b: _Class, cost: float) -> _Class:
    """Return the ranks that are in two classes."""
    return _class(env, ["max", a.outside, b.outside], cost)


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
    found, _, rank, _ = np.linalg.lstsq(design, y, rcond=None)
    if rank < len(columns) or not np.allclose(design @ found, y, rtol=1e-6, atol=1e-6):
        return None
    coef = [Fraction(float(x)).limit_denominator(MAX_DENOMINATOR) for x in found]
    if any(c == 0 for c in coef) or not np.array_equal(
        design @ np.array([float(c) for c in coef]), y
    ):
        return None
    return coef


#: More times than this in an iteration are not told apart.
MAX_TIMES = 8
#: Terms tried for the amount of all messages: (shape, sign)...
_AMOUNTS = ((("cuts", 1),), (("cuts", 1), ("rest", 1)))


@dataclass(frozen=True)
class Calls:
    """Calls of the pairs of a neighbourhood at one count, and bytes of one: (pairs, times)."""

    calls: np.ndarray
    nbytes: np.ndarray


def calls_of(rows: Mapping[int, Rows]) -> dict[int, Calls]:
    """Return the calls of each pair and time per count; one time where there are too many."""
    flat = {n: _without_iterations(r, n) for n, r in rows.items()}
    times = {n: _times(pair // n, pair, first) for n, (pair, _, _, first) in flat.items()}
    number = 1 + max(int(t.max(initial=0)) for t in times.values())
    if number > MAX_TIMES:
        number, times = 1, {n: np.zeros_like(t) for n, t in times.items()}
    found = {}
    for n, (pair, nbytes, count, _) in flat.items():
        every, which = np.unique(pair, return_inverse=True)
        calls, amount = np.zeros((2, len(every), number))
        np.add.at(calls, (which, times[n]), count)
        np.add.at(amount, (which, times[n]), count * nbytes)
        found[n] = Calls(calls.astype(np.int64), amount / np.maximum(calls, 1))
    return found


def _without_iterations(rows: Rows, n: int) -> tuple[np.ndarray, ...]:
    """Return pair, bytes, calls and first event of what a rank sends a partner with one size."""
    keys = np.stack([rows.rank * n + rows.peer, rows.nbytes])
    (pair, nbytes), which = np.unique(keys, axis=1, return_inverse=True)
    first = np.full(len(pair), np.iinfo(np.int64).max, dtype=np.int64)
    np.minimum.at(first, which.ravel(), rows.first)
    return pair, nbytes, np.bincount(which.ravel(), weights=rows.count), first


def _times(rank: np.ndarray, pair: np.ndarray, first: np.ndarray) -> np.ndarray:
    """Return how often a rank has come back to a partner of before when it makes each call."""
    out = np.zeros(len(pair), dtype=np.int64)
    here, time = -1, 0
    met: set[int] = set()
    for i in np.lexsort((first, rank)).tolist():
        if rank[i] != here:
            here, time, met = int(rank[i]), 0, set()
        elif pair[i] in met:
            time, met = time + 1, set()
        met.add(int(pair[i]))
        out[i] = time
    return out


def laws(seen: Mapping[int, Calls], elem: int) -> list[tuple[CountLaw, SizeLaw]]:
    """Return the laws of the calls and sizes (in elements of ``elem`` bytes) of each time.

    What all numbers of calls of a count are multiples of, the iterations, has a law of its own.
    """
    unit = {n: int(np.gcd.reduce(each.calls, axis=None)) for n, each in seen.items()}
    iterations = _iterations(unit)
    out = []
    for k in range(seen[max(seen)].calls.shape[1]):
        there = [n for n, each in seen.items() if each.calls[:, k].any()]
        top = seen[max(there)]
        amount = (top.calls * top.nbytes).sum(axis=1)
        chosen = np.lexsort((amount, *(top.calls > 0).T))[reference(len(amount))]
        calls = {n: seen[n].calls[:, k] // unit[n] for n in there}
        sizes = {n: seen[n].nbytes[:, k] / elem for n in there}
        once = all(np.all(v == 1) for v in calls.values())
        number = None if once else _sampled(calls, chosen, PAIRS)
        means = tuple((n, *_mean(sizes[n], seen[n].calls[:, k])) for n in there)
        law = SizeLaw(means=means, sample=_sampled(sizes, chosen, _AMOUNTS))
        out.append((replace(iterations, sample=number), law))
    return out


def _iterations(unit: Mapping[int, int]) -> CountLaw:
    found = find_law([({"n": n}, k) for n, k in unit.items()], "whole").law
    if found is not None:
        return CountLaw(expr=found.expr, points=found.points, free=found.free)
    return CountLaw(stat=find_law([(n, float(k)) for n, k in unit.items()], "work").fit)


def _mean(size: np.ndarray, calls: np.ndarray) -> tuple[float, int]:
    return float(size @ calls / calls.sum()), int(calls.sum())


def _sampled(
    values: Mapping[int, np.ndarray],
    chosen: np.ndarray,
    terms: Sequence[tuple[tuple[str, int], ...]],
) -> Sampled:
    """Return the law of numbers of pairs; chosen: the reference pairs, of the largest count."""
    total = fit_total(list(values), [float(v.sum()) for v in values.values()], terms)
    top = values[max(values)]
    shares = top[chosen] / (top.mean() or 1.0)
    return Sampled(tuple(round(float(x), 6) for x in shares), total)


def of_pairs(
    relation: Relation | None, law: Sampled, n: int, ranks: np.ndarray, peers: np.ndarray
) -> np.ndarray:
    """Return the whole numbers of the pairs of ranks and partners, int64.

    They belong to pairs, so that both ends agree; over all pairs they add up to the total.
    """
    if not isinstance(relation, Sample):
        raise ValueError("numbers of a neighbourhood have no sample of it")
    edges = edges_of(relation, n)
    share = np.asarray(law.values)[stands_for(relation, n, len(edges), len(law.values), 1)]
    ends = np.floor(np.cumsum(share) / max(share.sum(), 1e-300) * law.total.at(n) + 0.5)
    amount = np.diff(np.concatenate([[0.0], ends])).astype(np.int64)
    a, b = (ranks, peers) if relation.sign > 0 else (peers, ranks)
    at = np.searchsorted(edges[:, 0] * n + edges[:, 1], a * n + b)
    return np.asarray(amount[np.minimum(at, len(edges) - 1)])
