"""p3s submit under PBS and LSF: what stand-ins of qsub and bsub make of the scripts."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import batch_standins
import pytest
from commands import cli
from tracer_helpers import PROGRAMS, compile_c, the_mpi, usable_mpi

from p3s.base.study import Study

pytestmark = [pytest.mark.mpi, pytest.mark.skipif(the_mpi() is None, reason="no usable MPI")]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a space in its name, and the stand-ins on PATH."""
    batch_standins.install(tmp_path / "bin", "qsub", "bsub")
    folder = tmp_path / "a run"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("P3S_TEST_BATCH", str(tmp_path / "bin"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    compile_c(PROGRAMS / "picky.c", folder / "my program")
    return folder


def template(*words: str) -> list[str]:
    install = usable_mpi()
    return ["--", install.mpiexec, "-n", "{np}", *words]


@pytest.mark.parametrize(("scheduler", "jobs"), [("pbs", "one"), ("pbs", "array"), ("lsf", "each")])
def test_from_submission_to_study(scheduler: str, jobs: str, here: Path) -> None:
    options = ["--ppn", "2", "--time", "5m", "--scheduler", scheduler, "--jobs", jobs]
    words = template("./my program", "4" if jobs != "one" else "0")
    counts = "1,2,3" if jobs == "one" else "1,2,3,4"
    submitted = cli("submit 'my study' -n", counts, *options, "--submit", "--json", *words).data[
        "jobs"
    ]
    batch_standins.run_jobs(here.parent / "bin")
    files = sorted([*here.glob("my study-jobs/*.OU"), *here.glob("my study-jobs/*.out")])
    logs = "\n".join(path.read_text() for path in files)
    assert len(submitted) == {"one": 1, "each": 5, "array": 2}[jobs]
    found = [(each.np, each.status) for each in Study.open(here / "my study").runs()]
    assert sorted({*found}) == [(1, "complete"), (2, "complete"), (3, "complete")], logs
    assert Study.open(here / "my study").command() == words[1:]
    if jobs != "one":  # the count that failed is named, and has taken no other with it
        assert "np4: a study without a complete run" in logs and "MPI_Abort(7)" in logs


@pytest.mark.parametrize(("scheduler", "jobs"), [("pbs", "each"), ("lsf", "array")])
def test_jobs_are_submitted_by_hand(scheduler: str, jobs: str, here: Path) -> None:
    options = ["--scheduler", scheduler, "--jobs", jobs]
    cli("submit s -n 1,2", *options, *template("./my program", "0"))
    done = subprocess.run(
        ["bash", str(here / "s-jobs" / "submit.sh")], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    numbers = ["1.head", "2.head", "3.head"] if scheduler == "pbs" else ["1", "2"]
    assert done.stdout.split() == ["submitted:", *numbers]
    batch_standins.run_jobs(here.parent / "bin")
    assert sorted({each.np for each in Study.open(here / "s").runs()}) == [1, 2]


@pytest.mark.parametrize("scheduler", ["pbs", "lsf"])
def test_a_replay_takes_the_nodes_of_its_job(scheduler: str, here: Path) -> None:
    Study.create(here / "s", ["mpiexec", "-n", "{np}", "x"])
    (here / "venv" / "bin").mkdir(parents=True)
    (here / "venv" / "bin" / "activate").write_text(f"PATH={shlex.quote(str(here))}/venv/bin:$PATH")
    code = (
        "import sys; from p3s.base.host.hosts import allocated_hosts as h; print(sys.argv[1:], h())"
    )
    p3s = here / "venv" / "bin" / "p3s"
    p3s.write_text(f'#!/bin/sh\nexec {sys.executable} -P -c "{code}" "$@"\n')
    p3s.chmod(0o755)
    options = ["--scheduler", scheduler, "--nodes", "4", "--ppn", "2", "--venv", "venv"]
    cli("submit s -n 8", *options, "--submit", "--", "--timed")
    batch_standins.run_jobs(here.parent / "bin")
    (log,) = (here / "s" / "replay").glob("*.OU" if scheduler == "pbs" else "submit-*.out")
    hosts = [f"host{'0' * (scheduler == 'pbs')}{k}" for k in range(4)]
    words = ["replay", str(here / "s"), "-n", "8", "--budget", "30s", "--timed"]
    assert log.read_text() == f"{words} {hosts}\n"
