"""How well the median of some values is known."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from replay.steps import Floats


def median_interval(values: Sequence[float] | Floats) -> tuple[float, float, float]:
    """Return median, lower and upper end of its distribution-free 95 % interval.

    The interval is that of order statistics; below 6 values, where there is none, it is the range
    of the values. Not-a-numbers do not count; without values everything is NaN.
    """
    ordered = np.asarray(values, dtype=np.float64)
    ordered = np.sort(ordered[~np.isnan(ordered)])
    count = len(ordered)
    if count == 0:
        return math.nan, math.nan, math.nan
    skip = interval_rank(count)
    return float(np.median(ordered)), float(ordered[skip]), float(ordered[count - 1 - skip])


def interval_rank(count: int) -> int:
    """Return how many values may be cut off each end: P(Binomial(count, 1/2) <= k - 1) <= 2.5 %."""
    if count >= 1000:
        return int(count / 2 - 0.98 * count ** 0.5)
    below, term, rank = 0.0, 0.5 ** count, 0
    while True:
        below += term
        if below > 0.025:
            return max(rank - 1, 0) if rank else 0
        term = term * (count - rank) / (rank + 1)
        rank += 1


def is_narrow(values: Sequence[float] | Floats, half_width: float) -> bool:
    """Return whether the interval is within this share of the median on each side."""
    middle, low, high = median_interval(values)
    if math.isnan(middle):
        return True
    return low >= (1.0 - half_width) * middle and high <= (1.0 + half_width) * middle
