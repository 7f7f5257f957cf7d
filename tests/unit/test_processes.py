"""Processes, tools that are run, and what kind of program is started."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from p3s.base.errors import P3SError, UsageError
from p3s.base.extents import with_count
from p3s.base.host import compiling
from p3s.base.host.processes import MARK, find_marked, new_mark, stop
from p3s.machine.programs import run_ranks
from p3s.signature_runner.programs import Block, find_launch_words

#: Starts a rank in a session of its own, which no signal but SIGKILL ends, says which, and is gone.
LAUNCHER = """
import subprocess, sys
rank = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
one = subprocess.Popen([sys.executable, "-c", rank], stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL, start_new_session=True)
open(sys.argv[1], "w").write(str(one.pid))
sys.exit(int(sys.argv[2]))
"""


def is_there(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def goes(pid: int) -> bool:
    """Wait for the end of a process that was told to end; whether it came."""
    deadline = time.monotonic() + 120
    while is_there(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not is_there(pid)


def test_a_rank_that_its_launcher_has_left_is_ended(tmp_path: Path) -> None:
    mark, told = new_mark(), tmp_path / "pid"
    words = [sys.executable, "-c", LAUNCHER, str(told), "0"]
    process = subprocess.Popen(words, env={**os.environ, MARK: mark}, start_new_session=True)
    assert process.wait(300) == 0
    pid = int(told.read_text())
    assert find_marked(mark) == [pid]
    stop(process, mark, 5.0)
    assert goes(pid)


def test_ranks_of_a_measurement_are_ended_when_their_launcher_fails(tmp_path: Path) -> None:
    told = tmp_path / "pid"
    words = [sys.executable, "-c", LAUNCHER, str(told), "7"]
    with pytest.raises(P3SError, match="exit code 7"):
        run_ranks(words, 300.0, "two ranks", 2)
    assert goes(int(told.read_text()))


#: Starts a launcher that waits, says which, and waits, too.
MEASURES = """
import sys
import time
from p3s.machine.programs import run_ranks
run_ranks(["/bin/sh", "-c", "echo $$ >$0; exec sleep 600", sys.argv[1]], 600.0, "ranks", 2)
"""


def test_ranks_of_a_measurement_that_is_killed_are_ended(tmp_path: Path) -> None:
    told = tmp_path / "pid"
    os.mkfifo(told)
    process = subprocess.Popen([sys.executable, "-c", MEASURES, str(told)])
    pid = int(told.read_text())  # waits for it
    handle = os.pidfd_open(pid)
    process.send_signal(signal.SIGKILL)
    process.wait()
    # Readable when the process has ended.
    assert select.select([handle], [], [], 300.0)[0]
    os.close(handle)


def test_a_compiler_that_is_stopped_is_ended_with_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = tmp_path / "child"
    stopped = f"sleep 600 & echo $! >{child}; kill -STOP $$"
    deadline, start = time.monotonic() + 120, subprocess.Popen

    def started(*words: Any, **options: Any) -> subprocess.Popen[str]:
        """Start it; its time begins when its child is there, on a busy machine some time later."""
        process = start(*words, **options)
        while not (child.exists() and child.read_text()) and time.monotonic() < deadline:
            time.sleep(0.01)
        return process

    monkeypatch.setattr(compiling, "_TIMEOUT_S", 1.0)
    monkeypatch.setattr(subprocess, "Popen", started)
    with pytest.raises(P3SError, match="cannot compile it with sh: it did not end within 1 s"):
        compiling.run_tool(["sh", "-c", stopped], "compile it")
    number = int(child.read_text())
    while _lives(number) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _lives(number), "what the compiler has started is still there"


def test_the_first_error_of_a_compiler_is_told() -> None:
    said = "echo note; echo 'a.c:1: error: no such thing' >&2; exit 1"
    with pytest.raises(P3SError, match="cannot compile it with sh: a.c:1: error: no such thing"):
        compiling.run_tool(["sh", "-c", said], "compile it")
    assert compiling.run_tool(["echo", "done"], "say it") == "done\n"


def _lives(number: int) -> bool:
    """Tell whether a process is there and no zombie, which its new parent may not ask for."""
    try:
        os.kill(number, 0)
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def run(*counts: int) -> list[Block]:
    return [Block((f"./{'abc'[k]}", str(k)), count, own=True) for k, count in enumerate(counts)]


@pytest.mark.parametrize(
    ("runs", "counts"),
    [
        ([(1, 2)], ["1", "{np-1}"]),
        ([(2, 1)], ["{np-1}", "1"]),
        ([(1, 2), (1, 4)], ["1", "{np-1}"]),
        ([(2, 2), (4, 4)], ["{np/2}", "{np/2}"]),
        ([(1, 3, 2), (1, 7, 2)], ["1", "{np-3}", "2"]),
    ],
)
def test_counts_follow_from_the_whole(runs: list[tuple[int, ...]], counts: list[str]) -> None:
    words = find_launch_words([run(*each) for each in runs])
    assert [words[at + 1] for at, word in enumerate(words) if word == "-n"] == counts
    for each in runs:
        whole = with_count(words, sum(each))
        assert [int(whole[at + 1]) for at, word in enumerate(whole) if word == "-n"] == list(each)
    assert "./b 1" in " ".join(words) and words.count(":") == len(runs[0]) - 1


def test_counts_without_a_rule_need_the_command() -> None:
    with pytest.raises(UsageError, match="after --"):
        find_launch_words([run(1, 3), run(2, 6), run(3, 7)])
