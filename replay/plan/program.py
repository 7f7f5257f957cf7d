"""Processes of a replay on their nodes, and programs: what each process executes, as records that
the inner loop reads."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field, fields
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from p3s.base.arrays import Bools, Ints

MEASURED = "measured"
BLACK_HOLE = "black hole"
NOISE = "noise"

#: Nodes 0 and 1 hold the measured ranges; the black holes of side 0 live on node 3, those of
#: side 1 on node 2, so that the traffic of the two ranges does not share a black-hole node.
BLACK_HOLE_NODE = (3, 2)
NOISE_NODE = (2, 3)
NODES = 4


@dataclass(frozen=True)
class Process:
    """One process of the replay: its role, node (0 to 3), and which measured rank it is or serves.

    ``side``: 0 or 1, the measured node it belongs to; ``slot``: place of the rank in its range.
    """

    role: str
    node: int
    side: int
    slot: int


@dataclass(frozen=True)
class World:
    """All processes of a replay, by rank in its MPI_COMM_WORLD; nodes come one after the other."""

    processes: tuple[Process, ...]

    @property
    def size(self) -> int:
        """Number of processes."""
        return len(self.processes)

    def rank_of(self, role: str) -> dict[tuple[int, int], int]:
        """Return (side, slot) -> rank for the processes of one role."""
        return {(p.side, p.slot): r for r, p in enumerate(self.processes) if p.role == role}

    def on_node(self, node: int) -> int:
        """Return how many processes live on a node."""
        return sum(process.node == node for process in self.processes)

    def roles_on(self, node: int) -> list[str]:
        """Return the roles of the processes on a node, each once."""
        return list(dict.fromkeys(p.role for p in self.processes if p.node == node))


def why_not_representative(machines: Sequence[Hashable]) -> str | None:
    """Return why nodes on these machines are no cluster; None: each node is a machine."""
    if len(set(machines)) == len(machines):
        return None
    if len(set(machines)) == 1:
        return "all nodes are one machine"
    return "some of the four nodes are the same machine"


def lay_out(slots: tuple[int, int], black_holes: Iterable[tuple[int, int]], noise: bool) -> World:
    """Make a world with ``slots`` measured processes per side and these (side, slot) black holes.

    Ranks are given node by node, so that a launcher that fills nodes in order puts them right.
    """
    processes = [
        Process(MEASURED, side, side, slot) for side in (0, 1) for slot in range(slots[side])
    ]
    served = sorted(set(black_holes))
    processes += [Process(BLACK_HOLE, BLACK_HOLE_NODE[side], side, slot) for side, slot in served]
    if noise:
        processes += [Process(NOISE, NOISE_NODE[side], side, 0) for side in (0, 1)]
    return World(tuple(sorted(processes, key=lambda p: (p.node, p.role, p.side, p.slot))))


class Code(IntEnum):
    """Operations of the inner loop; the numbers are those of replay/engine/inner.c."""

    SEND = 1
    SSEND = 2
    ISEND = 3  # leaves a request in `slot`, as do the next three
    ISSEND = 4
    IRECV = 5
    COLLECTIVE_START = 7  # nonblocking collective, as COLLECTIVE
    RECV = 8
    SENDRECV = 9  # followed by SECOND
    SECOND = 10  # the receive half of the SENDRECV before it; no event of its own
    WAIT = 11  # for all slots lists[first:first + number]; one: MPI_Wait, else MPI_Waitall
    WAITANY = 12  # for one of them (MPI_Waitany)
    WAITSOME = 13  # for `arg` of them (MPI_Waitsome until they are)
    COLLECTIVE = 14  # call number `arg` (Collective) on communicator `comm`, root in `peer`
    BUFFERED = 15  # an Isend that nobody waits for before the end of the pass
    ASK = 16  # control message to the black hole; `arg` the call, `bytes` and `tag` asked for
    ANSWER = 17  # black hole: take a control message, send what it asks for
    NOTHING = 18  # no call; computation only
    END = 19  # wait for everything that is outstanding
    LINK_SEND = 20  # send `number` messages of `bytes` back to back (measures the link)
    LINK_RECV = 21  # receive them, noting when each has arrived


class Collective(IntEnum):
    """Collectives that are executed as such; the numbers are those of inner.c."""

    BARRIER = 1
    BCAST = 2
    REDUCE = 3
    ALLREDUCE = 4
    GATHER = 5
    SCATTER = 6
    ALLGATHER = 7
    ALLTOALL = 8
    REDUCE_SCATTER_BLOCK = 9
    SCAN = 10
    EXSCAN = 11


#: Events that send messages of their own, that receive some, and that leave a request behind, in a
#: slot of its own.
SENDING = (
    Code.SEND,
    Code.SSEND,
    Code.ISEND,
    Code.ISSEND,
    Code.BUFFERED,
    Code.SENDRECV,
    Code.LINK_SEND,
)
RECEIVING = (Code.RECV, Code.IRECV, Code.SECOND)
SLOT_CODES = (
    Code.ISEND,
    Code.ISSEND,
    Code.IRECV,
    Code.COLLECTIVE_START,
    Code.BUFFERED,
    Code.ANSWER,
)
WAITING = (Code.WAIT, Code.WAITANY, Code.WAITSOME)

#: Tag of the messages that are noise, and the first free one.
TAG_NOISE = 2
FIRST_TAG = 16

#: Layout of struct event in inner.c: 64-bit integers. ``at_ns``: do it this long after the start
#: of the pass at the earliest (-1: at once). ``sample``: >= 0 where begin and end are of interest.
FIELDS = (
    "code",
    "peer",
    "tag",
    "bytes",
    "offset",
    "work_ns",
    "arg",
    "comm",
    "slot",
    "first",
    "number",
    "at_ns",
    "sample",
)
EVENT = np.dtype([(name, "<i8") for name in FIELDS])


def among(codes: Ints, *selected: Code) -> Bools:
    """Return which of some codes are one of these."""
    table = np.zeros(max(Code) + 1, dtype=bool)
    table[list(selected)] = True
    return table[codes]


@dataclass(frozen=True)
class Pairing:
    """Messages between two measured ranks whose transfer is measured; one entry per message.

    ``cls``: number of the class. ``sender``, ``receiver``: replay ranks. ``sent``: event that
    sends; ``posted``: event that posts the receive; ``received``: event that completes it (the
    same for blocking calls); ``sent_end``: event that completes the send. All as positions in the
    lists of their processes. ``alone``: the completion waits for this message only.
    """

    cls: Ints
    sender: Ints
    receiver: Ints
    sent: Ints
    sent_end: Ints
    posted: Ints
    received: Ints
    alone: Ints


#: Columns of a pairing, in its order.
PAIRING = tuple(each.name for each in fields(Pairing))


@dataclass(frozen=True)
class Program:
    """What every process does in one pass; events as EVENT records, process after process.

    Events of process p: ``events[start[p]:start[p + 1]]``; their request lists:
    ``lists[list_start[p]:list_start[p + 1]]`` (an event's ``first`` counts from there).
    ``slots``: request slots of each process.
    ``step``: number of the section's step that an event comes from, -1 if none.
    ``comms``: replay ranks of each communicator that collectives need, in its order.
    ``timed``: black holes act by the schedule ``at_ns``. ``what``: one of "trace", "timed",
    "pair", "link"; ``name`` for people. ``own``: of a program that measures what calls
    cost by themselves, pairs of (position in ``events``, kind): "send" (of an eager message),
    "late" (a blocking send whose receiver comes late), "receive" (of a message that is there
    already), "post" (of a request) or "wait" (for a complete request).
    """

    what: str
    name: str
    section: int
    events: npt.NDArray[np.void]
    start: Ints
    step: Ints
    lists: Ints
    list_start: Ints
    slots: Ints
    comms: tuple[tuple[int, ...], ...]
    pairing: Pairing | None
    timed: bool
    noise: bool
    own: tuple[tuple[int, str], ...] = field(default=())

    def of(self, process: int) -> npt.NDArray[np.void]:
        """Return the events of one process."""
        return self.events[self.start[process] : self.start[process + 1]]
