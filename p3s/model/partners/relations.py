"""Relations: who a rank's partner is, at any count.

Kinds are classes (shift.py, single.py, lines.py, irregular.py), tried in the order of their files,
which decides among equally cheap ones. A new kind is one more class, here or anywhere. Models hold
the data of relations, which all functions here take for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from p3s.errors import P3SError
from p3s.model.grid.at import GridAt
from p3s.model.partners import irregular, lines, shift, single
from p3s.model.partners.relation import Relation, Staged

#: The files of kinds.
KINDS = (shift, single, lines, irregular)
Stored = Relation | Mapping[str, Any]

_TABLES: dict[tuple[object, ...], np.ndarray] = {}


def partners(rel: Stored, g: GridAt) -> np.ndarray:
    """Return partners, shape (stages, n): world ranks, -1 where there is none (read-only)."""
    rel = Relation.load(rel)
    if g.ranks is not None or g.n > 1024:
        table = rel.table(g)
        table.setflags(write=False)
        return table
    key = (*g.key, rel)
    found = _TABLES.get(key)
    if found is None:  # the search asks for the same small tables again and again
        if len(_TABLES) > 8192:
            _TABLES.clear()
        found = _TABLES[key] = rel.table(g)
        found.setflags(write=False)
    return found


def at_stage(rel: Stored | None, g: GridAt, stage: int, stages: int, turn: int = 0) -> GridAt:
    """Return the grid at a stage of the relation, as guards want it: 2**stage is the distance."""
    if rel is None:
        return g.at(stage, stages, turn)
    return Relation.load(rel).stage_at(g, stage, stages, turn)


def stages_depend_on_n(rel: Stored) -> bool:
    """Return whether the number of the relation's stages is a law."""
    found = Relation.load(rel)
    return isinstance(found, Staged) and found.grows


def text(rel: Stored) -> str:
    """Return a relation, or its data, for people."""
    return Relation.load(rel).text()


def latex(rel: Stored | None) -> str:
    """Return a relation in math mode, "" where it has words only."""
    try:
        return "" if rel is None else Relation.load(rel).latex()
    except P3SError:  # of another version: named, and refused where it is evaluated
        return ""
