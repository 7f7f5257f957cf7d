"""Faults of ranks and launchers while a program is traced; tests/faults/run.py tries many more."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from fault_trials import RANKS, Command, Matrix, compiled, traced
from paths import ROOT
from tracer_helpers import compile_c, the_mpi

pytestmark = [pytest.mark.skipif(the_mpi() is None, reason="no usable MPI")]

#: That of the tests before a commit.
QUICK = "rank killed"


@pytest.fixture(scope="module")
def trials(tmp_path_factory: pytest.TempPathFactory) -> tuple[Matrix, Command]:
    work = tmp_path_factory.mktemp("faults")
    shim, install = compiled(work), the_mpi()
    assert install is not None and install.mpiexec is not None
    if shim is None:
        pytest.skip("no C compiler to make faults with")
    program = compile_c(ROOT / "examples" / "jacobi2d.c", work / "jacobi2d", "-lm")
    launch = ("--", install.mpiexec, "-n", "{np}", str(program), "--nx", "101")
    words = ("-o", "study", "--no-repeat", "--timeout", "60", *launch)
    (work / "base").mkdir()
    subprocess.run(
        [sys.executable, "-m", "p3s", "characterize", "-n", "2,3,4", *words],
        cwd=work / "base",
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=300,
        check=True,
    )
    makes = ("runs/", "signature/", "study.json", "model.json", "compute.json")
    once = ("characterize", "-n", "2", *words)
    again = Command("characterize", once, makes, False, traced, tuple(RANKS))
    return Matrix(work / "base" / "study", work, shim), again


@pytest.mark.parametrize(
    "fault",
    [fault if fault == QUICK else pytest.param(fault, marks=pytest.mark.slow) for fault in RANKS],
)
def test_a_fault_of_ranks_is_survived(trials: tuple[Matrix, Command], fault: str) -> None:
    matrix, command = trials
    for draw in (40, 41):  # at an operation on files, and at a read of the clock
        outcome = matrix.trial(command, fault, draw)
        assert not outcome.wrong, str(outcome)
