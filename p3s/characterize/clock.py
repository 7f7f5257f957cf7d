"""Computation time before each call of a rank, where a run has a clock for it, and its spread.

Work in time is its own clock. Beside instructions that were counted while the program ran as it
is, the counter ``task-clock`` is one (ns), else the gap between two calls. In an emulator there
is none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from p3s.characterize.segments import occurring

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from p3s.trace import RankTrace, RunTrace

    Int64s = NDArray[np.int64]
    Floats = NDArray[np.float64]

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


def before_ns(run: RunTrace, rt: RankTrace) -> Int64s | None:
    """Return the computation time before each event of a rank, None where there is no clock."""
    unit = unit_of(run)
    if not unit:
        return None
    if run.work_unit in TIMES:
        return np.asarray(rt.work, dtype=np.int64)
    if unit == CPU:
        return np.asarray(rt.counters[:, run.counter_names.index(_TASK_CLOCK)], dtype=np.int64)
    return _gaps(rt)


def _gaps(rt: RankTrace) -> Int64s:
    """Return the wall time from the end of a thread's call to its next."""
    out = np.zeros(len(rt.call), dtype=np.int64)
    threads = np.zeros(len(out), dtype=np.int32) if rt.thread is None else rt.thread
    for thread in np.unique(threads):
        mine = np.flatnonzero(threads == thread)
        ends = rt.start_ns[mine] + rt.elapsed_ns[mine]
        out[mine[1:]] = np.maximum(rt.start_ns[mine[1:]] - ends[:-1], 0)
    return out


def off_core_ns(rt: RankTrace, after_init: NDArray[np.bool_], work_ns: int) -> int:
    """Return how long a rank was between two calls without getting CPU time.

    after_init: events that are not MPI_Init. work_ns: CPU time of the computation before them.
    It waited for a core, slept, or did input or output; what the tracer itself may take is off.
    """
    if not len(rt.start_ns):
        return 0
    ends = np.where(after_init, rt.start_ns + rt.elapsed_ns, 0)
    between = int(np.maximum(rt.start_ns[1:] - ends[:-1], 0).sum()) - rt.failed_poll_ns
    return between - work_ns - _TRACER_NS * len(rt.start_ns)


def load_of(unit: str, rt: RankTrace, after_init: NDArray[np.bool_], ns: Int64s) -> list[int]:
    """Return one rank's row of LOADS; ns: computation before its events."""
    time_ns = int(ns[after_init].sum())
    lost_ns = max(off_core_ns(rt, after_init, time_ns), 0) if unit == CPU else 0
    wall_ns = max(int(rt.start_ns[-1]), 0) if len(rt.start_ns) else 0
    return [
        rt.rank,
        wall_ns,
        time_ns,
        lost_ns,
        getattr(rt, "resident_bytes", 0),
        getattr(rt, "preempted", 0),
    ]


def no_times() -> Floats:
    """Return a table without rows."""
    return np.zeros((0, 1 + len(QUANTILES)))


def times_of(nodes: Int64s, ns: Int64s, places: int) -> Floats:
    """Return the times of one rank's segments, a row per segment as segments_of has them.

    nodes, ns: of each call that moves something, in program order. Columns: sum over the
    occurrences, and their QUANTILES (between two occurrences by linear interpolation).
    """
    if not len(nodes):
        return no_times()
    pair, segment, count = occurring(nodes, places)
    total = np.zeros(len(pair), dtype=np.int64)
    np.add.at(total, segment, ns)  # whole numbers: floats would lose digits of long runs
    ordered = _sorted_within(segment, ns, len(pair))
    out = np.empty((len(pair), 1 + len(QUANTILES)))
    out[:, 0] = total
    begin = np.cumsum(count) - count
    for k, share in enumerate(QUANTILES):
        at = share * (count - 1)
        low = np.floor(at).astype(np.int64)
        high = np.minimum(low + 1, count - 1)
        below, above = ordered[begin + low], ordered[begin + high]
        out[:, 1 + k] = below + (at - low) * (above - below)
    return out


def _sorted_within(segment: Int64s, ns: Int64s, segments: int) -> Int64s:
    """Return the times ordered by segment, then by size."""
    low = int(ns.min())
    bits = max(int(ns.max()) - low, 1).bit_length()
    if segments.bit_length() + bits < 63:  # one sort of numbers is much faster than two of places
        key = (segment.astype(np.int64) << bits) | (ns - low)
        key.sort()
        return np.asarray((key & ((1 << bits) - 1)) + low, dtype=np.int64)
    return np.asarray(ns[np.lexsort((ns, segment))], dtype=np.int64)
