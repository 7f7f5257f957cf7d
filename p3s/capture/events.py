"""The columns of a capture: events, completions, resolved receives, counts, END."""

from __future__ import annotations

import ctypes
import functools
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from p3s.base.arrays import Bools, Ints
from p3s.base.errors import P3SError
from p3s.base.host import compiling
from p3s.base.host.compiling import c_compiler, compile_cached
from p3s.capture import layout
from p3s.capture.chunks import Chunk

UInt64s = NDArray[np.uint64]

# No run takes 36 years: a time beyond this is damage, and sums of those below cannot overflow.
_MOST_NS = 1 << 60
_MOST_ORDINAL = 1 << 48


@dataclass(frozen=True)
class Events:
    """Events in the order of their return, as columns of equal length.

    ``call`` (unsigned) numbers the rank's own calls; ``start_ns``, ``elapsed_ns``, ``work``:
    int64; ``counters``: int64, shape (events, counters). ``ordinal`` is None where event i is
    number i: nothing before it is lost. ``gap``: how many events right before it were only
    counted; None where none ever was. Of bare events there are only ``call``, in as few bytes as
    it takes, ``ordinal`` and ``gap``; the other columns are empty.
    """

    call: NDArray[np.unsignedinteger]
    start_ns: Ints
    elapsed_ns: Ints
    work: Ints
    counters: Ints
    ordinal: Ints | None = None
    gap: Ints | None = None

    def __len__(self) -> int:
        return len(self.call)

    def __getitem__(self, column: str) -> NDArray[np.generic]:
        """Return a column by its name."""
        values: NDArray[np.generic] = getattr(self, column)
        return values

    def index_of(self, ordinals: Ints) -> tuple[Ints, Bools]:
        """Return (index of the event with each ordinal, whether it is there)."""
        if self.ordinal is None:
            present = (ordinals >= 0) & (ordinals < len(self))
            return np.where(present, ordinals, 0), present
        if not len(self):
            return np.zeros(len(ordinals), dtype=np.int64), np.zeros(len(ordinals), dtype=bool)
        at = np.minimum(np.searchsorted(self.ordinal, ordinals), len(self) - 1)
        present = self.ordinal[at] == ordinals
        return np.where(present, at, 0), present

    def pick(self, rows: NDArray[np.generic] | slice) -> Events:
        """Return the chosen events (numbers, mask or slice), which keep their ordinals."""
        ordinal = np.arange(len(self)) if self.ordinal is None else self.ordinal
        start, elapsed, work, counters = (
            column[rows].copy() if len(column) == len(self) else column
            for column in (self.start_ns, self.elapsed_ns, self.work, self.counters)
        )
        return Events(
            self.call[rows].copy(),
            start,
            elapsed,
            work,
            counters,
            ordinal[rows].copy(),
            None if self.gap is None else self.gap[rows].copy(),
        )

    def bare(self) -> Events:
        """Return the events without their times."""
        none = no_events(self.counters.shape[1])
        call = self.call.astype(np.min_scalar_type(int(self.call.max(initial=0))))
        return replace(none, call=call, ordinal=self.ordinal, gap=self.gap)


@dataclass(frozen=True)
class EndRecord:
    """What the tracer wrote on entry to MPI_Finalize."""

    events: int
    done: int
    resolved: int
    chunks: int
    failed_polls: int
    failed_poll_ns: int
    counted_events: int
    paused_calls: int
    flags: int
    defs_records: int
    calls: int
    sites: int
    tracer_ns: int
    memory: tuple[int, int, int] | None = None  # as layout.MEMORY, of files from 2.2 on


def no_events(counters: int) -> Events:
    """Return no events."""
    none = np.empty(0, dtype=np.int64)
    return Events(none.astype(np.uint32), none, none, none, np.empty((0, counters), dtype=np.int64))


def read_events(chunk: Chunk, payload: bytes, source: int, counters: int) -> Events:
    """Return the events of an EVENTS chunk; ``source`` is the header's work_source.

    Raises ValueError for what no tracer writes.
    """
    columns = layout.EVENT_COLUMNS + counters
    if chunk.columns < columns + (chunk.version == layout.GAP_VERSION):
        raise ValueError("an event has too few columns")
    if chunk.first > _MOST_ORDINAL:
        raise ValueError("its ordinals are impossible")
    table = decode(payload, chunk.columns)
    check_count(chunk, table.shape[1])
    if not table.shape[1]:
        return no_events(counters)
    call, elapsed = table[0], table[2].view(np.int64)
    gap = unzigzag(table[1])
    if call.max() >= 1 << 32:
        raise ValueError("a call has an impossible number")
    if source == layout.INSTRUCTIONS:
        work = table[3].view(np.int64)
    else:
        work = gap - unzigzag(table[3])
    for column in (elapsed, work):
        if column.min() < 0 or column.max() > _MOST_NS:
            raise ValueError("a time is impossible")
    if max(-int(gap.min()), int(gap.max()), abs(chunk.base_ns)) > _MOST_NS:
        raise ValueError("a time is impossible")
    start = np.cumsum(gap + elapsed)
    start += chunk.base_ns
    start -= elapsed
    # Copies: a view would keep the whole table.
    more = table[layout.EVENT_COLUMNS : columns].T.copy().view(np.int64)
    left_out = None
    if chunk.version == layout.GAP_VERSION:
        left_out = table[columns].view(np.int64).copy()
        if left_out.min() < 0 or left_out.max() > _MOST_ORDINAL:
            raise ValueError("a number of events left out is impossible")
    if source == layout.INSTRUCTIONS:
        work = work.copy()
    return Events(call.astype(np.uint32), start, elapsed.copy(), work, more, None, left_out)


def check_count(chunk: Chunk, rows: int) -> None:
    """Raise ValueError unless the chunk's count is that of its rows.

    The count is stored after the row: of a rank that was killed it may be one behind, of one
    that runs on it may be ahead by now.
    """
    if chunk.count != rows and (chunk.sealed or chunk.count + 1 < rows):
        raise ValueError(f"it has {rows} rows and says {chunk.count}")


def read_table(chunk: Chunk, payload: bytes, least: int) -> UInt64s:
    """Return the table of a chunk, a row a column, at least so many; ValueError for other rows."""
    table = decode(payload, max(chunk.columns, least))
    check_count(chunk, table.shape[1])
    return table


def join_events(parts: list[tuple[int, Events]], counters: int) -> tuple[Events, int]:
    """Return (the events of all chunks as one, how many are lost before or between them).

    ``parts``: (ordinal of the first event, events) in ascending order; emptied, so that memory
    holds the events little more than once.
    """
    if not parts:
        return no_events(counters), 0
    lost_events, at = 0, 0
    for first, part in parts:
        lost_events += first - at
        at = first + len(part)
    ordinal = None
    if lost_events:
        ordinal = np.concatenate([np.arange(f, f + len(p), dtype=np.int64) for f, p in parts])
    gap = None
    if any(part.gap is not None and part.gap.any() for _, part in parts):
        gap = np.concatenate(
            [np.zeros(len(p), dtype=np.int64) if p.gap is None else p.gap for _, p in parts]
        )
    call = [part.call for _, part in parts]
    start, elapsed = [part.start_ns for _, part in parts], [part.elapsed_ns for _, part in parts]
    work, more = [part.work for _, part in parts], [part.counters for _, part in parts]
    parts.clear()
    return Events(
        _join_columns(call),
        _join_columns(start),
        _join_columns(elapsed),
        _join_columns(work),
        _join_columns(more),
        ordinal,
        gap,
    ), lost_events


def _join_columns(columns: list[NDArray[Any]]) -> NDArray[Any]:
    joined = np.concatenate(columns)
    columns.clear()
    return joined


def read_done(chunk: Chunk, payload: bytes) -> tuple[Ints, Bools]:
    """Return (rows of completing ordinal and posting ordinal, which of them were cancelled)."""
    table = read_table(chunk, payload, 2)
    completing = read_ordinals(chunk, table[0])
    back = (table[1] >> np.uint64(1)).view(np.int64)
    posting = completing - back
    if len(posting) and posting.min() < 0:
        raise ValueError("a request was posted before the first event")
    return np.stack([completing, posting], axis=1), (table[1] & np.uint64(1)).astype(bool)


def read_ordinals(chunk: Chunk, coded: UInt64s) -> Ints:
    """Return the ordinals that are stored as steps from row to row."""
    steps = unzigzag(coded)
    far = max(-int(steps.min()), int(steps.max())) if len(steps) else 0
    if chunk.first > _MOST_ORDINAL or far > _MOST_ORDINAL:
        raise ValueError("an ordinal is impossible")
    ordinals: Ints = np.cumsum(steps) + np.int64(chunk.first)
    if len(ordinals) and ordinals.min() < 0:
        raise ValueError("an ordinal is negative")
    return ordinals


def read_resolved(chunk: Chunk, payload: bytes) -> Ints:
    """Return rows of event ordinal, source (world rank), tag and bytes."""
    table = read_table(chunk, payload, 4)
    ordinal = read_ordinals(chunk, table[0])
    return np.stack(
        [ordinal, unzigzag(table[1]), unzigzag(table[2]), table[3].view(np.int64)], axis=1
    )


def read_accesses(chunk: Chunk, payload: bytes) -> Ints:
    """Return rows of event ordinal, first byte in the file, and bytes from it to the last one."""
    table = read_table(chunk, payload, 3)
    ordinal = read_ordinals(chunk, table[0])
    return np.stack([ordinal, table[1].view(np.int64), table[2].view(np.int64)], axis=1)


def read_counts(chunk: Chunk, payload: bytes) -> dict[int, tuple[int, int, int]]:
    """Return call number -> (events, elapsed_ns, work) counted after the limit was reached."""
    dtype = np.dtype(layout.COUNT_FIELDS)
    if len(payload) % dtype.itemsize or chunk.first > 1 << 32:
        raise ValueError("a row of counts is cut off")
    table = np.frombuffer(payload, dtype=dtype)
    used = np.flatnonzero(table["events"])
    rows = table[used]
    return {
        chunk.first + number: (int(row["events"]), int(row["elapsed_ns"]), int(row["work"]))
        for number, row in zip(used.tolist(), rows, strict=True)
    }


def read_phases(payload: bytes) -> NDArray[np.void]:
    """Return the rows of a PHASES chunk (layout.PHASE_FIELDS); a row's number is its phase's."""
    dtype = np.dtype(layout.PHASE_FIELDS)
    if len(payload) % dtype.itemsize:
        raise ValueError("a row of phases is cut off")
    table = np.frombuffer(payload, dtype=dtype)
    numbers = np.array_equal(table["phase"], np.arange(len(table)))
    amounts = np.concatenate([table[name] for name in ("mean", "variance", "detailed_mean")])
    most = max(int(table[name].max(initial=0)) for name in ("turns", "measured", "left_out"))
    if not numbers or not np.isfinite(amounts).all() or most > _MOST_ORDINAL:
        raise ValueError("a row of phases is impossible")
    return table


def read_end(payload: bytes) -> EndRecord:
    """Return the END record; a longer one is of a later minor version, a shorter one lacks 0."""
    if len(payload) < layout.END_MIN_BYTES:
        raise ValueError("it is too short")
    size = layout.END_RECORD.size
    end = EndRecord(*layout.END_RECORD.unpack_from(payload.ljust(size, b"\0")))
    if len(payload) < size + layout.MEMORY.size:
        return end
    return replace(end, memory=layout.MEMORY.unpack_from(payload, size))


# ---- numbers of variable length ----
FLAGS = ("-O2", "-std=gnu11", "-fPIC", "-shared", "-w")
SOURCES = [Path(__file__).with_name("varint.c")]

_LONGEST_BYTES = 10
#: Bytes of a table from which on the compiled reader is worth looking for.
_LONG = 1 << 14
_TOO_LONG = ("a number of more than ten bytes", "a number of more than 64 bits")


@functools.cache
def _library() -> ctypes.CDLL | None:
    """Return the compiled reader, None where it did not come along and cannot be compiled."""
    name, use = "varint.so", "the reader of captures"
    try:
        path = compiling.taken(name, SOURCES, FLAGS) or compile_cached(
            name, SOURCES, FLAGS, compiler=c_compiler(use), what=use
        )
        lib = ctypes.CDLL(str(path))
    except (OSError, P3SError):
        return None
    lib.p3s_numbers.restype = ctypes.c_int64
    lib.p3s_numbers.argtypes = (ctypes.c_char_p, ctypes.c_int64)
    lib.p3s_columns.argtypes = (ctypes.c_char_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
    return lib


def decode(payload: bytes, columns: int) -> UInt64s:
    """Return the numbers of a table as an array of shape (columns, rows).

    Raises ValueError when the bytes end inside a number or a row, or hold a number of more than
    64 bits.
    """
    library = _library() if len(payload) >= _LONG and columns > 0 else None
    return _in_numpy(payload, columns) if library is None else _in_c(library, payload, columns)


def _in_c(library: ctypes.CDLL, payload: bytes, columns: int) -> UInt64s:
    numbers = library.p3s_numbers(payload, len(payload))
    if numbers < 0:
        raise ValueError("a number is cut off")
    if numbers % columns:
        raise ValueError("a row is cut off")
    out = np.empty((columns, numbers // columns), dtype=np.uint64)
    if bad := library.p3s_columns(payload, out.shape[1], columns, out.ctypes.data):
        raise ValueError(_TOO_LONG[bad - 1])
    return out


def _in_numpy(payload: bytes, columns: int) -> UInt64s:
    if columns < 1:
        raise ValueError("a table without columns")
    raw = np.frombuffer(payload, dtype=np.uint8)
    if not len(raw):
        return np.empty((columns, 0), dtype=np.uint64)
    ends = np.flatnonzero(raw < 0x80)
    if not len(ends) or ends[-1] != len(raw) - 1:
        raise ValueError("a number is cut off")
    if len(ends) % columns:
        raise ValueError("a row is cut off")
    starts = np.empty_like(ends)
    starts[0] = 0
    np.add(ends[:-1], 1, out=starts[1:])
    extra = ends - starts  # bytes after the first
    longest = int(extra.max())
    if longest >= _LONGEST_BYTES:
        raise ValueError("a number of more than ten bytes")
    seven = raw & 0x7F
    values = seven[starts].astype(np.uint64)
    more, at = np.flatnonzero(extra), starts
    for place in range(1, longest + 1):
        if place > 1:
            more = more[extra[more] >= place]
        at = starts[more] + place
        part = seven[at].astype(np.uint64)
        if place == _LONGEST_BYTES - 1 and (part > 1).any():
            raise ValueError("a number of more than 64 bits")
        values[more] |= part << np.uint64(7 * place)
    return np.ascontiguousarray(values.reshape(-1, columns).T)


def unzigzag(values: UInt64s) -> Ints:
    """Return the signed numbers: 0, 1, 2, 3, ... stand for 0, -1, 1, -2, ..."""
    one = np.uint64(1)
    signs = (values & one).view(np.int64)
    np.negative(signs, out=signs)
    shifted = (values >> one).view(np.int64)
    shifted ^= signs
    return shifted


def zigzag(values: Ints) -> UInt64s:
    """Return the unsigned numbers that stand for signed ones, as :func:`unzigzag` reads them."""
    return ((values << 1) ^ (values >> 63)).astype(np.int64).view(np.uint64)


def encode(table: UInt64s) -> tuple[NDArray[np.uint8], Ints]:
    """Return the bytes of a table of shape (rows, columns), and where each of its rows ends."""
    flat = np.ascontiguousarray(table, dtype=np.uint64).reshape(-1)
    size = np.ones(len(flat), dtype=np.int64)
    for place in range(1, _LONGEST_BYTES):
        size += flat >> np.uint64(7 * place) > 0
    end = np.cumsum(size)
    out = np.empty(int(end[-1]) if len(end) else 0, dtype=np.uint8)
    for place in range(int(size.max(initial=0))):
        longer = np.flatnonzero(size > place)
        seven = (flat[longer] >> np.uint64(7 * place)).astype(np.uint8) & 0x7F
        out[end[longer] - size[longer] + place] = seven | ((size[longer] > place + 1) << 7)
    return out, end.reshape(table.shape)[:, -1]
