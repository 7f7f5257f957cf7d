"""Neighbourhoods on the process grid: all faces, all corners and so on, as one rule.

A neighbourhood is a set of unit vectors that no dimension of it is unlike another in: those of so
many non-zero components each, in both directions or in one. It is found only where it leads to the
traced partners and to no others at every count, so that a grid of wrong extents has none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from p3s.model.partners.pairs import Pairs
from p3s.model.partners.relation import Shift
from p3s.model.partners.relations import partners

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
class _Seen:
    """What pairs show of a neighbourhood on grids of several dimensions.

    wide: dimensions that messages cross; many: numbers of dimensions that a message crosses;
    clear: vectors without doubt; wraps: per dimension periodic, bordered, or None: not shown;
    whole: all ranks talk to all others at every count.
    """

    wide: tuple[int, ...]
    many: frozenset[int]
    clear: frozenset[Vector]
    wraps: tuple[bool | None, ...]
    used: tuple[np.ndarray, ...]
    whole: bool


def stencil(pairs: Sequence[Pairs], periods: tuple[bool, ...] | None = None) -> Stencil | None:
    """Return the neighbourhood that the pairs are at every count; None where they are none.

    periods: which dimensions are periodic, where the program says it.
    """
    seen = _look(pairs, periods)
    if seen is None:
        return None
    found = [
        (vectors, wrap, sided)
        for vectors, sided in _vectors(seen, len(pairs[0].grid.dims))
        for wrap in _wraps(seen)
        if _leads(vectors, wrap, pairs, seen.used)
    ]
    if not found:
        return None
    even = [f for f in found if _as_often(f[0], f[1], pairs)]
    if seen.whole and not (even and any(_uneven(p) for p in pairs)):
        return None  # all others: as simple, on any grid
    vectors, wrap, sided = (even or found)[0]
    said = [sided, len(seen.wide) < len(wrap), len(set(wrap)) > 1, _has_gaps(vectors)]
    cost = min(_WHOLE + _MORE * sum(said), float(len(vectors)))
    shifts = tuple(Shift(vec=v, wrap=wrap) for v in vectors)
    return Stencil(shifts, cost, tuple(d for d, w in enumerate(seen.wraps) if w is None))


def _look(pairs: Sequence[Pairs], periods: tuple[bool, ...] | None) -> _Seen | None:
    """Return what the pairs show; None if some are no neighbours, or too few dimensions show."""
    ndims = len(pairs[0].grid.dims) if pairs else 1
    wraps: list[bool | None] = [None] * ndims
    wide, clear, many = np.zeros(ndims, dtype=bool), set(), set()
    columns, used, whole = [], [], True
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
        used.append(_used(p))
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
    return _Seen(
        tuple(crossed), frozenset(many), frozenset(clear), tuple(wraps), tuple(used), whole
    )


def _used(p: Pairs) -> np.ndarray:
    out = np.zeros((p.grid.n, p.grid.n), dtype=bool)
    out[p.rank, p.peer] = True
    return out


def _vectors(seen: _Seen, ndims: int) -> Iterator[tuple[list[Vector], bool]]:
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


def _wraps(seen: _Seen) -> Iterator[tuple[bool, ...]]:
    """Yield which dimensions are periodic: those that do not show it as the others first."""
    shown = [w for d, w in enumerate(seen.wraps) if w is not None and d in seen.wide]
    usual = 2 * sum(shown) > len(shown)
    ways = [(usual, not usual) if w is None else (w,) for w in seen.wraps]
    yield from sorted(product(*ways), key=lambda wrap: sum(w != usual for w in wrap))


def _leads(
    vectors: Sequence[Vector],
    wrap: tuple[bool, ...],
    pairs: Sequence[Pairs],
    used: Sequence[np.ndarray],
) -> bool:
    """Return whether the vectors lead to the traced partners, and to nobody else but oneself."""
    shifts = [Shift(vec=v, wrap=wrap) for v in vectors]
    for p, want in zip(pairs, used, strict=True):
        got = np.zeros((p.grid.n, p.grid.n), dtype=bool)
        for s in shifts:
            to = partners(s, p.grid)[0]
            there = to >= 0
            got[np.flatnonzero(there), to[there]] = True
        if not want.diagonal().any():
            np.fill_diagonal(got, False)
        if not np.array_equal(got, want):
            return False
    return True


def _as_often(vectors: Sequence[Vector], wrap: tuple[bool, ...], pairs: Sequence[Pairs]) -> bool:
    """Return whether each way to a partner has as many messages as any other of its count."""
    shifts = [Shift(vec=v, wrap=wrap) for v in vectors]
    for p in pairs:
        if p.times is None:
            continue
        ways = np.zeros(len(p.rank), dtype=np.int64)
        for s in shifts:
            ways += partners(s, p.grid)[0][p.rank] == p.peer
        other = p.rank != p.peer
        each = p.times[other] / np.maximum(ways[other], 1)
        if len(each) and (each != each[0]).any():
            return False
    return True


def _uneven(p: Pairs) -> bool:
    """Return whether some partners have more messages than others."""
    times = p.times[p.rank != p.peer] if p.times is not None else np.zeros(0)
    return bool(len(times)) and bool((times != times[0]).any())


def _has_gaps(vectors: Sequence[Vector]) -> bool:
    """Return whether the numbers of dimensions crossed are neither 1 alone nor all from 1 on."""
    many = {sum(map(abs, v)) for v in vectors}
    most = sum(any(v[d] for v in vectors) for d in range(len(vectors[0])))
    return many not in ({1}, set(range(1, most + 1)))
