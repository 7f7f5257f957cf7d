"""Calls whose share of the data runs out: more ranks than there is something to divide."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from p3s.model.evaluate import Evaluator, ScaledRows
from p3s.model.types import Model
from p3s.program.types import Emptied

_KINDS = ("send", "recv", "collective")


def below_one(model: Model, rows: ScaledRows) -> dict[int, int]:
    """Return the items with messages of less than one element, and how many ranks have them.

    Only sizes with an equation count: those of irregular programs may be nothing at any count.
    """
    least = [
        [
            slot.elem_bytes if it.kind in _KINDS and slot.elements.expr is not None else 0
            for slot in it.slots
        ]
        for it in model.items
    ]
    first = np.cumsum([0, *(len(each) for each in least)])
    flat = np.array([number for each in least for number in each], dtype=np.int64)
    if not len(rows.rank) or not len(flat):
        return {}
    short = np.flatnonzero(rows.nbytes < flat[first[rows.item] + rows.slot])
    ranks = int(rows.rank.max()) + 1
    items = np.unique(rows.item[short] * ranks + rows.rank[short]) // ranks
    number = np.bincount(items)
    return {item: int(number[item]) for item in np.flatnonzero(number).tolist()}


def emptied(model: Model, found: dict[int, int]) -> tuple[Emptied, ...]:
    """Return what ``below_one`` found that happens at no count that the model rests on."""
    if not found:
        return ()
    before = _at_traced(model)
    return tuple(
        Emptied(model.items[k].op, model.items[k].site, ranks)
        for k, ranks in sorted(found.items())
        if k not in before
    )


def _at_traced(model: Model) -> set[int]:
    every: Iterable[set[int]] = (
        set(below_one(model, Evaluator(model, n).rows())) for n in model.counts
    )
    return set().union(*every)
