"""A rank that dies, whenever and however, takes no completed record with it and is named."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from time_limits import LIMIT_S, over_when
from tracer_helpers import PROGRAMS, compile_c, the_mpi, usable_mpi

from p3s.base.errors import P3SError
from p3s.base.host import mpi
from p3s.capture import read_run
from p3s.capture.types import RankTrace, RunTrace
from p3s.signature_runner.launch import run_traced

pytestmark = [pytest.mark.skipif(the_mpi() is None, reason="no usable MPI")]

TIMEOUT_S = 120.0
TRIALS = 50
QUICK = {(2, 0), (3, 1), (8, 2)}  # (ranks, trial) that `make test` runs


@pytest.fixture(scope="module")
def endless(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_c(PROGRAMS / "endless.c", tmp_path_factory.mktemp("bin") / "endless")


def ledger(folder: Path, rank: int) -> tuple[int, int]:
    """Return (process id, calls that had returned) as the program noted them; zeros at first."""
    with contextlib.suppress(OSError):
        data = (folder / f"ledger-{rank:06d}").read_bytes()[:16]
        if len(data) == 16:
            pid, returned = struct.unpack("<QQ", data)
            return pid, returned
    return 0, 0


class Killer(threading.Thread):
    """Kills one rank of a program a given time after ``calls`` calls of all ranks have returned."""

    def __init__(self, folder: Path, np: int, rank: int, wait_s: float, calls: int = 2) -> None:
        super().__init__(daemon=True)
        self.folder, self.np, self.rank, self.wait_s = folder, np, rank, wait_s
        self.calls = calls
        self.killed = False

    def run(self) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while any(ledger(self.folder, rank)[1] < self.calls for rank in range(self.np)):
            if time.monotonic() > deadline:
                return
            time.sleep(0.002)
        time.sleep(self.wait_s)
        os.kill(ledger(self.folder, self.rank)[0], signal.SIGKILL)
        self.killed = True


def launch(program: list[str], np: int, run_dir: Path, timeout_s: float = TIMEOUT_S) -> str:
    """Run a program that must fail; return the one line that says why."""
    install = usable_mpi()
    with pytest.raises(P3SError) as caught:
        run_traced([install.mpiexec, "-n", "{np}", *program], np, run_dir, timeout_s=timeout_s)
    said = str(caught.value)
    assert "\n" not in said
    return said


def of_mpi(trace: RunTrace, rank: RankTrace) -> list[str]:
    """Return the names of a rank's MPI calls; the program also opens its ledger."""
    ops = [trace.calls[number].op for number in rank.call.tolist()]
    return [op for op in ops if op.startswith("MPI_")]


def check_nothing_lost(run_dir: Path, ledgers: Path, np: int) -> None:
    """Assert that each rank's file is readable and has every call that had returned.

    The last call may have returned to the program, which had no time to note it.
    """
    trace = read_run(run_dir)
    assert trace.np == np and trace.missing == ()
    for rank in trace.ranks:
        _, returned = ledger(ledgers, rank.rank)
        assert not rank.complete
        ops = of_mpi(trace, rank)
        assert returned <= len(ops) <= returned + 1, f"rank {rank.rank}"
        first = ["MPI_Init", "MPI_Irecv", "MPI_Isend", "MPI_Waitall", "MPI_Send"]
        assert ops[: len(first)] == first[: len(ops)]
    assert json.loads((run_dir / "run.json").read_text())["status"] == "partial"


def check_named(said: str, victim: int, np: int) -> None:
    """Assert that the rank that died is named, and no other.

    MPICH's launcher kills the others by the same signal and often names one of these: where
    several have ended before anybody could look, nobody may be named.
    """
    install = usable_mpi()
    found = re.search(r"rank (\d+) of (\d+) died", said)
    if install.family == mpi.MPICH and found is None:
        assert f"failed at {np} ranks" in said
        return
    assert found is not None and (int(found[1]), int(found[2])) == (victim, np), said


def trials() -> list[object]:
    """50 trials at 2, 3 and 8 ranks, a few of them quick."""
    return [
        pytest.param(np, trial, marks=() if (np, trial) in QUICK else pytest.mark.slow)
        for np in (2, 3, 8)
        for trial in range(TRIALS)
    ]


@pytest.mark.parametrize(("np", "trial"), trials())
def test_a_rank_killed_at_a_random_moment(
    endless: Path, np: int, trial: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    chance = random.Random(1000 * np + trial)
    victim, wait_s = chance.randrange(np), chance.uniform(0, 0.25)
    killer = Killer(tmp_path, np, victim, wait_s)
    killer.start()
    said = launch([str(endless), str(np), "-1", "never", "0"], np, tmp_path / "run")
    killer.join(TIMEOUT_S)
    assert killer.killed
    check_nothing_lost(tmp_path / "run", tmp_path, np)
    check_named(said, victim, np)


@pytest.mark.parametrize("np", [2, 3, pytest.param(8, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("kill", "died"),
        ("segv", "died"),
        ("abort", r"died \(called MPI_Abort\(9\)"),
        ("exit", "died|ended without MPI_Finalize"),
        ("_exit", "died|ended without MPI_Finalize"),
    ],
)
def test_a_rank_that_ends_by_itself(
    endless: Path, how: str, says: str, np: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    chance = random.Random(f"{how} {np}")
    victim, calls = chance.randrange(np), chance.randrange(2, 3000)
    said = launch([str(endless), str(np), str(victim), how, str(calls)], np, tmp_path / "run")
    check_nothing_lost(tmp_path / "run", tmp_path, np)
    assert ledger(tmp_path, victim)[1] == calls
    trace = read_run(tmp_path / "run")
    assert len(of_mpi(trace, trace.ranks[victim])) == calls
    assert re.search(rf"rank {victim} of {np} ({says})", said), said


def test_a_run_that_is_timed_out(
    endless: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with over_when(lambda: ledger(tmp_path, 1)[1] == 500):
        said = launch(
            [str(endless), "3", "1", "hang", "500"], 3, tmp_path / "run", timeout_s=LIMIT_S
        )
    check_nothing_lost(tmp_path / "run", tmp_path, 3)
    assert f"not finished after {LIMIT_S:g} s at 3 ranks" in said
    for rank in range(3):
        assert not os.path.exists(f"/proc/{ledger(tmp_path, rank)[0]}/exe")


def test_the_command_line_says_partial(endless: Path, tmp_path: Path) -> None:
    """Of four counts one is killed: the others are kept, exit code 3, the rank is named."""
    install = usable_mpi()
    killer = Killer(tmp_path, 3, 2, 0.05)
    command = [
        sys.executable,
        "-m",
        "p3s",
        "characterize",
        "-n",
        "2,3,4,5",
        "-o",
        "study",
        "--timeout",
        str(TIMEOUT_S),
        "--",
        install.mpiexec,
        "-n",
        "{np}",
        str(endless),
        "3",
        "-1",
        "never",
        "0",
    ]
    # One count after the other, each in this folder: the killer sees rank 2 only from 3 ranks on.
    killer.start()
    process = subprocess.Popen(
        command,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        _, err = process.communicate(timeout=3 * TIMEOUT_S)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert killer.killed
    assert process.returncode == 3, err
    assert "Traceback" not in err
    said = next(line for line in err.splitlines() if "np=3:" in line and "kept" in line)
    check_named(said, 2, 3)
    runs = json.loads((tmp_path / "study" / "study.json").read_text())["runs"]
    assert [run["np"] for run in runs] == [2, 4, 5]
