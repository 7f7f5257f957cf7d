"""far.json: what the runs with other workloads stand for, for people and for reports."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from p3s.base.artefacts import unusable
from p3s.base.errors import P3SError
from p3s.base.serialise import Natural, NotNegative, ProcessCount, ShapeError, from_data
from p3s.costs.small_runs.cells import counted, places_of
from p3s.costs.small_runs.match import Found, matched_all
from p3s.costs.small_runs.places import HOW, SITE
from p3s.costs.small_runs.times import spent
from p3s.costs.small_runs.walk import minimum
from p3s.model.types import Model
from p3s.model.work.scic import ranges, ranges_text
from p3s.signature.phases import RELEVANT_SHARE
from p3s.signature.tables import INSTRUCTIONS

if TYPE_CHECKING:
    from p3s.base.study import Study

SCHEMA, VERSION = "p3s.far", 1
#: Counts by work and by bytes that differ by more, relative: blocks of another shape.
SHAPE = 0.10
Json = dict[str, Any]


@dataclass(frozen=True)
class FarRow:
    """A group of ranks of a phase at a count: its work, bytes and cost, and what it stands for."""

    np: ProcessCount
    phase: Natural
    name: str
    group: Natural
    ranks: Natural
    where: str
    turns: NotNegative
    work_per_turn: float | None
    bytes_per_turn: float | None
    work: float | None
    least_ns: float | None
    cost: float | None
    n: NotNegative | None
    nearest: NotNegative | None
    distance: float | None
    n_by_work: NotNegative | None
    why_not_by_work: str
    n_by_bytes: NotNegative | None
    why_not_by_bytes: str
    bytes_over_work: float | None
    other_shape: bool


@dataclass(frozen=True)
class FarMinimum:
    """Where a phase's cost per unit of work is least: status and count."""

    phase: Natural
    name: str
    counts: tuple[ProcessCount, ...]
    cost: tuple[float, ...]
    status: str
    at: Natural | None

    def valid(self) -> None:
        """Raise ValueError unless there is a cost for each count."""
        if len(self.counts) != len(self.cost):
            raise ValueError("there is not one cost for each count")


@dataclass(frozen=True)
class FarWorkload:
    """Runs of another input: what they stand for, or why they cannot be compared."""

    name: str
    command: tuple[str, ...]
    counts: tuple[ProcessCount, ...]
    error: str | None
    places: str
    rows: tuple[FarRow, ...]
    minimum: tuple[FarMinimum, ...]


@dataclass(frozen=True)
class FarFile:
    """What far.json holds."""

    work_unit: str
    workloads: tuple[FarWorkload, ...]


def write(study: Study, model: Model) -> Json:
    """Write far.json of a study, return it: the summary of all its other workloads."""
    from p3s.base.study import write_json

    found = summary(study, model)
    write_json(study.root / "far.json", found)
    return found


def load(study: Study) -> Json | None:
    """Return far.json, None where there is none."""
    from p3s.base.study import read_json

    path = study.root / "far.json"
    if not path.exists():
        return None
    data = read_json(path, SCHEMA, VERSION)
    try:
        from_data(FarFile, data, more=True)
    except ShapeError as err:
        raise unusable(path, err, "run p3s characterize --far again") from err
    return data


def summary(study: Study, model: Model) -> Json:
    """Return per workload, count, phase and group of ranks what it was matched to, and its cost.

    Work and bytes are of one process in one iteration of the phase, times in ns; numbers that are
    not known are null. A workload that cannot be compared has its reason in "error"."""
    before = _own_cost(study, model)
    found = matched_all(study, model)
    workloads = [_workload(study, other, model, before, found) for other in study.others()]
    return {
        "schema": SCHEMA,
        "schema_version": VERSION,
        "work_unit": model.work_unit,
        "workloads": workloads,
    }


def _workload(
    study: Study,
    other: Study,
    model: Model,
    before: Mapping[int, float],
    all_found: Mapping[str, tuple[dict[int, list[Found]], str] | P3SError],
) -> Json:
    commands = other.manifest()["commands"]
    out: Json = {
        "name": str(other.root.relative_to(study.root)),
        "command": commands[-1] if commands else [],
        "counts": other.signature_counts(),
        "error": None,
        "places": HOW[SITE],
        "rows": [],
        "minimum": [],
    }
    mine = all_found[out["name"]]
    if isinstance(mine, P3SError):
        return {**out, "error": str(mine)}
    found, out["places"] = mine
    names = [p.name for p in model.phases]
    out["rows"] = [
        row
        for np, groups in sorted(found.items())
        for row in _rows(np, groups, names, model.work_unit == INSTRUCTIONS)
    ]
    out["minimum"] = _minima(found, names, before)
    return out


def _rows(np: int, groups: Sequence[Found], names: Sequence[str], counted_work: bool) -> list[Json]:
    number: dict[int, int] = {}
    out = []
    for g in groups:
        number[g.phase] = number.get(g.phase, -1) + 1
        ratio = g.by_bytes.n / g.by_work.n
        held = g.by_work if counted_work else g.by_bytes
        out.append(
            {
                "np": np,
                "phase": g.phase,
                "name": names[g.phase],
                "group": number[g.phase],
                "ranks": len(g.ranks),
                "where": ranges_text(ranges(g.ranks)),
                "turns": g.turns,
                "work_per_turn": _number(g.x),
                "bytes_per_turn": _number(g.nbytes),
                "work": _number(g.work),
                "least_ns": _number(g.least_ns / g.turns),
                "cost": _number(g.least_ns / g.work if g.work > 0 else math.nan),
                "n": _number(g.n),
                "nearest": held.nearest,
                "distance": _number(held.distance),
                "n_by_work": _number(g.by_work.n),
                "why_not_by_work": g.by_work.why,
                "n_by_bytes": _number(g.by_bytes.n),
                "why_not_by_bytes": g.by_bytes.why,
                "bytes_over_work": _number(ratio),
                "other_shape": bool(ratio > 1 + SHAPE or ratio < 1 / (1 + SHAPE)),
            }
        )
    return out


def _minima(
    found: Mapping[int, Sequence[Found]], names: Sequence[str], before: Mapping[int, float]
) -> list[Json]:
    """Return per phase with more than 1 % of the time where its cost per unit is least."""
    time: dict[int, dict[int, float]] = {}
    work: dict[int, dict[int, float]] = {}
    for np, groups in found.items():
        for g in groups:
            if g.points:
                time.setdefault(g.phase, {}).setdefault(np, 0.0)
                time[g.phase][np] += g.least_ns * len(g.ranks)
                work.setdefault(g.phase, {}).setdefault(np, 0.0)
                work[g.phase][np] += sum(p.work for p in g.points) * len(g.ranks)
    all_time = {np: sum(each.get(np, 0.0) for each in time.values()) for np in found}
    out = []
    for k, each in sorted(time.items()):
        if not any(t > RELEVANT_SHARE * all_time[np] for np, t in each.items()):
            continue
        counts = sorted(each)
        cost = [each[np] / work[k][np] for np in counts]
        status, at = minimum(counts, cost, before.get(k, 0.0))
        out.append(
            {
                "phase": k,
                "name": names[k],
                "counts": counts,
                "cost": cost,
                "status": status,
                "at": at,
            }
        )
    return out


def _own_cost(study: Study, model: Model) -> dict[int, float]:
    """Return the largest cost per unit of every phase over the study's own counts.

    Where work is time, its cost is 1 by definition.
    """
    from p3s.signature.store import load_table

    places = places_of(model)
    if model.work_unit != INSTRUCTIONS:
        return {p.phase: 1.0 for p in model.phases}
    out: dict[int, float] = {}
    for np in study.signature_counts():
        times = spent(study, load_table(study.root, np), [place for place, _ in places])
        for p in model.phases if times is not None else ():
            assert times is not None
            mine = [i for i, (place, k) in enumerate(places) if k == p.phase and counted(place)]
            work = float(times.work[mine].sum())
            if work > 0:
                cost = float(times.least[mine].sum()) / work
                out[p.phase] = max(out.get(p.phase, 0.0), cost)
    return out


def _number(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
