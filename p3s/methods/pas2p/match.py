"""Message matching: each send with its receive, collectives with each other.

Rules: messages are matched per (source, destination, communicator, tag), first in, first out, in
the order in which receives were *posted* (MPI 4.1, 3.5 and 3.7.4); wildcards by what they turned
out to be; started persistent requests like nonblocking calls; the halves of MPI_Sendrecv are a
send and a receive; what MPI_Mprobe took counts from the probe. Cancelled requests and messages
with MPI_PROC_NULL have no partner. The k-th collective on a communicator is the k-th on all its
members; calls that make or free a communicator count among them.

Nothing here raises for what a capture lacks: what has no partner is counted by reason.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from p3s.methods.pas2p.channels import (
    Joined,
    Queue,
    Ranks,
    Reach,
    Rows,
    Spans,
    join,
    number,
    queue,
    ranks_of,
    runs,
)
from p3s.signature.calltable import (
    COLLECTIVE,
    LOCAL,
    POSTED_COLLECTIVE,
    POSTED_RECV,
    RECV,
    SEND,
    CallTable,
    call_table,
    posting_order,
    present_ranks,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from p3s.capture import RankTrace, RunTrace

    Ints = NDArray[np.int64]
    Index = NDArray[np.int32]


@dataclass(frozen=True)
class Partners:
    """Whom each event of a rank belongs to, as columns of the length of its events.

    ``rank`` and ``index`` (int32): the event at the other end of the message, -1 without one.
    ``instance`` (int64): the collective it is part of, numbered over the whole run, -1 if none.
    """

    rank: Index
    index: Index
    instance: Ints


@dataclass(frozen=True)
class _Flat:
    """Events of all ranks in the order of their queues; rank r has offset[r] to offset[r + 1]."""

    offset: Ints
    index: Index

    def of(self, rank: int) -> slice:
        return slice(int(self.offset[rank]), int(self.offset[rank + 1]))


@dataclass(frozen=True)
class Matching:
    """The messages and collectives of a run, matched.

    ``events``: events of each rank; ``messages``: matched pairs; ``instances``: collectives, with
    ``arrivals`` of each and the ``instance_comm`` it was called on; ``unmatched``: reason ->
    events. Holds 4 bytes per send, receive and collective; a rank's columns are made when asked
    for.
    """

    np: int
    events: Ints
    messages: int
    instances: int
    instance_comm: Index
    arrivals: Index
    unmatched: dict[str, int]
    _sends: _Flat = field(repr=False)
    _receives: _Flat = field(repr=False)
    _collectives: _Flat = field(repr=False)
    _numbers: Ints = field(repr=False)
    _spans: Spans = field(repr=False)
    _by_src: Spans = field(repr=False)

    def of(self, rank: int) -> Partners:
        """Return the partners of one rank's events; raises IndexError for no rank of the run."""
        if not 0 <= rank < self.np:
            raise IndexError(rank)
        events = int(self.events[rank])
        peer, index = np.full((2, events), -1, dtype=np.int32)
        instance = np.full(events, -1, dtype=np.int64)
        for spans, mine, theirs, other in (
            (self._to(rank), self._receives, self._sends, "sent"),
            (self._from(rank), self._sends, self._receives, "received"),
        ):
            receiving = other == "sent"
            here = mine.index[runs(spans.received if receiving else spans.sent, spans.length)]
            there = runs(spans.sent if receiving else spans.received, spans.length)
            peer[here] = np.repeat(spans.src if receiving else spans.dst, spans.length)
            index[here] = theirs.index[there]
        own = self._collectives.of(rank)
        instance[self._collectives.index[own]] = self._numbers[own]
        return Partners(peer, index, instance)

    def received(self, rank: int) -> tuple[Index, Index, Ints]:
        """Return (receive, source rank, place of its send) of each message to a rank.

        The place counts the sends of all ranks as :meth:`sends` lists them.
        """
        spans = self._to(rank)
        here = self._receives.index[runs(spans.received, spans.length)]
        return here, np.repeat(spans.src, spans.length), runs(spans.sent, spans.length)

    def sends(self, rank: int) -> tuple[int, Index]:
        """Return (place of the first send of a rank, its sends by channel)."""
        own = self._sends.of(rank)
        return own.start, self._sends.index[own]

    @property
    def all_sends(self) -> int:
        """How many sends of all ranks :meth:`sends` lists."""
        return len(self._sends.index)

    def collectives(self, rank: int) -> tuple[Index, Ints]:
        """Return (event, instance) of each collective of a rank that has a number."""
        own = self._collectives.of(rank)
        known = self._numbers[own] >= 0
        return self._collectives.index[own][known], self._numbers[own][known]

    def _to(self, rank: int) -> Spans:
        first, last = np.searchsorted(self._spans.dst, [rank, rank + 1])
        return self._spans.pick(slice(first, last))

    def _from(self, rank: int) -> Spans:
        first, last = np.searchsorted(self._by_src.src, [rank, rank + 1])
        return self._by_src.pick(slice(first, last))


#: Keys of Matching.unmatched.
NOT_RECEIVED, NOT_SENT, RECEIVER_CUT, SENDER_CUT, LOST, NOBODY, CANCELLED = (
    "not received",
    "not sent",
    "receiver incomplete",
    "sender incomplete",
    "events lost",
    "no such rank",
    "cancelled",
)
COLLECTIVE_LOST, COLLECTIVE_PART, COLLECTIVE_MIXED = (
    "collective: events lost",
    "collective: members missing",
    "collective: calls differ",
)


@dataclass
class _Gathered:
    """The queues of all ranks, as they are read."""

    reach: dict[int, Reach] = field(default_factory=dict)
    sends: dict[int, Queue] = field(default_factory=dict)
    receives: dict[int, Queue] = field(default_factory=dict)
    collectives: dict[int, Queue] = field(default_factory=dict)
    ops: dict[int, NDArray[np.int16]] = field(default_factory=dict)
    vague: set[int] = field(default_factory=set)  # with receives of nobody knows what
    unmatched: Counter[str] = field(default_factory=Counter)


def match(run: RunTrace) -> Matching:
    """Match the messages and collectives of a run, reading one rank's columns at a time.

    Keeps 4 bytes per message end and collective call (8 more of a collective for its number)
    and about 100 per channel; a rank being read takes some 30 bytes per event besides its
    columns. Unmatched events are counted by reason.
    """
    table = call_table(run.calls, run.np)
    found = _Gathered()
    for rank in present_ranks(run):
        _take(found, rank, run.ranks[rank], table)
    events = np.zeros(run.np, dtype=np.int64)
    for rank, reach in found.reach.items():
        events[rank] = reach.events
    sends, sent = _rows(found.sends, table, run.np, sending=True)
    receives, received = _rows(found.receives, table, run.np, sending=False)
    ranks = ranks_of(found.reach, found.vague, run.np)
    joined = join(sent, received, ranks)
    _count_messages(found, sent, received, joined, ranks)
    spans = joined.spans.pick(np.argsort(joined.spans.dst, kind="stable"))
    collectives, numbers, comm, arrivals = _collectives(found, run)
    return Matching(
        run.np,
        events,
        int(spans.length.sum()),
        len(comm),
        comm,
        arrivals,
        dict(+found.unmatched),
        sends,
        receives,
        collectives,
        numbers,
        spans,
        spans.pick(np.argsort(spans.src, kind="stable")),
    )


def reach_of(trace: RankTrace, table: CallTable) -> Reach:
    """Return how far the numbers of a rank's events can be trusted."""
    events = len(trace.call)
    ends = trace.counted_events == 0 and bool(
        trace.complete or (events and table.finalize[trace.call[-1]])
    )
    if trace.paused_calls:
        even = ends and (trace.ordinal is None or len(trace.ordinal) == 0)
        return Reach(events, 0, events, ends, even)
    if trace.ordinal is None or not events:
        return Reach(events, events, 0, ends)
    breaks = np.flatnonzero(np.diff(trace.ordinal) > 1)
    if trace.ordinal[0] > 0:
        first = 0
    else:
        first = int(breaks[0]) + 1 if len(breaks) else events
    return Reach(events, first, int(breaks[-1]) + 1 if len(breaks) else 0, ends)


def _take(found: _Gathered, rank: int, trace: RankTrace, table: CallTable) -> None:
    """Sort one rank's events into their queues."""
    call = trace.call
    reach = found.reach[rank] = reach_of(trace, table)
    role = table.role[call]
    if trace.cancelled.any():
        cancelled = trace.done[trace.cancelled, 1]
        found.unmatched[CANCELLED] += len(cancelled)
        role[cancelled] = LOCAL
    order = posting_order(trace, table)
    way = table.way[call]
    received = (role == RECV) | (role == POSTED_RECV)
    taken = reach
    if table.unknown.any():
        unknown = table.unknown[call] & (role != LOCAL)
        found.unmatched[NOBODY] += int(unknown.sum())
        vague = np.flatnonzero(unknown & received)
        if len(vague):  # they may have taken any message: as if they were lost
            taken = replace(
                reach,
                first_loss=min(reach.first_loss, int(vague[0])),
                after_loss=max(reach.after_loss, int(vague[-1]) + 1),
            )
            found.vague.add(rank)
    for chosen, into, trusted in (
        (role == SEND, found.sends, reach),
        (received, found.receives, taken),
    ):
        at = np.flatnonzero(chosen & (way >= 0))
        into[rank] = queue(at, way[at], order, trusted)
    at = np.flatnonzero((role == COLLECTIVE) | (role == POSTED_COLLECTIVE))
    comm = table.comm[call[at]]
    at, comm = at[comm >= 0], comm[comm >= 0]
    found.collectives[rank] = own = queue(at, comm, order, reach)
    found.ops[rank] = table.op[call[own.index]].astype(np.int16)


def _flat(queues: dict[int, Queue], size: int) -> _Flat:
    offset = np.zeros(size + 1, dtype=np.int64)
    for rank, each in queues.items():
        offset[rank + 1] = len(each.index)
    index = [queues[rank].index for rank in sorted(queues)]
    return _Flat(np.cumsum(offset), np.concatenate(index) if index else np.empty(0, dtype=np.int32))


def _rows(
    queues: dict[int, Queue], table: CallTable, size: int, *, sending: bool
) -> tuple[_Flat, Rows]:
    """Return (the events of all ranks, one row per rank and channel)."""
    flat = _flat(queues, size)
    ranks = sorted(queues)
    none = np.empty(0, dtype=np.int64)
    own = np.repeat(
        np.array(ranks, dtype=np.int64),
        np.array([len(queues[rank].key) for rank in ranks], dtype=np.int64),
    )
    way, count, front, back = (
        np.concatenate([none, *(getattr(queues[rank], name) for rank in ranks)])
        for name in ("key", "count", "front", "back")
    )
    peer, label = table.way_peer[way], table.way_label[way]
    src, dst = (own, peer) if sending else (peer, own)
    # Ranks follow each other, and so do the channels of each: a running sum is the place.
    return flat, Rows(src, dst, label, count, front, back, np.cumsum(count) - count)


def _count_messages(
    found: _Gathered, sent: Rows, received: Rows, joined: Joined, ranks: Ranks
) -> None:
    whole = ranks.whole
    for rows, matched, missing, cut, other in (
        (sent, joined.sent, NOT_RECEIVED, RECEIVER_CUT, sent.dst),
        (received, joined.received, NOT_SENT, SENDER_CUT, received.src),
    ):
        left = rows.count - matched
        lost = (ranks.lost_sends[rows.src] | ranks.lost_receives[rows.dst]) & ranks.there[other]
        found.unmatched[LOST] += int(left[lost].sum())
        found.unmatched[cut] += int(left[~lost & ~whole[other]].sum())
        found.unmatched[missing] += int(left[~lost & whole[other]].sum())


def _collectives(found: _Gathered, run: RunTrace) -> tuple[_Flat, Ints, Index, Index]:
    """Number the collectives: (events, their instances, communicator and arrivals of each)."""
    expected, most = _expected(found, len(run.comms))
    total = np.maximum(expected, most)
    base = np.cumsum(total) - total
    instances = int(total.sum())
    arrivals = np.zeros(instances, dtype=np.int32)
    called = np.full(instances, -1, dtype=np.int16)
    mixed = np.zeros(instances, dtype=bool)
    flat = _flat(found.collectives, run.np)
    numbers = np.full(len(flat.index), -1, dtype=np.int64)
    for rank in sorted(found.collectives):
        own = found.collectives[rank]
        turn = number(own, expected[own.key], found.reach[rank])
        instance = np.where(turn < 0, -1, np.repeat(base[own.key], own.count) + turn)
        found.unmatched[COLLECTIVE_LOST] += int((instance < 0).sum())
        at, op = instance[instance >= 0], found.ops[rank][instance >= 0]
        first = called[at] < 0
        called[at[first]] = op[first]
        mixed[at[called[at] != op]] = True
        arrivals[at] += 1
        numbers[flat.of(rank)] = instance
    if mixed.any():
        wrong = (numbers >= 0) & mixed[numbers]
        found.unmatched[COLLECTIVE_MIXED] += int(wrong.sum())
        numbers[wrong] = -1
        arrivals[mixed] = 0
    comm = np.repeat(np.arange(len(total), dtype=np.int32), total)
    members = np.zeros(len(total), dtype=np.int64)
    used = np.flatnonzero(total)
    members[used] = [_size(run, int(c)) for c in used]
    partial = (arrivals > 0) & (arrivals < members[comm])
    found.unmatched[COLLECTIVE_PART] += int(partial.sum())
    return flat, numbers, comm, arrivals


def _expected(found: _Gathered, comms: int) -> tuple[Ints, Ints]:
    """Return for each communicator (how many collectives there were, the most that a rank has).

    The first is what ranks say of which nothing is lost; else what all say alike that lack only
    what was called while recording was switched off; else -1.
    """
    comms = max(
        [comms, *(int(own.key[-1]) + 1 for own in found.collectives.values() if len(own.key))]
    )
    expected, most = np.full(comms, -1, dtype=np.int64), np.zeros(comms, dtype=np.int64)
    least = np.full(comms, np.iinfo(np.int64).max)
    even = np.ones(comms, dtype=bool)
    for rank, own in found.collectives.items():
        reach = found.reach[rank]
        most[own.key] = np.maximum(most[own.key], own.count)
        least[own.key] = np.minimum(least[own.key], own.count)
        even[own.key] &= reach.even
        if reach.whole:
            expected[own.key] = np.maximum(expected[own.key], own.count)
    alike = (expected < 0) & even & (least == most)
    expected[alike] = most[alike]
    return expected, most


def _size(run: RunTrace, comm: int) -> int:
    """Return how many ranks of the run are in a communicator."""
    if comm >= len(run.comms):
        return 0
    members = run.comms[comm].members
    if comm == 0:
        return len(members)
    return sum(0 <= member < run.np for member in members)
