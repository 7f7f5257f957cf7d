"""Programs that end before their work, with exit code 0, are told from those that do it."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import p3s
from tracer_helpers import PROGRAMS, compile_c, the_mpi, usable_mpi

pytestmark = [pytest.mark.mpi, pytest.mark.skipif(the_mpi() is None, reason="no usable MPI")]


@pytest.mark.parametrize(("steps", "told"), [("0", True), ("5", False)])
def test_what_a_program_said_that_calls_mpi_in_no_loop_is_told(
    steps: str, told: bool, tmp_path: Path
) -> None:
    program = compile_c(PROGRAMS / "refuses.c", tmp_path / "refuses")
    install = usable_mpi()
    run = [install.mpiexec, "-n", "{np}", str(program), steps]
    done = p3s("characterize -n 1,2,3 -o study --", *run, cwd=tmp_path)
    assert ("steps must be at least 1" in done.err) == told
    assert ("calls MPI in no loop" in done.err) == told


def test_a_count_that_the_program_refuses_with_exit_code_0_is_no_run(tmp_path: Path) -> None:
    program = compile_c(PROGRAMS / "refuses.c", tmp_path / "refuses")
    run = [usable_mpi().mpiexec, "-n", "{np}", str(program), "5", "odd"]
    done = p3s("characterize -n 1,2,3,5 -o study --json --", *run, cwd=tmp_path, code=3)
    assert done.data["characterized"] == [1, 3, 5]
    (failed,) = done.data["failed"]
    assert failed["np"] == 2 and failed["exit_code"] == 0 and failed["refused"]
    assert "none of the calls that it repeats at 1, 3 and 5" in failed["reason"]
    assert "the number of processes must be odd" in failed["reason"]
    kept = {path.name for path in (tmp_path / "study" / "runs").iterdir()}
    assert {"np0001.r0", "np0002.r0.failed", "np0003.r0", "np0005.r0"} <= kept
    assert not [*(tmp_path / "study" / "signature").glob("np0002.*")]
    p3s("model study", cwd=tmp_path, code=None, err="fitted from 1, 3 and 5 processes")
