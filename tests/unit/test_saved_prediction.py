"""Predictions: saved, made together, by other ways, starts and ends."""

from __future__ import annotations

import copy
import json
import math
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import corpus
import pytest
from jsonschema import Draft202012Validator
from made_predictions import made_prediction, reason, record
from paths import ROOT
from test_any_counts import put_times

import p3s
from p3s.base.errors import DamagedFile, P3SError
from p3s.base.schemas import first_problem, load_schema
from p3s.base.study import Study
from p3s.pipeline import predicting
from p3s.pipeline.prediction import _stacks
from p3s.pipeline.saved import COUNT_COLUMNS, PHASE_COLUMNS, PredictionFile, read_prediction
from p3s.predict.prediction import of_start_and_end
from p3s.predict.types import PREDICTION, StartAndEnd

SCHEMA = load_schema("prediction-4")

MADE = {
    "usual": made_prediction(),
    "one count": made_prediction((8,), 1),
    "no phases": made_prediction((2, 4), 0),
    "nothing measured": made_prediction(measured=()),
    "shared cores": made_prediction(representative=False),
    "large": made_prediction(tuple(2**k for k in range(2, 12)), 50),
}


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the way to every value inside a value."""
    entries = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, entry in entries:
        yield (*at, key)
        yield from places(entry, (*at, key))


def put(value: Any, at: tuple[Any, ...], new: Any) -> Any:
    """Return a copy of a value with another one at a place; ``...`` takes a key away."""
    made = copy.deepcopy(value)
    inside = made
    for key in at[:-1]:
        inside = inside[key]
    if new is ...:
        del inside[at[-1]]
    else:
        inside[at[-1]] = new
    return made


def schemas_in(schema: Any) -> Iterator[dict[str, Any]]:
    """Yield every schema inside a schema."""
    yield schema
    for key in ("properties", "$defs"):
        for entry in schema.get(key, {}).values():
            yield from schemas_in(entry)
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield from schemas_in(schema[key])


@pytest.mark.parametrize("name", MADE)
def test_made_predictions_follow_the_schema(name: str) -> None:
    assert first_problem(MADE[name], SCHEMA) == ""
    assert PredictionFile.of(MADE[name]).data == MADE[name]


def test_every_key_of_a_made_prediction_is_documented() -> None:
    def known(value: Any, schema: Any, at: str) -> None:
        schema = next((each for each in schema.get("anyOf", ()) if "$ref" in each), schema)
        schema = SCHEMA["$defs"][schema["$ref"].split("/")[-1]] if "$ref" in schema else schema
        if isinstance(value, list):
            for entry in value:
                known(entry, schema.get("items", {}), at)
        elif isinstance(value, dict):
            rest = schema.get("additionalProperties")
            for key, entry in value.items():
                assert key in schema["properties"] if rest is None else True, f"{at}.{key}"
                known(entry, schema.get("properties", {}).get(key) or rest or {}, f"{at}.{key}")

    known(MADE["usual"], SCHEMA, "")


def test_the_schema_is_one_and_describes_every_value() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    for schema in schemas_in(SCHEMA):
        for entry in schema.get("properties", {}).values():
            assert "$ref" in entry or entry["description"][-1] == ".", entry
        assert set(schema.get("required", ())) <= set(schema.get("properties", {}))


@pytest.mark.parametrize(
    ("way", "new", "said"),
    [
        (("counts", 1, "time_s"), "1", "counts[1].time_s is '1', not number"),
        (("counts", 1, "time_s"), -1.0, "counts[1].time_s is -1.0, less than 0"),
        (("counts", 0, "time_s"), math.nan, "counts[0].time_s is nan, not number"),
        (("counts", 0, "low_s"), math.inf, "counts[0].low_s is inf, not number or null"),
        (("counts", 0, "n"), 10**18, "counts[0].n is 1000000000000000000, more than 16777216"),
        (("counts", 0, "n"), 4.5, "counts[0].n is 4.5, not integer"),
        (("counts", 0, "n"), True, "counts[0].n is True, not integer"),
        (("counts", 0, "n"), ..., "counts[0].n is missing"),
        (("counts", 0, "phases", 2, "kind"), "coda", "counts[0].phases[2].kind is 'coda', not one"),
        (("counts", 0, "estimators", "thesis"), 3, "counts[0].estimators.thesis is 3, not object"),
        (("counts", 0, "interval_parts", "work"), [1.0], "work has 1 entries, not 2"),
        (("counts",), [], "counts has 0 entries, not 1"),
        (("counts",), {}, "counts is an object, not array"),
        (("schema",), "p3s.model", "schema is 'p3s.model', not 'p3s.prediction'"),
        (("recommended", "why"), "\x1b[31m", ""),
        (("limits", 0, "because"), "\x1b[31m", r"because is '\x1b[31m', not one of"),
        (("counts", 0, "n"), 4**900, "counts[0].n is a huge number, not integer"),
        (("counts", 1, "n"), 4, "counts: 4 follows 4"),
        (("baseline_n",), 8, "baseline_n is 8, not the smallest count, 4"),
        (("knee",), 5, "knee is 5, not one of the counts"),
        (("counts", 2, "low_s"), 1e9, "at 16 processes time_s is outside of its interval"),
        (("counts", 2, "phases", 1, "high_s"), 0.0, "time_s of phase 1 is outside of its interval"),
    ],
)
def test_what_is_wrong_is_said_where_it_is(way: tuple[Any, ...], new: Any, said: str) -> None:
    changed = put(MADE["usual"], way, new)
    if not said:
        PredictionFile.of(changed)
        return
    with pytest.raises(DamagedFile, match=re.escape(said)) as caught:
        PredictionFile.of(changed)
    assert "run p3s predict again" in str(caught.value) and str(caught.value).isprintable()


def test_load_takes_a_study_or_a_file_and_save_gives_it_back(tmp_path: Path) -> None:
    study = Study.create(tmp_path / "a study", ["mpiexec", "-n", "{np}", "./app"])
    with pytest.raises(P3SError, match=r"no prediction yet.*p3s predict '.*a study' -n 64"):
        PredictionFile.load(study.root)
    with pytest.raises(P3SError, match="no study here"):
        PredictionFile.load(tmp_path)
    with pytest.raises(P3SError, match="not there"):
        PredictionFile.load(tmp_path / "none.json")
    made = PredictionFile.of(MADE["usual"])
    made.save(study.prediction_path)
    assert (
        PredictionFile.load(study.root) == PredictionFile.load(str(study.prediction_path)) == made
    )
    assert PredictionFile.load(study.root).source == study.prediction_path
    assert PREDICTION.data(read_prediction(study.root)) == MADE["usual"]
    assert json.loads(made.to_json()) == MADE["usual"]


def test_a_record_is_written_as_it_was_read() -> None:
    for made in MADE.values():
        assert json.loads(json.dumps(PREDICTION.data(record(made)))) == made


def test_keys_that_are_not_known_are_passed_over_and_later_ones_may_be_missing() -> None:
    more = put(MADE["usual"], ("counts", 0, "phases", 0, "colour"), "red")
    assert record({**more, "new": 1}) == record(MADE["usual"])
    older = copy.deepcopy(MADE["usual"])
    del older["network"]
    for row in older["counts"]:
        del row["below_traced"]
    for law in older["phase_laws"]:
        law["parts"]["time"].pop("terms", None)
    found = record(older)
    assert found.network is None and not found.counts[0].below_traced
    assert found.phase_laws[0].parts["time"].terms == ()
    assert PREDICTION.data(found)["network"] is None, "it is written all the same"


def test_work_without_a_measured_range_says_so() -> None:
    made = put(MADE["usual"], ("counts", 0, "phases", 1, "covered"), None)
    assert PREDICTION.data(record(made)) == made
    assert "covered" not in PREDICTION.data(record(made))["counts"][0]["phases"][0]


def test_an_older_version_names_the_command(tmp_path: Path) -> None:
    path = tmp_path / "prediction.json"
    for version in (1, 2, 3):
        path.write_text(json.dumps({**MADE["usual"], "schema_version": version}))
        with pytest.raises(P3SError, match="older P3S; make it again: p3s predict .* -n 64"):
            PredictionFile.load(path)
    path.write_text(json.dumps({**MADE["usual"], "schema_version": 5}))
    with pytest.raises(P3SError, match="version 5"):
        PredictionFile.load(path)


def test_values_by_count_and_as_columns() -> None:
    made = PredictionFile.of(MADE["usual"])
    assert made.counts == (4, 8, 16, 32, 64, 128, 256, 512)
    assert made.at(64)["n"] == 64
    with pytest.raises(P3SError, match=r"100 is not among the counts of the prediction"):
        made.at(100)
    columns = made.columns()
    assert tuple(columns) == COUNT_COLUMNS and columns["n"] == list(made.counts)
    assert columns["time_s"][4] == made.at(64)["time_s"]
    phases = made.phase_columns()
    assert tuple(phases) == ("n", *PHASE_COLUMNS)
    assert {len(column) for column in phases.values()} == {8 * 5}
    assert phases["phase"][:5] == [-1, 1, 2, 3, -2] and set(phases["n"][:5]) == {4}


def test_repr_is_one_line() -> None:
    text = repr(PredictionFile.of(MADE["usual"]))
    assert re.fullmatch(
        r"Prediction\(4 to 512 processes, 8 counts, 5 phases, speedup 33\.3 "
        r"\(29\.\d+ to 3\d\.?\d*\), estimator 'simulation'\)",
        text,
    )
    doubtful = made_prediction((8,), reasons=[reason("wide", "why")], estimator="\x1b\n" * 99)
    assert "not trustworthy" in repr(PredictionFile.of(doubtful))
    assert "Prediction(8 processes, 1 count, 5 phases" in repr(PredictionFile.of(doubtful))
    assert (
        repr(PredictionFile.of(doubtful)).isprintable()
        and len(repr(PredictionFile.of(doubtful))) < 200
    )


#: What nothing waits for longer than.
LIMIT_S = 300.0


def test_the_counts_of_both_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second one that comes while the first predicts says that it waits, and adds to it."""
    study = put_times(tmp_path / "study", corpus.ring(), (4, 8, 16), "cpu_ns")
    others: list[subprocess.Popen[str]] = []
    said: list[str] = []

    def meanwhile(*args: Any, **more: Any) -> Any:
        found = predict(*args, **more)
        command = [sys.executable, "-m", "p3s", "predict", str(study.root), "-n", "64"]
        command += ["--what-if", "none"]
        other = subprocess.Popen(
            command,
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        others.append(other)
        limit = threading.Timer(LIMIT_S, other.kill)
        limit.start()
        assert other.stderr is not None
        for line in other.stderr:  # until it waits, or has ended
            said.append(line)
            if "another p3s predict" in line:
                break
        limit.cancel()
        return found

    predict = predicting.predict
    monkeypatch.setattr(predicting, "predict", meanwhile)
    try:
        p3s.open(study.root).predict([32], what_if=["none"])
        assert any(
            line == f"another p3s predict is writing {study.prediction_path}; this one goes on when"
            " it is done\n"
            for line in said
        ), said
        others[0].communicate(timeout=LIMIT_S)
    finally:
        for other in others:
            other.kill()
            other.wait()
    assert [row.n for row in read_prediction(study.prediction_path).counts] == [4, 8, 16, 32, 64]
    assert not list(study.root.glob(".*"))


PLACES = {"a": ("app+0x10", "app+0x20"), "b": ("app+0x30",)}


def calls(*made: tuple[str, str, float]) -> Any:
    """A model of which this much is looked at: (call, place, share of the bytes)."""
    items = [SimpleNamespace(op=o, site=s, share=SimpleNamespace(bytes=b)) for o, s, b in made]
    return SimpleNamespace(items=items, sites=PLACES)


@pytest.mark.parametrize(
    ("made", "wanted"),
    [
        (("MPI_Isend", "a", 0.9), {"MPI_Isend"}),
        (("MPI_Isend", "a", 0.01), set()),
        # what makes a request moves nothing; it is started elsewhere
        (("MPI_Send_init", "a", 0.9), {"MPI_Start", "MPI_Startall"}),
        (("MPI_Allreduce_init", "a", 0.9), {"MPI_Start", "MPI_Startall"}),
        (("MPI_Neighbor_alltoall_init_send", "a", 0.9), {"MPI_Start", "MPI_Startall"}),
        # messages that stand for a call are looked for as the call
        (("MPI_Neighbor_alltoall_send", "a", 0.9), {"MPI_Neighbor_alltoall"}),
        (("MPI_Put_target_recv", "a", 0.9), {"MPI_Put"}),
    ],
)
def test_calls_are_looked_for_by_the_name_that_is_called_there(
    made: tuple[str, str, float], wanted: set[str]
) -> None:
    found = _stacks(calls(made))
    assert set(found) == wanted
    assert all(stacks == [[("app", 0x10), ("app", 0x20)]] for stacks in found.values())


def test_both_halves_of_a_call_count_together() -> None:
    halves = ("MPI_Neighbor_alltoall_recv", "a", 0.06), ("MPI_Neighbor_alltoall_send", "b", 0.06)
    assert set(_stacks(calls(*halves))) == {"MPI_Neighbor_alltoall"}


TRACED = [StartAndEnd(2, 0.4, 0.4, 0.5), StartAndEnd(8, 0.7, 0.6, 0.9)]


def rows(*counts: int) -> list[SimpleNamespace]:
    return [SimpleNamespace(n=n, time_s=8.0 / n) for n in counts]


def test_it_is_known_at_the_traced_counts_alone() -> None:
    (said,) = of_start_and_end(TRACED, rows(2, 8, 64))  # type: ignore[arg-type]
    assert "took 700 ms (600 ms to 900 ms) at 8 processes; what they take at 64 is not" in said
    (said,) = of_start_and_end(TRACED, rows(2, 8))  # type: ignore[arg-type]
    assert said.endswith("at 8 processes")
    assert of_start_and_end([], rows(2)) == []  # type: ignore[arg-type]
