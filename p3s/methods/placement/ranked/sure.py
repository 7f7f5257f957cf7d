"""How sure a ranking of times is: the regret of each choice, gains, and their intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from p3s.machine.topology.units import Floats

#: Times that are drawn of each placement.
_DRAWS = 4000
#: Ends of a 90 % interval are so many standard deviations from its middle.
_NINETY = 1.6449
_ENDS = (0.05, 0.95)
#: By how much placements of one program are off by themselves, a standard deviation of their time:
#: 1.6 % in 179 simulated runs of seven programs (docs/accuracy.md, "Placements").
OWN = 0.016


@dataclass(frozen=True, eq=False)
class Draws:
    """Times of placements, drawn from their intervals, shape (draws, placements)."""

    seconds: Floats

    @property
    def regret(self) -> Floats:
        """Return the mean of by what share each misses the least time."""
        return np.asarray((self.seconds / self._least - 1.0).mean(axis=0))

    @property
    def chance(self) -> Floats:
        """Return how often each is the fastest."""
        best = np.argmin(self.seconds, axis=1)
        found = np.bincount(best, minlength=self.seconds.shape[1])
        return np.asarray(found / len(self.seconds), dtype=np.float64)

    @property
    def _least(self) -> Floats:
        return np.asarray(self.seconds.min(axis=1, keepdims=True), dtype=np.float64)

    def gain(self, one: int, over: int) -> tuple[float, float]:
        """Return the ends of the share of another's time by which one is faster."""
        share = 1.0 - self.seconds[:, one] / self.seconds[:, over]
        low, high = np.quantile(share, _ENDS)
        return float(low), float(high)


def widened(middle: float, low: float, high: float, own: float = OWN) -> tuple[float, float]:
    """Return the interval of a time from that of its messages and what placements are off by."""
    more = _NINETY * own * middle
    return middle - math.hypot(middle - low, more), middle + math.hypot(high - middle, more)


def drawn(
    middle: Sequence[float], low: Sequence[float], high: Sequence[float], own: float = OWN
) -> Draws:
    """Return draws of times from their 90 % intervals; the same for the same times.

    Most of an error is that of all placements of a program: what a message costs, which of them
    wait. ``own``: deviation of the rest as a share of each time, at most that of its interval.
    """
    t, a, b = (np.asarray(x, dtype=np.float64) for x in (middle, low, high))
    rng = np.random.default_rng(0)
    common, each = rng.standard_normal((_DRAWS, 1)), rng.standard_normal((_DRAWS, len(t)))
    width = np.maximum((b - a) / (2 * _NINETY), 1e-300)
    share = np.minimum(own * t / width, 1.0)
    noise = np.sqrt(1.0 - share**2) * common + share * each
    ends = np.where(noise < 0, t - a, b - t) / _NINETY
    return Draws(np.maximum(t + noise * ends, t * 1e-3))
