"""Placements as files that launchers read: Open MPI rankfiles, host lists of MPICH and Slurm."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping

from p3s.base.errors import UsageError
from p3s.methods.placement.within import OnCores
from p3s.program.mapping import RankMap

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
