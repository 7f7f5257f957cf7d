"""Work of phases: what one process computes in all turns of a phase, as a law of n.

Inside a turn the work before an event moves between slots with the neighbours a rank has; the
total of the phase does not. So the total per rank carries the law (the thesis keeps the total
over all ranks constant in strong scaling, Eq. 5.5 and 5.6), and the slots only share it out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from p3s.characterize.tables import PointTable
from p3s.model.guards import GridAt
from p3s.model.laws import WorkLaw, fit_work
from p3s.model.tree import assign

#: Largest coefficient of variation over ranks at which all ranks are taken to be equal.
EQUAL_RANKS_CV = 0.35


def fit_phase_work(phases: Sequence[dict[str, Any]], items: Sequence[dict[str, Any]],
                   tables: Sequence[PointTable], grids: Mapping[int, GridAt],
                   split: Mapping[tuple[str, str], bool]) -> None:
    """Add "work" to every phase: {law, equal_ranks, points}; law in work per taking-part rank."""
    points: list[list[tuple[int, float]]] = [[] for _ in phases]
    spread: list[list[float]] = [[] for _ in phases]
    for t in tables:
        assignment = assign(items, t, grids[t.np], split)
        phase_of = np.array([it["phase"] for it in items] + [-1], dtype=np.int64)
        phase = phase_of[np.minimum(assignment.of_row, len(items))]
        for k in range(len(phases)):
            mine = phase == k
            if not mine.any():
                continue
            ranks = np.unique(t.rank[mine])
            total = np.bincount(t.rank[mine], weights=t.work[mine], minlength=t.np)[ranks]
            mean = float(total.mean())
            points[k].append((t.np, mean))
            if mean > 0 and len(total) > 1:
                spread[k].append(float(total.std() / mean))
    for k, phase_ in enumerate(phases):
        law = fit_work([n for n, _ in points[k]], [v for _, v in points[k]])
        phase_["work"] = {"law": law.to_json(), "points": [list(p) for p in points[k]],
                          "equal_ranks": bool(spread[k])
                          and float(np.median(spread[k])) <= EQUAL_RANKS_CV}


def share_out(phases: Sequence[Mapping[str, Any]], n: int, rank: np.ndarray, phase: np.ndarray,
              repeat: np.ndarray, work: np.ndarray) -> np.ndarray:
    """Return the work per occurrence of every row such that phases keep their totals.

    Where ranks are equal every taking-part rank gets the phase's law; elsewhere the rows keep
    their proportions between ranks and only the sum over all ranks follows the law.
    """
    out = work.copy()
    for k, p in enumerate(phases):
        mine = np.flatnonzero(phase == k)
        if not len(mine):
            continue
        target = float(WorkLaw.from_json(p["work"]["law"]).value(n))
        amount = np.bincount(rank[mine], weights=(work * repeat)[mine], minlength=n)
        there = np.bincount(rank[mine], minlength=n) > 0
        if p["work"]["equal_ranks"] and np.all(amount[there] > 0):
            out[mine] *= (target / amount[rank[mine]])
        elif amount.sum() > 0:
            out[mine] *= target * there.sum() / amount.sum()
    return out
