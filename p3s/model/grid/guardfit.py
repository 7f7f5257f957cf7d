"""Finding guards: the simplest predicate equal to who was seen to take part, at all counts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from p3s.model.grid.at import DEAR, GEOMETRIC, PARTNER, RANK, STAGE, Atom, GridAt, Guard, proposed
from p3s.model.grid.atoms import ForPartner, HasPartner, Not

#: The guard that all guards of messages begin with.
WITH_PARTNER = Guard((HasPartner(),))


def of_ranks(guard: Guard) -> Guard:
    """Return the part of a guard that depends on the rank alone."""
    return Guard(tuple(a for a in guard.atoms if a.reads == RANK))


#: Atoms of a conjunction at most.
MOST_ATOMS = 6
_BLOCKS: dict[Any, np.ndarray] = {}
_PROPOSED: dict[Any, list[Atom]] = {}
_MATRICES: dict[Any, tuple[list[Atom], np.ndarray]] = {}
_GUARDS: dict[Any, list[Guard]] = {}


def _proposed(reads: str, ndims: int) -> list[Atom]:
    """Return the atoms that are tried, remembered for the kinds that there are."""
    key = (reads, ndims, *Atom.kinds)
    if key not in _PROPOSED:
        _PROPOSED[key] = proposed(reads, ndims)
    return _PROPOSED[key]


def _block(atoms: Sequence[Atom], g: GridAt, key: Any) -> np.ndarray:
    """Return the values of atoms at one grid, shape (atoms, n), remembered under a key."""
    found = _BLOCKS.get(key)
    if found is None:
        found = np.array([a.holds(g) for a in atoms])
        if len(_BLOCKS) > 1024 or found.size > 1 << 20:
            _BLOCKS.clear()
        _BLOCKS[key] = found
    return found


def _matrix(grids: Sequence[GridAt], numbers: tuple[int, ...]) -> tuple[list[Atom], np.ndarray]:
    """Return all atoms that need no partner and their values, shape (atoms, cells)."""
    kinds = tuple(Atom.kinds)
    key = (kinds, numbers, *((g.key, g.stage, g.stages) for g in grids))
    found = _MATRICES.get(key)
    if found is None:
        ndims = len(grids[0].dims)
        atoms = list(_proposed(RANK, ndims))
        values = [np.concatenate([_block(atoms, g, (kinds, g.key)) for g in grids], axis=1)]
        if any(g.stages > 1 for g in grids):
            more = _proposed(STAGE, ndims)
            values.append(
                np.concatenate(
                    [_block(more, g, (kinds, g.key, g.stage, g.stages)) for g in grids], axis=1
                )
            )
            atoms += more
        counted = [kind for kind, opposite in Atom.kinds.values() if kind.numbered > opposite]
        extra = [atom for kind in counted for k in numbers for atom in kind.both(k)]
        if extra:
            values.append(np.array([np.concatenate([a.holds(g) for g in grids]) for a in extra]))
            atoms += extra
        table = np.concatenate(values)
        # of atoms equal everywhere the first, the simplest, stands for all
        order = sorted(
            (i for i, a in enumerate(atoms) if a.tells(grids)), key=lambda i: atoms[i].cost
        )
        first: dict[bytes, int] = {}
        for i in order:
            first.setdefault(table[i].tobytes(), i)
        kept = list(first.values())
        found = ([atoms[i] for i in kept], table[kept])
        if len(_MATRICES) > 256 or table.size > 1 << 24:
            _MATRICES.clear()
        _MATRICES[key] = found
    return found


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
    found = fit_guards(grids, sets, peers, care)
    return found[0] if found else None


def fit_guards(
    grids: Sequence[GridAt],
    sets: Sequence[np.ndarray],
    peers: Sequence[np.ndarray] | None = None,
    care: Sequence[np.ndarray] | None = None,
) -> list[Guard]:
    """Return the guards equal to the observed sets, cheapest first (a few of them at most)."""
    key = (
        tuple(Atom.kinds),
        *((g.key, g.stage, g.stages) for g in grids),
        *(np.concatenate(list(x)).tobytes() if x is not None else None for x in (peers, care)),
        np.concatenate(list(sets)).tobytes(),
    )
    found = _GUARDS.get(key)
    if found is None:  # what one call site does, many others do
        if len(_GUARDS) > 4096:
            _GUARDS.clear()
        found = _GUARDS[key] = _guards(grids, sets, peers, care)
    return list(found)


def _guards(
    grids: Sequence[GridAt],
    sets: Sequence[np.ndarray],
    peers: Sequence[np.ndarray] | None,
    care: Sequence[np.ndarray] | None,
) -> list[Guard]:
    """Return the guards equal to the observed sets, cheapest first."""
    cares = np.concatenate(list(care)) if care is not None else None
    whole = np.concatenate(list(sets))
    truth = whole if cares is None else whole[cares]
    start = np.ones(len(truth), dtype=bool)
    base = Guard()
    if peers is not None:
        base = WITH_PARTNER
        inside = np.concatenate([p >= 0 for p in peers])
        start = inside if cares is None else inside[cares]
    if np.array_equal(start, truth):
        return [base]
    if np.any(truth & ~start):
        return []
    atoms, values = _matrix(grids, _numbers(grids, sets))
    if peers is not None:
        more = _proposed(PARTNER, len(grids[0].dims))
        atoms = [*more, *atoms]
        values = np.concatenate(
            [
                np.array(
                    [
                        np.concatenate([a.holds(g, p) for g, p in zip(grids, peers, strict=True)])
                        for a in more
                    ]
                ),
                values,
            ]
        )
    if cares is not None:
        values = values[:, cares]
    costs = np.array([a.cost for a in atoms])
    found = [(c.cost, c) for c in _cover(atoms, values, costs, start, truth)]
    if peers is not None and (not found or found[0][0] > DEAR):
        atoms, values = _of_partners(grids, peers, cares, atoms, values)
        costs = np.array([a.cost for a in atoms])
        found += [(c.cost, c) for c in _cover(atoms, values, costs, start, truth)]
    if not found or found[0][0] > DEAR:
        found += [
            (0.4 + c.cost, Guard((Not(c),)))
            for c in _cover(atoms, values, costs, start, start & ~truth)
            if len(c) > 1
        ]
    bits = _evidence(grids, sets, start, cares)
    return [base + c for _, c in sorted(found, key=lambda f: f[0]) if c.bits <= bits][:6]


def _of_partners(
    grids: Sequence[GridAt],
    peers: Sequence[np.ndarray],
    cares: np.ndarray | None,
    atoms: list[Atom],
    values: np.ndarray,
) -> tuple[list[Atom], np.ndarray]:
    """Return the atoms with those that speak of the partner."""
    kinds = tuple(Atom.kinds)
    plain = _proposed(RANK, len(grids[0].dims))
    blocks = []
    for g, p in zip(grids, peers, strict=True):
        block = _block(plain, g, (kinds, g.key))[:, np.maximum(p, 0)]
        blocks.append(block & (p >= 0))
    more = np.concatenate(blocks, axis=1)
    if cares is not None:
        more = more[:, cares]
    return [*atoms, *map(ForPartner, plain)], np.concatenate([values, more])


def _evidence(
    grids: Sequence[GridAt], sets: Sequence[np.ndarray], start: np.ndarray, cares: np.ndarray | None
) -> float:
    """Return how many bits it takes to say which of those who could take part do.

    At one count alone anything is as good as any other guess: no bound.
    """
    place = np.concatenate([np.full(len(s), g.n) for g, s in zip(grids, sets, strict=True)])
    truth = np.concatenate(list(sets))
    if cares is not None:
        place, truth = place[cares], truth[cares]
    counts = sorted({g.n for g in grids})
    if len(counts) == 1:
        return math.inf
    bits, whole, none = 0.0, 0, 0
    for n in counts:
        could = int(((place == n) & start).sum())
        do = int(((place == n) & truth & start).sum())
        bits += math.log2(math.comb(could, do))
        whole += could > 0 and do == could
        none += could > 0 and do == 0
    return bits + math.log2(math.comb(whole + none, none))


def _numbers(grids: Sequence[GridAt], sets: Sequence[np.ndarray]) -> tuple[int, ...]:
    """Return numbers that may bound the ranks: how many there are, if always the same."""
    sizes = {int(s.sum()) for s in sets if s.any()}
    if len(sizes) != 1 or len({g.n for g, s in zip(grids, sets, strict=True) if s.any()}) < 2:
        return ()
    size = sizes.pop()
    low = {int(np.argmax(s)) for s in sets if s.any()}
    rest = {g.n - size for g in grids}
    out = {size} | (low if len(low) == 1 else set()) | (rest if len(rest) == 1 else set())
    return tuple(sorted(k for k in out if 0 < k <= 64))


def _cover(
    atoms: Sequence[Atom],
    values: np.ndarray,
    costs: np.ndarray,
    start: np.ndarray,
    truth: np.ndarray,
) -> list[Guard]:
    """Return conjunctions equal to ``truth`` inside ``start``, cheapest first.

    An atom is of use if it holds for all of the truth; a conjunction is right if no rank outside
    the truth is in all of its atoms.
    """
    useful = np.flatnonzero((values | ~truth).all(axis=1))
    useful = useful[np.argsort(costs[useful], kind="stable")]
    wrong = values[useful][:, start & ~truth].astype(np.float32)
    keep = wrong.sum(axis=1) < wrong.shape[1]  # the others exclude nobody
    useful, wrong = useful[keep], wrong[keep]
    if (wrong > 0).all(axis=0).any():  # some rank is in all of them, or there are none
        return []
    out = wrong.shape[1] - wrong.sum(axis=1)  # how many each excludes
    most = np.sort(out)[::-1]
    if most[:MOST_ATOMS].sum() < wrong.shape[1]:
        return []
    cost = costs[useful]
    found: list[tuple[float, tuple[int, ...]]] = []
    found += [(float(cost[i]), (int(i),)) for i in np.flatnonzero(wrong.sum(axis=1) == 0)[:3]]
    if found and found[0][0] <= 1.6:
        return [Guard(tuple(atoms[useful[i]] for i in c)) for _, c in found]
    pairs = np.argwhere(np.triu(wrong @ wrong.T == 0, 1))
    if len(pairs):
        total = cost[pairs].sum(axis=1) + 0.2
        found += [
            (float(total[k]), tuple(int(x) for x in pairs[k]))
            for k in np.argsort(total, kind="stable")[:3]
        ]
    if not found:
        few = wrong[:48]
        two = most[:2].sum()
        for i in np.flatnonzero(out[:48] + two >= wrong.shape[1]):
            left = few[i + 1 :, few[i] > 0]  # what the others have to exclude
            rest = i + 1 + np.argwhere(np.triu(left @ left.T == 0, 1))
            if len(rest):
                total = cost[i] + cost[rest].sum(axis=1) + 0.4
                k = int(np.argmin(total))
                found.append((float(total[k]), (int(i), int(rest[k][0]), int(rest[k][1]))))
    if not found and len(wrong):
        found += _greedy(wrong, cost)
    found.sort(key=lambda f: f[0])
    return [Guard(tuple(atoms[useful[i]] for i in c)) for _, c in found[:4]]


def _greedy(wrong: np.ndarray, cost: np.ndarray) -> list[tuple[float, tuple[int, ...]]]:
    """Return a conjunction of a few atoms, each the one that excludes most."""
    left = np.ones(wrong.shape[1], dtype=bool)
    chosen: list[int] = []
    cheap = np.flatnonzero(cost <= GEOMETRIC)  # many atoms that are not geometric fit anything
    while left.any() and len(chosen) < MOST_ATOMS:
        out = (wrong[cheap][:, left] == 0).sum(axis=1)
        if not len(out) or out.max() == 0:
            return []
        best = int(cheap[int(np.argmax(out))])
        chosen.append(best)
        left &= wrong[best] > 0
    if left.any():
        return []
    for i in list(chosen):
        rest = [j for j in chosen if j != i]
        if rest and not (wrong[rest] > 0).all(axis=0).any():
            chosen = rest
    return [(float(cost[chosen].sum()) + 0.2 * (len(chosen) - 1), tuple(chosen))]
