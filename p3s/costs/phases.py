"""What compute.json says of a phase: time of one iteration, the thesis's power laws, ranges,
spread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from p3s.costs.gather import TIME_UNITS, Measured
from p3s.costs.model import Laws, expected_ns, measured_turn, predicted_turn, turns
from p3s.costs.points import OWN, Point
from p3s.costs.spread import EVEN, LEAST_OCCURRENCES, Spread, apart, between_ranks, between_turns
from p3s.costs.thesis import crm
from p3s.costs.types import GroupCosts, Iteration, PhaseCosts, Unknown
from p3s.model.types import Phase
from p3s.model.work.balance import drawn

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
    whole = laws.whole(k)
    points = turns(whole.points, weight) if whole is not None else []
    thesis = crm(points)
    return PhaseCosts(
        k,
        phase.name,
        _range([p.x for p in whole.points] if whole is not None else []),
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
    whole = laws.whole(phase.phase)
    timed = whole is not None and whole.law.unit in TIME_UNITS
    return replace(found, ranks=EVEN) if timed and drawn(phase) else found


def _range(values: Sequence[float]) -> tuple[float, float] | None:
    return (min(values), max(values)) if values else None


def unknown(laws: Laws, found: Sequence[Measured], k: int) -> Unknown | None:
    """Return why a phase that computes has no law of cost, None where it has one or does not.

    code: NO_WORK or NO_TIME.
    """
    if laws.whole(k) is not None:
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
