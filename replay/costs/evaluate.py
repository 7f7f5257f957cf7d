"""From the results of programs to the result of the replay; pure, no MPI, no files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from p3s.base.arrays import Floats
from p3s.base.study import REPLAY_SCHEMA, REPLAY_VERSION
from p3s.program.order.calls import count_unmatched
from p3s.program.own_costs import OwnPart, creation_ns
from p3s.program.phase_cells import Places, places, work_of
from p3s.program.scaled import ScaledTrace
from p3s.replay.costs.estimate import PhaseTimes, phase_times, with_creations
from p3s.replay.costs.messages import fabric_of, not_simulated
from p3s.replay.costs.network import Costs, network_of
from p3s.replay.costs.result import (
    call_entries,
    columns,
    list_unmeasured,
    message_entries,
    network_entry,
    node_names,
    phase_entries,
    set_up,
    shares,
    why_not,
)
from p3s.replay.costs.thesis import call_costs, charge_steps, compose_costs, thesis_sum
from p3s.replay.engine.results import ProgramResult
from p3s.replay.plan.program import MEASURED, Program, World
from p3s.simulate.network import Network
from p3s.simulate.steps import Op, Steps

if TYPE_CHECKING:
    from p3s.replay.plan.types import ReplayPlan


def whole_times(
    programs: Sequence[Program],
    results: Mapping[int, ProgramResult],
    world: World,
    full: Sequence[Steps],
    where: Places,
) -> Floats:
    """Return the communication of every rank in the timed iterations it was loaded in.

    Shape (ranks, phases), in ns; NaN: not measured.

    Per pass the sum of weight x time over its events of a phase, median over the passes of all
    iterations that the rank takes part in: waiting moves between events from pass to pass, so
    that medians of single events do not add up.
    """
    number = len(where.phases)
    sums: dict[tuple[int, int], dict[int, list[Floats]]] = {}
    for index, result in sorted(results.items()):
        program = programs[index]
        if program.what != "timed" or not result.passes:
            continue
        steps = full[program.section]
        rank_of_step = steps.rank
        for process, entry in enumerate(world.processes):
            if entry.role != MEASURED:
                continue
            begin, end = int(program.start[process]), int(program.start[process + 1])
            own_steps = program.step[begin:end]
            if not (own_steps >= 0).any():
                continue
            rank = int(rank_of_step[own_steps[own_steps >= 0][0]])
            column = np.flatnonzero((result.event >= begin) & (result.event < end))
            step = program.step[result.event[column]]
            column, step = column[step >= 0], step[step >= 0]
            weight = where.weight[program.section][step]
            phase = where.cell[program.section][step] % number
            weighted = result.event_ns[:, column] * weight
            for p in np.unique(phase).tolist():
                sums.setdefault((rank, p), {}).setdefault(program.section, []).append(
                    weighted[:, phase == p].sum(axis=1)
                )
    comm = np.full((where.n, number), np.nan)
    needed: dict[tuple[int, int], set[int]] = {}
    for section, (cell, weight) in enumerate(zip(where.cell, where.weight, strict=True)):
        for key in np.unique(cell[weight > 0]).tolist():
            needed.setdefault((key // number, key % number), set()).add(section)
    for key, sections in sums.items():
        if needed.get(key, set()) <= set(sections):
            comm[key] = sum(float(np.median(np.concatenate(s))) for s in sections.values())
    return comm


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


def simulate_replay(
    trace: ScaledTrace,
    plan: ReplayPlan,
    results: Mapping[int, ProgramResult],
    *,
    work_scale: float = 1.0,
    rough: Network | None = None,
    creation: OwnPart | None = None,
) -> Simulation:
    """Return costs from the results of ``plan.programs`` and the simulation fed with them.

    ``rough``: costs of what nothing was measured of. ``creation``: what making a communicator takes
    a rank by itself.
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
    times = (
        times if creation is None else with_creations(times, creation_ns(trace, phases, creation))
    )
    between = not_simulated(plan.topology, plan.mapping.names)
    notes = (*between, *changed)
    return Simulation(costs, times, where, begin, notes)


def evaluate(
    trace: ScaledTrace,
    plan: ReplayPlan,
    results: Mapping[int, ProgramResult],
    simulation: Simulation,
    *,
    timed: Sequence[Program] = (),
    timed_results: Mapping[int, ProgramResult] | None = None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the content of the JSON file and the columns of the table.

    ``timed``: programs with timed black holes and their results by position.
    """
    costs, times = simulation.costs, simulation.times
    calls = compose_costs(
        call_costs(plan.calls, plan.programs, results),
        [whole.call_of for whole in plan.wholes],
        plan.full,
        plan.mapping.node_of,
        plan.distance,
        costs.network,
    )
    of_step = [charge_steps(one.call_of, one.origin, one.direct_of, calls) for one in plan.wholes]
    thesis = thesis_sum(simulation.where, of_step, calls)
    whole: Floats | None = None
    if timed and timed_results:
        whole = whole_times(timed, timed_results, plan.world, plan.full, simulation.where)
    every = [*results.values(), *(timed_results or {}).values()]
    places = next((result.places for result in every if result.places), ())
    reason = why_not(plan.world, places)
    if not places and trace.n > 1:
        reason = "nothing was measured: no message between ranks can be replayed"
    messages = message_entries(plan.messages, costs)
    by_how = shares(messages)
    content = {
        "schema": REPLAY_SCHEMA,
        "schema_version": REPLAY_VERSION,
        "n": trace.n,
        "nodes": node_names(plan.world, places),
        "iterations": len(plan.iterations),
        "programs": len(plan.programs) + len(timed),
        "programs_skipped": len(plan.programs) + len(timed) - len(every),
        "passes": sum(result.passes for result in every),
        "representative": reason is None,
        "why_not_representative": reason,
        "timed": whole is not None,
        "network": network_entry(costs),
        "simulated_with": costs.network.to_json(),
        "messages": messages,
        "classes": call_entries(plan.calls, calls),
        "phases": phase_entries(times, thesis, whole),
        "shares": by_how,
        "measured_share": sum(share for how, share in by_how.items() if how.startswith("measured")),
        "unmeasured": list_unmeasured(messages, plan.left_out),
        "unmatched": count_unmatched(trace, plan.left_out),
        "left_out": set_up(plan.left_out),
        "as_blocking": _nonblocking(plan),
        "clock_error_ns": max((result.clock_error_ns for result in every), default=0.0),
        "work_error_ns": _work_error(every),
        "notes": [*plan.notes, *simulation.notes],
    }
    return content, columns(times, thesis, whole)


def _work_error(results: Sequence[ProgramResult]) -> dict[str, float]:
    """Return median and 95 % of what emulated computation took beyond its length."""
    every = np.concatenate([np.zeros(0), *(result.work_error_ns for result in results)])
    if not len(every):
        return {}
    return {
        "p50": float(np.median(every)),
        "p95": float(np.percentile(every, 95)),
        "number": float(len(every)),
    }


def _nonblocking(plan: ReplayPlan) -> list[str]:
    """Return the nonblocking collectives: most of their messages move at their completion."""
    calls: set[str] = set()
    for section in plan.sections:
        steps = section.steps
        for call in np.unique(steps.call[steps.is_op(Op.ICOLLECTIVE)]).tolist():
            calls.add(steps.calls[call])
    return sorted(calls)
