"""Which core of its node each rank gets, and placements as files that launchers read."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from p3s.base.arrays import Ints
from p3s.base.errors import UsageError
from p3s.machine.topology.inside import Inside
from p3s.methods.placement.allocation import allocation
from p3s.methods.placement.phases import Traffic
from p3s.methods.placement.search import bisect_ranks
from p3s.program.mapping import RankMap


@dataclass(frozen=True, eq=False)
class OnCores:
    """The core of each rank, a number in ``inside``."""

    inside: Inside
    core_of: Ints

    def between_sockets(self, traffic: Traffic, placed: RankMap) -> int:
        """Return the bytes that ranks of one node send from one socket to another."""
        socket = self.inside.socket[self.core_of]
        same = placed.node_of[traffic.source] == placed.node_of[traffic.dest]
        apart = socket[traffic.source] != socket[traffic.dest]
        return int(traffic.volume[same & apart].sum())

    def slot(self, rank: int) -> str:
        """Return where a rank is as rankfiles have it: socket and core."""
        core = int(self.core_of[rank])
        socket = self.inside.socket
        return f"{socket[core]}:{(socket[:core] == socket[core]).sum()}"


def in_order(placed: RankMap, inside: Inside) -> OnCores:
    """Return ranks on cores in their order. Errors: UsageError where there are too few."""
    if int(placed.slot_of.max()) >= len(inside):
        raise UsageError(
            f"{inside.source}: has {len(inside)} cores, a node gets "
            f"{int(placed.sizes.max())} ranks; give fewer ranks per node"
        )
    return OnCores(inside, placed.slot_of)


def on_cores(traffic: Traffic, placed: RankMap, inside: Inside) -> OnCores:
    """Return ranks on cores of their nodes, few bytes between sockets, then between caches.

    Never more bytes between sockets than in order. Errors: UsageError where cores are too few.
    """
    usual = in_order(placed, inside)
    caches = inside.caches
    where, tree = allocation(len(caches), caches.tolist()), inside.tree()
    first = np.cumsum(caches) - caches
    by_cache = np.argsort(inside.cache, kind="stable")
    core_of = np.zeros(placed.n, dtype=np.int64)
    for node in np.unique(placed.node_of).tolist():
        ranks = placed.ranks_of(node)
        placement = bisect_ranks(_among(traffic, ranks), where, tree)
        core_of[ranks] = by_cache[first[placement.node_of] + placement.slot_of]
    better = OnCores(inside, core_of)
    less = better.between_sockets(traffic, placed) <= usual.between_sockets(traffic, placed)
    return better if less else usual


def _among(traffic: Traffic, ranks: Ints) -> Traffic:
    """Return what some ranks send each other, numbered in their order."""
    place = np.full(traffic.ranks, -1, dtype=np.int64)
    place[ranks] = np.arange(len(ranks))
    source, dest = place[traffic.source], place[traffic.dest]
    is_inside = (source >= 0) & (dest >= 0)
    columns = (traffic.messages[is_inside], traffic.nbytes[is_inside])
    return Traffic(len(ranks), source[is_inside], dest[is_inside], *columns)


OPEN_MPI, MPICH, SLURM = FORMATS = ("openmpi", "mpich", "slurm")


def as_text(placed: RankMap, format_: str, cores: OnCores | None = None) -> str:
    """Return a placement as a file.

    openmpi: a rankfile (``mpirun --rankfile``), one slot for each rank, or its socket and core
    (``cores``). mpich: hosts in the order
    of ranks with how many follow each other (``mpiexec -f``). slurm: the host of each rank
    (``SLURM_HOSTFILE`` with ``srun --distribution=arbitrary``). Errors: UsageError for an unknown
    format, and where hosts have no names but in a rankfile, which may count them.
    """
    if format_ not in _LINES:
        raise UsageError(f"{format_}: no such format; there are {', '.join(_LINES)}")
    if format_ != OPEN_MPI and any(not name or name.startswith("+n") for name in placed.names):
        raise UsageError(f"a host list for {format_} needs the names of the hosts; give --hosts")
    if cores is not None and format_ == OPEN_MPI:
        return "".join(f"{line}\n" for line in _open_mpi(placed, cores.slot))
    return "".join(f"{line}\n" for line in _LINES[format_](placed))


def returns(placed: RankMap) -> bool:
    """Tell whether ranks come back to a host: Hydra of MPICH takes it for another one then.

    The order of ranks is kept, but they share no memory with those before (4.0 to 5.0 do so).
    """
    hosts = [node for node, _ in itertools.groupby(placed.node_of.tolist())]
    return len(set(hosts)) < len(hosts)


def _open_mpi(placed: RankMap, slot: Callable[[int], str] | None = None) -> Iterator[str]:
    names = [name or f"+n{node}" for node, name in enumerate(placed.names)]
    ends = zip(placed.node_of.tolist(), placed.slot_of.tolist(), strict=True)
    for rank, (node, place) in enumerate(ends):
        yield f"rank {rank}={names[node]} slot={place if slot is None else slot(rank)}"


def _mpich(placed: RankMap) -> Iterator[str]:
    for node, run in itertools.groupby(placed.node_of.tolist()):
        yield f"{placed.names[node]}:{len(list(run))}"


def _slurm(placed: RankMap) -> Iterator[str]:
    yield from (placed.names[node] for node in placed.node_of.tolist())


_LINES: Mapping[str, Callable[[RankMap], Iterator[str]]] = {
    OPEN_MPI: _open_mpi,
    MPICH: _mpich,
    SLURM: _slurm,
}
