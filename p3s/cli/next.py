"""``p3s next``: which process counts to trace next, which smaller workload to run, and why."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import typer

from p3s.cli.common import (
    JSON_OPTION,
    emit_json,
    header,
    out,
    parse_counts,
    progress,
    quoted,
    say,
)
from p3s.errors import P3SError, UsageError
from p3s.study import Study

EPILOG = """\b
Example:
  p3s next study
Next:
  p3s characterize -n COUNT -o study -- ...   (the commands it prints)
  p3s model study"""

#: Where the user puts the arguments of a smaller workload.
SMALLER = "SMALLER_INPUT"


def next_(
    study_dir: Path = typer.Argument(..., metavar="STUDY", help="Study directory."),
    target: str = typer.Option(
        "", "-n", "--count", metavar="N",
        help="Count to be predicted, for far points [default: 16 times the largest traced].",
    ),
    json_: bool = JSON_OPTION,
) -> int:
    """Name the runs that would decide most about the model: counts, and smaller workloads."""
    from p3s.cli.pipeline import ensure_model
    from p3s.far.propose import default_target, propose
    from p3s.model.stage import load

    wanted_n = _target(target)
    study = Study.open(study_dir)
    with progress(2) as bar:
        ensure_model(study, bar)
    model = load(study.root)
    wanted = model.get("next", [])
    words = command(study, model, [each["n"] for each in wanted]) if wanted else []
    by_work, by_count = measured_range(study)
    far = propose(model, wanted_n or default_target(model), by_work, by_count)
    far["command"] = far_command(study, far["counts"]) if far["phases"] else []
    if json_:
        emit_json({**header("next"), "study": str(study.root), "counts": wanted,
                   "command": words, "far": far})  # fmt: skip
        return 0
    from p3s.report.next import render, render_far

    out(render(model, _shown(words)))
    if wanted_n or far["phases"] or far["above"]:  # that none is needed is said when asked
        out("\n" + render_far(far, str(model["work_unit"]), _shown(far["command"])))
    if wanted or far["phases"]:
        say(f"then: p3s model {quoted(study.root)}")
    return 0


def _target(text: str) -> int:
    counts = parse_counts(text) if text else []
    if len(counts) > 1:
        raise UsageError(f"-n {text}: give one count, the largest to be predicted")
    return counts[0] if counts else 0


def _shown(words: list[str]) -> str:
    return shlex.join(words).replace("'{np}'", "{np}")


def measured_range(study: Study) -> tuple[dict[int, tuple[float, float]], dict[int, float]]:
    """Return what compute.json has of each phase: the work per turn from least to most that was
    measured, or, where work is time, the largest count that was."""
    from p3s.study import read_json

    if not study.compute_path.exists():
        return {}, {}
    found = read_json(study.compute_path, "p3s.compute")
    phases = found.get("phases", [])
    if found.get("work_unit") != "instructions":
        return {}, {int(p["phase"]): float(p["n"][1]) for p in phases if p.get("n")}
    return {int(p["phase"]): (float(p["x"][0]), float(p["x"][1]))
            for p in phases if p.get("x")}, {}


def command(study: Study, model: dict[str, Any], counts: list[int]) -> list[str]:
    """Return the command that traces ``counts`` in addition, as words."""
    unit = ["--work", "instructions"] if model.get("work_unit") == "instructions" else []
    return ["p3s", "characterize", "-n", ",".join(map(str, sorted(set(counts)))), *unit,
            "-o", str(study.root), "--", *_launcher(study)]  # fmt: skip


def _launcher(study: Study) -> list[str]:
    try:
        return study.command()
    except P3SError:  # put together from runs that do not say it
        return ["mpiexec", "-n", "{np}", "PROGRAM"]


def far_command(study: Study, counts: list[int]) -> list[str]:
    """Return the command that records a smaller workload, its arguments left to the user."""
    return ["p3s", "characterize", "--far", "-n", ",".join(map(str, counts)), "-o",
            str(study.root), "--", *without_arguments(_launcher(study)), SMALLER]  # fmt: skip


def without_arguments(words: list[str]) -> list[str]:
    """Return a launcher command up to its program (the script of an interpreter)."""
    from signature_runner.command import parse

    try:
        program = parse(words, 2).program
    except P3SError:  # the program or the launcher is not on this machine
        start = next((k + 1 for k, word in enumerate(words) if "{np}" in word), len(words) - 1)
        program = tuple(words[start:])
    keep = 1
    if Path(program[0]).name.startswith("python"):
        keep = next((k + 1 for k, word in enumerate(program) if word.endswith(".py")), 1)
    return words[: len(words) - len(program) + keep]
