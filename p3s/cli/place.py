"""``p3s place``: which rank on which node, ranked by predicted time."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from p3s.cli.common import (
    JSON_OPTION,
    emit_json,
    header,
    out,
    parse_counts,
    progress,
    quoted,
    say,
    say_reasons,
    write_out,
)
from p3s.cli.costs import NETWORK, TOPOLOGY
from p3s.cli.replay import COLLECTIVES, hosts_of
from p3s.errors import UsageError

if TYPE_CHECKING:
    from p3s.pipeline.basis import Request
    from p3s.pipeline.placing import Nodes
    from p3s.predict.placing.job import Job
    from p3s.predict.placing.ranking import Search
    from p3s.predict.placing.types import Placements
    from p3s.study import Study

EPILOG = """\b
Example:
  p3s place study -n 1024 --nodes 64 --ppn 16 --topology fat-tree.json --write ranks
  p3s place study -n 64,128,256 --ppn 4,8,16 --topology fat-tree:16,8
Next:
  p3s predict study -n 1024 --placement ranks --topology fat-tree.json"""

#: What a launcher's family reads.
_FORMATS = {"openmpi": "openmpi", "mpich": "mpich"}
_AUTO = "auto"


def place(
    study_dir: Path = typer.Argument(..., metavar="STUDY", help="Study directory."),
    counts: str = typer.Option(
        ..., "-n", "--counts", metavar="COUNTS", help="Process counts; several: which is worth it."
    ),
    nodes: int = typer.Option(
        0, "--nodes", min=0, show_default=False, metavar="M", help="Nodes [default: as needed]."
    ),
    ppn: str = typer.Option(
        "",
        "--ppn",
        show_default=False,
        metavar="COUNTS",
        help="Ranks that a node has room for; several: which is worth it [default: its cores].",
    ),
    hosts: str = typer.Option(
        "",
        "--hosts",
        show_default=False,
        metavar="LIST",
        help="Names of the nodes, like n[0-63] [default: the first of the network].",
    ),
    topology: str = TOPOLOGY,
    network: str = NETWORK,
    collectives: str = COLLECTIVES,
    model: Path | None = typer.Option(
        None,
        "--model",
        show_default=False,
        metavar="FILE",
        help="Learned times of phases that sort the candidates [default: loads of links].",
    ),
    number: int = typer.Option(84, "--candidates", min=2, max=1000, help="Candidates."),
    simulated: int | None = typer.Option(
        None,
        "--simulate",
        show_default=False,
        min=0,
        max=1000,
        help="Of them, how many are simulated; 0: none [default: as many as take a minute].",
    ),
    write: Path | None = typer.Option(
        None,
        "--write",
        show_default=False,
        metavar="FILE",
        help="Write the best placement for a launcher.",
    ),
    format_: str = typer.Option(
        _AUTO,
        "--format",
        metavar="NAME",
        help="Of that file: openmpi, mpich, slurm [default: by job and MPI library].",
    ),
    csv: bool = typer.Option(False, "--csv", help="Print all placements as CSV."),
    json_: bool = JSON_OPTION,
) -> int:
    """Rank placements of a count's ranks on nodes by the predicted run time.

    With several counts, or ranks per node, say which of them are worth their cores and nodes. Exit
    code 3 where the times are not to be trusted.
    """
    from p3s.pipeline.basis import AUTO, request_of
    from p3s.pipeline.placing import Nodes
    from p3s.predict.placing.ranking import Search
    from p3s.replay.settings import ReplaySettings
    from p3s.study import Study

    wanted = parse_counts(counts)
    each = parse_counts(ppn, "--ppn") if ppn else [0]
    several = len(wanted) > 1 or len(each) > 1
    _check(several, write, format_, csv, json_)
    request = request_of(AUTO, network, True, ReplaySettings(collectives=collectives), topology)
    _check_files(study_dir, wanted, request, model)
    study = Study.open(study_dir)
    search = Search(number=number, simulated=simulated)
    there = Nodes(nodes, each[0], hosts_of(hosts))
    if several:
        return _advise(study, wanted, each, there, request, search, model, csv, json_)
    return _rank(study, wanted[0], there, request, search, model, write, format_, csv, json_)


def _check(several: bool, write: Path | None, format_: str, csv: bool, json_: bool) -> None:
    """Raise UsageError where options contradict each other, before anything is read."""
    from p3s.placement.files import FORMATS

    if format_ not in (_AUTO, *FORMATS):
        raise UsageError(f"--format {format_}: there are {', '.join(FORMATS)}")
    if several and write is not None:
        raise UsageError("--write is for one count with one number of ranks per node")
    if csv and json_:
        raise UsageError("--csv and --json: give one of them")


def _check_files(
    study_dir: Path, wanted: Sequence[int], request: Request, model: Path | None
) -> None:
    from p3s.cli.before import check_request
    from p3s.placement.learned import load

    check_request(study_dir, wanted, request, None, None)
    if model is not None:
        load(model)


def _rank(
    study: Study,
    n: int,
    nodes: Nodes,
    request: Request,
    search: Search,
    model: Path | None,
    write: Path | None,
    format_: str,
    csv: bool,
    json_: bool,
) -> int:
    from p3s.pipeline.placing import placed
    from p3s.predict.placing.file import as_file
    from p3s.report.placements import as_csv, render

    with progress(1) as bar:
        job, found = placed(study, n, nodes, request, search, bar, model=model)
    if write is not None:
        _write(job, found, write, format_)
    if json_:
        emit_json(as_file(found))
    elif csv:
        write_out(as_csv(found))
    else:
        out(render(found))
    if write is not None:
        topology = f" --topology {request.topology}" if request.topology else ""
        say(f"next: p3s predict {quoted(study.root)} -n {n} --placement {quoted(write)}{topology}")
    return say_reasons(found.reasons, "ranking")


def _write(job: Job, found: Placements, path: Path, format_: str) -> None:
    """Write the best placement as a launcher reads it."""
    import numpy as np

    from p3s.artefacts import write_bytes
    from p3s.placement.files import MPICH, as_text, returns
    from p3s.program.mapping import rank_map

    best = found.ranked[0]
    where = rank_map(best.name, np.array(best.node_of, dtype=np.int64), job.where.hosts)
    chosen = _format(job) if format_ == _AUTO else format_
    write_bytes(path, as_text(where, chosen).encode())
    if chosen == MPICH and returns(where):
        say(
            f"{path}: ranks come back to hosts, which MPICH takes for other ones: they share no "
            "memory with the ranks before; in a Slurm job, --format slurm keeps it"
        )
    say(f"{path}: {best.name}, for {_HOW[chosen].format(path=quoted(path))}")


_HOW = {
    "openmpi": "mpirun --rankfile {path}",
    "mpich": "mpiexec -f {path}",
    "slurm": "SLURM_HOSTFILE={path} srun --distribution=arbitrary",
}


def _format(job: Job) -> str:
    """Return what reads the file: srun where it starts the program, else the MPI library."""
    named = all(job.where.hosts)
    words = job.study.command() if job.study.manifest().get("commands") else []
    srun = bool(words) and Path(words[0]).name == "srun"
    if named and (srun or "SLURM_JOB_ID" in os.environ):
        return "slurm"
    family = _FORMATS.get(job.messages.library.family, "openmpi")
    return family if named else "openmpi"


def _advise(
    study: Study,
    counts: Sequence[int],
    ppns: Sequence[int],
    nodes: Nodes,
    request: Request,
    search: Search,
    model: Path | None,
    csv: bool,
    json_: bool,
) -> int:
    from p3s.pipeline.placing import advised
    from p3s.report.placements import advice_csv, render_advice
    from p3s.serialise import to_data

    if any(each == 0 for each in ppns):
        raise UsageError("--ppn: say how many ranks a node has room for, for several counts")
    with progress(len(counts) * len(ppns)) as bar:
        found = advised(study, counts, ppns, nodes, request, search, bar, model=model)
    if json_:
        data = to_data(found)
        data.pop("placements")
        emit_json({**header("placement_advice"), **data})
    elif csv:
        write_out(advice_csv(found))
    else:
        out(render_advice(found))
    reasons = [reason for each in found.placements for reason in each.reasons]
    return say_reasons(dict.fromkeys(reasons), "advice")
