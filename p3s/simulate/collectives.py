"""Collective calls that are simulated as such: who takes part in which, and what it is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from p3s.simulate.network import Network
from p3s.simulate.steps import Floats, Ints, Op, Steps

#: Kinds; the numbers are those of simulate.c.
TOGETHER = 0  # ends when all have begun, for everybody
FROM_ROOT = 1
TO_ROOT = 2
CHAIN = 3  # one member after the other, in the order of the communicator

_KINDS = {
    "bcast": FROM_ROOT,
    "scatter": FROM_ROOT,
    "scatterv": FROM_ROOT,
    "reduce": TO_ROOT,
    "gather": TO_ROOT,
    "gatherv": TO_ROOT,
    "scan": CHAIN,
    "exscan": CHAIN,
}


def kind_of(call: str) -> int:
    """Return the kind of a collective by the name of its call (MPI_Ibcast: as MPI_Bcast)."""
    name = call.removeprefix("MPI_").lower().removesuffix("_init")
    return _KINDS.get(name, _KINDS.get(name.removeprefix("i"), TOGETHER))


@dataclass(frozen=True)
class Instances:
    """Collective calls in the order of their steps, and the instances that they belong to.

    ``call_step``, ``call_instance``: step and instance of each call. Of each instance: ``kind``,
    ``root`` (number of a call, -1: not among the ranks), ``expected`` (calls that it needs), and
    its calls ``member[member_start[i]:member_start[i + 1]]`` in the order of the communicator.
    """

    call_step: Ints
    call_instance: Ints
    kind: Ints
    root: Ints
    expected: Ints
    member_start: Ints
    member: Ints


def instances(steps: Steps) -> Instances:
    """Return the instances: the k-th call of each member on a communicator belongs to the k-th."""
    step = np.flatnonzero((steps.op == Op.COLLECTIVE) | (steps.op == Op.ICOLLECTIVE))
    if not len(step):
        none = np.zeros(0, dtype=np.int64)
        return Instances(none, none, none, none, none, np.zeros(1, dtype=np.int64), none)
    owner = np.searchsorted(steps.start, step, side="right") - 1
    comm = steps.comm[step]
    turn = _turn(owner, comm)
    pairs, instance = np.unique(np.column_stack([comm, turn]), axis=0, return_inverse=True)
    instance = np.asarray(instance, dtype=np.int64).reshape(-1)
    world = steps.ranks[owner]
    place, size = _places(steps, comm, world)
    order = np.lexsort((world, place, instance))
    number = len(pairs)
    count = np.bincount(instance, minlength=number)
    first = order[np.cumsum(count) - count]  # of each instance one call, for what all share
    names = np.array([kind_of(call) for call in steps.calls] or [0], dtype=np.int64)
    root = np.full(number, -1, dtype=np.int64)
    is_root = np.flatnonzero(steps.peer[step] == world)
    root[instance[is_root]] = is_root
    return Instances(
        call_step=step.astype(np.int64),
        call_instance=instance,
        kind=names[steps.call[step[first]]],
        root=root,
        expected=np.where(size[first] > 0, size[first], count).astype(np.int64),
        member_start=np.concatenate([[0], np.cumsum(count)]).astype(np.int64),
        member=order.astype(np.int64),
    )


def _turn(owner: Ints, comm: Ints) -> Ints:
    """Return which call of its rank on its communicator each one is, from 0."""
    order = np.lexsort((np.arange(len(owner)), comm, owner))
    changed = np.flatnonzero(np.diff(owner[order]) | np.diff(comm[order])) + 1
    begins = np.concatenate([[0], changed])
    counted = np.arange(len(order)) - np.repeat(begins, np.diff([*begins, len(order)]))
    turn = np.empty(len(order), dtype=np.int64)
    turn[order] = counted
    return turn


def _places(steps: Steps, comm: Ints, world: Ints) -> tuple[Ints, Ints]:
    """Return the place of each call's rank in its communicator, and how many members it has here.

    A communicator that is not in ``members`` has 0 members: who calls takes part.
    """
    place = np.zeros(len(comm), dtype=np.int64)
    size = np.zeros(len(comm), dtype=np.int64)
    order = np.argsort(comm, kind="stable")
    for part in np.split(order, np.flatnonzero(np.diff(comm[order])) + 1):
        members = steps.members.get(int(comm[part[0]]))
        if members is None or not len(members):
            place[part] = world[part]
            continue
        where = np.full(int(max(steps.n, members.max() + 1)), -1, dtype=np.int64)
        where[members] = np.arange(len(members))
        place[part] = where[world[part]]
        size[part] = int(np.isin(members, steps.ranks).sum())
    return place, size


#: Bytes that a rank sends or receives in all, as a share of the call's bytes, with p members:
#: those not named move the bytes of the call once.
_EVERYBODY = ("alltoall", "allgather", "gather", "scatter")


def rough_costs(steps: Steps, network: Network, node_of: Ints) -> Floats:
    """Return a rough cost of each collective step, for those that nobody has expanded.

    ceil(log2 members) empty messages one after the other, and the time of one message of all
    bytes that a rank moves: those of the call; of all-reductions twice; of gathers, scatters,
    all-gathers and all-to-alls (members - 1) times; of all-to-alls moreover not less than the
    node's link needs for all its ranks. Never more than ceil(log2 members) whole messages where
    the call moves its bytes once.
    """
    cost = np.zeros(len(steps))
    step = np.flatnonzero((steps.op == Op.COLLECTIVE) | (steps.op == Op.ICOLLECTIVE))
    if not len(step):
        return cost
    nodes = node_of[steps.ranks]
    far = max(network.paths) if len(np.unique(nodes)) > 1 else min(network.paths)
    path = network.path(far)
    size = np.array([len(steps.members.get(int(c), steps.ranks)) for c in steps.comm[step]])
    rounds = np.ceil(np.log2(np.maximum(size, 1)))
    nbytes = np.maximum(steps.bytes[step], 0).astype(np.float64)
    names = [call.lower() for call in steps.calls] or [""]
    many = np.array([any(word in name for word in _EVERYBODY) for name in names])
    twice = np.array(["allreduce" in name for name in names])
    everyone = np.array(["alltoall" in name for name in names])
    call = steps.call[step]
    moved = np.where(many[call], size - 1.0, np.where(twice[call], 2.0, 1.0)) * nbytes
    empty = path.transfer.at(0.0)
    found = rounds * empty + path.transfer.at(moved) - empty
    whole = np.where(many[call], np.inf, rounds * path.transfer.at(nbytes))
    found = np.minimum(found, whole)
    if path.linked:
        together = int(np.bincount(np.unique(nodes, return_inverse=True)[1]).max())
        found = np.where(everyone[call], np.maximum(found, together * moved / network.rate), found)
    cost[step] = np.where(size > 1, found, 0.0)
    return cost
