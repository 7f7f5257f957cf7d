"""``p3s validate``: run the program at a count, traced, and compare with the model."""

from __future__ import annotations

from pathlib import Path

import typer

from p3s.base.command_lines import elsewhere
from p3s.base.errors import P3SError, UsageError
from p3s.base.study import Study
from p3s.base.text import processes
from p3s.cli.common import emit_json, launcher_words, out, quoted, say, say_reasons
from p3s.cli.progress import progress
from p3s.cli.values import one_count


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
    from p3s.cli.trusting import settle
    from p3s.costs.parameters.derived import of_one_value
    from p3s.model.stage import check_dims, keep_dims, listed_extents
    from p3s.pipeline.stages import too_few
    from p3s.pipeline.statements import outermost, parse_dims
    from p3s.pipeline.tracing.validating import command_of, compared
    from p3s.report.validated import render
    from p3s.signature_runner.traced_run import Launch

    n = one_count(count, "validate compares at one process count")
    study = Study.open(study_dir)
    of_one_value(study)
    words = command_of(study, launcher_words(ctx), force)
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
    launch = Launch(tuple(words), timeout, listed_extents(study), force=force)
    with progress(2) as bar:
        result = compared(study, n, launch if run else None, there, bar)
    if json_:
        emit_json(result.to_json())
    else:
        out(render(result, quoted(study.root)))
    same = result.same
    if not same:
        say(f"np={n}: the run and the model differ; the table says where")
    return say_reasons(result.reasons, "model") or (0 if same else 3)
