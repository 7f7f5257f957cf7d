"""The order of placements as Jain et al., SC13, count it.

A pair of equal values is right where the prediction does not contradict it; p3s.methods.placement
counts it as wrong. Without ties both are (1 + Kendall's tau) / 2, so 0.5 is chance.
"""

from __future__ import annotations

import numpy as np

from p3s.base.arrays import Bools, Floats, Ints
from p3s.methods.placement.ranking import Values


def concordance(measured: Values, predicted: Values) -> float:
    """Return the share of pairs i > j where x_i >= x_j and y_i >= y_j, or both are less.

    As printed: whether a pair with a tie counts depends on the order of the values.
    """
    t, p = np.asarray(measured), np.asarray(predicted)
    return _share((t[:, None] >= t) == (p[:, None] >= p))


def concordance_within(measured: Values, predicted: Values, groups: Ints) -> float:
    """Return the share of the pairs of the same group that are in the right order.

    Pairs of different programs are easy to order; these are not.
    """
    t, p = np.asarray(measured), np.asarray(predicted)
    same = np.asarray(groups)[:, None] == np.asarray(groups)
    return _share((t[:, None] >= t) == (p[:, None] >= p), same)


def group_means(measured: Values, groups: Ints) -> Floats:
    """Return for each value the mean of its group: what one knows without any feature."""
    values = np.asarray(measured, dtype=np.float64)
    _, of = np.unique(groups, return_inverse=True)
    of = of.ravel()
    return np.asarray((np.bincount(of, weights=values) / np.bincount(of))[of], dtype=np.float64)


def regret(measured: Values, predicted: Values) -> float:
    """Return the time of the one that is predicted to be the fastest, over that of the fastest."""
    t, p = np.asarray(measured), np.asarray(predicted)
    return float(t[int(p.argmin())] / t.min())


def _share(right: Bools, counted: Bools | None = None) -> float:
    """Return the share of pairs i > j that are right, NaN where there are none."""
    kept = np.tri(len(right), k=-1, dtype=bool)
    if counted is not None:
        kept &= counted
    return float(right[kept].mean()) if kept.any() else float("nan")
