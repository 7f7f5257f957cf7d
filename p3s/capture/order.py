"""Whether the times of a capture run forward."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from p3s.base.arrays import Ints

#: Calls are numbered as they return; up to this the clock and its readers may disagree.
_SLACK_NS = 1_000_000


class Forward:
    """Whether the times of a rank run forward, looked at block by block."""

    def __init__(self) -> None:
        self._ends: dict[int, int] = {}  # half the end of each thread's last call
        self._events = self._times = 0
        self._first, self._step = -1, 0

    def take(
        self, start_ns: Ints, elapsed_ns: Ints, thread: NDArray[np.integer] | None = None
    ) -> None:
        """Look at the next events; ``thread`` of each, None where there is one."""
        # Halves: differences of times near the ends of their range do not fit into 64 bits.
        halves = (start_ns + elapsed_ns) // 2
        if thread is None or not len(thread):
            self._thread(0, halves, None)
        else:
            for number in np.unique(thread).tolist():
                mine = np.flatnonzero(thread == number)
                self._thread(number, halves[mine], mine)
        self._events += len(halves)

    def _thread(self, number: int, ends: Ints, events: NDArray[np.intp] | None) -> None:
        """Look at the next events of one thread; events: their numbers, None: all of them."""
        if not len(ends):
            return
        steps = ends - np.concatenate([[self._ends.get(number, int(ends[0]))], ends[:-1]])
        self._ends[number] = int(ends[-1])
        at = np.flatnonzero(steps < -_SLACK_NS // 2)
        if not len(at):
            return
        self._times += len(at)
        first = self._events + int(at[0] if events is None else events[at[0]])
        if self._first < 0 or first < self._first:
            self._first, self._step = first, int(steps[at[0]])

    def backwards(self) -> str:
        """Say where a call returned before the one recorded before it on its thread; else empty."""
        if self._first < 0:
            return ""
        seconds = -2e-9 * float(self._step)
        times = f" ({self._times} times)" if self._times > 1 else ""
        return f"its time goes backwards by {seconds:.3g} s at event {self._first}{times}"


def backwards(start_ns: Ints, elapsed_ns: Ints, thread: NDArray[np.integer] | None = None) -> str:
    """Say where on a thread a call returned before the one recorded before it; empty if nowhere.

    The times of no machine do this: the clock of a capture only runs forward.
    """
    clock = Forward()
    clock.take(start_ns, elapsed_ns, thread)
    return clock.backwards()
