"""Programs under srun, on a Slurm of four nodes that the test starts and ends itself."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import P3S
from slurm_cluster import missing, running
from test_exec import run
from tracer_helpers import PROGRAMS

from p3s.base.host import compiling, mpi
from p3s.capture import read_run

pytestmark = [
    pytest.mark.mpi,
    pytest.mark.slow,
    pytest.mark.optional,
    pytest.mark.skipif(bool(missing()), reason=missing() or "Slurm is there"),
]

#: How srun starts programs of each MPI.
WAYS = {mpi.MPICH: "pmi2", mpi.OPENMPI: "pmix"}


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """What the environment of clients needs."""
    with running(tmp_path_factory.mktemp("slurm")) as cluster:
        # Ranks of one machine share its cores, which no node knows.
        yield {**cluster.env, "OMPI_MCA_mpi_yield_when_idle": "1"}


@pytest.fixture(scope="module", params=sorted(WAYS))
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The start of an srun command and a program, for one MPI family."""
    # srun's pmix starts Open MPI of the machine, not of a wheel.
    machine = mpi.describe("/usr/bin/mpicc.openmpi")
    wheel = [install for install in mpi.find_mpi() if install.family == mpi.MPICH]
    for install in [*([machine] if machine else []), *wheel]:
        if install.family == request.param and install.usable_oversubscribed:
            target = tmp_path_factory.mktemp("bin") / "dies"
            source = str(PROGRAMS / "dies.c")
            compiling.run_tool([install.mpicc, source, "-o", str(target)], "compile")
            return [f"--mpi={WAYS[request.param]}", str(target)]
    pytest.skip(f"no {request.param} for srun")


def test_characterize(slurm: dict[str, str], program: list[str], tmp_path: Path) -> None:
    way, path = program
    words = ["srun", way, "-n", "{np}", path, "none", "3"]
    options = ["-n", "2,4,8", "-o", "study"]
    done = run([*P3S, "characterize", *options, "--", *words], tmp_path, **slurm)
    assert done.code == 0, done.err
    for np in (2, 4, 8):
        traced = read_run(tmp_path / "study" / "runs" / f"np{np:04d}.r0")
        assert len(traced.ranks) == np and all(rank.complete for rank in traced.ranks)
        ops = [[traced.calls[n].op for n in rank.call.tolist()] for rank in traced.ranks]
        assert all(row.count("MPI_Sendrecv_replace") == 3 for row in ops)


def test_exec(slurm: dict[str, str], program: list[str], tmp_path: Path) -> None:
    way, path = program
    words = ["srun", way, "-N", "2", "-n", "4", *P3S, "exec", "--", path, "none", "3"]
    done = run(words, tmp_path, **slurm)
    assert (done.code, done.said) == (0, []), done.err
    traced = read_run(tmp_path / "p3s-np4")
    assert len(traced.ranks) == 4 and all(rank.complete for rank in traced.ranks)
    info = json.loads((tmp_path / "p3s-np4" / "run.json").read_text())
    assert (info["np"], info["launcher"]) == (4, "srun")
    again = run(words, tmp_path, **slurm)
    assert again.code == 1 and len(again.said) == 1 and "already holds" in again.said[0]
    added = run([*P3S, "add", "study", "p3s-np4"], tmp_path)
    assert added.code == 0, added.err


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("kill", "killed by SIGKILL, after MPI_Sendrecv"),
        ("segv", "killed by SIGSEGV, after MPI_Sendrecv"),
        ("_exit", "exit code 5, after MPI_Sendrecv"),
        ("abort", r"called MPI_Abort\(9\)"),
    ],
)
def test_a_rank_that_dies(
    how: str, said: str, slurm: dict[str, str], program: list[str], tmp_path: Path
) -> None:
    way, path = program
    words = ["srun", way, "-N", "2", "-n", "{np}", path, how, "3"]
    options = ["-n", "1,2,4", "--timeout", "60", "-o", "study"]
    done = run([*P3S, "characterize", *options, "--", *words], tmp_path, **slurm)
    assert re.search(rf"rank 1( of \d)? died \({said}", done.said[-1]), done.err
    kept = tmp_path / "study" / "runs" / "np0004.r0.failed"
    assert len(list(kept.glob("rank-*.p3t"))) == 4
    assert os.listdir(tmp_path / "study" / "runs")


def test_a_run_that_is_stopped_leaves_no_step(
    slurm: dict[str, str], program: list[str], tmp_path: Path
) -> None:
    way, path = program
    words = ["srun", way, "-n", "{np}", path, "hang", "3"]
    options = ["-n", "2,3,4", "--timeout", "6", "-o", "study"]
    done = run([*P3S, "characterize", *options, "--", *words], tmp_path, **slurm)
    assert done.code == 1 and "not finished after 6 s" in done.said[-1]
    assert "rank 1 inside MPI_Recv" in done.said[-1]
    for _ in range(60):
        jobs = run(["squeue", "-h"], tmp_path, **slurm)
        if not jobs.out.strip():
            break
        run(["sleep", "1"], tmp_path)
    assert jobs.out.strip() == ""
