"""A test that succeeds and the wait that it replaces are one completion of the program."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commands import p3s
from tracer_helpers import PROGRAMS, compile_c, the_mpi, usable_mpi

pytestmark = [pytest.mark.mpi, pytest.mark.skipif(the_mpi() is None, reason="no usable MPI")]

STEPS = 20


@pytest.mark.parametrize("wait", ["always", "else", "some"])
@pytest.mark.parametrize("debug", ["-g", "-g0"])
def test_whichever_completes_the_order_is_one(wait: str, debug: str, tmp_path: Path) -> None:
    install = usable_mpi()
    program = compile_c(PROGRAMS / "polls.c", tmp_path / "polls", debug)
    words = [install.mpiexec, "-n", "{np}", str(program), wait, str(STEPS)]
    p3s("characterize -n 2,3,4 -o study --", *words, code=None, cwd=tmp_path)
    tested = [
        json.loads((tmp_path / f"study/signature/np000{n}.json").read_text())["waits"]
        for n in (2, 3, 4)
    ]
    assert tested[0] == tested[1] == tested[2], "what one count tells holds at all"
    if not any(tested) and wait != "some":
        pytest.skip("no test ever succeeded")
    p3s("model study", code=None, cwd=tmp_path)
    found = p3s("validate study -n 6 --json", code=None, cwd=tmp_path).data
    assert found["order"]["ranks"] == found["order"]["equal"] == 6
    calls = {call["op"]: call for call in found["slots"]}
    assert "MPI_Testall" not in calls
    completed = calls["MPI_Testsome" if wait == "some" else "MPI_Waitall"]
    assert completed["true"] == completed["equal"] == 6 * STEPS
