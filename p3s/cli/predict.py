"""``p3s predict``: everything that is still missing, then times and speedup."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from p3s.base.errors import P3SError, UsageError
from p3s.cli.common import (
    JSON_OPTION,
    STUDY,
    Progress,
    allowed_codes,
    emit_json,
    launcher_words,
    out,
    parse_asked,
    parse_counts,
    parse_share,
    progress,
    quoted,
    say,
    say_reasons,
)
from p3s.cli.costs import ESTIMATOR, EVERY_RANK, NETWORK, NO_REPLAY, PLACEMENT, TOPOLOGY
from p3s.cli.grid import DIMS, outermost, parse_dims
from p3s.cli.helptext import option
from p3s.cli.machine import BASE, MACHINE
from p3s.cli.params import VALUE, WEAK
from p3s.cli.recording import THREADS
from p3s.cli.replay import BUDGET, COLLECTIVES, CORES, HOSTS, LAUNCHER, settings_of

if TYPE_CHECKING:
    from p3s.base.study import Study
    from p3s.machine.filesystem import FileSystem

#: In place of a file: what the traced runs took.
RUNS = "runs"
IO = option(
    "",
    "--io FILE|NAME",
    "File system to predict for: a file of p3s machine measure --io, or one of p3s machine"
    " list; runs: what the traced runs took [default: that of the machine file, else of the runs].",
)


def file_system(text: str) -> FileSystem | None:
    """Return the file system that --io names; None for none, and for the runs' own times."""
    from p3s.machine.filesystem import names, typical
    from p3s.machine.machinefile import files_of

    if text in ("", RUNS):
        return None
    return typical(text) if text in names() else files_of(Path(text))


def keep_file_system(study: Study, text: str, found: FileSystem | None) -> None:
    """Keep in the study what --io says; without the option what is there stays."""
    from p3s.machine.filesystem import NAME, FileSystem

    path = study.root / NAME
    if text == RUNS:
        found = FileSystem("", "", ())
    if found is not None and not (path.exists() and FileSystem.load(path) == found):
        found.save(path)


EPILOG = """Words after -- are a launcher command; with it a new study is traced first.

\b
Example:
  p3s predict study -n 32,64 -- mpiexec -n {np} ./program input
  p3s predict study -n 1024 --network slingshot
  p3s predict study -n 1024 --what-if latency/2 --what-if 'phase 3 * 0.7'
Next:
  p3s report study"""

ONLY = option(
    False, "--only", "Leave out the counts of an earlier prediction [default: they stay]."
)
NODE = option(
    "",
    "--node NODE",
    "With --threads: a node as 2x32 (sockets x cores), 2x4x8+smt2, or a file of lstopo.",
)
ALLOW = option(
    [],
    "--allow CODES",
    "Trust the prediction although these reasons speak against it, as in "
    "--allow other-calls; may be repeated.",
)
WITHIN = option(
    "",
    "--within SHARE",
    "How well run times must be known, as in --within 10%; exit code 3 where they are not.",
)
WHAT_IF = option(
    [],
    "--what-if CHANGE",
    "What a change would save, such as latency/2, 'phase 3 * 0.7', balanced, allreduce=ring "
    "or network=ideal; may be repeated. table: the usual changes; none: no table.",
)
#: Counts traced when a launcher is given and nothing has been traced yet.
DEFAULT_FROM = "2,4,8,16"


def _ahead(study_dir: Path, words: list[str], traced: str) -> list[int]:
    """Return the counts to predict where none is named, of about 2 and 4 times the largest."""
    from p3s.base.study import Study
    from p3s.predict.commands import Commands

    study = Study.find(study_dir)
    if study is not None and not words:
        return Commands(study).ahead()
    asked = parse_asked(traced or DEFAULT_FROM, "--from")
    largest = max(asked.counts, default=asked.top)
    return [2 * largest, 4 * largest]


def predict(
    ctx: typer.Context,
    study_dir: Path = STUDY,
    counts: str = option(
        "",
        "-n --counts COUNTS",
        "Process counts, for example 32,64 [default: about 2 and 4 times the largest traced].",
    ),
    traced: str = option("", "--from COUNTS", f"Counts to trace first [default: {DEFAULT_FROM}]."),
    repeats: int = option(1, "-r --repeats R", "Runs per count.", min=1, max=1000),
    dims: str = DIMS,
    timeout: float = option(3600.0, "--timeout SECONDS", "Limit of one traced run.", min=1.0),
    knee: float = option(
        0.5, "--knee SHARE", "Efficiency below which the knee is reached.", min=0.0, max=1.0
    ),
    hosts: str = HOSTS,
    cores_per_node: int = CORES,
    budget: str = BUDGET,
    launcher: str = LAUNCHER,
    collectives: str = COLLECTIVES,
    param: list[str] = VALUE,
    weak: str = WEAK,
    threads: str = THREADS,
    node: str = NODE,
    machine: Path | None = MACHINE,
    base: Path | None = BASE,
    estimator: str = ESTIMATOR,
    network: str = NETWORK,
    topology: str = TOPOLOGY,
    placement: Path | None = PLACEMENT,
    no_replay: bool = NO_REPLAY,
    every_rank: bool = EVERY_RANK,
    io: str = IO,
    what_if: list[str] = WHAT_IF,
    only: bool = ONLY,
    allow: list[str] = ALLOW,
    within: str = WITHIN,
    json_: bool = JSON_OPTION,
) -> int:
    """Predict run time, speedup and the knee; runs every stage that is missing or out of date."""
    from p3s.base.study import Study
    from p3s.cli import params, teams
    from p3s.model.grid.stated import keep_dims
    from p3s.pipeline.basis import request_of, with_placement
    from p3s.pipeline.before import check_launcher, check_request, check_study
    from p3s.pipeline.predicting import PredictArguments, predicted, what_ifs_of
    from p3s.pipeline.stages import places_of
    from p3s.pipeline.tracing.runs import TraceRequest
    from p3s.pipeline.tracing.study import missing_counts, trace_missing
    from p3s.pipeline.weak import has_parameters
    from p3s.predict.types import PREDICTION
    from p3s.report.places import phase_places
    from p3s.report.terminal import render
    from p3s.signature_runner.standard_input import own

    allowed, changes = allowed_codes(allow), what_ifs_of(what_if)
    share = parse_share(within, "--within") if within else None
    settings = settings_of(hosts, cores_per_node, budget, launcher, collectives=collectives)
    request = request_of(
        estimator, network, no_replay, settings, topology, placed=placement is not None
    )
    request = replace(request, every_rank=every_rank)
    words = launcher_words(ctx)
    wanted = parse_counts(counts) if counts else _ahead(study_dir, words, traced)
    if placement is not None:
        request = with_placement(request, placement, wanted)
    with_parameters = bool(param or weak or has_parameters(study_dir))
    if with_parameters and words:
        raise UsageError(f"{study_dir}: has parameters; trace first, with p3s characterize --param")
    every = threads or (with_parameters and teams.needs_threads(study_dir, param))
    if what_if and every:
        raise UsageError(
            f"--what-if: {study_dir} has several numbers of threads; name one of them, as in "
            "--param threads=2"
        )
    if not words and Study.find(study_dir) is None:
        raise P3SError(
            f"{study_dir}: no study here; give the launcher command to trace first: "
            f"p3s predict {quoted(study_dir)} -n {','.join(map(str, wanted))} "
            "-- mpiexec -n {np} PROGRAM"
        )
    system = file_system(io)
    extents = parse_dims(dims, words) if words else {}
    first = None
    if words:
        usual, named = parse_asked(DEFAULT_FROM), parse_asked(traced, "--from") if traced else None
        first = TraceRequest(
            study_dir, tuple(words), usual, repeats, timeout, extents=extents, stdin=own
        )
        first = missing_counts(first, named, Progress())
    check_request(study_dir, wanted, request, machine, base)
    if first is not None:
        check_launcher(study_dir, words, first.chosen or ())
    if weak:
        return params.weak(study_dir, wanted, weak, param, knee, request, json_, only)
    if every:
        asked = teams.AskedThreads(threads, node)
        return teams.predict(study_dir, wanted, asked, param, request, json_, only, allowed)
    if with_parameters:
        study_dir = params.at_value(study_dir, param)
    if not words:
        check_study(Study.open(study_dir))
    with progress(2 * len(wanted)) as bar:
        partial = first is not None and trace_missing(first, bar)
        if dims and not words:
            keep_dims(
                outermost(Study.open(study_dir)), parse_dims(dims, Study.open(study_dir).command())
            )
        keep_file_system(Study.open(study_dir), io, system)
        arguments = PredictArguments(
            tuple(wanted),
            request,
            machine=machine,
            base=base,
            knee=knee,
            only=only or placement is not None,
            allowed=allowed,
            within=share,
            what_if=changes,
        )
        study, result = predicted(Study.open(study_dir), arguments, bar)
    if json_:
        emit_json(PREDICTION.data(result))
    else:
        found = places_of(study)
        out(render(result, phase_places(*found) if found else {}))
    say(f"next: p3s report {quoted(study.root)}")
    return say_reasons(result.reasons, told=not json_) or (3 if partial else 0)
