"""Shifts on the process grid: neighbours, and which of them pairs of ranks show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations, product

import numpy as np

from p3s.laws.expr import num
from p3s.model.grid.at import GridAt
from p3s.model.partners.pairs import Pairs
from p3s.model.partners.relation import NO_GUARD_SHIFT, Coordinate, Relation, Tried, moved

#: Steps beyond it are no neighbours.
MAX_REACH = 4


@dataclass(frozen=True, kw_only=True)
class Shift(Relation, kind="shift"):
    """The rank at a vector from one's own, dimensions bordered or periodic (wrap)."""

    vec: tuple[int, ...]
    wrap: tuple[bool, ...]
    no_guard = NO_GUARD_SHIFT

    @classmethod
    def read_off(cls, pairs: Sequence[Pairs]) -> Tried:
        """Yield one step around a line that all ranks take, also one of more than half of it."""
        if len(pairs[0].grid.dims) > 1 or any(len(p.rank) < p.grid.n for p in pairs):
            return
        longest = max(p.grid.n for p in pairs)
        for by in (s for k in range(1, longest) for s in (k, -k)):
            if all(((p.rank + by - p.peer) % p.grid.n == 0).all() for p in pairs):
                yield 2.0, cls(vec=(by,), wrap=(True,))
                return

    def to(self, g: GridAt) -> np.ndarray:
        coords = g.coords + np.array(self.vec, dtype=np.int64)[:, None]
        inside = g.inside.copy()
        for d, p in enumerate(g.dims):
            if self.wrap[d]:
                coords[d] %= p
            else:
                inside &= (coords[d] >= 0) & (coords[d] < p)
        out = np.full(g.size, -1, dtype=np.int64)
        out[inside] = g.rank_at(coords[:, inside])
        return out

    def formula(self) -> list[Coordinate]:
        line = len(self.vec) == 1
        steps = enumerate(zip(self.vec, self.wrap, strict=True))
        return [c for d, (by, w) in steps if by for c in moved(None if line else d, num(by), w)]

    def text(self) -> str:
        parts = []
        for (to, extent), by in zip(self.formula(), filter(None, self.vec), strict=True):
            place = f"{to[1][1]} {'+' if by > 0 else '-'} {abs(by)}"
            parts.append(place if extent is None else f"({place}) mod {extent[1]}")
        return ", ".join(parts) or "self"


def _on_grid(p: Pairs) -> Pairs:
    """Return the pairs of which both are on the grid."""
    both = p.grid.inside[p.rank] & p.grid.inside[p.peer]
    return p if both.all() else Pairs(p.grid, p.rank[both], p.peer[both])


def shift_vectors(
    pairs: Sequence[Pairs], periods: tuple[bool, ...] | None, known: bool = False
) -> tuple[list[Shift], set[int]]:
    """Return shift relations covering the pairs, and the axes whose direction stays open.

    known: the grid is known, so dimensions of two ranks end as those that show how they end.
    """
    ndims = len(pairs[0].grid.dims)
    found: dict[tuple[int, ...], list[bool]] = {}
    unclear: list[tuple[Pairs, np.ndarray]] = []
    for p in pairs:
        dims = np.array(p.grid.dims)[:, None]
        p = _on_grid(p)
        delta = p.grid.coords[:, p.peer] - p.grid.coords[:, p.rank]
        open_sign = ((2 * np.abs(delta) == dims) | (dims == 1)).any(axis=0)
        unclear.append((p, open_sign))
        clear = ~open_sign
        wraps = 2 * np.abs(delta) > dims
        vec = np.where(wraps, delta - np.sign(delta) * dims, delta)
        for col, w in zip(vec[:, clear].T, wraps[:, clear].T, strict=True):
            flags = found.setdefault(tuple(int(x) for x in col), [False] * ndims)
            for d in range(ndims):
                flags[d] |= bool(w[d])
    rels = [_shift(v, f, periods) for v, f in found.items()]
    two_sided = bool(found) and all(tuple(-x for x in v) in found for v in found)
    bordered = known and two_sided and not any(map(any, found.values()))
    ambiguous: set[int] = set()
    for p, mask in unclear:
        left = mask.copy()
        for rel in rels:
            if not left.any():
                break
            left &= rel.to(p.grid)[p.rank] != p.peer
        if not left.any():
            continue
        delta = p.grid.coords[:, p.peer[left]] - p.grid.coords[:, p.rank[left]]
        cols = sorted({tuple(int(x) for x in c) for c in delta.T}, reverse=True)
        for col in cols:
            if not any(col):
                continue
            mirror = tuple(-x for x in col)
            open_axes = [d for d in range(ndims) if col[d] and 2 * abs(col[d]) == p.grid.dims[d]]
            both = mirror in cols
            if both and col < mirror:
                continue
            wrap = [
                bool(both and d in open_axes) and not bordered
                if periods is None
                else bool(periods[d])
                for d in range(ndims)
            ]
            rels.append(Shift(vec=col, wrap=tuple(wrap)))
            if both and periods is not None and not any(periods[d] for d in open_axes):
                rels.append(Shift(vec=mirror, wrap=tuple(wrap)))
            elif both:
                ambiguous.update(open_axes)
                if two_sided:  # as in the dimensions where it shows, both ways through one call
                    rels.append(Shift(vec=mirror, wrap=tuple(wrap)))
    return rels, ambiguous


def _shift(vec: tuple[int, ...], flags: list[bool], periods: tuple[bool, ...] | None) -> Shift:
    wrap = [
        bool(periods[d]) or flags[d] if periods is not None and vec[d] else flags[d]
        for d in range(len(vec))
    ]
    return Shift(vec=vec, wrap=tuple(wrap))


def bordered_steps(pairs: Sequence[Pairs]) -> list[Shift]:
    """Return steps as they are, none around the edge: c + 2 is c - 1 on three ranks otherwise."""
    steps: set[tuple[int, ...]] = set()
    for p in pairs:
        delta = p.grid.coords[:, p.peer] - p.grid.coords[:, p.rank]
        steps.update(tuple(c) for c in np.unique(delta.T, axis=0).tolist())
        if len(steps) > 8 or not p.grid.inside.all():
            return []
    if any(max(map(abs, s)) < 2 for s in steps) or not steps:
        return []  # nearest neighbours: the other search knows their directions better
    if max(abs(x) for s in steps for x in s) > MAX_REACH:
        return []
    return [Shift(vec=s, wrap=(False,) * len(s)) for s in sorted(steps, reverse=True)]


def is_stencil(rels: Sequence[Relation]) -> bool:
    """Return whether relations are nearest neighbours on the grid, no dimension unlike another.

    These are neighbours along dimensions, or all vectors that permuting the dimensions and turning
    them round makes of each other. A grid of wrong extents needs others: (1, -1) without (1, 1).
    """
    vectors = {r.vec for r in rels if isinstance(r, Shift)}
    if len(vectors) < len(rels) or any(abs(x) > 1 for v in vectors for x in v):
        return False
    diagonal = {tuple(sorted(map(abs, v))) for v in vectors if sum(map(abs, v)) > 1}
    alike = {
        v
        for each in diagonal
        for order in permutations(each)
        for v in product(*((x, -x) for x in order))
    }
    return alike <= vectors
