"""The compute model from points: laws of cost per place, what each phase rests on, its hold-out."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from p3s.costs.gather import (
    SMALL_SHARE,
    TracedComputation,
    by_count,
    own_points,
    share_points,
    shared_work,
    small_places,
    x_scale,
)
from p3s.costs.laws import fit_cost
from p3s.costs.points import (
    OWN,
    POOL,
    WHOLE,
    Iterations,
    Place,
    Point,
    by_run,
    iterations,
    per_rank,
    pool_points,
    shares,
    thin_points,
    turns,
)
from p3s.costs.spread import EVEN, LEAST_OCCURRENCES, Spread, apart, between_ranks, between_turns
from p3s.costs.types import (
    NO_TIME,
    NO_WORK,
    NOT_LEFT,
    ComputeModel,
    CostHoldOut,
    LawEntry,
    Laws,
    PhaseCosts,
    PhaseError,
    Row,
    Unknown,
    crm,
)
from p3s.model.comparison import HoldOut, WorkErrors
from p3s.model.judge import phase_key
from p3s.model.types import Model, Phase
from p3s.model.work.balance import has_distribution
from p3s.signature.clock import TIMES

#: Phases below this share of the time are left out of the errors.
SHARE = 0.01


def fit(model: Model, found: Sequence[TracedComputation], far: Sequence[Point]) -> ComputeModel:
    """Return the laws of cost and what each phase's time rests on.

    found: the study's own runs by count, may be none; far: points of other settings. Nothing is
    said of the runs themselves.
    """
    unit = model.work_unit
    weight = iterations(gather_points(found, far)[0])
    scale: np.ndarray | None = None
    shared: dict[Place, float] = {}
    if unit in TIMES:
        scale = x_scale(model, [m.n for m in found] or model.counts)
        found, far = by_count(found, far, scale)
        asked = shared_work(model, found)
        small = gather_points(found, far)[1]
        if _helps(
            hold_out(model, *share_points(asked, found, far, weight), small, unit, asked),
            hold_out(model, found, far, small, unit),
        ):
            shared = asked
            found, far = share_points(shared, found, far, weight)
    points, small = gather_points(found, far)
    laws = fit_laws(points, small, len(model.phases), unit)
    own = [p for p in points if not found or p.source == OWN]
    last = max(((p.traced, p.source) for p in own), default=(0, OWN))
    part = shares([p for p in own if (p.traced, p.source) == last])
    return ComputeModel(
        work_unit=unit,
        counts=tuple(m.n for m in found),
        laws=tuple(
            replace(e, share=sum(part.get(place, 0.0) for place in e.places)) for e in laws.entries
        ),
        rest=laws.rest,
        phases=tuple(
            phase_costs(p, laws, found, weight, None if scale is None else float(scale[p.phase]))
            for p in model.phases
        ),
        holdout=hold_out(model, found, far, small, unit, shared),
        shared=tuple((*place, work) for place, work in shared.items()),
        runs=(),
        refused=(),
        unmatched={},
    )


def _helps(shared: CostHoldOut | None, plain: CostHoldOut | None) -> bool:
    """Tell whether the largest count is met better where work is taken to be shared out evenly.

    The laws of work know overheads, but not the caches that work falls into.
    """
    if shared is None or plain is None:
        return True
    return shared.error < plain.error


def gather_points(
    found: Sequence[TracedComputation], far: Sequence[Point]
) -> tuple[list[Point], set[Place]]:
    """Return the points of all runs, and the places that are pooled.

    found: own runs; without any, small places are those with little of the time at every point.
    """
    points = [p for m in found for p in own_points(m)] + list(far)
    small = (
        small_places(found)
        if found
        else {place for place, share in shares(points).items() if share < SMALL_SHARE}
    )
    return thin_points(points), small


# ---- laws --------------------------------------------------------------------------------------
def fit_laws(points: Sequence[Point], small: set[Place], phases: int, unit: str) -> Laws:
    """Fit a law of cost to every place that matters, the small ones of a phase together.

    points: of single places, of all runs and settings; small: places that are pooled; unit: of
    the work.
    """
    usable = [p for p in points if p.work > 0 and p.least_ns > 0 and p.x > 0]
    entries: list[LawEntry] = []
    for k in range(phases):
        mine = [p for p in usable if p.phase == k]
        if not mine:
            continue
        places = tuple(dict.fromkeys(p.place for p in mine))
        whole = pool_points(mine, dict.fromkeys(places, WHOLE))
        law = fit_cost(whole, unit=unit)
        entries.append(LawEntry("phase", k, places, 0.0, tuple(whole), law))
        parts = _parts(mine, tuple(p for p in places if p in small))
        for kind, some, part in parts:
            # all of a phase in one part: the phase's law is its law
            own = law if len(parts) == 1 else fit_cost(part, unit=unit)
            entries.append(LawEntry(kind, k, some, 0.0, tuple(part), own))
    return Laws(tuple(entries), fit_cost(_program(usable), unit=unit))


def _parts(
    points: Sequence[Point], small: tuple[Place, ...]
) -> list[tuple[Literal["place", "small"], tuple[Place, ...], Sequence[Point]]]:
    """Return (kind, places, points) of the parts of a phase that have a law each."""
    out: list[tuple[Literal["place", "small"], tuple[Place, ...], Sequence[Point]]] = []
    for place in dict.fromkeys(p.place for p in points):
        if place not in small:
            out.append(("place", (place,), [p for p in points if p.place == place]))
    if small:
        rest = pool_points([p for p in points if p.place in small], dict.fromkeys(small, POOL))
        out.append(("small", small, rest))
    return out


def _program(points: Sequence[Point]) -> list[Point]:
    """Return one point per run, all phases and ranks together: x is all work of a rank."""
    out = []
    for run in by_run([p._replace(phase=-1) for p in points]).values():
        whole = per_rank(run, max(run[0].traced, 1))
        out.append(whole._replace(x=whole.work))
    return out


# ---- what a phase's time rests on --------------------------------------------------------------
def predicted_turn(laws: Laws, found: TracedComputation, phase: int) -> float:
    """Return the time of one process in one iteration by the laws, mean over ranks, in ns.

    found: the work and x of all ranks.
    """
    return _turn(found, phase, expected_ns(laws, found, phase))


def measured_turn(found: TracedComputation, phase: int) -> float:
    """Return the measured time of one process in one iteration, mean over ranks, in ns."""
    return _turn(found, phase, found.typical[found.phase == phase].sum(axis=0))


def _turn(found: TracedComputation, phase: int, ns: np.ndarray) -> float:
    there = found.x[phase] > 0
    return float(ns[there].mean() / found.weight[phase]) if there.any() else 0.0


def expected_ns(laws: Laws, found: TracedComputation, phase: int) -> np.ndarray:
    """Return the time of every rank in the run by the laws, in ns."""
    x, place = np.unique(found.x[phase], return_inverse=True)
    total = np.zeros(found.x.shape[1])
    for row in np.flatnonzero(found.phase == phase).tolist():
        law = laws.law(laws.number(phase, found.places[row]))
        total += found.work[row] * np.asarray(law.typical(x))[place]
    return total


def phase_costs(
    phase: Phase,
    laws: Laws,
    found: Sequence[TracedComputation],
    weight: Iterations,
    x_times_n: float | None,
) -> PhaseCosts:
    """Return what compute.json says of one phase of the model.

    laws: of all places; found: the study's own runs; weight: iterations in each run.
    """
    k = phase.phase
    whole = laws.entries[laws.of_phase[k]].points if k in laws.of_phase else ()
    points = turns(whole, weight)
    thesis = crm(points)
    varies = spread(laws, found, k)
    if whole and laws.rest.unit in TIMES and has_distribution(phase):
        varies = replace(varies, ranks=EVEN)  # the model's work says how ranks differ
    return PhaseCosts(
        k,
        phase.name,
        _range([p.x for p in whole]),
        _range([p.n for p in points if p.n is not None]),
        tuple(_row(p, laws, found, weight) for p in points),
        thesis.initial,
        thesis.calibrated,
        thesis.far,
        thesis.why,
        varies,
        unknown(laws, found, k),
        x_times_n,
    )


def _range(values: Sequence[float]) -> tuple[float, float] | None:
    return (min(values), max(values)) if values else None


def unknown(laws: Laws, found: Sequence[TracedComputation], k: int) -> Unknown | None:
    """Return why a phase that computes has no law of cost, None where it has one or does not.

    code: NO_WORK or NO_TIME.
    """
    if k in laws.of_phase:
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


def _row(point: Point, laws: Laws, found: Sequence[TracedComputation], weight: Iterations) -> Row:
    """Return a run's time of one process in one iteration, measured and by the laws."""
    k = point.phase
    own = next((m for m in found if point.source == OWN and m.n == point.traced), None)
    measured = measured_turn(own, k) if own else point.typical_ns
    predicted = predicted_turn(laws, own, k) if own else _of_points(laws, point, weight)
    return Row(k, point.source, point.n, point.traced, point.x, measured, predicted)


def _of_points(laws: Laws, point: Point, weight: Iterations) -> float:
    """Return what the laws say of a run of another setting, from its points of single places."""
    ns = sum(
        p.work * p.ranks * float(e.law.typical(p.x))
        for e in laws.entries
        if e.phase == point.phase and e.kind != "phase"
        for p in e.points
        if p.run == point.run
    )
    return float(ns / point.ranks / weight[point.run])


def spread(laws: Laws, found: Sequence[TracedComputation], k: int) -> Spread:
    """Return how the time of a phase varies between ranks and between turns.

    Ranks: least time of the repeats over what the laws say of the rank's work. Iterations: single
    occurrences of segments, as far as ranks differ in them. Runs in which ranks shared cores are
    taken where there are no others.
    """
    found = [m for m in found if m.own_cores] or found
    if not found:
        return Spread()
    ns, expected, run, rows = [], [], [], []
    for m in found:
        there = np.flatnonzero(m.x[k] > 0)
        ns.append(m.least[m.phase == k].sum(axis=0)[there])
        expected.append(expected_ns(laws, m, k)[there])
        run.append(np.full(len(there), m.n))
        of, *columns = m.segments
        rows.append([column[of == k] for column in columns])
    quantile, least, count = (np.concatenate(part) for part in zip(*rows, strict=True))
    single, seen = between_turns(quantile, least, count)
    ranks = between_ranks(np.concatenate(ns), np.concatenate(expected), np.concatenate(run))
    many = (count >= LEAST_OCCURRENCES) & (least > 0)
    number = float(np.average(count[many], weights=least[many])) if many.any() else 1.0
    return Spread(ranks, apart(single, ranks, number), sum(map(len, ns)), seen)


# ---- how good it is ----------------------------------------------------------------------------
def hold_out(
    model: Model,
    found: Sequence[TracedComputation],
    far: Sequence[Point],
    small: set[Place],
    unit: str,
    shared: Container[Any] = (),
) -> CostHoldOut | None:
    """Return the errors of each phase's time at the largest traced count, fitted without it.

    The work there is what the model says that was fitted without it (its hold-out), the cost what
    the laws say without its points; far: points of other settings. shared: places whose work goes
    with 1/n, whatever a law says. None where there are too few counts, or no hold-out of the model,
    or no phase has SHARE of the time.
    """
    held = model.holdout
    if len(found) < 3 or held is None or held.comparison is None:
        return None
    last = max(found, key=lambda m: m.n)
    if held.n != last.n:
        return None
    points = gather_points([m for m in found if m.n != last.n], far)[0]
    phases = len(last.weight)
    laws = fit_laws(points, small, phases, unit)
    ratio = _ratios(held, held.comparison.work, model)
    x = last.x
    if unit in TIMES:  # the work of the model was fitted: back to what was measured
        said = last.per_phase(last.work).sum(axis=1)
        least = last.per_phase(last.least).sum(axis=1)
        ratio = ratio * np.divide(least, said, out=np.ones(phases), where=said > 0)
    else:  # where work is time, x goes with the count
        x = x * ratio[:, None]
    of_place = np.where([place in shared for place in last.places], 1.0, ratio[last.phase])
    held_out = replace(last, work=last.work * of_place[:, None], x=x)
    of_phase = last.per_phase(last.typical)
    each = tuple(
        _error(k, share, laws, last, held_out)
        for k in range(phases)
        if (share := share_of(of_phase, k)) >= SHARE
    )
    if not each:
        return None
    errors = [abs(e.error) for e in each if e.error is not None]
    return CostHoldOut(
        last.n,
        float(np.mean(errors)) if errors else None,
        float(np.max(errors)) if errors else None,
        each,
    )


def _error(
    k: int, share: float, laws: Laws, last: TracedComputation, held_out: TracedComputation
) -> PhaseError:
    """Return a phase's time in one iteration as it was measured and as the laws say."""
    measured = measured_turn(last, k)
    if not measured > 0 or k not in laws.of_phase:
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
