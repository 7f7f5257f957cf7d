"""No process of a launcher is left, also of one that has left its ranks behind."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from p3s.base.errors import P3SError
from p3s.base.host.processes import MARK, marked, new_mark, stop
from p3s.machine.network import run_ranks

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
    assert marked(mark) == [pid]
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
from p3s.machine.network import run_ranks
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
