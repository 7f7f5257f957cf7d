"""A replay's job on a cluster of network namespaces, and the cluster itself."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from cluster.network import Cluster, missing, openmpi_words
from replay_jobs import Script, program_of

from p3s.base.errors import P3SError
from p3s.replay.engine.inner import compile_inner
from p3s.replay.engine.job import JobSettings, ResultStore, write_job
from p3s.replay.launching import Mpi, find_mpi, in_use, on_hosts, run_job
from p3s.replay.plan.program import MEASURED, Code, Process, Program, World

WHY = missing()
OPENMPI = Path("/usr/bin/mpiexec.openmpi")
if not WHY and not (OPENMPI.exists() and Path("/usr/bin/mpicc.openmpi").exists()):
    WHY = "Debian's Open MPI is not installed"
pytestmark = [pytest.mark.skipif(bool(WHY), reason=WHY)]
TIMEOUT_S = 300.0
#: One process on each of four nodes.
WORLD = World(tuple(Process(MEASURED, rank, rank % 2, rank // 2) for rank in range(4)))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster")) as made:
        yield made


def _shared_memory() -> set[str]:
    """Return the files in shared memory; of what has come up since, only what nobody uses."""
    return {f"/dev/shm/{name}" for name in os.listdir("/dev/shm")}


def _left(before: set[str]) -> set[str]:
    new = _shared_memory() - before
    return new - set(in_use()) if new else new


def _program(work_ns: int = 0) -> Program:
    scripts = [Script() for _ in range(WORLD.size)]
    for rank, script in enumerate(scripts):
        script.add(
            Code.SENDRECV,
            peer=(rank + 1) % WORLD.size,
            bytes=4000,
            tag=1,
            sample=0,
            work_ns=work_ns,
        )
        script.add(Code.SECOND, peer=(rank - 1) % WORLD.size, bytes=4000, tag=1)
    return program_of(scripts)


def _launchers(cluster: Cluster) -> dict[str, list[str]]:
    from p3s.base.host import mpi

    found = {"openmpi": openmpi_words(cluster)}
    hydra = [
        m.mpiexec
        for m in mpi.find_mpi()
        if m.family == mpi.MPICH and m.usable_oversubscribed and m.mpiexec
    ]
    if hydra:
        path = os.path.realpath(hydra[0])
        found["mpich"] = [
            *cluster.command(0, path),
            "-launcher",
            "ssh",
            "-launcher-exec",
            str(cluster.agent),
            "-iface",
            "eth0",
            "-genv",
            "MPIR_CVAR_CH4_NETMOD",
            "ofi",
            "-genv",
            "FI_PROVIDER",
            "tcp",
        ]
    return found


def _write(
    directory: Path, program: Program, mpi: Mpi, budget_s: float = 0.3, results: Sequence[Path] = ()
) -> None:
    settings = JobSettings(library=compile_inner(mpi.mpicc), budget_s=budget_s)
    return write_job(directory, [program], WORLD, settings, results)


@pytest.mark.parametrize("family", ["openmpi", "mpich"])
@pytest.mark.parametrize(
    "repeated",
    [
        pytest.param(False, id="four hosts"),
        pytest.param(True, id="two hosts", marks=pytest.mark.slow),
    ],
)
def test_processes_land_on_their_hosts(
    cluster: Cluster, tmp_path: Path, family: str, repeated: bool
) -> None:
    launchers = _launchers(cluster)
    if family not in launchers:
        pytest.skip("no MPICH that shares cores")
    before = _shared_memory()
    hosts = cluster.hosts[:2] * 2 if repeated else cluster.hosts
    mpi = on_hosts(find_mpi(launchers[family]), hosts, WORLD)
    store = ResultStore(tmp_path / "np4.parts")
    key = store.key(_program(), WORLD, {"hosts": hosts})
    with store.job() as directory:
        digest = _write(directory, _program(), mpi, results=[store.path(key)])
        run_job(directory, mpi, WORLD, timeout_s=TIMEOUT_S, hosts=hosts, digest=digest)
    result = store.get(key)
    assert result is not None and result.passes > 0 and np.all(result.event_ns > 0)
    assert [place.name for place in result.places] == [
        hosts[process.node] for process in WORLD.processes
    ]
    assert cluster.processes() == [] and not _left(before)


@pytest.mark.slow
def test_ranks_that_landed_elsewhere_are_refused(cluster: Cluster, tmp_path: Path) -> None:
    words = [*openmpi_words(cluster), "-n", "{np}", "--host", f"{cluster.hosts[0]}:4"]
    mpi = on_hosts(find_mpi(words), cluster.hosts, WORLD)
    digest = _write(tmp_path, _program(), mpi)
    with pytest.raises(P3SError, match=f"were started on {cluster.hosts[0]}"):
        run_job(tmp_path, mpi, WORLD, timeout_s=TIMEOUT_S, hosts=cluster.hosts, digest=digest)
    assert not list(tmp_path.glob("results/*"))


@pytest.mark.parametrize("victim", ["rank", pytest.param("launcher", marks=pytest.mark.slow)])
def test_a_killed_job_leaves_nothing(cluster: Cluster, tmp_path: Path, victim: str) -> None:
    before = _shared_memory()
    mpi = on_hosts(find_mpi(openmpi_words(cluster)), cluster.hosts, WORLD)
    digest = _write(tmp_path, _program(work_ns=5_000_000), mpi, budget_s=40.0)

    def kill() -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while not any(tmp_path.glob("pages-*/*[0-9]")) and time.monotonic() < deadline:
            time.sleep(0.05)
        for pid in cluster.processes():
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                words = file.read().split(b"\0")
            launcher = os.path.basename(words[0]) == b"mpiexec.openmpi"
            rank = b"p3s.replay.engine.worker" in words and not launcher
            if launcher if victim == "launcher" else rank:
                os.kill(pid, signal.SIGKILL)
                return

    killer = threading.Thread(target=kill)
    killer.start()
    with pytest.raises(P3SError) as error:
        run_job(tmp_path, mpi, WORLD, timeout_s=TIMEOUT_S, digest=digest)
    killer.join()
    assert "\n" not in str(error.value) and "timed out" not in str(error.value)
    if victim == "rank":
        assert "the process is gone" in str(error.value)
    assert cluster.processes() == [] and not _left(before)
