"""Calls that ranks make at a large count and nowhere where ranks were simulated instead.

Smaller grids tell how times change with the sides, the ranks and their logarithm. A level that a
multigrid cycle has from some count on, or partners farther away than a grid is long, are on none of
them: what these add can only be guessed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from p3s.base.text import joined, processes
from p3s.model.evaluate import Amounts, Evaluator, ScaledRows
from p3s.predict.estimated import Communication
from p3s.program.fewer import Fewer
from p3s.simulate.steps import Ints

if TYPE_CHECKING:
    from p3s.predict.estimators.fewer import Checked

#: Calls that grow as the ranks do, or a side, but for this share, are told by smaller grids.
_NEARLY = 0.1


@dataclass(frozen=True)
class More:
    """Different calls of an item that a rank makes: most at the large count, and where ranks were
    simulated. Different ones have another partner or another place in an iteration."""

    item: int
    there: int
    seen: int

    @property
    def share(self) -> float:
        """Which share of them was never simulated."""
        return 1.0 - self.seen / self.there


def unseen(few: Fewer, grids: Sequence[Fewer], checked_n: int | None) -> list[More]:
    """Return the items of which ranks make more different calls than anywhere simulated.

    ``grids``: those that stand for the large one; ``checked_n``: a count at which every rank was
    simulated, if any. Left out is what grows with the ranks or the sides of the grid.
    """
    from p3s.model.verdicts import judged_at

    model, large = few.model, few.large
    there = _most(few, Evaluator(model, large.n, grid=large).rows(few.stands_for, work=False))
    none = np.zeros(len(model.phases))
    found = [(one.n, one.dims, _most(few, _rows(one, none))) for one in grids]
    if checked_n is not None:
        every = Evaluator(judged_at(model, checked_n), checked_n)
        found.append((checked_n, every.grid.dims, _most(few, every.rows(work=False))))
    n, dims, _ = max(found, key=lambda one: one[0])
    ratios = [large.n / n, *(a / b for a, b in zip(large.dims, dims, strict=False))]
    seen = np.max([most for _, _, most in found], axis=0)
    more = [
        More(int(i), int(there[i]), int(seen[i])) for i in np.flatnonzero(there > seen).tolist()
    ]
    return [
        one
        for one in more
        if not one.seen
        or all(abs(one.there / one.seen - each) > _NEARLY * each for each in ratios if each > 1.0)
    ]


def _rows(few: Fewer, none: np.ndarray) -> ScaledRows:
    amounts = Amounts(few.large, few.stands_for, none)
    return Evaluator(few.model, few.n, grid=few.grid, amounts=amounts).rows(work=False)


def _most(few: Fewer, rows: ScaledRows) -> Ints:
    """Return how many different calls of each item the rank makes that makes most."""
    items = len(few.model.items)
    cell, number = np.unique(rows.rank * items + rows.item, return_counts=True)
    found = np.zeros(items, dtype=np.int64)
    np.maximum.at(found, cell % items, number)
    return found


def with_unseen(
    found: Communication, few: Fewer, grids: Sequence[Fewer], checked: Checked | None
) -> Communication:
    """Return communication by smaller grids that says which calls are on none of them.

    In their phases it may be off by the share of the calls that was never simulated: by all of it
    where a call was on none of them.
    """
    more = unseen(few, grids, None if checked is None else checked.n)
    if not more:
        return found
    items = few.model.items
    off = np.array(
        [
            max((m.share for m in more if items[m.item].phase == k), default=0.0)
            for k in found.phases
        ]
    )
    return replace(
        found,
        low=np.minimum(found.low, found.comm * (1.0 - off)),
        high=np.maximum(found.high, found.comm * (1.0 + off)),
        notes=(*found.notes, _told(few, more)),
    )


def _told(few: Fewer, more: Sequence[More]) -> str:
    worst = max(more, key=lambda one: one.share)
    ops = dict.fromkeys(few.model.items[one.item].op for one in more)
    text = (
        f"at {processes(few.large.n)} ranks make calls of {joined(ops)} that no simulated grid "
        f"has: up to {worst.there} different ones of {few.model.items[worst.item].op}, and "
        f"{worst.seen or 'none'} where ranks were simulated"
    )
    if not worst.seen:
        return f"{text}; what they take is not known"
    return f"{text}; the time of the others is taken from how that of these grows"
