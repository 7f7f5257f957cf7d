"""Run times and work of the traced runs, as far as they can be compared with a prediction."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from p3s.base.artefacts import LastRead, files_in
from p3s.base.ops import INIT_OPS
from p3s.base.study import Study
from p3s.signature.clock import TIMES

if TYPE_CHECKING:
    from p3s.base.study import RunRecord
    from p3s.capture import RunTrace


#: Share of a run that ranks may spend off their cores while they compute.
OFF_CORE_LIMIT = 0.10
#: How runs say that their work was counted in an emulator.
_EMULATOR = "qemu"


@dataclass(frozen=True)
class Measured:
    """What was measured at one traced count.

    ``wall_s`` runs from the end of MPI_Init to the start of MPI_Finalize: largest over the ranks,
    smallest over the repeats (``wall_max_s``: largest over the repeats). ``work_s`` is the
    computation of the busiest rank after MPI_Init in thread CPU time, typical (median) of the
    repeats, NaN where the runs have no clock; ``totals_s``: that of all ranks together, of every
    repeat. ``shared_cores`` tells that there were more ranks than cores; ``off_core`` is the share
    of the run in which the worst rank computed without getting CPU time: it waited for a core,
    slept, or did input or output. ``contradicts``: the run contradicts those of other counts.
    ``elsewhere``: the prediction is for another network than that of the runs.
    """

    np: int
    wall_s: float
    wall_max_s: float
    work_s: float
    shared_cores: bool
    off_core: float = 0.0
    totals_s: tuple[float, ...] = ()
    contradicts: bool = False
    elsewhere: bool = False

    @property
    def on_core(self) -> bool:
        """Whether ranks had a core while they computed."""
        return self.off_core <= OFF_CORE_LIMIT

    @property
    def representative(self) -> bool:
        """Whether ``wall_s`` tells how fast the program is; ``work_s`` does in any case."""
        return self.on_core and not (self.shared_cores or self.contradicts or self.elsewhere)


@dataclass(frozen=True)
class RunTimes:
    """Run time, computation of the busiest rank and of all in seconds, and the off-core share.

    ``emulated``: it ran in an emulator, which has no times.
    """

    wall_s: float
    work_s: float
    off_core: float
    total_s: float = math.nan
    emulated: bool = False


def measured(study: Study, np: int) -> Measured | None:
    """Return what the complete runs at ``np`` took; None when there is none that tells.

    Beside runs in an emulator, which have no times, it is what native runs of the count took.
    """
    records = [run for run in study.timed_runs(np) if run.status == "complete"] or [
        run for run in study.runs(np) if run.status == "complete"
    ]
    return measured_in(records, np)


def measured_in(records: Sequence[RunRecord], np: int) -> Measured | None:
    """Return what these runs took; None when there are none, or they ran in an emulator."""
    times = [times_of(record.path) for record in records]
    if not times or any(run.emulated for run in times):
        return None
    best = min(times, key=lambda run: run.wall_s)
    shared = any(record.info.get("oversubscribed", True) for record in records)
    return Measured(
        np,
        best.wall_s,
        max(run.wall_s for run in times),
        statistics.median(run.work_s for run in times),
        shared,
        best.off_core,
        tuple(run.total_s for run in times),
    )


def times_of(run: Path) -> RunTimes:
    """Return what a run took that was captured in a directory; raises P3SError as read_run does."""
    return _last_times(run)


def run_times(run: RunTrace) -> RunTimes:
    """Return what a run took.

    The last event of a rank is MPI_Finalize, recorded as it is entered; events start on a clock
    that begins when MPI_Init returns. Work in instructions is no time: it is NaN then.
    """
    import numpy

    from p3s.signature.blocks import blocks_of
    from p3s.signature.clock import Load

    timed = run.work_unit in TIMES
    late = numpy.array([call.op not in INIT_OPS for call in run.calls], dtype=bool)
    wall_ns = work_ns = total_ns = lost_ns = 0
    for rank in run.ranks:
        if not len(rank.start_ns):
            continue
        wall_ns = max(wall_ns, int(rank.start_ns[-1]))
        if not timed:
            continue
        load = Load()
        for block in blocks_of(rank):
            load.take(block, late[block.call], block.work)
        work_ns, total_ns = max(work_ns, load.time_ns), total_ns + load.time_ns
        lost_ns = max(lost_ns, load.off_core_ns(rank.failed_poll_ns))
    work_s, total_s = (ns / 1e9 if timed else math.nan for ns in (work_ns, total_ns))
    return RunTimes(
        wall_ns / 1e9,
        work_s,
        lost_ns / wall_ns if wall_ns else 0.0,
        total_s,
        str(run.work_origin).startswith(_EMULATOR),
    )


def _read_times(run: Path) -> RunTimes:
    from p3s.capture import read_run

    return run_times(read_run(run))


#: A prediction asks for the whole runs, and for their launches.
_last_times = LastRead(_read_times, files=1024, mark=files_in)
