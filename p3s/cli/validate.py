"""``p3s validate``: run the program at a count, traced, and compare with the model."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import typer

from p3s.base.command_lines import elsewhere
from p3s.base.errors import P3SError, UsageError
from p3s.base.settings import traces_of
from p3s.base.text import command_line, processes
from p3s.cli.common import emit_json, launcher_words, out, quote_word, say, say_reasons
from p3s.cli.progress import progress
from p3s.cli.values import one_count
from p3s.pipeline.records import keep_dims, known_of, load_study, outermost


def validate(
    ctx: typer.Context,
    study_dir: Path,
    count: str,
    timeout: float,
    dims: str,
    force: bool,
    run: bool,
    trust: bool,
    json_: bool,
) -> int:
    """Run the program at a count that was not modelled, traced, and compare it with the model.

    Exit code 3 where they differ, where work is off by more than 25 %, or where events that the
    model leaves out are above a tenth of the time.
    A command that is none of the study's is refused: its result would say nothing of the model.
    The study's own command is run without a question only if you have made the study.
    """

    from p3s.model.stage import check_dims
    from p3s.pipeline.records import parse_dims
    from p3s.pipeline.stages import of_one_value, too_few
    from p3s.pipeline.tracing.study import command_of, compare_with_run
    from p3s.report.validated import render
    from p3s.signature_runner.traced_run import Launch

    n = one_count(count, "validate compares at one process count")
    study = load_study(study_dir)
    of_one_value(study)
    words = command_of(study, launcher_words(ctx), force)
    run_dir = study.validate_run_dir(n)
    if not run and not run_dir.is_dir():
        raise UsageError(f"--no-run: {study_dir} holds no earlier p3s validate at {processes(n)}")
    extents = parse_dims(dims, words)
    check_dims(known_of(study), extents, [])
    keep_dims(outermost(study), extents)
    directory = None if launcher_words(ctx) else elsewhere(traces_of(study))
    if run and not launcher_words(ctx):
        derived = bool(study.manifest().get("derived"))
        if not (derived or study.counts() or study.gone_counts()):
            raise P3SError(too_few(study, []))
        settle(study.root, words, directory or Path.cwd(), trust)
    launch = Launch(tuple(words), timeout, known_of(study).extents, force=force)
    with progress(2) as bar:
        result = compare_with_run(study, n, launch if run else None, directory, bar)
    if json_:
        emit_json(result.to_json())
    else:
        out(render(result, quote_word(study.root)))
    same = result.same
    if not same:
        say(f"np={n}: the run and the model differ; the table says where")
    return say_reasons(result.reasons, "model") or (0 if same else 3)


def settle(root: Path, words: Sequence[str], directory: Path, trusted: bool) -> None:
    """Return if the study's own command may be run in a directory; what is allowed is remembered.

    It may when this user has run it there, or allows it now: with --trust, or on a terminal.
    Errors: UsageError otherwise, which says what would be run.
    """
    from p3s.base.trust import allow, is_own

    study, where = load_study(root), str(directory)
    why = ""
    try:
        if is_own(study, words, where):
            return
    except P3SError as err:  # the user's key cannot be used
        why = f" ({err})"
    line = f"{command_line(words)}, in {quote_word(directory)}"
    if not trusted and not _ask_permission(root, line + why):
        raise UsageError(
            f"{root}: was not made by you on this machine{why}, and its command is run: "
            f"{line}; if you know what that does, add --trust, or give the command after --"
        )
    allow(study, words, where)


def _ask_permission(root: Path, line: str) -> bool:
    """Ask on a terminal whether a command may be run; False where there is none."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    say(f"{root}: was not made by you on this machine. This would run its command:")
    say(f"  {line}")
    return typer.confirm("Run it?", default=False, err=True)
