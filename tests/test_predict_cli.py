"""p3s predict: which estimator is taken, with and without replays."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import timed_study as ts
from handmade import put_replay
from machines import synthetic

from p3s.cli.main import run
from p3s.compute.stage import compute_json
from p3s.errors import P3SError
from p3s.model.stage import load as load_model
from p3s.study import PREDICTION_VERSION, Study, read_json, write_json

CELLS, COUNTS = 1 << 20, (2, 4, 8)
#: Messages between two hosts: 1 us, 0.5 ns per byte.
NETWORK: dict[str, Any] = {
    "hosts": ["n0", "n1"], "mpi": "openmpi 4.1.4", "eager_bytes": 4000, "ranges": [],
    "sizes": {"bytes": [1, 1000, 100_000], "one_way_ns": [1000.0, 1500.0, 51_000.0],
              "one_way_median_ns": [1000.0, 1500.0, 51_000.0],
              "send_ns": [100.0, 200.0, 40_000.0], "receive_ns": [80.0, 130.0, None],
              "gap_ns": [100.0, 300.0, 40_000.0]}}  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Study:
    """A study of a ring with an allreduce, in instructions that cost 0.3 ns, nothing replayed."""
    from p3s.compute.gather import measured_at

    root = tmp_path_factory.mktemp("m")
    study, tables = ts.put_study(root / "study", ts.sweeps(CELLS, 10), COUNTS)
    model = load_model(study.root)
    found = [measured_at(model, ts.times_of(t, 0.3 * t.segments[:, 4], noise=0.01)) for t in tables]
    write_json(study.compute_path, {
        "schema": "p3s.compute", "schema_version": 1, "time_unit": "cpu_ns", "runs": [],
        "refused": [], "unmatched": {}, "outside_model": {}, **compute_json(model, found, [])})
    return study


@pytest.fixture
def study(made: Study, tmp_path: Path) -> Study:
    shutil.copytree(made.root, tmp_path / "study")
    return Study.open(tmp_path / "study")


def put_machine(path: Path) -> None:
    replace(synthetic(name="box"), network=NETWORK).save(path)


@pytest.fixture
def replays(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Replays take no time and find 1 ms per rank and phase; the counts that were replayed."""
    seen: list[int] = []

    def replayed(study: Study, n: int, *_: Any) -> None:
        phases = read_json(study.scaled_path(n), "p3s.scaled")["phases"]
        put_replay(study, n, [(r, p["phase"], 1e6, 0.9e6, 1.1e6) for r in range(n) for p in phases],
                   nodes=["node0", "node1"])  # fmt: skip
        seen.append(n)

    monkeypatch.setattr("p3s.cli.pipeline.run_replay", replayed)
    monkeypatch.setattr("p3s.cli.pipeline._no_launch", lambda _: "")
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0})  # no process per count
    return seen


def predicted(study: Study, *words: str) -> dict[str, Any]:
    assert run(["predict", str(study.root), "-n", "16", "--json", *words]) in (0, 3)
    return read_json(study.prediction_path, "p3s.prediction", PREDICTION_VERSION)


def test_replays_are_made_once_and_taken(study: Study, replays: list[int]) -> None:
    put_machine(study.root / "machine.json")
    result = predicted(study)
    assert replays == [2, 4, 8, 16] and result["estimator"] == "simulation"
    row = result["counts"][-1]
    assert row["comm_s"] == pytest.approx(2e-3)
    there = {name for name, entry in row["estimators"].items() if entry["time_s"] is not None}
    assert {"simulation", "machine", "thesis"} <= there
    assert row["interval_parts"]["model"][0] < 1.0, "the machine's messages are faster"
    again = predicted(study, "--estimator", "thesis")
    assert replays == [2, 4, 8, 16] and again["estimator"] == "thesis"
    assert again["counts"][-1]["estimators"]["machine"]["why_not"] == "was not asked for"


def test_without_a_replay_messages_cost_what_they_do_between_two_ranks(
    study: Study, replays: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["predict", str(study.root), "-n", "16", "--no-replay"]) == 1
    assert "p3s machine measure" in capsys.readouterr().err and not study.prediction_path.exists()
    put_machine(study.root / "machine.json")
    result = predicted(study, "--no-replay")
    assert replays == [] and result["estimator"] == "machine"
    assert {row["estimator"] for row in result["counts"]} == {"machine"}
    row = result["counts"][-1]
    # ten turns of a message each way of 4 KiB and an allreduce among 16
    assert 10 * 3e-6 < row["comm_s"] < 10 * 100e-6
    assert row["comm_s"] == pytest.approx(row["waiting_s"] + row["transfer_s"] + row["software_s"])
    assert row["compute_s"] == pytest.approx(10 * ts.x_of(CELLS, 16) * 0.3e-9, rel=0.1)
    assert row["estimators"]["simulation"]["time_s"] is None


def test_replays_that_are_out_of_date_are_not_read(study: Study, replays: list[int]) -> None:
    put_machine(study.root / "machine.json")
    predicted(study)
    for n in (4, 16):
        study.scaled_path(n).touch()
    result = predicted(study, "--no-replay")
    rows = {row["n"]: row["estimators"]["simulation"] for row in result["counts"]}
    assert rows[2]["time_s"] is not None and rows[16]["time_s"] is None
    assert "older than the scaled trace" in rows[4]["why_not"]
    predicted(study)
    assert replays == [2, 4, 8, 16, 4, 16]


def test_where_nothing_can_be_launched_the_machine_stands_in(
    study: Study, replays: list[int], monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("p3s.cli.pipeline._no_launch", lambda _: "no mpiexec on PATH")
    assert run(["predict", str(study.root), "-n", "16"]) == 1
    assert "nothing can be replayed here: no mpiexec on PATH" in capsys.readouterr().err
    put_machine(study.root / "machine.json")
    assert run(["predict", str(study.root), "-n", "16", "--estimator", "thesis"]) == 1
    capsys.readouterr()
    assert predicted(study)["estimator"] == "machine" and replays == []
    assert "costs between two ranks stand in" in capsys.readouterr().err


def test_for_another_machine_its_messages_are_taken(
    study: Study, replays: list[int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    synthetic(name="here").save(study.root / "machine.json")
    put_machine(tmp_path / "there.json")
    other = ["predict", str(study.root), "-n", "16", "--machine", str(tmp_path / "there.json")]
    assert run([*other, "--json"]) in (0, 3)
    result = json.loads(capsys.readouterr().out)
    assert replays == [] and result["estimator"] == "machine"
    assert any("between two ranks of box" in note for note in result["notes"])
    assert result["residuals"] == [], "no run was made there"
    assert run([*other, "--json", "--hosts", "n0,n1"]) in (0, 3)
    result = json.loads(capsys.readouterr().out)
    assert replays == [2, 4, 8, 16] and result["estimator"] == "simulation"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--estimator", "guess"], "there are auto, simulation, machine, simgrid and thesis"),
        (["--estimator", "thesis", "--no-replay"], "rests on a replay"),
        (["--estimator", "simulation", "--no-replay"], "rests on a replay"),
    ],
)
def test_options_that_cannot_be_are_usage_errors(
    study: Study, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["predict", str(study.root), "-n", "16", *words]) == 2
    assert said in capsys.readouterr().err


def test_an_estimator_that_fails_says_why_and_the_others_go_on(
    study: Study, replays: list[int], monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise P3SError("machine: no loop ends")

    put_machine(study.root / "machine.json")
    monkeypatch.setattr("p3s.predict.estimators.machine.communication", broken)
    result = predicted(study)
    assert result["estimator"] == "simulation"
    assert result["counts"][-1]["estimators"]["machine"]["why_not"] == "machine: no loop ends"
    assert run(["predict", str(study.root), "-n", "16", "--no-replay"]) == 1
    assert "machine: no loop ends" in capsys.readouterr().err
