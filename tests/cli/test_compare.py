"""p3s compare and p3s gate."""

from __future__ import annotations

import csv
import io
import json
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml
from commands import cli
from made_predictions import made_prediction, reason
from named_studies import NEW, OLD, TEN, at_512, timed
from paths import ROOT
from test_far_next import put_run

from p3s.base.errors import P3SError, UsageError
from p3s.base.study import Study
from p3s.pipeline.saved import PredictionFile
from p3s.predict.gate import QUANTITIES, UNITS, answer_demand, check, parse, parse_demand
from p3s.predict.types import CODES
from p3s.report.compare import Comparison, as_columns, as_json, as_text
from p3s.report.compare import compare as compared

COUNTS = (4, 16, 64, 512)


def compare(a: PredictionFile, b: PredictionFile, **more: Any) -> Comparison:
    return compared(a.content, b.content, **more)


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
    far = compare(OLD, timed({4: 100.0, 512: 9.0})).verdict
    assert far[0].startswith("At 512 processes B takes 2.25x as long as A (9.00 s against 4.00 s)")
    same = compare(OLD, OLD)
    assert same.verdict == ["At 512 processes B takes as long as A (4.00 s against 4.00 s)."]
    assert not same.differences and {pair.change_s for pair in same.phases} == {0.0}
    always = compare(OLD, timed({4: 50.0, 16: 15.0, 64: 5.0, 512: 2.0})).verdict
    assert "B is faster at all common counts." in always
    often = compare(OLD, timed({4: 50.0, 16: 60.0, 64: 5.0, 512: 6.0})).verdict
    assert "Which one is faster changes several times." in often


def test_unknown_intervals_and_zero_times() -> None:
    blank = timed({4: 100.0, 16: 30.0, 64: 10.0, 512: 2.0}).data
    for row in blank["counts"]:
        row.update(low_s=None, high_s=None)
    found = compare(OLD, PredictionFile.of(blank))
    assert found.counts[-1].apart is None and found.counts[-1].low is None
    assert "not known" in found.verdict[0]
    nothing = timed(dict.fromkeys(COUNTS, 0.0))
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
    other = timed({2: 200.0, 64: 10.0, 4096: 1.0})
    found = compare(OLD, other)
    assert (found.only_a, found.only_b, found.n) == ([4, 16, 512], [2, 4096], 64)
    assert any("relate to 4 processes in A, to 2 in B" in note for note in found.notes)
    text = as_text(found)
    assert "only in A: 4, 16 and 512 processes" in text
    assert "only in B: 2 and 4,096 processes" in text
    with pytest.raises(P3SError, match="no common process count: A has 4, 16, 64, 512, B has 3"):
        compare(OLD, timed({3: 1.0}))
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


def test_csv_has_a_row_of_each_count(named: Callable[[str], Path]) -> None:
    place = named("COMPARED")
    text = cli(f"compare {place / 'old'} {place / 'new'} --csv").out
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [row["n"] for row in rows] == ["4", "16", "64", "512"]
    assert float(rows[-1]["ratio"]) == 0.75
    assert set(as_columns(compare(OLD, NEW))) == set(rows[0])


@pytest.mark.parametrize(
    ("text", "met", "certain"),
    [
        ("time@512 > 9", True, False),
        ("time@512 > 7.9 s", True, True),
        ("time@512 >= 10", True, False),
        ("time@512 > 10", False, False),
        ("time@512 < 13 s", True, True),
        ("time@512 <= 10000ms", True, False),
        ("time@largest > 0.2 min", False, False),
        ("12.6 s < time@512", False, True),
        ("time.low@512 < 8.01", True, True),
        ("time.high@512 > 12.49", True, True),
        ("efficiency@512 < 0.6", True, True),
        ("efficiency@512<60%", True, True),
        ("efficiency.high@512 < 0.157", True, True),
        ("efficiency.low@512 < 0.1", False, True),
        ("speedup@512 > 15x", True, False),
        ("speedup@512 < 1.5 * speedup@smallest", False, True),
        ("cost@512 > 1.42", True, False),
        ("cost.low@512 > 1.14 core-h", False, True),
        ("waiting@512 > 2", True, None),
        ("time@512 > 0.00277 h", True, False),
        ("unknown > 1 %", True, True),
        ("extrapolation > 32", False, True),
        ("knee < 600", True, True),
        ("knee <= 128", False, True),
        ("recommended >= 64", True, True),
    ],
)
def test_what_a_condition_means(text: str, met: bool, certain: bool | None) -> None:
    found = check(parse(text), TEN)
    assert (found.met, found.certain) == (met, certain)


def test_an_efficiency_has_the_interval_of_its_speedup() -> None:
    ((name, value),) = check(parse("efficiency@512 < 0.6"), TEN).values
    assert name == "efficiency@512" and value.value == 0.125
    assert value.low == pytest.approx(0.1) and value.high == pytest.approx(20 * 4 / 512)
    ((_, cost),) = check(parse("cost@512 > 1"), TEN).values
    assert cost.low == pytest.approx(512 * 8 / 3600)
    assert cost.high == pytest.approx(512 * 12.5 / 3600)


def test_a_factor_scales_the_limit_but_not_what_is_shown() -> None:
    ((name, value),) = check(parse("2 * time@512 > 19"), TEN).values
    assert name == "time@512" and value.value == 10.0
    assert check(parse("2 * time@512 > 19"), TEN).met
    assert not check(parse("2 * time@512 > 20"), TEN).met
    assert not check(parse("0 * time@512 > 0"), TEN).met


def test_another_prediction_is_the_base() -> None:
    slow = at_512(time_s=11.5, low_s=11.0, high_s=12.0)
    condition = parse("time@512 > 1.1 * base.time@512")
    assert condition.needs_base
    assert check(condition, slow, TEN).met and not check(condition, TEN, TEN).met
    with pytest.raises(UsageError, match="--base"):
        check(condition, slow)


def test_a_knee_that_is_not_reached_is_above_the_largest_count() -> None:
    free = PredictionFile.of(made_prediction((4, 16, 64, 512), knee=None))
    assert [check(parse(text), free).met for text in ("knee < 512", "knee > 4096")] == [False, True]
    assert check(parse("knee < 512"), free).certain is True
    assert check(parse("knee < 4096"), free).certain is False


def test_what_is_not_known_is_not_passed() -> None:
    blank = at_512(low_s=None, high_s=None, speedup_low=None, speedup_high=None, waiting_s=None)
    assert check(parse("time@512 > 9"), blank).certain is None
    for text in ("time.high@512 > 9", "efficiency.low@512 < 1", "waiting@512 > 1"):
        with pytest.raises(P3SError, match="known"):
            check(parse(text), blank)
    with pytest.raises(P3SError, match="recommended is not known"):
        check(parse("recommended < 8"), PredictionFile.of(made_prediction(recommended=None)))
    with pytest.raises(UsageError, match=r"1,024 processes, but 4, 16, 64 and 512; .* -n 1024"):
        check(parse("time@1024 > 1"), TEN)


def test_a_condition_has_an_end() -> None:
    with pytest.raises(UsageError, match="longer than") as caught:
        parse("x" * 501)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 800


def test_any_text_is_read_or_refused() -> None:
    words = [
        *QUANTITIES,
        *UNITS,
        "@",
        "<",
        "<=",
        ">",
        ">=",
        "*",
        ".",
        "low",
        "base",
        "4",
        "1.5",
        "1e3",
        "largest",
        "smallest",
        " ",
        "(",
        "{0}",
        "%s",
        "\x1b",
        "\u202e",
        "=",
        "-",
    ]
    chosen = random.Random(20)
    read = 0
    for _ in range(20_000):
        text = "".join(chosen.choice(words) for _ in range(chosen.randint(1, 9)))
        try:
            condition = parse(text)
        except UsageError:
            continue
        read += 1
        assert parse(condition.text) == condition
    assert read > 5  # it is not all refused


@pytest.mark.parametrize("left", [3, 1])
def test_a_prediction_whose_runs_were_deleted_does_not_pass(left: int, tmp_path: Path) -> None:
    study = Study.create(tmp_path / "s", ["mpiexec", "-n", "{np}", "./app"])
    counts = [2, 4, 8, 16]
    for n in counts:
        put_run(study, n)
    study.update()
    kept = PredictionFile.of(made_prediction((4, 16, 64, 512)))
    PredictionFile({**kept.data, "traced_counts": counts}).save(study.prediction_path)
    gate = ["gate", str(study.root), "--fail-if", "knee < 2"]
    cli(*gate)
    for n in counts[left:]:
        shutil.rmtree(study.runs_dir(n))
    said = cli(*gate, code=3).err
    assert "p3s: no pass (outdated): the prediction rests on runs at " in said
    assert ("trace them again: p3s characterize -n 4,8,16 -o " in said) == (left < 3)
    cli(*gate, "--allow", "outdated")
    base = ["gate", str(tmp_path / "new.json"), "--fail-if", "knee < 2", "--base", str(study.root)]
    kept.save(tmp_path / "new.json")
    cli(*base, code=3)
    cli(f"report {study.root} --csv", code=3, err="do not rely on this prediction (outdated)")


def test_a_code_that_is_none_is_wrong_use(named: Callable[[str], Path]) -> None:
    said = cli(
        f"gate {named('GATED') / 'ten.json'} --fail-if 'time@512 > 1 h' --allow everything", code=2
    ).err
    assert "--allow everything" in said and all(code in said for code in CODES)


# ---- for CI systems ---------------------------------------------------------------------------
def test_ci_systems_read_what_failed_and_what_speaks_against_it(tmp_path: Path) -> None:
    path = tmp_path / "doubtful.json"
    data = {**TEN.data, "reasons": [reason("no-rule", "20 % has no rule", "trace another count")]}
    PredictionFile.of(data).save(path)
    gate = ["gate", path, "--fail-if", "time@512 > 9", "--fail-if", "time@512 > 20", "--format"]
    suite = ElementTree.fromstring(cli(*gate, "junit", code=4).out)
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("3", "1", "1")
    failed = [case.get("name") for case in suite if case.find("failure") is not None]
    assert failed == ["time@512 > 9"]
    error, warning = cli(*gate, "github", code=4).out.strip().split("\n")
    assert error.startswith("::error title=p3s gate (gate)::time@512 > 9: time@512 = 10.0 s")
    assert warning.startswith("::warning title=p3s gate (no-rule)::20 %25 has no rule")
    first, second = json.loads(cli(*gate, "gitlab", code=4).out)
    assert first["fingerprint"] != second["fingerprint"]
    assert [each["severity"] for each in (first, second)] == ["major", "minor"]
    assert first["location"]["path"] == str(path)
    (run,) = json.loads(cli(*gate, "sarif", code=4).out)["runs"]
    assert [each["level"] for each in run["results"]] == ["error", "warning"]
    assert {each["ruleId"] for each in run["results"]} == {
        r["id"] for r in run["tool"]["driver"]["rules"]
    }


def test_ci_systems_read_that_it_passed(named: Callable[[str], Path]) -> None:
    gate = ["gate", named("GATED") / "ten.json", "--fail-if", "time@512 > 20", "--format"]
    assert cli(*gate, "github").out.strip() == "::notice title=p3s gate::passed"
    assert ElementTree.fromstring(cli(*gate, "junit").out).get("failures") == "0"
    assert json.loads(cli(*gate, "gitlab").out) == []
    assert "junit, github, gitlab, sarif" in cli(*gate, "pdf", code=2).err


@pytest.mark.parametrize("name", ["action.yml", "gitlab.yml"])
def test_templates_of_ci_systems_use_options_that_exist(name: str) -> None:
    text = (ROOT / "packaging" / "ci" / name).read_text()
    data = yaml.safe_load(text)
    job = data[".p3s-gate"]["script"] if name == "gitlab.yml" else data["runs"]["steps"]
    assert job
    for command in ("characterize", "predict", "gate"):
        shown = cli(command, "--help").out
        used = [line for line in text.split("\n") if f"p3s {command} " in line and "#" not in line]
        assert used
        for line in used:
            words = line.split(" -- ")[0].split()
            assert all(word in shown for word in words if re.fullmatch(r"--?[a-z-]+", word))


# ---- a demand --------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("demand", "said"),
    [
        ("20s", "yes"),
        ("5 s", "no"),
        ("10s", "cannot tell"),
        ("5%", "yes"),
        ("60%", "no"),
        ("0.01x", "yes"),
        ("99x", "no"),
    ],
)
def test_a_demand_is_answered_with_its_probability(demand: str, said: str) -> None:
    answer = answer_demand(demand, TEN.content, 512)
    assert answer.said == said and answer.chance is not None
    assert answer.text.startswith(f"{demand} at 512 processes: {said} (")
    assert (answer.chance > 0.9) == (said == "yes") and (answer.chance < 0.1) == (said == "no")


def test_an_unusable_prediction_cannot_tell() -> None:
    data = {**TEN.data, "reasons": [reason("order", "x")]}
    assert answer_demand("20s", PredictionFile.of(data).content, 512).said == "cannot tell"


@pytest.mark.parametrize("text", ["", "fast", "12", "3 core-h", "time@4", "1.1x more"])
def test_a_demand_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--at-least"):
        parse_demand(text)
