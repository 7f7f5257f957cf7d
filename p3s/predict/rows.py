"""One row of prediction.json: run time at one count, put together from its phases (Eq. 8.1)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from p3s.base.arrays import Floats
from p3s.predict.distribution import (
    OWN,
    RESIDUAL,
    Factors,
    Rival,
    draws,
    ends_of,
    evenly,
    own_parts,
)
from p3s.predict.estimated import ESTIMATORS
from p3s.predict.estimates import Estimate as Told
from p3s.predict.residual import Measured
from p3s.predict.times import PhaseTimes
from p3s.predict.types import Count, Estimate, IntervalParts, PhaseAt, part_s

#: Parts of the communication that not every estimator tells apart.
COMM_PARTS = ("waiting", "transfer", "software")
_SUMMED = ("compute", "io", "comm", *COMM_PARTS)
_NOTHING: dict[str, None] = dict.fromkeys(f"{part}_s" for part in _SUMMED)
_SECONDS_PER_HOUR = 3600.0
#: Ranks whose times differ by less than this share need equally long, and about as long.
_SAME, _ABOUT_SAME = 1e-3, 0.05


def row_of(times: PhaseTimes, run: Measured | None, others: Mapping[str, Told]) -> Count:
    """Return the row of one count, without its speedup and its cost, which :func:`related` adds.

    Its interval is that of the estimate itself; :func:`with_interval` adds the rest. ``others``:
    what every estimator says, or why it says nothing. The time is what was measured where that
    tells how fast the program is.
    """
    phases = phases_of(times)
    comm_low, comm_high = comm_ends(times)
    model_s = sum(phase.time_s for phase in phases)
    own = own_parts(times)
    low, high = _scaled(model_s, own)
    row = Count(
        n=times.n,
        time_s=model_s,
        low_s=low,
        high_s=high,
        time_from="model",
        model_s=model_s,
        model_low_s=low,
        model_high_s=high,
        **_sums(phases),
        work_s=float(times.compute.sum(axis=1).max()) if times.compute.size else 0.0,
        measured=run is not None,
        measured_s=run.wall_s if run is not None else None,
        measured_work_s=run.work_s if run is not None and math.isfinite(run.work_s) else None,
        representative=not times.why_not if run is None else run.representative,
        model_representative=not times.why_not,
        contradicts=run is not None and run.contradicts,
        estimator=times.estimator,
        estimators=_estimators(times, others),
        phases=phases,
        interval_parts=IntervalParts(**(own or dict.fromkeys(OWN)), residual=None),
        cost_core_h=0.0,
        speedup=0.0,
        speedup_low=None,
        speedup_high=None,
        efficiency=0.0,
        stand_ins=times.stand_ins,
        comm_low_s=comm_low,
        comm_high_s=comm_high,
    )
    if run is None or not run.representative:
        return row
    return replace(
        row, time_s=run.wall_s, low_s=run.wall_s, high_s=run.wall_max_s, time_from="measured"
    )


def baseline(rows: Sequence[Count]) -> Count:
    """Return the row that speedups relate to: the smallest count that nothing speaks against.

    That is a run that contradicts the others, or computation that does not go on from the traced
    counts; where there is no other row, the first.
    """
    sound = (row for row in rows if not (row.contradicts or row.below_traced))
    return next(sound, rows[0])


def with_interval(
    row: Count, times: PhaseTimes, residual: Factors, rivals: Sequence[Rival]
) -> Count:
    """Return a row with what no part of its own interval knows, and rivals; its phases as well."""
    if row.model_low_s is None:
        return row
    parts = replace(row.interval_parts, residual=residual, rivals=tuple(rivals))
    low, high = (row.model_s * end for end in ends_of(parts.draws()))
    phases = []
    for slot, (phase, rank) in enumerate(zip(row.phases, shown_ranks(times), strict=True)):
        own = own_parts(times, rank, slot)
        ends = _scaled(phase.time_s, None if own is None else {**own, RESIDUAL: residual})
        phases.append(replace(phase, low_s=ends[0], high_s=ends[1]))
    row = replace(
        row, interval_parts=parts, model_low_s=low, model_high_s=high, phases=tuple(phases)
    )
    return replace(row, low_s=low, high_s=high) if row.time_from == "model" else row


def _scaled(
    seconds: float, parts: Mapping[str, Factors | None] | None
) -> tuple[float, float] | tuple[None, None]:
    """Return the ends of a time by its parts, None where they are not known."""
    if parts is None:
        return None, None
    low, high = ends_of(draws(parts))
    return seconds * low, seconds * high


def drawn(row: Count) -> Floats | None:
    """Return the draws of a row's time in s, (NUMBER,); None: its interval is not known.

    A measured time lies evenly between its repeats' ends.
    """
    low, high = row.low_s, row.high_s
    if low is None or high is None:
        return None
    if row.time_from == "measured":
        return evenly(low, high)
    return row.time_s * row.interval_parts.draws()


def related(row: Count, base: Count, work: float = 1.0) -> Count:
    """Return a row with its cost, and speedup and efficiency relative to the baseline.

    Cost: one core per process. ``work``: how many times as much there is to do as at the baseline;
    speedups are those of the work.
    """
    speedup = work * base.time_s / row.time_s if row.time_s > 0 else 0.0
    mine, its = drawn(row), drawn(base)
    ends: tuple[float | None, float | None] = None, None
    if mine is not None and its is not None:
        ends = ends_of(work * its / np.maximum(mine, 1e-300), speedup)
    return replace(
        row,
        cost_core_h=row.n * row.time_s / _SECONDS_PER_HOUR,
        speedup=speedup,
        speedup_low=ends[0],
        speedup_high=ends[1],
        efficiency=speedup * base.n / row.n,
    )


def slowest_rank(times: PhaseTimes) -> int:
    """Return the rank that needs longest in all; of those within 0.1 % of it, the busiest."""
    whole = (times.own + times.comm).sum(axis=1)
    late = np.flatnonzero(whole >= (1.0 - _SAME) * whole.max())
    return int(late[np.argmax(times.compute[late].sum(axis=1))])


def comm_ends(times: PhaseTimes) -> tuple[float, float]:
    """Return the ends of the communication of the slowest rank, in seconds.

    Which rank that is, is known no better than how long ranks take: the ends hold those of all
    that take about as long, or may do where others were simulated in their place.
    """
    whole = (times.own + times.comm).sum(axis=1)
    late = whole >= (1.0 - _ABOUT_SAME) * whole.max()
    if times.stand_ins is not None:
        late |= (times.own + times.comm_high).sum(axis=1) >= whole.max()
    low, high = (ends[late].sum(axis=1) for ends in (times.comm_low, times.comm_high))
    return float(low.min()), float(high.max())


def shown_ranks(times: PhaseTimes) -> list[int]:
    """Return the rank whose times are shown of each phase: that which needs longest in all.

    Of the thesis's sum (Eq. 8.1) that which needs longest in the phase.
    """
    if times.estimator == "thesis":
        ranks: list[int] = (times.own + times.comm).argmax(axis=0).tolist()
        return ranks
    return [slowest_rank(times)] * len(times.phases)


def phases_of(times: PhaseTimes) -> tuple[PhaseAt, ...]:
    """Return the phases with their times, of the ranks that are shown; without their intervals."""
    rows = []
    for slot, (phase, slowest) in enumerate(zip(times.phases, shown_ranks(times), strict=True)):
        seconds = float(times.compute[slowest, slot])
        talked = float(times.comm[slowest, slot])
        ends = times.interval_of(slot)
        filed = 0.0 if times.io is None else float(times.io[slowest, slot])
        time = seconds + talked + filed
        rows.append(
            PhaseAt(
                phase=phase["phase"],
                name=str(phase.get("name", phase["phase"])),
                kind=str(phase.get("kind", "loop")),
                weight=phase["weight"],
                time_s=time,
                low_s=None,
                high_s=None,
                compute_s=seconds,
                compute_low_s=seconds * ends[0] if ends else None,
                compute_high_s=seconds * ends[1] if ends else None,
                crm_i_s=_seconds(phase.get("crm_i_ns")),
                crm_c_s=_seconds(phase.get("crm_c_ns")),
                comm_s=talked,
                waiting_s=_part(times, times.waiting, slowest, slot),
                transfer_s=_part(times, times.transfer, slowest, slot),
                software_s=_part(times, times.software, slowest, slot),
                io_s=filed,
                x=_pair(phase.get("x")),
                covered=_pair(phase.get("covered")),
                outside=phase.get("outside"),
                below=phase.get("below"),
            )
        )
    return tuple(rows)


def _part(times: PhaseTimes, values: Floats | None, rank: int, slot: int) -> float | None:
    """Return a part of the communication; of one process there is none."""
    if times.n == 1:
        return 0.0
    return None if values is None else _known(values[rank, slot])


def _pair(ends: Sequence[float] | None) -> tuple[float, float] | None:
    return None if ends is None else (ends[0], ends[1])


def _sums(phases: Sequence[PhaseAt]) -> dict[str, Any]:
    """Return the parts of the run time; a part is None where a phase does not know it."""
    sums: dict[str, float | None] = {}
    for part in _SUMMED:
        values = [part_s(phase, part) for phase in phases]
        known = [value for value in values if value is not None]
        sums[f"{part}_s"] = float(sum(known)) if len(known) == len(values) else None
    return sums


def _estimators(times: PhaseTimes, others: Mapping[str, Told]) -> dict[str, Estimate]:
    """Return what every estimator says of the run time, or why it says nothing."""
    made = {**others, times.estimator: times}
    return {name: _estimate(made.get(name, "was not asked for")) for name in ESTIMATORS}


def _estimate(made: Told) -> Estimate:
    if isinstance(made, str):
        return Estimate(time_s=None, low_s=None, high_s=None, **_NOTHING, why_not=made, notes=())
    phases = phases_of(made)
    time = sum(phase.time_s for phase in phases)
    low, high = _scaled(time, own_parts(made))
    return Estimate(
        time_s=time,
        low_s=low,
        high_s=high,
        **_sums(phases),
        why_not=made.why_not,
        notes=tuple(made.approximated),
    )


def _known(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _seconds(ns: float | None) -> float | None:
    return None if ns is None else ns / 1e9
