"""Calls that a compiler copied are one call of the program, with debug information and without."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commands import p3s
from tracer_helpers import PROGRAMS, compile_c, the_mpi, usable_mpi

pytestmark = [pytest.mark.mpi, pytest.mark.skipif(the_mpi() is None, reason="no usable MPI")]


@pytest.fixture(scope="module", params=["lines", "symbols", "stripped"])
def study(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study of copies.c, its program beside it."""
    folder: Path = tmp_path_factory.mktemp(request.param)
    flags = {"lines": ["-g"], "symbols": ["-g0"], "stripped": ["-g0", "-s"]}[request.param]
    program = compile_c(PROGRAMS / "copies.c", folder / "copies", "-O2", *flags)
    install = usable_mpi()
    words = [install.mpiexec, "-n", "{np}", str(program), "7", "1"]
    p3s("characterize -n 2,4,6 -o study --", *words, cwd=folder)
    p3s("model study", code=None, cwd=folder)  # how sure it is of the work does not matter
    return folder / "study"


def test_copies_are_one_call_and_other_calls_of_a_line_are_not(study: Path) -> None:
    phases = json.loads((study / "signature" / "phases.json").read_text())
    turns = [
        {n: row["weight"] for n, row in phase["per_count"].items()} for phase in phases["phases"]
    ]
    assert sorted(str(t) for t in turns) == sorted(
        str({str(n): value(n) for n in (2, 4, 6)})
        for value in (lambda n: 1, lambda n: 7, lambda n: 7 * (n - 1), lambda n: 7)
    )
    calls = [call for phase in phases["phases"] for call in phase["calls"]]
    assert len(calls) == len(set(calls)) == 16  # two Bcasts of one line, each of every rank, stay


def test_a_larger_run_is_predicted_whole(study: Path) -> None:
    done = p3s("validate study -n 9 --json", code=None, cwd=study.parent)
    found = done.data
    assert found["p2p_triples"] == {"true": 1008, "predicted": 1008, "equal": 1008}
