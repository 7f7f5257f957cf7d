"""The definitions of a capture (chunks of kind DEFS): names, sites, communicators, calls."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from p3s.base.arrays import Bools
from p3s.capture import layout
from p3s.capture.chunks import Chunk
from p3s.capture.threads import Runtime, ThreadInfo, read_runtime, read_thread

#: The rank beyond the edge of a grid.
PROC_NULL = -3
#: Value of a call's window where there is none.
NO_WINDOW = -1
# A CALL of this version with its record head; stretches of them are read as one table.
_CALL_BYTES = layout.RECORD_HEAD.size + layout.CALL_PAYLOAD_BYTES
_CALL_HEAD = layout.RECORD_HEAD.pack(layout.CALL, layout.CALL_PAYLOAD_BYTES)


@dataclass(frozen=True)
class RawSite:
    """A SITE record."""

    key: int
    frames: tuple[str, ...]


@dataclass(frozen=True)
class RawComm:
    """A COMM record; ids are this rank's own."""

    id: int
    parent: int
    inter: bool
    members: tuple[int, ...]
    dims: tuple[int, ...] | None
    periods: tuple[bool, ...] | None
    op: str


@dataclass(frozen=True)
class RawWindow:
    """A WINDOW record: a window (kind 1) or a file (kind 2) made by ``op`` on ``comm``."""

    id: int
    comm: int
    kind: int
    op: str


@dataclass(frozen=True)
class Neighbours:
    """World ranks that a rank sends to and receives from in neighbourhood collectives, in order.

    -3 (MPI_PROC_NULL) beyond the edge of a grid.
    """

    destinations: tuple[int, ...]
    sources: tuple[int, ...]


@dataclass
class Definitions:
    """What the DEFS chunks of one rank say; what a lost chunk said stays open.

    ``sites`` holds None, and ``calls`` rows for which ``known`` is False, where a chunk is lost
    or a call refers to what is not there. ``limit_bytes`` (the size of the file) bounds them.
    """

    size: int
    limit_bytes: int
    opnames: dict[int, str] = field(default_factory=dict)
    sites: list[RawSite | None] = field(default_factory=list)
    comms: list[RawComm] = field(default_factory=list)
    windows: list[RawWindow] = field(default_factory=list)
    files: dict[int, FileName] = field(default_factory=dict)
    runtime: Runtime | None = None
    threads: list[ThreadInfo] = field(default_factory=list)
    numbers: dict[int, tuple[int, ...]] = field(default_factory=dict)
    neighbours: dict[int, Neighbours] = field(default_factory=dict)
    records: int = 0
    lost: bool = False
    _tables: list[NDArray[Any]] = field(default_factory=list)
    _calls: int = 0
    _gaps: list[tuple[int, int]] = field(default_factory=list)

    def add(self, chunk: Chunk, payload: bytes) -> None:
        """Take one chunk; raises ValueError at a record that cannot be what it says."""
        self._fit(chunk)
        at = 0
        while at < len(payload):
            if payload.startswith(_CALL_HEAD, at):
                at += _CALL_BYTES * self._stretch(payload, at)
                continue
            if at + layout.RECORD_HEAD.size > len(payload):
                raise ValueError("a record is cut off")
            kind, length = layout.RECORD_HEAD.unpack_from(payload, at)
            at += layout.RECORD_HEAD.size
            if at + length > len(payload):
                raise ValueError("a record is cut off")
            self._record(kind, payload[at : at + length])
            self.records += 1
            at += (length + 7) // 8 * 8

    def _fit(self, chunk: Chunk) -> None:
        """Leave room for what lost chunks before this one said."""
        if chunk.first < self._calls or chunk.base_ns < len(self.sites):
            raise ValueError("its numbers are taken")
        # Every call and site takes at least this room in the file.
        if chunk.first * _CALL_BYTES > self.limit_bytes or chunk.base_ns * 24 > self.limit_bytes:
            raise ValueError("its numbers are impossible")
        if chunk.first > self._calls:
            self._gaps.append((self._calls, chunk.first - self._calls))
            self._push(b"\0" * (layout.WHOLE_CALL_BYTES * (chunk.first - self._calls)))
            self.lost = True
        if chunk.base_ns > len(self.sites):
            self.sites += [None] * (chunk.base_ns - len(self.sites))
            self.lost = True

    def _push(self, payloads: bytes) -> None:
        table = np.frombuffer(payloads, dtype=np.dtype(layout.CALL_FIELDS))
        self._tables.append(table)
        self._calls += len(table)

    def _stretch(self, payload: bytes, at: int) -> int:
        """Take the CALL records that stand at ``at`` in a row; return how many."""
        most = (len(payload) - at) // _CALL_BYTES
        if not most:
            raise ValueError("a record is cut off")
        words = np.frombuffer(payload, dtype="<u8", count=most * _CALL_BYTES // 8, offset=at)
        table = words.reshape(most, _CALL_BYTES // 8)
        same = table[:, 0] == table[0, 0]
        count = most if same.all() else int(np.argmin(same))
        rows = np.zeros((count, layout.WHOLE_CALL_BYTES // 4), dtype="<u4")
        short = layout.CALL_PAYLOAD_BYTES // 4
        rows[:, :short] = np.ascontiguousarray(table[:count, 1:]).view("<u4")
        self._push(rows.tobytes())
        self.records += count
        return count

    def _record(self, kind: int, payload: bytes) -> None:
        try:
            if kind == layout.OPNAME:
                (number,) = struct.unpack_from("<I", payload)
                self.opnames[number] = _name(payload[4:])
            elif kind == layout.SITE:
                self._site(payload)
            elif kind == layout.COMM:
                self.comms.append(_comm(self.size, payload))
            elif kind == layout.CALL:  # of a later minor version, with more fields
                if len(payload) < layout.CALL_PAYLOAD_BYTES:
                    raise ValueError("a call is too short")
                whole = payload[: layout.WHOLE_CALL_BYTES]
                self._push(whole.ljust(layout.WHOLE_CALL_BYTES, b"\0"))
            elif kind == layout.WINDOW:
                number, comm, window_kind = struct.unpack_from("<iiI", payload)
                op = _name(payload[12:])
                self.windows.append(RawWindow(number, comm, window_kind, op))
            elif kind == layout.FILE:
                number, name = read_file_name(payload)
                self.files[number] = name
            elif kind == layout.RUNTIME:
                self.runtime = read_runtime(payload)
            elif kind == layout.THREAD:
                self.threads.append(read_thread(payload))
            elif kind == layout.NUMBERS:
                number, count = struct.unpack_from("<II", payload)
                self.numbers[number] = struct.unpack_from(f"<{count}q", payload, 8)
            elif kind == layout.NEIGHBOURS:
                self._neighbours(payload)
        except (struct.error, UnicodeDecodeError) as error:
            raise ValueError("a record cannot be what it says") from error

    def _site(self, payload: bytes) -> None:
        number, frames, key = struct.unpack_from("<IIQ", payload)
        parts = payload[16:].split(b"\0")[:-1]
        if number != len(self.sites) or frames != len(parts):
            raise ValueError("a site has another number or other frames than it says")
        texts = tuple(part.decode("utf-8", "replace") for part in parts)
        self.sites.append(RawSite(key, texts))

    def _neighbours(self, payload: bytes) -> None:
        comm, out, into = struct.unpack_from("<3i", payload)
        if min(out, into) < 0:
            raise ValueError("a number of neighbours is impossible")
        ranks = struct.unpack_from(f"<{out + into}i", payload, 12)
        if any(not PROC_NULL <= rank < self.size for rank in ranks):
            raise ValueError("a neighbour is a rank that is not there")
        self.neighbours[comm] = Neighbours(ranks[:out], ranks[out:])

    def calls(self) -> tuple[NDArray[Any], Bools]:
        """Return (the CALL table, which of its rows can be used)."""
        dtype = np.dtype(layout.CALL_FIELDS)
        table = np.concatenate(self._tables) if self._tables else np.empty(0, dtype=dtype)
        usable = np.isin(table["op"], np.array(sorted(self.opnames), dtype=np.int64))
        site_known = np.array([site is not None for site in self.sites] + [False], dtype=bool)
        usable &= site_known[np.minimum(table["site"], len(self.sites)).astype(np.int64)]
        usable &= np.isin(table["comm"], np.array([c.id for c in self.comms] + [-1]))
        windows = np.array([w.id for w in self.windows] + [NO_WINDOW])
        usable &= np.isin(table["window"], windows)
        for name in ("peer", "root"):
            usable &= (table[name] >= -3) & (table[name] < self.size)
        usable &= (table["bytes"] >= 0) & (table["count"] >= 0)
        usable &= np.isin(table["numbers"], np.array([0, *self.numbers]))
        for first, count in self._gaps:
            usable[first : first + count] = False
        return table, usable


def _name(raw: bytes) -> str:
    """Return the name of an MPI call; control characters have no place in it."""
    name = raw.rstrip(b"\0").decode("ascii")
    if not name.isprintable():
        raise ValueError("a name is not printable")
    return name


def _comm(size: int, payload: bytes) -> RawComm:
    number, parent, inter, count, ndims, name_bytes = struct.unpack_from("<6i", payload)
    if min(count, ndims, name_bytes) < 0 or 24 + 4 * (count + 3 * ndims) + name_bytes > len(
        payload
    ):
        raise ValueError("a communicator's sizes do not fit")
    values = struct.unpack_from(f"<{count + 3 * ndims}i", payload, 24)
    members = values[:count]
    if any(not -1 <= member < size for member in members):
        raise ValueError("a communicator has a rank that is not there")
    start = 24 + 4 * len(values)
    op = _name(payload[start : start + name_bytes])
    dims = values[count : count + ndims] if ndims else None
    periods = tuple(bool(v) for v in values[count + ndims : count + 2 * ndims]) if ndims else None
    return RawComm(number, parent, bool(inter), members, dims, periods, op)


@dataclass(frozen=True)
class FileName:
    """A file: a hash of its name, and of the name without the number of the rank in it.

    ``mode``: as MPI_File_open was given it, 0 of files of the C library; ``hints``: those of MPI
    that decide how a collective call reaches the file system.
    """

    key: int
    family: int
    mode: int = 0
    hints: Mapping[str, str] = field(default_factory=dict)


def read_file_name(payload: bytes) -> tuple[int, FileName]:
    """Return the window's number in a FILE record, and the file."""
    window, mode, key, family = layout.FILE_RECORD.unpack_from(payload)
    text = payload[layout.FILE_RECORD.size :].decode("utf-8", "replace")
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line)
    return window, FileName(key, family, mode, {name: value for name, _, value in pairs})
