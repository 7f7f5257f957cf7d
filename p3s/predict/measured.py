"""Run times and work of the traced runs, as far as they can be compared with a prediction."""

from __future__ import annotations

from dataclasses import dataclass

from p3s.predict.times import INIT_OPS
from p3s.study import RunRecord, Study


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
    """Return what the complete runs at ``np`` took; None when they do not tell."""
    import numpy

    from p3s.characterize import load_table

    records = [record for record in study.runs(np) if record.status == "complete"]
    if not records:
        return None
    table = load_table(study.root, np)
    if not table.wall_ns:
        return None
    late = numpy.array([group.op not in INIT_OPS for group in table.groups], dtype=bool)
    work = numpy.where(late[table.group], table.work_ns, 0)
    work_ns = numpy.bincount(table.rank, weights=work, minlength=1)
    wall_s = table.wall_ns / 1e9
    shared = any(record.info.get("oversubscribed", True) for record in records)
    return Measured(np, wall_s, max(wall_s, _longest_s(records)), work_ns.max() / 1e9, not shared)


def _longest_s(records: list[RunRecord]) -> float:
    """Return the longest run time among several repeats, in seconds."""
    if len(records) < 2:
        return 0.0
    from p3s.trace import read_run

    return max((read_run(record.path).wall_ns or 0) / 1e9 for record in records)
