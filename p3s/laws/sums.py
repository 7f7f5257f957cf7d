"""Sums of few non-negative terms over process grids, judged by counts left out.

Terms are products of one over the extents, powers of n that fall, and logarithms.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from p3s.laws.expr import Expr, add, evaluate, mul, num, power, sym

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
    """Return the terms that a sum may have with their prices, commonest first.

    A price is what the error has to be divided by: surfaces of all dimensions together are common,
    those of single ones and powers beside the extents are not. logs: logarithms and what falls
    faster, too.
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


@dataclass(frozen=True)
class Columns:
    """Terms that differ at the counts, their prices, and their values: (counts, terms)."""

    terms: Sequence[Expr]
    prices: np.ndarray
    x: np.ndarray


@dataclass(frozen=True)
class Sum:
    """A sum of columns with positive coefficients.

    error: relative, of the counts left out one by one (rms); score: that times the prices.
    """

    score: float
    error: float
    which: tuple[int, ...]
    coef: np.ndarray


def columns(grids: Sequence[Mapping[str, float]], terms: Sequence[tuple[Expr, float]]) -> Columns:
    """Return those of the terms (with their prices) that differ at the grids."""
    env = {name: np.array([float(g[name]) for g in grids]) for name in grids[0]}
    kept: list[tuple[Expr, float]] = []
    found: list[np.ndarray] = []
    units: list[np.ndarray] = []
    for term, price in terms:
        column = np.broadcast_to(np.asarray(evaluate(term, env), dtype=float), (len(grids),))
        size = float(np.linalg.norm(column))
        if size and all(column @ u / size < 1 - 1e-12 for u in units):
            kept.append((term, price))
            found.append(column)
            units.append(column / size)
    return Columns([t for t, _ in kept], np.array([p for _, p in kept]), np.stack(found, axis=1))


def ranked(
    shown: Columns, y: np.ndarray, scale: np.ndarray, weight: np.ndarray | float = 1.0
) -> list[Sum]:
    """Return the sums of few terms that are like the values y, the best first.

    scale: what errors are relative to, weight: of each count in the squares; both (counts,).
    """
    counts = len(y)
    root = np.sqrt(np.broadcast_to(weight, (counts,)))
    x, z = shown.x / scale[:, None] * root[:, None], y / scale * root
    last = np.ones(counts)
    last[-1] = LAST_WEIGHT
    out: list[Sum] = []
    for size in range(1, min(MOST_TERMS, max(counts - 2, min(counts - 1, 2))) + 1):
        which = np.array(list(combinations(range(x.shape[1]), size)), dtype=np.int64)
        if not len(which):
            break
        design = x[:, which].transpose(1, 0, 2)  # (sums, counts, terms)
        coef = np.linalg.pinv(design) @ z
        off = np.zeros(len(which))
        for j in range(counts):
            rest = np.linalg.pinv(np.delete(design, j, axis=1)) @ np.delete(z, j)
            off += last[j] * ((design[:, j] * rest).sum(axis=1) - z[j]) ** 2
        errors = np.sqrt(off / last.sum())
        scores = (errors + EXACT) * shown.prices[which].prod(axis=1)
        scores *= GAIN ** (size - 1) * (NO_SPARE if size > 1 and size == counts - 1 else 1.0)
        there = np.abs(((design * coef[:, None, :]).sum(axis=2) - z) / root).max(axis=1)
        out += [
            Sum(float(scores[i]), float(errors[i]), tuple(which[i].tolist()), coef[i])
            for i in np.flatnonzero(np.all(coef > 0, axis=1) & (there < WRONG))
        ]
    return sorted(out, key=lambda s: s.score)


def near(found: Sequence[Sum], counts: int) -> list[tuple[float, Sum]]:
    """Return the sums that have a say, with their weights: the best of :func:`ranked` first."""
    kept = [s for s in found[:MOST_LAWS] if s.score <= NEAR * found[0].score]
    weight = np.array([s.score ** -float(counts) for s in kept])
    weight /= weight.sum()
    return [(float(w), s) for w, s in zip(weight, kept, strict=True) if w > EXACT]
