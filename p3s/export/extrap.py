"""Points for Extra-P as JSON Lines: what was measured at each traced count, and what is predicted.

One line is {"params": {"p": processes}, "callpath": ..., "metric": ..., "value": ...}. Predicted
points have metrics of their own, so that a model is fitted to measured ones or to predicted ones.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from p3s.errors import P3SError
from p3s.export.place import new_file
from p3s.export.scaled import Exported
from p3s.study import read_json

if TYPE_CHECKING:
    from p3s.study import Study

_NS_PER_S = 1e9
_RUN = "run"
_TIMES = frozenset({"cpu_ns", "wall_ns"})


def to_extrap(study: Study, target: Path, say: Callable[[str], None]) -> Exported:
    """Write all measured and predicted points of a study into a new file."""
    done = Exported("extra-p", max(study.counts(), default=0), target)
    with new_file(target) as file:
        for n, path, metric, value in points(study, done):
            _line(file, n, path, metric, value)
            done.records += 1
    if not done.records:
        raise P3SError(f"{study.root}: has no measured points; run p3s characterize")
    done.command = f"extrap --json {target.name}"
    done.notes += ["points of phases are means over the ranks; left out: their values per rank, "
                   "call paths inside of phases",
                   "all points are of strong scaling: Extra-P's default expects weak scaling"]
    return done


def points(study: Study, done: Exported) -> Iterator[tuple[int, str, str, float]]:
    """Yield (processes, call path, metric, value) of all points."""
    alone: set[int] = set()
    yield from _runs(study, done, alone)
    if study.phases_path.exists():
        yield from _phases(read_json(study.phases_path, "p3s.phases"), alone)
    else:
        done.notes.append(f"no points of phases: {study.phases_path} is not there; run p3s phases")
    if study.prediction_path.exists():
        from p3s.predict.saved import read_prediction

        yield from _predicted(read_prediction(study.prediction_path))
    else:
        done.notes.append("no predicted points: there is no prediction; run p3s predict")


def _line(file: IO[str], n: int, path: str, metric: str, value: float) -> None:
    file.write(json.dumps({"params": {"p": n}, "callpath": path, "metric": metric,
                           "value": value}, allow_nan=False) + "\n")


def _runs(study: Study, done: Exported, alone: set[int]) -> Iterator[tuple[int, str, str, float]]:
    """Yield the run time of every run whose ranks had cores of their own; ``alone``: the counts."""
    from p3s.predict.measured import OFF_CORE_LIMIT, run_times
    from p3s.trace import read_run

    shared: set[int] = set()
    for n in study.counts():
        records = [run for run in study.timed_runs(n) if run.status == "complete"] or [
            run for run in study.runs(n) if run.status == "complete"]
        for record in records:
            run = read_run(record.path)
            if run.work_unit not in _TIMES:
                continue
            times = run_times(run)
            if record.info.get("oversubscribed", True) or times.off_core > OFF_CORE_LIMIT:
                shared.add(n)
            else:
                alone.add(n)
                yield n, _RUN, "time", times.wall_s
    alone -= shared
    if shared:
        done.notes.append("left out: run times at " + ", ".join(map(str, sorted(shared)))
                          + " processes, where ranks shared cores or waited for one")


def _phases(phases: Mapping[str, Any], alone: set[int]) -> Iterator[tuple[int, str, str, float]]:
    """Yield amounts of the run and its phases: means over the ranks, weights of the busiest."""
    unit = phases["work_unit"]
    work, factor = ("computation", 1 / _NS_PER_S) if unit in _TIMES else (str(unit), 1.0)
    totals: dict[tuple[int, str], float] = {}
    for phase in phases["phases"]:
        path = callpath(phase["phase"], phase["name"])
        for count, at in sorted(phase["per_count"].items(), key=lambda pair: int(pair[0])):
            n = int(count)
            means = {"calls": at["events"] / n, "bytes": at["bytes"] / n,
                     work: at["work"] * factor / n}
            yield n, path, "weight", float(at["weight"])
            for metric, value in means.items():
                totals[n, metric] = totals.get((n, metric), 0.0) + value
                yield n, path, metric, value
            if n in alone and unit in _TIMES:
                yield n, path, "time", (at["work"] + at["elapsed_ns"]) / n / _NS_PER_S
    for (n, metric), value in sorted(totals.items()):
        yield n, _RUN, metric, value
    for n in sorted({n for n, _ in totals}):
        yield n, _RUN, "weight", 1.0


def _predicted(prediction: Mapping[str, Any]) -> Iterator[tuple[int, str, str, float]]:
    """Yield the predicted times of the run and its phases."""
    metrics = {"compute_s": "predicted computation", "comm_s": "predicted communication"}
    for row in prediction["counts"]:
        yield row["n"], _RUN, "predicted time", row["model_s"]
        for key, metric in metrics.items():
            yield row["n"], _RUN, metric, row[key]
        for phase in row["phases"]:
            path = callpath(phase["phase"], phase["name"])
            yield row["n"], path, "predicted time", phase["compute_s"] + phase["comm_s"]
            for key, metric in metrics.items():
                yield row["n"], path, metric, phase[key]


def callpath(phase: int, name: str) -> str:
    """Return the call path of a phase; "->" is Extra-P's separator."""
    return f"{_RUN}->{phase} {name}".replace("->", "\0", 1).replace("->", "- >").replace("\0", "->")
