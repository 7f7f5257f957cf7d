"""``p3s submit``: write batch scripts that trace the program or replay, and submit them."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from p3s.cli.common import launcher_words
from p3s.cli.costs import BUDGET
from p3s.cli.helptext import option
from p3s.cli.options import JSON_OPTION, STUDY
from p3s.cli.values import parse_asked, parse_counts, seconds_of

if TYPE_CHECKING:
    pass

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
        asked = batch_jobs.Traces(
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
        made = batch_jobs.traces(batch, asked, write=not dry_run)
    else:
        then.more_options("replay", [shlex.join(words)])
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
    return then.hand_in(batch, made, dry_run=dry_run, submit=submit_, json_=json_)
