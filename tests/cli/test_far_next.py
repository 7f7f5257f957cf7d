"""``p3s next``: which smaller workload would show what a process does at a large count."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import corpus
import models
import pytest
from compute_by_hand import compute_model, phase_costs
from corpus import Recorder

from p3s.base.artefacts import write_json
from p3s.base.command_lines import render_from_here, without_arguments
from p3s.base.errors import P3SError
from p3s.base.settings import traces_of
from p3s.base.study import Study
from p3s.base.text import command_line
from p3s.costs.small_runs.lookup import default_target, propose
from p3s.costs.types import COMPUTE, load, measured_range
from p3s.model.grid.grids import Cube
from p3s.model.holdout import build_model
from p3s.model.stage import as_of_now
from p3s.model.types import Model, NextCount
from p3s.pipeline.commands import build_smaller_run, tracing
from p3s.pipeline.records import known_of
from p3s.report.next import render_far


def program(rec: Recorder) -> None:
    for _ in range(10):
        rec(
            "Send",
            peer=(rec.rank + 1) % rec.n,
            nbytes=8 * (4096 // rec.n),
            work=1000 * 4096 // rec.n,
        )
        rec("Recv", peer=(rec.rank - 1) % rec.n, nbytes=8 * (4096 // rec.n), work=0)
    for _ in range(10):
        rec("Allreduce", nbytes=8, work=50000)


@pytest.fixture(scope="module")
def model() -> Model:
    tables = [replace(corpus.table(program, n), work_unit="instructions") for n in (2, 4, 8)]
    return build_model(tables, holdout=False)


def test_what_is_outside_and_which_input_covers_it(model: Model) -> None:
    assert default_target(model) == 128
    found = propose(model, 128, {})
    (phase,) = found["phases"]  # the work per turn of the Allreduce is the same at all counts
    assert phase["name"] == "Send+Recv" and phase["even"]
    assert phase["outside"] == pytest.approx(16, rel=0.01)
    assert phase["measured"] == pytest.approx([512000, 2048000], rel=0.01)
    assert found["input"] == 1 / 16 and found["counts"] == [2, 4, 8]
    assert found["stands_for"] == [32, 64, 128] and not found["above"]
    found["arguments"] = "--size 4"
    text = render_far(found, "instructions", "p3s characterize --far -n 2,4,8 ./app ARGUMENTS")
    assert "An input of 1/16 of the size gives each of 8 processes what it has at 128" in text
    assert "2 stand for 32, 4 stand for 64, 8 stand for 128." in text.replace("\n", " ")
    assert text.endswith(
        "those of the whole input are:\n--size 4\n"
        "This line does not run as it is; put yours in place of ARGUMENTS:\n\n"
        "  p3s characterize --far -n 2,4,8 ./app ARGUMENTS"
    )
    text = render_far(found, "instructions", "")
    assert "has no arguments to change" in text and "./app" not in text


def test_what_was_measured_by_far_runs_needs_no_other(model: Model) -> None:
    (k,) = [p.phase for p in model.phases if p.name == "Send+Recv"]
    found = propose(model, 128, {k: (32000.0, 2048000.0)})
    assert not found["phases"]
    assert "No smaller input is needed for 128 processes" in render_far(found, "instructions", "")
    (phase,) = propose(model, 128, {k: (64000.0, 2048000.0)})["phases"]
    assert phase["outside"] == pytest.approx(2, rel=0.01)
    assert not propose(model, 8, {})["phases"]
    assert not propose(model, 128, {}, {k: 125.0})["phases"]
    (phase,) = propose(model, 128, {}, {k: 64.0})["phases"]
    assert phase["outside"] == pytest.approx(2)


def test_more_work_than_measured_needs_no_smaller_workload(model: Model) -> None:
    found = propose(model, 8, {p.phase: (1.0, 1000.0) for p in model.phases})
    assert not found["phases"] and "Send+Recv" in found["above"]
    assert "no smaller workload shows that" in render_far(found, "instructions", "").replace(
        "\n", " "
    )


def test_time_without_sizes_that_change_cannot_be_matched() -> None:
    def plain(rec: Recorder) -> None:
        for _ in range(10):
            rec("Allreduce", nbytes=8, work=1e6 / rec.n)

    tables = [corpus.table(plain, n) for n in (2, 4, 8)]
    found = propose(build_model(tables, holdout=False), 64, {})
    assert found["unmatched"]
    text = render_far(found, "cpu_ns", "")
    assert text.endswith("Trace with --work instructions.") and "characterize" not in text


def test_the_target_must_be_a_count_the_grid_has(model: Model) -> None:
    grid = replace(model.grid, family=Cube(2))
    with pytest.raises(P3SError, match="no form at 130 processes"):
        propose(replace(model, grid=grid), 130, {})


def test_the_command_of_a_smaller_workload_ends_before_the_arguments(tmp_path: Path) -> None:
    words = ["mpiexec", "-n", "{np}", "./nowhere/app", "--size", "4"]
    assert without_arguments(words) == ["mpiexec", "-n", "{np}", "./nowhere/app"]
    study = Study.create(tmp_path / "s", words)
    assert build_smaller_run(traces_of(study), [4, 8]) == [
        "p3s",
        "characterize",
        "--far",
        "-n",
        "4,8",
        "-o",
        str(tmp_path / "s"),
        "--",
        *words[:4],
    ]
    assert build_smaller_run(traces_of(Study.create(tmp_path / "t", words[:4])), [4, 8]) == []
    assert measured_range(load(study.root)) == ({}, {})
    phases = phase_costs(0), phase_costs(2, x=(3.5, 70.0), n=(2.0, 40.5))
    write_json(study.compute_path, COMPUTE.data(compute_model("instructions", phases=phases)))
    assert measured_range(load(study.root)) == ({2: (3.5, 70.0)}, {})
    write_json(study.compute_path, COMPUTE.data(compute_model("cpu_ns", phases=phases)))
    assert measured_range(load(study.root)) == ({}, {2: 40.5})


def put_run(study: Study, np: int, rep: int = 0, **info: Any) -> Path:
    """Make a complete run as the launcher leaves it."""
    path = study.runs_dir(np, rep) / "run.json"
    write_json(
        path,
        {
            "schema": "p3s.run",
            "schema_version": 1,
            "np": np,
            "status": "complete",
            "command": study.command(),
            "work_unit": "cpu_ns",
            **info,
        },
    )
    return path


def test_the_command_has_the_options_of_the_runs(tmp_path: Path) -> None:
    study = Study.create(tmp_path / "s", ["mpiexec", "-n", "{np}", "./app"])
    more = {"counters": ["cycles", "instructions"], "limit_bytes": 1 << 20, "timeout_s": 7200.0}
    for rep in range(3):
        put_run(study, 4, rep, **more)
    ring = models.built("ring")
    words = tracing(traces_of(study), ring, [9, 6])
    assert " ".join(words[2 : words.index("-o")]) == (
        "-n 6,9 -r 3 --counters cycles,instructions --limit 1048576 --timeout 7200"
    )
    counted = tracing(traces_of(study), replace(ring, work_unit="instructions"), [9])
    assert counted[4:7] == ["--work", "instructions", "--no-times"]


def test_the_command_has_the_grid_of_a_program_that_gets_it(tmp_path: Path) -> None:
    words = ["mpiexec", "-n", "{np}", "./app", "{px}", "{py}"]
    study = Study.create(tmp_path / "s", words)
    put_run(study, 6, dims=[2, 3])
    wanted = (NextCount(12, (3, 4), 1.0, ()), NextCount(16, (4, 4), 1.0, ()))
    model = replace(models.built("jacobi2d"), next=wanted)
    model = replace(model, grid=replace(model.grid, dims={"6": (2, 3)}))
    found = tracing(traces_of(study), model, [12, 16])
    assert found[4:6] == ["--dims", "12=3x4"]  # MPI_Dims_create deals 16 so, too
    assert command_line(found).endswith("-- mpiexec -n {np} ./app {px} {py}")
    # the model has them in another order
    model = replace(model, grid=replace(model.grid, dims={"6": (3, 2)}))
    assert tracing(traces_of(study), model, [12, 16])[4] == "-o"


def test_wall_time_where_processes_would_share_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command must not be one that p3s characterize refuses: a study holds one unit."""
    monkeypatch.setattr("p3s.pipeline.commands.cores", lambda: 8)
    study = Study.create(tmp_path / "s", ["mpiexec", "-n", "{np}", "./app"])
    for n in (2, 4, 8):
        put_run(study, n, work_unit="wall_ns", oversubscribed=False)
    wall = models.built("ring")
    assert tracing(traces_of(study), wall, [6])[2:5] == ["-n", "6", "-o"]
    assert tracing(traces_of(study), wall, [12])[2:6] == ["-n", "2,4,8,12", "--work", "cpu"]
    put_run(study, 16, work_unit="wall_ns", oversubscribed=True)
    assert tracing(traces_of(study), wall, [12])[2:6] == ["-n", "12", "--work", "wall"]


def test_the_command_works_from_another_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Relative names, of files of the program too, are from where the study was traced."""
    home = tmp_path / "home dir"
    home.mkdir()
    monkeypatch.chdir(home)
    study = Study.create(Path("s"), ["mpiexec", "-n", "{np}", "./app", "it's"])
    put_run(study, 4, directory=str(tmp_path / "earlier"))
    os.utime(study.runs_dir(4) / "run.json", (0, 0))
    put_run(study, 2, directory=str(home))
    plain = "p3s characterize -n 9 -o {} -- mpiexec -n {{np}} ./app 'it'\"'\"'s'"
    traces = traces_of(study)
    assert render_from_here(traces, tracing(traces, models.built("ring"), [9])) == plain.format("s")
    monkeypatch.chdir(tmp_path)
    moved = Study(Path("home dir/s"))
    line = plain.format(f"'{home}/s'")
    words = tracing(traces_of(moved), models.built("ring"), [9])
    assert render_from_here(traces_of(moved), words) == f"(cd '{home}' && {line})"
    home.rename(tmp_path / "other")
    assert (
        render_from_here(traces_of(Study(tmp_path / "other/s")), ["p3s"]) == "p3s"
    )  # the directory is gone


def test_a_line_is_taken_apart_into_the_same_words() -> None:
    words = ["./a b", "it's", "$HOME", "-np={np}", "", "*", "a\tb\n", "\udcff'\\", "é", "#x", "!"]
    line = command_line(["printf", "%s\\0", *words])
    done = subprocess.run(["bash", "-c", line.encode()], capture_output=True, check=True)
    assert done.stdout.split(b"\0")[:-1] == [os.fsencode(word) for word in words]
    assert "\n" not in line and command_line(["-n", "{np}"]) == "-n {np}"


def test_a_refused_count_is_not_proposed_again(tmp_path: Path) -> None:
    study = Study.create(tmp_path / "s", ["mpiexec", "-n", "{np}", "./app"])
    model = models.built("halo3d")
    first = model.next[0].n
    assert as_of_now(model, known_of(study)) is model
    (study.root / "validate" / f"np{first:06d}.r0.failed").mkdir(parents=True)
    now = as_of_now(model, known_of(study))
    assert first in now.admissible.failed
    assert now.next and first not in [each.n for each in now.next]
    # nor one that was traced and is left out
    put_run(study, now.next[0].n)
    assert now.next[0].n not in [each.n for each in as_of_now(model, known_of(study)).next]


def test_an_interpreter_keeps_its_script() -> None:
    import sys

    words = ["mpiexec", "-n", "{np}", sys.executable, "-u", "solve.py", "--size", "9"]
    kept = without_arguments(words)
    assert kept[:3] == words[:3] and kept[-1] in ("solve.py", sys.executable)
    assert kept[-1] == "solve.py"
