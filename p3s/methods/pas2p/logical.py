"""Logical time: a tick for every event, ordered by what happened before what (Lamport).

The thesis's rules (annex A.4.2), with a clock per rank that begins at 0:

- a send has the clock's tick, and moves the clock on by one;
- a receive moves the clock to at least one more than the tick of its send, and has that tick;
- all callers of a collective share one tick, the largest of their clocks, and go on with the next;
- every other event has the clock's tick.

So an event after a send is one tick later, an event after a receive is in the same tick. A
nonblocking send counts at its post, a receive where it is completed (the MPI_Wait); a nonblocking
collective moves the clock on at its post like a send, and its completion comes after the posts of
all. The threads of a rank have clocks of their own, since their calls overlap.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from p3s.base.errors import P3SError
from p3s.methods.pas2p import worklist
from p3s.methods.pas2p.match import Matching, match
from p3s.methods.pas2p.worklist import (
    COMPLETION,
    POST,
    TOGETHER,
    Nodes,
    TooManyCuts,
    Worklist,
    code,
)
from p3s.signature.calltable import (
    COLLECTIVE,
    POSTED_COLLECTIVE,
    POSTED_RECV,
    SEND,
    CallTable,
    call_table,
    completions,
    present_ranks,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from p3s.capture import RankTrace, RunTrace

    Ints = NDArray[np.int64]
    Index = NDArray[np.int32]


@dataclass(frozen=True)
class Effects:
    """When what arrives at a rank takes effect, as (event, ...) columns of equal length.

    ``arrival``: event that completes a receive, ``slot``: place of its send (Matching.sends).
    ``joint``, ``posted``: events of blocking collectives and posts of others; ``completed``:
    events that complete posts; each with its instance beside it. ``open``: receives that were
    matched, but that the program never completed.
    """

    arrival: Index
    slot: Ints
    joint: tuple[Index, Ints]
    posted: tuple[Index, Ints]
    completed: tuple[Index, Ints]
    open: int


def effects(matching: Matching, rank: int, trace: RankTrace, table: CallTable) -> Effects:
    """Return when the messages to a rank, and its collectives, take effect."""
    receive, _, slot = matching.received(rank)
    done = completions(trace)
    at = done[receive]
    blocking = (table.role[trace.call[receive]] != POSTED_RECV) & (at < 0)
    at = np.where(blocking, receive, at)
    known = at >= 0
    event, instance = matching.collectives(rank)
    together = table.role[trace.call[event]] == COLLECTIVE
    posts, of_posts = event[~together], instance[~together]
    ended = done[posts]
    return Effects(
        at[known],
        slot[known],
        (event[together], instance[together]),
        (posts, of_posts),
        (ended[ended >= 0], of_posts[ended >= 0]),
        int((~known).sum()),
    )


@dataclass(frozen=True)
class _Lanes:
    """The lanes of a rank: its threads, or the rank itself.

    ``lane`` is None for one; ``place`` of each event in its lane (None: its index); ``before``:
    events of its lane before it that move the clock on.
    """

    count: int
    lane: Index | None
    place: Index | None
    before: Index

    def place_of(self, events: Index) -> Index:
        return events if self.place is None else self.place[events]


def _lanes(trace: RankTrace, table: CallTable) -> _Lanes:
    role = table.role[trace.call]
    moves = (role == SEND) | (role == COLLECTIVE) | (role == POSTED_COLLECTIVE)
    if table.null.any():
        moves &= ~table.null[trace.call]  # a message to MPI_PROC_NULL is none
    if trace.thread is None:
        before = np.cumsum(moves, dtype=np.int32)
        before -= moves
        return _Lanes(1, None, None, before)
    _, thread = np.unique(trace.thread, return_inverse=True)
    order = np.argsort(thread, kind="stable")
    size = np.bincount(thread)
    first = np.cumsum(size) - size
    place = np.empty(len(order), dtype=np.int32)
    place[order] = np.arange(len(order)) - first[thread[order]]
    total = np.concatenate([[0], np.cumsum(moves[order])])
    before = np.empty(len(order), dtype=np.int32)
    before[order] = total[:-1] - total[first[thread[order]]]
    return _Lanes(max(len(size), 1), thread.astype(np.int32), place, before)


@dataclass(frozen=True)
class LogicalTime:
    """The ticks of a run.

    ``cut_messages``: receives that come before their send in the order of the events;
    ``cut_instances``: collectives of which the same is true and whose callers therefore share no
    tick; ``open_receives``: receives that were never completed and so order nothing. Holds 8
    bytes and a place of 4 per received message and collective call.
    """

    run: RunTrace
    cut_messages: int
    cut_instances: frozenset[int]
    open_receives: int
    _table: CallTable = field(repr=False)
    _ahead: Ints = field(repr=False)
    _heads: dict[int, list[int]] = field(repr=False)
    _places: list[Index] = field(repr=False)
    _first_lane: dict[int, int] = field(repr=False)

    def of(self, rank: int, trace: RankTrace | None = None) -> Ints:
        """Return the tick of each event of a rank; ``trace`` saves reading it once more."""
        trace = self.run.ranks[rank] if trace is None else trace
        ticks = np.zeros(len(trace.call), dtype=np.int64)
        if rank not in self._heads:
            return ticks
        lanes = _lanes(trace, self._table)
        for number, head in enumerate(self._heads[rank]):
            mine = slice(None) if lanes.lane is None else np.flatnonzero(lanes.lane == number)
            places = self._places[self._first_lane[rank] + number]
            before = lanes.before[mine]
            behind = np.cumsum(np.bincount(places, minlength=len(before)))
            ticks[mine] = before + self._ahead[head + behind]
        return ticks


def logical_time(run: RunTrace, matching: Matching | None = None) -> LogicalTime:
    """Return the logical time of a run (thesis A.4.2), reading one rank's columns at a time.

    Needs, besides what matching holds, 12 bytes per send and some 24 per received message and
    collective call. Events that contradict each other (damaged or hand-made captures, or a
    program that relies on a collective not to wait) are left out of the order and counted;
    raises P3SError when there are too many of them.
    """
    matching = match(run) if matching is None else matching
    table = call_table(run.calls, run.np)
    build = _Build(matching, table)
    for rank in present_ranks(run):
        build.take(rank, run.ranks[rank])
    work = Worklist(build.linked(), matching.arrivals)
    try:
        work.run()
    except TooManyCuts:
        raise P3SError(
            f"logical time: the messages in {run.path} contradict each other in more than"
            f" {worklist.MOST_CUTS:,} places, so there is no order of its events; run `p3s check`"
            " and trace the program again"
        ) from None
    return LogicalTime(
        run,
        work.cut_messages,
        frozenset(work.cut_instances),
        build.open,
        table,
        np.frombuffer(work.ahead, dtype=np.int64),
        build.heads,
        build.places,
        build.first_lane,
    )


class _Build:
    """Iterations the ranks, one after the other, into the nodes of their lanes."""

    def __init__(self, matching: Matching, table: CallTable) -> None:
        sends = matching.all_sends
        self.matching, self.table = matching, table
        self.number = np.zeros(sends, dtype=np.int64)  # place of the number before each send
        self.before = np.zeros(sends, dtype=np.int32)
        self.lanes: list[Nodes] = []
        self.places: list[Index] = []
        self.heads: dict[int, list[int]] = {}
        self.first_lane: dict[int, int] = {}
        self.open = 0
        self._next = 0

    def take(self, rank: int, trace: RankTrace) -> None:
        """Add one rank: its nodes, still by the place of their send, and its own sends."""
        if not len(trace.call):
            return
        found = effects(self.matching, rank, trace, self.table)
        lanes = _lanes(trace, self.table)
        self.open += found.open
        joint, posted, completed = found.joint, found.posted, found.completed
        event = np.concatenate([found.arrival, joint[0], posted[0], completed[0]])
        wait = np.concatenate(
            [
                found.slot,
                code(joint[1], TOGETHER),
                code(posted[1], POST),
                code(completed[1], COMPLETION),
            ]
        )
        first_slot, sends = self.matching.sends(rank)
        slots = slice(first_slot, first_slot + len(sends))
        self.before[slots] = lanes.before[sends]
        self.heads[rank], self.first_lane[rank] = [], len(self.lanes)
        numbers = self.number[slots]
        for lane in range(lanes.count):
            mine: slice | NDArray[np.bool_] = slice(None)
            sent: slice | NDArray[np.bool_] = slice(None)
            if lanes.lane is not None:
                mine, sent = lanes.lane[event] == lane, lanes.lane[sends] == lane
            places = lanes.place_of(event[mine])
            order = np.argsort(places, kind="stable")
            self.heads[rank].append(self._next)
            self.places.append(places[order].astype(np.int32))
            self.lanes.append(
                Nodes(wait[mine][order], lanes.before[event[mine][order]], self._next)
            )
            behind = np.searchsorted(self.places[-1], lanes.place_of(sends[sent]))
            numbers[sent] = self._next + behind
            self._next += len(order) + 1

    def linked(self) -> list[Nodes]:
        """Return the lanes, every arrival now waiting for the number before its send."""
        for nodes in self.lanes:
            arrivals = np.flatnonzero(nodes.wait >= 0)
            slot = nodes.wait[arrivals]
            nodes.wait[arrivals] = self.number[slot]
            nodes.shift[arrivals] = self.before[slot] + 1 - nodes.shift[arrivals]
        return self.lanes
