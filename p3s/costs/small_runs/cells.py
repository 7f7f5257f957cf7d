"""Work, time, calls and bytes per place and rank: of runs, and as the model predicts them.

All have the same shape, so that ranks of a run with another input can be compared with ranks
of the model's own input at any count.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from p3s.base.errors import P3SError
from p3s.base.ops import COMPLETION, kind_of
from p3s.costs.gather import (
    Spent,
    by_place_and_rank,
    in_the_run,
    numbers_of,
    places_of,
    spent_in,
    weights_at,
    work_of,
)
from p3s.costs.points import Place
from p3s.model.evaluate import generate, model_grid
from p3s.model.types import Model
from p3s.signature.tables import PointTable
from p3s.signature.times import Times

#: Up to so many ranks are evaluated one by one; above, some of them stand for all.
_ALL_RANKS, _SOME_RANKS = 256, 96


@dataclass(frozen=True)
class InputRuns:
    """Runs of one input of the program, places named as those of the study.

    name: of their study inside the study; tables: of all counts, times: by count. how: places
    were matched, in words. problem: why they cannot be read, then there are no tables.
    """

    name: str
    command: tuple[str, ...]
    counts: tuple[int, ...]
    tables: Sequence[PointTable] = ()
    times: Mapping[int, Times] | None = None
    how: str = ""
    problem: str = ""

    def spent(self, t: PointTable, places: Sequence[Place]) -> Spent | None:
        """Return the time that the runs of one count took, None where none was measured."""
        times = (self.times or {}).get(t.np)
        return None if times is None else spent_in(places, times)


@dataclass(frozen=True)
class Cells(Spent):
    """What the ranks of one count do before and in the calls of each place.

    work, calls, nbytes: (places, ranks), sums over a run; ``work`` before the calls (0 before
    MPI_Init), ``nbytes`` of messages (completions move nothing). weight: iterations per phase, NaN
    where unknown. Times are 0 where none are known.
    """

    n: int
    calls: np.ndarray
    nbytes: np.ndarray
    weight: np.ndarray


def measure_cells(
    t: PointTable,
    places: Sequence[Place],
    weight: np.ndarray,
    spent: Spent | None = None,
    counted: bool = True,
) -> Cells:
    """Return what the ranks of a run did; weight: iterations of each phase in it.

    counted: work is, so that the time of segments that a timed run did not have equally often is
    that of the work in the table.
    """
    moves = np.array([g.kind != COMPLETION for g in t.groups] or [False])
    place = numbers_of(places, ((g.site, g.op) for g in t.groups))[t.group]
    work, calls, nbytes = (
        by_place_and_rank(place, t.rank, values, (len(places), t.np))
        for values in (t.work, t.count, t.count * t.nbytes * moves[t.group])
    )
    work = work * in_the_run(places)
    none = np.zeros(work.shape)
    spent = spent or Spent(none, none, none, 0)
    scale = np.ones(work.shape)
    if counted:
        np.divide(work, spent.work, out=scale, where=spent.work > 0)
    return Cells(
        spent.least * scale, spent.typical * scale, work, spent.repeats, t.np, calls, nbytes, weight
    )


class PredictedCells:
    """The model of an input at any count, evaluated once for each."""

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

        calls, nbytes = (
            by_place_and_rank(place, rank, values, found.work.shape)
            for values in (rows.repeat, rows.repeat * rows.nbytes * moves[rows.item])
        )
        work = found.as_in_a_run() * in_the_run(self.places)
        weight = weights_at(self.model, rows.grid, traced=False)
        none = np.zeros(work.shape)
        return Cells(none, none, work, 0, n, calls, nbytes, weight)


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


def interpolate_value(points: Mapping[int, float], n: float) -> float:
    """Return a value at ``n`` from those at the two counts next to it: by a power law, by a
    straight line where one of them is 0; 0 without points."""
    if n in points:
        return points[int(n)]
    counts = sorted(points)
    if len(counts) < 2:
        return points[counts[0]] if counts else 0.0
    above = int(np.clip(np.searchsorted(counts, n), 1, len(counts) - 1))
    low, high = counts[above - 1], counts[above]
    a, b = points[low], points[high]
    if a <= 0 or b <= 0:
        return max(a + (b - a) * (n - low) / (high - low), 0.0)
    return float(a * (n / low) ** (math.log(b / a) / math.log(high / low)))
