"""``p3s next``: which smaller workload would show what a process does at a large count."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import corpus
import pytest
from corpus import Recorder

from p3s.artefacts import write_json
from p3s.cli.next import far_command, measured_range, without_arguments
from p3s.errors import P3SError
from p3s.far.propose import default_target, propose
from p3s.model.fit import build_model
from p3s.report.next import render_far
from p3s.study import Study


def program(rec: Recorder) -> None:
    for _ in range(10):
        rec("Send", peer=(rec.rank + 1) % rec.n, nbytes=8 * (4096 // rec.n),
            work=1000 * 4096 // rec.n)
        rec("Recv", peer=(rec.rank - 1) % rec.n, nbytes=8 * (4096 // rec.n), work=0)
    for _ in range(10):
        rec("Allreduce", nbytes=8, work=50000)


@pytest.fixture(scope="module")
def model() -> dict[str, Any]:
    tables = [replace(corpus.table(program, n), work_unit="instructions") for n in (2, 4, 8)]
    return build_model(tables, holdout=False)


def test_what_is_outside_and_which_input_covers_it(model: dict[str, Any]) -> None:
    assert default_target(model) == 128
    found = propose(model, 128, {})
    (phase,) = found["phases"]  # the work per turn of the Allreduce is the same at all counts
    assert phase["name"] == "Send+Recv" and phase["even"]
    assert phase["outside"] == pytest.approx(16, rel=0.01)
    assert phase["measured"] == pytest.approx([512000, 2048000], rel=0.01)
    assert found["input"] == 1 / 16 and found["counts"] == [2, 4, 8]
    assert found["stands_for"] == [32, 64, 128] and not found["above"]
    text = render_far(found, "instructions", "p3s characterize --far -n 2,4,8")
    assert "An input of 1/16 of the size gives each of 8 processes what it has at 128" in text
    assert "2 stand for 32, 4 stand for 64, 8 stand for 128." in text.replace("\n", " ")
    assert text.endswith("p3s characterize --far -n 2,4,8")


def test_what_was_measured_by_far_runs_needs_no_other(model: dict[str, Any]) -> None:
    (k,) = [p["phase"] for p in model["phases"] if p["name"] == "Send+Recv"]
    found = propose(model, 128, {k: (32000.0, 2048000.0)})
    assert not found["phases"]
    assert "No far point is needed for 128 processes" in render_far(found, "instructions", "")
    (phase,) = propose(model, 128, {k: (64000.0, 2048000.0)})["phases"]
    assert phase["outside"] == pytest.approx(2, rel=0.01)
    assert not propose(model, 8, {})["phases"]
    assert not propose(model, 128, {}, {k: 125.0})["phases"]
    (phase,) = propose(model, 128, {}, {k: 64.0})["phases"]
    assert phase["outside"] == pytest.approx(2)


def test_more_work_than_measured_needs_no_smaller_workload(model: dict[str, Any]) -> None:
    found = propose(model, 8, {p["phase"]: (1.0, 1000.0) for p in model["phases"]})
    assert not found["phases"] and "Send+Recv" in found["above"]
    assert "no smaller workload shows that" in render_far(found, "instructions", "").replace(
        "\n", " ")


def test_time_without_sizes_that_change_cannot_be_matched() -> None:
    def plain(rec: Recorder) -> None:
        for _ in range(10):
            rec("Allreduce", nbytes=8, work=1e6 / rec.n)

    tables = [corpus.table(plain, n) for n in (2, 4, 8)]
    found = propose(build_model(tables, holdout=False), 64, {})
    assert found["unmatched"] and "--work instructions" in render_far(found, "cpu_ns", "")


def test_the_target_must_be_a_count_the_grid_has(model: dict[str, Any]) -> None:
    grid = {**model["grid"], "family": {**model["grid"]["family"], "kind": "cube", "ndims": 2}}
    with pytest.raises(P3SError, match="no form at 130 processes"):
        propose({**model, "grid": grid}, 130, {})


def test_the_command_leaves_the_input_to_the_user(tmp_path: Path) -> None:
    words = ["mpiexec", "-n", "{np}", "./nowhere/app", "--size", "4"]
    assert without_arguments(words) == ["mpiexec", "-n", "{np}", "./nowhere/app"]
    study = Study.create(tmp_path / "s", words)
    assert far_command(study, [4, 8]) == [
        "p3s", "characterize", "--far", "-n", "4,8", "-o", str(tmp_path / "s"), "--",
        "mpiexec", "-n", "{np}", "./nowhere/app", "SMALLER_INPUT"]  # fmt: skip
    assert measured_range(study) == ({}, {})
    phases = [{"phase": 0, "x": None, "n": None}, {"phase": 2, "x": [3.5, 70], "n": [2, 40.5]}]
    head = {"schema": "p3s.compute", "schema_version": 1, "phases": phases}
    write_json(study.compute_path, {**head, "work_unit": "instructions"})
    assert measured_range(study) == ({2: (3.5, 70.0)}, {})
    write_json(study.compute_path, {**head, "work_unit": "cpu_ns"})
    assert measured_range(study) == ({}, {2: 40.5})


def test_an_interpreter_keeps_its_script() -> None:
    import sys

    words = ["mpiexec", "-n", "{np}", sys.executable, "-u", "solve.py", "--size", "9"]
    kept = without_arguments(words)
    assert kept[:3] == words[:3] and kept[-1] in ("solve.py", sys.executable)
    assert kept[-1] == "solve.py"
