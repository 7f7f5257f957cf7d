"""Run times and work of the traced runs, as far as they can be compared with a prediction."""

from __future__ import annotations

from dataclasses import dataclass

from p3s.errors import P3SError
from p3s.study import Study


@dataclass(frozen=True)
class Measured:
    """What was measured at one traced count.

    ``wall_s`` runs from the end of MPI_Init to the start of MPI_Finalize: largest over the ranks,
    smallest over the repeats. ``work_s`` is the computation of the busiest rank in thread CPU
    time. ``representative`` is False when ranks shared cores: then ``wall_s`` says nothing about
    the program, but ``work_s`` still does.
    """

    np: int
    wall_s: float
    wall_max_s: float
    work_s: float
    representative: bool


def measured(study: Study, np: int) -> Measured | None:
    """Read the complete runs at ``np``; None when there is none that can be read."""
    from p3s.trace import read_run

    walls: list[float] = []
    works: list[float] = []
    shared = False
    for record in study.runs(np):
        if record.status != "complete":
            continue
        try:
            run = read_run(record.path)
        except P3SError:
            continue
        last_ns = [int(rank.start_ns[-1]) for rank in run.ranks if len(rank.start_ns)]
        if not last_ns:
            continue
        walls.append(max(last_ns) / 1e9)
        if run.work_unit == "cpu_ns":
            works.append(max(int(rank.work_ns.sum()) for rank in run.ranks) / 1e9)
        shared = shared or bool(record.info.get("oversubscribed", True))
    if not walls:
        return None
    work_s = min(works) if works else float("nan")
    return Measured(np, min(walls), max(walls), work_s, not shared)
