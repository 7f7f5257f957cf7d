"""What compute.json says of a phase: time of one iteration, the thesis's power laws, ranges,
spread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from p3s.costs.gather import Measured
from p3s.costs.model import OWN, Laws, expected_ns, measured_turn, predicted_turn, turns
from p3s.costs.spread import LEAST_OCCURRENCES, Spread, apart, between_ranks, between_turns
from p3s.costs.thesis import crm
from p3s.model.types import Phase
from p3s.small_runs.points import Point

Weight = Mapping[tuple[int, str, int], float]
#: Why nothing is known of the cost of a phase's computation: the model says no work there, no time
#: was measured, or (held out) nothing of it was measured at the counts that are left.
NO_WORK, NO_TIME, NOT_LEFT = "no work", "no time", "not at the counts left"


def phase_json(
    phase: Phase, laws: Laws, found: Sequence[Measured], weight: Weight
) -> dict[str, Any]:
    """Return the entry of ``phases`` of one phase of the model.

    laws: of all places; found: the study's own runs; weight: of ``turned``.
    """
    k = int(phase.phase)
    whole = laws.whole(k)
    points = turns(whole.points, weight) if whole is not None else []
    xs = [p.x for p in whole.points] if whole is not None else []
    ns = [p.n for p in points if np.isfinite(p.n)]
    return {
        "phase": k,
        "name": phase.name,
        "x": [min(xs), max(xs)] if xs else None,
        "n": [min(ns), max(ns)] if ns else None,
        "turns": [_turn(p, laws, found, weight) for p in points],
        **alternatives(points),
        "spread": spread(laws, found, k).to_json(),
        "unknown": unknown(laws, found, k),
    }


def unknown(laws: Laws, found: Sequence[Measured], k: int) -> dict[str, Any] | None:
    """Return why a phase that computes has no law of cost, None where it has one or does not.

    Keys: code, one of NO_WORK and NO_TIME; share: of the computation, the largest at any count.
    """
    if laws.whole(k) is not None:
        return None
    share = max((share_of(m.per_phase(m.typical), k) for m in found), default=0.0)
    if share > 0:
        return {"code": NO_WORK, "share": share}
    work = max((share_of(m.per_phase(m.work), k) for m in found), default=0.0)
    return {"code": NO_TIME, "share": work} if work > 0 else None


def share_of(of_phase: np.ndarray, k: int) -> float:
    """Return what part of values per (phase, rank) is that of one phase."""
    total = float(of_phase.sum())
    return float(of_phase[k].sum()) / total if total > 0 else 0.0


def _turn(point: Point, laws: Laws, found: Sequence[Measured], weight: Weight) -> dict[str, Any]:
    """Return a run's time of one process in one iteration, measured and by the laws."""
    k = point.phase
    own = next((m for m in found if point.source == OWN and m.n == point.traced), None)
    return {
        "n": point.n if np.isfinite(point.n) else None,
        "traced": point.traced,
        "source": point.source,
        "ranks": point.ranks,
        "x": point.x,
        "least_ns": point.least_ns,
        "spread": point.spread,
        "measured_ns": measured_turn(own, k, own.typical) if own else point.typical_ns,
        "predicted_ns": predicted_turn(laws, own, k) if own else _told(laws, point, weight),
    }


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
    occurrences of segments, as far as ranks differ in them.
    """
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


def alternatives(points: Sequence[Point]) -> dict[str, Any]:
    """Return the laws of the thesis for a phase's time of one process in one turn.

    points: of one iteration, of :func:`turns`. crm_i: a n^b through the own runs (section 6.2);
    crm_c: with the far point, the run of another workload whose cost is least; far: which that is,
    and whether the cost had stopped to fall there (reached); crm_why: why there is none. That the
    total work of the phase is constant is not asked for: the count that a far run stands for was
    looked up in the work of the phase itself."""
    found = crm(points)
    far = found.far
    return {
        "crm_i": found.initial.to_json() if found.initial else None,
        "crm_c": found.calibrated.to_json() if found.calibrated else None,
        "far": {
            "source": far[0],
            "traced": far[1],
            "n": far[2],
            "typical_ns": far[3],
            "reached": found.reached,
        }
        if far
        else None,
        "crm_why": found.why,
    }
