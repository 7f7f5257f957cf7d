"""Writes capture files of format 2.3 from docs/capture-format.md, independently of the tracer."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from p3s.base.study import RUN_SCHEMA, SCHEMA_VERSION, write_json

OPNAME, SITE, COMM, CALL, WINDOW, RUNTIME, THREAD = range(1, 8)
DEFS, EVENTS, DONE, RESOLVED, COUNTS, END, PHASES, THREADS = range(1, 9)
WALL, CPU, INSTRUCTIONS = 1, 2, 3
PAGE = 4096
MASK = (1 << 64) - 1


def leb(value: int) -> bytes:
    """An unsigned number, 7 bits per byte, low bits first."""
    assert 0 <= value <= MASK
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def zigzag(value: int) -> int:
    """0, -1, 1, -2, ... become 0, 1, 2, 3, ..."""
    return 2 * value if value >= 0 else -2 * value - 1


def chunk_head(
    kind: int,
    rank: int,
    sequence: int,
    capacity: int,
    columns: int,
    first: int,
    base: int,
    key: int,
    payload: bytes,
    count: int,
    sealed: int = 1,
    version: int = 1,
) -> bytes:
    """The 64 bytes before a chunk's payload."""
    head = struct.pack(
        "<IHHiIIIQqI",
        0x4B433350,
        kind,
        version,
        rank,
        sequence,
        capacity,
        columns,
        first,
        base,
        key,
    )
    state = len(payload) | zlib.crc32(payload) << 32
    return head + struct.pack("<IQII", zlib.crc32(head), state, count, sealed)


@dataclass
class Part:
    """A chunk being filled."""

    kind: int
    columns: int = 0
    first: int = 0
    base: int = 0
    payload: bytes = b""
    count: int = 0
    capacity: int = PAGE
    sealed: int = 1
    version: int = 1


@dataclass
class Writer:
    """One rank's capture; ``room`` are the bytes of a chunk with its head."""

    rank: int
    size: int
    work_source: int = CPU
    counters: tuple[str, ...] = ()
    minor: int = 0
    major: int = 2
    pid: int = 4321
    room: int = PAGE
    flags: int = 0
    failed_polls: int = 7
    failed_poll_ns: int = 700
    limit_bytes: int = 0
    in_call: int = 0
    abort_code: int = 0
    paused_calls: int = 0
    tracer_ns: int = 0
    run: int = 0
    launched: int = 0
    memory: tuple[int, int, int] = (0, 0, 0)  # since 2.2: after MPI_Init, peak, preempted
    parts: list[Part] = field(default_factory=list)
    open: dict[int, Part] = field(default_factory=dict)
    totals: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(
            ["events", "done", "resolved", "counted", "records", "calls", "sites"], 0
        )
    )
    last_end: int = 0
    last_ordinal: dict[int, int] = field(default_factory=dict)

    # ---- chunks
    def part(self, kind: int, need: int, columns: int = 0) -> Part:
        """The chunk of a kind that has room for ``need`` bytes more."""
        part = self.open.get(kind)
        if part is None or 64 + len(part.payload) + need > part.capacity:
            capacity = max(self.room, (64 + need + PAGE - 1) // PAGE * PAGE)
            part = Part(kind, columns, capacity=capacity)
            if kind == DEFS:
                part.first, part.base = self.totals["calls"], self.totals["sites"]
            elif kind == EVENTS:
                part.first, part.base = self.totals["events"], self.last_end
            elif kind in (DONE, RESOLVED, THREADS):
                part.first = self.last_ordinal.get(kind, 0)
            self.open[kind] = part
            self.parts.append(part)
        return part

    def cut(self, *kinds: int) -> None:
        """The next record of these kinds (all, without any) begins a new chunk."""
        for kind in kinds or tuple(self.open):
            self.open.pop(kind, None)

    def add(self, kind: int, payload: bytes, columns: int = 0) -> Part:
        part = self.part(kind, len(payload), columns)
        part.payload += payload
        part.count += 1
        return part

    # ---- definitions
    def record(self, kind: int, payload: bytes) -> None:
        padded = payload.ljust((len(payload) + 7) // 8 * 8, b"\0")
        self.add(DEFS, struct.pack("<II", kind, len(payload)) + padded)
        self.totals["records"] += 1

    def opname(self, number: int, name: str) -> None:
        self.record(OPNAME, struct.pack("<I", number) + name.encode())

    def site(self, key: int, *frames: str) -> int:
        text = b"".join(frame.encode() + b"\0" for frame in frames)
        number = self.totals["sites"]
        self.record(SITE, struct.pack("<IIQ", number, len(frames), key) + text)
        self.totals["sites"] += 1
        return number

    def comm(
        self,
        number: int,
        members: list[int],
        op: str,
        parent: int = -1,
        cart: tuple[list[int], list[int], list[int]] = ([], [], []),
    ) -> None:
        dims, periods, coords = cart
        head = (number, parent, 0, len(members), len(dims), len(op))
        values = [*head, *members, *dims, *periods, *coords]
        self.record(COMM, struct.pack(f"<{len(values)}i", *values) + op.encode())

    def window(self, number: int, comm: int, kind: int, op: str) -> None:
        self.record(WINDOW, struct.pack("<iiI", number, comm, kind) + op.encode())

    def call(
        self,
        op: int,
        site: int = 0,
        comm: int = 0,
        peer: int = -1,
        tag: int = -1,
        root: int = -1,
        nbytes: int = 0,
        elem: int = 1,
        count: int = 0,
        thread: int = 0,
        depth: int = 0,
        window: int = -1,
        team: int = 0,
        more: bytes = b"",
    ) -> int:
        number = self.totals["calls"]
        payload = struct.pack(
            "<IIiiiiqqIIIi",
            op,
            site,
            comm,
            peer,
            tag,
            root,
            nbytes,
            count,
            elem,
            thread,
            depth,
            window,
        )
        self.record(CALL, payload + (struct.pack("<I", team) if team else b"") + more)
        self.totals["calls"] += 1
        return number

    # ---- tables
    def event(
        self,
        call: int,
        start: int | None = None,
        elapsed: int = 10,
        work: int = 5,
        counters: tuple[int, ...] = (),
    ) -> int:
        """One event; without ``start`` it begins 5 ns after the one before."""
        ordinal = self.totals["events"]
        if start is None:
            start = self.last_end + 5
        part = self.open.get(EVENTS)
        columns = 4 + len(self.counters)
        counters = counters or (0,) * len(self.counters)
        for _ in range(2):  # once more if a new chunk has another base
            begin = part is None or not part.count
            gap = start - (self.last_end if not begin or part is None else part.base)
            last = work if self.work_source == INSTRUCTIONS else zigzag(gap - work)
            row = b"".join(map(leb, (call, zigzag(gap), elapsed, last, *counters)))
            part = self.part(EVENTS, len(row), columns)
        part.payload += row
        part.count += 1
        self.last_end = start + elapsed
        self.totals["events"] += 1
        return ordinal

    def done(self, completing: int, posting: int, cancelled: int = 0) -> None:
        part = self.part(DONE, 20, 2)
        before = self.last_ordinal.get(DONE, 0) if part.count else part.first
        row = leb(zigzag(completing - before)) + leb((completing - posting) << 1 | cancelled)
        self.add(DONE, row, 2)
        self.last_ordinal[DONE] = completing
        self.totals["done"] += 1

    def threads(self, ordinal: int, *numbers: int) -> None:
        """What threads did before an event: columns 1 and on, 20 of them in 2.3."""
        row = b"".join(map(leb, (0, *numbers)))
        part = self.part(THREADS, len(row) + 10, 1 + len(numbers))
        before = self.last_ordinal.get(THREADS, 0) if part.count else part.first
        row = b"".join(map(leb, (zigzag(ordinal - before), *numbers)))
        self.add(THREADS, row, 1 + len(numbers))
        self.last_ordinal[THREADS] = ordinal

    def runtime(self, **said: object) -> None:
        self.record(RUNTIME, "".join(f"{k}={v}\n" for k, v in said.items()).encode())

    def thread(
        self, number: int, kind: int, calls_as: int, cpu_ns: int, cores: str, threads: int = 1
    ) -> None:
        head = struct.pack("<IIiIq", number, kind, calls_as, threads, cpu_ns)
        self.record(THREAD, head + cores.encode())

    def resolved(self, ordinal: int, source: int, tag: int, nbytes: int) -> None:
        part = self.part(RESOLVED, 40, 4)
        before = self.last_ordinal.get(RESOLVED, 0) if part.count else part.first
        row = leb(zigzag(ordinal - before)) + leb(zigzag(source)) + leb(zigzag(tag)) + leb(nbytes)
        self.add(RESOLVED, row, 4)
        self.last_ordinal[RESOLVED] = ordinal
        self.totals["resolved"] += 1

    def counts(self, rows: list[tuple[int, int, int]], first: int = 0) -> None:
        """COUNTS of the calls from ``first`` on: (events, elapsed, work) of each."""
        payload = b"".join(struct.pack("<QqqQ", *row, 0) for row in rows)
        self.cut(COUNTS)
        part = self.part(COUNTS, len(payload))
        part.payload, part.count, part.first = payload, len(rows), first
        self.totals["counted"] += sum(row[0] for row in rows)
        self.flags |= 4

    def end(self, more: bytes = b"") -> None:
        t = self.totals
        self.cut(END)
        self.add(
            END,
            struct.pack(
                "<QQQQQqQQIIIIq",
                t["events"],
                t["done"],
                t["resolved"],
                len(self.parts) + 1,
                self.failed_polls,
                self.failed_poll_ns,
                t["counted"],
                self.paused_calls,
                self.flags,
                t["records"],
                t["calls"],
                t["sites"],
                self.tracer_ns,
            )
            + (struct.pack("<QQQ", *self.memory) if self.minor >= 2 else b"")
            + more,
        )

    # ---- the file
    def header(self) -> bytes:
        names = b"".join(name.encode().ljust(24, b"\0") for name in self.counters)
        head = struct.pack(
            "<8sHHIiiqqqqII16s64s144sQ64s64sQI72s",
            b"P3STRACE",
            self.major,
            self.minor,
            PAGE,
            self.rank,
            self.size,
            1,
            2,
            20,
            self.pid,
            self.work_source,
            len(self.counters),
            b"mpich",
            b"node",
            names,
            self.limit_bytes,
            b"MPICH 5",
            b"CLOCK_THREAD_CPUTIME_ID",
            self.run,
            self.launched,
            b"",
        )
        totals = struct.pack(
            "<QqIIiIQq",
            self.failed_polls,
            self.failed_poll_ns,
            self.in_call,
            self.flags,
            self.abort_code,
            0,
            self.paused_calls,
            self.tracer_ns,
        )
        totals += struct.pack("<QQQQ", 0, *self.memory) if self.minor >= 2 else b""
        return (head + struct.pack("<I", zlib.crc32(head)) + totals).ljust(PAGE, b"\0")

    def chunk(self, sequence: int, part: Part) -> bytes:
        key = (self.pid ^ 2) & 0xFFFFFFFF
        head = chunk_head(
            part.kind,
            self.rank,
            sequence,
            part.capacity,
            part.columns,
            part.first,
            part.base,
            key,
            part.payload,
            part.count,
            part.sealed,
            part.version,
        )
        return (head + part.payload).ljust(part.capacity, b"\0")

    def data(self) -> bytes:
        chunks = [self.chunk(number, part) for number, part in enumerate(self.parts)]
        return self.header() + b"".join(chunks)

    def offsets(self) -> list[int]:
        """Where each chunk begins."""
        found, at = [], PAGE
        for part in self.parts:
            found.append(at)
            at += part.capacity
        return found

    def begin(self, kind: int, number: int = 0) -> int:
        """Where the first chunk of a kind begins, or a later one."""
        parts = zip(self.offsets(), self.parts, strict=True)
        return [at for at, part in parts if part.kind == kind][number]

    def save(self, folder: Path) -> Path:
        path = folder / f"rank-{self.rank:06d}.p3t"
        path.write_bytes(self.data())
        return path


def spoil(path: Path, at: int, change: int | bytes = 1) -> None:
    """Flip bits of the byte at a place of a file, or put other bytes there."""
    data = bytearray(path.read_bytes())
    new = bytes([data[at] ^ change]) if isinstance(change, int) else change
    data[at : at + len(new)] = new
    path.write_bytes(data)


def put_run_json(folder: Path, np: int, **more: object) -> None:
    """Write what the launcher says of a complete run beside its captures."""
    info = {"np": np, "status": "complete", "exit_code": 0, "wall_s": 1.0, "traced": True}
    info |= {"argv": ["mpiexec", "-n", str(np), "./app"], "mpi": "mpich 5"}
    info |= {"work_unit": "cpu_ns", "oversubscribed": False, "cores": 2, **more}
    head = {"schema": RUN_SCHEMA, "schema_version": SCHEMA_VERSION}
    write_json(folder / "run.json", {**head, **info})


def begun(op: str, rank: int, size: int, **settings: Any) -> Writer:
    """The begin of a capture: the name of an operation, the world, and a call site."""
    w = Writer(rank, size, **settings)
    w.opname(0, op)
    w.comm(0, list(range(size)), "MPI_COMM_WORLD")
    w.site(1, "a+0x1")
    return w


def small(rank: int, size: int = 2, **settings: object) -> Writer:
    """A short capture with every kind of record but counts; seven events."""
    w = Writer(rank, size, **settings)  # type: ignore[arg-type]
    w.opname(0, "MPI_Init")
    w.comm(0, list(range(size)), "MPI_COMM_WORLD")
    w.site(0xABC, "app+0x10", "app+0x20")
    init = w.call(0)
    w.event(init, start=-100, elapsed=100, work=50)
    w.opname(3, "MPI_Recv")
    w.site(0xDEF, "app+0x30")
    receive = w.call(3, 1, 0, peer=-2, nbytes=80, elem=8, count=10)
    for turn in range(5):
        ordinal = w.event(receive, start=20 * turn)
        w.resolved(ordinal, (rank + 1) % size, 40 + turn % 2, 16)
        w.done(ordinal, ordinal)
    w.opname(5, "MPI_Cart_create")
    w.comm(1, list(range(size)), "MPI_Cart_create", 0, ([1, size], [0, 1], [0, rank]))
    w.opname(6, "MPI_Put")
    w.window(9, 1, 1, "MPI_Win_create")
    w.event(w.call(6, 1, 1, window=9, depth=3), start=200)
    w.end()
    return w
