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

from array import array
from bisect import bisect_right
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from p3s.base.errors import P3SError
from p3s.methods.pas2p.match import Matching, match
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

#: Codes of what a node waits for: a number of a lane from 0 on; below, three kinds by instance.
TOGETHER, POST, COMPLETION = 1, 2, 3
#: Nodes of a lane that are unpacked at a time.
_WINDOW = 4096
#: After so many contradictions the order of the events means nothing.
MOST_CUTS = 1000
_NO_WAIT = np.iinfo(np.int32).min // 2


class TooManyCuts(Exception):
    """More than MOST_CUTS waits had to be given up."""


@dataclass
class Nodes:
    """The nodes of one lane.

    ``wait`` (int64): the place of a number that must be known, or :func:`code` of a collective.
    ``shift`` (int32): what the number is raised by, or the advances before the collective.
    ``head``: the place of the lane's own first number, which is 0.
    """

    wait: Ints
    shift: NDArray[np.int32]
    head: int


def code(instance: Ints, kind: int) -> Ints:
    """Return what stands in Nodes.wait for a collective: together, its post or its completion."""
    return -(instance * 4 + kind)


@dataclass
class Worklist:
    """All lanes of a run; :meth:`run` leaves every number in ``ahead``."""

    lanes: list[Nodes]
    arrivals: NDArray[np.int32]
    ahead: array[int] = field(init=False)
    cut_messages: int = 0
    cut_instances: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._heads = [lane.head for lane in self.lanes]
        size = self._heads[-1] + len(self.lanes[-1].wait) + 1 if self.lanes else 0
        self.ahead = array("q", [-1]) * size
        for head in self._heads:
            self.ahead[head] = 0
        self._missing = array("i", self.arrivals.astype(np.int32).tobytes())
        self._latest = array("q", [0]) * len(self._missing)
        self._at = [0] * len(self.lanes)  # nodes behind each lane
        self._windows: list[tuple[int, list[int], list[int]]] = [(0, [], [])] * len(self.lanes)
        self._for_number: dict[int, list[int]] = {}
        self._for_instance: dict[int, list[int]] = {}
        self._arrived: set[int] = set()
        self._ready: deque[int] = deque(range(len(self.lanes)))
        self._index: list[tuple[Ints, Ints]] = []

    def run(self) -> None:
        """Give every node its number; raises TooManyCuts when they contradict each other."""
        while True:
            while self._ready:
                self._advance(self._ready.popleft())
            if not self._for_number and not self._for_instance:
                return
            if self.cut_messages + len(self.cut_instances) >= MOST_CUTS:
                raise TooManyCuts
            self._cut()

    def _advance(self, lane: int) -> None:
        """Take one lane as far as it gets."""
        ahead, waiting, nodes = self.ahead, self._for_number, self.lanes[lane]
        at, total, place = self._at[lane], len(nodes.wait), nodes.head + self._at[lane]
        now = ahead[place]
        while at < total:
            first, waits, shifts = self._windows[lane]
            if not first <= at < first + len(waits):
                first = at
                waits = nodes.wait[at : at + _WINDOW].tolist()
                shifts = nodes.shift[at : at + _WINDOW].tolist()
                self._windows[lane] = first, waits, shifts
            for offset in range(at - first, len(waits)):
                wait = waits[offset]
                if wait >= 0:
                    other = ahead[wait]
                    if other < 0:
                        waiting.setdefault(wait, []).append(lane)
                        self._at[lane] = first + offset
                        return
                    other += shifts[offset]
                    if other > now:
                        now = other
                else:
                    known = self._collective(lane, -wait, shifts[offset], now)
                    if known < 0:
                        self._at[lane] = first + offset
                        return
                    now = known
                place += 1
                ahead[place] = now
                if place in waiting:
                    self._ready.extend(waiting.pop(place))
            at = first + len(waits)
        self._at[lane] = total
        self._windows[lane] = (0, [], [])

    def _collective(self, lane: int, packed: int, before: int, now: int) -> int:
        """Return the lane's number after a collective's node, or -1 if it has to wait."""
        instance, kind = packed >> 2, packed & 3
        missing, latest = self._missing, self._latest
        if kind != COMPLETION:
            if lane in self._arrived:
                self._arrived.discard(lane)
            elif instance not in self.cut_instances:
                if before + now > latest[instance]:
                    latest[instance] = before + now
                missing[instance] -= 1
                if missing[instance] <= 0:
                    self._ready.extend(self._for_instance.pop(instance, ()))
                elif kind == TOGETHER:
                    self._arrived.add(lane)
            if kind == POST:
                return now
        if missing[instance] > 0:
            self._for_instance.setdefault(instance, []).append(lane)
            return -1
        return max(now, latest[instance] + (kind == COMPLETION) - before)

    # ---- contradictions
    def _cut(self) -> None:
        """Find lanes that wait for each other in a circle and let one of them go."""
        blocked: dict[int, tuple[bool, int]] = {}
        for number, lanes in self._for_number.items():
            blocked.update(dict.fromkeys(lanes, (True, number)))
        for instance, lanes in self._for_instance.items():
            blocked.update(dict.fromkeys(lanes, (False, instance)))
        lane = min(blocked)
        seen: dict[int, int] = {}
        path: list[int] = []
        while lane not in seen:
            seen[lane] = len(path)
            path.append(lane)
            message, what = blocked[lane]
            after = bisect_right(self._heads, what) - 1 if message else self._absent(what)
            if after not in blocked:  # nobody is left who could come
                seen = {lane: len(path) - 1}
                break
            lane = after
        circle = path[seen[lane] :]
        together = [each for each in circle if not blocked[each][0]]
        if together:
            # A program may not rely on a collective to wait; on a message it does.
            instance = blocked[min(together)][1]
            self.cut_instances.add(instance)
            self._missing[instance] = 0
            self._ready.extend(self._for_instance.pop(instance))
            return
        lane = min(circle, key=lambda each: (self.ahead[self._heads[each] + self._at[each]], each))
        number = blocked[lane][1]
        waiting = self._for_number[number]
        waiting.remove(lane)
        if not waiting:
            del self._for_number[number]
        nodes = self.lanes[lane]
        nodes.wait[self._at[lane]] = nodes.head
        nodes.shift[self._at[lane]] = _NO_WAIT
        self._windows[lane] = (0, [], [])
        self.cut_messages += 1
        self._ready.append(lane)

    def _absent(self, instance: int) -> int:
        """Return a lane that has yet to come to a collective, -1 if there is none."""
        if not self._index:
            for nodes in self.lanes:
                where = np.flatnonzero((nodes.wait < 0) & (-nodes.wait & 3 != COMPLETION))
                which = -nodes.wait[where] >> 2
                order = np.argsort(which, kind="stable")
                self._index.append((which[order], where[order]))
        for lane, (which, where) in enumerate(self._index):
            k = int(np.searchsorted(which, instance))
            if k < len(which) and which[k] == instance and where[k] >= self._at[lane]:
                here = where[k] == self._at[lane] and lane in self._arrived
                if not here:
                    return lane
        return -1


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
            f" {MOST_CUTS:,} places, so there is no order of its events; run `p3s check`"
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
