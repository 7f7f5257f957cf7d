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
from collections import deque
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from p3s.base.arrays import Ints
from p3s.base.errors import P3SError
from p3s.capture.types import present_ranks
from p3s.methods.pas2p.match import Matching, match
from p3s.signature.calltable import (
    COLLECTIVE,
    POSTED_COLLECTIVE,
    POSTED_RECV,
    SEND,
    CallTable,
    call_table,
    completions,
)

if TYPE_CHECKING:
    from p3s.capture import RankTrace, RunTrace

#: What an event does that depends on others: it takes a message, is made by all together, posts a
#: collective, completes one.
MESSAGE, TOGETHER, POST, COMPLETION = range(4)
#: Such events that are unpacked at a time.
_WINDOW = 4096


@dataclass(frozen=True)
class Effects:
    """The events of a rank that depend on others, as columns of equal length.

    ``kind``: MESSAGE, TOGETHER, POST or COMPLETION; ``what``: number of the send (Matching.sends),
    or the instance of the collective. An event that completes several has as many rows.
    """

    event: Ints
    kind: Ints
    what: Ints


def effects(matching: Matching, rank: int, trace: RankTrace, table: CallTable) -> Effects:
    """Return when the messages to a rank, and its collectives, take effect.

    Receives that the program never completed order nothing.
    """
    ends, mine, joint = (
        completions(trace),
        matching.receives.of(rank),
        matching.collectives.of(rank),
    )
    receive, sender = matching.receives.event[mine], matching.partner[mine]
    blocking = (table.role[trace.call[receive]] != POSTED_RECV) & (ends[receive] < 0)
    arrival = np.where(blocking, receive, ends[receive])
    valid = (sender >= 0) & (arrival >= 0)
    event, instance = matching.collectives.event[joint], matching.instance[joint]
    together = table.role[trace.call[event]] == COLLECTIVE
    posts, ended = event[~together], ends[event[~together]]
    parts = (
        (MESSAGE, arrival[valid], sender[valid]),
        (TOGETHER, event[together], instance[together]),
        (POST, posts, instance[~together]),
        (COMPLETION, ended[ended >= 0], instance[~together][ended >= 0]),
    )
    return Effects(
        np.concatenate([at for _, at, _ in parts]).astype(np.int64),
        np.repeat([kind for kind, _, _ in parts], [len(at) for _, at, _ in parts]),
        np.concatenate([keys for _, _, keys in parts]),
    )


@dataclass(frozen=True)
class _Lane:
    """A thread of a rank: its events, those that depend on others, and advances of its clock.

    ``before``: of each event, advances before it; ``place``: of each effect its event's place in
    the lane, ascending; ``kind``, ``what``: as in Effects.
    """

    rank: int
    events: Ints
    before: Ints
    place: Ints
    kind: Ints
    what: Ints

    def ticks(self, ahead: array[int]) -> Ints:
        """Return the ticks of the events, from what the effects have put the clock ahead by."""
        behind = np.cumsum(np.bincount(self.place, minlength=len(self.events)))
        return np.asarray(self.before + np.frombuffer(ahead, dtype=np.int64)[behind])


def _lanes(rank: int, trace: RankTrace, table: CallTable, rank_effects: Effects) -> Iterator[_Lane]:
    role = table.role[trace.call]
    moves = (role == SEND) | (role == COLLECTIVE) | (role == POSTED_COLLECTIVE)
    moves &= ~table.null[trace.call]  # a message to MPI_PROC_NULL is none
    thread = np.zeros(len(role), dtype=np.int64) if trace.thread is None else trace.thread
    for number in np.unique(thread):
        events = np.flatnonzero(thread == number)
        mine = np.flatnonzero(thread[rank_effects.event] == number)
        mine = mine[np.argsort(rank_effects.event[mine], kind="stable")]
        moved = moves[events].astype(np.int64)
        place = np.searchsorted(events, rank_effects.event[mine])
        before = np.cumsum(moved) - moved
        yield _Lane(rank, events, before, place, rank_effects.kind[mine], rank_effects.what[mine])


class _Order:
    """Takes all lanes as far as they get; each waits for numbers of others.

    ``ahead``: of each lane what its clock is ahead of its own advances by, after each effect.
    """

    def __init__(self, lanes: list[_Lane], matching: Matching) -> None:
        self.lanes = lanes
        self.ahead = [array("q", [0]) for _ in lanes]
        self._missing = matching.arrivals.tolist()
        self._latest = [0] * len(self._missing)
        self._waiting: dict[Hashable, list[int]] = {}
        self._ready = deque(range(len(lanes)))
        sends = len(matching.sends.event)
        #: Of each send its lane, the effects before it there, and the advances before it.
        self._sent = np.zeros((3, sends + 1), dtype=np.int64)
        for number, lane in enumerate(lanes):
            mine = matching.sends.of(lane.rank)
            event = matching.sends.event[mine]
            place = np.searchsorted(lane.events, event).clip(0, len(lane.events) - 1)
            is_sent = lane.events[place] == event
            at, place = np.arange(mine.start, mine.stop)[is_sent], place[is_sent]
            behind = np.searchsorted(lane.place, place)
            self._sent[:, at] = np.full(len(at), number), behind, lane.before[place]

    def run(self) -> bool:
        """Tell whether all lanes come to their end."""
        going = [self._go(number) for number in range(len(self.lanes))]
        while self._ready:
            number = self._ready.popleft()
            key = next(going[number], None)
            if key is not None:
                self._waiting.setdefault(key, []).append(number)
        return not self._waiting

    def _go(self, number: int) -> Iterator[Hashable]:
        """Yield what a lane has to wait for; it is resumed when that is known."""
        advances, now = self.ahead[number], 0
        for kind, key, before, lane, behind, sent in self._effects(number):
            if kind == MESSAGE:
                if len(self.ahead[lane]) <= behind:
                    yield lane, behind
                now = max(now, self.ahead[lane][behind] + sent + 1 - before)
            else:
                if kind != COMPLETION:
                    self._arrive(key, before + now)
                if kind != POST:
                    if self._missing[key] > 0:
                        yield key
                    now = max(now, self._latest[key] + (kind == COMPLETION) - before)
            advances.append(now)
            self._wake((number, len(advances) - 1))

    def _effects(self, number: int) -> Iterator[tuple[int, ...]]:
        """Yield of each effect kind, what it is of, advances before it; of a message's send all."""
        lane = self.lanes[number]
        for first in range(0, len(lane.kind), _WINDOW):
            part = slice(first, first + _WINDOW)
            kind, keys, before = (lane.kind[part], lane.what[part], lane.before[lane.place[part]])
            sent = self._sent[:, np.where(kind == MESSAGE, keys, -1)]
            columns = (kind, keys, before, *sent)
            yield from zip(*(column.tolist() for column in columns), strict=True)

    def _arrive(self, instance: int, clock: int) -> None:
        self._latest[instance] = max(self._latest[instance], clock)
        self._missing[instance] -= 1
        if not self._missing[instance]:
            self._wake(instance)

    def _wake(self, key: Hashable) -> None:
        self._ready.extend(self._waiting.pop(key, ()))


def logical_time(run: RunTrace, matching: Matching | None = None) -> list[Ints]:
    """Return the ticks of the events of each rank (thesis A.4.2).

    Raises P3SError where events contradict each other, as in damaged captures, or where a program
    relies on a collective not to wait.
    """
    matching = match(run) if matching is None else matching
    table = call_table(run.calls, run.np)
    ticks = [np.zeros(0, dtype=np.int64)] * run.np
    lanes: list[_Lane] = []
    for rank in present_ranks(run):
        trace = run.ranks[rank]
        ticks[rank] = np.zeros(len(trace.call), dtype=np.int64)
        lanes += _lanes(rank, trace, table, effects(matching, rank, trace, table))
    order = _Order(lanes, matching)
    if not order.run():
        raise P3SError(
            f"logical time: the messages in {run.path} contradict each other, so there is no order"
            " of its events; run `p3s check` and trace the program again"
        )
    for lane, ahead in zip(lanes, order.ahead, strict=True):
        ticks[lane.rank][lane.events] = lane.ticks(ahead)
    return ticks
