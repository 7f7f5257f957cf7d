"""A master that hands out tasks to whoever asks: recognised, predicted, compared by totals."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from commands import cli
from paths import PROGRAMS
from tracer_helpers import usable_mpi

from p3s.base.settings import traces_of
from p3s.base.study import Study
from p3s.methods.tasks.recognise import find_task_queue, of_path

TASKS = 60


@pytest.fixture(scope="module")
def farm(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A study of the program at 3 to 5 processes, and the words that run it."""
    install = usable_mpi()
    folder = tmp_path_factory.mktemp("farm")
    program = folder / "farm"
    source = PROGRAMS / "queue" / "farm.c"
    subprocess.run(
        [install.mpicc, "-O1", "-o", program, source], check=True, timeout=120, capture_output=True
    )
    words = [str(install.mpiexec), "-n", "{np}", str(program), str(TASKS), "100", "500", "2"]
    study = folder / "study"
    cli(f"characterize -n 3,4,5 -o {study} --", *words)
    cli(f"model {study}", code=None)
    return study, words


def test_the_queue_is_recognised_with_its_totals(farm: tuple[Path, list[str]]) -> None:
    study = Study.open(farm[0])
    for n in (3, 4, 5):
        (served,) = of_path(study.runs(n)[0].path)
        assert served.server == 0 and served.workers == tuple(range(1, n))
        assert len(served.tasks) == TASKS and served.shares.sum() == TASKS
        assert len(served.service) == TASKS + n - 1  # all are told to stop
        assert served.tasks.min() > 90e-6 and (served.asked, served.told) == (128.0, 4.0)
        printed = (study.runs(n)[0].path / "stdout.txt").read_text().split("\n")
        said = {int(w[1]): int(w[3]) for w in map(str.split, printed) if len(w) == 4}
        assert [said[w] for w in served.workers] == served.shares.tolist()
    found = find_task_queue(traces_of(study))
    assert found is not None and found.exact == (TASKS, 0)


def test_what_depends_on_timing_is_no_miss(farm: tuple[Path, list[str]]) -> None:
    study, words = farm
    told = cli(f"validate {study} -n 6 --json --", *words, code=None).data
    assert told["dealt"]["tasks"] == told["dealt"]["predicted"] == TASKS
    assert told["dealt"]["same"]
    assert "validate-missed" not in [reason["code"] for reason in told["reasons"]]


def test_a_prediction_says_so(farm: tuple[Path, list[str]]) -> None:
    study, _ = farm
    cli(f"predict {study} -n 3,4,5,16 --no-replay", code=None)
    made = json.loads(Study.open(study).prediction_path.read_text())
    row = next(row for row in made["counts"] if row["n"] == 16)
    # 60 tasks of 100 to 500 us on 15 workers: not less than their share
    assert row["time_s"] > TASKS * 100e-6 / 15
    assert any("queue of tasks" in note for note in made["notes"])
    assert "holdout-missed" not in [reason["code"] for reason in made["reasons"]]


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study of ranks that take tasks from a counter, at 3 to 5 processes."""
    install = usable_mpi()
    folder = tmp_path_factory.mktemp("counted")
    program = folder / "counted"
    source = PROGRAMS / "queue" / "counted.c"
    subprocess.run(
        [install.mpicc, "-O1", "-o", program, source], check=True, timeout=120, capture_output=True
    )
    words = [str(install.mpiexec), "-n", "{np}", str(program), str(TASKS)]
    study = folder / "study"
    cli(f"characterize -n 3,4,5 -o {study} --", *words)
    return study


def test_a_counter_hands_out_tasks(counted: Path) -> None:
    study = Study.open(counted)
    for n in (3, 4, 5):
        (served,) = of_path(study.runs(n)[0].path)
        assert served.counter and served.server == 0 and served.workers == tuple(range(n))
        printed = (study.runs(n)[0].path / "stdout.txt").read_text().split("\n")
        said = {int(w[1]): int(w[3]) for w in map(str.split, printed) if len(w) == 4}
        assert [said[w] for w in served.workers] == served.shares.tolist()
        assert len(served.tasks) == TASKS and served.inside == (1.0, 3200.0)
    found = find_task_queue(traces_of(study))
    assert found is not None and found.exact == (TASKS, 0) and found.workers(16) == 16


def test_a_prediction_says_what_a_counter_does(counted: Path) -> None:
    cli(f"predict {counted} -n 3,4,5,16 --no-replay", code=None)
    study = Study.open(counted)
    made = json.loads(study.prediction_path.read_text())
    row = next(row for row in made["counts"] if row["n"] == 16)
    found = find_task_queue(traces_of(study))
    assert found is not None
    assert row["time_s"] > 0.5 * min(float(each.sum()) for each in found.tasks) / 16
    assert any("a counter of rank 0" in note for note in made["notes"])
    assert "holdout-missed" not in [reason["code"] for reason in made["reasons"]]


def test_the_hold_out_of_a_queue_is_no_miss(farm: tuple[Path, list[str]]) -> None:
    assert "holdout-missed" not in cli(f"model {farm[0]}", code=None).err


def test_who_is_heard_first_is_no_miss(tmp_path: Path) -> None:
    install = usable_mpi()
    program, study = tmp_path / "heard", tmp_path / "study"
    source = PROGRAMS / "queue" / "heard.c"
    subprocess.run(
        [install.mpicc, "-o", program, source], check=True, timeout=120, capture_output=True
    )
    words = [str(install.mpiexec), "-n", "{np}", str(program), "6"]
    cli(f"characterize -n 3,4,5 -o {study} --", *words)
    found = cli(f"validate {study} -n 6 --json --", *words, code=None).data
    order = found["order"]
    assert found["p2p_triples"]["equal"] == found["p2p_triples"]["true"] == 25
    # On a loaded machine the first may come first all the same.
    assert order["equal"] + order.get("by_chance", 0) == order["ranks"] == 6
