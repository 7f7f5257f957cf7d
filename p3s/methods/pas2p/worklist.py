"""The part of logical time that goes from rank to rank: a worklist over what has to wait.

A *lane* is a rank (a thread of it, if it has several). Its *nodes* are its arrivals and
collectives, in program order. Between two nodes the clock moves by itself, so that a lane is
described by one number per node: how far its clock is ahead of the sends and collectives before
it. Numbers that are not known yet are -1; a lane that needs one waits for it.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

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
