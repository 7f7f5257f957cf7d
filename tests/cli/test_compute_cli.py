"""p3s model --compute, what is out of date, and what a study without times is told."""

from __future__ import annotations

import csv
import io
import os
from pathlib import Path
from typing import Any

import pytest
import timed_study as ts
from commands import cli

from p3s.base.study import Study, read_json
from p3s.cli.progress import Progress
from p3s.pipeline.stages import ensure_compute, ensure_model, ensure_scaled
from p3s.signature.times import save_times

CELLS = 1 << 20


def put_times(study: Study, tables: list[Any], factor: float = 1.0) -> None:
    """Write the times of a study's signatures, on the curve of the cache step."""
    for t in tables:
        ns = factor * t.segments[:, 4] * ts.cache_step(ts.x_of(CELLS, t.np), where=3e6)
        save_times(ts.times_of(t, ns, noise=0.01), study.times_path(t.np))


@pytest.fixture(scope="module")
def timed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Study, list[Any]]:
    study, tables = ts.put_study(
        tmp_path_factory.mktemp("s") / "study", ts.sweeps(CELLS, 5), (4, 8, 16, 32)
    )
    put_times(study, tables)
    return study, tables


@pytest.fixture
def untimed(tmp_path: Path) -> Study:
    return ts.put_study(tmp_path / "study", ts.sweeps(CELLS, 3), (4, 8, 16), fit=False)[0]


def test_the_table_says_what_each_phase_rests_on(timed: tuple[Study, list[Any]]) -> None:
    study, _ = timed
    page = cli(f"model {study.root} --compute -n 64").out
    for words in (
        "phase 1: Sendrecv+Allreduce",
        "CRM_i",
        "ns per instruction",
        "work per iteration",
        "x2 outside",
        "fitted without 32 processes",
        "no run of a smaller workload",
    ):
        assert words in page
    rows = list(
        csv.DictReader(io.StringIO(cli(f"model {study.root} --compute --csv -n 64,128").out))
    )
    own = [r for r in rows if r["phase"] == "1" and r["source"] == "own"]
    told = [r for r in rows if r["phase"] == "1" and r["source"] == "predicted"]
    assert [r["processes"] for r in own] == ["4", "8", "16", "32"]
    assert [r["processes"] for r in told] == ["64", "128"]
    for r in own:
        assert float(r["predicted_ns"]) == pytest.approx(float(r["measured_ns"]), rel=0.03)
        x = ts.x_of(CELLS, int(r["processes"]))
        assert float(r["work_per_turn"]) == pytest.approx(x)
        assert float(r["measured_ns"]) == pytest.approx(x * ts.cache_step(x, where=3e6), rel=0.03)
    for r in told:
        assert float(r["low_ns"]) <= float(r["predicted_ns"]) <= float(r["high_ns"])
    assert cli(f"model {study.root} --compute --json").data == read_json(
        study.compute_path, "p3s.compute", 2
    )


def test_compute_json_is_made_again_when_its_inputs_are_newer(
    timed: tuple[Study, list[Any]],
) -> None:
    study, tables = timed
    bar = Progress()
    ensure_model(study, bar)
    ensure_compute(study, bar)
    ensure_scaled(study, 64, bar)
    model, compute, scaled = (
        path.stat().st_mtime_ns
        for path in (study.model_path, study.compute_path, study.scaled_path(64))
    )
    before = read_json(study.scaled_path(64), "p3s.scaled")["phases"][1]["compute_ns"]
    ensure_compute(study, bar)
    ensure_scaled(study, 64, bar)
    assert study.compute_path.stat().st_mtime_ns == compute
    assert study.scaled_path(64).stat().st_mtime_ns == scaled
    put_times(study, tables, factor=2.0)
    for t in tables:  # surely newer than what was made from them
        os.utime(study.times_path(t.np), ns=(compute + 10, compute + 10))
    os.utime(study.scaled_path(64), ns=(compute, compute))
    ensure_compute(study, bar)
    ensure_scaled(study, 64, bar)
    assert study.compute_path.stat().st_mtime_ns != compute
    assert study.model_path.stat().st_mtime_ns == model
    after = read_json(study.scaled_path(64), "p3s.scaled")["phases"][1]["compute_ns"]
    assert after == pytest.approx(2 * before, rel=0.02)
    put_times(study, tables)


def test_damaged_times_are_one_line(timed: tuple[Study, list[Any]]) -> None:
    study, tables = timed
    path = study.times_path(8).with_suffix(".parquet")
    whole = path.read_bytes()
    path.write_bytes(whole[:-7])
    try:
        lines = cli(f"model {study.root} --compute", code=1).err.strip().splitlines()
        assert "np0008.times.parquet" in lines[-1] and "p3s characterize" in lines[-1]
    finally:
        path.write_bytes(whole)


def test_a_study_without_times_is_told_how_to_add_them(untimed: Study) -> None:
    for words in (
        ["predict", str(untimed.root), "-n", "64"],
        ["model", str(untimed.root), "--compute"],
    ):
        last = cli(*words, code=1).err.strip().splitlines()[-1]
        assert "characterize -n 4,8,16 --work cpu" in last and "instructions" in last
        assert "mpiexec -n {np} ./sweeps" in last
    assert not untimed.compute_path.exists()
    assert not untimed.replay_path(64).exists(), "nothing is replayed before"
    cli(f"model {untimed.root} --scic -n 64")
    cli(f"scale {untimed.root} -n 64")


def test_laws_that_were_given_to_a_study_without_times_are_kept(
    timed: tuple[Study, list[Any]], untimed: Study
) -> None:
    study, _ = timed
    ensure_compute(study, Progress())
    untimed.compute_path.write_bytes(study.compute_path.read_bytes())
    ensure_model(untimed, Progress())
    ensure_compute(untimed, Progress())
    assert untimed.compute_path.read_bytes() == study.compute_path.read_bytes()
    ensure_scaled(untimed, 64, Progress())
    head = read_json(untimed.scaled_path(64), "p3s.scaled")
    assert all(p["compute_ns"] >= 0 for p in head["phases"])


def test_a_fault_of_the_costs_leaves_the_equations(
    timed: tuple[Study, list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    study, _ = timed

    def fails(*_: Any) -> None:
        raise ZeroDivisionError("float division by zero")

    monkeypatch.setattr("p3s.pipeline.costing.build_compute", fails)
    page = cli(f"model {study.root}", code=70).out
    assert page.startswith("Equations fitted to") and "phase 1: Sendrecv+Allreduce" in page
