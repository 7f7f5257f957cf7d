"""Work, calls and bytes per place of the model and rank: of runs, and as the model predicts them.

Both have the same shape, so that ranks of a run with another workload can be compared with ranks
of the model's own workload at any count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from p3s.base.errors import P3SError
from p3s.base.ops import COMPLETION, kind_of
from p3s.model.types import Model
from p3s.signature.tables import PointTable

Place = tuple[str, str]
#: Up to so many ranks are evaluated one by one; above, some of them stand for all.
_ALL_RANKS, _SOME_RANKS = 256, 96


@dataclass(frozen=True)
class Cells:
    """What the ranks of one count do before and in the calls of each place.

    work, calls, nbytes: (places, ranks), sums over a run; ``work`` before the calls (0 before
    MPI_Init, see :func:`counted`), ``nbytes`` of messages (completions move nothing). weight:
    iterations per phase, NaN where unknown.
    """

    n: int
    work: np.ndarray
    calls: np.ndarray
    nbytes: np.ndarray
    weight: np.ndarray


def places_of(model: Model) -> list[tuple[Place, int]]:
    """Return the places of a model with their phases, in the order of rank_work."""
    return [
        ((p.place[0], p.place[1]), phase.phase) for phase in model.phases for p in phase.work.places
    ]


def counted(place: Place) -> bool:
    """Tell whether the computation before a place belongs to the program's phases.

    What comes before MPI_Init is the start of the process, not the program's work.
    """
    return not place[1].startswith("MPI_Init")


def _mask(places: Sequence[tuple[Place, int]]) -> np.ndarray:
    return np.array([counted(place) for place, _ in places], dtype=float)[:, None]


def measured(table: PointTable, places: Sequence[tuple[Place, int]], weight: np.ndarray) -> Cells:
    """Return what the ranks of a run did; weight: iterations of each phase in it."""
    number = {place: k for k, (place, _) in enumerate(places)}
    of_group = np.array([number.get((g.site, g.op), -1) for g in table.groups] or [-1])
    moves = np.array([g.kind != COMPLETION for g in table.groups] or [False])
    place = of_group[table.group]
    mine = place >= 0
    shape = (len(places), table.np)
    cell = place[mine] * table.np + table.rank[mine]

    def total(values: np.ndarray) -> np.ndarray:
        return np.bincount(cell, weights=values[mine], minlength=shape[0] * shape[1]).reshape(shape)

    return Cells(
        table.np,
        total(table.work) * _mask(places),
        total(table.count),
        total(table.count * table.nbytes * moves[table.group]),
        weight,
    )


class Predicted:
    """The model of a workload at any count, evaluated once for each."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.places = places_of(model)
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
        from p3s.model.evaluate import generate, model_grid, phase_weight
        from p3s.model.work.workload import rank_work

        ranks = None if n <= _ALL_RANKS else some_ranks(model_grid(self.model, n).dims, n)
        rows = generate(self.model, n, ranks)
        found = rank_work(
            self.model,
            rows.grid,
            {c: getattr(rows, c) for c in ("rank", "item", "nbytes", "repeat")},
            widths=False,
            means=rows.means,
        )
        number = {place: k for k, (place, _) in enumerate(self.places)}
        of_item = np.array([number.get((it.site, it.op), -1) for it in self.model.items] or [-1])
        moves = np.array([kind_of(it.op) != COMPLETION for it in self.model.items] or [False])
        place = of_item[rows.item]
        mine = place >= 0
        shape = found.work.shape
        cell = place[mine] * shape[1] + np.searchsorted(found.ranks, rows.rank[mine])

        def total(values: np.ndarray) -> np.ndarray:
            return np.bincount(cell, weights=values[mine], minlength=shape[0] * shape[1]).reshape(
                shape
            )

        weight = np.array([float(max(phase_weight(p, rows.grid), 1)) for p in self.model.phases])
        return Cells(
            n,
            found.as_in_a_run() * _mask(self.places),
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
