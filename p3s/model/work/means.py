"""The mean work of a rank as a law of the process grid: few terms, judged by counts left out.

A law is a sum of at most three non-negative terms: products of one over the extents, powers of n
that fall, and logarithms for single phases. Laws that predict counts left out about equally well
are averaged in the logarithm, so that noise does not decide between them; of exact work one law
is so much better that the others have no weight.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import combinations

import numpy as np

from p3s.laws.expr import Expr, add, evaluate, mul, num, power, sym
from p3s.model.work_types import MeanLaw

#: Terms of a law; what a further term has to divide the error at counts left out by, and besides
#: a law that has no count to spare: of so many some meet four counts by chance.
MOST_TERMS, GAIN, NO_SPARE = 3, 1.5, 2.5
#: Price of a term that is not common.
RARE = 1.3
#: Laws within this factor of the best one have a say, at most so many.
NEAR, MOST_LAWS = 2.0, 8
#: Errors below are taken as equal: rounding of clocks and counters.
EXACT = 1e-4
#: A law that is off by this at a traced count is none.
WRONG = 0.5
#: Weight of the largest count among those left out: it is nearest to what is asked.
LAST_WEIGHT = 2.0
#: The half width of an interval grows by this share of it with each doubling beyond all counts.
PER_DOUBLING = 0.5


def shapes(ndims: int, logs: bool) -> list[tuple[Expr, float]]:
    """Return the terms that a mean may have with their prices, commonest first.

    A price is what the error has to be divided by: surfaces of all dimensions together are common,
    those of single ones and powers beside the extents are not. logs: what only phases have.
    """
    n = sym("n")
    extents = [sym(f"p{d}") for d in range(ndims)] if ndims > 1 else []
    out: list[tuple[Expr, float]] = [(power(n, -1), 1.0), (num(1), 1.0)]
    single: list[Expr] = []
    for size in range(len(extents) - 1, 0, -1):
        parts = [mul(*(power(p, -1) for p in some)) for some in combinations(extents, size)]
        out.append((add(*parts), 1.0))
        single += parts
    out += [(term, RARE) for term in single]
    price = RARE if extents else 1.0
    out += [(["pow", n, -a, b], price) for a, b in ((1, 2), (2, 3), (1, 3))]
    if logs:  # what falls faster is made up for by another phase
        out += [(term, RARE) for term in (["log2", n], mul(["log2", n], power(n, -1)), n)]
        out += [(["pow", n, -a, b], RARE) for a, b in ((3, 2), (4, 3))]
    return out


def fit_mean(
    grids: Sequence[Mapping[str, int]], values: Sequence[float], logs: bool = False
) -> MeanLaw | None:
    """Return the law of values at grids (n, p0, ... each), ascending counts; None of no work."""
    known = [i for i, v in enumerate(values) if v > 0]
    if not known:
        return None
    at = tuple(tuple(sorted(grids[i].items())) for i in known)
    points = tuple(float(values[i]) for i in known)
    error = None
    if len(points) > 2:
        held = MeanLaw(_laws(at[:-1], points[:-1], logs), None)
        error = abs(float(np.log(mean_at(held, dict(at[-1])) / points[-1])))
    return MeanLaw(_laws(at, points, logs), error)


def mean_at(law: MeanLaw, grid: Mapping[str, int]) -> float:
    """Return the mean at a grid (n, p0, ...)."""
    logs = [weight * np.log(max(v, 1e-300)) for weight, v in _values(law, grid)]
    return float(np.exp(sum(logs)))


def spread_at(law: MeanLaw, grid: Mapping[str, int]) -> float:
    """Return how far the laws that are averaged lie apart there: a deviation of logarithms."""
    found = _values(law, grid)
    weight = np.array([w for w, _ in found])
    logs = np.log(np.maximum([v for _, v in found], 1e-300))
    return float(np.sqrt(weight @ (logs - weight @ logs) ** 2))


def _values(law: MeanLaw, grid: Mapping[str, int]) -> list[tuple[float, float]]:
    env = {name: np.array([float(v)]) for name, v in grid.items()}
    return [
        (weight, sum(c * float(np.broadcast_to(evaluate(e, env), 1)[0]) for c, e in terms))
        for weight, terms in law.laws
    ]


@lru_cache(maxsize=1024)
def _laws(
    grids: tuple[tuple[tuple[str, int], ...], ...], values: tuple[float, ...], logs: bool
) -> tuple[tuple[float, tuple[tuple[float, Expr], ...]], ...]:
    y = np.array(values)
    if len(y) == 1:
        n = dict(grids[0])["n"]
        return ((1.0, ((float(y[0]) * n, power(sym("n"), -1)),)),)
    terms, prices, x = _columns(grids, logs)
    found = _scored(x / y[:, None], prices, len(y))
    best = found[0][0]
    kept = [f for f in found[:MOST_LAWS] if f[0] <= NEAR * best]
    weight = np.array([score ** -float(len(y)) for score, _, _ in kept])
    weight /= weight.sum()
    return tuple(
        (float(w), tuple((float(c), terms[i]) for i, c in zip(which, coef, strict=True)))
        for w, (_, which, coef) in zip(weight, kept, strict=True)
        if w > EXACT
    )


def _columns(
    grids: Iterable[tuple[tuple[str, int], ...]], logs: bool
) -> tuple[list[Expr], np.ndarray, np.ndarray]:
    """Return the terms that differ at the counts, their prices and values: (counts, terms)."""
    each = [dict(g) for g in grids]
    env = {name: np.array([float(g[name]) for g in each]) for name in each[0]}
    terms: list[Expr] = []
    prices: list[float] = []
    columns: list[np.ndarray] = []
    for term, price in shapes(len(each[0]) - 1, logs):
        column = np.broadcast_to(np.asarray(evaluate(term, env), dtype=float), (len(each),))
        unit = column / np.linalg.norm(column)
        if all(unit @ (c / np.linalg.norm(c)) < 1 - 1e-12 for c in columns):
            terms.append(term)
            prices.append(price)
            columns.append(column)
    return terms, np.array(prices), np.stack(columns, axis=1)


def _scored(
    x: np.ndarray, prices: np.ndarray, counts: int
) -> list[tuple[float, tuple[int, ...], np.ndarray]]:
    """Return (score, terms, coefficients) of all non-negative laws, the best first.

    x: (counts, terms), relative to the values. The score is the error at counts left out.
    """
    out = []
    weight = np.ones(counts)
    weight[-1] = LAST_WEIGHT
    for size in range(1, min(MOST_TERMS, max(counts - 2, min(counts - 1, 2))) + 1):
        which = np.array(list(combinations(range(x.shape[1]), size)))
        design = x[:, which].transpose(1, 0, 2)  # (laws, counts, terms)
        coef = np.linalg.pinv(design).sum(axis=2)
        off = np.zeros(len(which))
        for j in range(counts):
            rest = np.delete(design, j, axis=1)
            told = (design[:, j] * np.linalg.pinv(rest).sum(axis=2)).sum(axis=1)
            off += weight[j] * (told - 1.0) ** 2
        scores = (np.sqrt(off / weight.sum()) + EXACT) * prices[which].prod(axis=1)
        scores *= GAIN ** (size - 1) * (NO_SPARE if size > 1 and size == counts - 1 else 1.0)
        there = np.abs((design * coef[:, None, :]).sum(axis=2) - 1.0).max(axis=1)
        fine = np.all(coef > 0, axis=1) & (there < WRONG)
        out += [
            (float(s), tuple(w.tolist()), c)
            for s, w, c in zip(scores[fine], which[fine], coef[fine], strict=True)
        ]
    if not out:  # nothing is like the values: shared out evenly, as the last one is
        return [(1.0, (0,), 1.0 / x[-1:, 0])]
    return sorted(out, key=lambda f: f[0])
