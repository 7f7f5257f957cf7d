"""Many relations looked for among the pairs at once: one by one, numpy's calls take the time."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from p3s.model.grid.at import GridAt
from p3s.model.partners.pairs import Pairs
from p3s.model.partners.relation import Relation, Staged
from p3s.model.partners.relations import partners

#: Cells of partners that are kept, and that are compared at once.
MOST_CELLS = 1 << 22

_STACKS: dict[object, tuple[np.ndarray, np.ndarray]] = {}


def _stack(rels: Sequence[Relation], g: GridAt) -> tuple[np.ndarray, np.ndarray]:
    """Return the partners of all stages of the relations, and which relation each row is of."""
    key = (g.key, *rels)
    if key not in _STACKS:
        tables = [partners(rel, g) for rel in rels]
        of = np.repeat(np.arange(len(rels)), [len(table) for table in tables])
        if len(_STACKS) * len(of) * g.n > MOST_CELLS:
            _STACKS.clear()
        _STACKS[key] = np.concatenate(tables), of
    return _STACKS[key]


class Together:
    """What some relations lead to, of one node's pairs.

    used: for each count as of :func:`p3s.model.partners.mixture.used_pairs`.
    """

    def __init__(
        self, rels: Sequence[Relation], pairs: Sequence[Pairs], used: Sequence[np.ndarray]
    ) -> None:
        self.rels, self.pairs, self.used = rels, pairs, used
        there, of = self._there(-1)
        #: Which of the relations have a pair at the largest count.
        self.somewhere = np.bincount(of[there.any(axis=1)], minlength=len(rels)) > 0

    def _there(self, at: int) -> tuple[np.ndarray, np.ndarray]:
        """Return which cells of all tables are pairs at a count, and whose rows these are."""
        g = self.pairs[at].grid
        table, of = _stack(self.rels, g)
        return self.used[at][np.arange(g.n)[None, :], table] & (table >= 0), of

    @cached_property
    def hits(self) -> np.ndarray:
        """Which of all pairs each relation explains, shape (relations, pairs of all counts)."""
        found = np.zeros((len(self.rels), sum(len(p.rank) for p in self.pairs)), dtype=bool)
        end = 0
        for p in self.pairs:
            table, of = _stack(self.rels, p.grid)
            begin, end = end, end + len(p.rank)
            rows = np.flatnonzero(self.somewhere[of])
            for some in _parts(rows, len(p.rank)):
                first = np.flatnonzero(np.diff(of[some], prepend=-1))
                equal = table[some][:, p.rank] == p.peer
                found[of[some[first]], begin:end] |= np.logical_or.reduceat(equal, first, axis=0)
        return found

    @cached_property
    def _much(self) -> np.ndarray:
        """Whether a quarter of what each relation says of ranks that have partners is there."""
        hit, said = np.zeros(len(self.rels)), np.zeros(len(self.rels))
        for at, p in enumerate(self.pairs):
            table, _ = _stack(self.rels, p.grid)
            there, of = self._there(at)
            took = np.zeros(p.grid.n, dtype=bool)
            took[p.rank] = True
            hit += np.bincount(of, there.sum(axis=1), len(self.rels))
            said += np.bincount(of, (table[:, took] >= 0).sum(axis=1), len(self.rels))
        return 4 * hit >= said

    def leads(self, k: int, loose: bool) -> bool:
        """Whether a relation has pairs; of stages two, and much of what they say, unless loose."""
        rel = self.rels[k]
        if not isinstance(rel, Staged) or not self.somewhere[k]:
            return bool(self.somewhere[k])
        return bool(loose or rel.sparse or self._much[k]) and any(
            self._levels(rel, at) > 1 for at in reversed(range(len(self.pairs)))
        )

    def _levels(self, rel: Staged, at: int) -> int:
        g = self.pairs[at].grid
        table = partners(rel, g)
        there = self.used[at][np.arange(g.n)[None, :], table] & (table >= 0)
        return rel.levels(there, table, g)


def _parts(rows: np.ndarray, pairs: int) -> list[np.ndarray]:
    """Return rows in parts that have few cells when compared with so many pairs."""
    step = max(1, MOST_CELLS // max(1, pairs))
    return [rows[start : start + step] for start in range(0, len(rows), step)]
