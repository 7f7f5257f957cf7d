"""Values that stand out among those of all nodes, links or messages of one run.

Source: Jain et al., SC13, section 5.3.
"""

from __future__ import annotations

import numpy as np

from p3s.machine.topology.units import Bools, Floats, Ints

#: Share of the largest value from which one is among the top ones.
_TOP = 0.95


def above_average(values: Floats, weights: Floats | Ints | None = None) -> Bools:
    """Return which values are above the mean (AO); ``weights``: how often each is there."""
    if not len(values) or not values.min() < values.max():
        return np.zeros(len(values), dtype=bool)  # a mean that is rounded tells equal ones apart
    return np.asarray(values > np.average(values, weights=weights), dtype=bool)


def near_largest(values: Floats) -> Bools:
    """Return which values are within 5 % of the largest (TO)."""
    if not len(values):
        return np.zeros(0, dtype=bool)
    return np.asarray(values >= _TOP * values.max(), dtype=bool)


def mean_of(values: Floats, chosen: Bools) -> float:
    """Return the mean of the chosen values, 0 where there are none."""
    return float(values[chosen].mean()) if chosen.any() else 0.0
