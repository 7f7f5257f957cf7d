"""Statistics that packages share: errors, quantiles of draws, least squares of positive terms."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

Number = float | None
#: Half of a normal distribution's 90 % interval, in standard deviations.
Z90 = 1.645
#: Lower end, median and upper end of a 90 % interval, as shares of the draws.
LOW_MEDIAN_HIGH = (0.05, 0.5, 0.95)
#: What counts as nothing: of a gradient beside its column and the values, of a coefficient beside
#: the largest.
_NOTHING = 1e-14


@dataclass(frozen=True)
class Scores:
    """What is said of some errors, all as shares (0.05: five percent), signs left out.

    None of them is a number where ``count`` is 0.
    """

    count: int
    median: float
    mean: float
    least: float
    largest: float


def relative_error(predicted: float, observed: float) -> float:
    """Return (predicted - observed) / observed, with its sign; ValueError unless observed > 0."""
    if not observed > 0 or not math.isfinite(observed):
        raise ValueError(f"{observed!r} is nothing an error can be relative to")
    return (predicted - observed) / observed


def scores(errors: Iterable[Number]) -> Scores:
    """Return median, mean, least and largest of absolute errors; None and NaN are left out."""
    kept = sorted(abs(e) for e in errors if e is not None and not math.isnan(e))
    if not kept:
        return Scores(0, math.nan, math.nan, math.nan, math.nan)
    return Scores(len(kept), statistics.median(kept), statistics.fmean(kept), kept[0], kept[-1])


def low_median_high(draws: np.ndarray) -> np.ndarray:
    """Return the ends of the 90 % interval of draws (draws, ...) and the median: (3, ...)."""
    return np.asarray(np.quantile(draws, LOW_MEDIAN_HIGH, axis=0))


def quantiles(
    values: np.ndarray, weight: np.ndarray, shares: Sequence[float] | np.ndarray
) -> np.ndarray:
    """Return weighted quantiles of every column of values (draws, columns): (shares, columns).

    weight: (draws,), or (draws, columns); sums to one.
    """
    by_column = np.ascontiguousarray(values.T)
    order = np.argsort(by_column, axis=1)
    ordered = np.take_along_axis(by_column, order, axis=1)
    if (ordered[:, 1:] == ordered[:, :-1]).any():  # whose order is then the machine's
        order = np.argsort(by_column, axis=1, kind="stable")
        ordered = np.take_along_axis(by_column, order, axis=1)
    w = np.take_along_axis(np.broadcast_to(weight.T, order.shape), order, axis=1)
    upto = np.cumsum(w, axis=1) - 0.5 * w
    pairs = zip(upto, ordered, strict=True)
    return np.stack([np.interp(shares, at, column) for at, column in pairs], axis=1)


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
            trial = _least_squares(x, y, used)
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
            trial = _least_squares(x, y, used)
        coef = trial
    return coef


def _least_squares(x: np.ndarray, y: np.ndarray, used: np.ndarray) -> np.ndarray:
    """Return the coefficients of the columns that are used, 0 for the others."""
    coef = np.zeros(len(used))
    coef[used] = np.linalg.lstsq(x[:, used], y, rcond=None)[0]
    return coef


def nonnegative_relative(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the coefficients, none below 0, with the least sum of squared relative errors.

    x: (samples, columns); y: (samples,), above 0. Columns of any size count alike.
    """
    relative = x / y[:, None]
    widths = np.linalg.norm(relative, axis=0)
    widths[widths == 0] = 1.0
    return np.asarray(nonnegative(relative / widths, np.ones(len(y))) / widths)
