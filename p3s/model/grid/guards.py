"""Guards: which ranks execute a slot, as predicates on rank and grid coordinates.

A guard is a conjunction of atoms (rank_atoms.py, stage_atoms.py), evaluated for all ranks of a
count at once, at one stage of a relation or iteration of a loop. Models hold its data, lists.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from p3s.model.grid.at import GridAt
from p3s.model.grid.atom import RANK, Guard
from p3s.model.grid.rank_atoms import Above
from p3s.model.grid.stage_atoms import HasPartner

#: The guard that all guards of messages begin with.
WITH_PARTNER = Guard((HasPartner(),))


def eval_guard(
    guard: Guard | Sequence[Any], g: GridAt, peers: np.ndarray | None = None
) -> np.ndarray:
    """Return for which ranks a guard, or its data, holds."""
    return Guard.load(guard).holds(g, peers)


def of_ranks(guard: Guard | Sequence[Any]) -> Guard:
    """Return the part of a guard that depends on the rank alone."""
    return Guard(tuple(a for a in Guard.load(guard).atoms if a.reads == RANK))


def text(guard: Guard | Sequence[Any]) -> str:
    """Return a guard, or its data, for people."""
    return Guard.load(guard).text()


__all__ = ["WITH_PARTNER", "Above", "GridAt", "Guard", "eval_guard", "of_ranks", "text"]
