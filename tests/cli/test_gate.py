"""Conditions on a prediction: what they mean, what is refused, and the exit codes."""

from __future__ import annotations

import json
import random
import re
import shutil
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml
from commands import cli
from made_predictions import made_prediction, reason
from paths import ROOT
from test_far_next import put_run

from p3s.base.errors import P3SError, UsageError
from p3s.base.study import Study
from p3s.pipeline.saved import PredictionFile
from p3s.predict.gate import QUANTITIES, UNITS, answered, check, demanded, parse
from p3s.predict.types import CODES


def prediction(**rows: Any) -> PredictionFile:
    """Return a made prediction; ``rows`` are changes to the row at 512."""
    data = made_prediction((4, 16, 64, 512))
    data["counts"][-1].update(rows)
    return PredictionFile.of(data)


# 10.0 s at 512 with an interval of 8 to 12.5 s; 64 times the processes, 16 times as fast
TEN = prediction(
    time_s=10.0,
    low_s=8.0,
    high_s=12.5,
    speedup=16.0,
    speedup_low=12.8,
    speedup_high=20.0,
    efficiency=0.125,
    cost_core_h=512 * 10 / 3600,
    waiting_s=2.5,
)


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
    slow = prediction(time_s=11.5, low_s=11.0, high_s=12.0)
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
    blank = prediction(low_s=None, high_s=None, speedup_low=None, speedup_high=None, waiting_s=None)
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


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "prediction.json"
    TEN.save(path)
    return path


def test_exit_codes_and_lines(saved: Path) -> None:
    assert cli(f"gate {saved} --fail-if 'time@512 > 20 s'").out.splitlines()[1].split() == [
        "passed",
        "time@512",
        ">",
        "20",
        "s",
        "time@512",
        "=",
        "10.0",
        "s",
        "(8.00",
        "s",
        "to",
        "12.5",
        "s)",
    ]
    two = ["--fail-if", "time@512 > 20 s", "--fail-if", "efficiency@512 < 60 %"]
    shown = cli(f"gate {saved}", *two, code=4)
    assert [line.split()[0] for line in shown.out.splitlines()] == ["gate", "passed", "FAILED"]
    assert "1 of 2 conditions is true" in shown.err
    cli(f"gate {saved} --fail-if 'time@512 > 9 s'", code=4, out="FAILED?")


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


def test_what_is_not_to_be_trusted_is_no_pass_unless_the_gate_fails(
    tmp_path: Path, saved: Path
) -> None:
    doubtful = tmp_path / "doubtful.json"
    reasons = [
        reason("no-rule", "20 % of the program has no rule", "trace another count"),
        reason("shared-cores", "at 4 processes ranks shared cores", "", False),
    ]
    PredictionFile.of({**TEN.data, "reasons": reasons}).save(doubtful)
    shown = cli(f"gate {doubtful} --fail-if 'time@512 > 20'", code=3)
    assert "p3s: no pass (no-rule): 20 % of the program has no rule; trace another" in shown.err
    assert "--allow no-rule" in shown.err and "mind (shared-cores): at 4 processes" in shown.err
    assert shown.out.splitlines()[1].startswith("no pass") and "passed" not in shown.out
    cli(f"gate {doubtful} --fail-if 'time@512 > 9'", code=4)
    against = ["--base", str(doubtful), "--fail-if", "time@512 > 1.1*base.time@512"]
    cli(f"gate {saved}", *against, code=3, err="base: 20 %")


def test_reasons_are_allowed_by_their_codes(tmp_path: Path) -> None:
    path = tmp_path / "shared.json"
    made = made_prediction(representative=False)
    PredictionFile.of(made).save(path)
    gate = ["gate", str(path), "--fail-if", "time@512 > 1 h"]
    found = cli(*gate, "--json", code=3).data
    assert (found["passed"], found["exit_code"], found["allowed"]) == (False, 3, [])
    assert found["reasons"][0]["code"] == "not-representative"
    found = cli(*gate, "--allow", "not-representative", "--json").data
    assert (found["passed"], found["allowed"]) == (True, ["not-representative"])
    cli(*gate, "--allow", "superlinear", code=3)  # another reason was allowed
    made["reasons"].append(reason("superlinear", "the efficiency is 300 %"))
    PredictionFile.of(made).save(path)
    cli(*gate, "--allow", "not-representative", code=3)
    cli(*gate, "--allow", "not-representative, superlinear")
    cli(*gate, "--allow", "not-representative", "--allow", "superlinear")
    against = ["--base", str(path), "--fail-if", "time@512 > 2*base.time@512"]
    cli(f"gate {path}", *against, "--allow", "not-representative,superlinear")


def test_a_code_that_is_none_is_wrong_use(saved: Path) -> None:
    said = cli(f"gate {saved} --fail-if 'time@512 > 1 h' --allow everything", code=2).err
    assert "--allow everything" in said and all(code in said for code in CODES)


def test_json_is_one_object_also_when_it_fails(saved: Path) -> None:
    knee = ["--fail-if", "time@512 > 9", "--fail-if", "knee > 4", "--fail-if", "waiting@512 > 3"]
    found = cli(f"gate {saved} --json", *knee, code=4).data
    assert (found["schema"], found["passed"], found["exit_code"]) == ("p3s.gate", False, 4)
    first, second, third = found["conditions"]
    assert first.pop("chance") > 0.9, "of joint draws of the parts, not of the ends"
    assert first == {
        "fail_if": "time@512 > 9",
        "failed": True,
        "certain": False,
        "values": {"time@512": {"value": 10.0, "low": 8.0, "high": 12.5}},
    }
    assert second["values"]["knee"]["value"] == TEN.data["knee"]
    assert third["values"]["waiting@512"] == {"value": 2.5, "low": None, "high": None}
    assert third["certain"] is None and not third["failed"]


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


def test_ci_systems_read_that_it_passed(saved: Path) -> None:
    gate = ["gate", saved, "--fail-if", "time@512 > 20", "--format"]
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
        shown = cli(command, "-h").out
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
    answer = answered(demand, TEN.content, 512)
    assert answer.said == said and answer.chance is not None
    assert answer.text.startswith(f"{demand} at 512 processes: {said} (")
    assert (answer.chance > 0.9) == (said == "yes") and (answer.chance < 0.1) == (said == "no")


def test_an_unusable_prediction_cannot_tell() -> None:
    data = {**TEN.data, "reasons": [reason("order", "x")]}
    assert answered("20s", PredictionFile.of(data).content, 512).said == "cannot tell"


@pytest.mark.parametrize("text", ["", "fast", "12", "3 core-h", "time@4", "1.1x more"])
def test_a_demand_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--at-least"):
        demanded(text)
