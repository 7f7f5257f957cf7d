"""Programs of the replay benchmark: what every rank does, as a real program and as a trace."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from replay_patterns import Trace

#: Computation of one step.
WORK_NS = 5_000_000
#: The same where messages are small: each call costs some 100 us more or less, by chance, when
#: ranks share cores; phase times of such patterns repeat within 2 % only with more computation.
LONG_WORK_NS = 10_000_000
_CALLS = {
    "send": "MPI_Send",
    "isend": "MPI_Isend",
    "recv": "MPI_Recv",
    "irecv": "MPI_Irecv",
    "barrier": "MPI_Barrier",
    "bcast": "MPI_Bcast",
    "reduce": "MPI_Reduce",
    "allreduce": "MPI_Allreduce",
    "allgather": "MPI_Allgather",
    "alltoall": "MPI_Alltoall",
}
_ROOTED = ("bcast", "reduce")


@dataclass(frozen=True)
class Line:
    """One call of a rank, after ``work_ns`` of computation; fields as in truth.c."""

    op: str
    peer: int = -1
    nbytes: int = 0
    tag: int = 0
    comm: int = 0
    work_ns: int = 0
    peer2: int = -1
    nbytes2: int = 0
    tag2: int = 0


@dataclass
class Pattern:
    """What every rank does, in order; ``comms`` holds communicators besides 0, the world."""

    name: str
    n: int
    lines: list[list[Line]] = field(default_factory=list)
    comms: dict[int, list[int]] = field(default_factory=dict)
    _work: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.lines = [[] for _ in range(self.n)]

    def work(self, rank: int, ns: float) -> None:
        """Let a rank compute before its next call."""
        self._work[rank] = self._work.get(rank, 0) + round(ns)

    def add(
        self, rank: int, op: str, peer: int = -1, nbytes: int = 0, tag: int = 0, **more: Any
    ) -> None:
        """Append a call."""
        self.lines[rank].append(
            Line(op, peer, nbytes, tag, work_ns=self._work.pop(rank, 0), **more)
        )

    def exchange(self, rank: int, peer: int, nbytes: int, tag: int = 0) -> None:
        """Append a sendrecv of the same size with one partner."""
        self.add(rank, "sendrecv", peer, nbytes, tag, peer2=peer, nbytes2=nbytes, tag2=tag)

    def write_script(self, path: Path) -> Path:
        """Write the script that truth.c executes."""
        text = [
            f"comm {comm} {len(members)} {' '.join(map(str, members))}"
            for comm, members in self.comms.items()
        ]
        for rank, lines in enumerate(self.lines):
            for line in lines:
                words = [line.op, line.peer, line.nbytes, line.tag, line.comm, line.work_ns]
                if line.op == "sendrecv":
                    words += [line.peer2, line.nbytes2, line.tag2]
                text.append(f"do {rank} {' '.join(map(str, words))}")
        path.write_text("\n".join([*text, ""]))
        return path

    def _size(self, comm: int) -> int:
        return len(self.comms[comm]) if comm else self.n

    def write_trace(self, directory: Path) -> Path:
        """Write the scaled trace of the same: one phase, every call a row that occurs once."""
        trace = Trace(self.n, weight=1)
        for comm, members in self.comms.items():
            trace.comms.append({"id": comm, "members": members})
        for rank, lines in enumerate(self.lines):
            for line in lines:
                common = {"comm": line.comm, "work": float(line.work_ns)}
                if line.op == "wait":
                    call = "MPI_Wait" if line.nbytes == 1 else "MPI_Waitall"
                    trace.add(rank, call, nbytes=line.nbytes, **common)
                elif line.op == "sendrecv":
                    trace.add(rank, "MPI_Sendrecv", line.peer, line.nbytes, tag=line.tag, **common)
                    trace.add(
                        rank,
                        "MPI_Sendrecv_recv",
                        line.peer2,
                        line.nbytes2,
                        tag=line.tag2,
                        comm=line.comm,
                    )
                elif line.op in ("send", "isend", "recv", "irecv"):
                    trace.add(rank, _CALLS[line.op], line.peer, line.nbytes, tag=line.tag, **common)
                else:
                    root = line.peer if line.op in _ROOTED else -1
                    # A scaled trace has what a rank sends to all members (docs/formats.md).
                    size = line.nbytes * (self._size(line.comm) if line.op == "alltoall" else 1)
                    trace.add(rank, _CALLS[line.op], nbytes=size, root=root, **common)
        return trace.write(directory)


def _imbalance(n: int, turns: int, most: float = 0.25, seed: int = 7) -> np.ndarray:
    """Return factors (ranks, turns) on the computation, from 1 to 1 + most."""
    return 1.0 + most * np.random.default_rng(seed).random((n, turns))


def ring(n: int = 16, *, nbytes: int = 131072, turns: int = 40) -> Pattern:
    """Receive from the left and send to the right; computation uneven by up to 25 %."""
    pattern, uneven = Pattern("ring", n), _imbalance(n, turns)
    for rank in range(n):
        for turn in range(turns):
            pattern.work(rank, LONG_WORK_NS * uneven[rank, turn])
            pattern.add(rank, "irecv", (rank - 1) % n, nbytes)
            pattern.add(rank, "send", (rank + 1) % n, nbytes)
            pattern.add(rank, "wait", nbytes=1)
    return pattern


def halo(n: int = 16, *, side: int = 4, nbytes: int = 32768, turns: int = 20) -> Pattern:
    """2-D periodic halo: four Irecv, four Isend, one Waitall."""
    pattern, uneven = Pattern("halo", n), _imbalance(n, turns)
    rows = n // side
    for rank in range(n):
        row, col = divmod(rank, side)
        near = [
            ((row - 1) % rows * side + col, 0),
            ((row + 1) % rows * side + col, 1),
            (row * side + (col - 1) % side, 2),
            (row * side + (col + 1) % side, 3),
        ]
        for turn in range(turns):
            pattern.work(rank, WORK_NS * uneven[rank, turn])
            for peer, tag in near:
                pattern.add(rank, "irecv", peer, nbytes, tag ^ 1)
            for peer, tag in near:
                pattern.add(rank, "isend", peer, nbytes, tag)
            pattern.add(rank, "wait", nbytes=8)
    return pattern


def _sweep(name: str, n: int, side: int, nbytes: int, blocks: int) -> Pattern:
    pattern = Pattern(name, n)
    rows = n // side
    for rank in range(n):
        row, col = divmod(rank, side)
        for _ in range(blocks):
            if col > 0:
                pattern.add(rank, "recv", rank - 1, nbytes, 1)
            if row > 0:
                pattern.add(rank, "recv", rank - side, nbytes, 2)
            pattern.work(rank, WORK_NS)
            if col < side - 1:
                pattern.add(rank, "send", rank + 1, nbytes, 1)
            if row < rows - 1:
                pattern.add(rank, "send", rank + side, nbytes, 2)
        if row == rows - 1 and col == side - 1:
            pattern.add(rank, "wait")  # of no request: an end for the last computation
    return pattern


def wave(n: int = 16) -> Pattern:
    """Sweep in blocks from the first corner of a 4x4 grid to the last; the links are the limit."""
    return _sweep("wave", n, 4, 65536, 20)


def wave2(n: int = 16) -> Pattern:
    """The same sweep with less data: the dependencies are the limit."""
    return _sweep("wave2", n, 4, 16384, 10)


def doubling(
    name: str, nbytes: int, n: int = 16, turns: int = 40, work_ns: int = LONG_WORK_NS
) -> Pattern:
    """Recursive doubling: exchanges with rank XOR 1, 2, 4, 8."""
    pattern, uneven = Pattern(name, n), _imbalance(n, turns)
    for rank in range(n):
        for turn in range(turns):
            pattern.work(rank, work_ns * uneven[rank, turn])
            bit = 1
            while bit < n:
                pattern.exchange(rank, rank ^ bit, nbytes, bit)
                bit *= 2
    return pattern


def allreduce(
    name: str, nbytes: int, n: int = 16, turns: int = 10, work_ns: int = WORK_NS
) -> Pattern:
    """MPI_Allreduce of all ranks; computation uneven by up to 25 %."""
    pattern, uneven = Pattern(name, n), _imbalance(n, turns)
    for rank in range(n):
        for turn in range(turns):
            pattern.work(rank, work_ns * uneven[rank, turn])
            pattern.add(rank, "allreduce", nbytes=nbytes)
    return pattern


def cg(name: str, nbytes: int, n: int = 16, *, side: int = 4, turns: int = 15) -> Pattern:
    """As in NPB CG: sums over a row by exchanges, one with the transposed rank, small sums."""
    pattern, uneven = Pattern(name, n), _imbalance(n, turns)
    for rank in range(n):
        row, col = divmod(rank, side)

        def swap(peer: int, size: int, tag: int, rank: int = rank) -> None:
            pattern.add(rank, "irecv", peer, size, tag)
            pattern.add(rank, "send", peer, size, tag)
            pattern.add(rank, "wait", nbytes=1)

        stages = [row * side + (col ^ bit) for bit in (1, 2)]
        for turn in range(turns):
            pattern.work(rank, WORK_NS * uneven[rank, turn])
            for peer in stages:
                swap(peer, nbytes, 1)
            if row != col:
                swap(col * side + row, nbytes, 2)
            for _ in range(2):
                for peer in stages:
                    swap(peer, 8, 3)
    return pattern


def source(n: int = 16, *, nbytes: int = 65536, turns: int = 10) -> Pattern:
    """Ranks of the first node only send, to the same place on every other node."""
    pattern, per = Pattern("source", n), 4
    for rank in range(n):
        for _ in range(turns):
            pattern.work(rank, WORK_NS)
            if rank < per:
                for node in range(1, n // per):
                    pattern.add(rank, "send", rank + node * per, nbytes)
            else:
                pattern.add(rank, "recv", rank % per, nbytes)
    return pattern


def crossing(n: int = 16, *, nbytes: int = 65536, turns: int = 10) -> Pattern:
    """Exchange with the rank half the world away, all over the trunk; a little with nearer ones."""
    pattern, uneven = Pattern("crossing", n), _imbalance(n, turns)
    for rank in range(n):
        for turn in range(turns):
            pattern.work(rank, WORK_NS * uneven[rank, turn])
            pattern.add(
                rank,
                "sendrecv",
                (rank + n // 4) % n,
                1024,
                1,
                peer2=(rank - n // 4) % n,
                nbytes2=1024,
                tag2=1,
            )
            pattern.exchange(rank, (rank + n // 2) % n, nbytes)
    return pattern


def shift(n: int = 16, *, nbytes: int = 49152, turns: int = 20) -> Pattern:
    """Sendrecv with the rank 1 further, then with the one 5 further, as far as there is one."""
    pattern, uneven = Pattern("shift", n), _imbalance(n, turns)
    for rank in range(n):
        for turn in range(turns):
            pattern.work(rank, WORK_NS * uneven[rank, turn])
            for far in (1, 5):
                if rank + far < n and rank >= far:
                    pattern.add(
                        rank,
                        "sendrecv",
                        rank + far,
                        nbytes,
                        far,
                        peer2=rank - far,
                        nbytes2=nbytes,
                        tag2=far,
                    )
                elif rank + far < n:
                    pattern.add(rank, "send", rank + far, nbytes, far)
                elif rank >= far:
                    pattern.add(rank, "recv", rank - far, nbytes, far)
    return pattern


def chain(n: int = 16, *, nbytes: int = 98304, blocks: int = 25) -> Pattern:
    """A pipeline: from the left, compute, to the right; odd ranks compute twice as long."""
    pattern = Pattern("chain", n)
    for rank in range(n):
        for _ in range(blocks):
            if rank:
                pattern.add(rank, "recv", rank - 1, nbytes)
            pattern.work(rank, WORK_NS * (1 + rank % 2) / 2)
            if rank < n - 1:
                pattern.add(rank, "send", rank + 1, nbytes)
        if rank == n - 1:
            pattern.add(rank, "wait")
    return pattern


def hubs(n: int = 16, *, nbytes: int = 40000, turns: int = 15) -> Pattern:
    """The first rank of every four gets from its three and exchanges with the other first ones.

    Nonblocking, with one Waitall each.
    """
    pattern, uneven = Pattern("hubs", n), _imbalance(n, turns)
    for rank in range(n):
        first = rank - rank % 4
        for turn in range(turns):
            pattern.work(rank, WORK_NS * uneven[rank, turn])
            if rank != first:
                pattern.add(rank, "send", (first + 4 * (rank % 4)) % n, nbytes, 1)
                pattern.add(rank, "recv", (first + 4 * (rank % 4)) % n, nbytes // 4, 3)
                continue
            own = [(r, 1) for r in range(n) if r % 4 and (r - r % 4 + 4 * (r % 4)) % n == rank]
            hub = [(r, 2) for r in range(0, n, 4) if r != rank]
            for peer, tag in own + hub:
                pattern.add(rank, "irecv", peer, nbytes, tag)
            for peer, tag in hub:
                pattern.add(rank, "isend", peer, nbytes, tag)
            pattern.add(rank, "wait", nbytes=len(own) + 2 * len(hub))
            for peer, _ in own:
                pattern.add(rank, "send", peer, nbytes // 4, 3)
    return pattern


def collectives(name: str, calls: list[tuple[str, int]], n: int = 16, turns: int = 15) -> Pattern:
    """Collectives of all ranks, each after its own computation; roots take turns."""
    pattern, uneven = Pattern(name, n), _imbalance(n, turns)
    for rank in range(n):
        for turn in range(turns):
            for op, nbytes in calls:
                pattern.work(rank, WORK_NS * uneven[rank, turn])
                root = 5 * turn % n if op in _ROOTED else -1
                pattern.add(rank, op, root, nbytes)
    return pattern


PATTERNS: dict[str, Callable[[], Pattern]] = {
    "ring": ring,
    "halo": halo,
    "wave": wave,
    "wave2": wave2,
    "rd": lambda: doubling("rd", 8192),
    "rd2": lambda: doubling("rd2", 65000, turns=10, work_ns=WORK_NS),
    "allreduce 8 KiB": lambda: allreduce("allreduce 8 KiB", 8192, turns=40, work_ns=LONG_WORK_NS),
    "allreduce 256 KiB": lambda: allreduce("allreduce 256 KiB", 262144, turns=10),
    "cg 65,000 B": lambda: cg("cg 65,000 B", 65000),
    "cg 128 KiB": lambda: cg("cg 128 KiB", 131072),
    "source": source,
}
#: Those of the trunk variant.
TRUNK: dict[str, Callable[[], Pattern]] = {"crossing": crossing}
#: Never looked at while the costs were made: nothing may be changed for their sake.
HELD_OUT: dict[str, Callable[[], Pattern]] = {
    "shift": shift,
    "chain": chain,
    "hubs": hubs,
    "bcast, reduce": lambda: collectives("bcast, reduce", [("bcast", 65536), ("reduce", 32768)]),
    "alltoall": lambda: collectives("alltoall", [("alltoall", 6000)]),
    "allgather": lambda: collectives("allgather", [("allgather", 12000)]),
}
