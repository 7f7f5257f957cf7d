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
