"""Where a node of a tree is split, and the weighted least squares of each part."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from p3s.base.arrays import Bools, Floats, Ints
from p3s.methods.baseline.trees.types import Growing

#: Share of a column that is left beside the others, below which it says nothing new.
_NEW = 1e-7


@dataclass(frozen=True)
class Rows:
    """What the regressions see of all runs: ``x`` (rows, terms), ``t`` the aims, ``w`` weights.

    A residual of ``t`` times ``relative`` is a relative error of what was measured.
    """

    x: Floats
    t: Floats
    w: Floats
    relative: Floats

    def only(self, at: Ints) -> Rows:
        """Return some rows."""
        return Rows(self.x[at], self.t[at], self.w[at], self.relative[at])


def rows_of(design: Floats, y: Floats, growing: Growing) -> Rows:
    """Return the rows of a regression of ``y``.

    Relative: 1 over x / y, the residuals are relative errors (weights 1/y^2); weighted: integers
    that favour short times (eq. 4.5, 4.6); plain: as they are.
    """
    one = np.ones(len(y))
    if growing.regression == "relative":
        return Rows(design / y[:, None], one, one, one)
    w = weights(y) if growing.regression == "weighted" else one
    return Rows(design, y, w, 1.0 / y)


def weights(y: Floats) -> Floats:
    """Return max log2(10^4 y) - log2(10^4 y) + 1 for every run (eq. 4.5, 4.6).

    Rounded to whole numbers, at least 1, as the library of the thesis wants them.
    """
    size = np.log2(y * 1e4)
    return np.asarray(np.maximum(np.rint(size.max() - size + 1), 1.0))


@dataclass(frozen=True)
class Fit:
    """A node's regression.

    ``coefficients``: one per term, 0 where dropped; ``kept``: numbers of the terms that are;
    ``q``: (rows, kept) columns that span the same, sum of w q q' the identity; ``residuals`` of t.
    """

    coefficients: Floats
    kept: Ints
    q: Floats
    residuals: Floats


def fit(rows: Rows) -> Fit:
    """Return the weighted least squares of some rows.

    Columns are made orthogonal one after the other, the constant term's first (twice, so that they
    are so to the last digits); one of which nothing is left is dropped, its coefficient is 0.
    """
    root = np.sqrt(rows.w)
    scaled = rows.x * root[:, None]
    size = np.sqrt(np.einsum("ij,ij->j", scaled, scaled))
    q = np.empty_like(scaled)
    upper = np.zeros((scaled.shape[1],) * 2)
    independent: list[int] = []
    for j in np.flatnonzero(size > 0):
        column, before = scaled[:, j] / size[j], q[:, : len(independent)]
        for _ in range(2):
            along = before.T @ column
            column = column - before @ along
            upper[: len(independent), len(independent)] += along
        length = float(np.linalg.norm(column))
        if length < _NEW or len(independent) == len(column):
            upper[: len(independent), len(independent)] = 0.0
            continue
        upper[len(independent), len(independent)] = length
        q[:, len(independent)] = column / length
        independent.append(int(j))
    k = len(independent)
    along = q[:, :k].T @ (rows.t * root)
    coefficients = np.zeros(len(size))
    if k:
        coefficients[independent] = solve_triangular(upper[:k, :k], along) / size[independent]
    q = np.ascontiguousarray(q[:, :k]) / root[:, None]
    return Fit(coefficients, np.array(independent, dtype=np.int64), q, rows.t - q @ along)


#: Eigenvalue below which a side's rows do not tell a combination of coefficients.
_TOLD = 1e-9
#: Words: up to so many levels all ways to part them are tried, above it those along one order.
_LEVELS = 10


@dataclass(frozen=True)
class Cut:
    """A way to part rows: by value, or by levels.

    ``low``, ``high``: largest value on the left, least on the right.
    """

    low: float = 0.0
    high: float = 0.0
    levels: tuple[int, ...] = ()


@dataclass(frozen=True)
class _Sums:
    """Sums over rows: w r q (.., kept), w q q' (.., kept, kept), weights, numbers of rows."""

    score: Floats
    gram: Floats
    weight: Floats
    count: Floats

    def along(self) -> _Sums:
        """Return the sums up to each value but the last."""
        return _Sums(
            *(np.cumsum(a, axis=0)[:-1] for a in (self.score, self.gram, self.weight, self.count))
        )

    def of(self, parts: Floats) -> _Sums:
        """Return the sums over the values of each part, (ways, values) of 0 and 1."""
        return _Sums(
            *(np.tensordot(parts, a, 1) for a in (self.score, self.gram, self.weight, self.count))
        )

    def only(self, keep: Bools) -> _Sums:
        """Return some of them."""
        return _Sums(self.score[keep], self.gram[keep], self.weight[keep], self.count[keep])


def best(fit: Fit, rows: Rows, z: Floats, growing: Growing, least: int, words: bool) -> Cut | None:
    """Return the best cut of a variable; None where no cut leaves enough rows on both sides.

    least: rows of a side. Of cuts that are as good the first is taken.
    """
    values, value_index = np.unique(z, return_inverse=True)
    if len(values) < 2:
        return None
    sums = _sums(fit, rows, value_index, len(values))
    parts = _subsets(sums.score) if words else np.arange(len(values) - 1.0)
    left_sums = sums.of(parts) if words else sums.along()
    keep = _large_enough(left_sums, sums, growing, least)
    if not keep.any():
        return None
    parts = parts[keep]
    missed = float(np.sum(rows.w * fit.residuals**2)) - _won(left_sums.only(keep))
    at = _first_least(missed)
    if words:
        return Cut(levels=tuple(int(v) for v in values[parts[at] > 0]))
    last = int(parts[at])
    return Cut(float(values[last]), float(values[last + 1]))


def _sums(fit: Fit, rows: Rows, value_index: NDArray[np.intp], size: int) -> _Sums:
    """Return the sums over the rows of each value."""
    order = np.argsort(value_index, kind="stable")
    starts = np.searchsorted(value_index[order], np.arange(size))
    q, w = fit.q[order], rows.w[order]
    weighted = q * w[:, None]
    score = weighted * fit.residuals[order][:, None]
    return _Sums(
        np.add.reduceat(score, starts),
        np.add.reduceat(weighted[:, :, None] * q[:, None, :], starts),
        np.add.reduceat(w, starts),
        np.bincount(value_index, minlength=size).astype(float),
    )


def _large_enough(left_sums: _Sums, all_: _Sums, growing: Growing, least: int) -> Bools:
    """Return which ways leave enough rows, and weights where these count, on both sides."""
    count, weight = all_.count.sum(), all_.weight.sum()
    rows = np.minimum(left_sums.count, count - left_sums.count)
    size = np.minimum(left_sums.weight, weight - left_sums.weight) if growing.in_weights else rows
    return np.asarray((rows >= least) & (size >= growing.minsplit))


def _subsets(score: Floats) -> Floats:
    """Return ways to part levels: all, or along the scores' main direction where they are many."""
    size = len(score)
    if size <= _LEVELS:
        codes = np.arange(1, 2 ** (size - 1))
        return ((codes[:, None] >> np.arange(size)) & 1).astype(float)
    order = np.argsort(score @ np.linalg.svd(score, full_matrices=False)[2][0], kind="stable")
    parts = np.zeros((size - 1, size))
    parts[:, order] = np.tri(size - 1, size)
    return parts


def _won(left_sums: _Sums) -> Floats:
    """Return how much smaller two regressions make sum of w residual^2, of all ways to part."""
    e, vectors = np.linalg.eigh(left_sums.gram)
    h = np.einsum("cij,ci->cj", vectors, left_sums.score)
    one = np.divide(h, e, out=np.zeros_like(h), where=e > _TOLD)
    other = np.divide(-h, 1 - e, out=np.zeros_like(h), where=1 - e > _TOLD)
    return np.asarray(np.sum(h * (one - other), axis=1))


def _first_least(missed: Floats) -> int:
    """Return the first of the least; what differs in the last digits is the same."""
    least = float(missed.min())
    return int(np.flatnonzero(missed <= least + 1e-9 * abs(least))[0])
