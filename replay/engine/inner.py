"""Compiles and calls the inner loop (inner.c)."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from p3s.base.arrays import Ints
from p3s.base.errors import P3SError
from p3s.base.host import compiling, mpi
from p3s.base.host.compiling import compile_cached
from p3s.replay.plan.program import EVENT, Code
from p3s.replay.settings import PAGES

SOURCES = [
    Path(__file__).with_name(name)
    for name in ("inner.c", "inner.h", "emulate.h", "collectives.h", "execute.h", "prepare.h")
]
FLAGS = ("-std=gnu11", "-O2", "-fPIC", "-shared")
_BUCKETS = 24
_FAILURES = {
    -1: "memory is short",
    -2: "the control message is not the one that the program says comes next",
    -3: "a collective call on a communicator that this process is not in",
    -4: "an event that cannot be executed",
}


def compile_inner(mpicc: str) -> Path:
    """Return the inner loop compiled for an MPI, as it came with P3S or from the cache.

    ``mpicc``: the compiler of the MPI that mpi4py loads, empty where there is none. Errors:
    P3SError when there is no compiler, it fails, or no place is writable.
    """
    name = "replay.so"
    library = mpi.library_of_python(sys.executable) if compiling.libraries() else None
    if library and (library_file := compiling.taken(name, SOURCES, FLAGS, library[1])):
        return library_file
    if not mpicc:
        raise P3SError(
            "the replay cannot be compiled: no mpicc of the MPI that mpi4py loads; install the"
            " development package of that MPI and gcc, or `pip install mpich`"
        )
    try:
        facts = os.stat(mpicc)
    except OSError as err:
        raise P3SError(f"{mpicc}: cannot be used: {err.strerror}") from err
    return compile_cached(
        name,
        SOURCES,
        FLAGS,
        compiler=mpicc,
        what="the replay",
        also=f"{facts.st_mtime_ns} {facts.st_size}",
    )


@dataclass(frozen=True)
class Part:
    """What one process does in a program; lists and slots as in Program.

    ``record`` says per event in which column its begin and end are kept, -1: nowhere.
    """

    events: npt.NDArray[np.void]
    lists: Ints
    record: Ints
    slots: int

    @property
    def records(self) -> int:
        """Number of events whose begin and end are kept."""
        return int(self.record.max(initial=-1)) + 1

    @property
    def links(self) -> int:
        """Number of messages whose arrivals are kept."""
        return int(self.events["number"][self.events["code"] == Code.LINK_RECV].sum())

    @property
    def pieces(self) -> int:
        """Number of pieces of computation."""
        return int((self.events["work_ns"] > 0).sum())

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do."""
        return bool(np.isin(self.events["code"], (Code.END, Code.NOTHING)).all())


class _Program(ctypes.Structure):
    """struct program of inner.c."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("events", "lists", "record", "comms")),
        *(
            (name, ctypes.c_int64)
            for name in ("count", "n_lists", "n_slots", "n_comms", "records", "idle")
        ),
    ]


class _Timings(ctypes.Structure):
    """struct timings of inner.c."""

    _fields_ = [
        *(
            (name, ctypes.c_void_p)
            for name in ("start_ns", "end_ns", "late_ns", "times_ns", "links_ns", "errors_ns")
        ),
        ("errors_room", ctypes.c_int64),
        ("errors", ctypes.c_int64),
    ]


@dataclass(frozen=True)
class Timings:
    """What some passes of one process took; times in ns of its machine's clock.

    ``start_ns``, ``end_ns``, ``late_ns`` have one entry per pass; ``times_ns`` (passes, records,
    2): begin and end; ``links_ns`` (passes, messages); ``errors_ns``: of emulated pieces.
    """

    start_ns: Ints
    end_ns: Ints
    late_ns: Ints
    times_ns: Ints
    links_ns: Ints
    errors_ns: Ints


def _share_mpi() -> None:
    """Let libraries that are loaded from now on call the libmpi that mpi4py has loaded.

    What came compiled with P3S is not linked to a libmpi: it has other names elsewhere.
    """
    loaded = mpi.loaded_library()
    if loaded is not None:
        ctypes.CDLL(loaded, os.RTLD_NOLOAD | os.RTLD_GLOBAL | os.RTLD_NOW)


class InnerLoop:
    """The compiled inner loop, loaded into this process.

    ``progress`` is struct progress: pass, event, state, beats; written while the loop runs.
    """

    def __init__(self, path: Path, progress: Ints) -> None:
        _share_mpi()
        self._library = ctypes.CDLL(str(path))
        word, number, pointer = ctypes.c_int64, ctypes.c_int, ctypes.c_void_p
        lib = self._library
        lib.p3s_open.argtypes = [pointer, pointer, number, number, pointer, pointer, pointer]
        lib.p3s_open.restype = pointer
        lib.p3s_run.argtypes = [pointer, word, word, ctypes.c_double, number, pointer]
        lib.p3s_run.restype = number
        lib.p3s_close.argtypes, lib.p3s_close.restype = [pointer], None
        lib.p3s_outstanding.argtypes, lib.p3s_outstanding.restype = [pointer, pointer, word], word
        lib.p3s_calibrate.argtypes, lib.p3s_calibrate.restype = [pointer], None
        lib.p3s_compare_clocks.argtypes = [number, number, number, word, pointer]
        lib.p3s_compare_clocks.restype = number
        self.progress = progress
        #: By the logarithm of a sleep's length in us: how much longer it takes, median, ns.
        self.overshoot_ns: Ints = np.zeros(_BUCKETS, dtype=np.int64)
        self._handle: int | None = None
        self._part: Part | None = None
        self._kept: list[object] = []

    def calibrate(self) -> None:
        """Measure how sleeps overshoot here; takes about 60 ms."""
        self._library.p3s_calibrate(self.overshoot_ns.ctypes.data)

    def open(
        self, part: Part, world: Sequence[int], comms: Sequence[int], pages: str, shared_cores: bool
    ) -> None:
        """Make a program ready: buffers.

        ``world``: Fortran handles of the communicators of messages, of control messages, and of
        nothing but the loop's own collectives; ``comms``: those that events name.
        Errors: P3SError naming the event that is wrong.
        """
        self.close()
        if part.events.dtype != EVENT or not part.events.flags.c_contiguous:
            raise ValueError("events must be a contiguous array of EVENT records")
        handles = np.asarray(comms, dtype=np.int32)
        program = _Program(
            part.events.ctypes.data,
            part.lists.ctypes.data,
            part.record.ctypes.data,
            handles.ctypes.data,
            len(part.events),
            len(part.lists),
            part.slots,
            len(handles),
            part.records,
            int(part.idle),
        )
        self._kept = [part, handles, program]
        error = ctypes.c_int(0)
        first = np.asarray(world, dtype=np.int32)
        handle = self._library.p3s_open(
            first.ctypes.data,
            ctypes.byref(program),
            PAGES.index(pages),
            int(shared_cores),
            self.overshoot_ns.ctypes.data,
            self.progress.ctypes.data,
            ctypes.byref(error),
        )
        if not handle:
            raise P3SError(_describe_error(error.value))
        self._handle, self._part = handle, part

    def run(self, passes: int, offset_ns: int, work_scale: float, timed: bool) -> Timings:
        """Execute the program ``passes`` times, all processes together.

        ``offset_ns``: this machine's clock minus that of process 0. Without ``timed`` nothing
        waits for its time (at_ns). Errors: P3SError when an MPI call fails.
        """
        assert self._handle is not None and self._part is not None
        part = self._part
        start, end, late = (np.zeros(passes, dtype=np.int64) for _ in range(3))
        times = np.zeros((passes, part.records, 2), dtype=np.int64)
        links = np.zeros((passes, part.links), dtype=np.int64)
        errors = np.zeros(passes * part.pieces, dtype=np.int64)
        timings = _Timings(
            *(one.ctypes.data for one in (start, end, late, times, links, errors)), len(errors), 0
        )
        error = self._library.p3s_run(
            self._handle, passes, offset_ns, work_scale, int(timed), ctypes.byref(timings)
        )
        if error != 0:
            raise P3SError(_describe_error(error))
        return Timings(start, end, late, times, links, errors[: timings.errors])

    def outstanding(self, most: int) -> tuple[int, list[int]]:
        """Return how many requests are outstanding, and events that the first of them are from."""
        if self._handle is None:
            return 0, []
        events = np.zeros(most, dtype=np.int64)
        number = int(self._library.p3s_outstanding(self._handle, events.ctypes.data, most))
        return number, events[: min(number, most)].tolist()

    def close(self) -> None:
        """Give back what open took."""
        handle, self._handle = self._handle, None
        if handle is not None:
            self._library.p3s_close(handle)

    def compare_clocks(self, comm: int, peer: int, asks: bool, rounds: int) -> tuple[int, int, int]:
        """Return this clock minus the peer's, the error, and when (ns); see inner.c."""
        result = np.zeros(3, dtype=np.int64)
        error = self._library.p3s_compare_clocks(comm, peer, int(asks), rounds, result.ctypes.data)
        if error != 0:
            raise P3SError(f"comparing clocks with process {peer}: {_describe_error(error)}")
        offset, half, when = result.tolist()
        return offset, half, when


def _describe_error(error: int) -> str:
    """Return an error of the inner loop as text."""
    if error in _FAILURES:
        return _FAILURES[error]
    from mpi4py import MPI

    return f"MPI error {error} ({MPI.Get_error_string(error)})"
