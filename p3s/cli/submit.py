"""``p3s submit``: write a batch script that replays on nodes of Slurm, and submit it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import typer

from p3s.cli.common import JSON_OPTION, emit_json, header, out, parse_counts, quoted, say
from p3s.cli.replay import BUDGET, seconds_of
from p3s.errors import P3SError, UsageError

EPILOG = """\b
Example:
  p3s submit study -n 512,1024 --nodes 4 --budget 10m --submit -- --timed
Next:
  p3s predict study -n 512,1024"""

#: What a replay takes beside its budget: starting, planning, costs.
_MORE_S = 600.0
#: A program that is slow to settle may overdraw the budget.
_OVERTIME = 2.0


def submit(
    study_dir: Path = typer.Argument(..., metavar="STUDY", help="Study directory."),
    counts: str = typer.Option(
        ..., "-n", "--counts", metavar="COUNTS", help="Process counts, for example 256,512."
    ),
    replay_options: list[str] = typer.Argument(
        None, metavar="[-- OPTIONS]", help="Further options of p3s replay."
    ),
    nodes: int = typer.Option(4, "--nodes", metavar="NODES", help="Nodes: 4, 2 or 1."),
    budget: str = BUDGET,
    time: str = typer.Option(
        "",
        "--time",
        show_default=False,
        metavar="TIME",
        help="Time limit of the job, as Slurm writes it [default: from the budget].",
    ),
    partition: str = typer.Option(
        "", "--partition", show_default=False, metavar="NAME", help="Partition of the nodes."
    ),
    account: str = typer.Option(
        "", "--account", show_default=False, metavar="NAME", help="Account to charge."
    ),
    sbatch: list[str] = typer.Option(
        [],
        "--sbatch",
        show_default=False,
        metavar="OPTION",
        help="Another option of sbatch, for example --sbatch=--constraint=rome.",
    ),
    script: Path = typer.Option(
        None,
        "-o",
        "--output",
        show_default=False,
        metavar="FILE",
        help="The batch script [default: STUDY/replay/submit.sh].",
    ),
    dry_run: bool = typer.Option(False, "--dry-run", help="Print the script, write nothing."),
    submit_: bool = typer.Option(False, "--submit", help="Hand the script to sbatch."),
    json_: bool = JSON_OPTION,
) -> int:
    """Write a batch script that replays on nodes of Slurm; with --submit hand it to sbatch.

    The job takes whole nodes, and p3s replay inside it takes the job's nodes as its hosts.
    """
    from p3s.replay.launch.slurm import Batch, batch_script
    from p3s.replay.launch.slurm import submit as hand_over
    from p3s.study import Study, write_bytes

    wanted = parse_counts(counts)
    if nodes not in (1, 2, 4):
        raise UsageError(f"--nodes {nodes}: a replay is made on 4 nodes, 2 or 1")
    if dry_run and submit_:
        raise UsageError("--dry-run and --submit exclude each other")
    budget_s = seconds_of(budget, "--budget")
    further = list(replay_options or [])
    _check(further)
    study = Study.open(study_dir)
    root = study.root.absolute()
    place = (script or root / "replay" / "submit.sh").absolute()
    limit = time or _limit(len(wanted), budget_s)
    words = [
        sys.executable,
        "-P",
        "-m",
        "p3s",
        "replay",
        str(root),
        "-n",
        ",".join(map(str, wanted)),
        "--budget",
        budget,
        *further,
    ]
    batch = Batch(
        name="p3s-replay",
        nodes=nodes,
        time=limit,
        partition=partition,
        account=account,
        options=tuple(sbatch or ()),
        output=place.with_name(f"{place.stem}-%j.out"),
    )
    text = batch_script(batch, [words], Path.cwd())
    if dry_run:
        if json_:
            emit_json({**header("submission"), "script": None, "job": None, "text": text})
        else:
            out(text.rstrip("\n"))
        return 0
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(place, text.encode())
    except OSError as err:
        raise P3SError(f"{place}: cannot be written: {err.strerror}") from err
    job = hand_over(place) if submit_ else None
    result: dict[str, Any] = {
        **header("submission"),
        "script": str(place),
        "job": job,
        "text": text,
    }
    if json_:
        emit_json(result)
    elif job is not None:
        out(f"job {job}: {place.with_name(f'{place.stem}-{job}.out')}")
    else:
        out(str(place))
    if job is None:
        say(f"next: sbatch {quoted(place)}")
    else:
        say(
            f"next, when it has ended: p3s predict {quoted(study.root)} -n "
            f"{','.join(map(str, wanted))}"
        )
    return 0


def _limit(counts: int, budget_s: float) -> str:
    """Return the time limit of a job that replays some counts."""
    from p3s.replay.launch.slurm import time_limit

    return time_limit(counts * (_OVERTIME * budget_s + _MORE_S))


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
    if options and not options[0].startswith("-"):
        raise UsageError(f"{options[0]}: put -- before options of p3s replay")
