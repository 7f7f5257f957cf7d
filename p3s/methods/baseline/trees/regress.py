"""Weighted least squares of one node: columns scaled, those that say nothing new dropped."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_triangular

from p3s.methods.baseline.trees.types import Array, Growing, Ints

#: Share of a column that is left beside the others, below which it says nothing new.
_NEW = 1e-7


@dataclass(frozen=True)
class Rows:
    """What the regressions see of all runs: ``x`` (rows, terms), ``t`` the aims, ``w`` weights.

    A residual of ``t`` times ``relative`` is a relative error of what was measured.
    """

    x: Array
    t: Array
    w: Array
    relative: Array

    def only(self, at: Ints) -> Rows:
        """Return some rows."""
        return Rows(self.x[at], self.t[at], self.w[at], self.relative[at])


def rows_of(design: Array, y: Array, growing: Growing) -> Rows:
    """Return the rows of a regression of ``y``.

    Relative: 1 over x / y, the residuals are relative errors (weights 1/y^2); weighted: integers
    that favour short times (eq. 4.5, 4.6); plain: as they are.
    """
    one = np.ones(len(y))
    if growing.regression == "relative":
        return Rows(design / y[:, None], one, one, one)
    w = integer_weights(y) if growing.regression == "weighted" else one
    return Rows(design, y, w, 1.0 / y)


def weights(y: Array) -> Array:
    """Return max log2(10^4 y) - log2(10^4 y) + 1 for every run (eq. 4.5, 4.6)."""
    size = np.log2(y * 1e4)
    return np.asarray(size.max() - size + 1)


def integer_weights(y: Array) -> Array:
    """Return the weights of eq. 4.6 rounded to whole numbers, at least 1, as its library wants."""
    return np.maximum(np.rint(weights(y)), 1.0)


@dataclass(frozen=True)
class Fit:
    """A node's regression.

    ``coefficients``: one per term, 0 where dropped; ``kept``: numbers of the terms that are;
    ``q``: (rows, kept) columns that span the same, sum of w q q' the identity; ``residuals`` of t.
    """

    coefficients: Array
    kept: Ints
    q: Array
    residuals: Array


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
    kept: list[int] = []
    for j in np.flatnonzero(size > 0):
        column, before = scaled[:, j] / size[j], q[:, : len(kept)]
        for _ in range(2):
            along = before.T @ column
            column = column - before @ along
            upper[: len(kept), len(kept)] += along
        left = float(np.linalg.norm(column))
        if left < _NEW or len(kept) == len(column):
            upper[: len(kept), len(kept)] = 0.0
            continue
        upper[len(kept), len(kept)] = left
        q[:, len(kept)] = column / left
        kept.append(int(j))
    k = len(kept)
    along = q[:, :k].T @ (rows.t * root)
    found = np.zeros(len(size))
    if k:
        found[kept] = solve_triangular(upper[:k, :k], along) / size[kept]
    q = np.ascontiguousarray(q[:, :k]) / root[:, None]
    return Fit(found, np.array(kept, dtype=np.int64), q, rows.t - q @ along)
