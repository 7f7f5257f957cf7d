"""Scaled traces of well-known patterns, written as p3s scale would write them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from p3s.base.extents import dims_balanced
from p3s.base.ops import kind_of
from p3s.base.study import write_json


class Trace:
    """Collects rows; ``add`` appends one to a rank's phase."""

    def __init__(self, n: int, weight: int = 10, phases: int = 1) -> None:
        self.n, self.weight = n, weight
        self.rows: list[dict[str, Any]] = []
        self.comms: list[dict[str, Any]] = [{"id": 0, "first": 0, "size": n}]
        self.phases = phases
        self._index: dict[tuple[int, int], int] = defaultdict(int)

    def add(
        self,
        rank: int,
        op: str,
        peer: int = -1,
        nbytes: int = 0,
        *,
        tag: int | None = None,
        comm: int = 0,
        root: int = -1,
        phase: int = 0,
        repeat: int | None = None,
        work: float = 0.0,
        verdict: str = "exact",
    ) -> None:
        """Append an event of a rank."""
        kind = kind_of(op)
        if tag is None:
            tag = 0 if kind in ("send", "recv") else -1
        index = self._index[rank, phase]
        self._index[rank, phase] += 1
        self.rows.append(
            {
                "rank": rank,
                "phase": phase,
                "index": index,
                "op": op,
                "kind": kind,
                "peer": peer,
                "bytes": nbytes,
                "comm": comm,
                "tag": tag,
                "root": root,
                "repeat": self.weight if repeat is None else repeat,
                "work": work,
                "work_unit": "cpu_ns",
                "slot": index,
                "verdict": verdict,
            }
        )

    def write(self, directory: Path) -> Path:
        """Write the files of a scaled trace and return their directory."""
        directory.mkdir(parents=True, exist_ok=True)
        rows = sorted(self.rows, key=lambda row: (row["rank"], row["phase"], row["index"]))
        schema = pa.schema(
            [
                ("rank", pa.int32()),
                ("phase", pa.int32()),
                ("index", pa.int32()),
                ("op", pa.string()),
                ("kind", pa.string()),
                ("peer", pa.int32()),
                ("bytes", pa.int64()),
                ("comm", pa.int32()),
                ("tag", pa.int32()),
                ("root", pa.int32()),
                ("repeat", pa.int64()),
                ("work", pa.float64()),
                ("work_unit", pa.string()),
                ("slot", pa.int32()),
                ("verdict", pa.string()),
            ]
        )
        half = len(rows) // 2
        for part, piece in enumerate((rows[:half], rows[half:])):
            table = pa.Table.from_pylist(piece, schema)
            pq.write_table(table, directory / f"part-{part:04d}.parquet")
        write_json(
            directory / "comms.json",
            {"schema": "p3s.comms", "schema_version": 1, "comms": self.comms},
        )
        write_json(
            directory / "scaled.json",
            {
                "schema": "p3s.scaled",
                "schema_version": 1,
                "n": self.n,
                "work_unit": "cpu_ns",
                "grid": [self.n],
                "share": {},
                "phases": [
                    {
                        "phase": p,
                        "name": f"phase {p}",
                        "weight": self.weight,
                        "events_per_iteration": 1,
                    }
                    for p in range(self.phases)
                ],
            },
        )
        return directory


def grid_of(n: int) -> tuple[int, ...]:
    """Return rows and columns, as square as possible."""
    return dims_balanced(n, 2)[::-1]


def ring(n: int, *, nbytes: int = 4000, op: str = "MPI_Sendrecv", work: float = 0.0) -> Trace:
    """Everybody sends to the right and receives from the left."""
    trace = Trace(n)
    for rank in range(n):
        right, left = (rank + 1) % n, (rank - 1) % n
        if op == "MPI_Sendrecv":
            trace.add(rank, "MPI_Sendrecv", right, nbytes + rank, work=work)
            trace.add(rank, "MPI_Sendrecv_recv", left, nbytes + left)
        else:
            trace.add(rank, op, right, nbytes, work=work)
            trace.add(rank, "MPI_Recv", left, nbytes)
    return trace


def halo(n: int, *, nbytes: int = 2048, work: float = 0.0) -> Trace:
    """Bordered 2-D halo: receives, sends, one wait for all; then an all-reduce."""
    rows, cols = grid_of(n)
    trace = Trace(n)
    for rank in range(n):
        row, col = divmod(rank, cols)
        around = [
            (row + dr, col + dc, tag)
            for tag, (dr, dc) in enumerate(((-1, 0), (1, 0), (0, -1), (0, 1)))
        ]
        near = [
            (r * cols + c, tag, nbytes if tag < 2 else nbytes // 2 + 8 * (row % 2))
            for r, c, tag in around
            if 0 <= r < rows and 0 <= c < cols
        ]
        for peer, tag, size in near:
            trace.add(rank, "MPI_Irecv", peer, size, tag=tag ^ 1)
        for peer, tag, size in near:
            trace.add(rank, "MPI_Isend", peer, size, tag=tag, work=work)
        if near:
            trace.add(rank, "MPI_Waitall", nbytes=2 * len(near))
        trace.add(rank, "MPI_Allreduce", nbytes=8)
    return trace


def wave(n: int, *, nbytes: int = 1000, work: float = 0.0) -> Trace:
    """Pipelined sweep: from west and north to east and south, and back as a second phase."""
    rows, cols = grid_of(n)
    trace = Trace(n, phases=2)
    for rank in range(n):
        row, col = divmod(rank, cols)
        for phase, sign in ((0, 1), (1, -1)):
            west, north = col - sign, row - sign
            east, south = col + sign, row + sign
            if 0 <= west < cols:
                trace.add(rank, "MPI_Recv", rank - sign, nbytes, tag=1, phase=phase)
            if 0 <= north < rows:
                trace.add(rank, "MPI_Recv", rank - sign * cols, nbytes * 2, tag=2, phase=phase)
            if 0 <= east < cols:
                trace.add(rank, "MPI_Send", rank + sign, nbytes, tag=1, phase=phase, work=work)
            if 0 <= south < rows:
                trace.add(rank, "MPI_Send", rank + sign * cols, nbytes * 2, tag=2, phase=phase)
    return trace


def butterfly(n: int, *, nbytes: int = 512) -> Trace:
    """XOR exchange over all stages; n is a power of two."""
    trace = Trace(n)
    for rank in range(n):
        bit = 1
        while bit < n:
            trace.add(rank, "MPI_Sendrecv", rank ^ bit, nbytes * bit, tag=bit)
            trace.add(rank, "MPI_Sendrecv_recv", rank ^ bit, nbytes * bit, tag=bit)
            bit *= 2
    return trace


def transpose(n: int, *, nbytes: int = 3000) -> Trace:
    """Irecv, Send, Wait with the transpose partner and in a row of a square grid."""
    side = round(n**0.5)
    trace = Trace(side * side)
    for rank in range(side * side):
        row, col = divmod(rank, side)
        partner = col * side + row
        for peer, tag in ((partner, 5), (row * side + (col ^ 1), 6)):
            if (
                peer != rank
                and peer // side < side
                and peer < side * side
                and (tag == 5 or (col ^ 1) < side)
            ):
                trace.add(rank, "MPI_Irecv", peer, nbytes, tag=tag)
                trace.add(rank, "MPI_Send", peer, nbytes, tag=tag)
                trace.add(rank, "MPI_Wait", nbytes=1)
    return trace


def periodic(n: int, *, nbytes: int = 640) -> Trace:
    """1-D periodic halo with persistent requests; with one or two ranks it talks to itself."""
    trace = Trace(n)
    for rank in range(n):
        for shift, tag in ((-1, 1), (1, 0)):
            trace.add(rank, "MPI_Recv_init", (rank + shift) % n, nbytes, tag=tag)
        for shift, tag in ((-1, 0), (1, 1)):
            trace.add(rank, "MPI_Send_init", (rank + shift) % n, nbytes, tag=tag)
        trace.add(rank, "MPI_Waitall", nbytes=4)
    return trace


def collectives(n: int) -> Trace:
    """All collectives on the world, and some on the rows of a grid."""
    rows, cols = grid_of(n)
    trace = Trace(n)
    for row in range(rows):
        trace.comms.append({"id": 1 + row, "members": [row * cols + c for c in range(cols)]})
    for rank in range(n):
        trace.add(rank, "MPI_Init", repeat=1)
        trace.add(rank, "MPI_Comm_split", repeat=1)
        for op in (
            "MPI_Barrier",
            "MPI_Allreduce",
            "MPI_Allgather",
            "MPI_Alltoall",
            "MPI_Scan",
            "MPI_Reduce_scatter",
        ):
            trace.add(rank, op, nbytes=0 if op == "MPI_Barrier" else 256)
        trace.add(rank, "MPI_Allreduce", nbytes=100_000)
        for op in ("MPI_Bcast", "MPI_Reduce", "MPI_Gather", "MPI_Scatterv"):
            trace.add(rank, op, nbytes=1024, root=n // 2)
        trace.add(rank, "MPI_Allreduce", nbytes=8, comm=1 + rank // cols)
        trace.add(rank, "MPI_Finalize", repeat=1)
    return trace


PATTERNS: dict[str, Callable[[int], Trace]] = {
    "ring": ring,
    "ring of blocking sends": lambda n: ring(n, op="MPI_Send"),
    "halo": halo,
    "wave": wave,
    "periodic": periodic,
    "transpose": transpose,
    "collectives": collectives,
}
