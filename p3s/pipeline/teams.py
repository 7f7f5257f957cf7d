"""Runs with several numbers of threads: their nodes, and what an extension tells of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from p3s.base.extensions import provided
from p3s.base.host.cores import cores
from p3s.base.progress import Progress
from p3s.base.settings import Setting, threads_of
from p3s.base.study import Study
from p3s.base.text import plural
from p3s.machine.topology.inside import Node
from p3s.pipeline.basis import Request, basis_of
from p3s.pipeline.stages import machine_file
from p3s.predict.surface import Surface
from p3s.predict.types import Reason
from p3s.predict.what_if.changes import MoreThreads, NotKnown


@dataclass(frozen=True)
class Wanted:
    """What is to be predicted: process counts, numbers of threads, and the values of the input.

    rest: name of the values of the input's own parameters. node: of the run, None: as many cores as
    those of the network.
    """

    counts: Sequence[int]
    threads: Sequence[int]
    rest: str = ""
    node: Node | None = None


@dataclass(frozen=True)
class Laws:
    """What threads change, as text and as plain data, and what speaks against it."""

    text: str
    data: Mapping[str, object]
    reasons: Sequence[Reason]


@dataclass(frozen=True)
class OverThreads:
    """What an extension registers for studies with several numbers of threads.

    more: of (study, processes of a node, progress): what other numbers do. at: the study at values
    of all parameters. laws: of (study, progress, whether to fit again). surface: of (study, wanted,
    request, progress, only=, allowed=).
    """

    more: Callable[[Study, int, Progress], MoreThreads | NotKnown]
    at: Callable[[Study, Setting, Progress], Study]
    laws: Callable[[Study, Progress, bool], Laws]
    surface: Callable[..., Surface]


def over_threads() -> OverThreads:
    """Return what the first extension for threads registers."""
    found: OverThreads = next(provided("teams"))
    return found


def plain_node(cores: int, source: str = "") -> Node:
    """Return a node of which only the number of cores is known."""
    return Node(source or plural(cores, "core"), (cores,), (1,), (cores,))


def node_of(study: Study, request: Request) -> Node:
    """Return the node of a run: as measured, or with the cores of the typical cluster's."""
    from p3s.machine.cluster import cluster_of
    from p3s.machine.machinefile import Machine

    if request.settings.cores_per_node:
        return plain_node(request.settings.cores_per_node)
    file = machine_file(study)
    basis = basis_of(request, {1: study}, [1], file)
    if basis.network:
        return plain_node(cluster_of(basis.network).cores_per_node, basis.network)
    known = Machine.load(file).facts.cores if file is not None else None
    return plain_node(known if isinstance(known, int) and known > 0 else cores())


def filled(study: Study, request: Request, machine: Study | None = None) -> Request:
    """Return a request whose nodes the threads of a study's processes fill, unless it says more.

    A node has as many cores as :func:`node_of` says; each process takes one for each thread.
    machine: the study of the machine that is predicted for, where it is another one.
    """
    threads = threads_of(study)
    if threads <= 1 or request.settings.cores_per_node or request.placement is not None:
        return request
    each = max(node_of(machine or study, request).slots // threads, 1)
    return replace(request, settings=replace(request.settings, cores_per_node=each))
