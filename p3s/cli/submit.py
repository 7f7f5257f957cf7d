"""``p3s submit``: write batch scripts that trace the program or replay, and submit them."""

from __future__ import annotations

import shlex
from pathlib import Path

import typer

from p3s.cli.common import launcher_words
from p3s.cli.values import parse_asked, parse_counts, seconds_of


def submit(
    context: typer.Context,
    study_dir: Path,
    counts: str,
    jobs: str,
    ppn: int,
    cores: int,
    repeats: int,
    trace: list[str],
    predict: str,
    nodes: int,
    budget: str,
    scheduler: str,
    module: list[str],
    venv: Path,
    time: str,
    partition: str,
    account: str,
    option: list[str],
    output: Path,
    dry_run: bool,
    submit_: bool,
    json_: bool,
) -> int:
    """Write batch scripts that trace the program, or replay, on nodes of Slurm, PBS or LSF.

    With --submit they are handed over; the jobs take nodes that nobody else uses. Where every
    count has a job of its own, a last job puts the runs into the study, whatever became of others.
    """
    from p3s.base.host.schedulers import scheduler as named
    from p3s.cli import submitted as then
    from p3s.pipeline import jobs as batch_jobs

    words = launcher_words(context)
    traced = bool(words) and not words[0].startswith("-")
    batch = batch_jobs.Batch(
        scheduler=named(scheduler),
        around=batch_jobs.surroundings(module, venv),
        p3s=batch_jobs.program(venv),
        time=time,
        queue=partition,
        account=account,
        options=tuple(option or ()),
    )
    if traced:
        traces = batch_jobs.Traces(
            root=study_dir.absolute(),
            words=tuple(words),
            counts=counts,
            on=parse_asked(counts),
            jobs=jobs,
            per_node=ppn,
            cores=cores,
            options=(
                *["-r", str(repeats)][: 2 * (repeats > 1)],
                *then.more_options("characterize", trace),
            ),
            predict=tuple(parse_counts(predict, "--predict")) if predict else (),
            folder=(output or study_dir.with_name(f"{study_dir.absolute().name}-jobs")).absolute(),
        )
        scripts = batch_jobs.traces(batch, traces, write=not dry_run)
    else:
        then.more_options("replay", [shlex.join(words)])
        scripts = batch_jobs.replay(
            batch,
            study_dir,
            parse_counts(counts),
            nodes,
            ppn,
            budget,
            seconds_of(budget, "--budget"),
            words,
            output,
        )
    return then.hand_in(batch, scripts, dry_run=dry_run, submit=submit_, json_=json_)
