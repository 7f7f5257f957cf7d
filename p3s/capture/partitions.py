"""Partitioned messages as the messages of their partitions.

A partition leaves at the MPI_Pready that says it is ready, and the wait for the request waits for
all of them. The receiver posts as many receives as the sender has partitions, which only the
sender knows: the partitions of the two may differ. Where one way (from a process to another, on a
communicator, with a tag) has requests with different numbers of partitions it is not known which
meets which; then the whole is one message that leaves at the last MPI_Pready.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from p3s.base import ops
from p3s.capture.parts import CallBook, Family, Laying, Parts
from p3s.capture.types import PROC_NULL, Call, RankTrace, RunTrace, present_ranks

#: Partitioned messages meet none but each other: their tags begin here.
FIRST_TAG = 1 << 24
_SEND, _RECV = "MPI_Psend_init", "MPI_Precv_init"


@dataclass(frozen=True)
class Way:
    """From a world rank to another, on a communicator (its members and ordinal), with a tag."""

    source: int
    target: int
    members: tuple[int, ...]
    ordinal: int
    tag: int


def _way(run: RunTrace, call: Call, rank: int) -> Way:
    comm = run.comms[call.comm]
    ends = (rank, call.peer) if call.op != _RECV else (call.peer, rank)
    return Way(*ends, comm.members, comm.ordinal, call.tag)


@dataclass
class _PartitionedSend:
    """A send that was started: the event, its call, and how many partitions are not ready yet."""

    event: int
    call: Call
    waiting: int


@dataclass
class Partitions(Family):
    """Partitioned messages: into how many parts those of a way are cut by those that send them."""

    cuts: dict[Way, set[int]] = field(default_factory=dict)

    def takes(self, op: str) -> bool:
        """Tell whether calls of a name start partitioned messages or tell that parts are ready."""
        return ops.kind_of(op) == ops.PARTITIONED

    def asks(self, run: RunTrace, call: Call) -> bool:
        """Tell whether it takes other ranks to know how a call is cut."""
        return call.op == _RECV

    def learn(self, run: RunTrace) -> None:
        """Add into how many parts the ranks of a run cut what they send."""
        for rank in present_ranks(run):
            self._learn_of(run, run.ranks[rank])

    def _learn_of(self, run: RunTrace, rt: RankTrace) -> None:
        for number in np.unique(rt.call).tolist():
            call = run.calls[number]
            if call.op == _SEND and len(call.numbers) == 2 and call.comm >= 0:
                self.cuts.setdefault(_way(run, call, rt.rank), set()).add(call.numbers[0])

    def parts(self, run: RunTrace, rt: RankTrace, book: CallBook) -> Parts:
        """Return what stands in place of a rank's partitioned messages.

        What the rank itself sends is known, too. Calls of captures before 2.4, which tell no
        partitions, stay as they are.
        """
        mine = Partitions()
        mine._learn_of(run, rt)
        laid = _Laid(book, run, rt.rank, {**self.cuts, **mine.cuts})
        call = np.asarray(rt.call)
        partitioned = np.array(
            [self.takes(c.op) and bool(c.numbers) for c in run.calls], dtype=bool
        )
        for event in np.flatnonzero(partitioned[call]).tolist():
            laid.take(event, run.calls[int(call[event])])
        return laid.parts()


class _Laid(Laying):
    """The parts of one rank, laid out event by event."""

    def __init__(
        self, book: CallBook, run: RunTrace, rank: int, cuts: Mapping[Way, set[int]]
    ) -> None:
        super().__init__(book)
        self._run, self._rank, self._known = run, rank, cuts
        self._started: dict[int, _PartitionedSend] = {}

    def take(self, event: int, call: Call) -> None:
        """Put the parts of an event behind those of the events before it."""
        if call.op == _RECV:
            cuts = self._cuts(call) if call.peer >= 0 else 1
            self._put(event, replace(_message(call, cuts), op=f"{_RECV}_recv"), cuts, event)
        elif call.op == _SEND:
            partitions, place = call.numbers
            self._started[place] = _PartitionedSend(event, call, partitions)
            self.add(event, _null(call))
        elif (started := self._started.get(call.numbers[0])) is not None:
            self._ready(event, call, started)  # else it was started before the recording

    def _put(self, event: int, call: Call, number: int, stands_for: int) -> None:
        self.stands += [(stands_for, self.add(event, call)) for _ in range(number)]

    def _cuts(self, call: Call) -> int:
        """Return how many messages the request is: 1 where that is not known."""
        counts = self._known.get(_way(self._run, call, self._rank), {call.numbers[0]})
        return next(iter(counts)) if len(counts) == 1 else 1

    def _ready(self, event: int, call: Call, started: _PartitionedSend) -> None:
        whole, ready = started.call, len(call.numbers) - 1
        started.waiting -= ready
        cuts = self._cuts(whole)
        number = ready if cuts > 1 or whole.numbers[0] == 1 else int(started.waiting == 0)
        part = replace(
            _message(whole, cuts),
            op=f"{call.op}_send",
            site=call.site,
            depth=call.depth,
            team=call.team,
        )
        self._put(event, part, number, started.event)
        if not number:
            self.add(event, _null(part))


def _message(call: Call, cuts: int) -> Call:
    """Return one of the messages that a request is cut into."""
    tag = FIRST_TAG + call.tag if call.tag >= 0 else call.tag
    return replace(call, bytes=call.bytes // cuts, count=call.count // cuts, tag=tag, numbers=())


def _null(call: Call) -> Call:
    """Return a call that has its place in the order and moves nothing."""
    op = call.op if call.op.endswith("_send") else f"{call.op}_send"
    return replace(call, op=op, peer=PROC_NULL, bytes=0, count=0, numbers=())
