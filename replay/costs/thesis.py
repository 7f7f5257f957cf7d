"""What calls cost as the thesis measures them: time around the call, class by class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from p3s.base.arrays import Floats, Ints
from p3s.program.phase_cells import Places
from p3s.replay.engine.results import NOTHING, Estimate, ProgramResult, median_interval
from p3s.replay.plan.classes import CallClass
from p3s.replay.plan.program import Program
from p3s.simulate.network import Network
from p3s.simulate.steps import SENDS, WAITS, Op, Steps

MEASURED = "measured"
COMPOSED = "composed"
NONE = "none"

_WAITS = [int(op) for op in WAITS]
_CALLS = [int(op) for op in Op if op not in (Op.COLLECTIVE, Op.ICOLLECTIVE, Op.REST)]


@dataclass(frozen=True)
class CallCost:
    """Cost of a call class, and how it was found."""

    estimate: Estimate
    how: str


def call_costs(
    classes: Sequence[CallClass], programs: Sequence[Program], results: Mapping[int, ProgramResult]
) -> tuple[CallCost, ...]:
    """Return the cost of every call class: mean of a pass, median over passes and programs.

    Sampled events of trace programs carry their call class; all their partners are loaded. Only
    programs with immediate black holes are used. Classes without a sample: see `composed`.
    """
    whole: dict[int, list[Floats]] = {}
    number: dict[int, int] = {}
    for index, result in sorted(results.items()):
        program = programs[index]
        if program.what != "trace" or program.timed or not result.passes or not len(result.event):
            continue
        cls = program.events["sample"][result.event]
        for c in np.unique(cls[(cls >= 0) & (cls < len(classes))]).tolist():
            samples = result.event_ns[:, cls == c]
            whole.setdefault(c, []).append(samples.mean(axis=1))
            number[c] = number.get(c, 0) + samples.size
    return tuple(
        CallCost(median_interval(np.concatenate(whole[c]), number[c]), MEASURED)
        if c in whole
        else CallCost(NOTHING, NONE)
        for c in range(len(classes))
    )


def compose_costs(
    costs: Sequence[CallCost],
    call_of: Sequence[Ints],
    full: Sequence[Steps],
    node_of: Ints,
    distance: Ints | None,
    network: Network,
) -> tuple[CallCost, ...]:
    """Give calls that no pair of ranges has shown a cost from the classes of their messages.

    ``call_of``: class of every step of ``full``, per section. The slowest of the call's messages,
    or the time that the link needs for all of them in one direction where that is longer.
    """
    filled = list(costs)
    missing = {c for c, cost in enumerate(costs) if cost.how == NONE}
    for steps, cls in zip(full, call_of, strict=True):
        steps_to_fill = np.flatnonzero(np.isin(cls, list(missing)) & np.isin(steps.op, _CALLS))
        classes, first = np.unique(cls[steps_to_fill], return_index=True)
        for c, step in zip(classes.tolist(), steps_to_fill[first].tolist(), strict=True):
            ns = _from_messages(steps, step, node_of, distance, network)
            if ns is not None:
                filled[c] = CallCost(Estimate(ns, ns, ns), COMPOSED)
                missing.discard(c)
    return tuple(filled)


def _from_messages(
    steps: Steps, step: int, node_of: Ints, distance: Ints | None, network: Network
) -> float | None:
    """Return the cost of a call from the transfers of its messages, in ns; None: it has none."""
    requests = np.array([step])
    if steps.op[step] in _WAITS:
        requests = steps.done[steps.done_start[step] : steps.done_start[step + 1]]
    requests = requests[steps.peer[requests] >= 0]
    if not len(requests) or not network.paths:
        return None
    me = node_of[int(steps.ranks[np.searchsorted(steps.start, step, side="right") - 1])]
    partner_nodes = node_of[steps.peer[requests]]
    hops = (
        (partner_nodes != me).astype(np.int64) if distance is None else distance[me, partner_nodes]
    )
    slowest, through = 0.0, {True: 0.0, False: 0.0}
    sends = np.isin(steps.op[requests], [int(op) for op in SENDS])
    for nbytes, d, out in zip(
        steps.bytes[requests].tolist(), hops.tolist(), sends.tolist(), strict=True
    ):
        path = network.path(d)
        slowest = max(slowest, float(path.transfer.at(nbytes)))
        if path.linked:
            through[out] += nbytes
    queue = (max(through.values()) - network.burst) / network.rate
    return max(slowest, queue)


def thesis_sum(where: Places, of_step: Sequence[Ints], costs: Sequence[CallCost]) -> Floats:
    """Return weight x cost of the class, summed over the steps; (ranks, phases) in ns.

    ``of_step``: class of every fully expanded step, -1: costs nothing of its own.
    """
    cost = np.array([c.estimate.cost_ns for c in costs] + [0.0])
    return where.total([cost[cls] for cls in of_step])


def charge_steps(
    call_of: Ints, origin: Ints, direct_of: Ints, measured: Sequence[CallCost]
) -> Ints:
    """Return the class that every full step is charged with.

    A collective that was executed as such is charged once, with its own class, at the first of
    its messages on each rank; the others cost nothing then.
    """
    is_measured = np.array([c.how != NONE for c in measured] + [False])
    direct = np.where(origin >= 0, direct_of[np.maximum(origin, 0)], -1)
    direct = np.where(is_measured[direct], direct, -1)
    first = np.ones(len(origin), dtype=bool)
    first[1:] = origin[1:] != origin[:-1]
    return np.asarray(np.where(direct >= 0, np.where(first, direct, -1), call_of), dtype=np.int64)
