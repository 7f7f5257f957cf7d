"""The language of the corpus' programs: what each rank of a program would record, without MPI.

Each program is what one rank does, a function of its recorder: ``rec(op, site=..., ...)`` in order,
or whole exchanges and halos, on a :class:`Grid` or none, in loops that have a name where the true
tree is asked for (trees.py). Such functions with ``@program`` are functions of their settings
alone. They state the truth at any count: models trained on small counts can be checked at large
ones in milliseconds. The real programs are in examples/.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, wraps
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

    wrap: of all dimensions, or of each; first_fastest: ranks count along the first dimension first,
    else along the last.
    """

    dims: tuple[int, ...]
    mine: int
    wrap: bool | tuple[bool, ...] = False
    first_fastest: bool = False

    def place(self, rank: int) -> tuple[int, ...]:
        """Return the coordinates of a rank."""
        found = []
        for extent in self.dims if self.first_fastest else self.dims[::-1]:
            rank, place = divmod(rank, extent)
            found.append(place)
        if rank:
            raise ValueError(f"{self.dims} has no such rank")
        return tuple(found if self.first_fastest else found[::-1])

    @cached_property
    def at(self) -> tuple[int, ...]:
        """Return the rank's own coordinates."""
        return self.place(self.mine)

    def rank(self, place: Iterable[int]) -> int | None:
        """Return the rank at a place, None beyond a border."""
        wraps = self.wrap if isinstance(self.wrap, tuple) else (self.wrap,) * len(self.dims)
        axes = list(zip(place, self.dims, wraps, strict=True))
        found, stride = 0, 1
        for x, extent, wrap in axes if self.first_fastest else axes[::-1]:
            if not wrap and not 0 <= x < extent:
                return None
            found += stride * int(x % extent)
            stride *= extent
        return found

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
        ranks = range(math.prod(self.dims))
        return tuple(r for r in ranks if all(self.place(r)[d] == self.at[d] for d in fixed))


#: Steps to the four neighbours on a plane.
CROSS = ((-1, 0), (1, 0), (0, -1), (0, 1))


#: Loops around a call, outermost first, each by its name and turn (from 0).
Path = tuple[tuple[str, int], ...]


@dataclass
class Recorder:
    """Collects the events of one rank.

    usual: bytes of a call that names none; told: of each call its loops, (site, MPI name).
    """

    rank: int
    n: int
    comms: dict[tuple[tuple[int, ...], int, tuple[int, ...] | None], int]
    calls: dict[tuple[Any, ...], int]
    sites: dict[str, int]
    usual: int = 0

    def __post_init__(self) -> None:
        self.events: list[int] = []
        self.work: list[int] = []
        self.told: list[tuple[Path, tuple[str, str]]] = []
        self.walks: dict[str, str] = {}
        self._path: Path = ()

    @classmethod
    def alone(cls, rank: int, n: int) -> Recorder:
        """Return the recorder of a rank whose numbers of calls are its own."""
        return cls(rank, n, {}, {}, {})

    def loop(self, name: str, turns: int, walk: str = "") -> Iterator[int]:
        """Yield the turns of a loop; walk: what it only goes through, partners or requests."""
        outer = self._path
        if walk:
            self.walks[name] = walk
        for turn in range(turns):
            self._path = (*outer, (name, turn))
            yield turn
        self._path = outer

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
        nbytes: int | None = None,
        elem: int = 8,
        tag: int = 0,
        root: int = -1,
        comm: int = 0,
        work: float = 1000.0,
    ) -> None:
        """Record one event; the site defaults to the operation's name."""
        nbytes = self.usual if nbytes is None else nbytes
        number = self.sites.setdefault(site or op, len(self.sites))
        self.told.append((self._path, (site or op, "MPI_" + op)))
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


def packed_sides(rec: Recorder, grid: Grid, x_bytes: int, y_bytes: int) -> None:
    """Record a bordered 2-D halo, each neighbour through calls of its own, with sizes per side."""
    for (dx, dy), site in zip(CROSS, "wesn", strict=True):
        for peer in grid.beside((dx, dy)):
            for op, name in (("Irecv", "r"), ("Isend", "s")):
                rec(op, name + site, peer, y_bytes if dx else x_bytes)
    rec("Waitall")
