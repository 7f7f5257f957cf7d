"""How a program scales: efficiencies, the knee, the count to run at, and what limits it.

Efficiencies have the names of the POP project: what of the core time is useful computation.

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

from p3s.base.text import processes
from p3s.predict.residual import RunMeasurement
from p3s.predict.times import PhaseTimes
from p3s.predict.types import Because, Count, Efficiencies, Limit, PhaseAt, Recommended, part_s


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


#: Efficiency below which more processes are not worth it.
KNEE_EFFICIENCY = 0.5


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
        return row.n * _seconds(row, key, part) - ideal(row) * _seconds(base, key, part)

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


def _seconds(row: Count, key: int, part: str) -> float:
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
