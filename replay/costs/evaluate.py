"""From the results of programs to the result of the replay; pure, no MPI, no files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from p3s.base.study import REPLAY_SCHEMA, REPLAY_VERSION
from p3s.program.creation import OwnPart, creation_ns
from p3s.program.order.reasons import unmatched
from p3s.program.phase_cells import Places, places, work_of
from p3s.program.scaled import ScaledTrace
from p3s.replay.costs.calls import CallCost, call_costs, interpolated
from p3s.replay.costs.estimate import PhaseTimes, phase_times, with_creations
from p3s.replay.costs.network import Costs, network_of
from p3s.replay.costs.result import (
    ESTIMATOR,
    call_entries,
    columns,
    message_entries,
    network_entry,
    phase_entries,
    set_up,
    shares,
    unmeasured,
    why_not_representative,
)
from p3s.replay.costs.thesis import charged, composed, thesis_sum
from p3s.replay.costs.trunks import fabric_of, nothing_known
from p3s.replay.costs.whole import whole_times
from p3s.replay.engine.results import ProgramResult
from p3s.replay.plan.program import Program
from p3s.simulate.network import Network
from p3s.simulate.steps import Floats, Op

if TYPE_CHECKING:
    from p3s.replay.plan.types import ReplayPlan


@dataclass(frozen=True)
class Simulation:
    """What the first launch tells: costs, times of all ranks, and the schedule for the second.

    ``begin``: per section when each fully expanded step begins, in ns after the section's start.
    ``notes``: what had to be changed so that all ranks come to their end.
    """

    costs: Costs
    times: PhaseTimes
    where: Places
    begin: tuple[Floats, ...]
    notes: tuple[str, ...] = ()


def simulated(
    trace: ScaledTrace,
    plan: ReplayPlan,
    results: Mapping[int, ProgramResult],
    *,
    work_scale: float = 1.0,
    rough: Network | None = None,
    own: OwnPart | None = None,
) -> Simulation:
    """Return costs from the results of ``plan.programs`` and the simulation fed with them.

    ``rough``: costs of what nothing was measured of. ``own``: what making a communicator takes a
    rank by itself.
    """
    costs = network_of(
        plan.messages,
        plan.programs,
        results,
        plan.world,
        work_scale=work_scale,
        rough=rough,
        fabric=fabric_of(plan),
    )
    phases = sorted(set(trace.weights) | set(np.unique(trace.phase).tolist()))
    origins = [whole.origin for whole in plan.wholes]
    where = places(trace.n, phases, plan.sections, plan.full, origins, trace.phase)
    times, begin, changed = phase_times(
        where,
        plan.full,
        plan.mapping.node_of,
        plan.distance,
        (costs.network, costs.low, costs.high),
        costs.spread,
        work_of(trace, phases),
        costs.work,
    )
    times = times if own is None else with_creations(times, creation_ns(trace, phases, own))
    between = nothing_known(plan.topology) if costs.trunks is None else costs.trunks.notes
    notes = (*between, *changed)
    return Simulation(costs, times, where, begin, notes)


def evaluate(
    trace: ScaledTrace,
    plan: ReplayPlan,
    results: Mapping[int, ProgramResult],
    simulation: Simulation,
    places_of: Sequence[Any],
    *,
    timed: Sequence[Program] = (),
    timed_results: Mapping[int, ProgramResult] | None = None,
    nodes: Sequence[str] = (),
    wall_s: float = 0.0,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the content of the JSON file and the columns of the table.

    ``places_of``: per process, with name, kernel and cores. ``timed``: programs with timed black
    holes and their results by position.
    """
    costs, times = simulation.costs, simulation.times
    calls = calls_of(plan, results, costs)
    of_step = [charged(one.call_of, one.origin, one.direct_of, calls) for one in plan.wholes]
    thesis = thesis_sum(simulation.where, of_step, calls)
    whole: Floats | None = None
    if timed and timed_results:
        whole = whole_times(timed, timed_results, plan.world, plan.full, simulation.where)
    why_not = (
        why_not_representative(plan.world, places_of)
        if places_of
        else (
            "nothing was measured: no message between ranks can be replayed"
            if trace.n > 1
            else None
        )
    )
    every = [*results.values(), *(timed_results or {}).values()]
    messages = message_entries(plan.messages, costs)
    by_how = shares(messages)
    content = {
        "schema": REPLAY_SCHEMA,
        "schema_version": REPLAY_VERSION,
        "n": trace.n,
        "nodes": list(nodes),
        "iterations": len(plan.iterations),
        "pairs": [list(iteration.pair) for iteration in plan.iterations],
        "programs": len(plan.programs) + len(timed),
        "programs_skipped": len(plan.programs) + len(timed) - len(every),
        "passes": sum(result.passes for result in every),
        "wall_s": wall_s,
        "representative": why_not is None,
        "why_not_representative": why_not,
        "estimator": ESTIMATOR,
        "timed": whole is not None,
        "network": network_entry(costs),
        "simulated_with": costs.network.to_json(),
        "messages": messages,
        "classes": call_entries(plan.calls, calls),
        "phases": phase_entries(times, thesis, whole),
        "shares": by_how,
        "measured_share": sum(share for how, share in by_how.items() if how.startswith("measured")),
        "unmeasured": unmeasured(messages, plan.left_out),
        "unmatched": unmatched(trace, plan.left_out),
        "left_out": set_up(plan.left_out),
        "as_blocking": _nonblocking(plan),
        "clock_error_ns": max((result.clock_error_ns for result in every), default=0.0),
        "work_error_ns": _work_error(every),
        "notes": [*plan.notes, *simulation.notes],
    }
    return content, columns(times, thesis, whole)


def calls_of(
    plan: ReplayPlan, results: Mapping[int, ProgramResult], costs: Costs
) -> tuple[CallCost, ...]:
    """Return the costs of all call classes; composed where no pair of ranges can load them."""
    measured = call_costs(plan.calls, plan.programs, results)
    with_waits = composed(
        plan.calls,
        measured,
        [whole.call_of for whole in plan.wholes],
        plan.full,
        plan.mapping.node_of,
        plan.distance,
        costs.network,
    )
    return interpolated(plan.calls, with_waits)


def _work_error(results: Sequence[ProgramResult]) -> dict[str, float]:
    """Return median and 95 % of what emulated computation took beyond its length."""
    errors = [result.work_error_ns for result in results if len(result.work_error_ns)]
    if not errors:
        return {}
    every = np.concatenate(errors)
    return {
        "p50": float(np.median(every)),
        "p95": float(np.percentile(every, 95)),
        "number": float(len(every)),
    }


def _nonblocking(plan: ReplayPlan) -> list[str]:
    """Return the nonblocking collectives: most of their messages move at their completion."""
    found: set[str] = set()
    for section in plan.sections:
        steps = section.steps
        for call in np.unique(steps.call[steps.is_op(Op.ICOLLECTIVE)]).tolist():
            found.add(steps.calls[call])
    return sorted(found)
