"""What compute.json says of a phase: time of one iteration, the power laws of the thesis, of its
instruction groups too (sections 5.3 and 6.2), ranges, spread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from p3s.costs.gather import Measured, pooled
from p3s.costs.model import Laws, by_run, expected_ns, measured_turn, predicted_turn, turns
from p3s.costs.points import OWN, WHOLE, Point, once
from p3s.costs.spread import EVEN, LEAST_OCCURRENCES, Spread, apart, between_ranks, between_turns
from p3s.costs.thesis import crm
from p3s.costs.types import GroupCosts, GroupPoint, Iteration, PhaseCosts, Unknown
from p3s.model.types import Phase
from p3s.model.work.balance import drawn
from p3s.model.work.scic import ranges_text
from p3s.signature.clock import TIMES

Weight = Mapping[tuple[int, str, int], float]
#: Why nothing is known of the cost of a phase's computation: the model says no work there, no time
#: was measured, or (held out) nothing of it was measured at the counts that are left.
NO_WORK, NO_TIME, NOT_LEFT = "no work", "no time", "not at the counts left"


def phase_costs(
    phase: Phase,
    laws: Laws,
    found: Sequence[Measured],
    weight: Weight,
    x_times_n: float | None,
    groups: tuple[GroupCosts, ...],
) -> PhaseCosts:
    """Return what compute.json says of one phase of the model.

    laws: of all places; found: the study's own runs; weight: of ``turned``.
    """
    k = phase.phase
    whole = laws.whole.get(k, ())
    points = turns(whole, weight)
    thesis = crm(points)
    return PhaseCosts(
        k,
        phase.name,
        _range([p.x for p in whole]),
        _range([p.n for p in points if np.isfinite(p.n)]),
        tuple(_turn(p, laws, found, weight) for p in points),
        thesis.initial,
        thesis.calibrated,
        thesis.far,
        thesis.why,
        _left(spread(laws, found, k), phase, laws),
        unknown(laws, found, k),
        x_times_n,
        groups,
    )


def _left(found: Spread, phase: Phase, laws: Laws) -> Spread:
    """Return what is still to be drawn: not how ranks differ where the model's work says it."""
    timed = phase.phase in laws.whole and laws.rest.unit in TIMES
    return replace(found, ranks=EVEN) if timed and drawn(phase) else found


def _range(values: Sequence[float]) -> tuple[float, float] | None:
    return (min(values), max(values)) if values else None


def unknown(laws: Laws, found: Sequence[Measured], k: int) -> Unknown | None:
    """Return why a phase that computes has no law of cost, None where it has one or does not.

    code: NO_WORK or NO_TIME.
    """
    if k in laws.whole:
        return None
    share = max((share_of(m.per_phase(m.typical), k) for m in found), default=0.0)
    if share > 0:
        return Unknown(NO_WORK, share)
    work = max((share_of(m.per_phase(m.work), k) for m in found), default=0.0)
    return Unknown(NO_TIME, work) if work > 0 else None


def share_of(of_phase: np.ndarray, k: int) -> float:
    """Return what part of values per (phase, rank) is that of one phase."""
    total = float(of_phase.sum())
    return float(of_phase[k].sum()) / total if total > 0 else 0.0


def _turn(point: Point, laws: Laws, found: Sequence[Measured], weight: Weight) -> Iteration:
    """Return a run's time of one process in one iteration, measured and by the laws."""
    k = point.phase
    own = next((m for m in found if point.source == OWN and m.n == point.traced), None)
    return Iteration(
        point.count,
        point.traced,
        point.source,
        point.ranks,
        point.x,
        point.least_ns,
        point.spread,
        measured_turn(own, k, own.typical) if own else point.typical_ns,
        predicted_turn(laws, own, k) if own else _told(laws, point, weight),
    )


def _told(laws: Laws, point: Point, weight: Weight) -> float:
    """Return what the laws say of a run of another workload, from its points of single places."""
    ns = sum(
        p.work * p.ranks * float(e.law.typical(p.x))
        for e in laws.entries
        if e.phase == point.phase and e.kind != "phase"
        for p in e.points
        if (p.source, p.traced) == (point.source, point.traced)
    )
    return float(ns / point.ranks / weight[point.phase, point.source, point.traced])


def spread(laws: Laws, found: Sequence[Measured], k: int) -> Spread:
    """Return how the time of a phase varies between ranks and between turns.

    Ranks: least time of the repeats over what the laws say of the rank's work. Iterations: single
    occurrences of segments, as far as ranks differ in them. Runs in which ranks shared cores are
    taken where there are no others.
    """
    found = [m for m in found if m.own_cores] or found
    ns, expected, run = [], [], []
    rows = []
    for m in found:
        there = np.flatnonzero(m.x[k] > 0)
        ns.append(m.least[m.phase == k].sum(axis=0)[there])
        expected.append(expected_ns(laws, m, k)[there])
        run.append(np.full(len(there), m.n))
        of, quantile, least, count = m.segments
        rows.append((quantile[of == k], least[of == k], count[of == k]))
    if not rows:
        return Spread()
    quantile, least, count = (np.concatenate(part) for part in zip(*rows, strict=True))
    turns_, seen = between_turns(quantile, least, count)
    ranks = between_ranks(np.concatenate(ns), np.concatenate(expected), np.concatenate(run))
    many = (count >= LEAST_OCCURRENCES) & (least > 0)
    number = float(np.average(count[many], weights=least[many])) if many.any() else 1.0
    return Spread(ranks, apart(turns_, ranks, number), sum(map(len, ns)), seen)


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
