"""A signature that was run: what its phases cost, and the run time that follows.

Each relevant phase was recorded until the mean time of its iterations was known well enough; the
run time is the sum of mean times and weights (Eq. 8.1), plus what lies outside of the loops.
Iterations that were only counted are timed too; what the iterations in full detail alone would have
told is kept apart."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from p3s.base.errors import P3SError
from p3s.base.serialise import Natural, NotNegative, ProcessCount, Published, Share, Total
from p3s.capture.recording_plan import WORK, Plan
from p3s.signature.phase_file import Phases
from p3s.signature.plans import Weights

if TYPE_CHECKING:
    from p3s.capture import RankTrace, RunTrace

#: States of a phase on a rank.
_STATES = {0: "open", 1: "tight", 2: "most iterations", 3: "enough"}


@dataclass(frozen=True)
class Compared:
    """A time, and by how much a prediction is off, relative; None where there is no time."""

    time: float
    difference: float | None
    from_detail: float | None


@dataclass(frozen=True)
class SampledEvents:
    """Events in full detail, only counted, of a whole run, and the share in detail."""

    recorded: Total
    counted: Total
    run: Total | None
    share_in_detail: NotNegative


@dataclass(frozen=True)
class Saved:
    """Bytes and seconds of the run of a signature and of the full runs."""

    bytes: Total
    wall_s: NotNegative | None
    full_bytes: Total | None
    full_wall_s: NotNegative | None


@dataclass(frozen=True)
class SampledPhase:
    """A phase in the run of a signature: iterations, in full detail, their mean time."""

    phase: Natural
    name: str
    relevant: bool
    ranks: Natural
    turns: Total
    in_detail: tuple[Total, Total]
    mean: NotNegative | None
    relative_half_width: NotNegative
    state: tuple[str, ...]
    predicted: NotNegative
    share: Share


@dataclass(frozen=True)
class SampledFile:
    """What sampled/npNNNN.json holds; P3S writes it for others."""

    np: ProcessCount
    stopped: bool
    weights_from: str
    measure: str
    work_unit: str
    width: Share
    confidence: Share
    turns: tuple[Natural, Natural]
    events: SampledEvents
    predicted: NotNegative
    half_width: NotNegative
    from_detail: NotNegative
    outside_plan: NotNegative
    of_this_run: Compared | None
    of_full_run: Compared | None
    saved: Saved
    phases: tuple[SampledPhase, ...]


@dataclass
class _Sums:
    """What all ranks add up to: by phase (cost; from_detail: cost by the iterations in full detail
    alone; widest: largest relative half width), the ranks' tables, and totals."""

    cost: np.ndarray
    from_detail: np.ndarray
    widest: np.ndarray
    tables: list[np.ndarray]
    half: float = 0.0
    unknown: float = 0.0
    recorded: int = 0
    counted: int = 0
    exact: float = 0.0


#: sampled/npNNNN.json.
SAMPLED = Published("p3s.sampled", 1, SampledFile, more=True)


def predict(
    run: RunTrace, plan: Plan, phases: Phases, weights: Weights | None, saved: Saved
) -> SampledFile:
    """Return the time predicted from a signature that was run.

    ``weights``: of a run that was stopped; None takes those the run itself counted. ``saved``: what
    the run took. Times are per rank, the mean over the ranks, in nanoseconds (in the unit of work
    where that decides). Raises P3SError when a rank's capture says nothing about phases.
    """
    np_, enough = run.np, plan.enough
    before = _earlier(phases, np_, enough.measure)
    sums = _sums(run, plan, weights, before)
    total = (float(sums.cost.sum()) + sums.unknown) / np_
    full = sum(before.values()) / np_ if before else None
    stopped = weights is not None
    events = sums.recorded + sums.counted
    account = phases.accounting.get(np_)
    of_run = (account.events if account else 0) if stopped else events
    in_detail = (float(sums.from_detail.sum()) + sums.unknown) / np_
    share = sums.recorded / max(of_run or events, 1)
    return SampledFile(
        np=np_,
        stopped=stopped,
        weights_from=weights.source if weights else "this run",
        measure=enough.measure,
        work_unit=run.work_unit,
        width=enough.width,
        confidence=enough.confidence,
        turns=(enough.smallest, enough.largest),
        events=SampledEvents(sums.recorded, sums.counted, of_run or None, share),
        predicted=total,
        half_width=sums.half / np_,
        from_detail=in_detail,
        outside_plan=sums.unknown / np_,
        of_this_run=None if stopped else _compared(total, in_detail, sums.exact / np_),
        of_full_run=None if full is None else _compared(total, in_detail, full),
        saved=saved,
        phases=tuple(_phase_rows(sums, plan, phases, np_)),
    )


def _compared(predicted: float, in_detail: float, real: float) -> Compared:
    if real <= 0:
        return Compared(real, None, None)
    return Compared(real, predicted / real - 1, in_detail / real - 1)


def _earlier(phases: Phases, np_: int, measure: str) -> dict[int, float]:
    """Return what each phase cost in the full run at this count, over all ranks; {} if none."""
    found = {}
    for phase in phases.phases:
        row = phase.per_count.get(np_)
        if row is not None:
            time = 0 if measure == WORK else row.elapsed_ns
            found[phase.phase] = float(row.work + time)
    return found


def _sums(run: RunTrace, plan: Plan, weights: Weights | None, before: Mapping[int, float]) -> _Sums:
    count = len(plan.relevant)
    sums = _Sums(np.zeros(count), np.zeros(count), np.zeros(count), [])
    phase_of = _phase_of_call(run, plan)
    ranks = [_rank(run, rank, phase_of, plan) for rank in range(run.np)]
    most = np.max([table["turns"] for _, table, _ in ranks], axis=0)
    for rank, table, own in ranks:
        turns = table["turns"].astype(float)
        if weights is not None:
            turns = weights.of_rank(turns, most.astype(float))
        half_squares = 0.0
        for p in range(count):
            row = table[p]
            cost = from_detail = float(own[p])
            # All of a phase that was never left was recorded, in a run that went to its end.
            if row["measured"] > 0 and p > 0 and (row["state"] != 0 or weights is not None):
                early = float(_cost(row["early_work"], row["early_elapsed_ns"], plan))
                later = max(turns[p] - float(row["early"]), 0.0)
                cost = early + float(row["mean"]) * later
                mean = row["detailed_mean"] if row["state"] != 0 else row["mean"]
                from_detail = early + float(mean) * later
                half_squares += (later * _half_width(row, plan)) ** 2
            sums.cost[p] += cost
            sums.from_detail[p] += from_detail
        # The ranks wait for each other: their errors are taken to be the same, not independent.
        sums.half += math.sqrt(half_squares)
        sums.unknown += float(own[count])
        sums.recorded += len(rank.call)
        sums.counted += rank.counted_events
        sums.exact += float(own.sum()) + sum(
            _cost(work, took, plan) for _, took, work in rank.counted.values()
        )
        sums.tables.append(table)
        sums.widest = np.maximum(sums.widest, [_relative(row, plan) for row in table])
    if weights is not None:
        for p, cost in before.items():  # what the program was not let to do
            unseen = p < count and (most[p] == 0 or p == 0)
            if unseen:
                sums.cost[p] = max(sums.cost[p], cost)
                sums.from_detail[p] = max(sums.from_detail[p], cost)
    return sums


def _phase_of_call(run: RunTrace, plan: Plan) -> np.ndarray:
    """Return the phase of each call; the number of phases for one the plan does not know."""
    known = {(call.site, call.op): call.phase for call in plan.calls}
    keys = [site.key for site in run.sites]
    return np.array(
        [
            known.get((keys[c.site] if c.site >= 0 else "", c.op), len(plan.relevant))
            for c in run.calls
        ],
        dtype=np.int64,
    )


def _rank(
    run: RunTrace, number: int, phase_of: np.ndarray, plan: Plan
) -> tuple[RankTrace, np.ndarray, np.ndarray]:
    """Return (a rank without its events, its rows of phases, cost recorded by phase)."""
    rank = run.ranks[number]
    table = rank.phases
    if table is None or len(table) != len(plan.relevant):
        raise P3SError(
            f"{run.path}: rank {number} was not told the phases; run the signature again where"
            " all ranks can read this directory"
        )
    cost = _cost(rank.work, rank.elapsed_ns, plan)
    # The run is timed from the return of MPI_Init, as everywhere.
    begins = np.array([call.op.startswith("MPI_Init") for call in run.calls])
    cost = np.where(begins[rank.call], 0, cost)
    own = np.zeros(len(plan.relevant) + 1, dtype=np.int64)
    np.add.at(own, phase_of[rank.call], cost)
    return replace(rank, start_ns=rank.start_ns[:0]), table, own


def _cost(work: Any, elapsed_ns: Any, plan: Plan) -> Any:
    return work if plan.enough.measure == WORK else work + elapsed_ns


def _half_width(row: Any, plan: Plan) -> float:
    """Return half the width of the confidence interval of a phase's mean."""
    batches = int(row["batches"])
    if batches < 2:
        return 0.0
    return plan.enough.quantile(batches) * math.sqrt(max(float(row["variance"]), 0.0))


def _relative(row: Any, plan: Plan) -> float:
    return _half_width(row, plan) / float(row["mean"]) if row["mean"] > 0 else 0.0


def _phase_rows(sums: _Sums, plan: Plan, phases: Phases, np_: int) -> Iterator[SampledPhase]:
    """Yield what is said of each phase."""
    whole = max(float(sums.cost.sum()) + sums.unknown, 1.0)
    for p, relevant in enumerate(plan.relevant):
        turns, early, detailed, measured, mean, state = (
            np.array([table[name][p] for table in sums.tables])
            for name in ("turns", "early", "detailed", "measured", "mean", "state")
        )
        begun = turns > 0
        # What was never left is there in full.
        full = np.where(state == 0, turns, early + detailed)[begun]
        yield SampledPhase(
            phase=p,
            name=phases.phases[p].name,
            relevant=bool(relevant),
            ranks=int(begun.sum()),
            turns=int(turns.max(initial=0)),
            in_detail=(int(full.min()), int(full.max())) if len(full) else (0, 0),
            mean=float(mean[measured > 0].mean()) if (measured > 0).any() else None,
            relative_half_width=float(sums.widest[p]),
            state=tuple(sorted({_STATES.get(int(one), "?") for one in state[begun]})),
            predicted=float(sums.cost[p] / np_),
            share=float(sums.cost[p] / whole),
        )


def saved_by(own: Path, wall_s: float, full: Sequence[tuple[Path, float | None]]) -> Saved:
    """Return bytes of captures and wall time of the signature run, and of the full runs."""
    walls = [wall for _, wall in full if wall is not None]
    most = min((_bytes(path) for path, _ in full), default=None)
    return Saved(_bytes(own), wall_s, most, min(walls, default=None))


def _bytes(run_dir: Path) -> int:
    return sum(path.stat().st_size for path in run_dir.glob("rank-*.p3t"))
