"""What the runs took beside what the model says of them, and beside one another."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from p3s.base.artefacts import LastRead, files_in
from p3s.base.ops import INIT_OPS
from p3s.base.records import RunRecord, Traces
from p3s.capture import RunTrace, read_run
from p3s.predict.types import Compared, Count, Residual
from p3s.signature.clock import Clock, Load, blocks_of, unit_of

#: Share of a run that ranks may spend off their cores while they compute.
OFF_CORE_LIMIT = 0.10
#: How runs say that their work was counted in an emulator.
_EMULATOR = "qemu"


@dataclass(frozen=True)
class RunMeasurement:
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


def read_measurement(traces: Traces, np: int) -> RunMeasurement | None:
    """Return what the complete runs at ``np`` took; None when there is none that tells.

    Beside runs in an emulator, which have no times, it is what native runs of the count took.
    """
    native = [run for run in traces.timed if run.np == np and run.status == "complete"]
    return measured_in(native or traces.complete(np), np)


def measured_in(records: Sequence[RunRecord], np: int) -> RunMeasurement | None:
    """Return what these runs took; None when there are none, or they ran in an emulator."""
    times = [times_of(record.path) for record in records]
    if not times or any(run.emulated for run in times):
        return None
    best = min(times, key=lambda run: run.wall_s)
    shared = any(record.info.get("oversubscribed", True) for record in records)
    return RunMeasurement(
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
    that begins when MPI_Init returns. Where no clock was beside instructions, work is NaN.
    """
    timed = bool(unit_of(run))
    late = np.array([call.op not in INIT_OPS for call in run.calls], dtype=bool)
    wall_ns = work_ns = total_ns = lost_ns = 0
    for rank in run.ranks:
        if not len(rank.start_ns):
            continue
        wall_ns = max(wall_ns, int(rank.start_ns[-1]))
        if not timed:
            continue
        load, clock = Load(), Clock(run)
        for block in blocks_of(rank):
            if (ns := clock.before_ns(block)) is not None:
                load.take(block, late[block.call], ns)
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


#: A prediction asks for the whole runs, and for their launches.
_last_times = LastRead(lambda run: run_times(read_run(run, whole=True)), files=1024, mark=files_in)


#: By what factor a traced count may take longer, or less long, than the model says.
RESIDUAL_LIMIT = 1.5


def residuals(rows: Sequence[Count]) -> tuple[Residual, ...]:
    """Return measured and modelled seconds at every traced count, and their ratio.

    Run times, and computation of the busiest rank in CPU time, which can be compared even where
    ranks shared cores. ``ratio``: measured over model; ``representative``: whether it tells; a run
    that contradicts those of other counts does not.
    """
    found = []
    for row in rows:
        pairs: tuple[tuple[Compared, float | None, float, bool], ...] = (
            (
                "run time",
                row.measured_s,
                row.model_s,
                row.representative and row.model_representative,
            ),
            ("computation", row.measured_work_s, row.work_s, not row.contradicts),
        )
        for what, measured, model, tells in pairs:
            if measured is not None:
                found.append(
                    Residual(
                        row.n,
                        what,
                        measured,
                        model,
                        measured / model if model > 0 else None,
                        bool(tells),
                    )
                )
    return tuple(found)


def off_by(entry: Residual, model_s: float) -> float:
    """Return how many times as long the run takes as ``model_s``, the model's time at its count.

    Computation is taken for its part of the run time, which would change by as much.
    """
    return 1.0 + (entry.measured_s - entry.model_s) / model_s if model_s > 0 else 1.0


def is_off(ratio: float) -> bool:
    """Tell whether a traced count took far longer, or far less, than the model says."""
    return not 1 / RESIDUAL_LIMIT <= ratio <= RESIDUAL_LIMIT


def find_excess(found: Sequence[Residual], rows: Sequence[Count], n: int) -> float:
    """Return what runs took beside what the model's own interval allows, as a share at ``n``.

    The largest of the traced counts, as a logarithm: of run times where they tell, else of
    computation by its part of the run time. A run inside of the interval misses nothing; of one
    outside the rest of the squares counts. At ``n`` no less than where run times lead whose
    residuals grow.
    """
    at = {row.n: row for row in rows}
    told = [entry for entry in found if entry.representative and entry.ratio]
    runs = [entry for entry in told if entry.what == "run time"]
    largest = abs(trend(runs, n))
    for entry in runs or told:
        row = at[entry.n]
        off = math.log(max(off_by(entry, row.model_s), 1e-9))
        end = row.model_high_s if off > 0 else row.model_low_s
        width = abs(math.log(end / row.model_s)) if end and row.model_s > 0 else 0.0
        largest = max(largest, math.sqrt(max(off**2 - width**2, 0.0)))
    return largest


def trend(runs: Sequence[Residual], n: int) -> float:
    """Return where residuals of run times lead at ``n`` that grow from count to count, in logs.

    What is 1, 3 and 9 % off at the three largest traced counts is no noise: it goes on as between
    the last two. 0 where they do not grow, and at traced counts.
    """
    told = [(math.log2(entry.n), math.log(entry.ratio)) for entry in runs if entry.ratio][-3:]
    sizes = [abs(off) for _, off in told]
    same = len({off > 0 for _, off in told}) == 1
    if len(told) < 3 or not (same and sizes[0] < sizes[1] < sizes[2]):
        return 0.0
    (before, less), (last, most) = told[1:]
    beyond = math.log2(n) - last
    off = most + (most - less) / (last - before) * beyond
    limit = math.log(RESIDUAL_LIMIT)
    return min(max(off, -limit), limit) if beyond > 0 else 0.0


# ---- counts that contradict the traced ones ---------------------------------------------------
#: How many times as long a contradicting run takes at least: against the law of three counts or
#: more, and against two counts that agree.
LEAST, LEAST_OF_TWO = 1.25, 1.5
#: By how many of the others' own deviations it is off at least.
DEVIATIONS = 4.0
#: Relative error that every run has.
ERROR = 0.03
#: Ratio of the slowest to the fastest repeat up to which repeats agree.
AGREE = 1.1
#: By what factor the computation of all ranks may leave what the traced counts lead to expect.
BELOW_LIMIT = 2.0
#: How many of the smallest traced counts are looked at.
_SMALLEST = 3


def contradictions(
    runs: Mapping[int, RunMeasurement], model_s: Mapping[int, float]
) -> dict[int, tuple[str, float]]:
    """Return the count that contradicts the others, if one does: what is off, and how much.

    ``model_s``: the model's run time in s by count. The ratio is that to the law of the others.
    """
    found = []
    work = {
        n: math.log(statistics.median(run.totals_s))
        for n, run in runs.items()
        if run.totals_s and all(total > 0 for total in run.totals_s)
    }
    for n, ratio, by in _find_outliers(work, sloped=True):
        if not _agree(runs[n].totals_s):
            found.append((by, n, ("computation", ratio)))
    times = {
        n: math.log(run.wall_s / model_s[n])
        for n, run in runs.items()
        if run.representative and run.wall_s > 0 and model_s.get(n, 0.0) > 0
    }
    for n, ratio, by in _find_outliers(times, sloped=False):
        if not (len(runs[n].totals_s) > 1 and _agree((runs[n].wall_s, runs[n].wall_max_s))):
            found.append((by, n, ("run time", ratio)))
    if not found:
        return {}
    _, n, what = max(found)
    return {n: what}


def _agree(repeats: Sequence[float]) -> bool:
    return len(repeats) > 1 and max(repeats) <= AGREE * min(repeats)


def _find_outliers(logs: Mapping[int, float], *, sloped: bool) -> list[tuple[int, float, float]]:
    """Return counts that take longer than the others say: ratio, and by how many deviations.

    ``logs``: logarithm of a value that is about constant, or (``sloped``) a power of the count.
    """
    found = []
    counts = sorted(logs)
    for n in counts[:-1]:
        others = [m for m in counts if m != n]
        if len(others) < 2:
            continue
        line = sloped and len(others) > 2
        expected, deviation = _predict_log(others, [logs[m] for m in others], n, line)
        off = logs[n] - expected
        least = LEAST if len(others) > 2 else LEAST_OF_TWO
        grows = sloped and n == counts[0] and logs[n] <= logs[counts[1]]
        if off > math.log(least) and off > DEVIATIONS * deviation and not grows:
            found.append((n, math.exp(off), off / deviation))
    return found


def _predict_log(
    counts: Sequence[int], logs: Sequence[float], n: int, line: bool
) -> tuple[float, float]:
    """Return what other counts say of one, and the standard deviation of its difference to that."""
    x = np.log(np.array(counts, dtype=float))
    columns = [np.ones_like(x), x] if line else [np.ones_like(x)]
    at = np.array([1.0, math.log(n)] if line else [1.0])
    design = np.stack(columns, axis=1)
    inverse = np.linalg.inv(design.T @ design)
    law = inverse @ design.T @ np.array(logs)
    left = np.array(logs) - design @ law
    variance = float(left @ left) / (len(counts) - len(columns)) + ERROR**2
    return float(at @ law), math.sqrt(variance * (1.0 + float(at @ inverse @ at)))


def below_traced(
    totals_s: Mapping[int, float], traced_s: Mapping[int, float]
) -> dict[int, tuple[float, float]]:
    """Return count -> the total there, and the nearest that the traced counts lead to expect.

    Both are mappings from the count to the computation of all ranks together, in s: of the
    prediction, and of the traced counts. What these lead to expect reaches from the total of the
    smallest one to where powers of the count through it and the next ones lead.
    """
    points = sorted((n, total) for n, total in traced_s.items() if total > 0)[:_SMALLEST]
    if len(points) < 2:
        return {}
    (first, least), *others = points
    slopes = [math.log(total / least) / math.log(n / first) for n, total in others]
    found = {}
    for n, total in totals_s.items():
        ends = [least, *(least * (n / first) ** slope for slope in slopes)]
        nearest = min(max(total, min(ends)), max(ends))
        if n < first and not nearest / BELOW_LIMIT <= total <= nearest * BELOW_LIMIT:
            found[n] = (total, nearest)
    return found
