"""Sparse non-negative regression over process counts: few terms, chosen by held-out counts.

Everything is done on Gram matrices per count, so that leaving counts out costs no pass over the
samples and hundreds of sets of terms are solved at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import combinations

import numpy as np

from p3s.laws.statistics import nonnegative

MAX_TERMS = 4
#: A further term has to divide the held-out error by 1.5; errors below are taken as none.
_GAIN, _EXACT = 1.5, 5e-6
#: Relative error at which samples are met: what remains are first calls and rounding.
_MET = 2e-5
#: Columns of such a cost are not taken where the held-out error is larger than _UNSURE; those of
#: cost GROWING grow with n.
RARE, GROWING, _UNSURE = 6.0, 10.0, 0.01
#: Weight of the squared errors of single ranks; the rest is that of the mean over the ranks.
_SPREAD = 0.1
#: In-sample errors times this stand for held-out ones.
_SAFETY = 5.0
#: Share by which a unit of cost has to lower the held-out error.
_PRICE = 0.15
#: Sets of terms that are extended by one more; least determinant of a Gram matrix of unit columns.
_BEAM, _SINGULAR = 16, 1e-9
#: Rivals: other sets of as many terms whose held-out error is at most so many times larger.
_RIVAL, _RIVALS = 1.3, 3


@dataclass(frozen=True)
class Fit:
    """Terms (columns), their coefficients, and the held-out error relative to the mean (rms).

    rivals: (terms, coefficients) of other sets that do about as well at the held-out counts.
    """

    terms: tuple[int, ...]
    coef: tuple[float, ...]
    error: float
    rivals: tuple[tuple[tuple[int, ...], tuple[float, ...]], ...] = ()


class _Grams:
    """Gram matrices per count of columns and samples in units of each count's mean."""

    def __init__(self, x: np.ndarray, y: np.ndarray, n: np.ndarray) -> None:
        self.counts = np.unique(n)
        k, f = len(self.counts), x.shape[1]
        self.g, self.b, self.yy = np.zeros((k, f, f)), np.zeros((k, f)), np.zeros(k)
        means = np.array([y[n == c].mean() for c in self.counts])
        means = np.maximum(means, 1e-3 * max(float(means.max()), 1e-300))
        self.scale = np.zeros(f)
        #: Samples that differ, by count and value to nine digits.
        self.different = sum(
            len(np.unique(np.round(y[n == c] / mean, 9)))
            for c, mean in zip(self.counts, means, strict=True)
        )
        parts = []
        self.rows: list[tuple[np.ndarray, np.ndarray]] = []
        for c, mean in zip(self.counts, means, strict=True):
            mine = n == c
            weight = np.sqrt(_SPREAD / mine.sum())
            xs, ys = x[mine] / mean, y[mine] / mean
            xm, ym = np.sqrt(1 - _SPREAD) * xs.mean(axis=0), np.sqrt(1 - _SPREAD) * ys.mean()
            parts.append((np.vstack([weight * xs, xm]), np.append(weight * ys, ym)))
            self.scale += (parts[-1][0] ** 2).sum(axis=0)
        self.scale = np.sqrt(np.maximum(self.scale, 1e-300))
        for i, (xs, ys) in enumerate(parts):
            xs = xs / self.scale
            self.g[i], self.b[i], self.yy[i] = xs.T @ xs, xs.T @ ys, ys @ ys
            self.rows.append((xs, ys))

    @cached_property
    def splits(self) -> list[tuple[np.ndarray, int]]:
        """Return (counts fitted, count predicted): the next one up, and each one in turn."""
        k = len(self.counts)
        index = np.arange(k)
        least = 2 if k <= 4 else 3
        out = [(index < j, j) for j in range(least, k)]
        out += [(index != j, j) for j in range(k - 1)] if k > 2 else []
        return out or [(index == 0, 1), (index == 1, 0)]

    @cached_property
    def fitted(self) -> tuple[np.ndarray, np.ndarray]:
        """Sums of g and b over the counts that are fitted: all, then those of each split."""
        of = [np.ones(len(self.counts), dtype=bool), *(fitted for fitted, _ in self.splits)]
        g, b = ([x[counts].sum(axis=0) for counts in of] for x in (self.g, self.b))
        return np.stack(g), np.stack(b)

    def solve(self, sets: np.ndarray, most: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Return (coefficients, whether they are determined and positive) of sets (s, q).

        Both of all counts first, then of each split: (1 + splits, s, ...), the first ``most``.
        """
        g, b = (x[:most] for x in self.fitted)
        gram = g[:, sets[:, :, None], sets[:, None, :]]
        unit = np.sqrt(np.maximum(np.diagonal(gram, axis1=2, axis2=3), 1e-300))
        gram = gram / unit[..., :, None] / unit[..., None, :]
        fine = np.linalg.det(gram) > _SINGULAR
        gram[~fine] = np.eye(sets.shape[1])
        coef = np.linalg.solve(gram, (b[:, sets] / unit)[..., None])[..., 0] / unit
        return coef, fine & np.all(coef > 0, axis=2)

    def coefficients(self, terms: tuple[int, ...]) -> tuple[float, ...]:
        """Return the coefficients of one set, fitted to all counts."""
        coef = self.solve(np.array([terms]), 1)[0][0, 0] / self.scale[list(terms)]
        return tuple(float(c) for c in coef)

    def nest(self, columns: Sequence[int], counts: np.ndarray) -> np.ndarray:
        """Return the non-negative least squares coefficients of all ``columns`` together."""
        used = np.flatnonzero(counts)
        x = np.vstack([self.rows[i][0][:, list(columns)] for i in used])
        return nonnegative(x, np.concatenate([self.rows[i][1] for i in used]))

    def errors(self, sets: np.ndarray) -> np.ndarray:
        """Return the held-out error of each set, inf where it is not determined or negative.

        Of samples that are met almost exactly, and of which there are enough, no count has to be
        held out: the error there, times a safety factor, is taken if it is smaller.
        """
        q = sets.shape[1]
        coef, fine = self.solve(sets)
        held, total = np.zeros(len(sets)), np.zeros(len(sets))
        for part, (_, j) in zip(coef[1:], self.splits, strict=True):
            held += self._squares(sets, part, j)
        for j in range(len(self.counts)):
            total += self._squares(sets, coef[0], j)
        out = np.where(fine.all(axis=0), np.sqrt(held / len(self.splits)), np.inf)
        if self.different >= q + 3:
            met = _SAFETY * np.sqrt(
                total / len(self.counts) * self.different / (self.different - q)
            )
            out = np.where(fine[0], np.minimum(out, met), np.inf)
        return out

    def _squares(self, sets: np.ndarray, coef: np.ndarray, j: int) -> np.ndarray:
        """Return the squared error of each set at the count number j."""
        g = self.g[j][sets[:, :, None], sets[:, None, :]]
        left = self.yy[j] - 2 * np.einsum("sq,sq->s", coef, self.b[j][sets])
        return np.asarray(np.maximum(left + np.einsum("sq,sqr,sr->s", coef, g, coef), 0.0))


def fit_sparse(
    x: np.ndarray,
    y: np.ndarray,
    n: np.ndarray,
    cost: Sequence[float],
    nest: Sequence[int] = (),
    falls: Sequence[int] = (),
    like: Sequence[tuple[int, ...]] = (),
) -> Fit:
    """Return the law y = sum of coefficient * column with the smallest held-out error.

    x: (samples, columns), non-negative; y: (samples,); n: the process count of each sample; cost:
    of each column, for choosing between columns that do equally well; nest: columns that belong
    together (a nest of loops costs something per iteration of each loop), all tried at once; falls:
    columns that are powers of the count, which with one that grows can bend through any points
    and are not taken with it; like: sets of terms that similar code has, taken where the samples
    are noisy and they do about as well. Every count weighs the same, whatever its samples.
    """
    price = np.asarray(cost, dtype=float)
    falling = np.isin(np.arange(x.shape[1]), list(falls))
    if not np.any(y > 0):
        return Fit((), (), 0.0)
    if np.ptp(y) <= 1e-9 * y.max() and np.ptp(x[:, 0]) == 0:
        return Fit((0,), (float(y[0] / x[0, 0]),), 0.0 if len(np.unique(n)) > 1 else 1.0)
    if len(np.unique(n)) == 1:
        return Fit((0,), (float(y.mean() / max(x[:, 0].mean(), 1e-300)),), 1.0)
    grams = _Grams(x, y, n)
    columns = _distinct(grams, price)
    chosen: _Scored | None = None
    near: list[_Scored] = []
    beam: list[tuple[int, ...]] = []
    for size in range(1, MAX_TERMS + 1):
        sets = _sets(columns, beam, size)
        if not len(sets):
            break
        errors = grams.errors(sets)
        grows = (price[sets] >= GROWING).any(axis=1)
        errors[grows & falling[sets].any(axis=1)] = np.inf
        errors[(grows | (price[sets] >= RARE).any(axis=1)) & (errors > _UNSURE)] = np.inf
        keys = (errors + _EXACT) * (1 + _PRICE * price[sets].sum(axis=1))
        order = np.lexsort((*sets.T[::-1], keys))
        order = order[np.isfinite(errors[order])]
        scored = [
            _Scored(float(keys[i]), float(errors[i]), tuple(sets[i].tolist()))
            for i in order[: max(_BEAM, 1)]
        ]
        if not scored:
            break
        beam = [s.terms for s in scored]
        if chosen is None or scored[0].key * _GAIN ** (size - len(chosen.terms)) < chosen.key:
            chosen, near = scored[0], scored[1:]
        if chosen.error < _EXACT:
            break
    if chosen is None:
        return Fit((0,), (float(y.mean() / max(x[:, 0].mean(), 1e-300)),), 1.0)
    if chosen.error > _EXACT:
        met = _exact_nest(grams, nest, columns)
        if met is not None:
            return met
    if chosen.error > _UNSURE:
        for terms in like:
            error = float(grams.errors(np.array([terms]))[0])
            if (
                terms != chosen.terms
                and error <= _GAIN * chosen.error
                and (error <= _UNSURE or price[list(terms)].max() < RARE)
            ):
                near = [chosen, *near]
                chosen = _Scored(0.0, error, terms)
                break
    limit = _RIVAL * (chosen.error + _EXACT)
    rivals = [s.terms for s in near if s.error <= limit][:_RIVALS]
    return Fit(
        chosen.terms,
        grams.coefficients(chosen.terms),
        chosen.error,
        tuple((terms, grams.coefficients(terms)) for terms in rivals),
    )


def fit_alike(x: np.ndarray, y: np.ndarray, like: Sequence[Fit]) -> Fit | None:
    """Return the law of similar code that samples of one count are nearest to, brought to them.

    x, y: as of :func:`fit_sparse`, of one count, which cannot tell how the work scales; like: laws
    of similar code. None where all differ by more than a factor of 1.5; the error is how far the
    nearest one was off.
    """
    found = []
    for law in like:
        if law.terms and (told := float((x[:, law.terms] @ law.coef).mean())) > 0:
            ratio = float(y.mean()) / told
            found.append((abs(np.log(ratio)), ratio, law))
    if not found or min(found, key=lambda f: f[0])[0] > np.log(_GAIN):
        return None
    apart, ratio, law = min(found, key=lambda f: f[0])
    return Fit(law.terms, tuple(c * ratio for c in law.coef), float(np.hypot(law.error, apart)))


def _exact_nest(grams: _Grams, nest: Sequence[int], columns: Sequence[int]) -> Fit | None:
    """Return the law with the terms of a nest that meets every sample, None without one.

    What instructions cost is whole and the same every time: more different samples met than there
    are terms is evidence that needs no held-out count. Trimmed loops have negative terms.
    """
    used = [c for c in nest if c in columns]
    if not used:
        return None
    x = np.vstack([rows for rows, _ in grams.rows])[:, used]
    y = np.concatenate([ys for _, ys in grams.rows])
    every = np.ones(len(grams.counts), dtype=bool)
    samples = np.vstack([rows[:-1] for rows, _ in grams.rows])[:, used]  # the last is the mean

    def miss(coef: np.ndarray) -> float:
        return float(np.sqrt(((x @ coef - y) ** 2).sum() / len(grams.counts)))

    free = np.linalg.lstsq(x, y, rcond=None)[0]
    if miss(free) >= _MET:
        return None
    for coef in (grams.nest(used, every), free):
        kept = np.flatnonzero(np.abs(coef) > 1e-7)
        if (
            0 < len(kept) <= _different(samples[:, kept]) - 2
            and miss(coef) < _MET
            and np.linalg.matrix_rank(x[:, kept]) == len(kept)
        ):
            terms = [used[i] for i in kept]
            return Fit(tuple(terms), tuple((coef[kept] / grams.scale[terms]).tolist()), miss(coef))
    return None


def _different(x: np.ndarray) -> int:
    """Return the number of samples that differ in any of the columns."""
    return len(np.unique(np.round(x, 12), axis=0))


@dataclass(frozen=True)
class _Scored:
    key: float
    error: float
    terms: tuple[int, ...]


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
    radix = (max(columns) + 1) ** np.arange(size - 1, -1, -1)
    return more[np.unique(more @ radix, return_index=True)[1]]


def _distinct(grams: _Grams, price: np.ndarray) -> list[int]:
    """Return the columns that are not zero or a multiple of a cheaper one."""
    total = grams.g.sum(axis=0).tolist()
    kept: list[int] = []
    for c in np.argsort(price, kind="stable").tolist():
        if total[c][c] > 0.5 and all(total[c][k] < 1 - 1e-12 for k in kept):
            kept.append(c)
    return kept
