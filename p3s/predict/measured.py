"""Run times and work of the traced runs, as far as they can be compared with a prediction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from p3s.predict.times import INIT_OPS
from p3s.study import Study

if TYPE_CHECKING:
    from p3s.trace import RunTrace


@dataclass(frozen=True)
class Measured:
    """What was measured at one traced count.

    ``wall_s`` runs from the end of MPI_Init to the start of MPI_Finalize: largest over the ranks,
    smallest over the repeats (``wall_max_s``: largest over the repeats). ``work_s`` is the
    computation of the busiest rank after MPI_Init in thread CPU time. ``representative`` is False
    when ranks shared cores: then ``wall_s`` says nothing about the program, ``work_s`` still does.
    """

    np: int
    wall_s: float
    wall_max_s: float
    work_s: float
    representative: bool


def measured(study: Study, np: int) -> Measured | None:
    """Return what the complete runs at ``np`` took; None when there is none."""
    from p3s.trace import read_run

    records = [record for record in study.runs(np) if record.status == "complete"]
    times = [run_times(read_run(record.path)) for record in records]
    if not times:
        return None
    walls = [wall_s for wall_s, _ in times]
    shared = any(record.info.get("oversubscribed", True) for record in records)
    return Measured(np, min(walls), max(walls), min(work_s for _, work_s in times), not shared)


def run_times(run: RunTrace) -> tuple[float, float]:
    """Return the run time and the computation of the busiest rank in seconds.

    The last event of a rank is MPI_Finalize, recorded as it is entered; events start on a clock
    that begins when MPI_Init returns.
    """
    import numpy

    late = numpy.array([call.op not in INIT_OPS for call in run.calls], dtype=bool)
    wall_ns = max((int(rank.start_ns[-1]) for rank in run.ranks if len(rank.start_ns)), default=0)
    work_ns = max((int(rank.work_ns[late[rank.call]].sum()) for rank in run.ranks), default=0)
    return max(wall_ns, 0) / 1e9, work_ns / 1e9
