"""Everything that ranking placements needs, made where it is missing, and the ranking."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from p3s.base.errors import P3SError, UsageError
from p3s.base.progress import Progress
from p3s.base.records import Traces
from p3s.base.text import figures
from p3s.machine.topology.read import name_nodes, read_fabric
from p3s.machine.topology.trees import one_switch
from p3s.methods.placement.allocation import allocation
from p3s.methods.placement.costs import LearnedCost, cost_of, network_id
from p3s.methods.placement.ranked.job import Job
from p3s.methods.placement.ranked.ranking import Search, placements
from p3s.methods.placement.ranked.types import Advice, Placements, advice_of, save
from p3s.model.stage import load
from p3s.pipeline.predicting import make_scaled_traces, message_costs
from p3s.pipeline.prediction import AUTO, Request, request_of, told_of
from p3s.predict.estimated import TYPICAL
from p3s.predict.estimates import Estimation
from p3s.replay.settings import ReplaySettings

if TYPE_CHECKING:
    from p3s.methods.placement.learned import LearnedModel
    from p3s.predict.estimators.messages import Messages

#: Messages between the same two nodes, measured in two ways, differ by less than this factor.
_ANOTHER = 3.0
#: Least and largest size at which costs are compared, and how many.
_COMPARED = (1024, 1 << 20, 11)


@dataclass(frozen=True)
class Nodes:
    """Nodes that a job gets: ``number`` (0: as many as it needs), ranks of each, host names.

    ``ppn`` 0: as many as a node has cores where messages were measured.
    """

    number: int = 0
    ppn: int = 0
    hosts: tuple[str, ...] = ()


def place(
    root: Path,
    progress: Progress,
    n: int,
    *,
    nodes: int = 0,
    ppn: int = 0,
    topology: str = "",
    hosts: Sequence[str] = (),
    network: str = "",
    model: Path | str | None = None,
    simulated: int | None = None,
) -> Placements:
    """Rank placements of ``n`` processes on nodes by their predicted time, the fastest first.

    ``nodes``: as many as needed by default; ``ppn``: ranks of a node, its cores by default.
    ``topology``: file or short description of the network; ``hosts``: names of the nodes.
    ``model``: file of learned times of phases that sort the candidates. ``simulated``: how many
    of them are. Raises P3SError, in one line.
    """
    request = request_of(AUTO, network, True, ReplaySettings(), topology)
    search = Search(simulated=simulated, model=cost_of(model))
    job = job_at(root, n, Nodes(nodes, ppn, tuple(hosts)), request, search, progress)
    return rank_placements(job, search, progress)


def job_at(
    root: Path, n: int, nodes: Nodes, request: Request, search: Search, progress: Progress
) -> Job:
    """Return ``n`` processes of a study on nodes, what they need made where it is missing.

    ``request``: whose costs of messages, and the network. ``search``: a model of learned times in
    it is to be of this machine. Errors: P3SError and UsageError, in one line; nothing is written
    then.
    """
    job = _find_job(root, n, nodes, request, search)
    return _begin(job, make_scaled_traces(root, [n], progress), progress)


def rank_placements(job: Job, search: Search, progress: Progress) -> Placements:
    """Return placements of a job by their predicted time; write them.

    Errors: P3SError, in one line; nothing is written then.
    """
    placements = _rank(job, search, progress)
    save(job.traces.root, placements)
    return placements


def advise_counts(
    root: Path,
    counts: Sequence[int],
    ppns: Sequence[int],
    nodes: Nodes,
    request: Request,
    search: Search,
    progress: Progress,
) -> Advice:
    """Return which of several counts and ranks per node are worth their cores and nodes.

    A configuration for which there are too few nodes is left out. Errors: as in job_at, and where
    none is left.
    """
    every = list(_configurations(counts, ppns, nodes, progress))
    if not every:
        raise UsageError(
            f"--nodes {nodes.number}: too few for any of these counts; give more, or a larger --ppn"
        )
    jobs = [_find_job(root, n, nodes_at, request, search) for n, nodes_at in every]
    traces = make_scaled_traces(root, counts, progress)
    return advice_of([_rank(_begin(job, traces, progress), search, progress) for job in jobs])


def _configurations(
    counts: Sequence[int], ppns: Sequence[int], nodes: Nodes, progress: Progress
) -> Iterator[tuple[int, Nodes]]:
    """Yield each count with as many nodes as it needs; those that need more than there are, not."""
    for n in counts:
        for ppn in ppns:
            needed = -(-n // ppn)
            if 0 < nodes.number < needed:
                progress.say(f"n={n}, {ppn} per node: needs {needed} nodes; left out")
            else:
                yield n, replace(nodes, number=needed, ppn=ppn, hosts=nodes.hosts[:needed])


def _find_job(root: Path, n: int, nodes: Nodes, request: Request, search: Search) -> Job:
    """Return a job before its scaled trace is made: what it runs on. Errors: as of job_at."""
    traces, how = message_costs(root, [n], request)
    messages, topology = messages_of(traces, how), request.cluster.topology
    ppn = nodes.ppn or messages.cores
    number = nodes.number or len(nodes.hosts) or -(-n // ppn)
    if nodes.hosts and len(nodes.hosts) < number:
        raise UsageError(f"--hosts names {len(nodes.hosts)} nodes, --nodes is {number}")
    fabric = read_fabric(topology, number) if topology else one_switch(number)
    fabric = name_nodes(fabric, nodes.hosts)
    where = allocation(number, ppn, (nodes.hosts or fabric.about.hosts)[:number])
    where.check(n)
    notes = tuple(filter(None, (told_of(how), *fabric.about.notes)))
    job = Job(traces, n, where, fabric, bool(topology), messages, notes)
    if isinstance(search.model, LearnedCost):
        check_model(search.model.model, job)
    return job


def _begin(job: Job, traces: Traces, progress: Progress) -> Job:
    """Return a job whose scaled trace is there; say what is to be said of it."""
    for note in job.notes:
        progress.say(note)
    return replace(job, traces=traces, say=progress.start)


def messages_of(traces: Traces, how: Estimation) -> Messages:
    """Return what messages cost, from where p3s predict takes it without a replay."""
    from p3s.predict.estimators.messages import measured_messages, published_messages, why_not

    if how.setting.network:
        return published_messages(traces, how.setting)
    if lacking := why_not(traces, how.machine):
        raise P3SError(lacking)
    return measured_messages(traces, how.machine, how.setting)


def _rank(job: Job, search: Search, progress: Progress) -> Placements:
    at = load(job.traces.root).grid.family.at(job.n)
    if at is None or (at.order is not None and len(at.order) != job.n):  # it leaves ranks out
        return placements(job, (), None, search, progress)
    return placements(job, at.dims, at.order, search, progress)


def check_model(model: LearnedModel, job: Job) -> None:
    """Raise P3SError where a model of learned times is one of another machine.

    That of a machine that nobody has named is recognised by what messages cost, where both were
    measured.
    """
    messages = job.messages
    model.check(messages.machine, network_id(job.fabric))
    if model.card.named or model.network is None or messages.name == TYPICAL:
        return
    sizes = np.geomspace(*_COMPARED)
    networks = (messages.on(job.where.nodes)[0], model.network)
    transfers = [np.maximum(each.path(1).transfer.at(sizes), 1.0) for each in networks]
    times = float(np.exp(np.mean(np.log(transfers[0] / transfers[1]))))
    if max(times, 1 / times) > _ANOTHER:
        raise P3SError(
            f"the communication model is of another machine: its messages take "
            f"{figures(1 / times)} times as long as those of {messages.machine}; learn one there"
        )
