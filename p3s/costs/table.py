"""The compute table: time of one process in one iteration of each phase, measured and predicted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from p3s.base.errors import P3SError
from p3s.base.text import percent, visible
from p3s.costs.apply import Costs, PhaseSums
from p3s.costs.gather import work_of
from p3s.costs.thesis import PowerLaw
from p3s.costs.types import NO_TIME, NO_WORK, ComputeModel, LawEntry, Row
from p3s.model.evaluate import SPREAD_RUN, Evaluator, spread_ranks
from p3s.model.types import Model
from p3s.model.work.scic import next_sizes

#: Phases below this share of the computation are listed in the end, in one line.
SHOWN = 0.01
#: Why no cost of a phase's computation is known.
_WHY = {
    NO_WORK: "nothing says how its computation grows, so predictions leave it out",
    NO_TIME: "no run measured how long its computation takes, so that of the rest stands in",
}
#: Ranks evaluated at a time, and up to how many all of them are.
_RANKS, EVERY_RANK = 1024, 1 << 18


def compute_table(model: Model, compute: ComputeModel, counts: Iterable[int] = ()) -> list[Row]:
    """Return the rows of all phases that compute: measured ones by source and count, predicted.

    counts: where to predict; without any, a few larger ones of the same kind as the traced ones.
    Raises P3SError for a count asked for that the program's process grid does not admit.
    """
    costs = Costs(compute, model)
    rows = [
        replace(
            row, crm_i=_evaluate_law(phase.crm_i, row.n), crm_c=_evaluate_law(phase.crm_c, row.n)
        )
        for phase in compute.phases
        for row in phase.turns
    ]
    asked = sorted(set(counts))
    for n in asked or next_sizes(model.counts):
        try:
            rows += _predict_rows(costs, n)
        except P3SError:
            if asked:
                raise
    order = {"own": 0, "predicted": 2}
    return sorted(
        rows, key=lambda r: (r.phase, order.get(r.source, 1), r.source, r.n or 0.0, r.traced)
    )


def _evaluate_law(law: PowerLaw | None, n: float | None) -> float | None:
    return float(law.value(n)) if law is not None and n else None


def predicted_sums(costs: Costs, n: int) -> tuple[PhaseSums, Any]:
    """Return the sums over all ranks at ``n`` processes, and the process grid.

    Of more than EVERY_RANK, ranks that are spread evenly stand for all but the first and the last.
    """
    evaluator = Evaluator(costs.model, n)
    sums = PhaseSums(costs)
    for ranks, times in _batch_ranks(n):
        rows = evaluator.rows(ranks)
        sums.add(costs.of(evaluator.grid, work_of(costs.model, rows)), times)
    return sums, evaluator.grid


def _batch_ranks(n: int) -> Iterator[tuple[np.ndarray, float]]:
    """Yield ranks, some at a time, and how many each of them counts for."""
    if n <= EVERY_RANK:
        for first in range(0, n, _RANKS):
            yield np.arange(first, min(first + _RANKS, n)), 1.0
        return
    some = spread_ranks(n)
    ends = (some < SPREAD_RUN) | (some >= n - SPREAD_RUN)
    yield some[ends], 1.0  # a root or a border would count for many
    between = some[~ends]
    for part in np.array_split(between, range(_RANKS, len(between), _RANKS)):
        yield part, (n - int(ends.sum())) / len(between)


def _predict_rows(costs: Costs, n: int) -> list[Row]:
    sums, grid = predicted_sums(costs, n)
    weight = costs.weights(grid)
    out = []
    for k in range(len(weight)):
        if not sums.ranks[k] or not sums.ns[k]:
            continue
        found = sums.of_phase(k, grid)
        one = float(sums.ns[k] / sums.ranks[k] / weight[k])
        crm_i, crm_c = (
            float(ns / weight[k]) if ns is not None else None
            for ns in (found.crm_i_ns, found.crm_c_ns)
        )
        out.append(
            Row(
                k,
                "predicted",
                float(n),
                n,
                float(sums.x[k] / sums.ranks[k]),
                None,
                one,
                one * found.compute_low,
                one * found.compute_high,
                found.span.outside if found.span else 1.0,
                crm_i,
                crm_c,
            )
        )
    return out


def unknown_costs(compute: ComputeModel) -> list[str]:
    """Return the phases of whose computation no cost is known, and why, a sentence each."""
    return [
        f"phase {p.phase} ({visible(str(p.name))}): {_WHY[p.unknown.code]} "
        f"({percent(p.unknown.share)} of all computation)"
        for p in compute.phases
        if p.unknown and p.unknown.share >= SHOWN
    ]


def shares(compute: ComputeModel) -> dict[int, float]:
    """Return the share of the computation of each phase at the largest traced count."""
    return {entry.phase: entry.share for entry in compute.laws if entry.kind == "phase"}


def laws_of(compute: ComputeModel, phase: int) -> Sequence[LawEntry]:
    """Return the entries of ``laws`` of a phase, the phase as a whole first."""
    mine = [e for e in compute.laws if e.phase == phase]
    return sorted(mine, key=lambda e: (e.kind != "phase", -e.share))
