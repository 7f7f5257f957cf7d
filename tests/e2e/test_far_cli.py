"""``p3s characterize --far`` on real programs: what is recorded, and what leaves no trace."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from typing import Any

import pytest
from commands import Shown, cli
from tracer_helpers import PROGRAMS, compile_c, the_mpi, usable_mpi

from p3s.base.study import Study
from p3s.costs.points import Point
from p3s.model.stage import load
from p3s.pipeline.costing import name_for, other_points

OTHER = """
#include <mpi.h>
int main(int argc, char **argv)
{
    int one = 1, all;
    MPI_Init(&argc, &argv);
    for (int k = 0; k < 20; k++)
        MPI_Reduce(&one, &all, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
"""


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if the_mpi() is None:
        pytest.skip("no MPI")
    folder = tmp_path_factory.mktemp("far")
    compile_c(PROGRAMS / "workload.c", folder / "workload")
    compile_c(OTHER, folder / "other")
    return folder


def launch(program: Path, *args: object) -> list[str]:
    install = usable_mpi()
    share = ["--oversubscribe"] if install.family == "openmpi" else []
    return ["--", install.mpiexec, *share, "-n", "{np}", str(program), *map(str, args)]


@pytest.fixture(scope="module")
def made(programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A modelled study of the program with 40,000 cells."""
    root = tmp_path_factory.mktemp("study") / "study"
    command = launch(programs / "workload", 40000, 40)
    cli(f"characterize -n 2,3,4 --work cpu -o {root}", *command)
    cli(f"model {root}", code=(0, 3))
    return root


@pytest.fixture
def study(made: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return shutil.copytree(made, tmp_path / "study")


def fingerprint(root: Path) -> dict[str, str]:
    """Return every file and directory of a study, with what is in it."""
    return {
        str(p.relative_to(root)): hashlib.sha256(p.read_bytes()).hexdigest() if p.is_file() else ""
        for p in sorted(root.rglob("*"))
    }


def far(root: Path, *args: str, **expected: Any) -> Shown:
    return cli(f"characterize --far -o {root}", *args, **expected)


def test_runs_of_a_smaller_workload_are_a_study_inside_the_study(
    study: Path, programs: Path
) -> None:
    before = fingerprint(study)
    command = launch(programs / "workload", 5000, 90)
    told: dict[str, Any] = far(study, "-n", "2", "--json", *command).data
    assert told["schema"] == "p3s.far-runs" and told["workload"] == "far/w1"
    after = fingerprint(study)
    assert {k: after[k] for k in before} == before, "the study's own files stay as they were"
    new = {name.split("/")[0] for name in after.keys() - before.keys()}
    assert new == {"far"}
    other = Study(study / "far" / "w1")
    assert other.counts() == other.signature_counts() == [2]
    assert [o.root for o in Study(study).others()] == [other.root]

    # another count of the same command joins it, another command gets a place of its own
    added = far(study, "-n", "4", "--json", *command).data
    assert other.signature_counts() == [2, 4]
    assert name_for(Study(study), launch(programs / "workload", 2500, 90)[1:]) == "w2"

    # what is asserted does not depend on times: on a busy machine any of them may be wrong
    found = other_points(Study(study), load(study))[0]
    sent = [p for p in found if p.place[1] == "MPI_Sendrecv"]
    assert {p.traced for p in sent} <= {2, 4}
    for point in sent:
        assert isinstance(point, Point) and point.source == "far/w1"
        assert point.n == pytest.approx(8 * point.traced, rel=0.01)
        assert point.work > 0 and point.least_ns > 0
    rows = {(r["np"], r["name"]): r for r in added["matched"]["rows"]}
    for np in (2, 4):
        assert rows[(np, "Sendrecv")]["n"] == pytest.approx(8 * np, rel=0.01)
    assert rows[(2, "Sendrecv")]["turns"] == rows[(2, "Allreduce")]["turns"] == 90
    # the Allreduce carries 8 bytes at any count: it is matched with the rest of the program
    assert rows[(4, "Allreduce")]["n"] == pytest.approx(32, rel=0.02)
    text = far(study, "-n", "4", *command).out
    assert "stands for" in text and "far/w1: " in text

    # its runs are checked with those of the study
    checked = {r["path"] for r in cli(f"check --json {study}").data["runs"]}
    assert {str(other.runs_dir(np)) for np in (2, 4)} < checked
    other.runs_dir(4).joinpath("rank-000000.p3t").unlink()
    cli(f"check {study}", code=3, out=f"{other.runs_dir(4)}: ")


def refused(study: Path, args: list[str], code: int) -> str:
    """Run characterize --far, check that it fails in one line and changes nothing."""
    before = fingerprint(study)
    said = far(study, *args, code=code)
    assert said.out == ""
    error = [line for line in said.err.splitlines() if line.startswith("p3s: ")]
    assert len(error) == 1 and said.err.splitlines()[-1] == error[0], said.err
    assert fingerprint(study) == before, "a run that is refused leaves nothing"
    return error[0]


def test_what_is_known_before_anything_is_run(study: Path, programs: Path, tmp_path: Path) -> None:
    program = programs / "workload"
    smaller = launch(program, 5000, 40)
    assert "the study's own workload" in refused(study, ["-n", "2", *launch(program, 40000, 40)], 2)
    assert "one process" in refused(study, ["-n", "1,2", *smaller], 2)
    assert "measured in cpu" in refused(study, ["-n", "2", "--work", "instructions", *smaller], 2)
    assert "--signature" in refused(study, ["-n", "2", "--signature", *smaller], 2)
    assert "--up-to: not with -n" in refused(study, ["-n", "2", "--up-to", "4", *smaller], 2)
    far(tmp_path / "none", "-n", "2", *smaller, code=1, err="no study here")
    assert not (tmp_path / "none").exists()


def test_a_different_program(study: Path, programs: Path) -> None:
    error = refused(study, ["-n", "2", *launch(programs / "other")], 1)
    assert "a different program: 3 of its 3 places are not in the study" in error
    assert "MPI_Reduce in other+0x" in error and "(workload)" in error


def test_a_larger_workload(study: Path, programs: Path) -> None:
    error = refused(study, ["-n", "2", *launch(programs / "workload", 80000, 10)], 1)
    assert "np=2: a larger workload: " in error and "2 times its bytes" in error


def test_other_phases(study: Path, programs: Path) -> None:
    program = programs / "workload"
    error = refused(study, ["-n", "2", *launch(program, 5000, 40, "reduce")], 1)
    assert "other phases: what takes" in error and "Sendrecv" in error
    error = refused(study, ["-n", "2", *launch(program, 5000, 40, "more")], 1)
    assert "other phases: " in error and "MPI_Barrier in workload+0x" in error


def test_a_count_that_fails_keeps_the_others(study: Path, programs: Path) -> None:
    command = launch(programs / "workload", 5000, 40, "both", 3)
    far(study, "-n", "2,3", *command, code=3, err="np=3")
    assert Study(study / "far" / "w1").signature_counts() == [2]
    error = refused(study, ["-n", "3", *command], 1)
    assert "np=3" in error and "nothing was added" in error and "kept in" not in error


def test_a_count_that_cannot_be_started_keeps_the_others(
    study: Path, programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from p3s.pipeline.tracing import runs

    real = runs.trace_once

    def full(study: Study, launch: Any, np: int, *args: Any) -> Any:
        if np > 2:
            raise runs.RunFailure("mpiexec: not enough slots", None, "failed")
        return real(study, launch, np, *args)

    monkeypatch.setattr(runs, "trace_once", full)
    command = launch(programs / "workload", 5000, 40)
    far(study, "-n", "2,4", *command, code=3, err="np=4: mpiexec: not enough slots; kept: 2")
    assert Study(study / "far" / "w1").signature_counts() == [2]


def test_an_interrupted_run_leaves_nothing(
    study: Path, programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from p3s.pipeline.tracing import runs

    real = runs.trace_once

    def interrupted(study: Study, launch: Any, np: int, *args: Any) -> Any:
        if np > 2:
            raise KeyboardInterrupt
        return real(study, launch, np, *args)

    before = fingerprint(study)
    monkeypatch.setattr(runs, "trace_once", interrupted)
    far(study, "-n", "2,4", *launch(programs / "workload", 5000, 40), code=130)
    assert fingerprint(study) == before


def test_without_counts_they_are_walked_upwards(study: Path, programs: Path) -> None:
    command = launch(programs / "workload", 5000, 40)
    told = far(study, "--up-to", "2", "--json", *command).data
    assert [row["np"] for row in told["counts"]] == [2]
    assert {row["status"] for row in told["minimum"]} == {"unknown"}  # one count says nothing
    assert {row["name"] for row in told["minimum"]} == {"Sendrecv", "Allreduce"}
