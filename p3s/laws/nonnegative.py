"""Least squares without negative coefficients, of few columns."""

from __future__ import annotations

import numpy as np

#: What counts as nothing: of a gradient beside its column and the values, of a coefficient beside
#: the largest.
_NOTHING = 1e-14


def nonnegative(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the coefficients, none below 0, with the least sum of squares of x @ coef - y.

    x: (samples, columns); y: (samples,). Columns that depend on others get 0. The active set method
    of Lawson and Hanson, "Solving Least Squares Problems", 1974, chapter 23, as
    ``scipy.optimize.nnls``, which takes a quarter of a second to import. Raises ValueError where
    something is no number.
    """
    many = x.shape[1]
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise ValueError("least squares: what is not a number cannot be fitted")
    coef, used = np.zeros(many), np.zeros(many, dtype=bool)
    least = _NOTHING * np.linalg.norm(x, axis=0) * np.linalg.norm(y)
    for _ in range(3 * many):
        slope = x.T @ (y - x @ coef)
        better = np.flatnonzero(~used & (slope > least))
        for k in better[np.argsort(-slope[better], kind="stable")].tolist():
            used[k] = True
            trial = _of(x, y, used)
            if trial[k] > 0:
                break
            used[k] = False  # depends on those that are used: better by rounding alone
        else:
            return coef
        while (trial < 0).any():
            falls = trial < 0
            share = float(np.min(coef[falls] / (coef[falls] - trial[falls])))
            coef = coef + share * (trial - coef)
            used &= ~(falls & (coef <= _NOTHING * coef.max(initial=0.0)))
            coef[~used] = 0.0
            trial = _of(x, y, used)
        coef = trial
    return coef


def _of(x: np.ndarray, y: np.ndarray, used: np.ndarray) -> np.ndarray:
    """Return the coefficients of the columns that are used, 0 for the others."""
    coef = np.zeros(len(used))
    coef[used] = np.linalg.lstsq(x[:, used], y, rcond=None)[0]
    return coef
