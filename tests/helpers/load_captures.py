"""Studies of many events, written block by block from docs/capture-format.md, without a program."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from capture_writer import CPU, DONE, EVENTS, Part, Writer

from p3s.base.study import Study, write_json

#: A chunk of the tracer, with its head; events that are made at a time.
CHUNK, BLOCK = 1 << 16, 1 << 20
NAMES = (
    "MPI_Init",
    "MPI_Finalize",
    "MPI_Irecv",
    "MPI_Isend",
    "MPI_Waitall",
    "MPI_Allreduce",
    "MPI_Sendrecv",
    "MPI_Sendrecv_recv",
    "MPI_Comm_dup",
    "MPI_Comm_split",
    "MPI_Comm_free",
)


@dataclass
class Body:
    """What one rank does: calls in their order, and which of them complete which.

    calls: settings of Writer.call, with ``op`` by its name; done: pairs of places in ``calls``,
    of the completing call and of the one that posted. comms: number -> members, what made it.
    """

    calls: list[dict[str, Any]] = field(default_factory=list)
    done: list[tuple[int, int]] = field(default_factory=list)
    comms: dict[int, tuple[list[int], str]] = field(default_factory=dict)

    def add(self, op: str, **settings: Any) -> int:
        """Add a call; return its place."""
        self.calls.append({"op": NAMES.index("MPI_" + op), **settings})
        return len(self.calls) - 1


#: (rank, size) -> what a rank does once, and what it repeats.
Program = Callable[[int, int], tuple[Body, Body]]


def halo(rank: int, size: int) -> tuple[Body, Body]:
    """A ring of neighbours that exchange 800 bytes and then reduce: six events a turn."""
    turn = Body()
    posts = [
        turn.add(op, site=k, peer=(rank + step) % size, nbytes=800, elem=8, count=100, tag=1)
        for k, (op, step) in enumerate(
            (("Irecv", -1), ("Irecv", 1), ("Isend", 1), ("Isend", -1)), start=1
        )
    ]
    wait = turn.add("Waitall", site=5, comm=-1, nbytes=4)
    turn.done = [(wait, post) for post in posts]
    turn.add("Allreduce", site=6, nbytes=8, elem=8, count=1)
    return Body(), turn


def many_sites(sites: int) -> Program:
    """A program of so many call sites: exchanges and sums, in straight code and in a loop."""

    def program(rank: int, size: int) -> tuple[Body, Body]:
        once, turn = Body(), Body()
        for site in range(1, sites + 1):
            body = turn if site % 2 else once
            if site % 3:
                body.add("Allreduce", site=site, nbytes=8 * (1 + site % 7), elem=8, count=1)
                continue
            near = {"site": site, "nbytes": 80 * (1 + site % 5), "elem": 8, "tag": 3}
            body.add("Sendrecv", peer=(rank + 1) % size, **near)
            body.add("Sendrecv_recv", peer=(rank - 1) % size, **near)
        return once, turn

    return program


def many_comms(comms: int) -> Program:
    """A program that makes so many communicators in a loop, reduces on each and frees it."""

    def program(rank: int, size: int) -> tuple[Body, Body]:
        once, turn = Body(), Body()
        pair = [r for r in range(size) if r // 2 == rank // 2]
        for number in range(1, comms + 1):
            op, members = ("Comm_split", pair) if number % 2 else ("Comm_dup", list(range(size)))
            once.comms[number] = (members, "MPI_" + op)
            once.add(op, site=1 + number % 2, comm=0)
            once.add("Allreduce", site=3, comm=number, nbytes=8, elem=8, count=1)
            once.add("Comm_free", site=4, comm=number)
        turn.add("Allreduce", site=5, nbytes=8, elem=8, count=1)
        return once, turn

    return program


def leb_rows(table: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the bytes of rows of unsigned numbers, 7 bits per byte, and where each row ends."""
    flat = np.ascontiguousarray(table, dtype=np.uint64).reshape(-1)
    size = np.ones(len(flat), dtype=np.int64)
    for place in range(1, 10):
        more = flat >= np.uint64(1 << 7 * place)
        if not more.any():
            break
        size += more
    end = np.cumsum(size)
    out = np.empty(int(end[-1]) if len(end) else 0, dtype=np.uint8)
    for place in range(int(size.max(initial=0))):
        here = np.flatnonzero(size > place)
        part = (flat[here] >> np.uint64(7 * place)).astype(np.uint8) & 0x7F
        out[end[here] - size[here] + place] = part | ((size[here] > place + 1) << 7).astype(
            np.uint8
        )
    return out, end.reshape(table.shape)[:, -1]


def zigzag(values: np.ndarray) -> np.ndarray:
    """0, -1, 1, -2, ... become 0, 1, 2, 3, ..."""
    return np.where(values >= 0, 2 * values, -2 * values - 1)


class RankFile:
    """One rank's capture, written to its file in blocks."""

    def __init__(self, out: BinaryIO, writer: Writer) -> None:
        self.out, self.writer, self.chunks = out, writer, 0
        out.write(writer.header())

    def definitions(self) -> None:
        """Write what the writer has defined so far."""
        for part in self.writer.parts:
            self._chunk(part)
        self.writer.parts, self.writer.open = [], {}

    def _chunk(self, part: Part) -> None:
        self.out.write(self.writer.chunk(self.chunks, part))
        self.chunks += 1

    def _table(self, kind: int, rows: np.ndarray, first: np.ndarray, base: np.ndarray) -> None:
        """Write rows in chunks; first, base: of a chunk that begins with each row."""
        raw, end = leb_rows(rows)
        at, done = 0, 0
        while at < len(rows):
            upto = int(np.searchsorted(end, done + CHUNK - 64, side="right"))
            payload = raw[done : end[upto - 1]].tobytes()
            part = Part(kind, rows.shape[1], int(first[at]), int(base[at]), payload, upto - at)
            part.capacity = (64 + len(payload) + 4095) // 4096 * 4096
            self._chunk(part)
            at, done = upto, int(end[upto - 1])

    def events(self, call: np.ndarray, gap: np.ndarray, took: np.ndarray, work: np.ndarray) -> None:
        """Write events: call, time since the end of the one before, time inside, work before."""
        w = self.writer
        ends = w.last_end + np.cumsum(gap + took)
        before = np.concatenate([[w.last_end], ends[:-1]])
        rows = np.stack([call, zigzag(gap), took, zigzag(gap - work)], axis=1)
        first = w.totals["events"] + np.arange(len(call))
        self._table(EVENTS, rows, first, before)
        w.last_end = int(ends[-1])
        w.totals["events"] += len(call)

    def done(self, completing: np.ndarray, posting: np.ndarray) -> None:
        """Write completions, in the order of the events that complete."""
        if not len(completing):
            return
        before = np.concatenate([[self.writer.last_ordinal.get(DONE, 0)], completing[:-1]])
        rows = np.stack([zigzag(completing - before), (completing - posting) << 1], axis=1)
        self._table(DONE, rows, before, np.zeros(len(rows)))
        self.writer.last_ordinal[DONE] = int(completing[-1])
        self.writer.totals["done"] += len(rows)

    def end(self) -> None:
        """Write the totals."""
        w = self.writer
        w.parts = [Part(0)] * self.chunks  # END says how many there are
        w.end()
        self._chunk(w.parts[-1])


def write_rank(folder: Path, rank: int, size: int, program: Program, turns: int) -> int:
    """Write the capture of one rank; return its events.

    Times differ from turn to turn, by chance that depends on the rank alone.
    """
    once, turn = program(rank, size)
    run = (size << 32) + turns  # a number of its own
    w = Writer(rank, size, work_source=CPU, minor=4, room=CHUNK, run=run, launched=size)
    for number, name in enumerate(NAMES):
        w.opname(number, name)
    w.comm(0, list(range(size)), "MPI_COMM_WORLD")
    for number, (members, op) in {**once.comms, **turn.comms}.items():
        w.comm(number, members, op, 0)
    calls = [*once.calls, *turn.calls]
    last = max((call.get("site", 0) for call in calls), default=0) + 1
    for site in range(last + 1):
        w.site(0x1000 + site, f"app+0x{0x1000 + site:x}")
    init, finalize = w.call(0), w.call(1, last)
    with open(folder / f"rank-{rank:06d}.p3t", "wb") as out:
        file = RankFile(out, w)
        numbers = [np.array([w.call(**call) for call in b.calls], int) for b in (once, turn)]
        file.definitions()
        chance = np.random.default_rng(rank)
        file.events(*np.array([[init], [-100], [100], [0]]))
        for body, number, times in ((once, numbers[0], 1), (turn, numbers[1], turns)):
            for block in blocks(len(number), times):
                _write_turns(file, body, number, block, chance)
        file.events(*np.array([[finalize], [10], [0], [5]]))
        file.end()
    return w.totals["events"]


def blocks(events: int, turns: int) -> Iterator[int]:
    """Yield how many turns to make at a time."""
    most = max(BLOCK // max(events, 1), 1)
    for at in range(0, turns if events else 0, most):
        yield min(most, turns - at)


def _write_turns(
    file: RankFile, body: Body, number: np.ndarray, turns: int, chance: np.random.Generator
) -> None:
    first, n = file.writer.totals["events"], len(number) * turns
    work = 400 + chance.integers(0, 600, n)
    file.events(np.tile(number, turns), work + 20, 100 + chance.integers(0, 300, n), work)
    pairs = np.array(body.done, dtype=np.int64).reshape(-1, 2)
    base = first + len(number) * np.arange(turns)
    completing, posting = (base[:, None] + pairs[:, k] for k in (0, 1))
    file.done(completing.reshape(-1), posting.reshape(-1))


def write_run(study: Path, size: int, program: Program, turns: int, rep: int = 0) -> int:
    """Write a complete run into a study, which is made if it is not there; return its events."""
    if not (study / "study.json").exists():
        Study.create(study, ["mpiexec", "-n", "{np}", "./app"])
    folder = Study(study).runs_dir(size, rep)
    folder.mkdir(parents=True)
    events = sum(write_rank(folder, rank, size, program, turns) for rank in range(size))
    info = {"status": "complete", "np": size, "wall_s": 1.0, "exit_code": 0}
    info |= {"command": ["mpiexec", "-n", "{np}", "./app"], "work_unit": "cpu_ns"}
    write_json(
        folder / "run.json",
        {"schema": "p3s.run", "schema_version": 1, **info, "oversubscribed": False},
    )
    return events


def write_study(study: Path, sizes: Sequence[int], program: Program, turns: int) -> int:
    """Write a study with a run at each count; return the events of all."""
    events = sum(write_run(study, size, program, turns) for size in sizes)
    Study(study).update()
    return events


__all__ = ["Body", "Program", "RankFile", "halo", "write_rank", "write_run", "write_study"]
