"""One row of prediction.json: run time at one count, put together from its phases (Eq. 8.1)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from p3s.base.arrays import Floats
from p3s.predict.estimated import ESTIMATORS
from p3s.predict.estimates import Estimate as Told
from p3s.predict.intervals import OWN, Factors, combine, model_part, own_parts
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
    """Return the row of one count, without its interval, its speedup and its cost.

    :func:`with_interval` and :func:`related` add these. ``others``: what every estimator says, or
    why it says nothing. The time is what was measured where that tells how fast the program is.
    """
    phases = phases_of(times)
    comm_low, comm_high = comm_ends(times)
    model_s = sum(phase.time_s for phase in phases)
    row = Count(
        n=times.n,
        time_s=model_s,
        low_s=None,
        high_s=None,
        time_from="model",
        model_s=model_s,
        model_low_s=None,
        model_high_s=None,
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
        interval_parts=IntervalParts(None, None, None, None, None),
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


def with_parts(
    row: Count, times: PhaseTimes, others: Mapping[str, Told]
) -> tuple[Count, Factors | None]:
    """Return a row with its interval's parts but for the residual, and these joined.

    The latter is None where they are not known.
    """
    own = own_parts(times)
    model = model_part(times, others)
    parts = IntervalParts(**(own or dict.fromkeys(OWN)), model=model, residual=None)
    known = None if own is None else combine([*own.values(), model])
    return replace(row, interval_parts=parts), known


def with_interval(row: Count, known: Factors | None, residual: Factors | None) -> Count:
    """Return a row with the residual's part and the interval of its time."""
    row = replace(row, interval_parts=replace(row.interval_parts, residual=residual))
    if known is None:
        return row
    low, high = (row.model_s * end for end in combine([known, residual]))
    row = replace(row, model_low_s=low, model_high_s=high)
    return replace(row, low_s=low, high_s=high) if row.time_from == "model" else row


def related(row: Count, base: Count, work: float = 1.0) -> Count:
    """Return a row with its cost, and speedup and efficiency relative to the baseline.

    The time of the baseline is taken as given. Cost: one core per process. ``work``: how many times
    as much there is to do as at the baseline; speedups are those of the work.
    """

    def over(seconds: float | None) -> float | None:
        if seconds is None or (seconds <= 0 < row.time_s):
            return None  # the low end is nothing: no speedup is too large
        return work * base.time_s / seconds if seconds > 0 else 0.0

    speedup = over(row.time_s) or 0.0
    return replace(
        row,
        cost_core_h=row.n * row.time_s / _SECONDS_PER_HOUR,
        speedup=speedup,
        speedup_low=over(row.high_s),
        speedup_high=over(row.low_s),
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


def phases_of(times: PhaseTimes, ends_too: bool = True) -> tuple[PhaseAt, ...]:
    """Return the phases with their times: those of the rank that needs longest in all.

    Of the thesis's sum (Eq. 8.1) those of the rank that needs longest in each phase.
    """
    rows = []
    every = None if times.estimator == "thesis" else slowest_rank(times)
    for slot, phase in enumerate(times.phases):
        compute, comm = times.compute[:, slot], times.comm[:, slot]
        slowest = int(np.argmax(times.own[:, slot] + comm)) if every is None else every
        seconds, talked = float(compute[slowest]), float(comm[slowest])
        ends = times.interval_of(slot)
        own = own_parts(times, slowest, slot) if ends_too else None
        low, high = combine(own.values()) if own is not None else (None, None)
        filed = 0.0 if times.io is None else float(times.io[slowest, slot])
        time = seconds + talked + filed
        rows.append(
            PhaseAt(
                phase=phase["phase"],
                name=str(phase.get("name", phase["phase"])),
                kind=str(phase.get("kind", "loop")),
                weight=phase["weight"],
                time_s=time,
                low_s=None if low is None else time * low,
                high_s=None if high is None else time * high,
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
    phases = phases_of(made, ends_too=False)
    time = sum(phase.time_s for phase in phases)
    own = own_parts(made)
    low, high = combine(own.values()) if own is not None else (None, None)
    return Estimate(
        time_s=time,
        low_s=None if low is None else time * low,
        high_s=None if high is None else time * high,
        **_sums(phases),
        why_not=made.why_not,
        notes=tuple(made.approximated),
    )


def _known(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _seconds(ns: float | None) -> float | None:
    return None if ns is None else ns / 1e9
