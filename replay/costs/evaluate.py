"""From the results of programs to the result of the replay; pure, no MPI, no files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from p3s.base.arrays import Floats, Ints
from p3s.base.study import REPLAY_SCHEMA, REPLAY_VERSION
from p3s.program.order.calls import unmatched
from p3s.program.own_costs import OwnPart, creation_ns
from p3s.program.phase_cells import Places, places, work_of
from p3s.program.scaled import ScaledTrace
from p3s.replay.costs.calls import COMPOSED, NONE, CallCost, call_costs, interpolated
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
from p3s.replay.costs.trunks import fabric_of, nothing_known
from p3s.replay.engine.results import ProgramResult
from p3s.replay.plan.classes import CallClass
from p3s.replay.plan.program import Program
from p3s.replay.plan.world import MEASURED, World
from p3s.replay.stats import Estimate
from p3s.simulate.network import Network
from p3s.simulate.steps import WAITS, Op, Steps

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
            own = program.step[begin:end]
            if not (own >= 0).any():
                continue
            rank = int(rank_of_step[own[own >= 0][0]])
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


_WAIT_OPS = [int(op) for op in WAITS]


def thesis_sum(where: Places, of_step: Sequence[Ints], costs: Sequence[CallCost]) -> Floats:
    """Return weight x cost of the class, summed over the steps; (ranks, phases) in ns.

    ``of_step``: class of every fully expanded step, -1: costs nothing of its own.
    """
    cost = np.array([c.estimate.cost_ns for c in costs] + [0.0])
    return where.total([cost[cls] for cls in of_step])


def charged(call_of: Ints, origin: Ints, direct_of: Ints, measured: Sequence[CallCost]) -> Ints:
    """Return the class that every full step is charged with.

    A collective that was executed as such is charged once, with its own class, at the first of
    its messages on each rank; the others cost nothing then.
    """
    known = np.array([c.how != NONE for c in measured] + [False])
    direct = np.where(origin >= 0, direct_of[np.maximum(origin, 0)], -1)
    direct = np.where(known[direct], direct, -1)
    first = np.ones(len(origin), dtype=bool)
    first[1:] = origin[1:] != origin[:-1]
    return np.asarray(np.where(direct >= 0, np.where(first, direct, -1), call_of), dtype=np.int64)


def composed(
    classes: Sequence[CallClass],
    costs: Sequence[CallCost],
    call_of: Sequence[Ints],
    full: Sequence[Steps],
    node_of: Ints,
    distance: Ints | None,
    network: Network,
) -> tuple[CallCost, ...]:
    """Give completions that no pair of ranges can load a cost from the classes of their messages.

    The slowest of their messages, or the time that the link needs for all of them in one
    direction where that is longer.
    """
    filled = list(costs)
    missing = {c for c, cost in enumerate(costs) if cost.how == NONE and not classes[c].members}
    for steps, cls in zip(full, call_of, strict=True):
        wanted = np.isin(cls, list(missing)) & np.isin(steps.op, _WAIT_OPS)
        found, first = np.unique(cls[wanted], return_index=True)
        at = np.flatnonzero(wanted)[first]
        for c, step in zip(found.tolist(), at.tolist(), strict=True):
            ns = _completion(steps, step, node_of, distance, network)
            if ns is not None:
                filled[c] = CallCost(
                    Estimate(ns, ns, ns),
                    COMPOSED,
                    f"{classes[c].requests} messages of pair classes",
                )
                missing.discard(c)
    return tuple(filled)


def _completion(
    steps: Steps, step: int, node_of: Ints, distance: Ints | None, network: Network
) -> float | None:
    """Return the cost of a completion from the transfers of its messages; None: of none."""
    done = steps.done[steps.done_start[step] : steps.done_start[step + 1]]
    done = done[steps.peer[done] >= 0]
    if not len(done) or not network.paths:
        return None
    me = node_of[int(steps.ranks[np.searchsorted(steps.start, step, side="right") - 1])]
    there = node_of[steps.peer[done]]
    hops = (there != me).astype(np.int64) if distance is None else distance[me, there]
    slowest, through = 0.0, {True: 0.0, False: 0.0}
    sends = steps.to[done] >= 0
    for nbytes, d, out in zip(
        steps.bytes[done].tolist(), hops.tolist(), sends.tolist(), strict=True
    ):
        path = network.path(d)
        slowest = max(slowest, float(path.transfer.at(nbytes)))
        if path.linked:
            through[out] += nbytes
    queue = (max(through.values()) - network.burst) / network.rate
    return max(slowest, queue)


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
