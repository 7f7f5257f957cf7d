"""A real program on more ranks than cores: its small runs predict its large ones."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from commands import cli
from tracer_helpers import PROGRAMS

from p3s.base.host import mpi

#: One whose ranks give up their core while they wait: with polling ones on the same core, what is
#: measured from 32 ranks on is the polling.
YIELDING = next(
    (
        found
        for found in mpi.find_mpi()
        if found.family == mpi.OPENMPI and found.mpiexec and found.usable_oversubscribed
    ),
    None,
)
pytestmark = [
    pytest.mark.mpi,
    pytest.mark.slow,
    pytest.mark.skipif(YIELDING is None, reason="no Open MPI can be started here"),
]


def test_small_runs_predict_large_ones(tmp_path: Path) -> None:
    """Work is slept: a few cores show how it scales; the least of three runs counts."""
    assert YIELDING is not None and YIELDING.mpiexec is not None
    program = tmp_path / "sleeper"
    subprocess.run(
        [YIELDING.mpicc, "-O2", "-o", str(program), str(PROGRAMS / "sleeper.c"), "-lm"],
        check=True,
        timeout=120,
        capture_output=True,
    )
    command = ["--", YIELDING.mpiexec, "-n", "{np}", str(program), "24"]
    options = ["-r", "3", "--timeout", "120", "--time-from", "took ([0-9.]+) s"]
    small, large = tmp_path / "small.csv", tmp_path / "large.csv"
    cli("baseline run -n 4,8,12,16,24", *options, "-o", small, *command)
    cli("baseline run -n 32,48,64", *options, "-o", large, *command)
    told = cli(
        f"baseline predict {small} -n 32,48,64 --family three-term --against {large} --json"
    ).data
    assert [row["ratio"] for row in told["counts"]] == pytest.approx([4 / 3, 2, 8 / 3])
    for target in told["compared"]["targets"]:
        assert abs(target["error"]) <= 0.20, told["compared"]
