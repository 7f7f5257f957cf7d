"""The compute model: laws of cost per place, what each phase's time rests on, and its hold-out."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from p3s.costs.gather import (
    SMALL_SHARE,
    Measured,
    own_points,
    pooled,
    shares,
    small_places,
    thinned,
)
from p3s.costs.laws import CostLaw, fit_cost
from p3s.costs.spread import EVEN, LEAST_OCCURRENCES, Spread, apart, between_ranks, between_turns
from p3s.costs.thesis import OWN, POOL, WHOLE, Place, Point, crm, once, per_rank
from p3s.costs.types import (
    CostHoldOut,
    Iteration,
    KeptPoint,
    LawEntry,
    PhaseCosts,
    PhaseError,
    Unknown,
)
from p3s.model.comparison import HoldOut, WorkErrors
from p3s.model.judge import phase_key
from p3s.model.types import Model, Phase
from p3s.model.work.balance import drawn
from p3s.signature.clock import TIMES


@dataclass(frozen=True)
class Laws:
    """All cost laws of a program: of its phases and places, and one for what was never measured.

    whole: the points of each phase as a whole, which the law for places that were not measured was
    fitted to; phases without any are left out.
    """

    entries: tuple[LawEntry, ...]
    rest: CostLaw
    whole: Mapping[int, Sequence[Point]]

    def law_of(self, phase: int, place: Place) -> CostLaw:
        """Return the law of a place: its own or its pool's, else its phase's, else the rest's."""
        best = self.rest
        for entry in self.entries:
            if entry.phase == phase and entry.kind != "phase" and place in entry.places:
                return entry.law
            if entry.phase == phase and entry.kind == "phase":
                best = entry.law
        return best


def fit_laws(points: Sequence[Point], small: set[Place], phases: int, unit: str) -> Laws:
    """Fit a law of cost to every place that matters, the small ones of a phase together.

    points: of single places, of all runs and workloads; small: places that are pooled; unit: of
    the work.
    """
    usable = [p for p in points if p.work > 0 and p.least_ns > 0 and p.x > 0]
    entries: list[LawEntry] = []
    phase_points: dict[int, Sequence[Point]] = {}
    for k in range(phases):
        mine = [p for p in usable if p.phase == k]
        if not mine:
            continue
        places = list(dict.fromkeys(p.place for p in mine))
        whole = phase_points[k] = pooled(mine, dict.fromkeys(places, WHOLE))
        law = fit_cost(whole, unit=unit)
        entries.append(entry_of("phase", k, places, whole, law))
        parts = _parts(mine, [p for p in places if p in small])
        for kind, some, part in parts:
            # all of a phase in one part: the phase's law is its law
            own = law if len(parts) == 1 else fit_cost(part, unit=unit)
            entries.append(entry_of(kind, k, some, part, own))
    return Laws(tuple(entries), fit_cost(_program(usable), unit=unit), phase_points)


def _parts(
    points: Sequence[Point], small: Sequence[Place]
) -> list[tuple[Literal["place", "small"], Sequence[Place], Sequence[Point]]]:
    """Return (kind, places, points) of the parts of a phase that have a law each."""
    out: list[tuple[Literal["place", "small"], Sequence[Place], Sequence[Point]]] = []
    for place in dict.fromkeys(p.place for p in points):
        if place not in small:
            out.append(("place", (place,), [p for p in points if p.place == place]))
    if small:
        rest = pooled([p for p in points if p.place in small], dict.fromkeys(small, POOL))
        out.append(("small", small, rest))
    return out


def by_run(points: Sequence[Point]) -> list[list[Point]]:
    """Return the points of each run: of one source and traced count."""
    runs: dict[tuple[str, int], list[Point]] = {}
    for p in points:
        runs.setdefault((p.source, p.traced), []).append(p)
    return list(runs.values())


def _program(points: Sequence[Point]) -> list[Point]:
    """Return one point per run, all phases and ranks together: x is all work of a rank."""
    out = []
    for run in by_run(points):
        whole = per_rank(run, max(run[0].traced, 1))
        spread = float(np.median([p.spread for p in run]))
        out.append(replace(whole, phase=-1, x=whole.work, spread=spread))
    return out


def turns(points: Sequence[Point], weight: Mapping[tuple[int, str, int], float]) -> list[Point]:
    """Return a phase's points per run as the time of one process in one iteration, mean over its
    ranks.

    points: of the phase as a whole; weight: iterations in each run (of ``turned``). The time of one
    process in one iteration is what the thesis models (section 6.1); work, least_ns and typical_ns
    of the points returned are of one turn."""
    out = []
    for run in by_run(points):
        ranks = sum(p.ranks for p in run)
        first = run[0]
        turn = once(per_rank(run, ranks), weight[first.phase, first.source, first.traced])
        # of another workload every group of ranks has a count of its own: take the mean one
        weights = [p.ranks for p in run]
        n = float(np.average([p.n for p in run], weights=weights))
        x = float(np.average([p.x for p in run], weights=weights))
        out.append(replace(turn, n=n, x=x, spread=float(np.median([p.spread for p in run]))))
    return out


def predicted_turn(laws: Laws, found: Measured, phase: int) -> float:
    """Return the time of one process in one iteration by the laws, mean over ranks, in ns.

    found: the work and x of all ranks.
    """
    there = found.x[phase] > 0
    if not there.any():
        return 0.0
    return float(expected_ns(laws, found, phase)[there].mean() / found.weight[phase])


def expected_ns(laws: Laws, found: Measured, phase: int) -> np.ndarray:
    """Return the time of every rank in the run by the laws, in ns."""
    x, place = np.unique(found.x[phase], return_inverse=True)
    total = np.zeros(found.x.shape[1])
    for row in np.flatnonzero(found.phase == phase).tolist():
        cost = np.asarray(laws.law_of(phase, found.places[row]).typical(x))[place]
        total += found.work[row] * cost
    return total


def measured_turn(found: Measured, phase: int, values: np.ndarray) -> float:
    """Return the measured time of one process in one iteration, mean over ranks, in ns."""
    there = found.x[phase] > 0
    if not there.any():
        return 0.0
    per_rank = values[found.phase == phase].sum(axis=0)
    return float(per_rank[there].mean() / found.weight[phase])


def gathered(found: Sequence[Measured], far: Sequence[Point]) -> tuple[list[Point], set[Place]]:
    """Return the points of all runs, and the places that are pooled.

    found: own runs; without any, small places are those with little of the time at every point.
    """
    points = [p for m in found for p in own_points(m)] + list(far)
    small = (
        small_places(found)
        if found
        else {place for place, share in shares(points).items() if share < SMALL_SHARE}
    )
    return thinned(points), small


def entry_of(
    kind: Literal["place", "small", "phase"],
    phase: int,
    places: Sequence[Place],
    points: Sequence[Point],
    law: CostLaw,
) -> LawEntry:
    """Return an entry of ``laws`` in compute.json, its share of the computation not yet known."""
    rows = (
        KeptPoint(p.count, *(getattr(p, name) for name in KeptPoint._fields[1:])) for p in points
    )
    return LawEntry(kind, phase, tuple(places), 0.0, KeptPoint._fields, tuple(rows), law)


Weight = Mapping[tuple[int, str, int], float]
#: Why nothing is known of the cost of a phase's computation: the model says no work there, no time
#: was measured, or (held out) nothing of it was measured at the counts that are left.
NO_WORK, NO_TIME, NOT_LEFT = "no work", "no time", "not at the counts left"


def phase_costs(
    phase: Phase, laws: Laws, found: Sequence[Measured], weight: Weight, x_times_n: float | None
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


#: Phases below this share of the time are left out of the errors.
SHARE = 0.01


def hold_out(
    model: Model,
    found: Sequence[Measured],
    far: Sequence[Point],
    small: set[Any],
    unit: str,
    shared: Container[Any] = (),
) -> CostHoldOut | None:
    """Return the errors of each phase's time at the largest traced count, fitted without it.

    The work there is what the model says that was fitted without it (its hold-out), the cost what
    the laws say without its points; far: points of other workloads. shared: places whose work goes
    with 1/n, whatever a law says. None where there are too few counts, or no hold-out of the model,
    or no phase has SHARE of the time.
    """
    held = model.holdout
    if len(found) < 3 or held is None or held.comparison is None:
        return None
    last = max(found, key=lambda m: m.n)
    if held.n != last.n:
        return None
    points = gathered([m for m in found if m.n != last.n], far)[0]
    phases = len(last.weight)
    laws = fit_laws(points, small, phases, unit)
    ratio = _ratios(held, held.comparison.work, model)
    if unit in TIMES:  # the work of the model was fitted: back to what was measured
        said = last.per_phase(last.work).sum(axis=1)
        least = last.per_phase(last.least).sum(axis=1)
        ratio = ratio * np.divide(least, said, out=np.ones(phases), where=said > 0)
    x = last.x
    if unit not in TIMES:  # where work is time, x goes with the count
        x = x * ratio[:, None]
    of_place = np.array(
        [
            1.0 if place in shared else ratio[k]
            for place, k in zip(last.places, last.phase.tolist(), strict=True)
        ]
    )
    held_out = replace(last, work=last.work * of_place[:, None], x=x)
    of_phase = last.per_phase(last.typical)
    each = [
        _of_phase(k, share, laws, last, held_out)
        for k in range(phases)
        if (share := share_of(of_phase, k)) >= SHARE
    ]
    if not each:
        return None
    errors = [abs(e.error) for e in each if e.error is not None]
    return CostHoldOut(
        last.n,
        float(np.mean(errors)) if errors else None,
        float(np.max(errors)) if errors else None,
        tuple(each),
    )


def _of_phase(k: int, share: float, laws: Laws, last: Measured, held_out: Measured) -> PhaseError:
    """Return a phase's time in one iteration as it was measured and as the laws say."""
    measured = measured_turn(last, k, last.typical)
    if not measured > 0 or k not in laws.whole:
        why = NOT_LEFT if measured > 0 else NO_WORK
        return PhaseError(k, share, measured, None, None, why)
    predicted = predicted_turn(laws, held_out, k)
    return PhaseError(k, share, measured, predicted, (predicted - measured) / measured, None)


def _ratios(held: HoldOut, work: WorkErrors, model: Model) -> np.ndarray:
    """Return predicted over measured work of each phase in the hold-out of the model.

    Phases are numbered anew in every fit: they are known by their calls.
    """
    errors = {entry.phase: entry.error for entry in work.each if entry.phase is not None}
    seen = {key: k for k, key in enumerate(held.phases_seen)}
    keys = [seen.get(phase_key(p, model.items), -1) for p in model.phases]
    return np.array([1.0 + errors.get(key, work.total_error) for key in keys])
