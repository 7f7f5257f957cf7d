"""Guards: which ranks execute a slot, as predicates on rank and grid coordinates.

A guard is a conjunction of atoms (rank_atoms.py, stage_atoms.py), evaluated for all ranks of a
count at once, at one stage of a relation.
"""

from __future__ import annotations

from p3s.model.grid.at import GridAt
from p3s.model.grid.atom import RANK, Guard
from p3s.model.grid.rank_atoms import Above
from p3s.model.grid.stage_atoms import HasPartner

#: The guard that all guards of messages begin with.
WITH_PARTNER = Guard((HasPartner(),))


def of_ranks(guard: Guard) -> Guard:
    """Return the part of a guard that depends on the rank alone."""
    return Guard(tuple(a for a in guard.atoms if a.reads == RANK))


__all__ = ["WITH_PARTNER", "Above", "GridAt", "Guard", "of_ranks"]
