"""Replays of which a process is frozen end by the time given, and say which process it is."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from replay_jobs import Script, mpis, processes_with, program_of, settings_of, world_of
from time_limits import LIMIT_S, over_when

from p3s.base.errors import P3SError
from p3s.replay import launching as run
from p3s.replay.driver import Launches
from p3s.replay.engine.job import write_job
from p3s.replay.engine.watchdog import STOPPED, pending
from p3s.replay.launching import find_mpi, on_hosts, run_job, what_is_seen
from p3s.replay.plan.program import Code
from p3s.replay.settings import ReplaySettings

SIZE = 4

#: The worker; process 1 stops itself in the first program.
WORKER = """
import os, signal, sys
from p3s.replay.engine import worker

original = worker.Worker.program
def program(self, number, *rest):
    if self.rank == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    return original(self, number, *rest)
worker.Worker.program = program
worker.main(sys.argv[1:])
"""


def frozen(directory: Path) -> str:
    """Run a job of which a process is frozen; return what is said of it."""
    script = directory / "worker.py"
    script.write_text(WORKER)
    scripts = [Script() for _ in range(SIZE)]
    for rank, one in enumerate(scripts):
        one.add(Code.SENDRECV, peer=rank ^ 1, bytes=8, sample=0)
        one.add(Code.SECOND, peer=rank ^ 1, bytes=8)
    world = world_of(SIZE)
    job = directory / "job"
    job.mkdir()
    programs = [program_of(scripts, name="first")]
    digest = write_job(job, programs, world, settings_of(mpis()[0]))
    mpi = on_hosts(find_mpi((mpis()[0].mpiexec,)), None, world)

    def is_frozen() -> bool:
        return pending(job).get(1, "").endswith(STOPPED)

    with over_when(is_frozen), pytest.raises(P3SError) as caught:
        run_job(job, mpi, world, timeout_s=LIMIT_S, worker=[str(script)], digest=digest)
    assert processes_with(str(script)) == []
    return str(caught.value)


def test_a_frozen_process_is_named_when_the_time_is_over(tmp_path: Path) -> None:
    why = frozen(tmp_path)
    assert f"not done after {LIMIT_S:g} s" in why
    assert "process 1 (measured 1 of side 0, node 0)" in why and STOPPED in why


def test_processes_that_do_not_come_out_of_mpi_init(tmp_path: Path) -> None:
    script = tmp_path / "worker.py"
    script.write_text("import time\ntime.sleep(600)\n")
    world = world_of(2)
    scripts = [Script(), Script()]
    scripts[0].add(Code.SEND, peer=1, bytes=8)
    scripts[1].add(Code.RECV, peer=0, bytes=8)
    job = tmp_path / "job"
    job.mkdir()
    digest = write_job(job, [program_of(scripts)], world, settings_of(mpis()[0]))
    mpi = on_hosts(find_mpi((mpis()[0].mpiexec,)), None, world)

    def all_there() -> bool:
        return len(processes_with(str(script))) >= 2

    with (
        over_when(all_there),
        pytest.raises(P3SError, match="process 0, process 1 in MPI_Init, or before it"),
    ):
        run_job(job, mpi, world, timeout_s=LIMIT_S, worker=[str(script)], digest=digest)
    assert processes_with(str(script)) == []


def test_a_look_that_takes_long_is_still_one_at_processes_that_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slowly(directory: Path, size: int) -> str:
        time.sleep(3.0)
        return what_is_seen(directory, size)

    monkeypatch.setattr(run, "what_is_seen", slowly)
    assert STOPPED in frozen(tmp_path)


def test_all_launches_of_a_replay_have_one_limit() -> None:
    assert ReplaySettings(budget_s=1.0).limit_s == 33.0
    assert ReplaySettings(budget_s=600.0, timeout_s=7.0).limit_s == 7.0
    launches = Launches(None, ReplaySettings(budget_s=1.0), None, print)  # type: ignore[arg-type]
    with launches.limited() as first_s:
        assert first_s == 27.0
    with launches.limited() as second_s:
        assert 1.0 <= second_s < first_s
