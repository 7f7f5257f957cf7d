"""Steps: what ranks do, call by call, in program order; collective calls among them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any

import numpy as np

from p3s.base.arrays import Bools, Floats, Ints, place_in_run, starts
from p3s.simulate.network import Network


class Op(IntEnum):
    """What a step does; the numbers are part of no file."""

    SEND = 1
    SSEND = 2
    BSEND = 3  # returns at once, whatever the receiver does
    ISEND = 4
    ISSEND = 5
    START_SEND = 6  # a persistent send is started
    START_SSEND = 7
    RECV = 8
    IRECV = 9
    START_RECV = 10
    SENDRECV = 11  # the receive half is in peer2, tag2, bytes2
    WAIT = 12  # completes all requests listed in `done` (MPI_Wait, MPI_Waitall, successful tests)
    WAITANY = 13  # completes one of those listed
    WAITSOME = 14  # completes `number` of those listed
    COLLECTIVE = 15
    ICOLLECTIVE = 16  # leaves a request behind
    REST = 17  # computation at the end of a section; no call


#: Steps that leave a request behind, completed by a later WAIT, WAITANY or WAITSOME.
REQUESTS = frozenset(
    {Op.ISEND, Op.ISSEND, Op.START_SEND, Op.START_SSEND, Op.IRECV, Op.START_RECV, Op.ICOLLECTIVE}
)
#: Steps that send, and steps that receive; SENDRECV does both.
SENDS = frozenset(
    {Op.SEND, Op.SSEND, Op.BSEND, Op.ISEND, Op.ISSEND, Op.START_SEND, Op.START_SSEND, Op.SENDRECV}
)
RECEIVES = frozenset({Op.RECV, Op.IRECV, Op.START_RECV, Op.SENDRECV})
WAITS = frozenset({Op.WAIT, Op.WAITANY, Op.WAITSOME})


#: Columns of Steps with one entry per step that are not numbers of other steps.
PLAIN = (
    "op",
    "peer",
    "tag",
    "comm",
    "bytes",
    "peer2",
    "tag2",
    "bytes2",
    "call",
    "work_ns",
    "number",
    "row",
    "weight",
    "turn",
)


@dataclass(frozen=True)
class Steps:
    """Steps of some ranks, rank after rank; every column but ``start`` has one entry per step.

    Columns of integers may have fewer than 64 bits, and lie in memory once where all are equal.
    ``ranks`` are world ranks, ascending; those of ``ranks[i]`` are ``start[i]:start[i + 1]``.
    ``peer``: destination of a send, source of a receive, root of a collective, as a world rank (-1:
    none). ``bytes``: of the message; of a collective as in a scaled trace (docs/formats.md).
    ``peer2``, ``tag2``, ``bytes2``: the receive half of a SENDRECV, else -1, -1, 0. ``comm`` is a
    key of ``members`` (world ranks in the order of the communicator). ``call`` is an index into
    ``calls``, the names of MPI calls. ``work_ns``: computation before the step. ``number``: how
    many requests a WAITANY or WAITSOME completes; of a WAIT all that are listed. ``row``: the row
    of the scaled trace it comes from, -1 if none. ``weight``: how many calls of the whole run the
    step stands for. ``turn``: which iteration of the section's loop it is in.

    The requests of step i are those left behind by steps ``done[done_start[i]:done_start[i+1]]``
    (numbers of steps of the same rank, before i). ``to``: the step that receives what step i
    sends, ``source``: the step that sends what step i receives, -1 where there is none (also when
    the other rank is not among ``ranks``). Every request is completed by one step at most; those
    that no step completes are complete at the end of the section.
    """

    n: int
    ranks: Ints
    start: Ints
    op: Ints
    peer: Ints
    tag: Ints
    comm: Ints
    bytes: Ints
    peer2: Ints
    tag2: Ints
    bytes2: Ints
    call: Ints
    work_ns: Floats
    number: Ints
    row: Ints
    weight: Floats
    turn: Ints
    done_start: Ints
    done: Ints
    to: Ints
    source: Ints
    calls: tuple[str, ...]
    members: dict[int, Ints]

    def __len__(self) -> int:
        return len(self.op)

    @property
    def rank(self) -> Ints:
        """World rank of every step."""
        return np.repeat(self.ranks, np.diff(self.start))

    def of(self, rank: int) -> slice:
        """Return where the steps of a world rank are (empty: it is not among ``ranks``)."""
        i = int(np.searchsorted(self.ranks, rank))
        if i == len(self.ranks) or self.ranks[i] != rank:
            return slice(0, 0)
        return slice(int(self.start[i]), int(self.start[i + 1]))

    def is_op(self, *ops: Op) -> Bools:
        """Return which steps do one of these."""
        return np.isin(self.op, [int(op) for op in ops])


def narrow(size: int) -> type[np.signedinteger]:
    """Return the type of integers of numbers below ``size``: they fill most of the memory."""
    return np.int32 if size < 1 << 31 else np.int64


def narrow_column(values: Ints) -> np.ndarray:
    """Return a column with as few bits as its values need, 32 at least."""
    fits = not values.size or (
        int(values.min()) >= -(1 << 31) and narrow(int(values.max())) == np.int32
    )
    return values.astype(np.int32, copy=False) if fits else values


def constant(value: int, size: int) -> Ints:
    """Return a column of equal entries, which lie in memory once."""
    return np.broadcast_to(np.int64(value), (size,))


def taken(column: np.ndarray, selection: np.ndarray) -> np.ndarray:
    """Return some entries of a column (by number, or a mask); equal ones still lie there once."""
    if column.strides == (0,) and column.size:
        number = int(np.count_nonzero(selection)) if selection.dtype == bool else len(selection)
        return np.broadcast_to(column[0], (number,))
    return np.asarray(column[selection])


def select_steps(steps: Steps, selection: Bools | Ints) -> Steps:
    """Return some steps (a mask, or numbers in another order of each rank) of the same ranks.

    Links to others are cut, requests of others are not waited for.
    """
    number = np.flatnonzero(selection) if selection.dtype == bool else selection
    size = len(steps)
    new = np.full(size, -1, dtype=narrow(size))
    new[number] = np.arange(len(number))
    columns: dict[str, Any] = {name: taken(getattr(steps, name), number) for name in PLAIN}
    for name in ("to", "source"):
        link = getattr(steps, name)[number]
        columns[name] = np.where(link >= 0, new[np.maximum(link, 0)], new.dtype.type(-1))
    counts = np.diff(steps.done_start)[number]
    waits = np.repeat(np.arange(len(number)), counts)
    requests = new[
        steps.done[np.repeat(steps.done_start[:-1][number], counts) + place_in_run(waits)]
    ]
    valid = requests >= 0
    before = starts(new >= 0)
    return replace(
        steps,
        start=before[steps.start],
        done=requests[valid],
        done_start=starts(np.bincount(waits[valid], minlength=len(number))),
        **columns,
    )


def of_ranks(steps: Steps, ranks: Ints) -> Steps:
    """Return the steps of some ranks; those that lose their partner have none (-1)."""
    keep = np.isin(steps.ranks, ranks)
    lengths = np.diff(steps.start)
    selected = select_steps(steps, np.repeat(keep, lengths))
    return replace(selected, ranks=steps.ranks[keep], start=starts(lengths[keep]))


@dataclass(frozen=True)
class LeftOut:
    """Calls of a section that are not steps: MPI call, why, how many of the run, their rows."""

    call: str
    why: str
    events: float
    rows: Ints


@dataclass(frozen=True)
class Section:
    """A stretch of the program that is executed as one: a few iterations of a loop, or what is
    outside.

    ``name`` is for people; ``phases``: numbers of the phases its steps belong to. ``turns``
    iterations are in the steps, from iteration ``first_turn`` on, of ``run_turns`` iterations that
    one entry of the loop has; 1, 0, 1 outside loops. ``entries``: how often the stretch is entered
    in the run. ``notes``: what was changed so that it can be executed, for people; ``moved``: how
    many sends were made earlier for it."""

    name: str
    phases: tuple[int, ...]
    steps: Steps
    turns: int
    first_turn: int
    run_turns: int
    entries: float
    left_out: tuple[LeftOut, ...]
    notes: tuple[str, ...] = ()
    moved: int = 0


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
    instance, pairs = numbered_calls(owner, comm)
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
        member_start=starts(count),
        member=order.astype(np.int64),
    )


def numbered_calls(owner: Ints, comm: Ints) -> tuple[Ints, Ints]:
    """Return the instance of each collective call, and (communicator, k) of each instance.

    The k-th call of every rank on a communicator belongs to its k-th instance. ``owner``: rank of
    each call; those of a rank are in program order. Instances ascend.
    """
    order = np.lexsort((np.arange(len(owner)), comm, owner))
    turn = np.empty(len(order), dtype=np.int64)
    turn[order] = place_in_run(owner[order], comm[order])
    pairs, instance = np.unique(np.column_stack([comm, turn]), axis=0, return_inverse=True)
    return np.asarray(instance, dtype=np.int64).reshape(-1), pairs


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
    many_to = np.array([any(word in name for word in _EVERYBODY) for name in names])
    twice = np.array(["allreduce" in name for name in names])
    everyone = np.array(["alltoall" in name for name in names])
    call = steps.call[step]
    moved = np.where(many_to[call], size - 1.0, np.where(twice[call], 2.0, 1.0)) * nbytes
    empty = path.transfer.at(0.0)
    ns = rounds * empty + path.transfer.at(moved) - empty
    whole = np.where(many_to[call], np.inf, rounds * path.transfer.at(nbytes))
    ns = np.minimum(ns, whole)
    if path.linked:
        together = int(np.bincount(np.unique(nodes, return_inverse=True)[1]).max())
        ns = np.where(everyone[call], np.maximum(ns, together * moved / network.rate), ns)
    cost[step] = np.where(size > 1, ns, 0.0)
    return cost
