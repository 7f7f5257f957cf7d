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

#: Relative error of what is computed in floats: smaller ones are none.
FLOAT_ERROR = 1e-9
#: Equations that cost so many bits more than the cheapest are no rivals of it.
RIVAL_BITS = 5.0
#: The half width of an interval grows by this share of it with each doubling beyond all counts.
PER_DOUBLING = 0.5
#: Laws that may be true as well are compared at so many times the largest count.
FAR = 16
#: Ratio up to which two amounts of work may be the same one, at one count or at several.
SAME_WITHIN = 1.5


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


def nonnegative(x: np.ndarray, y: np.ndarray, weight: np.ndarray | None = None) -> np.ndarray:
    """Return the coefficients, none below 0, with the least sum of squares of w * (x @ coef - y).

    Args: x: (samples, columns), of any sizes; y: (samples,); weight: (samples,), of each in the
    squares' roots: 1/y for relative errors. Raises ValueError where something is no number.
    """
    from scipy.optimize import nnls  # takes 0.3 s to import

    w = np.ones(len(y)) if weight is None else weight
    rows, size = x * w[:, None], float(np.linalg.norm(y * w)) or 1.0
    scale = np.linalg.norm(rows, axis=0)
    scale[scale == 0] = 1.0
    found, _ = nnls(rows / scale, y * w / size, maxiter=100 * max(x.shape[1], 1))
    return np.asarray(found * size / scale, dtype=np.float64)
