"""The bar of a long job: as wide as the terminal, with the time it took and what is left."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios

import pytest
from paths import ROOT

#: A job that shows its bar once and ends.
JOB = """
from p3s.cli.progress import progress
with progress(7) as bar:
    bar.start("x" * 70 + "end")
    bar.step()
    bar._bar.refresh()
"""


@pytest.mark.parametrize(("columns", "whole"), [(60, False), (150, True)])
def test_the_bar_is_as_wide_as_the_terminal(columns: int, whole: bool) -> None:
    """What a step is called is cut where the terminal ends, and nowhere else."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    env = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "NO_COLOR")}
    env |= {"PYTHONPATH": str(ROOT), "TERM": "xterm"}
    try:
        job = [sys.executable, "-c", JOB]
        done = subprocess.run(job, stderr=theirs, stdin=theirs, stdout=theirs, env=env, timeout=60)
        assert done.returncode == 0
        text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", os.read(ours, 1 << 16).decode())
    finally:
        os.close(ours)
        os.close(theirs)
    lines = [line.rstrip() for line in re.split(r"[\r\n]+", text) if "1/7" in line]
    assert lines and all(len(line) == columns for line in lines), text
    assert all(("x" * 70 + "end" in line) == whole and "0:00:00" in line for line in lines)
