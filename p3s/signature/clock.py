"""Computation time before each call of a rank, where a run has a clock for it, and its spread.

Work in time is its own clock. Beside instructions that were counted while the program ran as it
is, the counter ``task-clock`` is one (ns), else the gap between two calls. In an emulator there
is none.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from p3s.base.arrays import Bools, Floats, Ints
from p3s.signature.segments import index_in

if TYPE_CHECKING:
    from collections.abc import Callable

    from p3s.capture import RankTrace, RunTrace

CPU, WALL = "cpu_ns", "wall_ns"
#: Units of work that are times.
TIMES = (CPU, WALL)
#: Shares of the occurrences of a segment below which its quantiles lie.
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
_TASK_CLOCK = "task-clock"
_EMULATOR = "qemu"
#: Columns of Part.loads, int64, one row per rank. wall_ns: from the end of MPI_Init to the start
#: of MPI_Finalize. time_ns: computation. lost_ns: wall time between calls that was no computation
#: (only known in CPU time). resident_bytes: what the program itself has filled. preempted: how
#: often the rank lost its core.
LOADS = ("rank", "wall_ns", "time_ns", "lost_ns", "resident_bytes", "preempted")
#: Wall time per event that the tracer itself may take between two calls.
_TRACER_NS = 2000


def unit_of(run: RunTrace) -> str:
    """Return the unit of a run's clock: cpu_ns, wall_ns, or empty where it has none."""
    if run.work_unit in TIMES:
        return run.work_unit
    if getattr(run, "work_origin", "").startswith(_EMULATOR):
        return ""
    return CPU if _TASK_CLOCK in getattr(run, "counter_names", ()) else WALL


class Clock:
    """The computation time before each event of a rank, given block by block."""

    def __init__(self, run: RunTrace) -> None:
        self.unit = unit_of(run)
        self._is_work = run.work_unit in TIMES
        names = getattr(run, "counter_names", ())
        self._counter = names.index(_TASK_CLOCK) if _TASK_CLOCK in names else -1
        self._ends: dict[int, int] = {}

    def before_ns(self, block: Block) -> Ints | None:
        """Return the time before each event of the next block, None where there is no clock."""
        if not self.unit:
            return None
        if self._is_work:
            return np.asarray(block.work, dtype=np.int64)
        if self.unit == CPU:
            return np.asarray(block.counters[:, self._counter], dtype=np.int64)
        return self._gaps(block)

    def _gaps(self, block: Block) -> Ints:
        """Return the wall time from the end of a thread's call to its next."""
        out = np.zeros(len(block.call), dtype=np.int64)
        threads = np.zeros(len(out), dtype=np.int32) if block.thread is None else block.thread
        for thread in np.unique(threads).tolist():
            mine = np.flatnonzero(threads == thread)
            start = block.start_ns[mine]
            ends = start + block.elapsed_ns[mine]
            before = np.concatenate([[self._ends.get(thread, int(start[0]))], ends[:-1]])
            out[mine] = np.maximum(start - before, 0)
            self._ends[thread] = int(ends[-1])
        return out


class Load:
    """What a rank's row of LOADS rests on, added up block by block."""

    def __init__(self) -> None:
        self.events = self.time_ns = self.between_ns = self.last_start_ns = 0
        self._end_ns = 0

    def take(self, block: Block, after_init: Bools, ns: Ints) -> None:
        """Add the next events; after_init: those that are not MPI_Init; ns: computation before."""
        if not len(block.start_ns):
            return
        ends = np.where(after_init, block.start_ns + block.elapsed_ns, 0)
        first = self._end_ns if self.events else int(block.start_ns[0])
        before = np.concatenate([[first], ends[:-1]])
        self.between_ns += int(np.maximum(block.start_ns - before, 0).sum())
        self.time_ns += int(ns[after_init].sum())
        self.events += len(ends)
        self._end_ns, self.last_start_ns = int(ends[-1]), int(block.start_ns[-1])

    def off_core_ns(self, failed_poll_ns: int) -> int:
        """Return how long the rank was between two calls without getting CPU time.

        It waited for a core, slept, or did input or output; what the tracer itself may take is off.
        """
        return self.between_ns - failed_poll_ns - self.time_ns - _TRACER_NS * self.events

    def row(self, unit: str, rt: RankTrace) -> list[int]:
        """Return the rank's row of LOADS; unit: of the clock."""
        lost_ns = max(self.off_core_ns(rt.failed_poll_ns), 0) if unit == CPU else 0
        return [
            rt.rank,
            max(self.last_start_ns, 0),
            self.time_ns,
            lost_ns,
            getattr(rt, "resident_bytes", 0),
            getattr(rt, "preempted", 0),
        ]


def no_times() -> Floats:
    """Return a table without rows."""
    return np.zeros((0, 1 + len(QUANTILES)))


class SegmentTimes:
    """The times of one rank's segments, given block by block.

    Of each event its segment and its time stay: quantiles are of all of them.
    """

    def __init__(self) -> None:
        self._codes: list[NDArray[np.integer]] = []
        self._ns: list[NDArray[np.integer]] = []

    def take(self, codes: Ints, ns: Ints) -> None:
        """Take the next events: codes of their segments (segments.Pairs), and times."""
        if len(codes):
            self._codes.append(_narrow(codes))
            self._ns.append(_narrow(ns))

    def table(self, code: Ints, count: Ints) -> Floats:
        """Return a row per segment, and forget the events; code, count: of segments.Pairs.

        Columns: sum over the occurrences, and their QUANTILES (between two occurrences by linear
        interpolation).
        """
        if not self._codes:
            return no_times()
        out = np.empty((len(code), 1 + len(QUANTILES)))
        out[:, 0], time_at = self._sort_segments(code, int(count.sum()))
        begin = np.cumsum(count) - count
        for k, share in enumerate(QUANTILES):
            at = share * (count - 1)
            low = np.floor(at).astype(np.int64)
            high = np.minimum(low + 1, count - 1)
            below, above = time_at(begin + low), time_at(begin + high)
            out[:, 1 + k] = below + (at - low) * (above - below)
        return out

    def _sort_segments(self, code: Ints, events: int) -> tuple[Ints, Callable[[Ints], Ints]]:
        """Return the sum of each segment, and the k-th time in order of segments, then of size."""
        total = np.zeros(len(code), dtype=np.int64)
        low = min(int(ns.min()) for ns in self._ns)
        bits = max(max(int(ns.max()) for ns in self._ns) - low, 1).bit_length()
        fits = len(code).bit_length() + bits < 63
        key, more = np.empty(events, dtype=np.int64), np.empty(0 if fits else events, np.int64)
        at = 0
        self._codes.reverse()
        self._ns.reverse()
        while self._codes:
            segment = index_in(code, self._codes.pop()).astype(np.int64)
            ns = self._ns.pop().astype(np.int64)
            np.add.at(total, segment, ns)  # whole numbers: floats would lose digits of long runs
            block = slice(at, at + len(ns))
            key[block] = segment << bits | ns - low if fits else segment
            if not fits:
                more[block] = ns
            at += len(ns)
        if fits:  # one sort of numbers is much faster than two of places
            key.sort()
            return total, lambda k: (key[k] & ((1 << bits) - 1)) + low
        order = np.lexsort((more, key))
        return total, lambda k: more[order[k]]


def _narrow(values: Ints) -> NDArray[np.integer]:
    """Return numbers in as few bytes each as all of them fit into."""
    low, high = int(values.min()), int(values.max())
    return values.astype(np.min_scalar_type(high)) if low >= 0 else values


#: Events of a block.
EVENTS = 1 << 16


class Block(NamedTuple):
    """Some events of a rank in a row, as columns of p3s.capture.RankTrace."""

    call: np.ndarray
    start_ns: np.ndarray
    elapsed_ns: np.ndarray
    work: np.ndarray
    counters: np.ndarray
    thread: np.ndarray | None


def blocks_of(rt: RankTrace) -> Iterator[Block]:
    """Yield the events of a rank in blocks of at most EVENTS."""
    call = np.asarray(rt.call)
    counters = getattr(rt, "counters", None)
    if counters is None or not len(counters):
        counters = np.zeros((len(call), 0), dtype=np.int64)
    for at in range(0, len(call), EVENTS):
        part = slice(at, at + EVENTS)
        yield Block(
            call[part],
            rt.start_ns[part],
            rt.elapsed_ns[part],
            rt.work[part],
            counters[part],
            None if rt.thread is None else rt.thread[part],
        )
