"""Commands that P3S proposes are complete: they have the study, its launcher and counts."""

from __future__ import annotations

import ast
import re
import shlex
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import corpus
import pytest
from comparisons import comparison, held_out, work
from corpus import Recorder
from handmade import put_model
from made_predictions import count_at
from phase_times import changed
from test_far_next import program as sized
from test_far_next import put_run
from test_predict import times_at
from test_reasons import run_of

import p3s
from p3s.base.artefacts import write_json
from p3s.base.settings import value_study
from p3s.base.study import Study
from p3s.cli.progress import progress
from p3s.model.comparison import Overlap, Unmodelled
from p3s.model.holdout import build_model
from p3s.model.stage import as_file
from p3s.model.types import Admissible, NextCount
from p3s.pipeline import commands as proposed
from p3s.pipeline.commands import Commands, count_to_predict, count_to_validate, of_traces
from p3s.pipeline.prediction import Request, basis_of
from p3s.pipeline.stages import too_few
from p3s.predict.case import Facts
from p3s.predict.checks import contradicts, doubt_extrapolation
from p3s.predict.commands import NO_STUDY
from p3s.predict.doubts import another, judge_holdout, narrower, of_validation, smaller
from p3s.predict.prediction import compose
from p3s.replay.settings import ReplaySettings
from p3s.report.parameters import doubts as doubts_of_laws

WORDS = ["mpiexec", "--oversubscribe", "-n", "{np}", "./app", "in put"]
#: What the user would have to replace in a command.
_WORD = re.compile(r"\b(?:STUDY|LAUNCHER|COUNTS?|SMALLER_INPUT|NEW_DIR)\b|-n \.\.\.")
_OPEN = re.compile(rf"p3s [a-z]+\b[^.;]*(?:{_WORD.pattern})")


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Study:
    """A study of runs at 2, 4, 8 named as the user typed it."""
    monkeypatch.chdir(tmp_path)
    made = Study.create(Path("my study"), WORDS)
    for n in (2, 4, 8):
        put_run(made, n, directory=str(tmp_path))
    return made


def test_no_command_in_a_message_leaves_words_to_be_replaced() -> None:
    """Doc strings, help and usage (``metavar``) may: nothing is known there."""
    package = Path(p3s.__file__).parent
    found = []
    for path in package.rglob("*.py"):
        if not _WORD.search(path.read_text()):
            continue
        tree = ast.parse(path.read_text())
        docs = {
            id(node.body[0].value)
            for node in ast.walk(tree)
            if isinstance(node, (ast.Module, ast.FunctionDef, ast.ClassDef))
            and node.body
            and isinstance(node.body[0], ast.Expr)
        }
        helps = {
            id(inner)
            for node in ast.walk(tree)
            if isinstance(node, ast.keyword) and node.arg in ("help", "metavar")
            for inner in ast.walk(node)
        }
        left_out = docs | helps
        for node in ast.walk(tree):
            if isinstance(node, (ast.JoinedStr, ast.Constant)) and id(node) not in left_out:
                text = (
                    "".join(
                        part.value if isinstance(part, ast.Constant) else "X"
                        for part in node.values
                    )
                    if isinstance(node, ast.JoinedStr)
                    else node.value
                )
                if isinstance(text, str) and _OPEN.search(text):
                    found.append(f"{path.name}: {text[:90]}")
    assert not found


def test_commands_have_the_study_as_it_was_typed_and_its_launcher(study: Study) -> None:
    commands = Commands(study)
    tail = "-o 'my study' -- mpiexec --oversubscribe -n {np} ./app 'in put'"
    assert commands.trace(16, 3) == f"p3s characterize -n 16 -r 3 {tail}"
    assert commands.trace([8, 2], work="cpu") == f"p3s characterize -n 2,8 --work cpu {tail}"
    assert commands.next() == "p3s next 'my study'" and commands.next(64).endswith("-n 64")
    assert commands.validate(16) == "p3s validate 'my study' -n 16"
    assert commands.predict([16, 32]) == "p3s predict 'my study' -n 16,32"
    assert count_to_predict(study) == 128
    assert count_to_validate(study, [8, 64, 32]) == 32 and count_to_validate(study, [8]) == 16
    put_model(study, admissible=Admissible("powers", 2, False, (2, 4, 8), (16,)))
    assert Commands(study).larger(8) is None and count_to_validate(study, [8]) is None
    assert NO_STUDY.trace(4, 3) == "p3s characterize -n 4 -r 3"


def test_every_reason_proposes_what_can_be_run(study: Study) -> None:
    """All that can be wrong at once."""
    times = {
        n: changed(times_at(n, 1.0 / n**2, 3.0), why_not="all nodes are one machine")
        for n in (2, 4, 8, 400)
    }
    held = held_out(8, p2p_triples=Overlap(9, 9, 0), work=work((1.0, 0.4), total=0.4))
    for each in times.values():
        each.head.update(share={"unknown": {"events": 1}})
        each.phases[0].update(outside=99.0, below=True)
    checked = comparison(16, unmodelled=Unmodelled(9, 0.2), work=work((0.5, -1.0), (0.5, 0.0)))
    runs = {n: replace(run_of(n, 1.0), off_core=0.5) for n in (2, 4)}
    facts = Facts(holdout=held, validations=[checked], commands=Commands(study))
    result = compose(times, runs, [2, 4, 8], facts)
    reasons = result.reasons
    assert len(reasons) > 8
    for each in reasons:
        found = re.findall(r"p3s [a-z]+[^()]*", each.advice)
        assert all("'my study'" in command for command in found), each.advice
        for command in found:
            words = shlex.split(command)
            assert ("--" in words) == (words[1] == "characterize")
            assert words[-6:] == WORDS if "--" in words else True
    assert any("p3s characterize" in each.advice for each in reasons)


def write_model(study: Study, **keys: Any) -> None:
    """Make a model.json of what commands read in it."""
    known = Admissible("any", 2, False, (2, 4, 8), (9,))
    put_model(study, **{"counts": (2, 4, 8), "next": (), "admissible": known, **keys})


def test_advice_sends_to_next_only_where_that_names_a_count(study: Study) -> None:
    wanted = (NextCount(12, (3, 4), 1.0, ()),)
    ran = Admissible("any", 2, False, (2, 4, 8), ())
    assert "p3s next 'my study' names the most useful one" in another(Commands(study)), (
        "not known yet"
    )
    write_model(study, next=wanted, admissible=ran)
    assert "p3s next 'my study' names the most useful one" in another(Commands(study))
    write_model(study, admissible=ran)
    assert another(Commands(study)).startswith("trace a larger count: p3s characterize -n 16 -o")
    write_model(study)
    assert another(Commands(study)) == (
        "no other count is known to work with this program; a larger input may allow more"
    )
    said = another(Commands(study), [2, 4, 8])
    assert "program; trace these with repeats: p3s characterize -n 2,4,8 -r 3" in said
    write_model(study, next=wanted, admissible=ran)
    (study.root / "validate" / "np000012.r0.failed").mkdir(parents=True)
    commands = Commands(study)
    assert not commands.names_counts() and commands.larger(8) == 16, "12 failed since"


def test_advice_names_a_smaller_workload_only_where_next_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def shared(rec: Recorder) -> None:
        for _ in range(10):
            rec("Allreduce", nbytes=8, work=1e6 / rec.n)

    models = {
        unit: build_model(
            [replace(corpus.table(program, n), work_unit=unit) for n in (2, 4, 8)], holdout=False
        )
        for unit, program in (("instructions", sized), ("cpu_ns", shared))
    }

    def advice(unit: str, *words: str) -> str:
        at = Path("_".join((unit, *words)))
        study = Study.create(at, ["mpiexec", "-n", "{np}", "./app", *words])
        write_json(study.model_path, as_file(replace(models[unit], next=())))
        return smaller(128, Commands(study))

    assert advice("instructions", "9") == (
        "add a smaller workload (p3s next instructions_9 -n 128 names one)"
    )
    assert "(p3s next instructions -n 128 says how much smaller)" in advice("instructions")
    assert advice("cpu_ns", "9").startswith("count instructions, which tell")
    assert "-n 2,4,8 --work instructions" in advice("cpu_ns", "9")
    assert "-n 8 names one" not in smaller(8, Commands(Study(Path("instructions_9"))))


def test_a_command_of_another_directory_stands_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Study.create(tmp_path / "s", WORDS)
    there = tmp_path / "there"
    there.mkdir()
    monkeypatch.chdir(tmp_path)
    for n in (2, 4, 8):
        put_run(made, n, directory=str(there))
    write_model(made)
    commands = Commands(made)
    base, last, odd = SimpleNamespace(n=4), SimpleNamespace(n=792), {2: ("computation", 2.0)}
    case: Any = SimpleNamespace(
        base=base, last=last, traced=[2, 4, 8], contradicting=odd, commands=commands
    )
    reasons = [
        *judge_holdout(held_out(8, work=work(mean=0.5)), commands=commands),
        *of_validation(comparison(8, unmodelled=Unmodelled(9, 0.5)), commands),
        *contradicts(case),
        *doubt_extrapolation(case),
    ]
    advices = [each.advice for each in reasons]
    row = count_at(64)
    parts = ("work", "cost", "replay", "model", "residual")
    advices += [narrower(part, row, [2, 4, 8], commands) for part in parts]
    told = [each for each in advices if "cd " in each]
    assert len(told) >= 6
    for each in told:
        assert "((" not in each and f": (cd {there} && p3s characterize" in each
        assert each.endswith("'in put')")


def test_a_deleted_run_is_to_be_traced_again(study: Study) -> None:
    text = too_few(study, [2, 4])
    assert "; to add some, run p3s characterize -n " in text and text.endswith("'in put'")
    study.update()
    for path in study.runs_dir(8).iterdir():
        path.unlink()
    study.runs_dir(8).rmdir()
    study.update()
    text = too_few(study, study.counts())
    assert (
        "the runs at 8 processes were deleted: to trace them again, run p3s characterize -n 8 "
        in text
    )


def test_another_value_of_a_parameter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    root = Study.create(Path("s"), ["mpiexec", "-n", "{np}", "./app", "{size}"])
    root.update(parameters={"size": ["100"]})
    at = Study.create(value_study(root, {"size": 100}).root, ["mpiexec", "-n", "{np}", "./app"])
    for n in (2, 4):
        put_run(at, n)
    line = "p3s characterize -n 2,4,8 --param size=100 -o s -- mpiexec -n {np} ./app {size}"
    assert proposed.another_value(root) == line  # it has too few counts
    (at.root / "signature").mkdir()
    for n in (2, 4, 8):
        put_run(at, n)
        at.signature_path(n).write_text("{}")
    assert proposed.another_value(root) == line.replace("=100", "=200")


def test_laws_of_parameters_that_miss_the_work_propose_another_value() -> None:
    missed = SimpleNamespace(
        comparison=SimpleNamespace(work=SimpleNamespace(off=0.5)),
        each=(),
        setting="size=4",
        without="size=4",
        n=8,
    )
    family = SimpleNamespace(parts=(SimpleNamespace(holdout=missed),), checks=())
    (reason,) = doubts_of_laws(family, "p3s characterize --param size=8")  # type: ignore[arg-type]
    assert reason.code == "holdout-work"
    assert reason.advice == "trace another value of a parameter: p3s characterize --param size=8"


def test_a_study_without_runs_is_traced_with_what_a_model_needs(study: Study) -> None:
    """As one at a value that none of its parameters was traced at: its model is derived."""
    derived = Study.create(Path("derived"), WORDS)
    put_model(derived, counts=(2, 4, 8))
    assert " -n 2,4,8 -r 3 -o derived " in Commands(derived).trace(8, 3)
    assert " -n 8 -r 3 -o 'my study' " in Commands(study).trace(8, 3)


def test_a_prediction_for_another_machine_proposes_runs_of_the_study(study: Study) -> None:
    moved = Study.create(study.root / "on" / "box", WORDS)
    moved.update(moved_from="../..")
    assert of_traces(moved).next() == "p3s next 'my study'"


def test_one_process_alone_is_predicted_without_a_replay(study: Study) -> None:
    """It has nobody to talk to, whatever nodes there are to measure messages on."""
    several = Request("auto", "", False, ReplaySettings(hosts=("n0", "n1")))
    assert basis_of(several, [1, 2], None, bool)[1]
    assert not basis_of(several, [1], None, bool)[1]
    assert not basis_of(replace(several, settings=ReplaySettings()), [1], None, bool)[1]


def test_what_takes_long_says_what_it_is(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for slow_s, said in ((300.0, ""), (0.05, "looking ...\n")):
        monkeypatch.setattr("p3s.cli.progress._SLOW_S", slow_s)
        found, deadline = "", time.monotonic() + 120
        with progress(1) as bar, bar.slow("looking"):
            while found != said and time.monotonic() < deadline:
                time.sleep(0.01)
                found += capsys.readouterr().err
        assert found + capsys.readouterr().err == said
