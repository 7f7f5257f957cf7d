"""One row of prediction.json: run time at one count, put together from its phases (Eq. 8.1).

Also how a program scales over the rows: efficiencies, the knee, the count to run at, what limits
it. Efficiencies have the names of the POP project: what of the core time is useful computation.

    global efficiency = parallel efficiency x computation scalability
    parallel efficiency = load balance x communication efficiency
    communication efficiency = serialisation efficiency x transfer efficiency

Useful is the computation of a rank: neither MPI nor files. With u its seconds, of T seconds of a
run, T_0 on an ideal network (messages take no time), the sum U of u over the ranks, and U_b that of
the baseline:

    load balance = mean(u) / max(u)         communication = max(u) / T
    serialisation = max(u) / T_0            transfer = T_0 / T
    computation scalability = U_b / U

Source of the definitions: https://co-design.pop-coe.eu/metrics/ (POP standard metrics).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from p3s.base.arrays import Floats
from p3s.base.text import processes
from p3s.predict.estimated import ESTIMATORS, SOFTWARE
from p3s.predict.estimates import Estimate as Told
from p3s.predict.residual import RunMeasurement
from p3s.predict.times import (
    OWN,
    RESIDUAL,
    Ends,
    Factors,
    PhaseTimes,
    Rival,
    draws,
    ends_of,
    evenly,
    known_ends,
    own_parts,
    ratio,
)
from p3s.predict.types import (
    Because,
    Count,
    Efficiencies,
    Estimate,
    IntervalParts,
    Limit,
    PhaseAt,
    Recommended,
    part_s,
)

#: Parts of the communication that not every estimator tells apart.
COMM_PARTS = ("waiting", "transfer", "software")
_SUMMED = ("time", "compute", "io", "comm", *COMM_PARTS)
_SECONDS_PER_HOUR = 3600.0
#: Ranks whose times differ by less than this share need equally long, and about as long.
_SAME, _ABOUT_SAME = 1e-3, 0.05


def row_of(times: PhaseTimes, run: RunMeasurement | None, others: Mapping[str, Told]) -> Count:
    """Return the row of one count, without its speedup and its cost (:func:`add_speedup`).

    Its interval is that of the estimate itself; :func:`with_interval` adds the rest. ``others``:
    what every estimator says, or why it says nothing. The time is what was measured where that
    tells how fast the program is.
    """
    phases, own = phases_of(times), own_parts(times)
    comm_low, comm_high = comm_ends(times)
    seconds = _seconds(phases, own)
    made = {**others, times.mpi.estimator: times}
    row = Count(
        n=times.n,
        **seconds,
        time_from="model",
        model_s=seconds["time_s"],
        model_low_s=seconds["low_s"],
        model_high_s=seconds["high_s"],
        work_s=float(times.compute.sum(axis=1).max()) if times.compute.size else 0.0,
        measured=run is not None,
        measured_s=run.wall_s if run is not None else None,
        measured_work_s=run.work_s if run is not None and math.isfinite(run.work_s) else None,
        representative=not times.mpi.why_not if run is None else run.representative,
        model_representative=not times.mpi.why_not,
        contradicts=run is not None and run.contradicts,
        estimator=times.mpi.estimator,
        estimators={name: _estimate(made.get(name, "was not asked for")) for name in ESTIMATORS},
        phases=phases,
        interval_parts=IntervalParts(**(own or dict.fromkeys(OWN)), residual=None),
        cost_core_h=0.0,
        speedup=0.0,
        speedup_low=None,
        speedup_high=None,
        efficiency=0.0,
        stand_ins=times.mpi.stand_ins,
        comm_low_s=comm_low,
        comm_high_s=comm_high,
    )
    if run is None or not run.representative:
        return row
    return replace(
        row, time_s=run.wall_s, low_s=run.wall_s, high_s=run.wall_max_s, time_from="measured"
    )


def _seconds(phases: Sequence[PhaseAt], own: Mapping[str, Factors | None] | None) -> dict[str, Any]:
    """Return the run time, its parts and the ends of its interval by parts of that.

    A part is None where a phase does not know it, the ends are where these parts are not known.
    """
    sums: dict[str, float | None] = {}
    for part in _SUMMED:
        values = [part_s(phase, part) for phase in phases]
        known = [value for value in values if value is not None]
        sums[f"{part}_s"] = float(sum(known)) if len(known) == len(values) else None
    sums["low_s"], sums["high_s"] = _scale_ends(sums["time_s"] or 0.0, own)
    return sums


def _estimate(made: Told) -> Estimate:
    """Return what an estimator says of the run time, or why it says nothing."""
    if isinstance(made, str):
        nothing = dict.fromkeys([*(f"{part}_s" for part in _SUMMED), "low_s", "high_s"])
        return Estimate(**nothing, why_not=made, notes=())
    seconds = _seconds(phases_of(made), own_parts(made))
    return Estimate(**seconds, why_not=made.mpi.why_not, notes=made.mpi.notes)


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
        ends = _scale_ends(phase.time_s, None if own is None else {**own, RESIDUAL: residual})
        phases.append(replace(phase, low_s=ends[0], high_s=ends[1]))
    row = replace(
        row, interval_parts=parts, model_low_s=low, model_high_s=high, phases=tuple(phases)
    )
    return replace(row, low_s=low, high_s=high) if row.time_from == "model" else row


def _scale_ends(seconds: float, parts: Mapping[str, Factors | None] | None) -> Ends:
    """Return the ends of a time by its parts, None where they are not known."""
    low, high = known_ends(None if parts is None else draws(parts))
    return (None, None) if low is None or high is None else (seconds * low, seconds * high)


def draw_times(row: Count) -> Floats | None:
    """Return the draws of a row's time in s, (NUMBER,); None: its interval is not known.

    A measured time lies evenly between its repeats' ends.
    """
    low, high = row.low_s, row.high_s
    if low is None or high is None:
        return None
    if row.time_from == "measured":
        return evenly(low, high)
    return row.time_s * row.interval_parts.draws()


def add_speedup(row: Count, base: Count, work: float = 1.0) -> Count:
    """Return a row with its cost, and speedup and efficiency relative to the baseline.

    Cost: one core per process. ``work``: how many times as much there is to do as at the baseline;
    speedups are those of the work.
    """
    speedup = work * base.time_s / row.time_s if row.time_s > 0 else 0.0
    ends = known_ends(ratio(draw_times(base), draw_times(row), work), speedup)
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
    whole = times.whole.sum(axis=1)
    late = np.flatnonzero(whole >= (1.0 - _SAME) * whole.max())
    return int(late[np.argmax(times.compute[late].sum(axis=1))])


def comm_ends(times: PhaseTimes) -> tuple[float, float]:
    """Return the ends of the communication of the slowest rank, in seconds.

    Which rank that is, is known no better than how long ranks take: the ends hold those of all
    that take about as long, or may do where others were simulated in their place.
    """
    whole = times.whole.sum(axis=1)
    late = whole >= (1.0 - _ABOUT_SAME) * whole.max()
    if times.mpi.stand_ins is not None:
        late |= (times.own + times.mpi.high).sum(axis=1) >= whole.max()
    low, high = (ends[late].sum(axis=1) for ends in (times.mpi.low, times.mpi.high))
    return float(low.min()), float(high.max())


def shown_ranks(times: PhaseTimes) -> list[int]:
    """Return the rank whose times are shown of each phase: that which needs longest in all.

    Of the thesis's sum (Eq. 8.1) that which needs longest in the phase.
    """
    if times.mpi.estimator == "thesis":
        ranks: list[int] = times.whole.argmax(axis=0).tolist()
        return ranks
    return [slowest_rank(times)] * len(times.phases)


def phases_of(times: PhaseTimes) -> tuple[PhaseAt, ...]:
    """Return the phases with their times, of the ranks that are shown; without their intervals."""
    rows = []
    for slot, (phase, slowest) in enumerate(zip(times.phases, shown_ranks(times), strict=True)):
        seconds = float(times.compute[slowest, slot])
        talked, *parts = (float(part) for part in times.mpi.seconds[: SOFTWARE + 1, slowest, slot])
        waiting, transfer, software = (known if math.isfinite(known) else None for known in parts)
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
                crm_i_s=_of_ns(phase.get("crm_i_ns")),
                crm_c_s=_of_ns(phase.get("crm_c_ns")),
                comm_s=talked,
                waiting_s=waiting,
                transfer_s=transfer,
                software_s=software,
                io_s=filed,
                x=_pair(phase.get("x")),
                covered=_pair(phase.get("covered")),
                outside=phase.get("outside"),
                below=phase.get("below"),
            )
        )
    return tuple(rows)


def _pair(ends: Sequence[float] | None) -> tuple[float, float] | None:
    return None if ends is None else (ends[0], ends[1])


def _of_ns(ns: float | None) -> float | None:
    return None if ns is None else ns / 1e9


def efficiencies(
    mean_s: float, most_s: float, run_s: float | None, scalability: float | None
) -> Efficiencies | None:
    """Return the efficiencies of a run, without those that an ideal network tells apart.

    ``mean_s``, ``most_s``: computation of a rank in the mean, and of the one with most, in s;
    ``run_s``: run time, None where it does not tell. None where nothing is computed.
    """
    if not (math.isfinite(mean_s) and most_s > 0.0) or (run_s is not None and run_s <= 0.0):
        return None
    parallel = None if run_s is None else mean_s / run_s
    return Efficiencies(
        load_balance=mean_s / most_s,
        communication=None if run_s is None else most_s / run_s,
        serialisation=None,
        transfer=None,
        parallel=parallel,
        computation_scalability=scalability,
        global_efficiency=None
        if parallel is None or scalability is None
        else parallel * scalability,
    )


def with_efficiencies(
    rows: Sequence[Count],
    times: Mapping[int, PhaseTimes],
    runs: Mapping[int, RunMeasurement],
    base_n: int,
    *,
    weak: bool,
) -> list[Count]:
    """Return rows with the efficiencies of the model, and of the runs as far as these tell.

    ``weak``: the work grows with the count, so that there is no computation scalability.
    """
    model = {} if weak else {n: float(made.compute.sum()) for n, made in times.items()}
    seen = {} if weak else {n: statistics.median(r.totals_s) for n, r in runs.items() if r.totals_s}
    return [
        replace(
            row,
            pop=_of_model(times[row.n], _over(model, base_n, row.n)),
            pop_measured=_of_run(runs.get(row.n), _over(seen, base_n, row.n)),
        )
        for row in rows
    ]


def with_transfer(row: Count, share: float) -> Count:
    """Return a row with what an ideal network tells apart; ``share``: T_0 / T of its simulation."""
    found = row.pop
    if found is None or found.communication is None or share <= 0.0:
        return row
    parts = replace(found, transfer=share, serialisation=found.communication / share)
    return replace(row, pop=parts)


def _over(totals: Mapping[int, float], base_n: int, n: int) -> float | None:
    """Return the computation of all ranks at the baseline over that at a count."""
    base, here = totals.get(base_n), totals.get(n)
    return None if base is None or here is None or not here > 0.0 else base / here


def _of_model(made: PhaseTimes, scalability: float | None) -> Efficiencies | None:
    if not made.compute.size:
        return None
    ranks = made.compute.sum(axis=1)
    run_s = made.run_s
    found = efficiencies(float(ranks.mean()), float(ranks.max()), run_s, scalability)
    if found is None or made.n > 1:
        return found
    return replace(found, transfer=1.0, serialisation=found.communication)  # nobody to wait for


def _of_run(run: RunMeasurement | None, scalability: float | None) -> Efficiencies | None:
    """Return the efficiencies of a run; only those of its computation where its time tells none."""
    if run is None or not run.totals_s:
        return None
    mean = statistics.median(run.totals_s) / run.np
    return efficiencies(mean, run.work_s, run.wall_s if run.representative else None, scalability)


def knee(rows: Sequence[Count], threshold: float) -> int | None:
    """Return the smallest count from which the efficiency stays below the threshold."""
    found = None
    for row in reversed(rows):
        if row.efficiency >= threshold:
            break
        found = row.n
    return found


def recommend_count(
    rows: Sequence[Count], threshold: float, admits: Callable[[int], bool] | None = None
) -> Recommended | None:
    """Return the largest count on the curve that is efficient enough, its efficiency and why.

    Only counts that were predicted or measured and that the program takes (``admits``). None
    with a single count, and where times rest on communication that is not representative: they
    do not tell how fast the program is.
    """
    if len(rows) < 2 or any(
        row.time_from != "measured" and not row.model_representative for row in rows
    ):
        return None
    good = [
        row for row in rows if row.efficiency >= threshold and (admits is None or admits(row.n))
    ]
    if not good:
        return None
    best, limit = good[-1], f"{100 * threshold:.0f} %"
    why = f"the largest of the counts with an efficiency of {limit} or more"
    behind = [row for row in rows if row.n > best.n]
    if not behind:
        why += "; larger ones were not predicted"
    elif (at := crossing(best, behind[0], threshold)) is not None:
        why += f"; between {best.n} and {behind[0].n} it falls to {limit} at about {at}"
    return Recommended(best.n, best.efficiency, why)


def crossing(one: Count, other: Count, threshold: float) -> int | None:
    """Return the count at which the efficiency reaches a threshold between two rows.

    Straight in the efficiency over the logarithm of the count; None where it does not.
    """
    high, low = one.efficiency, other.efficiency
    if not high >= threshold > low:
        return None
    share = (high - threshold) / (high - low)
    result: int | None = round(one.n * math.exp(share * math.log(other.n / one.n)))
    return result


PARTS: tuple[Because, ...] = ("compute", "io", "transfer", "waiting", "software")
#: Phases with less than this share of the lost core time are not named.
LEAST_SHARE = 0.001

_WORDS = {
    "compute": "computation that does not shrink with the number of processes",
    "io": "files",
    "transfer": "transfer of messages",
    "waiting": "waiting for other ranks",
    "software": "the calls themselves",
}


def limits(rows: Sequence[Count], threshold: float, *, weak: bool = False) -> tuple[Limit, ...]:
    """Return the phases that lose core time from the smallest to the largest count, worst first.

    Lost core time of phase i at n: n t_i(n) - n0 t_i(n0), of the model; in ``weak`` scaling
    n t_i(n) - n t_i(n0). ``share``: of what all phases that lose any lose together; ``n``: from
    which count on this phase alone, all others scaling ideally, keeps the efficiency below the
    threshold (between two counts straight in log n), None if not at the largest; ``because``: the
    part that has grown most.
    """
    if len(rows) < 2:
        return ()
    base, last = rows[0], rows[-1]

    def ideal(row: Count) -> int:
        """Return by what seconds at the base are multiplied to give the ideal core time."""
        return row.n if weak else base.n

    def lost(row: Count, key: int, part: str = "time") -> float:
        return row.n * _phase_seconds(row, key, part) - ideal(row) * _phase_seconds(base, key, part)

    phases = {phase.phase: phase for phase in last.phases}
    losses = {key: lost(last, key) for key in phases}
    whole = sum(value for value in losses.values() if value > 0)
    found = []
    for key, value in sorted(losses.items(), key=lambda item: -item[1]):
        if value <= 0 or value < LEAST_SHARE * whole:
            continue
        phase, share = phases[key], value / whole
        parts = {part: lost(last, key, part) for part in PARTS}
        if all(part_s(phase, part) is None for part in PARTS[2:]):
            # an estimator that does not tell the parts of communication apart
            parts["transfer"] = lost(last, key, "comm")
        because = max(PARTS, key=lambda part: parts[part])
        at = None
        if 0.0 < threshold < 1.0 and base.model_s > 0.0:
            spare = [ideal(row) * base.model_s * (1.0 / threshold - 1.0) for row in rows]
            ratios = [lost(row, key) / most for row, most in zip(rows, spare, strict=True)]
            at = _find_crossing([row.n for row in rows], ratios)
        text = _text(phase, share, because, last.n, at, threshold)
        found.append(Limit(key, phase.name, at, share, because, text))
    return tuple(found)


def _phase_seconds(row: Count, key: int, part: str) -> float:
    return next((part_s(each, part) or 0.0 for each in row.phases if each.phase == key), 0.0)


def _find_crossing(counts: Sequence[int], ratios: Sequence[float]) -> int | None:
    """Return from which count on a ratio stays above 1, straight in log n between two counts."""
    below = [at for at, ratio in enumerate(ratios) if ratio <= 1.0]
    if not below or below[-1] == len(ratios) - 1:
        return None
    at = below[-1]
    share = (1.0 - ratios[at]) / (ratios[at + 1] - ratios[at])
    grown: float = (counts[at + 1] / counts[at]) ** share
    return min(math.ceil(counts[at] * grown), counts[at + 1])


def _text(
    phase: PhaseAt, share: float, because: Because, n: int, at: int | None, threshold: float
) -> str:
    text = (
        f"phase {phase.name}: {100 * share:.0f} % of the core time lost at {processes(n)}, "
        f"mostly {_WORDS[because]}"
    )
    if at is not None:
        text += (
            f"; alone it would bring the efficiency below {100 * threshold:.0f} % from "
            f"{processes(at)} on"
        )
    return text
