"""Points for Extra-P: what was measured at each traced count, and what is predicted.

As JSON Lines, of which one is {"params": {"p": processes}, "callpath": ..., "metric": ...,
"value": ...}, and the same as the text that Extra-P reads with --text. Extra-P
wants every metric of every call path at all coordinates of a file, so that amounts, run times and
predictions, which are of different counts, have a file each; what does not occur at a count is 0.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from p3s.base.artefacts import write_bytes
from p3s.base.errors import P3SError
from p3s.base.text import quote_word
from p3s.formats.exported import ExportResult, new_export
from p3s.formats.study import TIMES, Points
from p3s.signature.phase_file import Phases

if TYPE_CHECKING:
    from p3s.predict.types import Prediction

_NS_PER_S = 1e9
_RUN = "run"

#: (processes, call path, metric, value); repeats are points of their own.
Point = tuple[int, str, str, float]


def to_extrap(study_points: Points, result: ExportResult) -> None:
    """Write all measured and predicted points of a study into a new directory."""
    shared = {run.n for run in study_points.runs if run.shared}
    alone = {run.n for run in study_points.runs} - shared
    files = {
        "times": [(run.n, _RUN, "time", run.wall_s) for run in study_points.runs if not run.shared]
    }
    if shared:
        counts = ", ".join(map(str, sorted(shared)))
        text = "processes, where ranks shared cores or waited for one"
        result.notes.insert(0, f"left out: run times at {counts} {text}")
    if study_points.phases is not None:
        files["times"] += _phase_times(study_points.phases, alone)
        files["measured"] = list(_phases(study_points.phases))
    if study_points.predicted is not None:
        files["predicted"] = list(_yield_points(study_points.predicted))
    if not any(files.values()):
        raise P3SError(f"{study_points.root}: has no points; run p3s characterize")
    first = next(name for name in ("measured", "times", "predicted") if files.get(name))
    result.command = f"extrap --json {quote_word(result.path / f'{first}.jsonl')}"
    result.notes += [
        "points of phases are means over the ranks; left out: their values per rank, "
        "call paths inside of phases, intervals",
        "all points are of strong scaling: Extra-P's default expects weak scaling",
    ]
    with new_export(result) as directory:
        for name, points in files.items():
            if points:
                text = "".join(lines(points))
                write_bytes(directory / f"{name}.jsonl", text.encode())
                write_bytes(directory / f"{name}.txt", "".join(text_lines(points)).encode())
                result.records += text.count("\n")


def lines(points: Iterable[Point]) -> Iterator[str]:
    """Yield a line per point, and one of 0 where a metric has no point at a count of others."""
    counts, values_of = _by_metric(points)
    for (path, metric), at in values_of.items():
        for n in counts:
            for value in at[n]:
                yield (
                    json.dumps(
                        {"params": {"p": n}, "callpath": path, "metric": metric, "value": value},
                        allow_nan=False,
                    )
                    + "\n"
                )


def text_lines(points: Iterable[Point]) -> Iterator[str]:
    """Yield the lines of Extra-P's text format: repeats of a point are one line."""
    counts, values_of = _by_metric(points)
    yield f"PARAMETER p\nPOINTS {' '.join(f'({n})' for n in counts)}\n"
    for (path, metric), at in values_of.items():
        yield f"METRIC {metric}\nREGION {path}\n"
        for n in counts:
            yield f"DATA {' '.join(map(repr, at[n]))}\n"


def _by_metric(
    points: Iterable[Point],
) -> tuple[list[int], dict[tuple[str, str], dict[int, list[float]]]]:
    """Return the counts, and by call path and metric the values at each of them."""
    values_of: dict[tuple[str, str], dict[int, list[float]]] = {}
    for n, path, metric, value in points:
        values_of.setdefault((path, metric), {}).setdefault(n, []).append(float(value))
    counts = sorted({n for at in values_of.values() for n in at})
    return counts, {key: {n: at.get(n, [0.0]) for n in counts} for key, at in values_of.items()}


def _phase_times(phases: Phases, alone: set[int]) -> Iterator[Point]:
    """Yield the time of the phases at these counts, mean over the ranks."""
    if phases.work_unit in TIMES:
        for phase in phases.phases:
            for n, at in phase.per_count.items():
                if n in alone:
                    seconds = (at.work + at.elapsed_ns) / n / _NS_PER_S
                    yield n, callpath(phase.phase, phase.name), "time", seconds


def _phases(phases: Phases) -> Iterator[Point]:
    """Yield amounts of the run and its phases: means over the ranks, weights of the busiest."""
    unit = phases.work_unit
    work, factor = ("computation", 1 / _NS_PER_S) if unit in TIMES else (unit, 1.0)
    totals: dict[tuple[int, str], float] = {}
    for phase in phases.phases:
        path = callpath(phase.phase, phase.name)
        for n, at in sorted(phase.per_count.items()):
            means = {"calls": at.events / n, "bytes": at.bytes / n, work: at.work * factor / n}
            yield n, path, "weight", float(at.weight)
            for metric, value in means.items():
                totals[n, metric] = totals.get((n, metric), 0.0) + value
                yield n, path, metric, value
    for (n, metric), value in sorted(totals.items()):
        yield n, _RUN, metric, value
    for n in sorted({n for n, _ in totals}):
        yield n, _RUN, "weight", 1.0


def _yield_points(prediction: Prediction) -> Iterator[Point]:
    """Yield the predicted times of the run and its phases."""
    for row in prediction.counts:
        yield row.n, _RUN, "predicted time", row.model_s
        yield row.n, _RUN, "predicted computation", row.compute_s
        yield row.n, _RUN, "predicted communication", row.comm_s
        for phase in row.phases:
            path = callpath(phase.phase, phase.name)
            yield row.n, path, "predicted time", phase.compute_s + phase.comm_s
            yield row.n, path, "predicted computation", phase.compute_s
            yield row.n, path, "predicted communication", phase.comm_s


def callpath(phase: int, name: str) -> str:
    """Return the call path of a phase; "->" is Extra-P's separator."""
    return f"{_RUN}->{phase} {name}".replace("->", "\0", 1).replace("->", "- >").replace("\0", "->")
