"""SimGrid's programs: where they are, and a run of one until it has ended."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from p3s.base.errors import P3SError
from p3s.base.host.processes import run_session

#: Words of the lines that say why a run failed.
_WHY = ("eadlock", "rror", "exchange:")


def simgrid_program(name: str) -> str:
    """Return the path of a program of SimGrid; P3SError where it is not installed."""
    path = shutil.which(name)
    if not path:
        raise P3SError(f"{name} is not installed; install SimGrid (Debian: libsimgrid-dev)")
    return path


def run_simgrid(words: Sequence[str], directory: Path, patience_s: float, what: str) -> None:
    """Run a command of SimGrid in a directory that it may fill.

    ``what``: the run, for errors. Raises P3SError where it fails, its ranks wait for each other for
    ever, or it takes longer than ``patience_s``.
    """
    environment = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
    environment["TMPDIR"] = str(directory)
    try:
        process = run_session(words, patience_s, cwd=directory, env=environment)
    except subprocess.TimeoutExpired as err:
        raise P3SError(f"{what} did not end in {patience_s:.0f} s; it was given up") from err
    output = process.stdout + process.stderr
    if process.returncode or "Stalling SMPI" in output or "Deadlock" in output:
        lines = [line.strip() for line in output.splitlines() if line.strip()] or ["no message"]
        why = next((line for word in _WHY for line in lines if word in line), lines[-1])
        raise P3SError(f"{what} failed with code {process.returncode}: {why[:200]}")
