"""Other workloads that stand for no count of this one: told by the study's own runs.

Where work is time, a run of another workload gets its count from the bytes of its messages. They do
not tell the computation of every phase: with all particles gathered, a process exchanges its own
ones and computes own times all. Where such a run is matched to a count between those that were
traced, its time can be compared with theirs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from p3s.compute.gather import WHOLE, Measured, own_points, pooled
from p3s.compute.model import turns
from p3s.compute.points import Point

#: Times that differ by more than this are no noise, and no other cache either: neighbouring
#: traced counts would show it.
APART = 1.5


def refuted(found: Sequence[Measured], far: Sequence[Point],
            weight: Mapping[tuple[int, str, int], float]
            ) -> tuple[list[Point], list[tuple[str, int, float]]]:
    """Return the points of other workloads that agree with the own runs, and what does not.

    weight: turns of each run (of ``gather.turned``). What does not agree is (workload, phase, its
    time over that of the own runs at the same count), where that is furthest from 1; none of the
    workload's points of that phase are among those returned. Times of one process in one turn are
    compared, interpolated in logarithms between the own counts; beyond these nothing is said.
    """
    bad: dict[tuple[str, int], float] = {}
    own_all = [p for m in found for p in own_points(m)]
    for phase in sorted({p.phase for p in far}):
        own = _turns([p for p in own_all if p.phase == phase], weight)
        if len(own) < 2:
            continue
        n, ns = np.log([p.n for p in own]), np.log([p.typical_ns for p in own])
        for p in _turns([p for p in far if p.phase == phase], weight):
            at = np.log(p.n) if p.n > 0 else np.nan
            if not n[0] - 1e-6 <= at <= n[-1] + 1e-6:
                continue
            ratio = float(np.exp(np.log(p.typical_ns) - np.interp(at, n, ns)))
            key = p.source, phase
            if max(ratio, 1.0 / ratio) > max(APART, bad.get(key, 1.0), 1.0 / bad.get(key, 1.0)):
                bad[key] = ratio
    return ([p for p in far if (p.source, p.phase) not in bad],
            [(source, phase, ratio) for (source, phase), ratio in sorted(bad.items())])


def _turns(points: Sequence[Point], weight: Mapping[tuple[int, str, int], float]) -> list[Point]:
    """Return the time of one process in one turn of each run, by count; points of one phase."""
    whole = pooled(points, {p.place: WHOLE for p in points})
    return sorted((p for p in turns([p for p in whole if (p.phase, p.source, p.traced) in weight],
                                    weight) if p.typical_ns > 0 and np.isfinite(p.n)),
                  key=lambda p: p.n)
