"""The computation of runs by places and ranks of a model: work, time, and points of both."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from p3s.base.ops import INIT_OPS
from p3s.costs.points import OWN, Iterations, Place, Point
from p3s.model.evaluate import Evaluator, ScaledRows, generate, phase_weight
from p3s.model.tripcounts import as_traced
from p3s.model.types import Model
from p3s.model.work.balance import undrawn
from p3s.model.work.scic import instruction_groups
from p3s.model.work.workload import RankWork, rank_work, sum_by_phase
from p3s.signature.clock import TIMES
from p3s.signature.times import Times

#: Places below this share of the time at every count, or of this time per occurrence, are pooled.
SMALL_SHARE, SMALL_NS = 0.01, 2000.0


@dataclass(frozen=True)
class Spent:
    """Time before the calls of each place in the runs of one count, and the work done in it.

    least, typical: (places, ranks), ns over the run, of the repeats; work: of the same shape,
    what is known to have been done in that time; repeats: runs. MPI_Init takes none.
    """

    least: np.ndarray
    typical: np.ndarray
    work: np.ndarray
    repeats: int


@dataclass(frozen=True)
class TracedComputation(Spent):
    """The computation at one traced count, by place and rank of a model.

    n: count; places, phase: place and phase of each row; calls: (places, ranks), occurrences; x:
    (phases, ranks), work of a rank per iteration; weight: iterations of each phase. segments:
    (phase of each row of the times, its quantile_ns, least_ns and count), rows of the run only.
    own_cores: each rank had a core of its own, and nothing disturbed that."""

    n: int
    places: Sequence[Place]
    phase: np.ndarray
    calls: np.ndarray
    x: np.ndarray
    weight: np.ndarray
    segments: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
    own_cores: bool = False

    def per_phase(self, values: np.ndarray) -> np.ndarray:
        """Return values per (place, rank) summed to (phase, rank)."""
        return sum_by_phase(values, self.phase, len(self.weight))


def places_of(model: Model) -> tuple[list[Place], np.ndarray]:
    """Return the places of a model and the phase of each, in the order of ``rank_work``."""
    places = [(p.place, phase.phase) for phase in model.phases for p in phase.work.places]
    return [p for p, _ in places], np.array([k for _, k in places], dtype=np.int64)


def weights_at(model: Model, grid: Any, traced: bool = True) -> np.ndarray:
    """Return the iterations of every phase in a run on a grid, at least 1; traced: those that were
    at its count, if any, else by the law."""
    known = [dict(p.weight_points).get(grid.n) if traced else None for p in model.phases]
    found = [k or float(phase_weight(p, grid)) for k, p in zip(known, model.phases, strict=True)]
    return np.maximum(found, 1.0)


def work_of(model: Model, rows: ScaledRows, widths: bool = True) -> RankWork:
    """Return the work of the ranks in rows of a scaled trace; widths: with half widths."""
    columns = {name: getattr(rows, name) for name in ("rank", "item", "nbytes", "repeat")}
    return rank_work(model, rows.grid, columns, widths, rows.means)


def by_place_and_rank(
    place: np.ndarray, rank: np.ndarray, values: np.ndarray, shape: tuple[int, int]
) -> np.ndarray:
    """Return the sums of values by (place, rank); those of place -1 are left out."""
    mine = place >= 0
    cell = place[mine] * shape[1] + rank[mine]
    weights = np.asarray(values, dtype=float)[mine]
    return np.bincount(cell, weights=weights, minlength=shape[0] * shape[1]).reshape(shape)


def numbers_of(places: Sequence[Place], nodes: Iterable[Place]) -> np.ndarray:
    """Return the number of each node among the places, -1 for others, and -1 at the end."""
    number = {place: k for k, place in enumerate(places)}
    return np.array([*(number.get(node, -1) for node in nodes), -1], dtype=np.int64)


def in_the_run(places: Sequence[Place]) -> np.ndarray:
    """Return which places lie in the run, as a column: all but MPI_Init."""
    return np.array([[op not in INIT_OPS] for _, op in places], dtype=bool).reshape(-1, 1)


def modelled_work(model: Model, n: int) -> tuple[np.ndarray, Any]:
    """Return the work that the model says for a traced count, (places, ranks), and the grid.

    Ranks that are drawn are even: these are others than in the run.
    """
    there = undrawn(as_traced(model, n))
    rows = generate(there, n, work=False)
    found = work_of(there, rows, widths=False)
    work = np.zeros((len(found.places), n))
    work[:, found.ranks] = found.work
    return np.where(in_the_run([p.place for p in found.places]), work, 0.0), rows.grid


def spent_in(places: Sequence[Place], times: Times) -> Spent:
    """Return the time of runs before each place of a model."""
    place = numbers_of(places, times.nodes)[times.to_node]
    least, typical, work = (
        by_place_and_rank(place, times.rank, values, (len(places), times.np)) * in_the_run(places)
        for values in (times.least_ns, times.median_ns, times.work)
    )
    return Spent(least, typical, work, max(len(times.runs), 1))


def measured_at(model: Model, times: Times, own_cores: bool = False) -> TracedComputation:
    """Return the computation of a study's own run by places and ranks of its model.

    Work is what was measured where it is counted (instructions), what the model says where work is
    time itself: its cost, a factor around 1, then corrects the model.
    """
    places, phase = places_of(model)
    said, grid = modelled_work(model, times.np)
    spent = spent_in(places, times)
    place = numbers_of(places, times.nodes)[times.to_node]
    calls = by_place_and_rank(place, times.rank, times.count, spent.work.shape)
    work = said if times.work_unit in TIMES else spent.work
    weight = weights_at(model, grid)
    runs = np.flatnonzero(place >= 0)
    runs = runs[in_the_run(places)[place[runs], 0]]
    return TracedComputation(
        spent.least,
        spent.typical,
        work,
        spent.repeats,
        times.np,
        places,
        phase,
        calls * in_the_run(places),
        sum_by_phase(work, phase, len(weight)) / weight[:, None],
        weight,
        (phase[place[runs]], times.quantile_ns[runs], times.least_ns[runs], times.count[runs]),
        own_cores,
    )


def points_of(
    at: Spent,
    places: Iterable[tuple[int, Place]],
    phase: int,
    ranks: np.ndarray,
    n: float | None,
    x: float,
    source: str,
    traced: int,
) -> Iterator[Point]:
    """Yield the points of a group of ranks of a phase; places: of the phase, with their rows."""
    for row, place in places:
        mine = ranks[at.work[row][ranks] > 0]
        if not len(mine):
            continue
        least, typical, work = (
            float(values[row][mine].mean()) for values in (at.least, at.typical, at.work)
        )
        yield Point(place, phase, n, work, x, least, typical, len(mine), at.repeats, source, traced)


def own_points(found: TracedComputation, source: str = OWN) -> list[Point]:
    """Return the points of one traced count: per phase, group of ranks alike in x, and place."""
    out: list[Point] = []
    for k in range(len(found.weight)):
        places = [(row, found.places[row]) for row in np.flatnonzero(found.phase == k).tolist()]
        there = np.flatnonzero(found.x[k] > 0)
        for group in instruction_groups(found.x[k][there]):
            ranks = there[group]
            x = float(found.x[k][ranks].mean())
            out += points_of(found, places, k, ranks, float(found.n), x, source, found.n)
    return out


def x_scale(model: Model, counts: Iterable[int]) -> np.ndarray:
    """Return n times the mean work of a rank per iteration of each phase at the smallest of
    ``counts`` at which the phase computes.

    Where work is time, x is this over the count: what a law says of time has constants and costs of
    its own in it and would be a poor measure of the working set, which goes with 1/n. 0 for a phase
    of which the model says no work at any of the counts.
    """
    _, phase = places_of(model)
    scale = np.zeros(len(model.phases))
    for n in sorted(counts):
        said, grid = modelled_work(model, n)
        weight = weights_at(model, grid)
        work = sum_by_phase(said, phase, len(weight))
        ranks = (work > 0).sum(axis=1)
        here = n * work.sum(axis=1) / np.maximum(ranks, 1) / weight
        scale = np.where(scale > 0, scale, here)
        if np.all(scale > 0):
            break
    return scale


def by_count(
    found: Sequence[TracedComputation], far: Sequence[Point], scale: np.ndarray
) -> tuple[list[TracedComputation], list[Point]]:
    """Return runs and points with x = scale/n: the axis where work is time.

    scale: per phase, of ``x_scale``. Points of other workloads that stand for no count are left
    out.
    """
    own = [replace(m, x=np.where(m.x > 0, scale[:, None] / m.n, 0.0)) for m in found]
    kept = [
        p._replace(x=float(scale[p.phase]) / p.n)
        for p in far
        if p.n is not None and p.n > 0 and scale[p.phase] > 0
    ]
    return own, kept


def small_places(found: Sequence[TracedComputation]) -> set[Place]:
    """Return the places that are pooled: little of the time at every count, or short ones."""
    time = np.array([m.typical.sum(axis=1) for m in found])
    calls = np.array([m.calls.sum(axis=1) for m in found])
    share = (time / np.maximum(time.sum(axis=1, keepdims=True), 1.0)).max(axis=0)
    once = (time / np.maximum(calls, 1.0)).max(axis=0)
    small = (share < SMALL_SHARE) | (once < SMALL_NS)
    return {found[0].places[row] for row in np.flatnonzero(small).tolist()}


# ---- work that is shared out: where it is time, it is taken to go with 1/n ----------------------
#: Powers of n between the smallest and the largest traced count that are 1/n with a cost that falls
#: or with some overhead; largest coefficient of variation of ranks that are alike, and largest
#: difference between their calls per turn.
STEEPEST, FLATTEST, ALIKE = -1.7, -0.6, 0.1
#: Ranks that the mean at a large count is taken from.
_SAMPLE = 128


def shared_work(model: Model, found: Sequence[TracedComputation]) -> dict[Place, float]:
    """Return the places whose work is shared out among all ranks alike, and n times the mean work
    of a rank per iteration there, in ns, at the smallest traced count.

    A rank comes there equally often per iteration at all measured counts. Where it comes there more
    often (stages of a reduction along a growing dimension), the work of an iteration has parts
    that go with 1/n and others that do not, and the model's law tells them apart.
    """
    first, last = min(model.counts), max(model.counts)
    places, phase = places_of(model)
    mean, alike = [], []
    for n in (first, last):
        work, grid = modelled_work(model, n)
        mean.append(mean_of(work) / weights_at(model, grid)[phase])
        part = np.ma.masked_less_equal(work, 0.0)
        alike.append(
            np.asarray((part.std(axis=1) <= ALIKE * part.mean(axis=1)).filled(False))
            & ((work > 0).sum(axis=1) == n)
        )
    calls = np.array([mean_of(m.calls) / m.weight[m.phase] for m in found] or [[1.0] * len(phase)])
    least = np.where(calls > 0, calls, np.inf).min(axis=0)
    steady = calls.max(axis=0) <= (1 + ALIKE) * least
    out = {}
    for k in np.flatnonzero(alike[0] & alike[1] & steady).tolist():
        if first < last and min(mean[0][k], mean[1][k]) > 0:
            power = np.log(mean[1][k] / mean[0][k]) / np.log(last / first)
            if STEEPEST <= power <= FLATTEST:
                out[places[k]] = float(mean[0][k] * first)
    return out


def mean_of(work: np.ndarray) -> np.ndarray:
    """Return the mean over the ranks that have any; work: (places, ranks)."""
    return np.asarray(work.sum(axis=1) / np.maximum((work > 0).sum(axis=1), 1))


def factors(
    shared: Mapping[Place, float],
    places: Sequence[Place],
    mean: np.ndarray,
    weight: np.ndarray,
    n: float,
) -> np.ndarray:
    """Return what the modelled work of each place is multiplied with, to be its shared work.

    mean: modelled work of a rank in the run; weight: iterations, both by place. 1 where not shared.
    """
    wanted = np.array([shared.get(place, 0.0) for place in places]) / n * weight
    out = np.ones(len(places))
    return np.asarray(np.divide(wanted, mean, out=out, where=(wanted > 0) & (mean > 0)))


def share_points(
    shared: Mapping[Place, float],
    found: Sequence[TracedComputation],
    far: Sequence[Point],
    weight: Iterations,
) -> tuple[list[TracedComputation], list[Point]]:
    """Return own runs and points of other workloads with shared work where it is shared.

    weight: iterations of the phases in each run.
    """
    own = [
        replace(
            m,
            work=m.work
            * factors(shared, m.places, mean_of(m.work), m.weight[m.phase], m.n)[:, None],
        )
        for m in found
    ]
    return own, [
        p._replace(work=shared[p.place] / p.n * weight[p.run])
        if p.place in shared and p.n is not None
        else p
        for p in far
    ]


def factors_at(model: Model, shared: Mapping[Place, float], n: int) -> np.ndarray:
    """Return :func:`factors` at any count, from the mean of some ranks evenly over all."""
    evaluator = Evaluator(model, n)
    some = np.unique(np.linspace(0, n - 1, min(n, _SAMPLE)).astype(np.int64))
    rows = evaluator.rows(some)
    found = work_of(model, rows, widths=False)
    places, phase = places_of(model)
    weight = weights_at(model, evaluator.grid)
    return factors(shared, places, mean_of(found.work), weight[phase], n)
