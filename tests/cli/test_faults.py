"""Some faults in a command that writes; tests/faults/run.py tries many, in all commands."""

from __future__ import annotations

import pytest
import timed_study as ts
from fault_trials import FAULTS, Command, Matrix, compiled

#: Those of the tests before a commit.
QUICK = ("kill", "full", "rename", "two writers")
SCALE = Command("scale", ("scale", "study", "-n", "64"), ("scaled/",))


@pytest.fixture(scope="module")
def matrix(tmp_path_factory: pytest.TempPathFactory) -> Matrix:
    work = tmp_path_factory.mktemp("faults")
    shim = compiled(work)
    if shim is None:
        pytest.skip("no C compiler to make faults with")
    study, _ = ts.put_study(work / "base" / "study", ts.sweeps(1 << 20, 10), (4, 8, 16))
    return Matrix(study.root, work, shim)


@pytest.mark.parametrize(
    "fault",
    [fault if fault in QUICK else pytest.param(fault, marks=pytest.mark.slow) for fault in FAULTS],
)
def test_a_fault_is_survived(matrix: Matrix, fault: str) -> None:
    draw = 2 + 7919 * FAULTS.index(fault)
    outcome = matrix.trial(SCALE, fault, draw)
    assert not outcome.wrong, str(outcome)
