"""Threads in the Python API: ``study.over_threads([64], [1, 4])``, ``study.advise(nodes=8)``."""

from __future__ import annotations

from collections.abc import Iterable

from p3s.base.errors import UsageError
from p3s.base.progress import Progress
from p3s.base.settings import threads_in
from p3s.base.study import Study
from p3s.machine.topology.inside import read_node
from p3s.methods.threads.advise.stage import Asked, advised
from p3s.methods.threads.advise.types import Advice, Objective
from p3s.methods.threads.surface import surface
from p3s.pipeline.basis import AUTO, request_of
from p3s.pipeline.teams import Wanted
from p3s.predict.surface import Surface, write
from p3s.replay.settings import ReplaySettings


def over_threads(
    study: Study,
    progress: Progress,
    counts: Iterable[int],
    threads: Iterable[int] = (),
    *,
    node: str = "",
    setting: str = "",
    network: str = "",
) -> Surface:
    """Predict run times at ``counts`` with every number of ``threads`` (those traced).

    ``node``: as of ``--node``, by default with the cores of the network's; ``setting``: values
    of the input's parameters, as ``size=4000``. Raises P3SError, in one line.
    """
    wanted = Wanted(
        sorted(set(counts)),
        sorted(set(threads)) or threads_in(study),
        setting,
        read_node(node) if node else None,
    )
    request = request_of(AUTO, network, True, ReplaySettings())
    found = surface(study, wanted, request, progress)
    write(study, found)
    return found


def advise(
    study: Study,
    progress: Progress,
    *,
    nodes: int = 0,
    cores: int = 0,
    node: str = "",
    objective: str = "time",
    setting: str = "",
    network: str = "",
    top: int = 3,
) -> Advice:
    """Return the best numbers of processes and threads on up to ``nodes``, or ``cores``.

    Arguments as of ``p3s advise``. Raises P3SError, in one line.
    """
    if objective not in list(Objective):
        raise UsageError(f"advise: {objective!r} is not one of {', '.join(Objective)}")
    if not nodes and not cores:
        raise UsageError("advise: say how many nodes or cores there are")
    asked = Asked(
        nodes,
        cores,
        setting,
        node=read_node(node) if node else None,
        objective=Objective(objective),
        top=top,
    )
    request = request_of(AUTO, network, True, ReplaySettings())
    return advised(study, asked, request, progress).advice
