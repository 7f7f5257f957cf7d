"""Run times of a study: of its runs, and of what was predicted beside them."""

from __future__ import annotations

import math

from p3s.base.errors import P3SError
from p3s.base.records import Traces
from p3s.methods.baseline.times import RunTime, Times
from p3s.predict.types import Prediction

#: How runs say that their work was counted in an emulator.
_EMULATOR = "qemu"


def times_of_study(traces: Traces) -> Times:
    """Return the times of every run, from the end of MPI_Init to the start of MPI_Finalize.

    The components "total", "compute" (CPU time of the busiest rank) and "comm" (the rest). Runs
    that ended early are set aside; runs in an emulator have no times, native ones beside them do.
    Errors: P3SError where no run has a time.
    """
    from p3s.capture import read_run
    from p3s.predict.residual import run_times

    runs: list[RunTime] = []
    shared: set[int] = set()
    for np in sorted({run.np for run in (*traces.runs, *traces.timed)} - traces.unused):
        for record in traces.of(np):
            if record.status != "complete" or record.ended:
                runs.append(RunTime(np, None, record.rep, why=f"{record.path.name}: ended early"))
                continue
            trace = read_run(record.path, whole=True)
            if str(trace.work_origin).startswith(_EMULATOR):
                runs.append(RunTime(np, None, record.rep, why="counted in an emulator"))
                continue
            found = run_times(trace)
            if not found.wall_s > 0:
                runs.append(RunTime(np, None, record.rep, why="recorded no time"))
                continue
            if record.info.get("oversubscribed", True):
                shared.add(np)
            code = record.info.get("exit_code")
            runs.append(RunTime(np, found.wall_s, record.rep, exit_code=code))
            if math.isfinite(found.work_s) and 0 < found.work_s < found.wall_s:
                for part, seconds in (
                    ("compute", found.work_s),
                    ("comm", found.wall_s - found.work_s),
                ):
                    runs.append(RunTime(np, seconds, record.rep, component=part))
    if not any(run.valid for run in runs):
        raise P3SError(
            f"{traces.root}: none of its runs has a run time"
            + (f" ({runs[0].why})" if runs else "")
        )
    return Times(tuple(runs), tuple(_notes(shared)), {"command": list(traces.command)})


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
    found: dict[int, list[float]] = {}
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
        found[row.n] = times
    if len(found) >= 2:
        return found, ""
    if shared:
        return {}, (
            "no regression of run times: those of the small runs do not tell how fast the "
            "program is (ranks shared cores)"
        )
    return {}, "no regression of run times: fewer than two counts were run and predicted"
