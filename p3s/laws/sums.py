"""Sums of few non-negative terms for what is measured, over process counts: one search, in bits.

A sum costs the bits of its terms, those that name each further one among all, and for every count
the logarithm of its relative error where counts are left out. Coefficients are solved for on Gram
matrices per count, so that leaving counts out costs no pass over the samples and hundreds of sets
of terms are solved at once; errors are those of the samples, which the digits of a float alone
limit: a small term of exact work shows. What costs RIVAL_BITS more than the cheapest is no rival.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import combinations
from typing import Any

import numpy as np

from p3s.laws.expr import Expr, add, evaluate, mul, num, power, sym
from p3s.laws.statistics import FLOAT_ERROR, RIVAL_BITS, nonnegative

#: Bits of a term that is not common, of what is done once in a run, and of what grows with the
#: count: wrong by far at large counts where it fits by chance.
RARE, SELDOM, GROWING = 1.5, 6.0, 10.0
#: Sums that are kept beside the cheapest.
MOST_RIVALS = 8
#: A sum that is off by this at the counts that it is fitted to is none.
WRONG = 0.5
#: In-sample errors times this stand for those at counts left out.
IN_SAMPLE = 5.0
#: Terms of a sum; sets that are extended by one more.
MOST_TERMS, BEAM = 4, 16
#: Weight of the squared errors of single ranks; the rest is that of the mean over the ranks.
SPREAD = 0.1


def shapes(ndims: int, logs: bool) -> list[tuple[Expr, float]]:
    """Return the terms that a mean may have with their bits, commonest first.

    Surfaces of all dimensions together are common, those of single ones and powers beside the
    extents are not. logs: logarithms and what falls faster, too.
    """
    n = sym("n")
    extents = [sym(f"p{d}") for d in range(ndims)] if ndims > 1 else []
    out: list[tuple[Expr, float]] = [(power(n, -1), 0.0), (num(1), 0.0)]
    single: list[Expr] = []
    for size in range(len(extents) - 1, 0, -1):
        parts = [mul(*(power(p, -1) for p in some)) for some in combinations(extents, size)]
        out.append((add(*parts), 0.0))
        single += parts
    out += [(term, RARE) for term in single]
    bits = RARE if extents else 0.0
    out += [(["pow", n, -a, b], bits) for a, b in ((1, 2), (2, 3), (1, 3))]
    if logs:  # what falls faster is made up for by another phase
        out += [(term, RARE) for term in (["log2", n], mul(["log2", n], power(n, -1)), n)]
        out += [(["pow", n, -a, b], RARE) for a, b in ((3, 2), (4, 3))]
    return out


def columns(grids: Sequence[Mapping[str, float]], terms: Sequence[Expr]) -> np.ndarray:
    """Return the values of terms at grids: (grids, terms)."""
    env = {name: np.array([float(g[name]) for g in grids]) for name in grids[0]}
    values = (np.asarray(evaluate(term, env), dtype=float) for term in terms)
    return np.stack([np.broadcast_to(value, (len(grids),)) for value in values], axis=1)


@dataclass(frozen=True)
class Sum:
    """A sum of columns, by their numbers, with positive coefficients.

    bits: of its terms and of what it misses; error: relative, of counts left out (rms).
    """

    bits: float
    error: float
    which: tuple[int, ...]
    coef: tuple[float, ...]

    def at(self, x: np.ndarray) -> np.ndarray:
        """Return the values at samples, (samples, columns)."""
        return np.asarray(x[:, list(self.which)] @ np.array(self.coef))


def miss_bits(error: float, counts: int) -> float:
    """Return the bits of so many counts that are met with a relative error."""
    return counts * float(np.log2(error + FLOAT_ERROR))


def shares(bits: Sequence[float]) -> np.ndarray:
    """Return the weights of hypotheses, zero of those that are no rivals of the cheapest."""
    more = np.asarray(bits, dtype=float) - min(bits)
    weight = np.where(more <= RIVAL_BITS, 2.0**-more, 0.0)
    return np.asarray(weight / weight.sum())


def near(found: Sequence[Sum]) -> list[tuple[float, Sum]]:
    """Return the sums that have a say, with their weights, the best first."""
    kept = [s for s in found[:MOST_RIVALS] if s.bits <= found[0].bits + RIVAL_BITS]
    return list(zip(shares([s.bits for s in kept]).tolist(), kept, strict=True))


def search_sums(
    x: np.ndarray,
    y: np.ndarray,
    n: np.ndarray,
    bits: Sequence[float],
    nest: Sequence[int] = (),
    like: Sequence[tuple[int, ...]] = (),
    weight: np.ndarray | None = None,
) -> list[Sum]:
    """Return the sums of few columns that are like the values y, the cheapest first.

    x: (samples, columns), non-negative; y: (samples,); n: the count of each sample, ascending;
    bits: of each column; nest: columns that belong together (a nest of loops costs something per
    iteration of each loop), all tried at once; like: sets of columns that similar code has: these
    are paid for. weight: of each count in the squares; every one weighs the same without, whatever
    its samples. Where nothing is like the values, it is the first column through the last ones.
    """
    if not np.any(y > 0):
        return [Sum(0.0, 0.0, (), ())]
    last = n == n[-1]
    flat = Sum(0.0, 1.0, (0,), (float(y[last].mean() / max(x[last, 0].mean(), 1e-300)),))
    if last.all():
        return [flat]
    price = np.asarray(bits, dtype=float)
    grams = _Grams(x, y, n, weight)
    usable = _distinct(grams, price)
    found: dict[tuple[int, ...], tuple[float, float]] = {}
    beam: list[tuple[int, ...]] = []
    for size in range(1, MOST_TERMS + 1):
        sets = _sets(usable, beam, size)
        if not len(sets):
            break
        errors = grams.errors(sets)
        every = grams.miss_bits(errors, size) + price[sets].sum(axis=1)
        every += (size - 1) * np.log2(len(usable))
        order = np.lexsort((*sets.T[::-1], every))[:BEAM]
        some = {tuple(sets[i].tolist()): i for i in order.tolist() if np.isfinite(errors[i])}
        if not some:
            break
        beam = list(some)
        found |= {which: (float(every[i]), float(errors[i])) for which, i in some.items()}
        if min(error for _, error in found.values()) < FLOAT_ERROR:
            break
    for which in {w for w in like if w}:
        (error,) = grams.errors(np.array([which])).tolist()
        total = float(grams.miss_bits(error, len(which)) + np.log2(len(like)))
        if total < found.get(which, (np.inf,))[0]:
            found[which] = total, error
    out = [Sum(total, error, w, grams.coefficients(w)) for w, (total, error) in found.items()]
    out += grams.nest([c for c in nest if c in usable], price)
    return sorted(out, key=lambda s: s.bits) or [flat]


class _Grams:
    """Gram matrices per count of columns and samples in units of each count's mean."""

    def __init__(
        self, x: np.ndarray, y: np.ndarray, n: np.ndarray, weight: np.ndarray | None
    ) -> None:
        self.counts = np.unique(n)
        k, f = len(self.counts), x.shape[1]
        self.g, self.b = np.zeros((k, f, f)), np.zeros((k, f))
        means = np.array([y[n == c].mean() for c in self.counts])
        means = np.maximum(means, 1e-3 * max(float(means.max()), 1e-300))
        #: Samples that differ, by count and value to nine digits.
        self.different = sum(
            len(np.unique(np.round(y[n == c] / mean, 9)))
            for c, mean in zip(self.counts, means, strict=True)
        )
        self.rows: list[tuple[np.ndarray, np.ndarray]] = []
        roots = np.ones(k) if weight is None else np.sqrt(weight / weight.mean())
        for c, mean, root in zip(self.counts, means, roots, strict=True):
            mine = n == c
            own = root * np.sqrt(SPREAD / mine.sum()) / mean
            both = root * np.sqrt(1 - SPREAD) / mean
            every = np.column_stack([x[mine], y[mine]])
            rows, number = np.unique(every, axis=0, return_counts=True)
            rows = np.vstack([own * np.sqrt(number)[:, None] * rows, both * every.mean(axis=0)])
            self.rows.append((rows[:, :-1], rows[:, -1]))
        self.scale = np.sqrt(np.maximum(sum((xs**2).sum(axis=0) for xs, _ in self.rows), 1e-300))
        self.rows = [(xs / self.scale, ys) for xs, ys in self.rows]
        for i, (xs, ys) in enumerate(self.rows):
            self.g[i], self.b[i] = xs.T @ xs, xs.T @ ys

    @cached_property
    def fitted(self) -> tuple[np.ndarray, np.ndarray]:
        """Sums of g and b over the counts that are fitted: all, then without each in turn."""
        g, b = self.g.sum(axis=0), self.b.sum(axis=0)
        return np.stack([g, *(g - self.g)]), np.stack([b, *(b - self.b)])

    def solve(self, sets: np.ndarray, most: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Return (coefficients, whether they are determined and positive) of sets (s, q).

        Both of all counts first, then without each: (1 + counts, s, ...), the first ``most``.
        """
        g, b = (x[:most] for x in self.fitted)
        gram = g[:, sets[:, :, None], sets[:, None, :]]
        unit = np.sqrt(np.maximum(np.diagonal(gram, axis1=2, axis2=3), 1e-300))
        gram = gram / unit[..., :, None] / unit[..., None, :]
        fine = np.linalg.det(gram) > FLOAT_ERROR
        gram[~fine] = np.eye(sets.shape[1])
        coef = np.linalg.solve(gram, (b[:, sets] / unit)[..., None])[..., 0] / unit
        return coef, fine & np.all(coef > 0, axis=2)

    def coefficients(self, which: tuple[int, ...]) -> tuple[float, ...]:
        """Return the coefficients of one set, fitted to all counts."""
        coef = self.solve(np.array([which]), 1)[0][0, 0] / self.scale[list(which)]
        return tuple(float(c) for c in coef)

    def errors(self, sets: np.ndarray) -> np.ndarray:
        """Return the error of each set at counts left out, inf where it is not determined.

        Of samples that are met almost exactly, and of which there are enough, no count has to be
        left out: the error there, times a safety factor, is taken if it is smaller.
        """
        coef, fine = self.solve(sets)
        held, total = np.zeros((2, len(sets)))
        for j, part in enumerate(coef[1:]):
            held += self._squares(sets, part, j)
            total += self._squares(sets, coef[0], j)
        out = np.where(fine.all(axis=0), np.sqrt(held / len(self.counts)), np.inf)
        miss = np.sqrt(total / len(self.counts))
        out = np.minimum(out, self._in_sample(miss, sets.shape[1]))
        return np.where(fine[0] & (miss < WRONG), out, np.inf)

    def miss_bits(self, error: Any, terms: int) -> Any:
        """Return the bits of errors of sums of so many terms, whose samples are no evidence."""
        told = min(len(self.counts), self.different - terms + 1)
        return max(told, FLOAT_ERROR) * np.log2(error + FLOAT_ERROR)

    def _in_sample(self, miss: np.ndarray, terms: int) -> np.ndarray:
        """Return the error that a miss of all samples stands for, inf of too few samples."""
        spare = self.different - terms
        return IN_SAMPLE * miss * np.sqrt(self.different / spare) if spare > 2 else miss + np.inf

    def _squares(self, sets: np.ndarray, coef: np.ndarray, j: int) -> np.ndarray:
        """Return the squared error of each set at the count number j."""
        xs, ys = self.rows[j]
        every = np.zeros((xs.shape[1], len(sets)))
        every[sets.T, np.arange(len(sets))] = coef.T
        return np.asarray(((xs @ every - ys[:, None]) ** 2).sum(axis=0))

    def nest(self, used: Sequence[int], price: np.ndarray) -> list[Sum]:
        """Return the sums of all columns of a nest together, if samples are there to tell them.

        What instructions cost is whole and the same every time: more different samples met than
        there are terms is evidence that needs no count left out. Trimmed loops have negative terms.
        """
        if not used:
            return []
        x = np.vstack([xs for xs, _ in self.rows])[:, used]
        y = np.concatenate([ys for _, ys in self.rows])
        samples = np.vstack([xs[:-1] for xs, _ in self.rows])[:, used]  # the last is the mean
        out = []
        for coef in (nonnegative(x, y), np.linalg.lstsq(x, y, rcond=None)[0]):
            kept = np.flatnonzero(np.abs(coef) > 1e-7)
            which = tuple(used[i] for i in kept.tolist())
            different = len(np.unique(samples[:, kept].round(12), axis=0))
            if not 0 < len(kept) <= different - 2:
                continue
            miss = np.sqrt(((x[:, kept] @ coef[kept] - y) ** 2).sum() / len(self.counts))
            error = float(IN_SAMPLE * miss * np.sqrt(different / (different - len(kept))))
            if np.linalg.matrix_rank(x[:, kept]) == len(kept):
                total = miss_bits(error, len(self.counts)) + float(price[list(which)].sum())
                values = coef[kept] / self.scale[list(which)]
                out.append(Sum(total, error, which, tuple(values.tolist())))
        return out


@lru_cache(maxsize=256)
def _combinations(columns: tuple[int, ...], size: int) -> np.ndarray:
    """Return the sets of so many columns, (sets, size); segments often have the same columns."""
    return np.array(list(combinations(columns, size)), dtype=np.int64).reshape(-1, size)


def _sets(columns: Sequence[int], beam: Sequence[tuple[int, ...]], size: int) -> np.ndarray:
    """Return the sets of columns to try: all singles and pairs, then the best ones and one more."""
    if size <= 2:
        return _combinations(tuple(columns), size)
    sets = np.repeat(np.array(beam, dtype=np.int64), len(columns), axis=0)
    more = np.column_stack([sets, np.tile(np.array(columns, dtype=np.int64), len(beam))])
    more = np.sort(more[(sets != more[:, -1:]).all(axis=1)], axis=1)
    return np.unique(more, axis=0)


def _distinct(grams: _Grams, price: np.ndarray) -> list[int]:
    """Return the columns that have a price and are not zero or a multiple of a cheaper one."""
    total = grams.g.sum(axis=0).tolist()
    kept: list[int] = []
    for c in np.argsort(price, kind="stable").tolist():
        there = np.isfinite(price[c]) and total[c][c] > 0.5
        if there and all(total[c][k] < 1 - 1e-12 for k in kept):
            kept.append(c)
    return kept
