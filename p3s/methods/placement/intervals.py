"""How wide intervals of learned times have to be: by phases that a model has not seen.

Conformal: intervals are widened by what they miss groups by that were left out together. Beyond the
values of training they widen further, by what was missed where the largest values of a feature
were left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from p3s.base.arrays import Floats

#: Share of the times that intervals are to hold.
HELD = 0.9


@dataclass(frozen=True)
class Widening:
    """What is added to both ends of an interval, of the logarithm of the time.

    ``always``; ``doubling``: for each doubling that a feature is beyond the values of training.
    """

    always: float = 0.0
    doubling: float = 0.0

    def at(self, beyond: Floats) -> Floats:
        """Return what is added to the ends of phases that are so many doublings beyond."""
        return self.always + self.doubling * beyond


def missed(low: Floats, high: Floats, truth: Floats) -> Floats:
    """Return by how much truth is outside of intervals; less than 0 where it is inside."""
    return np.maximum(low - truth, truth - high)


def doublings(rows: Floats, least: Floats, most: Floats) -> Floats:
    """Return by how many doublings the farthest feature of each row is beyond the box.

    Of features that are counts or bytes: 1 is added to all, so that 0 is a value like others.
    """
    if not rows.shape[1]:
        return np.zeros(len(rows))
    values, low, high = (np.log2(1.0 + np.maximum(x, 0.0)) for x in (rows, least, most))
    return np.asarray(np.maximum(values - high, low - values).max(axis=1).clip(0.0))


def widening(near: Sequence[Floats], far: Floats, beyond: Floats) -> Widening:
    """Return how far intervals have to be widened.

    ``near``: what was missed of groups left out, for each way to group: intervals are to hold
    whichever is left out. ``far``: of rows left out for their large values,
    ``beyond``: by how many doublings these are beyond the others.
    """
    always = max(map(_quantile, near))
    rows = beyond > 0
    if not rows.any():
        return Widening(always)
    return Widening(always, max(_quantile((far[rows] - always) / beyond[rows]), 0.0))


def _quantile(values: Floats) -> float:
    return float(np.quantile(values, min(HELD * (1 + 1 / len(values)), 1.0)))
