"""Guards: which ranks execute a slot, as predicates on rank and grid coordinates.

A guard is a list of atoms (a conjunction); an atom is a list whose first element names it.
All atoms are evaluated for all ranks of a count at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from p3s.errors import P3SError

Atom = list[Any]


@dataclass(frozen=True)
class GridAt:
    """The process grid at one count: n, extents, coordinates (ndims, n)."""

    n: int
    dims: tuple[int, ...]
    coords: np.ndarray


def eval_atom(atom: Atom, g: GridAt, peers: np.ndarray | None = None) -> np.ndarray:
    """Return a bool array over ranks; ``peers`` are the slot's partners (-1 outside the grid)."""
    op = atom[0]
    ranks = np.arange(g.n)
    if op == "peer":  # the partner lies inside the grid
        return peers >= 0 if peers is not None else np.ones(g.n, dtype=bool)
    if op == "notself":
        return peers != ranks if peers is not None else np.ones(g.n, dtype=bool)
    if op == "rank":  # r == 0, r == n - 1
        return ranks == (atom[1] if atom[1] >= 0 else g.n + atom[1])
    if op == "notrank":
        return ranks != (atom[1] if atom[1] >= 0 else g.n + atom[1])
    if op == "rankmod":
        return ranks % atom[1] == atom[2]
    if op in ("first", "notfirst", "last", "notlast", "mod", "wide"):
        d = atom[1]
        c, p = g.coords[d], g.dims[d]
        if op == "first":
            return c == 0
        if op == "notfirst":
            return c != 0
        if op == "last":
            return c == p - 1
        if op == "notlast":
            return c != p - 1
        if op == "wide":
            return np.full(g.n, p > atom[2])
        return c % atom[2] == atom[3]
    if op in ("diag", "offdiag"):
        same = g.coords[atom[1]] == g.coords[atom[2]]
        return same if op == "diag" else ~same
    if op == "above":  # only at more than atom[1] processes
        return np.full(g.n, g.n > atom[1])
    raise P3SError(f"model: unknown guard {op!r}; the file was made by another version")


def eval_guard(guard: Sequence[Atom], g: GridAt, peers: np.ndarray | None = None) -> np.ndarray:
    """Return the conjunction of the atoms over all ranks."""
    mask = np.ones(g.n, dtype=bool)
    for atom in guard:
        mask &= eval_atom(atom, g, peers)
    return mask


def _candidates(ndims: int, with_peers: bool) -> list[Atom]:
    atoms: list[Atom] = []
    if with_peers:
        atoms += [["notself"]]
    atoms += [["rank", 0], ["notrank", 0], ["rank", -1], ["notrank", -1]]
    for d in range(ndims):
        atoms += [["first", d], ["notfirst", d], ["last", d], ["notlast", d]]
    atoms += [["wide", d, k] for d in range(ndims) for k in (1, 2)]
    atoms += [[w, a, b] for a, b in combinations(range(ndims), 2) for w in ("offdiag", "diag")]
    for d in range(ndims):
        atoms += [["mod", d, m, k] for m in (2, 4, 8) for k in range(m)]
    atoms += [["rankmod", m, k] for m in (2, 4, 8) for k in range(m)]
    return atoms


def fit_guard(
    grids: Sequence[GridAt], sets: Sequence[np.ndarray],
    peers: Sequence[np.ndarray] | None = None, care: Sequence[np.ndarray] | None = None,
) -> list[Atom] | None:
    """Return the simplest guard equal to the observed sets at every count, or None.

    sets: one bool array over ranks per count; peers: the partner per rank (-1 outside);
    care: ranks whose membership is known (others are left out of the comparison).
    """
    ndims = len(grids[0].dims)
    m = len(grids)
    ps: list[np.ndarray | None] = list(peers) if peers is not None else [None] * m
    cares = list(care) if care is not None else [np.ones(g.n, dtype=bool) for g in grids]
    truth = np.concatenate([s[k] for s, k in zip(sets, cares, strict=True)])

    def vector(atom: Atom) -> np.ndarray:
        return np.concatenate([eval_atom(atom, g, p)[k]
                               for g, p, k in zip(grids, ps, cares, strict=True)])

    base: list[Atom] = [["peer"]] if peers is not None else []
    start = vector(["peer"]) if peers is not None else np.ones(len(truth), dtype=bool)
    if np.array_equal(start, truth):
        return base
    if np.any(truth & ~start):
        return None
    bounds = np.cumsum([0, *(int(k.sum()) for k in cares)])

    def covering(atom: Atom) -> np.ndarray | None:
        """Return where the atom holds, None as soon as it misses one that takes part."""
        parts = []
        for i, (g, p, k) in enumerate(zip(grids, ps, cares, strict=True)):
            v = eval_atom(atom, g, p)[k]
            if np.any(truth[bounds[i]:bounds[i + 1]] & ~v):
                return None
            parts.append(v)
        return np.concatenate(parts)

    usable = [(a, start & v) for a in _candidates(ndims, peers is not None)
              if (v := covering(a)) is not None]
    for a, v in usable:
        if np.array_equal(v, truth):
            return [*base, a]
    # All hold where the truth does: together they fit if each other place is left out by one.
    out = ~truth
    need = _bits(out[out])
    leaves = [(a, _bits(~v[out])) for a, v in usable]
    for size in (2, 3):
        for combo in combinations(leaves if size == 2 else leaves[:24], size):
            got = 0
            for _, bits in combo:
                got |= bits
            if got == need:
                return [*base, *(a for a, _ in combo)]
    return None


def _bits(mask: np.ndarray) -> int:
    """Return a mask as the bits of one number."""
    return int.from_bytes(np.packbits(mask).tobytes(), "big")


def text(guard: Sequence[Atom]) -> str:
    """Return a guard for people."""
    def one(a: Atom) -> str:
        op = a[0]
        return {
            "peer": lambda: "partner in grid", "notself": lambda: "partner != self",
            "rank": lambda: f"r == {a[1] if a[1] >= 0 else 'n-1'}",
            "notrank": lambda: f"r != {a[1] if a[1] >= 0 else 'n-1'}",
            "rankmod": lambda: f"r mod {a[1]} == {a[2]}",
            "first": lambda: f"c{a[1]} == 0", "notfirst": lambda: f"c{a[1]} != 0",
            "last": lambda: f"c{a[1]} == p{a[1]}-1", "notlast": lambda: f"c{a[1]} != p{a[1]}-1",
            "wide": lambda: f"p{a[1]} > {a[2]}",
            "mod": lambda: f"c{a[1]} mod {a[2]} == {a[3]}",
            "diag": lambda: f"c{a[1]} == c{a[2]}", "offdiag": lambda: f"c{a[1]} != c{a[2]}",
            "above": lambda: f"n > {a[1]}",
        }[op]()
    return " and ".join(one(a) for a in guard) or "all"
