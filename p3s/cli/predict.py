"""``p3s predict``: everything that is still missing, then times and speedup."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from p3s.cli.common import (
    JSON_OPTION,
    Progress,
    check_template,
    emit_json,
    launcher_words,
    out,
    parse_counts,
    progress,
    quoted,
    say,
)
from p3s.cli.grid import DIMS, check_dims, keep_dims, outermost, parse_dims
from p3s.cli.machine import BASE, MACHINE
from p3s.cli.params import VALUE, WEAK
from p3s.cli.replay import BUDGET, COLLECTIVES, CORES, HOSTS, LAUNCHER, settings_of
from p3s.errors import P3SError, UsageError

if TYPE_CHECKING:
    from p3s.model.grid.stated import Extents

EPILOG = """Words after -- are a launcher command; with it a new study is traced first.

\b
Example:
  p3s predict study -n 32,64 -- mpiexec -n {np} ./program input
Next:
  p3s report study"""

#: Any estimator: the one that says most.
AUTO = "auto"
ESTIMATOR = typer.Option(
    AUTO,
    "--estimator",
    metavar="NAME",
    help="What says how long communication takes: auto, simulation, machine, simgrid, thesis.",
)
NO_REPLAY = typer.Option(
    False,
    "--no-replay",
    help="Run nothing: simulate with what messages cost between two ranks (p3s machine measure).",
)
#: Counts traced when a launcher is given and nothing has been traced yet.
DEFAULT_FROM = "2,4,8,16"


def predict(
    ctx: typer.Context,
    study_dir: Path = typer.Argument(..., metavar="STUDY", help="Study directory."),
    counts: str = typer.Option(
        ..., "-n", "--counts", metavar="COUNTS", help="Process counts, for example 32,64."
    ),
    traced: str = typer.Option(
        "", "--from", metavar="COUNTS", help=f"Counts to trace first [default: {DEFAULT_FROM}]."
    ),
    repeats: int = typer.Option(1, "-r", "--repeats", min=1, max=1000, help="Runs per count."),
    dims: str = DIMS,
    timeout: float = typer.Option(
        3600.0, "--timeout", min=1.0, metavar="SECONDS", help="Limit of one traced run."
    ),
    knee: float = typer.Option(
        0.5, "--knee", min=0.0, max=1.0, help="Efficiency below which the knee is reached."
    ),
    hosts: str = HOSTS,
    cores_per_node: int = CORES,
    budget: str = BUDGET,
    launcher: str = LAUNCHER,
    collectives: str = COLLECTIVES,
    param: list[str] = VALUE,
    weak: str = WEAK,
    machine: Path | None = MACHINE,
    base: Path | None = BASE,
    estimator: str = ESTIMATOR,
    no_replay: bool = NO_REPLAY,
    json_: bool = JSON_OPTION,
) -> int:
    """Predict run time, speedup and the knee; runs every stage that is missing or out of date."""
    from p3s.cli import params
    from p3s.cli.machine import elsewhere, has_network, prepare
    from p3s.cli.pipeline import (
        check_machine,
        check_times,
        ensure_compute,
        ensure_model,
        ensure_replays,
        ensure_scaled,
        machine_file,
        say_doubts,
        setting_of,
        stale_replays,
    )
    from p3s.predict import predict as make_prediction
    from p3s.report.terminal import render
    from p3s.study import Study

    wanted = parse_counts(counts)
    settings = settings_of(hosts, cores_per_node, budget, launcher, collectives=collectives)
    words = launcher_words(ctx)
    taken = _estimator(estimator, no_replay)
    if traced and not words:
        raise UsageError("--from names counts to trace, so a launcher command is needed after --")
    if base is not None and machine is None:
        raise UsageError("--base names the machine of the runs, so --machine must name another")
    if param or weak or params.has_parameters(study_dir):
        if words:
            raise UsageError("--param, --weak: trace first, with p3s characterize --param")
        if weak and machine is not None:
            raise UsageError("--weak and --machine: give one of them")
        if weak:
            return params.weak(study_dir, wanted, weak, param, knee, settings, json_, taken,
                               not no_replay)  # fmt: skip
        study_dir = params.at_value(study_dir, param)
    if not words and Study.find(study_dir) is None:
        raise P3SError(
            f"{study_dir}: no study here; give the launcher command to trace first: "
            f"p3s predict {study_dir} -n {counts} -- mpiexec -n {{np}} PROGRAM"
        )
    with progress(2 * len(wanted)) as bar:
        partial = False
        if words:
            extents = parse_dims(dims, words)
            partial = _trace_missing(study_dir, words, traced, repeats, timeout, bar, extents)
        study = Study.open(study_dir)
        if dims and not words:
            keep_dims(outermost(study), parse_dims(dims, study.command()))
        ensure_model(study, bar)
        ensure_compute(study, bar)
        check_times(study)
        made = None if machine is None else prepare(study, machine, base)
        say_doubts(study, wanted)
        every = sorted({*wanted, *params.counts_behind(study)})
        for n in every:
            ensure_scaled(study, n, bar)
        file = machine_file(made or study)
        if no_replay:
            check_machine(made or study, every[-1], file)
        elif made is not None and taken == AUTO and not settings.hosts and has_network(made):
            taken = "machine"  # what messages cost there is known: replays here would say less
        else:
            taken = ensure_replays(study, every, settings, bar, taken, file)
        told: dict[str, Any] = {
            "threshold": knee, "estimator": taken, "machine": file, "setting": setting_of(settings),
            "stale": stale_replays(study, every),
            "say": lambda text: bar.start(f"predicting: {text}")}  # fmt: skip
        bar.start("predicting")
        if made is not None:
            study, result = made, elsewhere(study, made, every, bar, told)
        else:
            result = make_prediction(study, every, **told)
    if json_:
        emit_json(result)
    else:
        out(render(result))
    say(f"next: p3s report {quoted(study.root)}")
    if result["low_confidence"]:
        say("low confidence: " + "; ".join(result["low_confidence"]))
        return 3
    return 3 if partial else 0


def _estimator(name: str, no_replay: bool) -> str:
    """Return the estimator that two options ask for; raises UsageError where they cannot."""
    from p3s.predict.estimated import ESTIMATORS

    known = [AUTO, *ESTIMATORS]
    if name not in known:
        raise UsageError(f"--estimator {name}: there are {', '.join(known[:-1])} and {known[-1]}")
    if no_replay and name in ("simulation", "thesis"):
        raise UsageError(f"--estimator {name} rests on a replay: leave --no-replay out")
    return "machine" if no_replay and name == AUTO else name


def _trace_missing(
    root: Path, words: list[str], traced: str, repeats: int, timeout: float, bar: Progress,
    extents: Mapping[int, Extents],
) -> bool:
    """Trace the counts that the study lacks; tells whether a count failed."""
    from p3s.cli.counts import Asked, chosen, grids_of, parse_asked, trace_asked, warn
    from p3s.cli.runs import MIN_COUNTS, check_counts, program_of, reasons, trace_counts
    from p3s.study import Study

    check_template(words)
    existing = Study.find(root)
    have = set(existing.counts()) if existing is not None else set()
    none = not traced and len(have) >= MIN_COUNTS
    asked = Asked() if none else parse_asked(traced or DEFAULT_FROM, "--from")
    program_of(words, max(asked.counts, default=asked.top or 1))
    grids = grids_of(existing, words, extents)
    missing = [np for np in chosen(asked, existing, grids) if np not in have]
    check_counts(existing, missing)
    check_dims(existing, extents, missing)
    made = not root.exists()
    study = Study.create(
        root,
        words,
        remedy="name another study directory, or leave the command out to predict from these runs",
    )
    keep_dims(study, extents)
    if not missing:
        return False
    warn(missing, existing, grids)
    done = trace_asked(asked, missing, study, grids, lambda these: trace_counts(
        study, words, these, repeats, timeout, bar, made=made))
    if len(study.counts()) < MIN_COUNTS:
        raise P3SError(f"{reasons(done.failed)}; too few counts are left, name others with --from")
    if done.failed:
        say(f"p3s: {reasons(done.failed)}; kept: {', '.join(map(str, study.counts()))}")
    return bool(done.failed)
