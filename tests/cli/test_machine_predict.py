"""p3s predict --machine: the computation of a study on a machine whose costs are known."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timed_study as ts
from commands import cli
from handmade import put_replay
from machines import CYCLES, synthetic, true_cost

from p3s.base.study import Study, read_json, write_json
from p3s.costs.apply import common_error
from p3s.costs.fit import fit
from p3s.costs.laws import fit_cost
from p3s.costs.types import COMPUTE, LawEntry
from p3s.machine.factor import Factor
from p3s.machine.machinefile import Machine
from p3s.model.stage import load as load_model
from p3s.pipeline.predicting import place_of
from p3s.pipeline.stages import base_path

CELLS, ITERS, COUNTS = 1 << 24, 10, (4, 8, 16, 32)
CACHES = (32 << 10, 1 << 20, 32 << 20)
#: Bytes of the working set for each instruction of a turn.
BYTES = 0.25
#: The table of what changes save takes most of the time, and is tested elsewhere.
NO_TABLE = ["--what-if", "none"]


def cost(x: float, ghz: float, caches: Any) -> float:
    """Return ns per instruction of the program on a machine."""
    return 0.2 * CYCLES["fp_add"] / ghz + 0.3 * true_cost("triad", BYTES * x, ghz, caches, 1.0)


def turn_ns(n: int, ghz: float, caches: Any = CACHES) -> float:
    """Return what the sweeps of all ranks take in all turns."""
    x = ts.x_of(CELLS, n)
    return float(n * ITERS * x * cost(x, ghz, caches))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A study in instructions with its costs on the base, and the files of two machines."""
    root = tmp_path_factory.mktemp("m")
    study, tables = ts.put_study(root / "study", ts.sweeps(CELLS, ITERS), COUNTS)
    model = load_model(study.root)
    found = [measured(model, t) for t in tables]
    write_json(study.compute_path, COMPUTE.data(fit(model, found, [])))
    synthetic(3.0, CACHES, name="base").save(study.root / "machine.json")
    synthetic(1.5, CACHES, name="slow").save(root / "slow.json")
    return {"study": study, "root": root}


def measured(model: Any, table: Any) -> Any:
    from p3s.costs.gather import measured_at

    ns = table.segments[:, 4] * cost(ts.x_of(CELLS, table.np), 3.0, CACHES)
    return measured_at(model, ts.times_of(table, ns, noise=0.01))


@pytest.fixture
def study(made: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Study:
    """The study; its communication takes 1 us per rank and phase, measured on node0."""

    def replayed(study: Study, n: int, *_: Any) -> None:
        phases = read_json(study.scaled_path(n), "p3s.scaled")["phases"]
        rows = [(r, p["phase"], 1e3, 0.9e3, 1.1e3) for r in range(n) for p in phases]
        put_replay(study, n, rows, nodes=["node0", "node0"])

    monkeypatch.setattr("p3s.pipeline.stages.run_replay", replayed)
    monkeypatch.setattr("p3s.pipeline.prediction._check_launch", lambda _: None)
    found = made["study"]
    assert isinstance(found, Study)
    return found


def test_computation_is_moved_and_messages_are_not(study: Study, made: dict[str, Any]) -> None:
    before = study.compute_path.read_bytes()
    target = made["root"] / "slow.json"
    args = ["predict", str(study.root), "-n", "64", "--json", "--hosts", "node0", *NO_TABLE]
    result = cli(*args, "--machine", target, code=(0, 3)).data
    rows = {row["n"]: row for row in result["counts"]}
    assert sorted(rows) == [4, 8, 16, 32, 64]
    for n in (4, 16, 64):
        row, real = rows[n], turn_ns(n, 1.5) / n * 1e-9
        assert row["compute_s"] == pytest.approx(real, rel=0.15)
        assert row["low_s"] <= real + row["comm_s"] <= row["high_s"]
        loops = sum(phase["kind"] == "loop" for phase in row["phases"])
        assert row["comm_s"] == pytest.approx(1e-6 * (1 + loops)), "phase 0 is start, rest and end"
        assert not row["measured"], "no run was made on that machine"
    text = " ".join(result["notes"])
    assert "measured on base and moved to slow by factors of" in text
    assert "communication was measured on node0 and is not moved: it is not that of slow" in text
    assert result["machine"]["target"]["name"] == "slow"
    # The study's own prediction is another one, and nothing of it was touched.
    assert study.compute_path.read_bytes() == before and not study.prediction_path.exists()
    there = Study.open(study.root / "on" / "slow")
    assert there.prediction_path.exists() and Machine.load(there.root / "machine.json")
    own = {row["n"]: row for row in cli(*args, code=(0, 3)).data["counts"]}
    assert own[64]["compute_s"] == pytest.approx(turn_ns(64, 3.0) / 64 * 1e-9, rel=0.15)
    wide, narrow = ((row["high_s"] - row["low_s"]) / row["time_s"] for row in (rows[64], own[64]))
    assert wide > narrow
    cli("report", there.root, code=3)  # its caches make it more than 120 % efficient
    assert (there.root / "report.html").exists()


def test_scaled_traces_are_made_where_they_are_missing(
    study: Study, made: dict[str, Any], tmp_path: Path
) -> None:
    """Of a study that was only traced and modelled, for the machine file of another study."""
    root = tmp_path / "study"
    shutil.copytree(study.root, root, ignore=shutil.ignore_patterns("scaled", "on", "replay"))
    (tmp_path / "other").mkdir()
    target = tmp_path / "other" / "machine.json"
    target.write_bytes((made["root"] / "slow.json").read_bytes())
    args = ["predict", str(root), "-n", "64", "--no-replay", "--json", "--machine", str(target)]
    args += NO_TABLE
    assert 64 in [row["n"] for row in cli(*args, code=(0, 3)).data["counts"]]
    assert Study.open(root).scaled_path(64).exists()
    assert Study.open(root / "on" / "slow").scaled_path(64).exists()


def test_a_copy_of_the_own_machine_file_moves_nothing(study: Study, made: dict[str, Any]) -> None:
    copy = made["root"] / "copy.json"
    copy.write_bytes((study.root / "machine.json").read_bytes())
    args = ["predict", str(study.root), "-n", "64", "--json", *NO_TABLE]
    named = cli(*args, "--machine", copy, code=(0, 3)).data["counts"][-1]
    assert named == cli(*args, code=(0, 3)).data["counts"][-1]
    assert not (study.root / "on" / "copy").exists()


def test_a_machine_that_is_alike_gives_the_same_prediction(
    study: Study, made: dict[str, Any]
) -> None:
    same = made["root"] / "same.json"
    measured = json.loads((study.root / "machine.json").read_text())
    write_json(same, measured | {"name": "same"})
    args = ["predict", str(study.root), "-n", "64", "--json", *NO_TABLE]
    moved = cli(*args, "--machine", same, code=(0, 3)).data["counts"][-1]
    own = cli(*args, code=(0, 3)).data["counts"][-1]
    assert moved["compute_s"] == pytest.approx(own["compute_s"], rel=1e-4)
    # A second time nothing is made again.
    path = study.root / "on" / "same" / "scaled" / "np000064" / "scaled.json"
    then = path.stat().st_mtime_ns
    cli(*args, "--machine", same, code=(0, 3))
    assert path.stat().st_mtime_ns == then


def test_what_is_missing_is_said_before_anything_is_measured(
    study: Study, made: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def never(*_: Any) -> None:
        raise AssertionError("replayed")

    monkeypatch.setattr("p3s.pipeline.stages.run_replay", never)
    target = made["root"] / "slow.json"
    args = ["predict", str(study.root), "-n", "1000", "--machine"]
    own = study.root / "machine.json"
    kept = own.read_bytes()
    arm = tmp_path / "arm.json"
    synthetic(3.0, CACHES, name="arm", architecture="aarch64").save(arm)
    broken = tmp_path / "broken.json"
    broken.write_text("{}")
    cases = [
        ([*args, str(arm)], 1, "do not carry over"),
        ([*args, str(broken)], 1, "is not a p3s.machine file"),
        ([*args, str(tmp_path / "none.json")], 1, "not there"),
        ([*args, str(target), "--base", str(broken)], 1, "is not a p3s.machine file"),
        (["predict", str(study.root), "-n", "64", "--base", str(arm)], 2, "--machine"),
    ]
    for words, code, text in cases:
        said = cli(*words, code=code)
        assert text in said.err.strip().splitlines()[-1] and not said.out
    own.unlink()
    try:
        cli(*args, target, code=1, err="p3s machine measure -o")
        assert base_path(study, target) == target
    finally:
        own.write_bytes(kept)


def test_names_of_places_and_files(study: Study, made: dict[str, Any]) -> None:
    machine = synthetic(name="node 7/a")
    assert place_of(study, Path("x/fast.json"), machine).name == "fast"
    assert place_of(study, Path("x/machine.json"), machine).name == "node-7-a"
    assert place_of(study, Path("x/...json"), synthetic(name="..")).name == "machine"
    inner = Study(study.root / "at" / "size=4000")
    assert base_path(inner, None) == study.root.absolute() / "machine.json"


def test_errors_of_factors_are_common_to_all_places() -> None:
    at, two, one, three = (np.array(ends) for ends in ([10.0, 20.0], [2, 2], [1, 1], [3, 3]))
    factor = Factor(at, two, one, three, "core", (1.0, 1.0), 0.0, "")
    law = fit_cost([], unit="instructions")
    entry = LawEntry("place", 0, (), 0.5, (), law, factor)
    laws = (entry,) * 9
    low, high = common_error(laws, 0, [1e4, 1e4]) or (0, 0)
    assert (low, high) == (pytest.approx(0.5), pytest.approx(1.5)), "nine places err together"
    assert common_error(laws, 1, [1e4, 1e4]) is None
    assert common_error(laws, 0, None) is None
    assert np.isfinite(low)
