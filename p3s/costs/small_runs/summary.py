"""far.json: what the runs with other workloads stand for, for people and for reports."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from p3s.base.artefacts import write_json
from p3s.base.errors import P3SError
from p3s.base.serialise import Natural, NotNegative, ProcessCount, Published
from p3s.base.study import Study
from p3s.costs.small_runs.match import Found, matched_all
from p3s.costs.small_runs.places import HOW, SITE
from p3s.costs.small_runs.walk import PhaseCost, minimum
from p3s.costs.thesis import OWN
from p3s.costs.types import load
from p3s.model.types import Model
from p3s.model.work.scic import ranges, ranges_text
from p3s.signature.phases import RELEVANT_SHARE
from p3s.signature.rank import INSTRUCTIONS

#: Counts by work and by bytes that differ by more, relative: blocks of another shape.
SHAPE = 0.10


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
    nearest: Natural | None
    distance: float | None
    n_by_work: NotNegative | None
    why_not_by_work: str
    n_by_bytes: NotNegative | None
    why_not_by_bytes: str
    bytes_over_work: float | None
    other_shape: bool


@dataclass(frozen=True)
class FarWorkload:
    """Runs of another input: what they stand for, or why they cannot be compared."""

    name: str
    command: tuple[str, ...]
    counts: tuple[ProcessCount, ...]
    error: str | None
    places: str
    rows: tuple[FarRow, ...]
    minimum: tuple[PhaseCost, ...]


@dataclass(frozen=True)
class FarFile:
    """What far.json holds."""

    work_unit: str
    workloads: tuple[FarWorkload, ...]


FAR = Published("p3s.far", 1, FarFile, True, "run p3s characterize --far again")


def write(study: Study, model: Model) -> FarFile:
    """Write far.json of a study, return it: what all its other workloads were matched to."""
    before = _own_cost(study, model)
    matches = matched_all(study, model)
    workloads = tuple(
        _workload(other, name, model, before, matches[name])
        for other in study.others()
        for name in [str(other.root.relative_to(study.root))]
    )
    out = FarFile(model.work_unit, workloads)
    write_json(study.root / "far.json", FAR.data(out))
    return out


def _workload(
    other: Study,
    name: str,
    model: Model,
    before: Mapping[int, float],
    match: tuple[dict[int, list[Found]], str] | P3SError,
) -> FarWorkload:
    """Return what a workload was matched to: work and bytes of one process in one iteration."""
    commands = other.manifest()["commands"]
    command, counts = tuple(commands[-1]) if commands else (), tuple(other.signature_counts())
    if isinstance(match, P3SError):
        return FarWorkload(name, command, counts, str(match), HOW[SITE], (), ())
    groups, places = match
    names = [p.name for p in model.phases]
    rows = tuple(
        row
        for np, some in sorted(groups.items())
        for row in _rows(np, some, names, model.work_unit == INSTRUCTIONS)
    )
    return FarWorkload(name, command, counts, None, places, rows, _minima(groups, names, before))


def _rows(
    np: int, groups: Sequence[Found], names: Sequence[str], counted_work: bool
) -> Iterator[FarRow]:
    number: dict[int, int] = {}
    for g in groups:
        number[g.phase] = number.get(g.phase, -1) + 1
        ratio = g.by_bytes.n / g.by_work.n
        held = g.by_work if counted_work else g.by_bytes
        yield FarRow(
            np=np,
            phase=g.phase,
            name=names[g.phase],
            group=number[g.phase],
            ranks=len(g.ranks),
            where=ranges_text(ranges(g.ranks)),
            turns=g.turns,
            work_per_turn=_number(g.x),
            bytes_per_turn=_number(g.nbytes),
            work=_number(g.work),
            least_ns=_number(g.least_ns / g.turns),
            cost=_number(g.least_ns / g.work if g.work > 0 else math.nan),
            n=_number(g.n),
            nearest=held.nearest,
            distance=_number(held.distance),
            n_by_work=_number(g.by_work.n),
            why_not_by_work=g.by_work.why,
            n_by_bytes=_number(g.by_bytes.n),
            why_not_by_bytes=g.by_bytes.why,
            bytes_over_work=_number(ratio),
            other_shape=bool(ratio > 1 + SHAPE or ratio < 1 / (1 + SHAPE)),
        )


def _minima(
    found: Mapping[int, Sequence[Found]], names: Sequence[str], before: Mapping[int, float]
) -> tuple[PhaseCost, ...]:
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
        out.append(PhaseCost(names[k], tuple(counts), tuple(cost), status, at, k))
    return tuple(out)


def _own_cost(study: Study, model: Model) -> dict[int, float]:
    """Return the largest cost per unit of every phase over the study's own counts.

    Where work is time, its cost is 1 by definition.
    """
    if model.work_unit != INSTRUCTIONS:
        return {p.phase: 1.0 for p in model.phases}
    found = load(study.root)
    return {
        p.phase: max((t.least_ns / t.x for t in p.turns if t.source == OWN), default=0.0)
        for p in (found.phases if found is not None else ())
    }


def _number(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
