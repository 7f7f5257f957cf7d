"""The MPI that a replay uses, the words that put processes on nodes, and whether they are there."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from p3s.base.errors import P3SError
from p3s.replay.engine.results import Place
from p3s.replay.plan.world import NODES, World

#: Hosts of a job, one per process, in its directory.
HOST_FILE = "hosts"


@dataclass(frozen=True)
class Mpi:
    """A launcher and the MPI that it belongs to.

    ``words``: what stands before the program; once ``on_hosts`` has been asked they hold {np}, and
    {hosts} where the path of a file with one host per process belongs. ``family``: openmpi or
    mpich; ``mpicc``: its compiler. ``kind``: family of the launcher itself (openmpi, mpich, slurm).
    ``per_process``: host of every process, empty where the launcher decides.
    """

    words: tuple[str, ...]
    family: str
    version: str
    mpicc: str
    kind: str = ""
    per_process: tuple[str, ...] = ()

    @property
    def busiest(self) -> int:
        """Most processes on one host; 0 where that is not known."""
        return max(map(self.per_process.count, set(self.per_process)), default=0)


def find_mpi(launcher: Sequence[str] = ()) -> Mpi:
    """Return the MPI to replay with: of the launcher that these words name, none: as found.

    Errors: P3SError as of :func:`p3s.machine.network.launcher_of`.
    """
    from p3s.base import workers
    from p3s.machine.network import launcher_of

    workers.check_may_launch()
    found = launcher_of(launcher, sys.executable)
    install = found.install
    return Mpi(found.words, install.family, install.version, install.mpicc, found.kind)


def on_hosts(
    mpi: Mpi, hosts: Sequence[str] | None, world: World, environ: Mapping[str, str] | None = None
) -> Mpi:
    """Return the MPI with the words that put every process of a world on its host.

    ``hosts``: of the four nodes, repeats allowed; None or empty: this machine. A launcher with {np}
    in its words is left as it is: its own options decide where processes go. Errors: P3SError.
    """
    if hosts and len(hosts) != NODES and not _placed(mpi):
        raise P3SError(f"hosts {','.join(hosts)}: {len(hosts)} names for {NODES} nodes")
    each = [hosts[process.node] for process in world.processes] if hosts else []
    return put_on_hosts(mpi, each, environ)


def _placed(mpi: Mpi) -> bool:
    return any("{np}" in word for word in mpi.words)


def put_on_hosts(
    mpi: Mpi, per_process: Sequence[str], environ: Mapping[str, str] | None = None
) -> Mpi:
    """Return the MPI with the words that put each process on its host; none: on this machine.

    A launcher with {np} in its words is left as it is.
    """
    from p3s.base.host import mpi as known

    if _placed(mpi):
        return mpi
    words = [*mpi.words, "-n", "{np}"]
    if mpi.kind == known.SLURM and not any(word.startswith("--mpi") for word in mpi.words):
        words += [f"--mpi={'pmix' if mpi.family == known.OPENMPI else 'pmi2'}"]
    if not per_process:
        return replace(mpi, words=tuple(words))
    per_process = tuple(per_process)
    if mpi.kind == known.OPENMPI:
        # One host per process, in the order of the ranks: right for hosts that come twice, too.
        words += ["--hostfile", "{hosts}", "--map-by", "seq"]
    elif mpi.kind == known.SLURM:
        words = [
            "/usr/bin/env",
            "SLURM_HOSTFILE={hosts}",
            *words,
            "--distribution=arbitrary",
            f"--nodes={len(set(per_process))}",
        ]
        if _slurm_cores(environ) < max(map(per_process.count, set(per_process))):
            words += ["--overcommit"]
    else:
        words += ["-hosts", ",".join(f"{host}:{count}" for host, count in _blocks(per_process))]
    return replace(mpi, words=tuple(words), per_process=per_process)


def _blocks(hosts: Sequence[str]) -> list[tuple[str, int]]:
    """Return runs of the same host and their lengths."""
    blocks: list[tuple[str, int]] = []
    for host in hosts:
        if blocks and blocks[-1][0] == host:
            blocks[-1] = (host, blocks[-1][1] + 1)
        else:
            blocks.append((host, 1))
    return blocks


def _slurm_cores(environ: Mapping[str, str] | None = None) -> int:
    """Return the cores of a node of the allocation; of this machine outside of one."""
    text = (os.environ if environ is None else environ).get("SLURM_CPUS_ON_NODE", "")
    return int(text) if text.isdigit() else len(os.sched_getaffinity(0))


def shares_cores(mpi: Mpi, world: World) -> bool:
    """Tell whether there will be more processes than cores on a host, as far as that is known."""
    return (mpi.busiest or world.size) > _slurm_cores()


def write_hosts(mpi: Mpi, directory: Path) -> tuple[str, ...]:
    """Write the host file into a job's directory and return the launcher's words with its path."""
    path = directory / HOST_FILE
    if mpi.per_process:
        path.write_text("".join(f"{host}\n" for host in mpi.per_process))
    return tuple(word.replace("{hosts}", str(path)) for word in mpi.words)


_REMEDY = (
    "the launcher must put one block of ranks on each host, in their order: leave {np} out "
    "of --launcher, then P3S adds the hosts"
)


def landing_problem(
    world: World, places: Sequence[Place], hosts: Sequence[str] | None
) -> str | None:
    """Return why processes are not on the hosts asked for, one node on each; None: they are.

    ``hosts``: of the four nodes, repeats allowed; None or empty: anywhere. Nodes may call
    themselves by other names than those asked for, unless it is the name of another one; Slurm's
    name of a node need not be the one that the node has itself.
    """
    if len(places) != world.size:
        return f"{world.size} processes were to be started, but {len(places)} were"
    if not hosts:
        return None
    problem = _misplaced(world, [place.name for place in places], hosts)
    if problem and all(place.node for place in places):
        return _misplaced(world, [place.node for place in places], hosts) and problem
    return problem


def _misplaced(world: World, names: Sequence[str], hosts: Sequence[str]) -> str | None:
    where: dict[int, set[str]] = {}
    for process, name in zip(world.processes, names, strict=True):
        where.setdefault(process.node, set()).add(_short(name))
    started = {node: " and ".join(sorted(found)) for node, found in where.items()}
    for node, found in started.items():
        others = [other for other in started if other < node]
        for other in others:
            if len(where[node]) == 1 and (hosts[node] == hosts[other]) != (found == started[other]):
                return (
                    f"the processes for {hosts[other]} and {hosts[node]} were started on "
                    f"{started[other]} and {found}; {_REMEDY}"
                )
        asked = _short(hosts[node])
        if len(where[node]) > 1 or (asked != found and asked in started.values()):
            return f"the processes for {hosts[node]} were started on {found}; {_REMEDY}"
    return None


def _short(name: str) -> str:
    """Return a host name without its domain; addresses stay whole."""
    return name if name.replace(".", "").isdigit() or ":" in name else name.partition(".")[0]
