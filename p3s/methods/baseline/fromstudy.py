"""Run times of a study: of its runs, and of what was predicted beside them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from p3s.base.errors import P3SError
from p3s.base.records import Traces
from p3s.base.settings import Setting, settings_in, traces_of
from p3s.methods.baseline.times import RunTime, Times
from p3s.pipeline.records import load_study
from p3s.predict.types import Prediction

#: How runs say that their work was counted in an emulator.
_EMULATOR = "qemu"


def times_in(root: Path) -> Times:
    """Return the times of every run of the study in a directory; errors: of :func:`times_of`."""
    return times_of(traces_in(root), root)


def traces_in(root: Path) -> list[tuple[Setting, Traces]]:
    """Return the values of parameters of a study with what was traced; without any, once none."""
    study = load_study(root)
    return [(at, traces_of(one)) for at, one in settings_in(study)] or [({}, traces_of(study))]


def times_of(values: Sequence[tuple[Setting, Traces]], root: Path) -> Times:
    """Return the times of every run, from the end of MPI_Init to the start of MPI_Finalize.

    values: parameters, which are inputs, and what was traced with them; root: of the study. The
    components "total", "compute" (CPU time of the busiest rank) and "comm" (the rest). Runs that
    ended early are set aside; runs in an emulator have no times, native ones beside them do.
    Errors: P3SError where no run has a time.
    """
    runs: list[RunTime] = []
    shared: set[int] = set()
    for setting, traces in values:
        inputs = tuple((name, float(value)) for name, value in setting.items())
        runs += [replace(run, inputs=inputs) for run in _runs(traces, shared)]
    if not any(run.valid for run in runs):
        raise P3SError(
            f"{root}: none of its runs has a run time" + (f" ({runs[0].why})" if runs else "")
        )
    return Times(tuple(runs), tuple(_notes(shared)), {"command": list(values[0][1].command)})


def _runs(traces: Traces, shared: set[int]) -> Iterator[RunTime]:
    """Yield the times of runs; counts whose ranks shared cores are added to ``shared``."""
    from p3s.capture import read_run
    from p3s.predict.residual import run_times

    for np in sorted({run.np for run in (*traces.runs, *traces.timed)} - traces.unused):
        for record in traces.of(np):
            if record.status != "complete" or record.ended:
                yield RunTime(np, None, record.rep, why=f"{record.path.name}: ended early")
                continue
            trace = read_run(record.path, whole=True)
            if str(trace.work_origin).startswith(_EMULATOR):
                yield RunTime(np, None, record.rep, why="counted in an emulator")
                continue
            times = run_times(trace)
            if not times.wall_s > 0:
                yield RunTime(np, None, record.rep, why="recorded no time")
                continue
            if record.info.get("oversubscribed", True):
                shared.add(np)
            code = record.info.get("exit_code")
            yield RunTime(np, times.wall_s, record.rep, exit_code=code)
            if math.isfinite(times.work_s) and 0 < times.work_s < times.wall_s:
                for part, seconds in (
                    ("compute", times.work_s),
                    ("comm", times.wall_s - times.work_s),
                ):
                    yield RunTime(np, seconds, record.rep, component=part)


def _notes(shared: set[int]) -> list[str]:
    if not shared:
        return []
    counts = ", ".join(map(str, sorted(shared)))
    return [
        f"ranks shared cores at {counts} processes: such run times "
        "say how this machine copes, not how the program scales"
    ]


def measured_of(prediction: Prediction) -> tuple[dict[int, list[float]], str]:
    """Return the run times that a prediction names by count, and why there are none.

    Only those that tell how fast the program is: runs whose ranks shared cores are left out. Of
    each count least and largest of its repeats are known.
    """
    times_of: dict[int, list[float]] = {}
    shared = 0
    for row in prediction.counts:
        if row.measured_s is None:
            continue
        if not row.representative or row.time_from != "measured":
            shared += 1
            continue
        times = [row.measured_s]
        if row.high_s is not None and row.high_s > row.measured_s:
            times.append(row.high_s)
        times_of[row.n] = times
    if len(times_of) >= 2:
        return times_of, ""
    if shared:
        return {}, (
            "no regression of run times: those of the small runs do not tell how fast the "
            "program is (ranks shared cores)"
        )
    return {}, "no regression of run times: fewer than two counts were run and predicted"
