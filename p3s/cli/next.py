"""``p3s next``: which process counts to trace next, which smaller workload to run, and why."""

from __future__ import annotations

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
from p3s.cli.runs import TIMEOUT_S, elsewhere
from p3s.errors import P3SError, UsageError
from p3s.study import Study
from p3s.words import command_line, joined

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
    counts = [each["n"] for each in wanted]
    words = command(study, model, counts) if wanted else []
    again = sorted(set(_work(study, model, counts)[0]) - set(counts)) if wanted else []
    by_work, by_count = measured_range(study)
    far = propose(model, wanted_n or default_target(model), by_work, by_count)
    far["command"] = far_command(study, far["counts"]) if far["phases"] else []
    if json_:
        emit_json({**header("next"), "study": str(study.root), "counts": wanted,
                   "command": words, "directory": _directory(study), "far": far})  # fmt: skip
        return 0
    from p3s.report.next import render, render_far

    out(render(model, shown(study, words)))
    if again:
        say("note: with more processes than cores work is CPU time, and a study holds one unit: "
            f"{joined(again)} are traced again")
    if wanted_n or far["phases"] or far["above"]:  # that none is needed is said when asked
        line = shown(study, far["command"]) if far["command"] else ""
        out("\n" + render_far(far, str(model["work_unit"]), line, arguments(study)))
    if wanted or far["phases"]:
        say(f"then: p3s model {quoted(study.root)}")
    return 0


def _directory(study: Study) -> str | None:
    there = elsewhere(study)
    return None if there is None else str(there)


def _target(text: str) -> int:
    counts = parse_counts(text) if text else []
    if len(counts) > 1:
        raise UsageError(f"-n {text}: give one count, the largest to be predicted")
    return counts[0] if counts else 0


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
    """Return the command that traces ``counts`` as the study's others were, as words.

    Where they would share cores and the study's work is wall time, all counts are traced again.
    """
    every, work = _work(study, model, counts)
    return ["p3s", "characterize", "-n", ",".join(map(str, every)), *work, *_options(study),
            *_dims(study, model, every), "-o", _root(study), "--", *_launcher(study)]  # fmt: skip


def _work(study: Study, model: dict[str, Any], counts: list[int]) -> tuple[list[int], list[str]]:
    """Return the counts to trace and the option that says how work is measured."""
    from p3s.cli.recording import work_of
    from signature_runner.cores import cores

    runs = [run for run in study.runs() if run.info]
    wanted = sorted(set(counts))
    if model.get("work_unit") == "instructions":
        untimed = bool(runs) and not study.timed_runs()
        return wanted, ["--work", "instructions", *["--no-times"] * untimed]
    if list(work_of(runs)) == ["wall"]:
        if any(run.info.get("oversubscribed") for run in runs):
            return wanted, ["--work", "wall"]  # the user wanted it so
        if wanted[-1] > cores():
            return sorted({*wanted, *(run.np for run in runs)}), ["--work", "cpu"]
    return wanted, []


def _options(study: Study) -> list[str]:
    """Return the other options that the study's latest runs were made with."""
    from p3s.cli.far import most_repeats

    infos = [run.info for run in [*study.runs(), *study.timed_runs()]]
    limit = max((int(info.get("limit_bytes") or 0) for info in infos), default=0)
    counters: list[str] = next((info["counters"] for info in infos if info.get("counters")), [])
    repeats = most_repeats(study)
    return [*(["-r", str(repeats)] if repeats > 1 else []),
            *(["--counters", ",".join(counters)] if counters else []),
            *(["--limit", str(limit)] if limit else []), *_timeout(infos)]  # fmt: skip


def _dims(study: Study, model: dict[str, Any], counts: list[int]) -> list[str]:
    """Return --dims for a program that gets its grid, where MPI_Dims_create deals another one."""
    from signature_runner.placeholders import extents_at, extents_in, shape

    words = _launcher(study)
    grids = model.get("grid", {}).get("dims", {})
    given = [(run.np, run.info["dims"]) for run in study.runs() if run.info.get("dims")]
    if not extents_in(words) or any(grids.get(str(n)) != dims for n, dims in given):
        return []  # none is asked for, or in another order than the model has them
    dims = {each["n"]: each["dims"] for each in model.get("next", []) if each["n"] in counts}
    other = [f"{n}={shape(grid)}" for n, grid in dims.items()
             if tuple(grid) != extents_at(words, n, {})]
    return ["--dims", ",".join(other)] if other else []


def _timeout(infos: list[dict[str, Any]]) -> list[str]:
    longest = max((float(info.get("timeout_s") or TIMEOUT_S) for info in infos), default=TIMEOUT_S)
    return ["--timeout", f"{longest:g}"] if longest > TIMEOUT_S else []


def _launcher(study: Study) -> list[str]:
    try:
        return study.command()
    except P3SError:  # put together from runs that do not say it
        return ["mpiexec", "-n", "{np}", "PROGRAM"]


def _root(study: Study) -> str:
    """Return the study's directory as the command names it."""
    return str(study.root if elsewhere(study) is None else study.root.resolve())


def shown(study: Study, words: list[str]) -> str:
    """Return a command of :func:`command` as a line that works from here.

    A relative name in the study's command is one from where that was run.
    """
    there = elsewhere(study)
    line = command_line(words)
    return line if there is None else f"(cd {quoted(there)} && {line})"


def far_command(study: Study, counts: list[int]) -> list[str]:
    """Return the command that records a smaller workload, its arguments left to the user."""
    infos = [run.info for run in [*study.runs(), *study.timed_runs()]]
    return ["p3s", "characterize", "--far", "-n", ",".join(map(str, counts)), *_timeout(infos),
            "-o", _root(study), "--", *without_arguments(_launcher(study)), SMALLER]  # fmt: skip


def arguments(study: Study) -> str:
    """Return the arguments of the study's program that a smaller input takes the place of."""
    words = _launcher(study)
    return command_line(words[len(without_arguments(words)) :])


def without_arguments(words: list[str]) -> list[str]:
    """Return a launcher command up to its program (the script of an interpreter)."""
    from signature_runner.command import parse

    try:
        program = parse(words, 2, there=False).program
    except P3SError:  # the launcher is not on this machine
        start = next((k + 1 for k, word in enumerate(words) if "{np}" in word), len(words) - 1)
        program = tuple(words[start:])
    keep = 1
    if Path(program[0]).name.startswith("python"):
        keep = next((k + 1 for k, word in enumerate(program) if word.endswith(".py")), 1)
    return words[: len(words) - len(program) + keep]
