"""Relations: who a rank's partner is, at any count.

Kinds are classes (shift.py, single.py, lines.py, halving.py, irregular.py), tried in the order of
their files, which decides among equally cheap ones. A new kind is one more class, here or anywhere.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from p3s.model.grid.at import Atom, GridAt, Guard
from p3s.model.grid.guardfit import fit_guard
from p3s.model.partners import halving, irregular, lines, relation, single
from p3s.model.partners.pairs import Pairs
from p3s.model.partners.relation import Relation, Staged

#: The files of kinds.
KINDS = (relation, single, lines, halving, irregular)

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


@dataclass(frozen=True)
class Mixture:
    """The guards of relations (None: no rule).

    alone: cells of which it is known whether they are the relation's own, care: those that its
    guard was fitted to; both per relation and count, shape (stages, n). complete: every traced
    pair is there, unless it is one of a relation without a rule.
    """

    guards: list[Guard | None]
    alone: list[list[np.ndarray]]
    care: list[list[np.ndarray]]
    complete: bool


def used_pairs(p: Pairs) -> np.ndarray:
    """Return which pairs there are, shape (n, n + 1): nobody (-1) is nobody's partner."""
    out = np.zeros((p.grid.n, p.grid.n + 1), dtype=bool)
    out[p.rank, p.peer] = True
    return out


def mixture(
    rels: Sequence[Relation], pairs: Sequence[Pairs], most: float = math.inf
) -> Mixture | None:
    """Return who has each of the relations that lead to the pairs, all of them together.

    most: None is returned as soon as relations without a rule, if any, cost as much.
    """
    return _fitted(_Guards(rels, pairs), most)


_KNOWN: dict[object, Mixture] = {}


def known_cells(rels: Sequence[Relation], pairs: Sequence[Pairs]) -> Mixture:
    """Return the mixture; without its guards where no two relations lead to one partner."""
    of_pairs = ((p.grid.key, p.rank.tobytes(), p.peer.tobytes()) for p in pairs)
    key = (tuple(Atom.kinds), tuple(rels), *of_pairs)
    if key not in _KNOWN:  # many call sites have the same partners
        if len(_KNOWN) > 128:
            _KNOWN.clear()
        _KNOWN[key] = _known_cells(rels, pairs)
    return _KNOWN[key]


def _known_cells(rels: Sequence[Relation], pairs: Sequence[Pairs]) -> Mixture:
    found = _Guards(rels, pairs)
    if all(known.all() for each in found.alone for known in each):
        return Mixture(found.guards, found.alone, found.alone, True)
    fitted = _fitted(found)
    assert fitted is not None
    return fitted


def _fitted(found: _Guards, most: float = math.inf) -> Mixture | None:
    rels, lost = found.rels, 0.0
    for k, rel in enumerate(rels):
        if not found.fit(k):
            lost += rel.no_guard
        if lost and lost >= most:
            return None
    left = found.left_out()
    for k in range(len(rels)):
        if not any(x.any() for x in left):
            break
        if found.fit(k, left):
            left = found.left_out()
    complete = not any(x.any() for x in left)
    return Mixture(found.guards, found.alone, found.care, complete)


class _Guards:
    """The guards found so far; tables, there, care: per relation and count."""

    def __init__(self, rels: Sequence[Relation], pairs: Sequence[Pairs]) -> None:
        self.rels, self.pairs = rels, pairs
        self.used = [used_pairs(p) for p in pairs]
        self.tables = [[partners(rel, p.grid) for p in pairs] for rel in rels]
        self.guards: list[Guard | None] = [None] * len(rels)
        ways = [
            ways_to([tables[i] for tables in self.tables], p.grid.n) for i, p in enumerate(pairs)
        ]
        self.there = [
            [at_partners(used, table) for used, table in zip(self.used, tables, strict=True)]
            for tables in self.tables
        ]
        self.alone = [
            [
                ~there | (at_partners(many, table) <= 1)
                for many, table, there in zip(ways, tables, theres, strict=True)
            ]
            for tables, theres in zip(self.tables, self.there, strict=True)
        ]

        self.care = list(self.alone)

    def fit(self, k: int, more: Sequence[np.ndarray] | None = None) -> bool:
        """Fit the guard of a relation; more: pairs that it has to have, too, if it can.

        Where what is its own alone shows no rule, it may have all that others have, too.
        """
        if more is None:
            own = self.alone[k]
            return self._fit(k, own) or self._fit(k, [np.ones_like(known) for known in own])
        wanted = [
            at_partners(pairs, table) for pairs, table in zip(more, self.tables[k], strict=True)
        ]
        care = [old | new for old, new in zip(self.care[k], wanted, strict=True)]
        return any(new.any() for new in wanted) and self._fit(k, care)

    def _fit(self, k: int, care: list[np.ndarray]) -> bool:
        rel = self.rels[k]
        cells = [
            (at_stage(rel, p.grid, s, len(table)), there[s], table[s], known[s])
            for p, table, there, known in zip(
                self.pairs, self.tables[k], self.there[k], care, strict=True
            )
            for s in range(len(table))
        ]
        guard = fit_guard(*map(list, zip(*cells, strict=True))) if cells else Guard()
        if guard is None:
            return False
        self.guards[k], self.care[k] = guard, care
        return True

    def left_out(self) -> list[np.ndarray]:
        """Return the pairs that no relation has, per count."""
        left = [used.copy() for used in self.used]
        for rel, guard, tables in zip(self.rels, self.guards, self.tables, strict=True):
            for p, table, mine in zip(self.pairs, tables, left, strict=True):
                for s, row in enumerate(table):
                    there = row >= 0
                    if guard is not None:
                        there &= guard.holds(at_stage(rel, p.grid, s, len(table)), row)
                    mine[np.flatnonzero(there), row[there]] = False
        return left


def ways_to(tables: Sequence[np.ndarray], n: int) -> np.ndarray:
    """Return how many relations and stages lead from each rank to each, shape (n, n + 1)."""
    out = np.zeros((n, n + 1), dtype=np.int64)
    for table in tables:
        for row in table:
            out[np.arange(n), row] += 1
    return out


def at_partners(pairs: np.ndarray, table: np.ndarray) -> np.ndarray:
    """Return what pairs are at the cells of a table of partners; nothing where there is none."""
    if not len(table):
        return np.zeros(table.shape, dtype=pairs.dtype)
    found: np.ndarray = pairs[np.arange(table.shape[1])[None, :], table]
    return np.where(table >= 0, found, np.zeros(1, dtype=pairs.dtype))
