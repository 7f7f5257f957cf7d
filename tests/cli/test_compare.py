"""Two predictions side by side: the numbers, the words, and what cannot be compared."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from commands import cli
from made_predictions import made_prediction, reason
from report_studies import put_study

from p3s.base.errors import P3SError
from p3s.base.study import Study
from p3s.pipeline.saved import PredictionFile
from p3s.report.compare import Comparison, as_columns, as_json, as_text
from p3s.report.compare import compare as compared

COUNTS = (4, 16, 64, 512)


def compare(a: PredictionFile, b: PredictionFile, **more: Any) -> Comparison:
    return compared(a.content, b.content, **more)


def times(by_count: dict[int, float], **changes: Any) -> PredictionFile:
    """Return a prediction with these run times, each within 10 %."""
    data = made_prediction(tuple(by_count), measured=(), **changes)
    base = next(iter(by_count.values()))
    first = next(iter(by_count))
    for row in data["counts"]:
        time = by_count[row["n"]]
        row.update(time_s=time, low_s=0.9 * time, high_s=1.1 * time)
        for key, value in (
            ("speedup", time),
            ("speedup_low", 1.1 * time),
            ("speedup_high", 0.9 * time),
        ):
            row[key] = base / value if value else 0.0
        row["efficiency"] = row["speedup"] * first / row["n"]
    return PredictionFile.of(data)


OLD = times({4: 100.0, 16: 30.0, 64: 10.0, 512: 4.0})
NEW = times({4: 120.0, 16: 31.0, 64: 8.0, 512: 3.0})


def test_ratios_and_their_ends() -> None:
    found = compare(OLD, NEW)
    assert [pair.n for pair in found.counts] == list(COUNTS) and found.n == 512
    last = found.counts[-1]
    assert last.ratio == pytest.approx(0.75)
    assert last.low == pytest.approx(0.75 * 0.9 / 1.1)
    assert last.high == pytest.approx(0.75 * 1.1 / 0.9)
    assert [pair.apart for pair in found.counts] == [False, False, True, True]
    assert last.a_interval == pytest.approx((3.6, 4.4))


def test_the_verdict_says_who_how_sure_and_where_it_turns() -> None:
    said = compare(OLD, NEW).verdict
    assert said[0] == (
        "At 512 processes B is 1.33x as fast as A (3.00 s against 4.00 s), and the intervals do "
        "not overlap."
    )
    assert said[1] == "B is faster from 64 processes on, A below."
    back = compare(NEW, OLD, n=4).verdict
    assert back[0].startswith("At 4 processes B is 1.20x as fast as A (100 s against 120 s), but")
    slower = compare(NEW, OLD).verdict
    assert slower[0].startswith("At 512 processes B is slower than A by 33.3 %")
    far = compare(OLD, times({4: 100.0, 512: 9.0})).verdict
    assert far[0].startswith("At 512 processes B takes 2.25x as long as A (9.00 s against 4.00 s)")
    same = compare(OLD, OLD)
    assert same.verdict == ["At 512 processes B takes as long as A (4.00 s against 4.00 s)."]
    assert not same.differences and {pair.change_s for pair in same.phases} == {0.0}
    always = compare(OLD, times({4: 50.0, 16: 15.0, 64: 5.0, 512: 2.0})).verdict
    assert "B is faster at all common counts." in always
    often = compare(OLD, times({4: 50.0, 16: 60.0, 64: 5.0, 512: 6.0})).verdict
    assert "Which one is faster changes several times." in often


def test_unknown_intervals_and_zero_times() -> None:
    blank = times({4: 100.0, 16: 30.0, 64: 10.0, 512: 2.0}).data
    for row in blank["counts"]:
        row.update(low_s=None, high_s=None)
    found = compare(OLD, PredictionFile.of(blank))
    assert found.counts[-1].apart is None and found.counts[-1].low is None
    assert "not known" in found.verdict[0]
    nothing = times(dict.fromkeys(COUNTS, 0.0))
    gone = compare(OLD, nothing)
    assert gone.counts[0].ratio == 0.0 and "faster than A" in gone.verdict[0]
    come = compare(nothing, OLD)
    assert come.counts[0].ratio is None and "slower than A (" in come.verdict[0]
    assert compare(nothing, nothing).counts[0].ratio == 1.0
    for each in (found, gone, come):
        assert as_text(each) and json.dumps(as_json(each), allow_nan=False)


def change(data: dict[str, Any], do: Callable[[dict[str, Any]], None]) -> PredictionFile:
    for row in data["counts"]:
        do(row)
    return PredictionFile.of(data)


def test_phases_are_matched_by_what_they_are_not_by_number() -> None:
    def renumber(row: dict[str, Any]) -> None:
        for phase in row["phases"]:
            phase["phase"] += 100 if phase["phase"] > 0 else 0
        row["phases"].reverse()

    moved = change(made_prediction(COUNTS), renumber)
    found = compare(PredictionFile.of(made_prediction(COUNTS)), moved)
    assert all(pair.change_s == 0.0 for pair in found.phases) and len(found.phases) == 5


def test_equal_names_are_matched_in_their_order() -> None:
    def one_name(row: dict[str, Any]) -> None:
        for phase in row["phases"]:
            phase["name"] = "Sendrecv"

    def slower(row: dict[str, Any]) -> None:
        one_name(row)
        phase = row["phases"][2]
        phase.update(time_s=phase["time_s"] + 7.0, high_s=phase["high_s"] + 9.0)
        phase["transfer_s"] += 7.0

    found = compare(
        change(made_prediction(COUNTS), one_name), change(made_prediction(COUNTS), slower)
    )
    first = found.phases[0]
    assert first.change_s == pytest.approx(7.0) and first.mostly == "transfer"
    assert [pair.change_s for pair in found.phases[1:]] == [0.0] * 4


def test_a_phase_of_one_of_them_only() -> None:
    few = PredictionFile.of(made_prediction(COUNTS, 2))
    many = PredictionFile.of(made_prediction(COUNTS, 3))
    found = compare(few, many)
    (new,) = [pair for pair in found.phases if pair.a_s is None]
    assert new.name == "Alltoall" and new.change_s == new.b_s and new.a_law == ""
    assert "–" in next(
        line for line in as_text(found).splitlines() if line.strip().startswith("Alltoall")
    )


def test_parts_that_are_not_told_apart_count_as_communication() -> None:
    def blank(row: dict[str, Any]) -> None:
        for phase in row["phases"]:
            phase.update(waiting_s=None, transfer_s=None, software_s=None)
            phase["comm_s"] *= 3

    first = PredictionFile.of(made_prediction(COUNTS))
    found = compare(first, change(made_prediction(COUNTS), blank))
    assert {pair.mostly for pair in found.phases} == {"communication"}


def test_counts_of_one_of_them_only_and_none_in_common() -> None:
    other = times({2: 200.0, 64: 10.0, 4096: 1.0})
    found = compare(OLD, other)
    assert (found.only_a, found.only_b, found.n) == ([4, 16, 512], [2, 4096], 64)
    assert any("relate to 4 processes in A, to 2 in B" in note for note in found.notes)
    text = as_text(found)
    assert "only in A: 4, 16 and 512 processes" in text
    assert "only in B: 2 and 4,096 processes" in text
    with pytest.raises(P3SError, match="no common process count: A has 4, 16, 64, 512, B has 3"):
        compare(OLD, times({3: 1.0}))
    with pytest.raises(P3SError, match="16 is not among the common process counts, which are 64"):
        compare(OLD, other, n=16)


def test_what_else_differs_is_named() -> None:
    other = PredictionFile.of(
        made_prediction(
            COUNTS,
            estimator="machine",
            knee=None,
            recommended=None,
            machine={"target": {"name": "new\x1b[1m"}},
        )
    )
    commands = (["mpiexec", "-n", "{np}", "./app", "100"], ["mpiexec", "-n", "{np}", "./app", "2"])
    found = compare(PredictionFile.of(made_prediction(COUNTS)), other, commands=commands)
    rows = {what: (one, two) for what, one, two in found.differences}
    assert rows["estimator"] == ("simulation", "machine")
    assert rows["recommended"] == ("64 processes", "–") and rows["knee"][1] == "none"
    assert rows["machine"] == ("that of the runs", r"new\x1b[1m")
    assert rows["command"] == ("mpiexec -n {np} ./app 100", "mpiexec -n {np} ./app 2")
    assert "traced counts" not in rows
    assert any("different estimators" in note for note in found.notes)


def test_many_phases_are_summed_up() -> None:
    text = as_text(
        compare(
            PredictionFile.of(made_prediction(COUNTS, 500)),
            PredictionFile.of(made_prediction((4, 512), 500)),
        )
    )
    assert "490 more phases change by 0 s together" in text and text.count("\n") < 50


def test_doubtful_times_say_so_first() -> None:
    shared = PredictionFile.of(made_prediction(COUNTS, representative=False))
    found = compare(PredictionFile.of(made_prediction(COUNTS)), shared)
    assert found.verdict[0].startswith("Do not rely on this comparison: message costs were")
    assert found.verdict[1].startswith("Taken at face value: at 512 processes")
    assert found.counts[-1].doubtful and "*     communication was" in as_text(found)
    assert "not-representative: B: communication at all" in as_text(found)


@pytest.fixture
def studies(tmp_path: Path) -> tuple[str, str]:
    paths = []
    for name, made in (("old", OLD), ("new", NEW)):
        study = Study.create(tmp_path / name, ["mpiexec", "-n", "{np}", f"./{name}"])
        made.save(study.prediction_path)
        paths.append(str(study.root))
    return paths[0], paths[1]


def test_command_on_studies_and_files(studies: tuple[str, str]) -> None:
    old, new = studies
    text = cli("compare", old, new).out
    assert text.startswith("At 512 processes B is 1.33x as fast as A")
    assert re.search(r"command +mpiexec -n \{np\} \./old +mpiexec -n \{np\} \./new", text)
    assert f"A: {old}\nB: {new}" in text
    cli(f"compare {old}/prediction.json", new, "-n", "16", out="Phases at 16 processes")


def test_csv_json_and_picture(studies: tuple[str, str], tmp_path: Path) -> None:
    old, new = studies
    rows = list(csv.DictReader(io.StringIO(cli("compare", old, new, "--csv").out)))
    assert [row["n"] for row in rows] == ["4", "16", "64", "512"]
    assert float(rows[-1]["ratio"]) == 0.75
    picture = tmp_path / "both.svg"
    found = cli("compare", old, new, "--json", "--picture", picture).data
    assert found["schema"] == "p3s.compare" and found["pictures"] == [str(picture)]
    assert found["counts"][-1]["apart"] is True
    assert found["differences"][0]["what"] == "command"
    assert picture.read_bytes().startswith(b"<?xml")
    assert set(as_columns(compare(OLD, NEW))) == set(rows[0])


def test_what_is_not_to_be_trusted_is_exit_code_3(studies: tuple[str, str]) -> None:
    old, new = studies
    doubtful = PredictionFile.of({**NEW.data, "reasons": [reason("extrapolated", "too far")]})
    doubtful.save(Study(Path(new)).prediction_path)
    cli(
        "compare",
        old,
        new,
        code=3,
        out="extrapolated: B: too far",
        err="do not rely on this comparison",
    )
    cli("compare", old, new, "--csv", code=3, err="(extrapolated): B: too far")


def test_the_page_is_written_where_it_is_asked_for(tmp_path: Path) -> None:
    for name in ("a", "b"):
        put_study(tmp_path / name, made_prediction())
    page = tmp_path / "both.html"
    cli(f"compare {tmp_path / 'a'} {tmp_path / 'b'} --html {page}", out=f"page: {page}")
    assert page.read_text().startswith("<!DOCTYPE html>")
