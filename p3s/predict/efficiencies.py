"""Efficiencies by the names of the POP project: what of the core time is useful computation.

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
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from p3s.predict.intervals import total
from p3s.predict.types import Count, Efficiencies

if TYPE_CHECKING:
    from p3s.predict.measured import Measured
    from p3s.predict.times import PhaseTimes


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
    runs: Mapping[int, Measured],
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
    run_s = total(made.own + made.comm, made.estimator)
    found = efficiencies(float(ranks.mean()), float(ranks.max()), run_s, scalability)
    if found is None or made.n > 1:
        return found
    return replace(found, transfer=1.0, serialisation=found.communication)  # nobody to wait for


def _of_run(run: Measured | None, scalability: float | None) -> Efficiencies | None:
    """Return the efficiencies of a run; only those of its computation where its time tells none."""
    if run is None or not run.totals_s:
        return None
    mean = statistics.median(run.totals_s) / run.np
    return efficiencies(mean, run.work_s, run.wall_s if run.representative else None, scalability)
