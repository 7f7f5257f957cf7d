"""Finding guards: the simplest predicate equal to who was seen to take part, at all counts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from p3s.model.grid.at import (
    DEAR,
    GEOMETRIC,
    PARTNER,
    RANK,
    STAGE,
    Atom,
    GridAt,
    Guard,
    propose_atoms,
)
from p3s.model.grid.atoms import ForPartner, HasPartner, Negation
from p3s.model.grid.covers import cheapest_covers
from p3s.model.memory import Memory

#: The guard that all guards of messages begin with.
WITH_PARTNER = Guard((HasPartner(),))
#: Guards that are returned at most, conjunctions of one search, and those of as many atoms.
_KEPT, _CONJUNCTIONS, _ALIKE = 6, 4, 3

_PROPOSED: Memory[list[Atom]] = Memory(64)
_BLOCKS: Memory[np.ndarray] = Memory(1 << 24, np.size)
_MATRICES: Memory[tuple[list[Atom], np.ndarray]] = Memory(1 << 24, lambda found: found[1].size)
_GUARDS: Memory[list[Guard]] = Memory(4096)


def of_ranks(guard: Guard) -> Guard:
    """Return the part of a guard that depends on the rank alone."""
    return Guard(tuple(a for a in guard.atoms if a.reads == RANK))


def fit_guard(
    grids: Sequence[GridAt],
    sets: Sequence[np.ndarray],
    peers: Sequence[np.ndarray] | None = None,
    care: Sequence[np.ndarray] | None = None,
) -> Guard | None:
    """Return the simplest guard equal to the observed sets at every count, or None.

    grids: one per count and stage (GridAt.at); sets: a bool array over ranks for each;
    peers: the partner per rank (-1 outside); care: ranks whose membership is known (others are
    left out of the comparison).
    """
    return next(iter(fit_guards(grids, sets, peers, care)), None)


def fit_guards(
    grids: Sequence[GridAt],
    sets: Sequence[np.ndarray],
    peers: Sequence[np.ndarray] | None = None,
    care: Sequence[np.ndarray] | None = None,
) -> list[Guard]:
    """Return the guards equal to the observed sets, cheapest first (a few of them at most)."""
    cells = (np.concatenate(list(x)).tobytes() if x is not None else None for x in (peers, care))
    key = (*_key(grids), *cells, np.concatenate(list(sets)).tobytes())
    # what one call site does, many others do
    return list(_GUARDS.of(key, lambda: _guards(grids, sets, peers, care)))


def _key(grids: Sequence[GridAt]) -> tuple[Any, ...]:
    """Return what tells grids at their stages apart, for the kinds that there are."""
    return (tuple(Atom.kinds), *((g.key, g.stage, g.stages) for g in grids))


def _guards(
    grids: Sequence[GridAt],
    sets: Sequence[np.ndarray],
    peers: Sequence[np.ndarray] | None,
    care: Sequence[np.ndarray] | None,
) -> list[Guard]:
    """Return the guards equal to the observed sets, cheapest first."""
    whole, ndims = np.concatenate(list(sets)), len(grids[0].dims)
    known = np.ones(len(whole), dtype=bool) if care is None else np.concatenate(list(care))
    truth, base, start = whole[known], Guard(), np.ones(int(known.sum()), dtype=bool)
    if peers is not None:
        base, start = WITH_PARTNER, np.concatenate([p >= 0 for p in peers])[known]
    if np.array_equal(start, truth):
        return [base]
    if np.any(truth & ~start):
        return []
    atoms, table = _matrix(grids, _numbers(grids, sets))
    values = table[:, known]
    if peers is not None:
        more = _propose_once(PARTNER, ndims)
        each = [_values(more, g, p) for g, p in zip(grids, peers, strict=True)]
        atoms = [*more, *atoms]
        values = np.concatenate([np.concatenate(each, axis=1)[:, known], values])
    found = _conjunctions(atoms, values, start, truth)
    if peers is not None and (not found or found[0][0] > DEAR):
        plain = _propose_once(RANK, ndims)
        each = [
            _block(RANK, g)[:, np.maximum(p, 0)] & (p >= 0)
            for g, p in zip(grids, peers, strict=True)
        ]
        atoms = [*atoms, *map(ForPartner, plain)]
        values = np.concatenate([values, np.concatenate(each, axis=1)[:, known]])
        found += _conjunctions(atoms, values, start, truth)
    if not found or found[0][0] > DEAR:
        others = _conjunctions(atoms, values, start, start & ~truth)
        found += [(0.4 + cost, Guard((Negation(c),))) for cost, c in others if len(c) > 1]
    bits = _evidence(np.repeat([g.n for g in grids], [len(s) for s in sets])[known], start, truth)
    if len({g.n for g in grids}) == 1:  # anything is as good as any other guess
        bits = math.inf
    found.sort(key=lambda f: f[0])
    return [base + guard for _, guard in found if guard.bits <= bits][:_KEPT]


def _propose_once(reads: str, ndims: int) -> list[Atom]:
    """Return the atoms that are tried."""
    return _PROPOSED.of((reads, ndims, *Atom.kinds), lambda: propose_atoms(reads, ndims))


def _values(atoms: Sequence[Atom], g: GridAt, peers: np.ndarray | None = None) -> np.ndarray:
    """Return for which ranks of a grid atoms hold, shape (atoms, n)."""
    held = [a.holds(g, peers) for a in atoms]
    return np.array(held, dtype=bool).reshape(len(atoms), g.size)


def _block(reads: str, g: GridAt) -> np.ndarray:
    """Return for which ranks of a grid the atoms hold that are tried, shape (atoms, n)."""
    at = g.at() if reads == RANK else g
    return _BLOCKS.of((reads, *_key([at])), lambda: _values(_propose_once(reads, len(g.dims)), at))


def _matrix(grids: Sequence[GridAt], numbers: tuple[int, ...]) -> tuple[list[Atom], np.ndarray]:
    """Return all atoms that need no partner and their values, shape (atoms, cells)."""

    def made() -> tuple[list[Atom], np.ndarray]:
        reads = (RANK, STAGE) if any(g.stages > 1 for g in grids) else (RANK,)
        counted = [kind for kind, opposite in Atom.kinds.values() if kind.numbered > opposite]
        extra = [atom for kind in counted for k in numbers for atom in kind.both(k)]
        atoms = [a for each in reads for a in _propose_once(each, len(grids[0].dims))] + extra
        blocks = [
            np.concatenate([*(_block(each, g) for each in reads), _values(extra, g)]) for g in grids
        ]
        table = np.concatenate(blocks, axis=1)
        # of atoms equal everywhere the first, the simplest, stands for all
        telling = (i for i, a in enumerate(atoms) if a.tells(grids))
        first: dict[bytes, int] = {}
        for i in sorted(telling, key=lambda i: atoms[i].cost):
            first.setdefault(table[i].tobytes(), i)
        return [atoms[i] for i in first.values()], table[list(first.values())]

    return _MATRICES.of((numbers, *_key(grids)), made)


def _numbers(grids: Sequence[GridAt], sets: Sequence[np.ndarray]) -> tuple[int, ...]:
    """Return numbers that may bound the ranks: how many there are, if always the same."""
    there = [(g.n, s) for g, s in zip(grids, sets, strict=True) if s.any()]
    sizes = {int(s.sum()) for _, s in there}
    if len(sizes) != 1 or len({n for n, _ in there}) < 2:
        return ()
    size = sizes.pop()
    low = {int(np.argmax(s)) for _, s in there}
    rest = {g.n - size for g in grids}
    out = {size} | (low if len(low) == 1 else set()) | (rest if len(rest) == 1 else set())
    return tuple(sorted(k for k in out if 0 < k <= 64))


def _evidence(of: np.ndarray, start: np.ndarray, truth: np.ndarray) -> float:
    """Return how many bits it takes to say which of those who could take part (start) do.

    of: the count of each.
    """
    counts = np.unique(of)
    could = [int((start & (of == n)).sum()) for n in counts]
    do = [int((truth & (of == n)).sum()) for n in counts]
    whole = sum(0 < k == m for k, m in zip(could, do, strict=True))
    none = sum(k > 0 == m for k, m in zip(could, do, strict=True))
    every = [*zip(could, do, strict=True), (whole + none, none)]
    return sum(math.log2(math.comb(k, m)) for k, m in every)


def _conjunctions(
    atoms: Sequence[Atom], values: np.ndarray, start: np.ndarray, truth: np.ndarray
) -> list[tuple[float, Guard]]:
    """Return conjunctions equal to ``truth`` inside ``start``, with their costs, cheapest first.

    An atom is of use if it holds for all of the truth; a conjunction is right if each rank outside
    the truth is left out by one of its atoms.
    """
    costs = np.array([a.cost for a in atoms])
    useful = np.flatnonzero((values | ~truth).all(axis=1))
    useful = useful[np.argsort(costs[useful], kind="stable")]
    out = ~values[useful][:, start & ~truth]
    useful, out = useful[out.any(axis=1)], out[out.any(axis=1)]
    # many atoms that are not geometric fit anything
    few = np.flatnonzero(costs[useful] <= GEOMETRIC)
    found = cheapest_covers(costs[useful], out, _ALIKE, enough=GEOMETRIC, larger=few.tolist())
    found = found[:_CONJUNCTIONS]
    return [(cost, Guard(tuple(atoms[useful[i]] for i in some))) for cost, some in found]
