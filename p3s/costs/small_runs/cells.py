"""Work, time, calls and bytes per place and rank: of runs, and as the model predicts them.

All have the same shape, so that ranks of a run with another workload can be compared with ranks
of the model's own workload at any count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from p3s.base.errors import P3SError
from p3s.base.ops import COMPLETION, kind_of
from p3s.base.study import Study
from p3s.costs.gather import by_place_and_rank, in_the_run, numbers_of, places_of, work_of
from p3s.costs.small_runs.places import Same
from p3s.costs.thesis import Place
from p3s.model.evaluate import generate, model_grid, phase_weight
from p3s.model.types import Model
from p3s.signature.rank import INSTRUCTIONS
from p3s.signature.tables import PointTable
from p3s.signature.times import load_times

#: Up to so many ranks are evaluated one by one; above, some of them stand for all.
_ALL_RANKS, _SOME_RANKS = 256, 96


@dataclass(frozen=True)
class Cells:
    """What the ranks of one count do before and in the calls of each place.

    work, calls, nbytes: (places, ranks), sums over a run; ``work`` before the calls (0 before
    MPI_Init), ``nbytes`` of messages (completions move nothing). weight:
    iterations per phase, NaN where unknown.
    """

    n: int
    work: np.ndarray
    calls: np.ndarray
    nbytes: np.ndarray
    weight: np.ndarray


def measured(table: PointTable, places: Sequence[Place], weight: np.ndarray) -> Cells:
    """Return what the ranks of a run did; weight: iterations of each phase in it."""
    moves = np.array([g.kind != COMPLETION for g in table.groups] or [False])
    place = numbers_of(places, ((g.site, g.op) for g in table.groups))[table.group]

    def total(values: np.ndarray) -> np.ndarray:
        return by_place_and_rank(place, table.rank, values, (len(places), table.np))

    return Cells(
        table.np,
        total(table.work) * in_the_run(places),
        total(table.count),
        total(table.count * table.nbytes * moves[table.group]),
        weight,
    )


class Predicted:
    """The model of a workload at any count, evaluated once for each."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.places, self.phase = places_of(model)
        self._known: dict[int, Cells | None] = {}

    def at(self, n: int) -> Cells | None:
        """Return the cells at ``n``, None where the program's process grid has no form there."""
        if n not in self._known:
            try:
                self._known[n] = self._cells(n)
            except P3SError:
                self._known[n] = None
        return self._known[n]

    def _cells(self, n: int) -> Cells:

        ranks = None if n <= _ALL_RANKS else some_ranks(model_grid(self.model, n).dims, n)
        rows = generate(self.model, n, ranks)
        found = work_of(self.model, rows, widths=False)
        moves = np.array([kind_of(it.op) != COMPLETION for it in self.model.items] or [False])
        place = numbers_of(self.places, ((it.site, it.op) for it in self.model.items))[rows.item]
        rank = np.searchsorted(found.ranks, rows.rank)

        def total(values: np.ndarray) -> np.ndarray:
            return by_place_and_rank(place, rank, values, found.work.shape)

        weight = np.array([float(max(phase_weight(p, rows.grid), 1)) for p in self.model.phases])
        return Cells(
            n,
            found.as_in_a_run() * in_the_run(self.places),
            total(rows.repeat),
            total(rows.repeat * rows.nbytes * moves[rows.item]),
            weight,
        )


def some_ranks(dims: Sequence[int], n: int) -> np.ndarray:
    """Return ranks that stand for all ``n`` of them: borders, middle and some in between."""
    ends = [sorted({c for c in (0, 1, p // 2, p - 2, p - 1) if 0 <= c < p}) for p in dims]
    mesh = np.meshgrid(*ends, indexing="ij")
    at = np.ravel_multi_index([m.ravel() for m in mesh], tuple(dims)) if dims else np.zeros(0)
    return np.unique(
        np.concatenate(
            [np.array([0, 1, n - 2, n - 1]), at[at < n], np.linspace(0, n - 1, _SOME_RANKS)]
        ).astype(np.int64)
    )


@dataclass(frozen=True)
class Spent:
    """Time before the calls of each place, (places, ranks), ns: least, median and most of repeats.

    work: what the signature counted in the segments whose time is known.
    """

    least: np.ndarray
    typical: np.ndarray
    most: np.ndarray
    work: np.ndarray
    repeats: int

    def of_place(self, places: Sequence[Place]) -> dict[Place, float]:
        """Return the least time before each place, summed over the ranks."""
        return dict(zip(places, self.least.sum(axis=1).tolist(), strict=True))


def spent(
    study: Study, t: PointTable, places: Sequence[Place], same: Same | None = None
) -> Spent | None:
    """Return the time that the runs of one count took, None where none was measured.

    same: how the sites of these runs are called in ``t`` and ``places``.
    """
    times = load_times(study.root, t.np)
    if times is not None:
        same, own = same or Same(), {site for site, _ in places}
        nodes = [(same.site(site, own), op) for site, op in times.nodes]
        columns = (times.least_ns, times.median_ns, times.most_ns, times.work)
        rank, to, repeats = times.rank, times.to_node, max(len(times.runs), 1)
    elif t.work_unit != INSTRUCTIONS:  # work is the time itself, the least of the repeats
        nodes = [(g.site, g.op) for g in t.groups]
        rank, to, repeats = t.rank, t.group, t.repeats
        columns = (t.work, t.work, t.work, t.work)
    else:
        return None
    place = numbers_of(places, nodes)[to]
    shape = (len(places), t.np)
    least, typical, most, work = (by_place_and_rank(place, rank, c, shape) for c in columns)
    return Spent(least, typical, most, work, repeats)
