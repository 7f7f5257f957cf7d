"""Writes captures of ranks whose events are known from elsewhere (docs/capture-format.md)."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from p3s.base.arrays import Bools, Ints
from p3s.base.artefacts import write_bytes
from p3s.capture import layout
from p3s.capture.chunks import Chunk, chunk_bytes, header_page
from p3s.capture.events import encode, zigzag
from p3s.capture.records import RawComm, RawSite
from p3s.capture.types import Call

#: Bytes of a chunk with its head, unless one record is longer.
_CHUNK = 1 << 16
_RECORD_ALIGN = 8


@dataclass(frozen=True)
class Written:
    """The events of one rank, to be written.

    ``calls``: those of one rank, ``site`` indexes ``sites``, ``comm`` is the id of one of
    ``comms``; ``threads`` beside them. ``call``, ``start_ns``, ``elapsed_ns``, ``work`` (wall
    time), ``done``, ``cancelled``: as in RankTrace. ``origin`` says what the work was measured
    with; ``began_ns``: CLOCK_REALTIME at the end of MPI_Init, 0 if not known; ``run``: the same
    for all ranks.
    """

    rank: int
    size: int
    sites: Sequence[RawSite]
    comms: Sequence[RawComm]
    calls: Sequence[Call]
    threads: Sequence[int]
    call: Ints
    start_ns: Ints
    elapsed_ns: Ints
    work: Ints
    done: Ints
    cancelled: Bools
    failed_polls: int = 0
    failed_poll_ns: int = 0
    host: str = ""
    origin: str = ""
    began_ns: int = 0
    run: int = 0


def write_rank(directory: Path, rank: Written) -> Path:
    """Write the capture of one rank that has reached MPI_Finalize; return its path."""
    file = _File(rank)
    records = file.definitions()
    file.events()
    file.completions()
    file.end(records)
    path = directory / layout.NAME.format(rank.rank)
    write_bytes(path, b"".join(file.parts))
    return path


class _File:
    """The pieces of a capture in the order of the file."""

    def __init__(self, rank: Written) -> None:
        self.of = rank
        self.pid = zlib.crc32(struct.pack("<Qi", rank.run, rank.rank))
        self.parts = [self._header()]

    def _header(self) -> bytes:
        of = self.of
        fields = {
            "magic": layout.MAGIC,
            "major": layout.MAJOR,
            "minor": layout.MINOR,
            "header_bytes": layout.PAGE_BYTES,
            "rank": of.rank,
            "size": of.size,
            "init_realtime_ns": of.began_ns,
            "pid": self.pid,
            "work_source": layout.WALL,
            "host": of.host.encode()[:63],
            "work_origin": of.origin.encode()[:63],
            "run": of.run,
            "launched": of.size,
        }
        totals = layout.TOTALS.pack(of.failed_polls, of.failed_poll_ns, 0, 0, 0, 0, 0, 0)
        return header_page(fields, totals)

    def chunk(
        self, kind: int, payload: bytes, count: int, first: int = 0, base: int = 0, columns: int = 0
    ) -> None:
        """Add a sealed chunk."""
        place = (0, kind, layout.CHUNK_VERSION, self.of.rank, len(self.parts) - 1, 0)
        key, crc = self.pid & 0xFFFFFFFF, zlib.crc32(payload)
        chunk = Chunk(*place, columns, first, base, key, len(payload), crc, count, True)
        self.parts.append(chunk_bytes(chunk, payload))

    def definitions(self) -> int:
        """Add what events refer to; return how many records that is."""
        of, ops = self.of, {call.op: 0 for call in self.of.calls}
        for number, op in enumerate(ops):
            ops[op] = number
        records = [
            _record(layout.OPNAME, struct.pack("<I", n) + op.encode()) for op, n in ops.items()
        ]
        records += [_site(number, site) for number, site in enumerate(of.sites)]
        records += [_comm(comm, of.rank) for comm in of.comms]
        self._records(records, 0, 0)
        calls = [
            _call(call, ops, thread) for call, thread in zip(of.calls, of.threads, strict=True)
        ]
        self._records(calls, 1, len(of.sites))
        return len(records) + len(calls)

    def _records(self, records: Sequence[bytes], each: int, sites: int) -> None:
        """Add definitions; each: calls that one of them is; sites: that there are before them.

        Sites are told by the first chunk alone, where both are 0: it is as long as it must be.
        """
        at = 0
        while at < len(records):
            end, room = at, _CHUNK if each else 1 << 62
            while end < len(records) and (end == at or room >= len(records[end])):
                room -= len(records[end])
                end += 1
            self.chunk(layout.DEFS, b"".join(records[at:end]), end - at, at * each, sites)
            at = end

    def events(self) -> None:
        """Add the events, in the order of their return."""
        of = self.of
        ends = of.start_ns + of.elapsed_ns
        before = np.concatenate([np.zeros(1, dtype=np.int64), ends])[: len(ends)]
        gap = of.start_ns - before
        rows = [of.call.view(np.uint64), zigzag(gap), of.elapsed_ns.view(np.uint64)]
        rows.append(zigzag(gap - of.work))
        self._table(layout.EVENTS, np.stack(rows, axis=1), np.arange(len(gap)), before)

    def completions(self) -> None:
        """Add which event completed which request."""
        of = self.of
        order = np.argsort(of.done[:, 0], kind="stable")
        completing, posting = of.done[order].T
        before = np.concatenate([np.zeros(1, dtype=np.int64), completing])[: len(completing)]
        back = (completing - posting) << 1 | of.cancelled[order]
        rows = np.stack([zigzag(completing - before), back.view(np.uint64)], axis=1)
        self._table(layout.DONE, rows, before, np.zeros(len(rows), dtype=np.int64))

    def _table(self, kind: int, rows: NDArray[np.uint64], first: Ints, base: Ints) -> None:
        """Add chunks of rows; first, base: of a chunk that begins with each of them."""
        raw, end = encode(rows)
        at, sent_bytes = 0, 0
        while at < len(rows):
            upto = int(np.searchsorted(end, sent_bytes + _CHUNK, side="right"))
            payload = raw[sent_bytes : end[upto - 1]].tobytes()
            self.chunk(kind, payload, upto - at, int(first[at]), int(base[at]), rows.shape[1])
            at, sent_bytes = upto, int(end[upto - 1])

    def end(self, records: int) -> None:
        """Add the totals."""
        of = self.of
        totals = (len(of.call), len(of.done), 0, len(self.parts), of.failed_polls)
        sizes = (records, len(of.calls), len(of.sites), 0)
        payload = layout.END_RECORD.pack(*totals, of.failed_poll_ns, 0, 0, 0, *sizes)
        self.chunk(layout.END, payload + layout.MEMORY.pack(0, 0, 0), 1)


def _record(kind: int, payload: bytes) -> bytes:
    room = -(-len(payload) // _RECORD_ALIGN) * _RECORD_ALIGN
    return layout.RECORD_HEAD.pack(kind, len(payload)) + payload.ljust(room, b"\0")


def _site(number: int, site: RawSite) -> bytes:
    text = b"".join(frame.encode("utf-8", "replace") + b"\0" for frame in site.frames)
    return _record(layout.SITE, struct.pack("<IIQ", number, len(site.frames), site.key) + text)


def _comm(comm: RawComm, rank: int) -> bytes:
    dims, periods = comm.dims or (), comm.periods or ()
    coords: list[int] = []
    place = comm.members.index(rank) if dims else 0
    for extent in reversed(dims):
        coords.insert(0, place % extent)
        place //= extent
    head = (comm.id, comm.parent, int(comm.inter), len(comm.members), len(dims), len(comm.op))
    values = [*head, *comm.members, *dims, *map(int, periods), *coords]
    return _record(layout.COMM, struct.pack(f"<{len(values)}i", *values) + comm.op.encode())


def _call(call: Call, ops: dict[str, int], thread: int) -> bytes:
    numbers = (ops[call.op], call.site, call.comm, call.peer, call.tag, call.root)
    sizes = (call.bytes, call.count, call.elem_bytes, thread, call.depth, call.window)
    return _record(layout.CALL, struct.pack("<IIiiiiqqIIIi", *numbers, *sizes))
