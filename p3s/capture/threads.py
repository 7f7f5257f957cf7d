"""What the threads of a rank did between its MPI calls (chunks of THREADS, records of threads)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields

import numpy as np

from p3s.base.arrays import Bools, Ints
from p3s.capture import layout
from p3s.capture.chunks import Chunk
from p3s.capture.events import read_ordinals, read_table

#: What a thread is for; RUNTIME is a helper of the OpenMP runtime that runs nothing of the program.
OTHER, TEAM, CALLER, RUNTIME = "other", "team", "caller", "runtime"
_KINDS = (OTHER, TEAM, CALLER, RUNTIME)
#: Number of a row that stands for threads that had ended.
ENDED = 0xFFFFFFFF

_MOST = 1 << 60


@dataclass(frozen=True)
class Threads:
    """What threads did before events, a row for each event before which any was at work.

    int64 columns of equal length, times in nanoseconds. ``event``: index of the event.
    ``regions``: outermost parallel regions that ended in the segment before it, ``nested`` those
    inside; ``team``: threads of the largest, ``worked``: most threads of one that worked (more
    than 1 us or 1 % of it). ``wall_ns``: the segment; ``serial``: work of the calling thread
    outside of regions (in the run's unit of time); ``region_ns``: wall time in regions;
    ``busy_ns``: CPU time of all threads in them without waiting, ``longest_ns``: of the longest
    of each; ``waiting_ns``: wall time that threads waited for others; ``overhead_ns``: fork and
    join. ``others_ns``: CPU time of threads that are in no team and make no MPI call,
    ``longest_other_ns`` of one of them. The rest is counted.
    """

    event: Ints
    regions: Ints
    nested: Ints
    team: Ints
    worked: Ints
    wall_ns: Ints
    serial: Ints
    region_ns: Ints
    busy_ns: Ints
    longest_ns: Ints
    waiting_ns: Ints
    overhead_ns: Ints
    others_ns: Ints
    longest_other_ns: Ints
    static_loops: Ints
    dynamic_loops: Ints
    sections: Ints
    barriers: Ints
    tasks: Ints
    singles: Ints
    criticals: Ints

    def __len__(self) -> int:
        return len(self.event)

    def __getitem__(self, column: str) -> Ints:
        """Return a column by its name."""
        values: Ints = getattr(self, column)
        return values

    def total(self, column: str) -> int:
        """Return the sum of a column."""
        return int(self[column].sum())

    @property
    def full_ns(self) -> int:
        """CPU time if all threads of the largest teams had worked as long as the longest did."""
        return int(np.dot(self.longest_ns, self.team))

    @property
    def imbalance(self) -> float | None:
        """Longest thread over the mean of the team, less 1, over all regions; None without any."""
        busy = self.total("busy_ns")
        return self.full_ns / busy - 1.0 if busy else None


#: Columns of a row, after the ordinal of its event.
COLUMNS = tuple(each.name for each in fields(Threads))[1:]


@dataclass(frozen=True)
class ThreadInfo:
    """One thread of a rank at its end (or several that had ended: ``threads`` of them).

    ``number``: 0 the first, then in the order in which they began, -1 for several. ``kind``:
    TEAM, CALLER (it makes MPI calls), OTHER or RUNTIME; ``calls_as``: number of the thread in its
    MPI calls, -1 if it makes none; ``cpu_ns`` in all; ``cores`` it may run on, empty if not known.
    """

    number: int
    kind: str
    calls_as: int
    threads: int
    cpu_ns: int
    cores: tuple[int, ...]


@dataclass(frozen=True)
class Runtime:
    """What a rank's threads ran under; texts are empty, numbers None where that is not known.

    ``mpi_thread_level``: single, funneled, serialized or multiple, as MPI provides. ``openmp``: the
    runtime, ``library`` its file; ``max_threads``, ``proc_bind`` (omp_proc_bind_t), ``places`` as
    it answers; ``variables``: those of the environment that it reads.
    """

    mpi_thread_level: str = ""
    openmp: str = ""
    library: str = ""
    max_threads: int | None = None
    proc_bind: int | None = None
    places: int | None = None
    variables: Mapping[str, str] = field(default_factory=dict)


def read_threads(chunk: Chunk, payload: bytes) -> Ints:
    """Return the rows of a THREADS chunk: ordinal of the event, then COLUMNS.

    Columns that the file lacks are 0. Raises ValueError for what no tracer writes.
    """
    table = read_table(chunk, payload, 1)
    rows = np.zeros((table.shape[1], 1 + len(COLUMNS)), dtype=np.int64)
    columns = min(len(table), rows.shape[1])
    if table[1:columns].size and int(table[1:columns].max()) > _MOST:
        raise ValueError("a number of its threads is impossible")
    rows[:, 0] = read_ordinals(chunk, table[0])
    rows[:, 1:columns] = table[1:columns].view(np.int64).T
    return rows


def read_thread(payload: bytes) -> ThreadInfo:
    """Return a THREAD record; raises ValueError or struct.error for what is none."""
    number, kind, calls_as, threads, cpu_ns = layout.THREAD_RECORD.unpack_from(payload)
    text = payload[layout.THREAD_RECORD.size :].rstrip(b"\0").decode("ascii")
    if kind >= len(_KINDS):
        raise ValueError("a thread of an unknown kind")
    return ThreadInfo(
        -1 if number == ENDED else number,
        _KINDS[kind],
        calls_as,
        threads,
        max(cpu_ns, 0),
        _cores(text),
    )


_MOST_CORES = 1 << 16


def _cores(text: str) -> tuple[int, ...]:
    cores: list[int] = []
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        low, high = int(first), int(last or first)
        if not 0 <= low <= high < _MOST_CORES:
            raise ValueError("a list of cores is impossible")
        cores += range(low, high + 1)
    return tuple(cores)


_NAMES = ("mpi_thread_level", "openmp", "openmp_library")
_NUMBERS = ("max_threads", "proc_bind", "places")


def read_runtime(payload: bytes) -> Runtime:
    """Return a RUNTIME record: lines of name=value, of which those not known are variables."""
    text = payload.rstrip(b"\0").decode("utf-8", "replace")
    variables = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    level, openmp, library = (variables.pop(name, "") for name in _NAMES)
    most, bind, places = (_number(variables.pop(name, "")) for name in _NUMBERS)
    return Runtime(level, openmp, library, most, bind, places, variables)


def _number(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None


def threads_at(rows: Ints, index: Ints, keep: Bools) -> Threads | None:
    """Return rows of read_threads as columns, by the index of their events; None without any."""
    if not keep.any():
        return None
    part = rows[keep]
    return Threads(index[keep], *(part[:, i].copy() for i in range(1, part.shape[1])))
