"""Computation at any count: work of the model times the cost that its laws say.

Of all ranks in ns, and as the compute table: time of one process in one iteration of each phase.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import sqrt
from typing import Any

import numpy as np

from p3s.base.errors import P3SError
from p3s.base.serialise import to_data
from p3s.costs.gather import factors_at, in_the_run, weights_at, work_of
from p3s.costs.types import ComputeModel, LawEntry, Laws, PhaseTime, PowerLaw, Row
from p3s.model.evaluate import SPREAD_RUN, Evaluator, spread_ranks
from p3s.model.types import Model
from p3s.model.work.scic import next_sizes
from p3s.model.work.workload import RankWork, sum_by_phase
from p3s.signature.clock import TIMES

#: Ranks that compute less than this share of the mean do not decide how far a phase is outside.
IDLE_SHARE = 0.1
#: Share of the computation of a law that has none, among those whose factors err together.
_LEAST_SHARE = 1e-6


@dataclass(frozen=True)
class ComputationTimes:
    """Computation of some ranks in ns over the run, and what it rests on.

    ranks: ascending. ns: (places, ranks), typical time (as the median of repeats) before the calls
    of a place. cost: ns per unit of work, of the same shape; rest: (phases, ranks), the cost of
    work that has no place. x: (phases, ranks), work per iteration. law: number of the law of each
    place. work_ns: (phases, ranks), half width of the time that comes from the work; cost_low,
    cost_high: (places, ranks), from the cost, below and above. phase: of each place; runs: whether
    it lies in the run, as a column.
    """

    ranks: np.ndarray
    ns: np.ndarray
    cost: np.ndarray
    rest: np.ndarray
    x: np.ndarray
    law: np.ndarray
    work_ns: np.ndarray
    cost_low: np.ndarray
    cost_high: np.ndarray
    phase: np.ndarray
    runs: np.ndarray


class Costs:
    """The cost laws of compute.json, ready to be used with a model's work."""

    def __init__(self, compute: ComputeModel, model: Model) -> None:
        self.model = model
        self.laws = Laws(compute.laws, compute.rest)
        self.shared = {(site, op): work for site, op, work in compute.shared}
        self.phases = {p.phase: p for p in compute.phases}
        self.teams = compute.teams
        self._factors: dict[int, np.ndarray] = {}

    def weights(self, grid: Any) -> np.ndarray:
        """Return the iterations of every phase at the grid's count, at least 1."""
        return weights_at(self.model, grid, traced=False)

    def of(self, grid: Any, found: RankWork) -> ComputationTimes:
        """Return the time of the computation in ``found`` (of ``rank_work``, with half widths).

        Where work is time itself its law was corrected by the cost at every measured x, so that
        its error is in that of the cost; it comes back with the first doubling beyond them.
        """
        phase = found.phases
        runs = in_the_run([p.place for p in found.places])
        weight = self.weights(grid)
        x = sum_by_phase(np.where(runs, found.work, 0.0), phase, len(weight)) / weight[:, None]
        for k, phase_ in self.phases.items():
            if phase_.x_times_n and k < len(x):  # where work is time
                x[k] = np.where(x[k] > 0, phase_.x_times_n / grid.n, 0.0)
        law = np.array(
            [
                self.laws.number(k, p.place)
                for k, p in zip(phase.tolist(), found.places, strict=True)
            ],
            dtype=np.int64,
        )
        shape = found.work.shape
        cost, low, high, outside = np.zeros((4, *shape))
        rest = np.zeros(x.shape)
        for k in range(len(weight)):
            value, place = np.unique(x[k], return_inverse=True)
            mine = np.flatnonzero(phase == k)
            for number in np.unique(law[mine]).tolist():
                rows = mine[law[mine] == number]
                c, lo, hi = self._evaluate(number, value)
                cost[rows], low[rows], high[rows] = c[place], lo[place], hi[place]
                outside[rows] = np.asarray(self.laws.law(number).outside(value))[place]
            rest[k] = self._evaluate(self.laws.number(k), value)[0][place]
        if self.shared:
            cost = cost * self._shared(grid.n)[:, None]
        if self.teams is not None:
            team = np.array([self.teams.of(k, grid.n)[0] for k in range(len(weight))])
            cost, rest = cost * team[phase][:, None], rest * team[:, None]
        ns = found.work * cost
        # what a call that is not made leaves is done before the next one, at the cost it has
        ns, below, above = map(found.carried, (ns, ns * low, ns * high))
        work = found.carried(found.work)
        cost = np.divide(ns, work, out=cost, where=work > 0)
        return ComputationTimes(
            found.ranks,
            ns,
            cost,
            rest,
            x,
            law,
            self._of_work(found, np.where(runs, ns, 0.0), np.where(runs, work, 0.0), outside),
            below,
            above,
            phase,
            runs,
        )

    def _of_work(
        self, found: RankWork, ns: np.ndarray, work: np.ndarray, outside: np.ndarray
    ) -> np.ndarray:
        """Return the half width of the time per (phase, rank) that comes from the work's."""
        phases = len(found.half_width)
        total = sum_by_phase(work, found.phases, phases)
        time = sum_by_phase(ns, found.phases, phases)
        half = np.divide(found.half_width * time, total, out=np.zeros_like(time), where=total > 0)
        if self.model.work_unit in TIMES:  # at measured counts the cost corrects the work
            far = np.ones(phases)
            np.maximum.at(far, found.phases, outside.max(axis=1, initial=1.0))
            half *= np.minimum(np.log2(far), 1.0)[:, None]
        return np.asarray(half)

    def _shared(self, n: int) -> np.ndarray:
        """Return what shared work is to the modelled one by place."""
        if n not in self._factors:
            self._factors[n] = factors_at(self.model, self.shared, n)
        return self._factors[n]

    def _evaluate(self, number: int, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the typical cost at each x and its relative errors, below and above."""
        law = self.laws.law(number)
        cost = np.maximum(np.asarray(law.typical(x), dtype=float), 0.0)
        low, high = (np.asarray(end, dtype=float) for end in law.interval(x))
        one = np.maximum(cost, 1e-300)
        return cost, np.clip(1.0 - low / one, 0.0, 1.0), np.maximum(high / one - 1.0, 0.0)


class PhaseSums:
    """Sums over the ranks of a scaled trace, some ranks at a time, per phase.

    ns: computation of all ranks; x: sum of their work per iteration; ranks: how many have any.
    """

    def __init__(self, costs: Costs) -> None:
        self.costs = costs
        phases = len(costs.model.phases)
        self.ns, self.x, self.ranks = np.zeros((3, phases))
        self.least = np.full(phases, np.inf)
        self.most = np.zeros(phases)
        #: by (phase, law) and by phase: time times relative error, summed over ranks
        self.cost_error: dict[tuple[int, int], np.ndarray] = {}
        self.work_error = np.zeros(phases)

    def add(self, timed: ComputationTimes, times: float = 1.0) -> None:
        """Take in ranks, each for so many. What is computed before MPI_Init ends is left out."""
        ns = np.where(timed.runs, timed.ns, 0.0)
        phases = len(self.ns)
        per_rank = sum_by_phase(ns, timed.phase, phases)
        self.ns += times * per_rank.sum(axis=1)
        self.x += times * timed.x.sum(axis=1)
        self.ranks += times * (timed.x > 0).sum(axis=1)
        for k in range(phases):
            busy = per_rank[k] > IDLE_SHARE * max(float(per_rank[k].mean()), 0.0)
            if busy.any():
                self.least[k] = min(self.least[k], float(timed.x[k][busy].min()))
                self.most[k] = max(self.most[k], float(timed.x[k][busy].max()))
        # Ranks share their laws, so their errors add up; so do those of places with one law.
        self.work_error += times * timed.work_ns.sum(axis=1)
        low, high = (
            np.where(timed.runs, part, 0.0).sum(axis=1)
            for part in (timed.cost_low, timed.cost_high)
        )
        both = times * np.stack([low, high], axis=1)
        for row, (k, number) in enumerate(
            zip(timed.phase.tolist(), timed.law.tolist(), strict=True)
        ):
            there = self.cost_error.get((k, number))
            self.cost_error[k, number] = both[row] if there is None else there + both[row]

    def of_phase(self, k: int, grid: Any) -> PhaseTime:
        """Return what scaled.json says of the computation of a phase.

        The errors of different laws are independent, of cost and of work; the factors that moved
        laws to another machine rest on the same two files and err together.
        """
        total = float(self.ns[k])
        squares = np.zeros(2)
        for (phase, _), error in self.cost_error.items():
            squares += error**2 if phase == k else 0.0
        work = float(self.work_error[k]) ** 2
        below, above = (np.sqrt(squares + work) / total).tolist() if total > 0 else (0.0, 0.0)
        if self.costs.teams is not None and total > 0:
            value, low, high = self.costs.teams.of(k, grid.n)
            below, above = np.hypot(below, 1 - low / value), np.hypot(above, high / value - 1)
        busy = bool(np.isfinite(self.least[k]))
        x = (float(self.least[k]), float(self.most[k])) if busy else None
        ends = common_error(self.costs.laws.entries, k, x) or (1.0, 1.0)
        weight = float(self.costs.weights(grid)[k])
        costs = self.costs.phases.get(k)
        crm_i, crm_c = (
            weight * float(law.value(grid.n)) if law else None
            for law in ((costs.crm_i, costs.crm_c) if costs else (None, None))
        )
        covered, outside, below_it = costs.x if costs and busy else None, 1.0, None
        if x and covered and x[0] > 0:
            less, more = covered[0] / x[0], x[1] / covered[1]
            outside, below_it = max(1.0, less, more), less >= more
        return PhaseTime(
            compute_ns=total,
            compute_low=min(max(1.0 - below, 0.0), ends[0]),
            compute_high=max(1.0 + above, ends[1]),
            work_error=float(np.sqrt(work)) / total if total > 0 else 0.0,
            x=x,
            covered=covered,
            outside=outside,
            below=below_it,
            crm_i_ns=crm_i,
            crm_c_ns=crm_c,
        )

    def data_of(self, k: int, grid: Any) -> dict[str, Any]:
        """Return :meth:`of_phase` as plain data."""
        data: dict[str, Any] = to_data(self.of_phase(k, grid))
        return data


def common_error(
    laws: Sequence[LawEntry], k: int, x: Sequence[float] | None
) -> tuple[float, float] | None:
    """Return what a phase's computation may be a multiple of by its factors; None: unknown.

    The errors of its laws' factors at its work per iteration, x, by their shares of the time.
    """
    mine = [e for e in laws if e.phase == k and e.kind != "phase" and e.factor is not None]
    if not x or not mine:
        return None
    middle = sqrt(max(float(x[0]), 1e-300) * max(float(x[1]), 1e-300))
    share = np.array([max(entry.share, _LEAST_SHARE) for entry in mine])
    value, low, high = np.array([e.factor.of(middle) for e in mine if e.factor is not None]).T
    return float(share @ (low / value) / share.sum()), float(share @ (high / value) / share.sum())


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
                found.outside,
                crm_i,
                crm_c,
            )
        )
    return out
