"""The power laws of the thesis per instruction group of a phase (sections 5.3 and 6.2)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from p3s.costs.gather import Measured, pooled
from p3s.costs.model import by_run
from p3s.costs.phases import Weight
from p3s.costs.points import OWN, WHOLE, Point, once
from p3s.costs.thesis import crm
from p3s.costs.types import GroupCosts, GroupPoint
from p3s.model.types import Phase
from p3s.model.work.scic import ranges_text


def group_costs(
    phase: Phase, found: Sequence[Measured], far: Sequence[Point], weight: Weight
) -> tuple[GroupCosts, ...]:
    """Return the power laws of the groups of a phase, most work first.

    Groups are those of the instruction table, known by the order of their work: there are none
    where their number is not the same at all traced counts. found, far: with x as it was measured;
    a run of another workload counts where it has as many groups. weight: iterations of the phase in
    each run.
    """
    k = int(phase.phase)
    measured = phase.work.measured
    runs = [m for m in found if str(m.n) in measured and bool((m.x[k] > 0).any())]
    numbers = {len(measured[str(m.n)]) for m in runs}
    if len(numbers) != 1:
        return ()
    (size,) = numbers
    others = _of_others([p for p in far if p.phase == k], size, weight)
    last = max(runs, key=lambda m: m.n)
    where = measured[str(last.n)]
    return tuple(
        _group(
            g,
            ranges_text(where[g].ranks),
            [_own(m, k, measured[str(m.n)][g].ranks) for m in runs] + others[g],
        )
        for g in range(size)
    )


def _group(g: int, where: str, points: Sequence[Point]) -> GroupCosts:
    thesis = crm(points)
    kept = tuple(
        GroupPoint(p.count, p.traced, p.source, p.ranks, p.work, p.least_ns, p.typical_ns)
        for p in points
    )
    return GroupCosts(g, where, kept, thesis.initial, thesis.calibrated, thesis.far, thesis.why)


def _own(m: Measured, k: int, parts: Sequence[Sequence[int]]) -> Point:
    """Return work and time of one process of a group in one iteration of an own run."""
    ranks = np.concatenate([np.arange(a, b + 1) for a, b in parts])
    once = 1.0 / float(m.weight[k])

    def mean(values: np.ndarray) -> float:
        return float(values[m.phase == k][:, ranks].sum(axis=0).mean()) * once

    work, least, most = mean(m.work), mean(m.least), mean(m.most)
    return Point(
        WHOLE,
        k,
        float(m.n),
        work,
        work,
        least,
        mean(m.typical),
        max(most / least - 1.0, 0.0) if least > 0 else 0.0,
        len(ranks),
        m.repeats,
        OWN,
        m.n,
    )


def _of_others(points: Sequence[Point], size: int, weight: Weight) -> list[list[Point]]:
    """Return per group the points of the runs of other workloads that have ``size`` groups."""
    out: list[list[Point]] = [[] for _ in range(size)]
    for run in by_run(points):
        whole = sorted(pooled(run, {p.place: WHOLE for p in run}), key=lambda p: -p.x)
        if len(whole) == size:
            for group, p in zip(out, whole, strict=True):
                group.append(once(p, weight[p.phase, p.source, p.traced]))
    return out
