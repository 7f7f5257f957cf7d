"""Trace a program into a study: what commands and the Python interface call."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from contextlib import chdir
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from p3s.base.errors import P3SError, UsageError
from p3s.base.progress import Progress
from p3s.base.settings import MIN_COUNTS, parameters, traces_of
from p3s.base.study import Study
from p3s.base.text import differing, one_line
from p3s.model.evaluate import model_grid
from p3s.model.stage import check_dims
from p3s.pipeline.commands import Commands, counts_to_add
from p3s.pipeline.records import keep_dims, known_of, model_of
from p3s.pipeline.stages import ensure_model
from p3s.pipeline.tracing.runs import (
    CountRequest,
    TracedCount,
    TraceRequest,
    TraceResult,
    choose_counts,
    grids_of,
    reasons,
    trace_asked,
    trace_counts,
    warn,
)
from p3s.signature_runner.output import program_said
from p3s.signature_runner.standard_input import of_file
from p3s.signature_runner.traced_run import Launch, check_template, program_of, trace_once
from p3s.signature_runner.work_unit import of_study

if TYPE_CHECKING:
    from p3s.pipeline.validating import Validation


def default_study(words: Sequence[str], asked: CountRequest) -> Path:
    """Return the study directory when the user names none: p3s-PROGRAM."""
    program = program_of(list(words), max(asked.counts, default=asked.top))
    safe = "".join(c if c.isalnum() or c in "._-" else "-" for c in program).lstrip(".-")
    return Path(f"p3s-{safe or 'study'}")


def trace(request: TraceRequest, progress: Progress) -> TraceResult:
    """Trace what is asked for; counts up to a maximum are chosen, and refused ones replaced.

    Raises UsageError where the study would not be one, before anything is run, and P3SError where
    no run can be made. Ctrl-C ends the runs; what was finished before is kept.
    """
    asked, words, settled = request.asked, list(request.command), request.chosen
    check_template(words)
    existing = Study.find(request.root)
    program_of(words, max(asked.counts, default=asked.top or 1))
    refuse_parameters(request.root)
    known = known_of(existing)
    grids = grids_of(known, words, request.extents)
    counts = list(settled) if settled is not None else choose_counts(asked, known, grids, progress)
    if not request.part:
        check_counts(existing, counts)
    check_dims(known, request.extents, counts)
    made = not request.root.exists()
    study = Study.create(request.root, words, force=request.force, remedy=request.remedy)
    keep_dims(study, request.extents)
    if settled is None:
        if not request.part:
            warn(asked, counts, known, grids, progress)
        progress.say(f"tracing into {study.root}")
    if not counts:
        return TraceResult()

    some = partial(trace_counts, study, request, bar=progress, made=made)
    return trace_asked(asked, counts, partial(known_of, study), grids, some, progress)


def trace_command(
    root: Path,
    command: Sequence[str] | str,
    counts: Sequence[int],
    progress: Progress,
    *,
    stdin: Path | str | None = None,
    **settings: Any,
) -> Study:
    """Trace a launcher command at counts into the study in ``root``; return the study.

    ``stdin``: a file that every run reads; ``settings``: fields of :class:`TraceRequest`.
    Raises P3SError where too few counts are left; others that failed are told.
    """
    if stdin is not None:
        settings["stdin"] = lambda: of_file(str(stdin))
    words = shlex.split(command) if isinstance(command, str) else command
    done = trace(
        TraceRequest(root, tuple(words), CountRequest(tuple(counts)), **settings), progress
    )
    study = Study.open(root)
    if lack := lacking(study, done, part=settings.get("part", False)):
        raise P3SError(lack)
    if done.failed:
        progress.say(left_over(study, done))
    return study


def missing_counts(
    request: TraceRequest, asked: CountRequest | None, bar: Progress
) -> TraceRequest:
    """Return what is traced before a prediction: the counts that the study lacks.

    ``asked``: at which counts; None: at the request's, where the study has too few for a model.
    """
    known = known_of(Study.find(request.root))
    have = set(known.counts)
    wanted = asked or (CountRequest() if len(have) >= MIN_COUNTS else request.asked)
    grids = grids_of(known, list(request.command), request.extents)
    missing = tuple(np for np in choose_counts(wanted, known, grids, bar) if np not in have)
    check_dims(known, request.extents, missing)
    if asked is not None and missing:
        warn(wanted, missing, known, grids, bar)
    return replace(
        request,
        asked=wanted,
        chosen=missing,
        remedy="name another study directory, or leave the command out to predict from these runs",
    )


def trace_missing(request: TraceRequest, bar: Progress) -> bool:
    """Trace what :func:`missing_counts` names; tells whether a count failed."""
    done, study = trace(request, bar), Study.open(request.root)
    if request.chosen and len(study.counts()) < MIN_COUNTS:
        raise P3SError(f"{reasons(done.failed)}; too few counts are left, name others with --from")
    if done.failed:
        bar.say(f"p3s: {reasons(done.failed)}; kept: {', '.join(map(str, study.counts()))}")
    return bool(done.failed)


def left_over(study: Study, done: TraceResult) -> str:
    """Return why counts failed and which there are."""
    kept = ", ".join(map(str, study.signature_counts())) or "none"
    return f"{reasons(done.failed)}; kept: {kept}"


def lacking(study: Study, done: TraceResult, *, part: bool = False) -> str:
    """Return why a study has too few counts after they were traced; "" where it has enough."""
    have = study.signature_counts()
    if len(have) >= MIN_COUNTS or (part and have):
        return ""
    if part:
        return reasons(done.failed)
    kept = ", ".join(map(str, have)) or "none"
    more = counts_to_add(study, len(have)) if have else []  # none where the program ran at none
    return (
        f"{reasons(done.failed)}; {len(have)} of at least {MIN_COUNTS} process counts are there "
        f"(kept: {kept})" + (f"; to add others, run {Commands(study).trace(more)}" if more else "")
    )


def refuse_parameters(root: Path) -> None:
    """Refuse plain runs in a study with parameters."""
    names = parameters(Study(root)) if (Path(root) / "study.json").exists() else []
    if names:
        raise UsageError(
            f"{root}: its runs have values of {', '.join(names)}; add --param {names[0]}=VALUES, "
            "or choose another directory with -o"
        )


def check_counts(study: Study | None, counts: Sequence[int]) -> None:
    """Refuse a study that would hold too few distinct counts, before anything is run."""
    there = set(study.counts()) if study is not None else set()
    total = sorted(there | set(counts))
    more = [total[-1] << k for k in range(1, 1 + MIN_COUNTS - len(total))]
    if more:
        raise UsageError(
            f"-n {','.join(map(str, counts))}: the study would hold "
            f"{len(total)} process count{'s' if len(total) > 1 else ''}, the model needs "
            f"{MIN_COUNTS} (two to fit and one held out); add a count, for example "
            f"-n {','.join(map(str, [*total, *more]))}"
        )


def without_loop(study: Study, rows: Sequence[TracedCount]) -> str:
    """Return what a program said last that calls MPI in no loop, at the largest count; else "".

    Programs that refuse their input often end with exit code 0.
    """
    if not rows or any(row.signature.get("phases", 0) != 1 for row in rows):
        return ""
    n = max(row.np for row in rows)
    run = study.runs_dir(n)
    said = program_said(run)
    words = f"; at {n} processes it said last: {said.text} ({run / said.file})" * bool(said.text)
    return (
        f"note: the program calls MPI in no loop{one_line(words)}; if it stopped before its work, "
        "mend its input and trace into another study"
    )


def command_of(study: Study, given: list[str], force: bool) -> list[str]:
    """Return the launcher command to run; raises UsageError for one that is not the study's."""
    words = given or study.command()
    check_template(words)
    commands = study.manifest()["commands"]
    if commands and words not in commands and not force:
        there, here = differing(commands[-1], words)
        raise UsageError(
            f"{study.root}: was made with another command ({there}, not {here}); leave the command "
            "out to run the study's, or add --force"
        )
    return words


def compare_with_run(
    study: Study, n: int, launch: Launch | None, there: Path | None, bar: Progress
) -> Validation:
    """Compare the model with a run at ``n``, made now by ``launch`` or there already.

    there: the directory that the study's own command is for, None: this one.
    """
    from p3s.pipeline.validating import validate

    if launch is not None:
        with chdir(there or "."):
            program_of(list(launch.command), n)
    ensure_model(study, bar)
    model_grid(model_of(study), n)  # what cannot be compared need not run
    if launch is not None:
        _run(study, n, launch, there, bar)
    return validate(study.root, study.validate_run_dir(n), n)


def _run(study: Study, n: int, launch: Launch, there: Path | None, bar: Progress) -> None:
    if there is not None:
        bar.say(f"np={n}: running in {there}, as the study's runs")
    bar.start(f"np={n}: running")
    recording = of_study(traces_of(study))
    whole = Study(study.root.resolve())
    with chdir(there or "."):
        row = trace_once(traces_of(whole), launch, n, whole.validate_run_dir(n), recording, bar)
    for problem in row.problems:
        bar.say(f"np={n}: {problem}")
    bar.done(f"np={n}: {row.wall_s:.1f} s, comparing")
