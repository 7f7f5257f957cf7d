"""Programs written as event lists: what each rank of a program would record, without MPI.

Each program is a function (rec, rank, n) that calls ``rec(op, site=..., ...)`` in order. They
state the truth at any count, so that models trained on small counts can be checked at large
ones in milliseconds. The real programs are in examples/.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

from p3s.model.grid.grids import dims_balanced
from p3s.signature.tables import PointTable, point_table

Program = Callable[["Recorder"], None]


@dataclass
class Recorder:
    """Collects the events of one rank."""

    rank: int
    n: int
    comms: dict[tuple[tuple[int, ...], int, tuple[int, ...] | None], int]
    calls: dict[tuple[Any, ...], int]
    sites: dict[str, int]

    def __post_init__(self) -> None:
        self.events: list[int] = []
        self.work: list[int] = []
        self.cart: tuple[Any, ...] | None = None

    def comm(
        self,
        members: tuple[int, ...],
        ordinal: int = 0,
        dims: tuple[int, ...] | None = None,
        periods: tuple[bool, ...] | None = None,
    ) -> int:
        """Return the number of a communicator."""
        key = (members, ordinal, dims, periods)
        return self.comms.setdefault(key, len(self.comms))

    def __call__(
        self,
        op: str,
        site: str | None = None,
        peer: int = -1,
        nbytes: int = 0,
        elem: int = 8,
        tag: int = 0,
        root: int = -1,
        comm: int = 0,
        work: float = 1000.0,
    ) -> None:
        """Record one event; the site defaults to the operation's name."""
        number = self.sites.setdefault(site or op, len(self.sites))
        call = ("MPI_" + op, number, comm, peer, nbytes, elem, tag, root)
        self.events.append(self.calls.setdefault(call, len(self.calls)))
        self.work.append(int(work))


def run(program: Program, n: int) -> Any:
    """Return the program's run at ``n`` processes in the shape of p3s.capture.RunTrace."""
    comms: dict[Any, int] = {(tuple(range(n)), 0, None, None): 0}
    calls: dict[Any, int] = {}
    sites: dict[str, int] = {}
    ranks = []
    for rank in range(n):
        rec = Recorder(rank, n, comms, calls, sites)
        rec("Init")
        program(rec)
        rec("Finalize")
        m = len(rec.events)
        ranks.append(
            SimpleNamespace(
                rank=rank,
                complete=True,
                call=np.array(rec.events, dtype=np.int32),
                start_ns=np.arange(m),
                elapsed_ns=np.full(m, 500),
                work=np.array(rec.work),
                failed_polls=0,
                failed_poll_ns=0,
                counted_events=0,
                thread=None,
                tracer_ns=0,
                files={},
            )
        )
    return SimpleNamespace(
        np=n,
        path="corpus",
        wall_ns=1000,
        unmodelled={},
        work_unit="cpu_ns",
        calls=[
            SimpleNamespace(
                op=c[0],
                site=c[1],
                comm=c[2],
                peer=c[3],
                bytes=c[4],
                elem_bytes=c[5],
                tag=c[6],
                root=c[7],
                block=0,
                memory=0,
                window=-1,
                count=1,
            )
            for c in calls
        ],
        comms=[
            SimpleNamespace(members=k[0], ordinal=k[1], op="", parent=-1, dims=k[2], periods=k[3])
            for k in comms
        ],
        sites=[SimpleNamespace(key=s, frames=(s,)) for s in sites],
        ranks=ranks,
    )


def table(program: Program, n: int) -> PointTable:
    """Return the program's PointTable at ``n`` processes."""
    return point_table([run(program, n)])


def block(extent: int, p: int, c: int) -> int:
    """Return the size of block c, remainder to the first blocks."""
    return extent // p + (c < extent % p)


def jacobi2d(nx: int = 1003, ny: int = 701, iters: int = 20, cart: bool = True) -> Program:
    """Bordered 2-D halo exchange with a convergence Allreduce, on MPI_Cart_create."""

    def program(rec: Recorder) -> None:
        px, py = dims_balanced(rec.n, 2)
        cx, cy = divmod(rec.rank, py)
        world = tuple(range(rec.n))
        grid = rec.comm(world, 1, (px, py), (False, False)) if cart else 0
        if cart:
            rec("Cart_create", comm=0)
        rec("Bcast", nbytes=16, root=0)
        lx, ly = block(nx, px, cx), block(ny, py, cy)
        peers = [(cx - 1, cy, ly, 8), (cx + 1, cy, ly, 8), (cx, cy - 1, lx, 8), (cx, cy + 1, lx, 8)]
        for _ in range(iters):
            requests = 0
            for op in ("Irecv", "Isend"):
                for x, y, size, elem in peers:
                    if 0 <= x < px and 0 <= y < py:
                        rec(
                            op,
                            peer=x * py + y,
                            nbytes=size * elem,
                            comm=grid,
                            work=2.0 * lx * ly if op == "Irecv" else 10,
                        )
                        requests += 1
            rec("Waitall", nbytes=requests)
            rec("Allreduce", nbytes=8, comm=grid, work=lx * ly)

    return program


def ring(bodies: int = 1000, steps: int = 5) -> Program:
    """Ring pipeline: n - 1 shifts of a padded block per step."""

    def program(rec: Recorder) -> None:
        size = -(-bodies // rec.n) * 32
        for _ in range(steps):
            for _ in range(rec.n - 1):
                rec("Sendrecv", peer=(rec.rank + 1) % rec.n, nbytes=size)
                rec(
                    "Sendrecv_recv",
                    site="Sendrecv",
                    peer=(rec.rank - 1) % rec.n,
                    nbytes=size,
                    work=0,
                )
            rec("Allreduce", nbytes=8)

    return program


def halo3d(nx: int = 50, ny: int = 43, nz: int = 37, iters: int = 7, tags: bool = True) -> Program:
    """Periodic 3-D halo on MPI_Cart_create, loop over dimensions and directions."""

    def program(rec: Recorder) -> None:
        dims = dims_balanced(rec.n, 3)
        c = [int(x) for x in np.unravel_index(rec.rank, dims)]
        grid = rec.comm(tuple(range(rec.n)), 1, dims, (True, True, True))
        rec("Cart_create")
        local = [block(e, p, x) for e, p, x in zip((nx, ny, nz), dims, c, strict=True)]
        for _ in range(iters):
            for op in ("Irecv", "Isend"):
                for d in range(3):
                    face = local[0] * local[1] * local[2] // local[d]
                    for k, s in enumerate((-1, 1)):
                        to = list(c)
                        to[d] = (to[d] + (s if op == "Isend" else -s)) % dims[d]
                        rec(
                            op,
                            peer=int(np.ravel_multi_index(to, dims)),
                            nbytes=8 * face,
                            tag=2 * d + k if tags else 0,
                            comm=grid,
                        )
            rec("Waitall", nbytes=12)
        rec("Reduce", nbytes=8, root=0, comm=grid)

    return program


def cg(size: int = 1403, outer: int = 3, inner: int = 5) -> Program:
    """Conjugate gradient on a 2-D grid: XOR row sums, transpose partner, as in NPB CG."""

    def program(rec: Recorder) -> None:
        k = rec.n.bit_length() - 1
        rows, cols = 2 ** (k // 2), 2 ** (k - k // 2)
        i, j = divmod(rec.rank, cols)

        def cut(c: int, p: int) -> int:
            return (c + 1) * size // p - c * size // p

        if rows == cols:
            partner, length = j * cols + i, cut(i, cols)
        else:
            partner = j // 2 * cols + 2 * i + j % 2
            length = cut(2 * i + j % 2, cols)
        stages = cols.bit_length() - 1

        def dot(site: str) -> None:
            for s in range(stages):
                q = i * cols + (j ^ (1 << s))
                rec("Irecv", site=site + "r", peer=q, nbytes=8)
                rec("Send", site=site + "s", peer=q, nbytes=8)
                rec("Wait", site=site + "w", nbytes=1)

        for _ in range(outer):
            dot("rho")
            for _ in range(inner):
                for s in range(stages):
                    q = i * cols + (j ^ (1 << s))
                    rec("Irecv", site="sum_r", peer=q, nbytes=8 * cut(i, rows))
                    rec("Send", site="sum_s", peer=q, nbytes=8 * cut(i, rows))
                    rec("Wait", site="sum_w", nbytes=1)
                if partner != rec.rank:
                    rec("Sendrecv", site="tr", peer=partner, nbytes=8 * length)
                    rec("Sendrecv_recv", site="tr", peer=partner, nbytes=8 * cut(j, cols))
                dot("pq")
            dot("norm")

    return program


def wavefront(nx: int = 301, ny: int = 203, blocks: int = 4, sweeps: int = 3) -> Program:
    """Pipelined 2-D sweeps from two opposite corners, no Cartesian communicator."""

    def program(rec: Recorder) -> None:
        px, py = dims_balanced(rec.n, 2)
        cx, cy = divmod(rec.rank, py)
        lx, ly = block(nx, px, cx), block(ny, py, cy)
        for _ in range(sweeps):
            for sign in (1, -1):
                for _ in range(blocks):
                    for op, s in (("Recv", -sign), ("Send", sign)):
                        if 0 <= cx + s < px:
                            rec(op, site=f"{op}x{sign}", peer=(cx + s) * py + cy, nbytes=8 * ly)
                        if 0 <= cy + s < py:
                            rec(op, site=f"{op}y{sign}", peer=cx * py + cy + s, nbytes=8 * lx)
            rec("Allreduce", nbytes=8)

    return program


def halo9(nx: int = 331, ny: int = 257, iters: int = 4) -> Program:
    """Periodic 2-D halo with corners, all partners in one neighbour loop, no Cart, squares."""

    def program(rec: Recorder) -> None:
        p = round(rec.n**0.5)
        cx, cy = divmod(rec.rank, p)
        lx, ly = block(nx, p, cx), block(ny, p, cy)
        for _ in range(iters):
            for op in ("Irecv", "Isend"):
                for dx in (-1, 0, 1):
                    for dy in (-1, 0, 1):
                        if dx or dy:
                            size = {(0, 1): lx, (1, 0): ly, (1, 1): 1}[(abs(dx), abs(dy))]
                            s = 1 if op == "Isend" else -1
                            rec(op, peer=(cx + s * dx) % p * p + (cy + s * dy) % p, nbytes=8 * size)
            rec("Waitall", nbytes=16)

    return program


def fft2d(size: int = 512, iters: int = 3) -> Program:
    """Transposes in row and column communicators of a 2-D grid, made by MPI_Comm_split."""

    def program(rec: Recorder) -> None:
        px, py = dims_balanced(rec.n, 2)
        cx, cy = divmod(rec.rank, py)
        row = rec.comm(tuple(range(cx * py, cx * py + py)))
        col = rec.comm(tuple(range(cy, rec.n, py)))
        rec("Comm_split", site="split_row")
        rec("Comm_split", site="split_col")
        local = size**3 // rec.n * 16
        for _ in range(iters):
            rec("Alltoall", site="row", comm=row, nbytes=local, elem=16)
            rec("Alltoall", site="col", comm=col, nbytes=local, elem=16)
        rec("Bcast", site="b", comm=row, nbytes=8, root=cx * py)

    return program


def hypercube(words: int = 64, iters: int = 6) -> Program:
    """All-reduce by recursive doubling over all ranks in plain Sendrecv."""

    def program(rec: Recorder) -> None:
        for _ in range(iters):
            mask = 1
            while mask < rec.n:
                q = rec.rank ^ mask
                rec("Sendrecv", peer=q, nbytes=8 * words)
                rec("Sendrecv_recv", site="Sendrecv", peer=q, nbytes=8 * words, work=0)
                mask *= 2

    return program


def dissemination(iters: int = 4) -> Program:
    """A barrier by dissemination: partners at distance 2^i, any count."""

    def program(rec: Recorder) -> None:
        for _ in range(iters):
            d = 1
            while d < rec.n:
                rec("Irecv", peer=(rec.rank - d) % rec.n, nbytes=0)
                rec("Send", peer=(rec.rank + d) % rec.n, nbytes=0)
                rec("Wait", nbytes=1)
                d *= 2

    return program


def gather_to_root(size: int = 1001, rounds: int = 3) -> Program:
    """Every rank sends its uneven block to rank 0, which answers each of them."""

    def program(rec: Recorder) -> None:
        for _ in range(rounds):
            if rec.rank == 0:
                for q in range(1, rec.n):
                    rec("Recv", peer=q, nbytes=8 * block(size, rec.n, q))
                for q in range(1, rec.n):
                    rec("Send", site="answer", peer=q, nbytes=64)
            else:
                rec("Send", peer=0, nbytes=8 * block(size, rec.n, rec.rank))
                rec("Recv", site="answered", peer=0, nbytes=64)

    return program


def every_tenth(iters: int = 40) -> Program:
    """A ring with output through a Gather every tenth step and a different first turn."""

    def program(rec: Recorder) -> None:
        rec("Allreduce", site="start", nbytes=8)
        for k in range(iters):
            rec("Isend", peer=(rec.rank + 1) % rec.n, nbytes=400)
            rec("Recv", peer=(rec.rank - 1) % rec.n, nbytes=400)
            rec("Wait", nbytes=1)
            if k % 10 == 9:
                rec("Gather", nbytes=80, root=0)
            if k == 0:
                rec("Barrier", site="first")

    return program


def binomial_broadcast(words: int = 50, rounds: int = 4) -> Program:
    """A broadcast from rank 0 along a binomial tree, by hand, at any count."""

    def program(rec: Recorder) -> None:
        for _ in range(rounds):
            mask = 1
            while mask < rec.n and not rec.rank & mask:
                mask *= 2
            if rec.rank:
                rec("Recv", peer=rec.rank - mask, nbytes=8 * words)
            mask //= 2
            while mask:
                if rec.rank + mask < rec.n:
                    rec("Send", peer=rec.rank + mask, nbytes=8 * words)
                mask //= 2

    return program


def packed_halo(nx: int = 150, ny: int = 131, fields: int = 6, iters: int = 3) -> Program:
    """A bordered 2-D halo that packs several fields of blocks widened by a ghost cell each side."""

    def program(rec: Recorder) -> None:
        px, py = dims_balanced(rec.n, 2)
        cx, cy = divmod(rec.rank, py)
        lx, ly = block(nx, px, cx) + 4, block(ny, py, cy) + 4
        for _ in range(iters):
            for x, y, size, site in (
                (cx - 1, cy, ly, "w"),
                (cx + 1, cy, ly, "e"),
                (cx, cy - 1, lx, "s"),
                (cx, cy + 1, lx, "n"),
            ):
                if 0 <= x < px and 0 <= y < py:
                    rec("Irecv", site="r" + site, peer=x * py + y, nbytes=8 * fields * size)
                    rec("Isend", site="s" + site, peer=x * py + y, nbytes=8 * fields * size)
            rec("Waitall")

    return program


def shares_of_steps(steps: int = 200) -> Program:
    """A loop of steps // n turns on every rank."""

    def program(rec: Recorder) -> None:
        for _ in range(steps // rec.n):
            rec("Allreduce", nbytes=8)

    return program
