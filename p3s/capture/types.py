"""What a traced run is made of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import overload

import numpy as np
from numpy.typing import NDArray

from p3s.base import ops
from p3s.base.arrays import Bools, Ints
from p3s.capture.records import PROC_NULL as PROC_NULL
from p3s.capture.records import FileName, Neighbours
from p3s.capture.threads import Runtime, ThreadInfo, Threads

Int32s = NDArray[np.int32]

#: Values of Call.peer and Call.root that are no rank, beside PROC_NULL.
NO_RANK = -1
ANY_SOURCE = -2
#: Bits of Call.memory: the buffer that is sent from (or the only one), the one received into.
DEVICE_SENT, DEVICE_RECEIVED = 1, 2


@dataclass(frozen=True)
class Call:
    """One distinct MPI call: everything about an event except its times.

    ``site`` and ``comm`` index RunTrace.sites and .comms (comm -1: none, as in MPI_Waitall);
    ``peer`` and ``root`` are world ranks (-1 none, -2 unresolved MPI_ANY_SOURCE, -3 MPI_PROC_NULL);
    ``tag`` is -1 if there is none or MPI_ANY_TAG was never resolved; ``count`` are elements of the
    datatype passed (MPI_Type_size = bytes / count), ``elem_bytes`` the size of the basic element;
    ``depth`` the iterations of recursion taken out of the site's stack; ``window`` indexes
    RunTrace.windows or is -1; ``team`` threads are in the innermost parallel region around the
    call, 0 outside of any; ``block``: bytes in a row of a datatype that is not contiguous, else 0;
    ``memory``: which buffers are memory of a device (DEVICE_SENT, DEVICE_RECEIVED, 0 none);
    ``numbers``: what else is said of it (docs/capture-format.md)."""

    op: str
    site: int
    comm: int
    peer: int
    bytes: int
    elem_bytes: int
    tag: int
    root: int
    count: int = 0
    depth: int = 0
    window: int = -1
    team: int = 0
    block: int = 0
    memory: int = 0
    numbers: tuple[int, ...] = ()


@dataclass(frozen=True)
class Site:
    """One place in the program: the call stack, innermost frame first.

    ``key`` (16 hex digits) is the same on all ranks, in all runs and at all process counts.
    """

    key: str
    frames: tuple[str, ...]


@dataclass(frozen=True)
class Comm:
    """One communicator, merged over the ranks that are in it.

    ``members`` are world ranks in the communicator's order (of an intercommunicator: both sides,
    sorted); ``ordinal`` counts communicators with the same members, the world being number 0;
    ``parent`` indexes RunTrace.comms or is -1; ``dims`` and ``periods`` are set if it is
    Cartesian, rank r of ``members`` then has the row-major coordinates of r.
    """

    members: tuple[int, ...]
    op: str
    parent: int
    dims: tuple[int, ...] | None
    periods: tuple[bool, ...] | None
    ordinal: int
    inter: bool = False


@dataclass(frozen=True)
class Window:
    """A one-sided window (``kind`` "window") or an MPI-IO file ("file").

    ``comm`` indexes RunTrace.comms; ``ordinal`` counts those made by the same ``op`` on the same
    communicator.
    """

    comm: int
    kind: str
    op: str
    ordinal: int


def no_pairs() -> Ints:
    """Return no pairs of events, shape (0, 2)."""
    return np.empty((0, 2), dtype=np.int64)


def no_events() -> Ints:
    """Return no numbers of events."""
    return np.empty(0, dtype=np.int64)


def no_flags() -> Bools:
    """Return no marks of events."""
    return np.empty(0, dtype=bool)


@dataclass(frozen=True)
class RankTrace:
    """The events of one rank in program order, as columns of equal length.

    ``call`` (int32) indexes RunTrace.calls; the times are int64 nanoseconds, ``work`` (before
    the call) is int64 in RunTrace.work_unit. ``complete`` is False if the rank never reached
    MPI_Finalize, or its file is missing or damaged; ``problem`` then names the file and says what
    is wrong, else it is empty.

    ``done`` (int64, shape (requests, 2)): ordinals of the event that completed a request and of
    the one that posted or started it, ``cancelled`` (bool) beside it. ``counters`` (int64, shape
    (events, counters)): what RunTrace.counter_names counted before the call. ``counted``: call ->
    (events, elapsed_ns, work) of events that were only counted; ``counted_events`` is their
    number: after the limit of the capture, or of phases that had been seen often enough. ``gap``
    (int64, None if all 0): how many of those came right before an event; where it is not 0, the
    step from the event before is none the program made. ``phases``: a row per phase of the plan
    the run was given (layout.PHASE_FIELDS), None if it had none.
    ``paused_calls`` were made while MPI_Pcontrol had switched recording off. ``ordinal`` is None
    where event i is number i; else some are lost. ``thread`` (0 the first) is None where one
    thread made all calls. ``tracer_ns`` is the time the tracer itself took, in no other column.
    ``threads``: what threads did before events, None where the calling thread was alone;
    ``runtime``: what they ran under; ``team_threads``: each of them, at the end.
    ``files``: what is known of those windows that are files; ``accesses``: rows of event ordinal,
    first byte and bytes up to the last one, of events that read or write at a known place.
    ``resident_bytes``: memory that the rank filled between MPI_Init and MPI_Finalize, at most;
    ``preempted``: how often it lost its core to another process meanwhile; 0: not known.
    ``neighbours``: by index of RunTrace.comms, of communicators with neighbourhood collectives.
    ``restored``: events that the capture only counted, which are here (p3s.capture.counted).
    ``anybody`` (int64): events that are receives or probes from MPI_ANY_SOURCE.
    """

    rank: int
    complete: bool
    call: Int32s
    start_ns: Ints
    elapsed_ns: Ints
    work: Ints
    failed_polls: int = 0
    failed_poll_ns: int = 0
    problem: str = ""
    done: Ints = field(default_factory=no_pairs)
    cancelled: Bools = field(default_factory=no_flags)
    counters: Ints = field(default_factory=no_pairs)
    counted: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    paused_calls: int = 0
    counted_events: int = 0
    ordinal: Ints | None = None
    thread: Int32s | None = None
    tracer_ns: int = 0
    gap: Ints | None = None
    phases: NDArray[np.void] | None = None
    resident_bytes: int = 0
    preempted: int = 0
    threads: Threads | None = None
    runtime: Runtime | None = None
    team_threads: tuple[ThreadInfo, ...] = ()
    files: dict[int, FileName] = field(default_factory=dict)
    accesses: Ints | None = None
    neighbours: Mapping[int, Neighbours] = field(default_factory=dict)
    anybody: Ints = field(default_factory=no_events)
    restored: int = 0

    def made(self, calls: int) -> Ints:
        """Return how often the rank makes each of the run's calls, counted events included."""
        times_made = np.bincount(self.call, minlength=calls).astype(np.int64)
        for call, (events, _, _) in self.counted.items():
            times_made[call] += events
        return times_made


class Ranks(Sequence[RankTrace]):
    """The ranks of a run, each decoded when it is asked for."""

    def rank(self, number: int) -> RankTrace:
        """Return the columns of one rank."""
        raise NotImplementedError

    @overload
    def __getitem__(self, rank: int) -> RankTrace: ...
    @overload
    def __getitem__(self, rank: slice) -> tuple[RankTrace, ...]: ...
    def __getitem__(self, rank: int | slice) -> RankTrace | tuple[RankTrace, ...]:
        """Return the columns of one rank (of several for a slice)."""
        numbers = range(len(self))[rank]
        if isinstance(numbers, int):
            return self.rank(numbers)
        return tuple(self.rank(number) for number in numbers)

    def __iter__(self) -> Iterator[RankTrace]:
        return (self.rank(number) for number in range(len(self)))


@dataclass(frozen=True)
class RunTrace:
    """One traced run: tables shared by all ranks, and the events of each rank.

    ``comms[0]`` is MPI_COMM_WORLD. ``ranks`` may decode a rank's columns anew on each access:
    take a rank once, and one at a time. ``work_unit`` is "wall_ns", "cpu_ns" or "instructions",
    ``work_origin`` what counted them. ``unmodelled`` counts the events of calls that the
    model does not cover (p3s.base.ops.is_modelled); ``missing`` are the ranks without a file;
    ``problems``: rank -> what is wrong with it; ``blamed`` ended the run, if that shows.
    """

    np: int
    path: Path
    calls: tuple[Call, ...]
    comms: tuple[Comm, ...]
    sites: tuple[Site, ...]
    ranks: Sequence[RankTrace]
    work_unit: str = "cpu_ns"
    wall_ns: int | None = None
    unmodelled: dict[str, int] = field(default_factory=dict)
    missing: tuple[int, ...] = ()
    problems: dict[int, str] = field(default_factory=dict)
    windows: tuple[Window, ...] = ()
    counter_names: tuple[str, ...] = ()
    work_origin: str = ""
    counted_events: int = 0
    blamed: int | None = None

    @property
    def problem(self) -> str:
        """What is wrong with the rank that is to blame, else with the first; empty if nothing."""
        if not self.problems:
            return ""
        return self.problems[min(self.problems) if self.blamed is None else self.blamed]


#: World rank of a process of another world, and the communicator of a call that has none.
UNKNOWN = -1


def reaches_outside(comm: Comm) -> bool:
    """Tell whether a communicator has a process of another world."""
    return UNKNOWN in comm.members


def unmodelled_events(
    calls: tuple[Call, ...], comms: Sequence[Comm], events: Iterable[int]
) -> dict[str, int]:
    """Return operation -> events of those that the model does not cover; events: of each call."""
    out: dict[str, int] = {}
    for call, count in zip(_rename_outside(calls, comms), events, strict=True):
        if not ops.is_modelled(call.op):
            out[call.op] = out.get(call.op, 0) + count
    return out


def named_outside(run: RunTrace) -> RunTrace:
    """Return a run whose calls with processes of other worlds are named so."""
    calls = _rename_outside(run.calls, run.comms)
    return run if calls is run.calls else replace(run, calls=calls)


def _rename_outside(calls: tuple[Call, ...], comms: Sequence[Comm]) -> tuple[Call, ...]:
    beyond = {number for number, comm in enumerate(comms) if reaches_outside(comm)}
    if not beyond:
        return calls
    return tuple(
        replace(call, op=ops.outside(call.op), comm=UNKNOWN) if call.comm in beyond else call
        for call in calls
    )


def present_ranks(run: RunTrace) -> list[int]:
    """Return the ranks that have events; a rank without a file costs nothing."""
    return list(getattr(run.ranks, "present", range(len(run.ranks))))
