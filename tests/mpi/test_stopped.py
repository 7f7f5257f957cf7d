"""A program whose tracing the user stops: told as stopped, and with how to go on."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tracer_helpers import the_mpi

from p3s.base.study import Study

#: Makes no MPI call, and writes a file once it runs.
_WAITS = "import pathlib, sys, time; pathlib.Path(sys.argv[1]).touch(); time.sleep(600)"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_count_is_no_failed_one(number: signal.Signals, tmp_path: Path) -> None:
    there = tmp_path / "there"
    words = [
        sys.executable,
        "-m",
        "p3s",
        "characterize",
        "-n",
        "2,3,4",
        "-o",
        str(tmp_path / "s"),
        "--",
    ]
    words += [str(the_mpi().mpiexec), "-n", "{np}", sys.executable, "-c", _WAITS, str(there)]
    with subprocess.Popen(
        words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            until = time.monotonic() + 240
            while not there.exists() and process.poll() is None and time.monotonic() < until:
                time.sleep(0.1)
            process.send_signal(number)
            _, said = process.communicate(timeout=240)
        finally:
            process.kill()
    assert there.exists() and process.returncode == 128 + number, said
    told = next(line for line in said.splitlines() if "np=2: stopped before its end" in line)
    again = shlex.split(told.partition("to go on, run ")[2])
    assert again[:2] == ["p3s", "characterize"] and again[again.index("-n") + 1] == "2,3,4"
    study = Study.open(tmp_path / "s")
    assert study.stopped_counts() == [2] and study.failed_counts() == []
    assert os.listdir(study.root / "runs") == ["np0002.r0.stopped"]
