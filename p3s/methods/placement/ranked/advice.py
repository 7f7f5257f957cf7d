"""Which counts and ranks per node are worth their cores and nodes: fronts of cost and time.

One configuration dominates another if it neither costs more nor takes longer, and is better in one
of the two. Source: Papadopoulou 2017, section 4.4.4 (which prints a rule that equal costs never
dominate; its fronts follow this one).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from p3s.machine.topology.units import Bools, Floats, Ints
from p3s.methods.placement.ranked.types import Advice, Configuration, Placements
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


def advice_of(found: Sequence[Placements]) -> Advice:
    """Return configurations with their layers, the fastest first.

    Cores are the ranks that run. ``breaks_at``: the count of the fastest one, None where that is
    the largest count of all.
    """
    best = [each.timed[0] for each in found]
    times = [one.time_s or 0.0 for one in best]
    nodes = [len(each.hosts) for each in found]
    cores = layers([each.n for each in found], times)
    shares = layers(nodes, times)
    rows = [
        Configuration(
            n=each.n,
            nodes=nodes[k],
            ppn=max(each.slots),
            placement=one.name,
            time_s=times[k],
            low_s=times[k] if one.low_s is None else one.low_s,
            high_s=times[k] if one.high_s is None else one.high_s,
            cores_front=int(cores[k]),
            nodes_front=int(shares[k]),
        )
        for k, (each, one) in enumerate(zip(found, best, strict=True))
    ]
    rows.sort(key=lambda row: (row.time_s, row.n, row.nodes))
    least = rows[0].n
    largest = max(row.n for row in rows)
    return Advice(
        configurations=tuple(rows),
        breaks_at=least if least < largest else None,
        placements=tuple(found),
    )
