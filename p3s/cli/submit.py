"""``p3s submit``: write batch scripts that trace the program or replay, and submit them."""

from __future__ import annotations

import inspect
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from p3s.base.errors import UsageError
from p3s.cli.common import (
    JSON_OPTION,
    STUDY,
    emit,
    launcher_words,
    out,
    parse_asked,
    parse_counts,
    say,
)
from p3s.cli.helptext import option
from p3s.cli.replay import BUDGET, seconds_of

if TYPE_CHECKING:
    from p3s.pipeline.jobs import Batch, Made, Script

EPILOG = """Behind -- stands what the jobs do: a launcher command with {np} is traced at the counts;
options of p3s replay, or nothing, measure the communication of a scaled trace on four nodes.

\b
Example:
  p3s submit study -n 8,16,32,64 --ppn 32 --time 20m --submit -- srun -n {np} ./program input
  p3s submit study -n 8,16,32,64 --jobs each --predict 512,1024 -- srun -n {np} ./program input
  p3s submit study -n 512,1024 --nodes 4 --budget 10m --submit -- --timed
Next:
  p3s predict study -n 512,1024"""


def submit(
    context: typer.Context,
    study_dir: Path = STUDY,
    counts: str = option(..., "-n --counts COUNTS", "Process counts, for example 8,16,32."),
    jobs: str = option(
        "one",
        "--jobs HOW",
        "Traces: one job for all counts, each count a job of its own, or a job array.",
    ),
    ppn: int = option(
        0,
        "--ppn K",
        "Ranks on a node, from which the nodes follow [default: left to the scheduler].",
        min=0,
    ),
    cores: int = option(1, "--cores-per-rank K", "Cores of a rank, for its threads.", min=1),
    repeats: int = option(1, "-r --repeats R", "Traces: runs per count.", min=1, max=1000),
    trace: list[str] = option(
        [],
        "--trace OPTION",
        "Another option of p3s characterize, for example --trace='--work cpu'.",
    ),
    predict: str = option(
        "", "--predict COUNTS", "Then predict these in a last job, and write the report."
    ),
    nodes: int = option(4, "--nodes NODES", "Of a replay: 4, 2 or 1."),
    budget: str = BUDGET,
    scheduler: str = option(
        "", "--scheduler NAME", "slurm, pbs or lsf [default: whose sbatch, qsub or bsub is there]."
    ),
    module: list[str] = option([], "--module NAME", "Module to load; may be repeated."),
    venv: Path = option(
        None, "--venv DIR", "Virtual environment with P3S [default: the one that this P3S is in]."
    ),
    time: str = option(
        "",
        "--time TIME",
        "Time limit of a job: 30m, 2h, 1:30:00 [default: that of the queue; of a replay, "
        "from the budget].",
    ),
    partition: str = option("", "--partition --queue NAME", "Partition or queue."),
    account: str = option("", "--account NAME", "Account or project to charge."),
    option: list[str] = option(
        [],
        "--option --sbatch OPTION",
        "Another option of the scheduler, for example --option=--constraint=rome.",
    ),
    output: Path = option(
        None,
        "-o --output PATH",
        "Traces: directory of the scripts [default: STUDY-jobs]; replay: the script "
        "[default: STUDY/replay/submit.sh].",
    ),
    dry_run: bool = option(False, "--dry-run", "Print the scripts, write nothing."),
    submit_: bool = option(False, "--submit", "Hand the scripts to the scheduler."),
    json_: bool = JSON_OPTION,
) -> int:
    """Write batch scripts that trace the program, or replay, on nodes of Slurm, PBS or LSF.

    With --submit they are handed over; the jobs take nodes that nobody else uses. Where every
    count has a job of its own, a last job puts the runs into the study, whatever became of others.
    """
    from p3s.base.host.schedulers import scheduler as named
    from p3s.pipeline import jobs as batch_jobs

    words = launcher_words(context)
    traced = bool(words) and not words[0].startswith("-")
    _refuse(context, traced)
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
        asked = batch_jobs.Traces(
            root=study_dir.absolute(),
            words=tuple(words),
            counts=counts,
            on=parse_asked(counts),
            jobs=jobs,
            per_node=ppn,
            cores=cores,
            options=(*(["-r", str(repeats)] if repeats > 1 else []), *split(trace)),
            predict=tuple(parse_counts(predict, "--predict")) if predict else (),
            folder=(output or study_dir.with_name(f"{study_dir.absolute().name}-jobs")).absolute(),
        )
        made = batch_jobs.traces(batch, asked, write=not dry_run)
    else:
        _check(words)
        made = batch_jobs.replay(
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
    return _finish(batch, made, dry_run=dry_run, submit=submit_, json_=json_)


#: Options of traces alone, and of a replay alone.
_TRACES = ("jobs", "cores", "repeats", "trace", "predict")
_REPLAY = ("nodes", "budget")


def _refuse(context: typer.Context, traced: bool) -> None:
    """Raise UsageError for an option of the other kind of job."""
    for name in _REPLAY if traced else _TRACES:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            option = {"cores": "cores-per-rank"}.get(name, name)
            raise UsageError(
                f"--{option}: of a replay; for traces give --ppn"
                if traced
                else f"--{option}: of traces; put the launcher command after --, as -- mpiexec -n"
                " {np} ./program"
            )


def split(options: list[str]) -> list[str]:
    """Return the words of options of p3s characterize; raises UsageError for what is none."""
    from p3s.cli.characterize import characterize

    found: list[str] = []
    parameters = inspect.signature(characterize).parameters.values()
    known = {name for each in parameters for name in getattr(each.default, "param_decls", ()) or ()}
    known = {name for each in known for name in each.split("/")}
    for text in options:
        try:
            words = shlex.split(text)
        except ValueError as err:
            raise UsageError(f"--trace {text}: {err}") from err
        name = words[0].partition("=")[0] if words else ""
        if name in _OWN:
            raise UsageError(f"--trace {text}: p3s submit writes {name} itself")
        if name not in known:
            raise UsageError(f"--trace {text}: {name or 'it'} is no option of p3s characterize")
        found += words
    return found


#: Options of p3s characterize that a script sets, or that are of no use there.
_OWN = (
    "-n",
    "--counts",
    "-r",
    "--repeats",
    "-o",
    "--study",
    "--part",
    "--json",
    "--far",
    "--up-to",
)


def _check(options: list[str]) -> None:
    """Raise UsageError for options of p3s replay that submit sets, or that are none."""
    own = ("-n", "--counts", "--budget", "--json", "--plan", "--help", "-h")
    for word in options:
        name = word.partition("=")[0]
        if name in own:
            raise UsageError(
                f"{word}: not among the options after --; "
                + ("give it before them" if name in own[:3] else "leave it out")
            )


def _finish(batch: Batch, made: Made, *, dry_run: bool, submit: bool, json_: bool) -> int:
    """Print, write or hand over scripts; return the exit code."""
    from p3s.pipeline.jobs import hand_over, write_scripts

    scripts = [*made.scripts, *([made.last] if made.last else [])]
    if dry_run:
        if json_:
            _emit(scripts, [None] * len(scripts), written=False)
        elif len(scripts) == 1:
            out(scripts[0].text.rstrip("\n"))
        else:
            out("\n\n".join(f"==> {each.path} <==\n{each.text}".rstrip("\n") for each in scripts))
        return 0
    start = write_scripts(batch, made, scripts)
    numbers = hand_over(batch, made, scripts) if submit else []
    if json_:
        _emit(scripts, numbers or [None] * len(scripts), written=True)
    elif numbers:
        for each, number in zip(scripts, numbers, strict=True):
            out(f"job {number}: {batch.scheduler.log_of(each.job, number)}")
    else:
        out("\n".join(str(each.path) for each in scripts))
    if numbers:
        those = "they have" if len(numbers) > 1 else "it has"
        say(f"next, when {those} ended: {made.then}")
    else:
        say(f"next: {start}")
    return 0


def _emit(scripts: Sequence[Script], numbers: Sequence[str | None], *, written: bool) -> None:
    jobs = [
        {
            "script": str(each.path) if written else None,
            "job": int(number) if number and number.isdigit() else number,
            "text": each.text,
        }
        for each, number in zip(scripts, numbers, strict=True)
    ]
    emit("submission", **jobs[0], jobs=jobs)
