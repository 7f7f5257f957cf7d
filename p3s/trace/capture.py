"""Reads one rank's capture file (.p3t, see docs/capture-format.md)."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from p3s.errors import P3SError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MAGIC = b"P3STRACE"
VERSION = 1
NAME = "rank-{:06d}.p3t"

OPNAME, SITE, COMM, CALL, EVENT, RESOLVED, END = range(1, 8)

_HEADER = struct.Struct("<8sIIiiqqqqQqII16s64sqi")
_MAX_RANKS = 1 << 16  # P3S traces small runs; more is damage
# CALL, EVENT and RESOLVED have the same size, so that stretches of them are found at once.
_ROW_WORDS = 5  # one word of kind and length, four of payload

#: Columns of the fixed-size records.
CALL_FIELDS = [
    ("op", "<u2"), ("elem_bytes", "<u2"), ("site", "<u4"), ("comm", "<i4"), ("peer", "<i4"),
    ("tag", "<i4"), ("root", "<i4"), ("bytes", "<i8"),
]  # fmt: skip
EVENT_FIELDS = [
    ("call", "<u4"), ("thread", "<u4"), ("start_ns", "<i8"), ("elapsed_ns", "<i8"),
    ("work_ns", "<i8"),
]  # fmt: skip
RESOLVED_FIELDS = [
    ("ordinal", "<u8"), ("source", "<i4"), ("tag", "<i4"), ("bytes", "<i8"), ("reserved", "<i8"),
]  # fmt: skip


@dataclass(frozen=True)
class Header:
    """The first page of a capture file; ``in_call`` is 1 + the op id the rank was inside of."""

    rank: int
    size: int
    init_realtime_ns: int
    init_monotonic_ns: int
    cpu_resolution_ns: int
    pid: int
    failed_polls: int
    failed_poll_ns: int
    in_call: int
    stopped_early: bool
    aborting: bool
    abort_code: int
    family: str
    host: str
    cpu_read_ns: int
    header_bytes: int


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


@dataclass
class Capture:
    """Everything one rank recorded; arrays are structured (see the *_FIELDS above)."""

    path: Path
    header: Header
    opnames: dict[int, str] = field(default_factory=dict)
    sites: list[RawSite] = field(default_factory=list)
    comms: list[RawComm] = field(default_factory=list)
    calls: NDArray[Any] = field(default_factory=lambda: _empty(CALL_FIELDS))
    events: NDArray[Any] = field(default_factory=lambda: _empty(EVENT_FIELDS))
    resolved: NDArray[Any] = field(default_factory=lambda: _empty(RESOLVED_FIELDS))
    events_at_end: int | None = None  # what MPI_Finalize wrote; None if it was not reached
    checksum_at_end: int | None = None  # None also in captures of earlier tracers
    damaged_at: int | None = None
    altered: bool = False  # reads well, but is not what the tracer wrote

    @property
    def complete(self) -> bool:
        """Whether the rank reached MPI_Finalize and nothing of its events is missing."""
        return not self.problem

    @property
    def problem(self) -> str:
        """What is wrong with the file, as the end of a sentence; empty if it is complete."""
        if self.damaged_at is not None:
            return f"is damaged at byte {self.damaged_at}"
        if self.events_at_end is None:
            return "ends before MPI_Finalize"
        if self.events_at_end != len(self.events):
            return f"is damaged: it has {len(self.events)} of {self.events_at_end} events"
        if self.altered:
            return "is damaged: its checksum does not fit"
        return ""


def _empty(fields: list[tuple[str, str]]) -> NDArray[Any]:
    import numpy as np

    return np.empty(0, dtype=fields)


def _text(raw: bytes) -> str:
    return raw.split(b"\0", 1)[0].decode("utf-8", "replace")


def read_header(path: Path) -> Header:
    """Read the header of a capture file.

    Raises P3SError if the file cannot be read, is no capture, or is of another version.
    """
    try:
        with open(path, "rb") as file:
            raw = file.read(_HEADER.size)
    except OSError as error:
        raise P3SError(f"{path}: {error.strerror}") from error
    if len(raw) < _HEADER.size or not raw.startswith(MAGIC):
        what = "is empty" if not raw.strip(b"\0") else "is not a P3S capture file"
        raise P3SError(f"{path} {what}; trace the run again")
    (_, version, header_bytes, rank, size, realtime, monotonic, resolution, pid, polls, poll_ns,
     in_call, flags, family, host, cpu_read, abort_code) = _HEADER.unpack(raw)  # fmt: skip
    if version != VERSION:
        raise P3SError(
            f"{path} has capture version {version}, this P3S reads version {VERSION}; trace the"
            " run again with this P3S"
        )
    if (
        not 1 <= size <= _MAX_RANKS
        or not 0 <= rank < size
        or header_bytes < _HEADER.size
        or header_bytes % 8
    ):
        raise P3SError(f"{path} has a damaged header; trace the run again")
    return Header(
        rank, size, realtime, monotonic, resolution, pid, polls, max(poll_ns, 0), in_call,
        bool(flags & 1), bool(flags & 2), abort_code, _text(family), _text(host),
        cpu_read, header_bytes,
    )  # fmt: skip


def _fixed_run(words: NDArray[np.uint64], heads: NDArray[np.uint64]) -> int:
    """Return how many 40-byte rows at the start of ``words`` are fixed-size records."""
    import numpy as np

    rows, window = len(words) // _ROW_WORDS, 64
    done = 0
    while done < rows:
        part = words[_ROW_WORDS * done : _ROW_WORDS * min(done + window, rows) : _ROW_WORDS]
        fixed = (part == heads[0]) | (part == heads[1]) | (part == heads[2])
        if not fixed.all():
            return done + int(np.argmin(fixed))
        done += len(part)
        window *= 4
    return rows


def read_capture(path: Path) -> Capture:
    """Read one rank's file up to its end or to the first record that is torn or impossible.

    Raises P3SError as read_header does; damage after the header never raises: what precedes it
    is returned and ``damaged_at`` is the file offset.
    """
    import numpy as np

    header = read_header(path)
    capture = Capture(path, header)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise P3SError(f"{path}: {error.strerror}") from error
    body = memoryview(data)[header.header_bytes :]
    words = np.frombuffer(body[: len(body) // 8 * 8], dtype="<u8")
    heads = np.array([kind | 32 << 32 for kind in (EVENT, CALL, RESOLVED)], dtype=np.uint64)
    runs: list[NDArray[np.uint64]] = []
    at = 0  # in words
    while at < len(words):
        count = _fixed_run(words[at:], heads)
        if count:
            runs.append(words[at : at + _ROW_WORDS * count].reshape(count, _ROW_WORDS))
            at += _ROW_WORDS * count
            continue
        word = int(words[at])
        kind, length = word & 0xFFFFFFFF, word >> 32
        if kind == 0:
            break  # the end: nothing was stored here
        end = at + 1 + (length + 7) // 8
        if end > len(words):
            capture.damaged_at = header.header_bytes + 8 * at
            break
        payload = bytes(body[8 * at + 8 : 8 * at + 8 + length])
        if not _variable(capture, kind, payload):
            capture.damaged_at = header.header_bytes + 8 * at
            break
        if kind == END:
            capture.altered = not _as_written(capture, data, header.header_bytes + 8 * at)
            # Nothing follows; what stands there all the same was not written by the tracer.
            if words[end:].any() or any(body[len(words) * 8 :]):
                capture.damaged_at = header.header_bytes + 8 * end
            break
        at = end
    rows = np.concatenate(runs) if runs else np.empty((0, _ROW_WORDS), dtype=np.uint64)
    kinds = (rows[:, 0] & 0xFFFFFFFF).astype(np.int64)
    for kind, name, fields in (
        (CALL, "calls", CALL_FIELDS),
        (EVENT, "events", EVENT_FIELDS),
        (RESOLVED, "resolved", RESOLVED_FIELDS),
    ):
        chosen = np.ascontiguousarray(rows[kinds == kind, 1:])
        setattr(capture, name, chosen.view(np.dtype(fields)).reshape(-1))
    _drop_impossible(capture)
    return capture


def _mixed(data: bytes, start: int, stop: int) -> int:
    """Return the checksum of the words from ``start`` up to ``stop`` (offsets in the file)."""
    import numpy as np

    total, step = 0, 1 << 21  # in pieces: the whole of a long capture would be held many times
    for begin in range(start, stop, step):
        count = (min(begin + step, stop) - begin) // 8
        x = np.frombuffer(data, dtype="<u8", count=count, offset=begin).astype(np.uint64)
        places = np.arange(count, dtype=np.uint64) * np.uint64(8) + np.uint64(begin)
        x += places * np.uint64(0x9E3779B97F4A7C15)
        x ^= x >> np.uint64(31)
        x *= np.uint64(0x9E3779B97F4A7C15)
        x ^= x >> np.uint64(29)
        x *= np.uint64(0xBF58476D1CE4E5B9)
        x ^= x >> np.uint64(32)
        total += int(x.sum(dtype=np.uint64))
    return total % (1 << 64)


def _as_written(capture: Capture, data: bytes, end: int) -> bool:
    """Compare a file whose END record is at ``end`` with the checksum in it, if there is one."""
    if capture.checksum_at_end is None:
        return True
    # Not the live totals of the header.
    parts = ((0, 56), (80, 168), (capture.header.header_bytes, end))
    return sum(_mixed(data, *part) for part in parts) % (1 << 64) == capture.checksum_at_end


def _variable(capture: Capture, kind: int, payload: bytes) -> bool:
    """Take one record of variable size; False if it cannot be what it says."""
    try:
        if kind == OPNAME:
            (number,) = struct.unpack_from("<I", payload)
            capture.opnames[number] = payload[4:].decode("ascii")
        elif kind == SITE:
            number, frames, key = struct.unpack_from("<IIQ", payload)
            parts = payload[16:].split(b"\0")[:-1]
            if number != len(capture.sites) or frames != len(parts):
                return False
            texts = tuple(part.decode("utf-8", "replace") for part in parts)
            capture.sites.append(RawSite(key, texts))
        elif kind == COMM:
            capture.comms.append(_comm(capture.header, payload))
        elif kind == END:
            (capture.events_at_end,) = struct.unpack_from("<Q", payload)
            if len(payload) >= 16:
                (capture.checksum_at_end,) = struct.unpack_from("<Q", payload, 8)
        elif kind in (CALL, EVENT, RESOLVED):
            return False  # of another size than this version writes
    except (struct.error, UnicodeDecodeError, ValueError):
        return False
    return True  # kinds of later versions are passed over


def _comm(header: Header, payload: bytes) -> RawComm:
    number, parent, inter, count, ndims, name_bytes = struct.unpack_from("<6i", payload)
    if min(count, ndims, name_bytes) < 0 or 24 + 4 * (count + 3 * ndims) + name_bytes > len(
        payload
    ):
        raise ValueError("sizes do not fit")
    values = struct.unpack_from(f"<{count + 3 * ndims}i", payload, 24)
    members = values[:count]
    if any(not -1 <= member < header.size for member in members):
        raise ValueError("no such rank")
    start = 24 + 4 * len(values)
    op = payload[start : start + name_bytes].decode("ascii")
    dims = values[count : count + ndims] if ndims else None
    periods = tuple(bool(v) for v in values[count + ndims : count + 2 * ndims]) if ndims else None
    return RawComm(number, parent, bool(inter), members, dims, periods, op)


def _drop_impossible(capture: Capture) -> None:
    """Cut the events at the first one that refers to what was never recorded."""
    import numpy as np

    calls = capture.calls
    comm_ids = np.array([comm.id for comm in capture.comms] + [-1], dtype=np.int64)
    known_ops = np.array(sorted(capture.opnames), dtype=np.int64)
    size = capture.header.size
    good = np.isin(calls["op"], known_ops) & np.isin(calls["comm"], comm_ids)
    good &= calls["site"] < len(capture.sites)
    for name in ("peer", "root"):
        good &= (calls[name] >= -3) & (calls[name] < size)
    good &= calls["bytes"] >= 0
    numbers = capture.events["call"]
    bad = numbers >= len(calls)
    if len(calls):
        bad |= ~good[np.minimum(numbers, len(calls) - 1)]
    bad |= (capture.events["elapsed_ns"] < 0) | (capture.events["work_ns"] < 0)
    if bad.any():
        capture.events = capture.events[: int(np.argmax(bad))]
        if capture.damaged_at is None:
            capture.damaged_at = capture.header.header_bytes
    inside = capture.resolved["ordinal"] < len(capture.events)
    inside &= (capture.resolved["source"] >= -3) & (capture.resolved["source"] < size)
    capture.resolved = capture.resolved[inside]
    # Calls that no event refers to must still be safe to look at.
    if not good.all():
        calls = calls.copy()
        calls["site"][~good] = 0
        calls["comm"][~good] = -1
        calls["op"][~good] = known_ops[0] if len(known_ops) else 0
        capture.calls = calls
