"""The thesis's estimate beside the simulation's: sum of the costs of calls (Eq. 8.1)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from p3s.program.phase_cells import Places
from p3s.replay.costs.calls import COMPOSED, NONE, CallCost
from p3s.replay.plan.classes import CallClass
from p3s.replay.stats import Estimate
from p3s.simulate.network import Network
from p3s.simulate.steps import WAITS, Floats, Ints, Steps

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
