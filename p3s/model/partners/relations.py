"""Relations: who a rank's partner is, at any count.

Kinds are classes (shift.py, single.py, lines.py, halving.py, irregular.py), tried in the order of
their files, which decides among equally cheap ones. A new kind is one more class, here or anywhere.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from p3s.model.grid.at import GridAt
from p3s.model.partners import halving, irregular, lines, shift, single
from p3s.model.partners.relation import Relation, Staged

#: The files of kinds.
KINDS = (shift, single, lines, halving, irregular)

#: Partners that are remembered at most, stages aside.
MOST_CELLS = 1 << 21
_TABLES: dict[tuple[object, ...], np.ndarray] = {}


def partners(rel: Relation, g: GridAt) -> np.ndarray:
    """Return partners, shape (stages, n): world ranks, -1 where there is none (read-only)."""
    if g.ranks is not None or g.n > 1024:
        table = rel.table(g)
        table.setflags(write=False)
        return table
    key = (*g.key, rel)
    found = _TABLES.get(key)
    if found is None:  # the search asks for the same small tables again and again
        if len(_TABLES) * g.n > MOST_CELLS:
            _TABLES.clear()
        found = _TABLES[key] = rel.table(g)
        found.setflags(write=False)
    return found


def at_stage(rel: Relation | None, g: GridAt, stage: int, stages: int) -> GridAt:
    """Return the grid at a stage of the relation, as guards want it: 2**stage is the distance."""
    return g.at(stage, stages) if rel is None else rel.stage_at(g, stage, stages)


def branches(rel: Relation | None, g: GridAt) -> np.ndarray | None:
    """Return how many ranks a tree has from the lower end of each call on, shape (stages, n).

    That end is counted, too; 0 where there is no partner. None for what is no tree.
    """
    if not isinstance(rel, Staged) or not rel.tree:
        return None
    table = partners(rel, g)
    stage, rank = np.nonzero(table >= 0)
    down = getattr(rel, "sign", 1) > 0
    parent, child = (rank, table[stage, rank]) if down else (table[stage, rank], rank)
    above = np.full(g.n, -1, dtype=np.int64)
    above[child] = parent
    size = np.ones(g.n, dtype=np.int64)
    for level in _from_the_leaves(above):
        np.add.at(size, above[level], size[level])
    found = np.zeros(table.shape, dtype=np.int64)
    found[stage, rank] = size[child]
    return found


def _from_the_leaves(above: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the ranks of each level of trees, the lowest first; none where there is a cycle."""
    levels = [np.flatnonzero(above < 0)]
    by_parent = np.argsort(above, kind="stable")
    start = np.searchsorted(above[by_parent], np.arange(len(above) + 1))
    while len(levels[-1]):
        mine = levels[-1]
        spans = [by_parent[start[r] : start[r + 1]] for r in mine.tolist()]
        levels.append(np.concatenate(spans))
    yield from levels[:0:-1]


def stages_depend_on_n(rel: Relation) -> bool:
    """Return whether the number of the relation's stages is a law."""
    return isinstance(rel, Staged) and rel.grows
