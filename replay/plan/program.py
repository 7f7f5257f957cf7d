"""Programs: what each process of a replay executes, as records that the inner loop reads."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from p3s.base.arrays import Bools, Ints


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

#: Tags of the messages that start the noise and of those that are noise, and the first free one.
TAG_GO = 1
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


def among(codes: Ints, *wanted: Code) -> Bools:
    """Return which of some codes are one of these."""
    table = np.zeros(max(Code) + 1, dtype=bool)
    table[list(wanted)] = True
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
    classes: tuple[int, ...] = field(default=())
    own: tuple[tuple[int, str], ...] = field(default=())

    def of(self, process: int) -> npt.NDArray[np.void]:
        """Return the events of one process."""
        return self.events[self.start[process] : self.start[process + 1]]
