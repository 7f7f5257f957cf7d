"""``p3s validate``: run the program at a count, traced, and compare with the model."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import chdir
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from p3s.base.command_lines import elsewhere
from p3s.base.errors import P3SError, UsageError
from p3s.base.study import Study
from p3s.base.text import command_line, processes
from p3s.cli.common import (
    JSON_OPTION,
    STUDY,
    Progress,
    emit_json,
    launcher_words,
    out,
    parse_counts,
    progress,
    quoted,
    say,
    say_reasons,
)
from p3s.cli.grid import DIMS
from p3s.cli.helptext import option
from p3s.signature_runner.traced_run import Launch, check_template, program_of, trace_once

if TYPE_CHECKING:
    from p3s.base.study import Study

TRUST = option(False, "--trust", "Run the study's command, though it was not made here by you.")


def settle(study: Study, words: Sequence[str], directory: Path, trusted: bool) -> None:
    """Return if the study's own command may be run in a directory; what is allowed is remembered.

    It may when this user has run it there, or allows it now: with --trust, or on a terminal.
    Errors: UsageError otherwise, which says what would be run.
    """
    from p3s.base.trust import allow, is_own

    where = str(directory)
    why = ""
    try:
        if is_own(study, words, where):
            return
    except P3SError as err:  # the user's key cannot be used
        why = f" ({err})"
    line = f"{command_line(words)}, in {quoted(directory)}"
    if not trusted and not _asked(study, line + why):
        raise UsageError(
            f"{study.root}: was not made by you on this machine{why}, and its command is run: "
            f"{line}; if you know what that does, add --trust, or give the command after --"
        )
    allow(study, words, where)


def _asked(study: Study, line: str) -> bool:
    """Ask on a terminal whether a command may be run; False where there is none."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    say(f"{study.root}: was not made by you on this machine. This would run its command:")
    say(f"  {line}")
    return typer.confirm("Run it?", default=False, err=True)


EPILOG = """Words after -- are the launcher command [default: the one the study was made with].

\b
Example:
  p3s validate study -n 64 -- mpiexec -n {np} ./program input
Next:
  p3s report study"""


def validate(
    ctx: typer.Context,
    study_dir: Path = STUDY,
    count: str = option(..., "-n --count N", "Process count to run at."),
    timeout: float = option(3600.0, "--timeout SECONDS", "Limit of the run.", min=1.0),
    dims: str = DIMS,
    force: bool = option(False, "--force", "Run another command than the study's."),
    run: bool = option(
        True, "--run/--no-run", "Run it, or compare the run of an earlier p3s validate again."
    ),
    trust: bool = TRUST,
    json_: bool = JSON_OPTION,
) -> int:
    """Run the program at a count that was not modelled, traced, and compare it with the model.

    Exit code 3 where they differ, where work is off by more than 25 %, or where events that the
    model leaves out are above a tenth of the time.
    A command that is none of the study's is refused: its result would say nothing of the model.
    The study's own command is run without a question only if you have made the study.
    """
    from p3s.cli.grid import outermost, parse_dims
    from p3s.costs.parameters.derived import of_one_value
    from p3s.model.evaluate import model_grid
    from p3s.model.grid.stated import check_dims, keep_dims
    from p3s.model.stage import load
    from p3s.pipeline.stages import ensure_model, too_few
    from p3s.report.validated import render

    wanted = parse_counts(count)
    if len(wanted) != 1:
        raise UsageError(f"-n {count}: validate compares at one process count")
    n = wanted[0]
    study = Study.open(study_dir)
    of_one_value(study)
    words = _command(study, launcher_words(ctx), force)
    run_dir = study.validate_run_dir(n)
    if not run and not run_dir.is_dir():
        raise UsageError(f"--no-run: {study_dir} holds no earlier p3s validate at {processes(n)}")
    extents = parse_dims(dims, words)
    check_dims(study, extents, [])
    keep_dims(outermost(study), extents)
    there = None if launcher_words(ctx) else elsewhere(study)
    if run and not launcher_words(ctx):
        derived = bool(study.manifest().get("derived"))
        if not (derived or study.counts() or study.gone_counts()):
            raise P3SError(too_few(study, []))
        settle(study, words, there or Path.cwd(), trust)
    with progress(2) as bar:
        if run:
            with chdir(there or "."):
                program_of(words, n)
        ensure_model(study, bar)
        model_grid(load(study.root), n)  # what cannot be compared need not run
        if run:
            _trace(study, words, n, timeout, there, bar, force)
        from p3s.predict.validate import validate as compare

        result = compare(study.root, run_dir, n)
    if json_:
        emit_json(result.to_json())
    else:
        out(render(result, quoted(study.root)))
    same = result.same
    if not same:
        say(f"np={n}: the run and the model differ; the table says where")
    return say_reasons(result.reasons, "model") or (0 if same else 3)


def _command(study: Study, given: list[str], force: bool) -> list[str]:
    """Return the launcher command to run; raises UsageError for one that is not the study's."""
    from p3s.base.text import differing

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


def _trace(
    study: Study,
    words: list[str],
    n: int,
    timeout: float,
    there: Path | None,
    bar: Progress,
    force: bool,
) -> None:
    """Run the program, traced; ``there``: in the directory that the study's own command is for."""
    from p3s.model.grid.stated import listed_extents
    from p3s.signature_runner.work_unit import of_study

    if there is not None:
        say(f"np={n}: running in {there}, as the study's runs")
    bar.start(f"np={n}: running")
    recording = of_study(study)
    whole = Study(study.root.resolve())
    with chdir(there or "."):
        target = whole.validate_run_dir(n)
        launch = Launch(tuple(words), timeout, listed_extents(whole), force=force)
        row = trace_once(whole, launch, n, target, recording, bar)
    for problem in row.problems:
        say(f"np={n}: {problem}")
    bar.done(f"np={n}: {row.wall_s:.1f} s, comparing")
