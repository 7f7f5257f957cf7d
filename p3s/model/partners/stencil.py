"""Neighbourhoods on the process grid: all faces, all corners and so on, as one rule.

A neighbourhood is a set of unit vectors that no dimension of it is unlike another in: those of so
many non-zero components each, in both directions or in one. It is found only where it leads to the
traced partners and to no others at every count, so that a grid of wrong extents has none.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from p3s.model.grid.at import Atom, GridAt, Guard
from p3s.model.grid.guardfit import fit_guard
from p3s.model.memory import Memory
from p3s.model.partners import halving, irregular, lines, relation, single
from p3s.model.partners.pairs import Pairs
from p3s.model.partners.relation import Relation, Shift, StagedRelation

#: The files of kinds.
KINDS = (relation, single, lines, halving, irregular)

#: Cells of tables of partners that are remembered, and that are compared at once.
MOST_CELLS = 1 << 22
_TABLES: Memory[np.ndarray] = Memory(MOST_CELLS, np.size)


def partners(rel: Relation, g: GridAt) -> np.ndarray:
    """Return partners, shape (stages, n): world ranks, -1 where there is none (read-only)."""

    def made() -> np.ndarray:
        table = rel.table(g)
        table.setflags(write=False)
        return table

    # the search asks for the same small tables again and again
    return _TABLES.of((*g.key, rel), made) if g.ranks is None and g.n <= 1024 else made()


def at_stage(rel: Relation | None, g: GridAt, stage: int, stages: int) -> GridAt:
    """Return the grid at a stage of the relation, as guards want it: 2**stage is the distance."""
    return g.at(stage, stages) if rel is None else rel.stage_at(g, stage, stages)


def branches(rel: Relation | None, g: GridAt) -> np.ndarray | None:
    """Return how many ranks a tree has from the lower end of each call on, shape (stages, n).

    That end is counted, too; 0 where there is no partner. None for what is no tree.
    """
    if not isinstance(rel, StagedRelation) or not rel.tree:
        return None
    table = partners(rel, g)
    stage, rank = np.nonzero(table >= 0)
    down = getattr(rel, "sign", 1) > 0
    parent, child = (rank, table[stage, rank]) if down else (table[stage, rank], rank)
    size = np.ones(g.n, dtype=np.int64)
    for _ in range(g.n.bit_length()):  # no tree is deeper
        below = np.bincount(parent, size[child], g.n)
        size = 1 + below.astype(np.int64)
    found = np.zeros(table.shape, dtype=np.int64)
    found[stage, rank] = size[child]
    return found


def stages_depend_on_n(rel: Relation) -> bool:
    """Return whether the number of the relation's stages is a law."""
    return isinstance(rel, StagedRelation) and rel.grows


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
    return _fit_mixture(_Guards(rels, pairs), most)


_KNOWN: Memory[Mixture] = Memory(128)


def known_cells(rels: Sequence[Relation], pairs: Sequence[Pairs]) -> Mixture:
    """Return the mixture; without its guards where no two relations lead to one partner."""
    of_pairs = ((p.grid.key, p.rank.tobytes(), p.peer.tobytes()) for p in pairs)
    key = (tuple(Atom.kinds), tuple(rels), *of_pairs)
    return _KNOWN.of(key, lambda: _known_cells(rels, pairs))  # many call sites have the same


def _known_cells(rels: Sequence[Relation], pairs: Sequence[Pairs]) -> Mixture:
    found = _Guards(rels, pairs)
    if all(known.all() for each in found.alone for known in each):
        return Mixture(found.guards, found.alone, found.alone, True)
    fitted = _fit_mixture(found)
    assert fitted is not None
    return fitted


def _fit_mixture(found: _Guards, most: float = math.inf) -> Mixture | None:
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
        self.there = [list(map(at_partners, self.used, tables)) for tables in self.tables]
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
        wanted = list(map(at_partners, more, self.tables[k]))
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


def leads(
    rels: Sequence[Relation], p: Pairs, *, everybody: bool = True, oneself: bool = True
) -> bool:
    """Return whether relations lead to the traced partners, and to nobody else.

    everybody: from the ranks that do not take part, too; oneself: nor to oneself.
    """
    wanted = used_pairs(p)[:, :-1]
    got = np.asarray(ways_to([partners(rel, p.grid) for rel in rels], p.grid.n)[:, :-1] > 0)
    if not oneself and not wanted.diagonal().any():
        np.fill_diagonal(got, False)
    if not everybody:
        got &= np.asarray(wanted.any(axis=1))[:, None]
    return np.array_equal(got, wanted)


def ways_between(rels: Sequence[Relation], p: Pairs) -> np.ndarray:
    """Return in how many ways relations lead from the rank to the partner of each pair."""
    every = ways_to([partners(rel, p.grid) for rel in rels], p.grid.n)
    return np.asarray(every[p.rank, p.peer])


def as_often(rels: Sequence[Relation], p: Pairs) -> bool:
    """Return whether each way to a partner has as many messages as any other of the count."""
    if p.times is None:
        return True
    other = p.rank != p.peer
    each = p.times[other] / np.maximum(ways_between(rels, p)[other], 1)
    return not len(each) or bool((each == each[0]).all())


Vector = tuple[int, ...]
#: What a neighbourhood costs (a relation is 1): all neighbours in both directions, all dimensions
#: alike; and each thing that is said beside that.
_WHOLE, _MORE = 1.2, 0.2


@dataclass(frozen=True)
class Stencil:
    """A neighbourhood: its shifts, what it costs together, dimensions whose direction is open."""

    shifts: tuple[Shift, ...]
    cost: float
    open: tuple[int, ...]


@dataclass(frozen=True)
class _PairEvidence:
    """What pairs show of a neighbourhood on grids of several dimensions.

    wide: dimensions that messages cross; many: numbers of dimensions that a message crosses;
    clear: vectors without doubt; wraps: per dimension periodic, bordered, or None: not shown;
    whole: all ranks talk to all others at every count.
    """

    wide: tuple[int, ...]
    many: frozenset[int]
    clear: frozenset[Vector]
    wraps: tuple[bool | None, ...]
    whole: bool


def stencil(pairs: Sequence[Pairs], periods: tuple[bool, ...] | None = None) -> Stencil | None:
    """Return the neighbourhood that the pairs are at every count; None where they are none.

    periods: which dimensions are periodic, where the program says it.
    """
    seen = _look(pairs, periods)
    if seen is None:
        return None
    found = [
        (shifts, sided)
        for vectors, sided in _vectors(seen, len(pairs[0].grid.dims))
        for wrap in _wraps(seen)
        for shifts in [tuple(Shift(vec=v, wrap=wrap) for v in vectors)]
        if all(leads(shifts, p, oneself=False) for p in pairs)
    ]
    if not found:
        return None
    even = [f for f in found if all(as_often(f[0], p) for p in pairs)]
    if seen.whole and not (even and any(_uneven(p) for p in pairs)):
        return None  # all others: as simple, on any grid
    shifts, sided = (even or found)[0]
    wrap = shifts[0].wrap
    said = [sided, len(seen.wide) < len(wrap), len(set(wrap)) > 1, _has_gaps(shifts)]
    cost = min(_WHOLE + _MORE * sum(said), float(len(shifts)))
    return Stencil(shifts, cost, tuple(d for d, w in enumerate(seen.wraps) if w is None))


def _look(pairs: Sequence[Pairs], periods: tuple[bool, ...] | None) -> _PairEvidence | None:
    """Return what the pairs show; None if some are no neighbours, or too few dimensions show."""
    ndims = len(pairs[0].grid.dims) if pairs else 1
    wraps: list[bool | None] = [None] * ndims
    wide, clear, many = np.zeros(ndims, dtype=bool), set(), set()
    columns, whole = [], True
    if ndims < 2:
        return None
    for p in pairs:
        dims = np.array(p.grid.dims)[:, None]
        if not p.grid.inside.all():
            return None
        delta = p.grid.coords[:, p.peer] - p.grid.coords[:, p.rank]
        over = (2 * np.abs(delta) > dims) & (dims > 2)
        step = np.where(over, delta - np.sign(delta) * dims, delta)
        if (np.abs(step) > 1).any():
            return None
        for d in np.flatnonzero(dims[:, 0] > 2):
            wraps[d] = wraps[d] is True or bool(over[d].any())
        wide |= (step != 0).any(axis=1)
        columns.append((dims[:, 0], np.unique(step, axis=1)))
        whole &= int((p.rank != p.peer).sum()) == p.grid.n * (p.grid.n - 1)
    crossed = [d for d in range(ndims) if wide[d]]
    if len(crossed) < 2 or all(wraps[d] is None for d in crossed):
        return None
    for dims, step in columns:
        sure = ((dims[:, None] > 2) | (step == 0)).all(axis=0)
        clear |= {tuple(map(int, c)) for c in step[:, sure].T if c.any()}
        if (dims[wide] > 1).all():
            many |= {int(k) for k in np.abs(step).sum(axis=0) if k}
    if not many:
        return None
    if periods is not None:
        wraps = [bool(w) or period for w, period in zip(wraps, periods, strict=True)]
    if all(p.grid.dims[d] == 1 for p in pairs for d in range(ndims) if not wide[d]):
        if len(many) > 1 and many == set(range(1, len(crossed) + 1)):
            many = set(range(1, ndims + 1))
        crossed = list(range(ndims))  # dimensions that no count has are as those that some have
    return _PairEvidence(tuple(crossed), frozenset(many), frozenset(clear), tuple(wraps), whole)


def _vectors(seen: _PairEvidence, ndims: int) -> Iterator[tuple[list[Vector], bool]]:
    """Yield sets of vectors, and whether they lead in one direction only."""
    every = [
        v
        for v in product((1, 0, -1), repeat=ndims)
        if sum(map(abs, v)) in seen.many and all(d in seen.wide for d, x in enumerate(v) if x)
    ]
    up = [v for v in every if min(v) >= 0]
    ahead = [v for v in every if v > (0,) * ndims]
    last = [v for v in every if v[::-1] > (0,) * ndims]
    for half in (None, up, ahead, last):
        for sign in (1, -1) if half else (1,):
            vectors = every if half is None else [tuple(sign * x for x in v) for v in half]
            if seen.clear <= set(vectors):
                yield vectors, half is not None


def _wraps(seen: _PairEvidence) -> Iterator[tuple[bool, ...]]:
    """Yield which dimensions are periodic: those that do not show it as the others first."""
    shown = [w for d, w in enumerate(seen.wraps) if w is not None and d in seen.wide]
    usual = 2 * sum(shown) > len(shown)
    ways = [(usual, not usual) if w is None else (w,) for w in seen.wraps]
    yield from sorted(product(*ways), key=lambda wrap: sum(w != usual for w in wrap))


def _uneven(p: Pairs) -> bool:
    """Return whether some partners have more messages than others."""
    times = p.times[p.rank != p.peer] if p.times is not None else np.zeros(0)
    return bool(len(times)) and bool((times != times[0]).any())


def _has_gaps(shifts: Sequence[Shift]) -> bool:
    """Return whether the numbers of dimensions crossed are neither 1 alone nor all from 1 on."""
    many = {sum(map(abs, s.vec)) for s in shifts}
    most = sum(any(along) for along in zip(*(s.vec for s in shifts), strict=True))
    return many not in ({1}, set(range(1, most + 1)))
