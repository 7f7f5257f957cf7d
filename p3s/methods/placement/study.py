"""Placements in the Python API: ``study.place(64)``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from p3s.base.progress import Progress
from p3s.base.study import Study
from p3s.methods.placement.costs import cost_of
from p3s.methods.placement.ranked.ranking import Search
from p3s.methods.placement.ranked.stage import Nodes, job_at, placed
from p3s.methods.placement.ranked.types import Placements
from p3s.pipeline.basis import AUTO, request_of
from p3s.replay.settings import ReplaySettings


def place(
    study: Study,
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
    job = job_at(study, n, Nodes(nodes, ppn, tuple(hosts)), request, search, progress)
    return placed(job, search, progress)
