"""``p3s characterize``: trace the program at small counts and find its phases."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from p3s.base.errors import UsageError
from p3s.base.text import one_line, table
from p3s.cli.common import JSON_OPTION, emit, out, parse_asked, parse_counts, progress, quoted, say
from p3s.cli.grid import DIMS
from p3s.cli.helptext import argument, option
from p3s.cli.params import VALUES
from p3s.cli.recording import (
    AFFINITY,
    COUNTERS,
    LIMIT,
    NO_REPEAT,
    OVERSUBSCRIBE,
    POSIX_IO,
    THREADS,
    TIMES,
    UNFINALIZED,
    WORK,
)
from p3s.cli.sampled import CONFIDENCE, SIGNATURE, STOP, TURNS, WIDTH
from p3s.cli.small_runs import FAR, UP_TO

if TYPE_CHECKING:
    from p3s.base.study import Study
    from p3s.pipeline.tracing.results import TracedCount
    from p3s.signature_runner.traced_run import TracedRun

EPILOG = """\b
Example:
  p3s characterize -n 2,4,8,16 -o study -- mpiexec -n {np} ./program input
Next:
  p3s model study"""


def default_study(program: str) -> Path:
    """Return the study directory when the user names none: p3s-PROGRAM."""
    safe = "".join(c if c.isalnum() or c in "._-" else "-" for c in program).lstrip(".-")
    return Path(f"p3s-{safe or 'study'}")


def characterize(
    context: typer.Context,
    command: list[str] = argument(
        "LAUNCHER", "The launcher command; {np} is the process count.", None
    ),
    counts: str = option(
        None, "-n --counts COUNTS", "Process counts, for example 2,4,8,16; or the largest, as ..32."
    ),
    repeats: int = option(1, "-r --repeats R", "Runs per count.", min=1, max=1000),
    no_repeat: bool = NO_REPEAT,
    study_dir: Path = option(None, "-o --study STUDY", "Study directory [default: p3s-PROGRAM]."),
    timeout: float = option(3600.0, "--timeout SECONDS", "Limit of one run.", min=1.0),
    work: str = WORK,
    times: bool = TIMES,
    counters: str = COUNTERS,
    limit: str = LIMIT,
    posix_io: bool = POSIX_IO,
    unfinalized: bool = UNFINALIZED,
    param: list[str] = VALUES,
    threads: str = THREADS,
    affinity: str = AFFINITY,
    oversubscribe: bool = OVERSUBSCRIBE,
    dims: str = DIMS,
    signature: bool = SIGNATURE,
    stop: bool = STOP,
    width: str = WIDTH,
    confidence: str = CONFIDENCE,
    turns: str = TURNS,
    far: bool = FAR,
    up_to: int = UP_TO,
    force: bool = option(False, "--force", "Add runs of another command to an existing study."),
    part: bool = option(
        False, "--part", "Trace some counts; others, traced elsewhere, follow by p3s add."
    ),
    json_: bool = JSON_OPTION,
) -> int:
    """Run the program traced at small process counts and find its phases.

    Adds to the study when it exists already; a count that is run again replaces its earlier run
    only when the new one has succeeded. With --signature, the phases that the study knows are
    recorded only until their times are known; later events are only counted. With --far, the
    command is the same program with a smaller input: kept apart, in far/ of the study.
    """
    from dataclasses import replace

    from p3s.base.study import Study
    from p3s.cli.grid import parse_dims
    from p3s.cli.params import characterize as with_params
    from p3s.cli.sampled import enough as settings_of
    from p3s.cli.sampled import text
    from p3s.cli.small_runs import far_runs
    from p3s.cli.teams import with_teams
    from p3s.model.grid.stated import check_dims, keep_dims
    from p3s.pipeline.tracing.counts import Asked
    from p3s.pipeline.tracing.runs import TraceRequest
    from p3s.pipeline.tracing.signature_runs import run_signature
    from p3s.pipeline.tracing.study import check_counts, lacking, left_over, trace
    from p3s.signature_runner.recording import recording
    from p3s.signature_runner.standard_input import own
    from p3s.signature_runner.traced_run import check_template, program_of

    words = list(command or [])
    check_template(words)
    extents = parse_dims(dims, words)
    asked = recording(work, counters, limit, posix_io=posix_io, unfinalized=unfinalized)
    processes = parse_asked(counts).counts if counts else ()
    param, asked = with_teams(param, asked, threads, affinity, oversubscribe, processes)
    if far:
        source = context.get_parameter_source("repeats")
        given = repeats if source is not None and source.name == "COMMANDLINE" else 0
        if extents and study_dir is not None:
            known = Study.open(study_dir)
            check_dims(known, extents, [])
            keep_dims(known, extents)
        smaller = TraceRequest(
            study_dir,
            tuple(words),
            Asked(tuple(parse_counts(counts) if counts is not None else ())),
            given,
            timeout,
            asked,
            repeat_disturbed=not no_repeat,
            stdin=own,
        )
        return far_runs(smaller, up_to, json_)
    if counts is None:
        raise UsageError(
            "-n is missing: give process counts, for example -n 2,4,8,16, or the "
            "largest, as -n ..32"
        )
    on = parse_asked(counts)
    if not (on.top or param or signature or part):  # before the program is looked for
        check_counts(None if study_dir is None else Study.find(study_dir), on.counts)
    name = program_of(words, max(on.counts, default=on.top))
    root = study_dir if study_dir is not None else default_study(name)
    if signature and not param:
        enough_of = settings_of(width, confidence, turns)
        check_dims(Study.find(root), extents, on.counts)
        stopping = replace(asked, stop=stop)
        with progress(0) as bar:
            study, results = run_signature(
                root, words, parse_counts(counts), timeout, stopping, enough_of, extents, bar
            )
        if json_:
            emit("characterize", study=str(study.root), sampled=results)
        else:
            out("\n\n".join(text(result) for result in results))
        return 0
    request = TraceRequest(
        root,
        tuple(words),
        on,
        repeats,
        timeout,
        asked,
        extents,
        times=times,
        repeat_disturbed=not no_repeat,
        force=force,
        part=part,
        stdin=own,
    )
    if param:
        return with_params(request, param, json_)
    with progress(0) as bar:
        done = trace(request, bar)
    study = Study.open(root)
    failed = [row for row in done.failed if not (on.top and row.refused)]
    have = study.signature_counts()
    next_command = f"p3s {'add STUDY' if part else 'model'} {quoted(study.root)}"
    lack = lacking(study, done, part=part)
    if json_:
        emit(
            "characterize",
            study=str(study.root),
            **done.to_json(),
            characterized=have,
            next=None if lack else next_command,
        )
    elif done.counts:
        out("\n".join([_table(done.counts), *_not_modelled(done.counts), *_tracing(done.counts)]))
        for line in _without_loop(study, done.counts):
            say(line)
    if lack:
        say(f"p3s: {lack}")
        return 1
    if done.failed:
        say(f"p3s: {left_over(study, done)}")
    say(f"next: {next_command}")
    return 3 if failed or done.problems else 0


def _not_modelled(rows: Sequence[TracedCount]) -> list[str]:
    """Return a line per operation that the model will leave out, at the largest count traced."""
    from p3s.signature.unmodelled import sentences

    largest = max(rows, key=lambda row: row.np)
    return [one_line(line) for line in sentences(largest.not_modelled)]


def _without_loop(study: Study, rows: Sequence[TracedCount]) -> list[str]:
    """Return what a program said last that calls MPI in no loop, at the largest count.

    Programs that refuse their input often end with exit code 0.
    """
    from p3s.signature_runner.output import program_said

    if any(row.signature.get("phases", 0) != 1 for row in rows):
        return []
    n = max(row.np for row in rows)
    run = study.runs_dir(n)
    said = program_said(run)
    words = f"; at {n} processes it said last: {said.text} ({run / said.file})" * bool(said.text)
    return [
        f"note: the program calls MPI in no loop{one_line(words)}; if it stopped before its work, "
        "mend its input and trace into another study"
    ]


def _tracing(rows: Sequence[TracedCount]) -> list[str]:
    from p3s.signature import buffers
    from p3s.signature.tracing import sentence

    where = buffers.sentences({str(row.np): row.buffers for row in rows})
    return where + sentence({str(row.np): row.tracing for row in rows})


def _table(rows: Sequence[TracedCount]) -> str:
    native = any(row.timed for row in rows)
    grids = any(run.dims for row in rows for run in row.runs)
    cells = []
    for row in rows:
        cells.append(
            [
                str(row.np),
                *([_grid(row)] if grids else []),
                *_took(row.runs),
                *(_took(row.timed) if native else []),
                "yes" if any(run.oversubscribed for run in row.runs + row.timed) else "no",
                *[
                    one_line(str(row.signature.get(key, "-")))
                    for key in ("events", "phases", "sites")
                ],
            ]
        )
    beside = ["native runs", "native time"] if native else []
    head = [
        "processes",
        *["grid"] * grids,
        "runs",
        "run time",
        *beside,
        "shared cores",
        "events",
        "phases",
        "sites",
    ]
    return table(cells, head, left=0)


def _grid(row: TracedCount) -> str:
    """Return the extents that the program was given."""
    from p3s.base.extents import shape

    return next((shape(run.dims) for run in row.runs if run.dims), "-")


def _took(runs: Sequence[TracedRun]) -> list[str]:
    """Return how many runs there were and what the shortest took."""
    return [str(len(runs)), f"{min(run.wall_s for run in runs):.2f} s"] if runs else ["0", "-"]
