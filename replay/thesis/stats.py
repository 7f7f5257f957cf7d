"""Costs with an interval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Estimate:
    """Cost of one event in ns with a 95 % interval, from ``n_samples`` timed events."""

    cost_ns: float
    low_ns: float
    high_ns: float
    n_samples: int = 0


def median_interval(values: Sequence[float], n_samples: int = 0) -> Estimate:
    """Return the median with the distribution-free 95 % interval of its order statistics.

    Below 6 values there is no such interval: then it is the range of the values.
    """
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    count = len(ordered)
    middle = float(np.median(ordered))
    skip = interval_rank(count)
    return Estimate(middle, float(ordered[skip]), float(ordered[count - 1 - skip]), n_samples)


def interval_rank(count: int) -> int:
    """Return how many values may be cut off each end: P(Binomial(count, 1/2) <= k - 1) <= 2.5 %."""
    below, term, rank = 0.0, 0.5 ** count if count < 1000 else 0.0, 0
    if count >= 1000:
        return int(count / 2 - 0.98 * count ** 0.5)
    while True:
        below += term
        if below > 0.025:
            return max(rank - 1, 0) if rank else 0
        term = term * (count - rank) / (rank + 1)
        rank += 1
