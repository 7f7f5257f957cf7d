"""Programs written as event lists: what each rank of a program would record, without MPI.

Each program is what one rank does, a function of its recorder: ``rec(op, site=..., ...)`` in order,
or whole exchanges and halos, on a :class:`Grid` or none. Such functions with ``@program`` are
functions of their settings alone. They state the truth at any count: models trained on small
counts can be checked at large ones in milliseconds. The real programs are in examples/.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import wraps
from types import SimpleNamespace
from typing import Any, Concatenate, ParamSpec

import numpy as np

from p3s.base.extents import dims_balanced
from p3s.signature.tables import PointTable, point_table

Program = Callable[["Recorder"], None]
Settings = ParamSpec("Settings")


def program(body: Callable[Concatenate[Recorder, Settings], None]) -> Callable[Settings, Program]:
    """Return a function from the settings of what a rank does to a program."""

    @wraps(body)
    def with_settings(*args: Settings.args, **more: Settings.kwargs) -> Program:
        return lambda rec: body(rec, *args, **more)

    return with_settings


@dataclass(frozen=True)
class Grid:
    """A process grid as one rank sees it: its coordinates, other ranks, lines through it.

    first_fastest: ranks count along the first dimension first, else along the last.
    """

    dims: tuple[int, ...]
    mine: int
    wrap: bool = False
    first_fastest: bool = False

    @property
    def order(self) -> Any:
        """Return numpy's letter for the order of ranks."""
        return "F" if self.first_fastest else "C"

    def place(self, rank: int) -> tuple[int, ...]:
        """Return the coordinates of a rank."""
        return tuple(int(x) for x in np.unravel_index(rank, self.dims, order=self.order))

    @property
    def at(self) -> tuple[int, ...]:
        """Return the rank's own coordinates."""
        return self.place(self.mine)

    def rank(self, place: Iterable[int]) -> int | None:
        """Return the rank at a place, None beyond a border."""
        where = [x % p if self.wrap else x for x, p in zip(place, self.dims, strict=True)]
        if not all(0 <= x < p for x, p in zip(where, self.dims, strict=True)):
            return None
        return int(np.ravel_multi_index(where, self.dims, order=self.order))

    def step(self, d: int, s: int) -> int | None:
        """Return the rank s further along dimension d."""
        return self.rank(x + s * (k == d) for k, x in enumerate(self.at))

    def beside(self, *steps: Sequence[int]) -> list[int]:
        """Return the ranks that such steps lead to, where there are any."""
        found = (self.rank(x + s for x, s in zip(self.at, step, strict=True)) for step in steps)
        return [rank for rank in found if rank is not None]

    def along(self, *free: int) -> tuple[int, ...]:
        """Return the ranks whose other coordinates are the rank's own: a line, or a plane."""
        fixed = [d for d in range(len(self.dims)) if d not in free]
        ranks = np.arange(np.prod(self.dims))
        places = np.array(np.unravel_index(ranks, self.dims, order=self.order))[fixed]
        mine = np.array(self.at)[fixed, None]
        return tuple(ranks[(places == mine).all(axis=0)].tolist())


#: Steps to the four neighbours on a plane.
CROSS = ((-1, 0), (1, 0), (0, -1), (0, 1))


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

    def grid(
        self, dims: int | tuple[int, ...], wrap: bool = False, first_fastest: bool = False
    ) -> Grid:
        """Return a grid of all ranks, of given extents or those of MPI_Dims_create."""
        extents = dims_balanced(self.n, dims) if isinstance(dims, int) else dims
        return Grid(extents, self.rank, wrap, first_fastest)

    def square(self, wrap: bool = False) -> Grid:
        """Return the square grid of all ranks."""
        return self.grid((round(self.n**0.5),) * 2, wrap)

    def exchange(
        self,
        site: str,
        to: int,
        source: int | None = None,
        nbytes: int = 80,
        received: int | None = None,
        work: float = 1000.0,
        rest: float = 1000.0,
        **call: int,
    ) -> None:
        """Record an MPI_Sendrecv; source and bytes received are those sent to unless they differ.

        work, rest: computation before the two halves.
        """
        source = to if source is None else source
        received = nbytes if received is None else received
        self("Sendrecv", site, to, nbytes, work=work, **call)
        self("Sendrecv_recv", site, source, received, work=rest, **call)

    def halo(self, peers: Iterable[int | None], site: str | None = None, nbytes: int = 80) -> None:
        """Record a receive from and a send to all neighbours, through one call each."""
        there = [peer for peer in peers if peer is not None]
        for op in ("Irecv", "Isend"):
            for peer in there:
                self(op, site and op + site, peer, nbytes)

    def blocking(self, send: int | None, receive: int | None, site: str, nbytes: int = 80) -> None:
        """Record a receive, then a send, of those that there are."""
        for op, peer in (("Recv", receive), ("Send", send)):
            if peer is not None:
                self(op, op + site, peer, nbytes)


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


@program
def jacobi2d(
    rec: Recorder, nx: int = 1003, ny: int = 701, iters: int = 20, cart: bool = True
) -> None:
    """Bordered 2-D halo exchange with a convergence Allreduce, on MPI_Cart_create."""
    grid = rec.grid(2)
    comm = rec.comm(tuple(range(rec.n)), 1, grid.dims, (False, False)) if cart else 0
    if cart:
        rec("Cart_create", comm=0)
    rec("Bcast", nbytes=16, root=0)
    lx, ly = (block(*each) for each in zip((nx, ny), grid.dims, grid.at, strict=True))
    peers = [(peer, 8 * (ly if d[0] else lx)) for d in CROSS for peer in grid.beside(d)]
    for _ in range(iters):
        for op, work in (("Irecv", 2.0 * lx * ly), ("Isend", 10)):
            for peer, nbytes in peers:
                rec(op, peer=peer, nbytes=nbytes, comm=comm, work=work)
        rec("Waitall", nbytes=2 * len(peers))
        rec("Allreduce", nbytes=8, comm=comm, work=lx * ly)


@program
def ring(rec: Recorder, bodies: int = 1000, steps: int = 5) -> None:
    """Ring pipeline: n - 1 shifts of a padded block per step."""
    r, n = rec.rank, rec.n
    for _ in range(steps):
        for _ in range(n - 1):
            rec.exchange("Sendrecv", (r + 1) % n, (r - 1) % n, -(-bodies // n) * 32, rest=0)
        rec("Allreduce", nbytes=8)


@program
def halo3d(
    rec: Recorder, nx: int = 50, ny: int = 43, nz: int = 37, iters: int = 7, tags: bool = True
) -> None:
    """Periodic 3-D halo on MPI_Cart_create, loop over dimensions and directions."""
    grid = rec.grid(3, wrap=True)
    comm = rec.comm(tuple(range(rec.n)), 1, grid.dims, (True, True, True))
    rec("Cart_create")
    local = [block(*each) for each in zip((nx, ny, nz), grid.dims, grid.at, strict=True)]
    for _ in range(iters):
        for op, sign in (("Irecv", -1), ("Isend", 1)):
            for d in range(3):
                face = local[0] * local[1] * local[2] // local[d]
                for k, s in enumerate((-sign, sign)):
                    tag = 2 * d + k if tags else 0
                    rec(op, peer=grid.step(d, s), nbytes=8 * face, tag=tag, comm=comm)
        rec("Waitall", nbytes=12)
    rec("Reduce", nbytes=8, root=0, comm=comm)


@program
def cg(rec: Recorder, size: int = 1403, outer: int = 3, inner: int = 5) -> None:
    """Conjugate gradient on a 2-D grid: XOR row sums, transpose partner, as in NPB CG."""
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
                rec.exchange("tr", partner, nbytes=8 * length, received=8 * cut(j, cols))
            dot("pq")
        dot("norm")


@program
def wavefront(
    rec: Recorder, nx: int = 301, ny: int = 203, blocks: int = 4, sweeps: int = 3
) -> None:
    """Pipelined 2-D sweeps from two opposite corners, no Cartesian communicator."""
    grid = rec.grid(2)
    sizes = [block(*each) for each in zip((nx, ny), grid.dims, grid.at, strict=True)]
    for _ in range(sweeps):
        for sign in (1, -1):
            for _ in range(blocks):
                for op, s in (("Recv", -sign), ("Send", sign)):
                    for d, axis in enumerate("xy"):
                        peer = grid.step(d, s)
                        if peer is not None:
                            rec(op, f"{op}{axis}{sign}", peer, 8 * sizes[1 - d])
        rec("Allreduce", nbytes=8)


@program
def halo9(rec: Recorder, nx: int = 331, ny: int = 257, iters: int = 4) -> None:
    """Periodic 2-D halo with corners, all partners in one neighbour loop, no Cart, squares."""
    grid = rec.square(wrap=True)
    lx, ly = (block(*each) for each in zip((nx, ny), grid.dims, grid.at, strict=True))
    steps = [(dx, dy) for dx in (-1, 0, 1) for dy in (-1, 0, 1) if dx or dy]
    for _ in range(iters):
        for op, s in (("Irecv", -1), ("Isend", 1)):
            for dx, dy in steps:
                size = (1 if dx else lx) * (1 if dy else ly)
                rec(op, peer=grid.beside((s * dx, s * dy))[0], nbytes=8 * size)
        rec("Waitall", nbytes=16)


@program
def fft2d(rec: Recorder, size: int = 512, iters: int = 3) -> None:
    """Transposes in row and column communicators of a 2-D grid, made by MPI_Comm_split."""
    grid = rec.grid(2)
    members = grid.along(1)
    row, col = rec.comm(members), rec.comm(grid.along(0))
    rec("Comm_split", "split_row")
    rec("Comm_split", "split_col")
    local = size**3 // rec.n * 16
    for _ in range(iters):
        rec("Alltoall", "row", comm=row, nbytes=local, elem=16)
        rec("Alltoall", "col", comm=col, nbytes=local, elem=16)
    rec("Bcast", "b", comm=row, nbytes=8, root=members[0])


@program
def hypercube(rec: Recorder, words: int = 64, iters: int = 6) -> None:
    """All-reduce by recursive doubling over all ranks in plain Sendrecv."""
    for _ in range(iters):
        for s in range((rec.n - 1).bit_length()):
            rec.exchange("Sendrecv", rec.rank ^ 1 << s, nbytes=8 * words, rest=0)


@program
def dissemination(rec: Recorder, iters: int = 4) -> None:
    """A barrier by dissemination: partners at distance 2^i, any count."""
    for _ in range(iters):
        d = 1
        while d < rec.n:
            rec("Irecv", peer=(rec.rank - d) % rec.n, nbytes=0)
            rec("Send", peer=(rec.rank + d) % rec.n, nbytes=0)
            rec("Wait", nbytes=1)
            d *= 2


@program
def gather_to_root(rec: Recorder, size: int = 1001, rounds: int = 3) -> None:
    """Every rank sends its uneven block to rank 0, which answers each of them."""
    for _ in range(rounds):
        if rec.rank == 0:
            for q in range(1, rec.n):
                rec("Recv", peer=q, nbytes=8 * block(size, rec.n, q))
            for q in range(1, rec.n):
                rec("Send", site="answer", peer=q, nbytes=64)
        else:
            rec("Send", peer=0, nbytes=8 * block(size, rec.n, rec.rank))
            rec("Recv", site="answered", peer=0, nbytes=64)


@program
def every_tenth(rec: Recorder, iters: int = 40) -> None:
    """A ring with output through a Gather every tenth step and a different first turn."""
    rec("Allreduce", site="start", nbytes=8)
    for k in range(iters):
        rec("Isend", peer=(rec.rank + 1) % rec.n, nbytes=400)
        rec("Recv", peer=(rec.rank - 1) % rec.n, nbytes=400)
        rec("Wait", nbytes=1)
        if k % 10 == 9:
            rec("Gather", nbytes=80, root=0)
        if k == 0:
            rec("Barrier", site="first")


def binomial_tree(
    rec: Recorder, v: int, n: int, rank_of: Callable[[int], int], nbytes: int = 80, up: bool = False
) -> None:
    """Record a broadcast along a binomial tree of n members, by hand, or up: a reduction.

    v: the number of this rank in the tree; rank_of: the rank of a number.
    """
    mask = 1
    while mask < n and not v & mask:
        if up and v + mask < n:
            rec("Recv", peer=rank_of(v + mask), nbytes=nbytes)
        mask *= 2
    if v:
        rec("Send" if up else "Recv", peer=rank_of(v - mask), nbytes=nbytes)
    while not up and mask > 1:
        mask //= 2
        if v + mask < n:
            rec("Send", peer=rank_of(v + mask), nbytes=nbytes)


@program
def binomial_broadcast(rec: Recorder, words: int = 50, rounds: int = 4) -> None:
    """A broadcast from rank 0 along a binomial tree, by hand, at any count."""
    for _ in range(rounds):
        binomial_tree(rec, rec.rank, rec.n, lambda v: v, 8 * words)


def packed_sides(rec: Recorder, grid: Grid, x_bytes: int, y_bytes: int) -> None:
    """Record a bordered 2-D halo, each neighbour through calls of its own, with sizes per side."""
    for (dx, dy), site in zip(CROSS, "wesn", strict=True):
        for peer in grid.beside((dx, dy)):
            for op, name in (("Irecv", "r"), ("Isend", "s")):
                rec(op, name + site, peer, y_bytes if dx else x_bytes)
    rec("Waitall")


@program
def packed_halo(
    rec: Recorder, nx: int = 150, ny: int = 131, fields: int = 6, iters: int = 3
) -> None:
    """A bordered 2-D halo that packs several fields of blocks widened by a ghost cell each side."""
    grid = rec.grid(2)
    lx, ly = (block(*each) + 4 for each in zip((nx, ny), grid.dims, grid.at, strict=True))
    for _ in range(iters):
        packed_sides(rec, grid, 8 * fields * lx, 8 * fields * ly)


@program
def shares_of_steps(rec: Recorder, steps: int = 200) -> None:
    """A loop of steps // n turns on every rank."""
    for _ in range(steps // rec.n):
        rec("Allreduce", nbytes=8)
