"""Medians with an interval that assumes no distribution."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Estimate:
    """Cost in ns with a 95 % interval, from ``n_samples`` timed events."""

    cost_ns: float
    low_ns: float
    high_ns: float
    n_samples: int = 0

    @property
    def half_width(self) -> float:
        """Return the larger distance of the interval's ends from the cost, relative to it."""
        widest = max(self.high_ns - self.cost_ns, self.cost_ns - self.low_ns)
        return widest / self.cost_ns if self.cost_ns > 0 else 0.0 if widest == 0 else np.inf

    def plus(self, ns: float) -> Estimate:
        """Return the estimate moved by a constant; nothing becomes negative."""
        return Estimate(
            max(self.cost_ns + ns, 0.0),
            max(self.low_ns + ns, 0.0),
            max(self.high_ns + ns, 0.0),
            self.n_samples,
        )


NOTHING = Estimate(0.0, 0.0, 0.0, 0)


def median_interval(
    values: Sequence[float] | npt.ArrayLike, n_samples: int | None = None
) -> Estimate:
    """Return the median with the distribution-free 95 % interval of its order statistics.

    NaN is left out; of no value at all the estimate is 0 with 0 samples. Below 6 values there is
    no such interval: then it is the range of the values. ``n_samples``: timed events behind the
    values, where that is not their number.
    """
    ordered = np.asarray(values, dtype=np.float64).reshape(-1)
    ordered = np.sort(ordered[~np.isnan(ordered)])
    count = len(ordered)
    if count == 0:
        return NOTHING
    middle = float(np.median(ordered))
    skip = interval_rank(count)
    return Estimate(
        middle,
        float(ordered[skip]),
        float(ordered[count - 1 - skip]),
        count if n_samples is None else n_samples,
    )


def interval_rank(count: int) -> int:
    """Return how many values may be cut off each end: P(Binomial(count, 1/2) <= k - 1) <= 2.5 %."""
    if count >= 1000:
        return int(count / 2 - 0.98 * count**0.5) - 1
    below, term, rank = 0.0, 0.5**count, 0
    while rank < count:
        below += term
        if below > 0.025:
            break
        term = term * (count - rank) / (rank + 1)
        rank += 1
    return max(rank - 1, 0)


def is_narrow(values: Sequence[float] | npt.ArrayLike, half_width: float) -> bool:
    """Return whether the interval is within this share of the median; so it is of no value."""
    return median_interval(values).half_width <= half_width
