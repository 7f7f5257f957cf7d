"""Replays that fail: the job ends soon, says which process did what, and leaves nothing behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from replay_jobs import (
    Ended,
    Mpi,
    Script,
    mpis,
    processes_with,
    program_of,
    run_job,
    settings_of,
    world_of,
)

from p3s.replay.engine.job import DONE, result_path, write_job
from p3s.replay.engine.results import read_result
from p3s.replay.engine.watchdog import pending
from p3s.replay.plan.program import Code, Program

FOUND = mpis()
both = pytest.mark.parametrize("mpi", FOUND, ids=[mpi.family for mpi in FOUND])
first = pytest.mark.parametrize("mpi", FOUND[:1], ids=[mpi.family for mpi in FOUND[:1]])
SIZE = 4
STALL_S = 2.0
TRIALS = 20

#: The worker, with a fault on process 1 in the second program: at its start, or while its inner
#: loop is in an event (by a thread, as nothing of Python runs in the main one then).
WORKER = """
import os, signal, sys, threading, time
from pathlib import Path
from p3s.replay.engine import worker

def fault():
    Path({mark!r}).write_text(repr(time.time()))
    {action}

def inside(words):
    # Wait until the process is in an event, and stays there.
    seen = None
    while words[2] != 2 or words[:4].tolist() != seen:
        seen = words[:4].tolist()
        time.sleep(0.15)
    fault()

original = worker.Worker.program
def program(self, number, *rest):
    if self.rank == 1 and number == 1:
        if {inside}:
            threading.Thread(target=inside, args=(self.page.words,)).start()
        else:
            fault()
    return original(self, number, *rest)
worker.Worker.program = program
worker.main(sys.argv[1:])
"""

#: What goes wrong, whether it does inside the inner loop, and what the job says about it.
FAULTS = {
    "raises": ("raise ValueError('broken on purpose')", False, "ValueError: broken on purpose"),
    "exits": ("sys.exit(3)", False, "sys.exit(3)"),
    "exits with 0": ("sys.exit(0)", False, "sys.exit(0)"),
    "leaves": ("os._exit(0)", True, "is gone"),
    "is killed": ("os.kill(os.getpid(), signal.SIGKILL)", True, "is gone"),
}
INSIDE = "program 1 second, event 0 RECV peer 0 tag 17 bytes 8, pass 0"
OUTSIDE = "program 0 first, between passes"


def slow_exchange(name: str, work_ns: int = 1_000_000_000) -> Program:
    """Process 0 computes for a second or so, the others wait for it."""
    scripts = [Script() for _ in range(SIZE)]
    for rank in range(1, SIZE):
        scripts[rank].add(Code.RECV, peer=0, tag=17, bytes=8)
    scripts[0].add(Code.SEND, peer=1, tag=17, bytes=8, work_ns=work_ns)
    for rank in range(2, SIZE):
        scripts[0].add(Code.SEND, peer=rank, tag=17, bytes=8)
    return program_of(scripts, name=name)


def quick(name: str) -> Program:
    scripts = [Script() for _ in range(SIZE)]
    for rank in range(SIZE):
        scripts[rank].add(Code.SENDRECV, peer=rank ^ 1, bytes=8, sample=0)
        scripts[rank].add(Code.SECOND, peer=rank ^ 1, bytes=8)
    return program_of(scripts, name=name)


def broken(directory: Path, mpi: Mpi, action: str, inside: bool, **values: object) -> Ended:
    """Run a job whose process 1 breaks; check what holds for every fault."""
    directory.mkdir()
    script, mark = directory / "worker.py", directory / "when"
    script.write_text(WORKER.format(action=action, inside=inside, mark=str(mark)))
    shared = set(os.listdir("/dev/shm"))
    write_job(
        directory,
        [quick("first"), slow_exchange("second"), quick("third")],
        world_of(SIZE),
        settings_of(mpi, budget_s=600.0, most_passes=8, **values),
    )
    ended = run_job(directory, mpi, SIZE, worker=[str(script)])
    assert mark.exists()
    assert not ended.timed_out, ended.stderr
    # MPICH's launcher says 0 when a process left with 0; what counts is that it is not done.
    assert not (directory / DONE).exists()
    assert ended.code != 0 or "os._exit(0)" in action
    deadline = time.monotonic() + 300.0
    while processes_with(str(script)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert processes_with(str(script)) == []
    assert [name for name in set(os.listdir("/dev/shm")) - shared if str(os.getpid()) in name] == []
    assert read_result(result_path(directory, 0)).passes > 0  # what was measured is kept
    assert not result_path(directory, 2).exists()
    return ended


def check(directory: Path, mpi: Mpi, fault: str) -> None:
    action, inside, says = FAULTS[fault]
    ended = broken(directory, mpi, action, inside)
    doing = f"process 1 (measured 1 of side 0, node 0), {INSIDE if inside else OUTSIDE}"
    if inside:  # it cannot say it itself; others may be ended before they can
        assert ended.witness is not None, ended.stderr
        assert doing in ended.witness and says in ended.witness
        assert all(doing in line for line in ended.marked), ended.stderr
        assert doing in pending(directory)[1]
    else:
        assert any(doing in line and says in line for line in ended.marked), ended.stderr
        assert not any("is gone" in line for line in ended.marked)
        assert ended.witness is None


@first
@pytest.mark.parametrize("fault", FAULTS)
def test_a_process_that_breaks_ends_the_job(tmp_path: Path, mpi: Mpi, fault: str) -> None:
    check(tmp_path / "job", mpi, fault)


@pytest.mark.slow
@both
@pytest.mark.parametrize("fault", FAULTS)
def test_it_does_so_always(tmp_path: Path, mpi: Mpi, fault: str) -> None:
    for trial in range(TRIALS):
        check(tmp_path / f"job{trial}", mpi, fault)


def loops(directory: Path, mpi: Mpi) -> None:
    """A process that loops for ever: the watchdog says what everybody is doing, and ends it."""
    ended = broken(directory, mpi, "\n    while True: pass", False, stall_s=STALL_S)
    assert any(line.startswith("p3s replay: stalled: ") for line in ended.marked), ended.stderr
    # The others may have come into the next program, or still wait for it by way of process 1.
    doing = pending(directory)
    for line in (*ended.marked, *doing.values()):
        about = re.search(r"process (\d) \(measured \d of side \d, node \d\), ", line)
        assert about, line
        assert OUTSIDE in line or (about[1] != "1" and "program 1 second" in line), line


@first
def test_a_process_that_loops_is_stopped(tmp_path: Path, mpi: Mpi) -> None:
    loops(tmp_path / "job", mpi)


@pytest.mark.slow
@both
def test_it_is_stopped_always(tmp_path: Path, mpi: Mpi) -> None:
    for trial in range(TRIALS):
        loops(tmp_path / f"job{trial}", mpi)


def test_what_a_stalled_process_waits_for_is_said(tmp_path: Path) -> None:
    scripts = [Script() for _ in range(2)]
    scripts[0].add(Code.IRECV, peer=1, tag=5, bytes=64, slot=0)
    scripts[0].add(Code.IRECV, peer=1, tag=6, bytes=32, slot=1)
    scripts[0].wait(0, 1)
    scripts[1].add(Code.SEND, peer=0, tag=6, bytes=32)
    mpi = FOUND[0]
    write_job(
        tmp_path,
        [program_of(scripts, name="never ends")],
        world_of(2),
        settings_of(mpi, stall_s=STALL_S),
    )
    ended = run_job(tmp_path, mpi, 2)
    assert ended.code != 0 and not ended.timed_out
    (line,) = [line for line in ended.marked if "process 0" in line]
    assert "event 2 WAIT for 2 requests" in line
    assert "event 0 IRECV peer 1 tag 5 bytes 64" in line


def test_computation_is_no_standstill(tmp_path: Path) -> None:
    mpi = FOUND[0]
    write_job(
        tmp_path,
        [slow_exchange("patient", 500_000_000)],
        world_of(SIZE),
        settings_of(mpi, stall_s=0.3, budget_s=0.1),
    )
    ended = run_job(tmp_path, mpi, SIZE)
    assert ended.code == 0, ended.stderr


#: Watches itself; goes on, after a line of input, for longer than a process that gave up would.
SUSPENDED = """
import sys, time
from p3s.replay.engine.watchdog import BEATS, Page, Watchdog
page = Page()
Watchdog(page, {stall_s}, lambda most: (0, [])).start()
print("ready", flush=True)
sys.stdin.readline()
for _ in range(30):
    page.words[BEATS] += 1
    time.sleep(0.1)
"""


def test_a_job_that_was_suspended_goes_on() -> None:
    """Batch systems stop jobs and continue them: nobody could move, nobody stood still."""
    stall_s = 5.0
    process = subprocess.Popen(
        [sys.executable, "-c", SUSPENDED.format(stall_s=stall_s)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGSTOP)
        time.sleep(1.2 * stall_s)
        process.send_signal(signal.SIGCONT)
        time.sleep(0.2 * stall_s)  # it looks before it goes on
        said = process.communicate("\n", timeout=120)[1]
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, said) == (0, "")
