"""Which configurations are worth their cores or nodes: fronts of cost and time.

One configuration dominates another if it neither costs more nor takes longer, and is better in one
of the two. Source: Papadopoulou 2017, section 4.4.4 (which prints a rule that equal costs never
dominate; its fronts follow this one).
"""

from __future__ import annotations

import numpy as np

from p3s.machine.topology.units import Bools, Floats, Ints
from p3s.methods.placement.ranking import Values

#: Placements whose slowest is less than this times the fastest are all as good.
MATTERS = 1.05


def layers(cost: Values, seconds: Values) -> Ints:
    """Return the layer of each configuration: 0 is the front, 1 the front without it, and so on."""
    c, t = np.asarray(cost, dtype=np.float64), np.asarray(seconds, dtype=np.float64)
    found = np.full(len(c), -1, dtype=np.int64)
    number = 0
    while (left := np.flatnonzero(found < 0)).size:
        found[left[~_dominated(c[left], t[left])]] = number
        number += 1
    return found


def matters(seconds: Values, least: float = MATTERS) -> bool:
    """Return whether placements differ enough in time for the choice to matter."""
    t = np.asarray(seconds, dtype=np.float64)
    return len(t) > 1 and bool(t.max() >= least * t.min())


def _dominated(cost: Floats, seconds: Floats) -> Bools:
    c, t = cost[:, None], seconds[:, None]
    better = (cost <= c) & (seconds <= t) & ((cost < c) | (seconds < t))
    return np.asarray(better.any(axis=1), dtype=bool)
