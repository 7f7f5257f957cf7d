"""``p3s place``: which rank on which node, ranked by predicted time."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from p3s.base.errors import UsageError
from p3s.cli.common import emit_json, header, out, quote_word, say, say_reasons, write_out
from p3s.cli.declared import argument, option
from p3s.cli.options import COLLECTIVES, JSON_OPTION, NETWORK, TOPOLOGY, VALUE
from p3s.cli.progress import progress
from p3s.cli.values import hosts_of, parse_counts
from p3s.pipeline.parameters import at_value

if TYPE_CHECKING:
    from p3s.machine.topology.inside import Inside
    from p3s.methods.placement.ranked.job import Job
    from p3s.methods.placement.ranked.ranking import Search
    from p3s.methods.placement.ranked.stage import Nodes
    from p3s.methods.placement.ranked.types import Placements
    from p3s.methods.placement.within import OnCores
    from p3s.pipeline.prediction import Request
    from p3s.program.mapping import RankMap

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
    study_dir: Path = argument("STUDY", "Study directory."),
    counts: str = option(..., "-n --counts COUNTS", "Process counts; several: which is worth it."),
    nodes: int = option(0, "--nodes M", "Nodes [default: as needed].", min=0),
    ppn: str = option(
        "",
        "--ppn COUNTS",
        "Ranks that a node has room for; several: which is worth it [default: its cores].",
    ),
    hosts: str = option(
        "", "--hosts LIST", "Names of the nodes, like n[0-63] [default: the first of the network]."
    ),
    topology: str = TOPOLOGY,
    network: str = NETWORK,
    collectives: str = COLLECTIVES,
    param: list[str] = VALUE,
    model: Path | None = option(
        None,
        "--model FILE",
        "Learned times of phases that sort the candidates [default: loads of links].",
    ),
    number: int = option(84, "--candidates N", "Candidates.", min=2, max=1000),
    simulated: int | None = option(
        None,
        "--simulate N",
        "Of them, how many are simulated; 0: none [default: as many as take a minute].",
        min=0,
        max=1000,
    ),
    write: Path | None = option(None, "--write FILE", "Write the best placement for a launcher."),
    format_: str = typer.Option(
        _AUTO,
        "--format",
        metavar="NAME",
        show_default=False,
        help="Of that file: openmpi, mpich, slurm [default: by job and MPI library].",
    ),
    inside: Path | None = option(
        None,
        "--inside FILE",
        "Cores of a node, from lstopo --of xml: ranks that talk much share sockets and "
        "caches in the rankfile.",
    ),
    csv: bool = option(False, "--csv", "Print all placements as CSV."),
    json_: bool = JSON_OPTION,
) -> int:
    """Rank placements of a count's ranks on nodes by the predicted run time.

    With several counts, or ranks per node, say which of them are worth their cores and nodes. Exit
    code 3 where the times are not to be trusted.
    """
    from p3s.machine.topology.inside import read_inside
    from p3s.methods.placement.costs import cost_of
    from p3s.methods.placement.ranked.ranking import Search
    from p3s.methods.placement.ranked.stage import Nodes
    from p3s.pipeline.prediction import AUTO, check_request, request_of
    from p3s.pipeline.records import has_parameters
    from p3s.replay.settings import ReplaySettings

    counts_asked = parse_counts(counts)
    each = parse_counts(ppn, "--ppn") if ppn else [0]
    several = len(counts_asked) > 1 or len(each) > 1
    network_options = (("--topology", topology), ("--hosts", hosts), ("--network", network))
    again = tuple(word for name, value in network_options if value for word in (name, value))
    cores_of = None if inside is None else read_inside(inside)
    output = _Output(write, format_, cores_of, csv, json_, again)
    _check(output, several)
    request = request_of(AUTO, network, True, ReplaySettings(collectives=collectives), topology)
    check_request(study_dir, counts_asked, request, None, None)
    search = Search(number=number, simulated=simulated, model=cost_of(model))
    if param or has_parameters(study_dir):
        with progress(2) as bar:
            study_dir = at_value(study_dir, param, bar)
    cores = 0 if output.inside is None else len(output.inside)
    node_list = Nodes(nodes, each[0] or cores, hosts_of(hosts))
    if several:
        return _advise(study_dir, counts_asked, each, node_list, request, search, output)
    return _rank(study_dir, counts_asked[0], node_list, request, search, output)


@dataclass(frozen=True)
class _Output:
    """What is written and printed.

    ``path``: file for a launcher, ``inside``: cores of a node. ``network``: options that p3s
    predict needs, too.
    """

    path: Path | None
    format: str
    inside: Inside | None
    csv: bool
    json: bool
    network: tuple[str, ...] = ()


def _check(output: _Output, several: bool) -> None:
    """Raise UsageError where options contradict each other, before anything is made."""
    from p3s.methods.placement.within import FORMATS, OPEN_MPI

    if output.format not in (_AUTO, *FORMATS):
        raise UsageError(f"--format {output.format}: there are {', '.join(FORMATS)}")
    if several and output.path is not None:
        raise UsageError("--write is for one count with one number of ranks per node")
    if output.inside is not None and (
        output.path is None or output.format not in (_AUTO, OPEN_MPI)
    ):
        raise UsageError("--inside says which core each rank gets: give --write for Open MPI")


def _rank(
    root: Path, n: int, nodes: Nodes, request: Request, search: Search, output: _Output
) -> int:
    from p3s.methods.placement.candidates import block_on
    from p3s.methods.placement.ranked.stage import job_at, rank_placements
    from p3s.methods.placement.ranked.types import PLACEMENTS
    from p3s.methods.placement.section import as_csv, render

    with progress(1) as bar:
        job = job_at(root, n, nodes, request, search, bar)
        if output.path is not None:  # what cannot be written is told before anything is
            _text(job, block_on(n, job.where), output)
        ranking = rank_placements(job, search, bar)
    if output.path is not None:
        _write(job, ranking, output, output.path)
    if output.json:
        emit_json(PLACEMENTS.data(ranking))
    elif output.csv:
        write_out(as_csv(ranking))
    else:
        out(render(ranking))
    if output.path is not None:
        words = ["-n", str(n), "--placement", str(output.path), *output.network]
        say(f"next: p3s predict {quote_word(root)} {shlex.join(words)}")
    return say_reasons(ranking.reasons, "ranking")


def _write(job: Job, ranking: Placements, output: _Output, path: Path) -> None:
    """Write the best placement as a launcher reads it."""
    import numpy as np

    from p3s.base.artefacts import write_bytes
    from p3s.methods.placement.within import MPICH, returns
    from p3s.program.mapping import rank_map

    best = ranking.ranked[0]
    where = rank_map(best.name, np.array(best.node_of, dtype=np.int64), job.where.hosts)
    text, chosen = _text(job, where, output)
    write_bytes(path, text.encode())
    if output.inside is not None and output.inside.sockets > 1:
        _say_saved(job, where, output.inside)
    if chosen == MPICH and returns(where):
        say(
            f"{path}: ranks come back to hosts, which MPICH takes for other ones: they share no "
            "memory with the ranks before; in a Slurm job, --format slurm keeps it"
        )
    say(f"{path}: {best.name}, for {_HOW[chosen].format(path=quote_word(path))}")


def _text(job: Job, where: RankMap, output: _Output) -> tuple[str, str]:
    """Return a placement as a launcher's file, and its format. Errors: UsageError."""
    from p3s.methods.placement.within import OPEN_MPI, as_text

    chosen = output.format
    if chosen == _AUTO:
        chosen = _format(job) if output.inside is None else OPEN_MPI
    cores = None if output.inside is None else _on_cores(job, where, output.inside)
    return as_text(where, chosen, cores), chosen


def _on_cores(job: Job, where: RankMap, inside: Inside) -> OnCores:
    """Return the core of each rank."""
    from p3s.methods.placement.within import on_cores

    return on_cores(job.whole, where, inside)


def _say_saved(job: Job, where: RankMap, inside: Inside) -> None:
    """Say what goes from socket to socket, and what would if ranks were on cores in order."""
    from p3s.methods.placement.within import in_order
    from p3s.report.phase_table import volume

    usual, by_cache = in_order(where, inside), _on_cores(job, where, inside)
    before, after = (volume(each.between_sockets(job.whole, where)) for each in (usual, by_cache))
    say(f"between sockets of a node: {after}; {before} with ranks on cores in their order")


_HOW = {
    "openmpi": "mpirun --rankfile {path}",
    "mpich": "mpiexec -f {path}",
    "slurm": "SLURM_HOSTFILE={path} srun --distribution=arbitrary",
}


def _format(job: Job) -> str:
    """Return what reads the file: srun where it starts the program, else the MPI library."""
    named = all(job.where.hosts)
    words = job.traces.command
    srun = bool(words) and Path(words[0]).name == "srun"
    if named and (srun or "SLURM_JOB_ID" in os.environ):
        return "slurm"
    family = _FORMATS.get(job.messages.library.family, "openmpi")
    return family if named else "openmpi"


def _advise(
    root: Path,
    counts: Sequence[int],
    ppns: Sequence[int],
    nodes: Nodes,
    request: Request,
    search: Search,
    output: _Output,
) -> int:
    from p3s.base.serialise import to_data
    from p3s.methods.placement.ranked.stage import advise_counts
    from p3s.methods.placement.section import advice_csv, render_advice

    if any(each == 0 for each in ppns):
        raise UsageError("--ppn: say how many ranks a node has room for, for several counts")
    with progress(len(counts) * len(ppns)) as bar:
        advice = advise_counts(root, counts, ppns, nodes, request, search, bar)
    if output.json:
        data = to_data(advice)
        data.pop("placements")
        emit_json({**header("placement_advice"), **data})
    elif output.csv:
        write_out(advice_csv(advice))
    else:
        out(render_advice(advice))
    reasons = [reason for each in advice.placements for reason in each.reasons]
    return say_reasons(dict.fromkeys(reasons), "advice")
