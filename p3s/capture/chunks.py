"""The bytes of a capture file: header, numbers, chunks as far as their checksums hold."""

from __future__ import annotations

import errno
import os
import stat
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from p3s.base.errors import P3SError
from p3s.capture import layout


@dataclass(frozen=True)
class Header:
    """The first page of a capture file; ``in_call`` is 1 + the op id the rank was inside of.

    ``work_source`` is one of layout.WORK_UNITS; times are nanoseconds. ``failed_polls`` to
    ``paused_calls`` are live totals. ``run`` is the same for all ranks of one launch, of which
    the launcher started ``launched``. ``resident_init``, ``resident_peak``: bytes of memory in
    use at the end of MPI_Init, and at most before MPI_Finalize; ``preempted``: how often the
    thread lost its core between the two; ``program``: which of the launch; ``in_handlers``: calls
    in signal handlers, which are not recorded. 0 where that is not known.
    """

    rank: int
    size: int
    header_bytes: int
    init_realtime_ns: int
    init_monotonic_ns: int
    clock_cost_ns: int
    pid: int
    work_source: int
    counter_names: tuple[str, ...]
    family: str
    host: str
    mpi_version: str
    work_origin: str
    limit_bytes: int
    minor: int
    failed_polls: int
    failed_poll_ns: int
    in_call: int
    flags: int
    abort_code: int
    paused: bool
    paused_calls: int
    tracer_ns: int
    run: int = 0
    launched: int = 0
    resident_init: int = 0
    resident_peak: int = 0
    preempted: int = 0
    in_handlers: int = 0
    program: int = 0

    @property
    def resident_bytes(self) -> int:
        """Memory that the program itself filled after MPI_Init, at most; 0: not known."""
        both = self.resident_init and self.resident_peak
        return max(self.resident_peak - self.resident_init, 0) if both else 0

    @property
    def separate(self) -> bool:
        """Whether the ranks of the launch ran as programs of one rank each."""
        return self.size == 1 < self.launched

    @property
    def stopped_early(self) -> bool:
        """Whether recording ended because the file could not grow."""
        return bool(self.flags & layout.STOPPED_EARLY)

    @property
    def aborting(self) -> bool:
        """Whether the rank called MPI_Abort (with ``abort_code``)."""
        return bool(self.flags & layout.ABORTING)

    @property
    def limited(self) -> bool:
        """Whether the limit was reached: later events are only counted."""
        return bool(self.flags & layout.LIMITED)

    @property
    def file_key(self) -> int:
        """What every chunk of this file carries."""
        return (self.pid ^ self.init_monotonic_ns) & 0xFFFFFFFF

    @property
    def work_unit(self) -> str:
        """Unit of the work between calls."""
        return layout.WORK_UNITS[self.work_source]


@dataclass(frozen=True, slots=True)
class Chunk:
    """A chunk header and where it is in the file (see docs/capture-format.md), in its order."""

    offset: int
    kind: int
    version: int
    rank: int
    sequence: int
    capacity: int
    columns: int
    first: int
    base_ns: int
    file_key: int
    used: int
    crc: int
    count: int
    sealed: bool


@dataclass(frozen=True)
class Damage:
    """Something in the file that cannot be used: where, and what it is.

    ``whole``: all of the chunk at ``offset`` cannot be used.
    """

    offset: int
    what: str
    whole: bool = True


def _text(raw: bytes) -> str:
    return raw.split(b"\0", 1)[0].decode("utf-8", "replace")


def open_capture(path: Path) -> int:
    """Open a capture file for reading; raises OSError for what is not a plain file, at once."""
    # Without O_NONBLOCK a pipe of that name would wait for somebody to write into it.
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "is not a plain file", str(path))
    return handle


def read_header(path: Path) -> Header:
    """Read the header of a capture file.

    Raises P3SError if the file cannot be read, is no capture, is of another major version, or
    if its checksum does not fit.
    """
    try:
        with open(open_capture(path), "rb") as file:
            raw = file.read(layout.HEADER_READ_BYTES)
    except OSError as error:
        raise P3SError(f"{path}: {error.strerror}") from error
    return parse_header(raw, path)


def parse_header(raw: bytes, path: Path) -> Header:
    """Return the header in the first bytes of a file; raises P3SError as read_header does."""
    if not raw.startswith(layout.MAGIC):
        problem = "is empty" if not raw.strip(b"\0") else "is not a P3S capture file"
        raise P3SError(f"{path} {problem}; trace the run again")
    if len(raw) >= 12:
        major, minor = int.from_bytes(raw[8:10], "little"), int.from_bytes(raw[10:12], "little")
        if major != layout.MAJOR:
            version = f"{major}.{minor}" if major > 1 else str(major)
            raise P3SError(
                f"{path} has capture version {version}, this P3S reads version {layout.MAJOR};"
                " trace again with this P3S"
            )
    if len(raw) < layout.HEADER_MIN_BYTES:
        raise P3SError(f"{path} is cut off inside its header; trace the run again")
    if zlib.crc32(raw[: layout.HEADER_CRC_BYTES]) != int.from_bytes(raw[508:512], "little"):
        raise P3SError(
            f"{path} has a damaged header (its checksum does not fit); `p3s recover` saves what is"
            " intact"
        )
    return _header(raw, path)


def _header(raw: bytes, path: Path) -> Header:
    of = header_fields(raw)
    totals = layout.TOTALS.unpack_from(raw, layout.TOTALS_OFFSET)
    of |= zip(layout.TOTALS_NAMES, totals, strict=True)
    rank, size, header_bytes, counters = (
        of[name] for name in ("rank", "size", "header_bytes", "counters")
    )
    if size > layout.MAX_RANKS:
        raise P3SError(
            f"{path} has an impossible header: it says {size:,} ranks, at most"
            f" {layout.MAX_RANKS:,} can be traced; trace the run again"
        )
    if (
        size < 1
        or not 0 <= rank < size
        or header_bytes < layout.PAGE_BYTES
        or header_bytes % layout.PAGE_BYTES
        or of["work_source"] not in layout.WORK_UNITS
        or counters > layout.MAX_COUNTERS
    ):
        raise P3SError(f"{path} has an impossible header; trace the run again")
    width, names = layout.COUNTER_NAME_BYTES, of["counter_names"]
    of["counter_names"] = tuple(_text(names[width * i : width * (i + 1)]) for i in range(counters))
    of |= {name: _text(of[name]) for name in ("family", "host", "mpi_version", "work_origin")}
    of |= {name: max(of[name], 0) for name in ("failed_poll_ns", "tracer_ns")}
    of |= {"paused": bool(of["paused"]), "program": int.from_bytes(of["more"][:4], "little")}
    of |= zip(_MEMORY, _memory(raw, of["minor"]), strict=True)
    return Header(**{each.name: of[each.name] for each in fields(Header)})


def header_fields(raw: bytes) -> dict[str, Any]:
    """Return the fields of a header as they stand in the first bytes of a file."""
    return dict(zip(layout.HEADER_NAMES, layout.HEADER.unpack_from(raw), strict=True))


def header_page(values: Mapping[str, Any], totals: bytes, memory: bytes = b"") -> bytes:
    """Return the first page of a file; ``values``: fields of its header, others are 0 or empty."""
    fields = {**header_fields(bytes(layout.HEADER.size)), **values}
    head = layout.HEADER.pack(*fields.values())[: layout.HEADER_CRC_BYTES]
    page = head + zlib.crc32(head).to_bytes(4, "little") + totals
    return (page.ljust(layout.MEMORY_OFFSET, b"\0") + memory).ljust(layout.PAGE_BYTES, b"\0")


_MEMORY = ("resident_init", "resident_peak", "preempted", "in_handlers")


def _memory(raw: bytes, minor: int) -> tuple[int, int, int, int]:
    """Return resident_init to in_handlers, 0 in files that are older than these."""
    if minor < layout.MEMORY_MINOR or len(raw) < layout.HEADER_READ_BYTES:
        return 0, 0, 0, 0
    init, peak, preempted = layout.MEMORY.unpack_from(raw, layout.MEMORY_OFFSET)
    handlers = int.from_bytes(raw[layout.HANDLERS_OFFSET : layout.HANDLERS_OFFSET + 8], "little")
    most = (min(preempted, _MOST), min(handlers, _MOST))
    return plausible_memory(init), plausible_memory(peak), *most


#: More than this is damage: live totals are under no checksum.
_MOST = 1 << 56


def plausible_memory(number: int) -> int:
    """Return a number of bytes, 0 where no machine has as much."""
    return number if number < _MOST else 0


def _parse_chunk(raw: bytes, offset: int) -> Chunk | None:
    """Return the chunk whose 64 header bytes are given, None if they are not one."""
    if len(raw) < layout.CHUNK_BYTES:
        return None
    magic, *numbers, crc, state, count, sealed = layout.CHUNK.unpack_from(raw)
    if magic != layout.CHUNK_MAGIC or zlib.crc32(raw[: layout.CHUNK_CRC_BYTES]) != crc:
        return None
    values: list[Any] = [offset, *numbers, state & 0xFFFFFFFF, state >> 32, count, bool(sealed)]
    chunk = Chunk(*values)
    whole_pages = chunk.capacity >= layout.PAGE_BYTES and not chunk.capacity % layout.PAGE_BYTES
    return chunk if whole_pages else None


def chunk_bytes(chunk: Chunk, payload: bytes) -> bytes:
    """Return a chunk as a file has it, in as few pages as it fits into, wherever it was before."""
    capacity = -(-(layout.CHUNK_BYTES + len(payload)) // layout.PAGE_BYTES) * layout.PAGE_BYTES
    fields = [layout.CHUNK_MAGIC, chunk.kind, chunk.version, chunk.rank, chunk.sequence, capacity]
    fields += [chunk.columns, chunk.first, chunk.base_ns, chunk.file_key]
    crc = zlib.crc32(layout.CHUNK.pack(*fields, 0, 0, 0, 0)[: layout.CHUNK_CRC_BYTES])
    state = chunk.used | chunk.crc << 32
    head = layout.CHUNK.pack(*fields, crc, state, chunk.count, int(chunk.sealed))
    return (head + payload).ljust(capacity, b"\0")


@dataclass
class Scan:
    """One pass over the chunks of an open file, in file order.

    ``rank`` and ``file_key`` are those every chunk must carry; None takes those of the first
    good chunk. After the pass ``damages`` tells what could not be used. Nothing larger than the
    file is ever allocated.
    """

    handle: int
    size: int
    start: int
    rank: int | None = None
    file_key: int | None = None
    damages: list[Damage] = field(default_factory=list)
    chunks: int = 0

    def __iter__(self) -> Iterator[tuple[Chunk, bytes]]:
        """Yield each good chunk with the bytes that are used in it."""
        at, torn, last, explained = self.start, -1, -1, False
        while at < self.size:
            raw = os.pread(self.handle, layout.CHUNK_BYTES, at)
            chunk = _parse_chunk(raw, at)
            if chunk is None or not self._belongs(chunk):
                if raw[:4] == b"\0\0\0\0":
                    at = self._after_hole(at)  # space that was never published as a chunk
                    continue
                if torn < 0:
                    torn = at
                at += layout.PAGE_BYTES
                continue
            if torn >= 0:
                self.damages.append(Damage(torn, "what stands there is no chunk"))
                torn, explained = -1, True
            if chunk.sequence <= last or (chunk.sequence > last + 1 and not explained):
                self._gap(chunk, last)
            explained = False
            if chunk.sequence > last:
                last = chunk.sequence
                payload = self._payload(chunk)
                if payload is not None:
                    self.chunks += 1
                    yield chunk, payload
            at += chunk.capacity
        if torn >= 0:
            self.damages.append(Damage(torn, "what stands there is no chunk"))

    def _belongs(self, chunk: Chunk) -> bool:
        if self.rank is None:
            self.rank = chunk.rank
        if self.file_key is None:
            self.file_key = chunk.file_key
        return chunk.rank == self.rank and chunk.file_key == self.file_key

    def _after_hole(self, at: int) -> int:
        """Return the next place where a chunk can be; holes of a sparse file are jumped over."""
        at += layout.PAGE_BYTES
        if at >= self.size:
            return at
        try:
            data = os.lseek(self.handle, at, os.SEEK_DATA)
        except OSError:  # nothing but a hole is left, or the file system cannot tell
            return self.size if _only_hole(self.handle, at) else at
        return max(at, data // layout.PAGE_BYTES * layout.PAGE_BYTES)

    def _gap(self, chunk: Chunk, last: int) -> None:
        if chunk.sequence <= last:
            self.damages.append(Damage(chunk.offset, f"chunk {chunk.sequence} is there again"))
        else:
            missing = chunk.sequence - last - 1
            missing_chunks = "the chunk" if missing == 1 else f"{missing} chunks"
            self.damages.append(Damage(chunk.offset, f"{missing_chunks} before it lost", False))

    def _payload(self, chunk: Chunk) -> bytes | None:
        room = min(chunk.capacity, self.size - chunk.offset) - layout.CHUNK_BYTES
        name = layout.KIND_NAMES.get(chunk.kind, "unknown")
        if chunk.used > room:
            cut = chunk.used <= chunk.capacity - layout.CHUNK_BYTES
            problem = "is cut off" if cut else "says more than it can hold"
            self.damages.append(Damage(chunk.offset, f"a chunk of {name} {problem}"))
            return None
        payload = os.pread(self.handle, chunk.used, chunk.offset + layout.CHUNK_BYTES)
        kind_known = chunk.kind in layout.KIND_NAMES
        checked = chunk.sealed or (kind_known and chunk.kind not in layout.IN_PLACE)
        if len(payload) < chunk.used or (checked and zlib.crc32(payload) != chunk.crc):
            self.damages.append(Damage(chunk.offset, f"the checksum of a chunk of {name}"))
            return None
        versions = (layout.CHUNK_VERSION, layout.GAP_VERSION)[: 1 + (chunk.kind == layout.EVENTS)]
        if kind_known and chunk.version not in versions:
            self.damages.append(
                Damage(chunk.offset, f"a chunk of {name} of a later version ({chunk.version})")
            )
            return None
        return payload


def _only_hole(handle: int, at: int) -> bool:
    try:
        os.lseek(handle, at, os.SEEK_DATA)
    except OSError as error:
        return error.errno == errno.ENXIO
    return False
