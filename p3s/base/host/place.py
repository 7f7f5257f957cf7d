"""Which rank of how many a process is, from what launchers put into its environment."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from p3s.base.host.command import LAUNCHERS, PROXY
from p3s.base.host.mpi import MPICH, OPENMPI

# (rank, size, ranks on this node or "", family the launcher belongs to or None), the most telling
# first: inside a batch job the scheduler's variables are there too. Sources: ompi-info(1) of Open
# MPI 4 and 5, Hydra and PMI-2 of MPICH 4 and 5, srun(1), flux-run(1), jsrun(1).
_VARIABLES: tuple[tuple[str, str, str, str | None], ...] = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", OPENMPI),
    ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_SIZE", MPICH),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS", MPICH),
    ("JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_LOCAL_SIZE", None),
    ("FLUX_TASK_RANK", "FLUX_JOB_SIZE", "", None),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "", None),
    ("PMIX_RANK", "SLURM_NTASKS", "", OPENMPI),
)

#: Programs of launchers, and those they start on each node.
_ABOVE = (*LAUNCHERS, "orted", "prted", PROXY)


@dataclass(frozen=True)
class Place:
    """A rank, how many there are, how many on this node; None where the launcher does not say.

    ``family`` is the MPI the launcher belongs to.
    """

    rank: int | None = None
    size: int | None = None
    local_size: int | None = None
    family: str | None = None


def _number(env: Mapping[str, str], name: str) -> int | None:
    text = env.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def place(env: Mapping[str, str] = os.environ) -> Place:
    """Return which rank this process is; all None when it was not started by a launcher."""
    for rank_name, size_name, local_name, family in _VARIABLES:
        rank, size = _number(env, rank_name), _number(env, size_name)
        if rank is not None and size is not None and rank < size:
            local = _number(env, local_name) or _slurm_local(env)
            if family is None and "PMIX_RANK" in env:
                family = OPENMPI
            return Place(rank, size, local, family)
    return Place()


def _slurm_local(env: Mapping[str, str]) -> int | None:
    """Return the ranks on this node of a Slurm step: ``2(x3),1`` by node number."""
    node, counts = _number(env, "SLURM_NODEID"), []
    for part in env.get("SLURM_STEP_TASKS_PER_NODE", "").split(","):
        count, _, times = part.rstrip(")").partition("(x")
        if not count.isdigit() or (times and not times.isdigit()):
            return None
        counts += [int(count)] * min(int(times or 1), 1 << 16)
    return counts[node] if node is not None and node < len(counts) else None


def process_facts(pid: int) -> list[str]:
    """Return what the system says of a process, from its state on. Errors: OSError."""
    # The name of the program, in brackets, may hold anything.
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def parents(most: int) -> Iterator[tuple[int, str]]:
    """Yield (process id, path of its program) of the processes above this one."""
    pid = os.getppid()
    for _ in range(most):
        if pid <= 1:
            return
        try:
            yield pid, os.readlink(f"/proc/{pid}/exe")
            pid = int(process_facts(pid)[1])
        except (OSError, ValueError, IndexError):
            return


def launcher_above() -> str | None:
    """Return the path of the launcher's program that started this process, if it can be seen."""
    launchers = (path for _, path in parents(6) if os.path.basename(path) in _ABOVE)
    return next(launchers, None)
