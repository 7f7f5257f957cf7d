"""Terms of sizes: blocks along one axis, with what the border and a ghost layer add.

The sizes of a slot are a product of one term per axis and a factor. Sizes that differ along one
axis only give the ratios of its terms, and so, with the divisors of the sizes, the terms.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import lcm

import numpy as np

from p3s.laws.expr import Expr, add, block, block_size, mul, num
from p3s.model.sizes.blocks import Axis, Observations, divisors

#: Ways of cutting an extent: those of blocks, and bounds at ceil(c L / p), floor seen from the end.
EVEN_CUTS = ("first", "floor", "last", "roof", "low", "high")
UNEVEN_CUTS = ("ceil", "tail")
#: Elements that the first and the last block have more (cells and their points).
BORDERS = ((0, 0), (1, 0), (0, 1), (1, 1), (-1, -1))
#: Elements that every block has more.
GHOSTS = (0, 1, 2, 4, -1, -2, 3, 5, 6)
#: Largest extent; multiples of the ratios and extents that are looked at for one axis.
MAX_EXTENT, MAX_MULTIPLES, MAX_TRIED = 1 << 28, 96, 6000


@dataclass(frozen=True)
class Cut:
    """A way of cutting: a kind, and how many elements the first and the last block have more."""

    kind: str
    border: tuple[int, int] = (0, 0)

    def sizes(self, extent: np.ndarray | int, p: np.ndarray, c: np.ndarray) -> np.ndarray:
        """Return the sizes of blocks ``c`` of ``p``."""
        kind, at = ("floor", p - 1 - c) if self.kind == "roof" else (self.kind, c)
        first, last = self.border
        out: np.ndarray = block_size(kind, extent, p, at) + first * (c == 0) + last * (c == p - 1)
        return out

    def expr(self, extent: int, p: Expr, c: Expr) -> Expr:
        """Return the equation of the sizes."""
        end = add(p, num(-1), mul(num(-1), c))
        kind, at = ("floor", end) if self.kind == "roof" else (self.kind, c)
        first, last = self.border
        parts = [block(kind, extent, p, at)]
        if first:
            parts.append(mul(num(first), add(num(1), mul(num(-1), ["min", c, num(1)]))))
        if last:
            parts.append(mul(num(last), add(num(1), mul(num(-1), ["min", end, num(1)]))))
        return add(*parts)


@dataclass(frozen=True)
class Term:
    """The blocks of an extent along axis number ``axis``, each ``ghost`` wider."""

    axis: int
    cut: Cut
    extent: int
    ghost: int = 0

    def sizes(self, axes: Sequence[Axis]) -> np.ndarray:
        """Return the term at every row of the observations."""
        axis = axes[self.axis]
        return self.cut.sizes(self.extent, axis.count, axis.at) + self.ghost

    def expr(self, axes: Sequence[Axis]) -> Expr:
        """Return the equation of the term."""
        axis = axes[self.axis]
        return add(self.cut.expr(self.extent, axis.p, axis.c), num(self.ghost))


@dataclass(frozen=True, eq=False)
class Profile:
    """The sizes of a slot along one axis, up to a multiple per part.

    p, c: the cells; ratio: whole numbers without a common divisor in each part; part: cells whose
    ratios are known to each other have one number; multiples: per part what the terms may be
    multiples by of the ratios.
    """

    p: np.ndarray
    c: np.ndarray
    ratio: np.ndarray
    part: np.ndarray
    multiples: tuple[tuple[int, ...], ...]


@lru_cache(maxsize=4096)
def some_divisors(value: int) -> tuple[int, ...]:
    """Return the divisors of a number, the middle ones left out where there are very many."""
    if value > 1 << 40:
        return ()
    found = divisors(value)
    half = MAX_MULTIPLES // 2
    return tuple(found if len(found) <= MAX_MULTIPLES else found[:half] + found[-half:])


def profile(obs: Observations, axes: Sequence[Axis], k: int) -> Profile | None:
    """Return the sizes along axis ``k`` of a product over ``axes``; None if they are no product."""
    mine = np.stack([axes[k].count, axes[k].at])
    rest = np.stack([c for i, a in enumerate(axes) if i != k for c in (a.count, a.at)] or [mine[0] * 0])
    cells, a = np.unique(mine, axis=1, return_inverse=True)
    _, b = np.unique(rest, axis=1, return_inverse=True)
    pairs, first = np.unique(np.stack([a.ravel(), b.ravel()]), axis=1, return_index=True)
    values = obs.value[first].tolist()
    at_a: dict[int, list[int]] = {}
    at_b: dict[int, list[int]] = {}
    for e, (x, y) in enumerate(pairs.T.tolist()):
        at_a.setdefault(x, []).append(e)
        at_b.setdefault(y, []).append(e)
    share: dict[int, Fraction] = {}
    other: dict[int, Fraction] = {}
    part = np.full(cells.shape[1], -1)
    parts = 0
    for start in range(cells.shape[1]):
        if start in share:
            continue
        share[start] = Fraction(1)
        queue = [start]
        while queue:
            x = queue.pop()
            part[x] = parts
            for e in at_a[x]:
                y = int(pairs[1, e])
                if y in other:
                    if other[y] * share[x] != values[e]:
                        return None
                    continue
                other[y] = values[e] / share[x]
                for f in at_b[y]:
                    z = int(pairs[0, f])
                    if z not in share:
                        share[z] = values[f] / other[y]
                        queue.append(z)
        parts += 1
    ratio = np.ones(cells.shape[1], dtype=np.int64)
    multiples = []
    for k_part in range(parts):
        mine_at = np.flatnonzero(part == k_part)
        scale = lcm(*(share[int(x)].denominator for x in mine_at))
        whole = np.array([int(share[int(x)] * scale) for x in mine_at], dtype=object)
        whole = whole // np.gcd.reduce(whole)
        if max(whole) > MAX_EXTENT or min(whole) < 1:
            return None
        ratio[mine_at] = whole.astype(np.int64)
        rows = [e for x in mine_at.tolist() for e in at_a[x]]
        left = np.gcd.reduce([values[e] // int(ratio[pairs[0, e]]) for e in rows])
        multiples.append(some_divisors(int(left)))
    return Profile(cells[0], cells[1], ratio, part, tuple(multiples))


def terms_along(seen: Profile, axis: int, known: Sequence[int]) -> Iterator[tuple[Term, int]]:
    """Yield the terms in a profile's ratios, each with the number of its multiple in part 0.

    known: extents tried where the cells say too little: one count of blocks, all of one size.
    """
    for cuts, start in (
        (EVEN_CUTS, np.ones(len(seen.p), dtype=bool)),
        (UNEVEN_CUTS, seen.c == 0),
    ):
        extents, ghosts, borders = _tried(seen, start, known)
        for which in range(len(BORDERS)):
            own = borders == which
            if which and not own.any():
                continue
            for kind in cuts:
                if which and kind in ("low", "high", "tail"):
                    continue
                cut = Cut(kind, BORDERS[which])
                yield from _that_fit(seen, axis, cut, extents[own], ghosts[own])


def _that_fit(
    seen: Profile, axis: int, cut: Cut, extents: np.ndarray, ghosts: np.ndarray
) -> Iterator[tuple[Term, int]]:
    for some in (slice(0, 6), slice(None)):  # most fail at once
        p, c, ratio, part = seen.p[some], seen.c[some], seen.ratio[some], seen.part[some]
        size = cut.sizes(extents[:, None], p, c) + ghosts[:, None]
        _, first = np.unique(part, return_index=True)
        lead = first[np.searchsorted(part[first], part)] if _ascending(part[first]) else None
        if lead is None:
            lead = np.array([int(np.argmax(part == x)) for x in part])
        good = np.all((size > 0) & (size * ratio[lead] == size[:, lead] * ratio), axis=1)
        extents, ghosts, size = extents[good], ghosts[good], size[good]
        if not len(extents):
            return
    for e, g, s in zip(extents.tolist(), ghosts.tolist(), size, strict=True):
        if np.any(s % seen.ratio):
            continue
        yield Term(axis, cut, e, g), int(s[0] // seen.ratio[0])


def _ascending(x: np.ndarray) -> bool:
    return bool(np.all(x[1:] > x[:-1]))


def _tried(
    seen: Profile, start: np.ndarray, known: Sequence[int]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return extents, ghost widths and numbers of borders that may fit."""
    flat = len(set(seen.p.tolist())) == 1 and len(set(seen.ratio.tolist())) == 1
    best: tuple[int, int] | None = None
    for k, ms in enumerate(seen.multiples):
        cells = (seen.part == k) & start
        if cells.any() and ms:
            cost = len(ms) * int(seen.p[cells].min())
            best = min(best or (cost, k), (cost, k))
    lists: list[np.ndarray] = []
    if known:
        grid = np.meshgrid(known, GHOSTS, range(len(BORDERS)), indexing="ij")
        lists.append(np.stack([g.ravel() for g in grid]))
    if best is not None:
        cells = (seen.part == best[1]) & start
        p, c, ratio = seen.p[cells], seen.c[cells], seen.ratio[cells]
        ms = np.array(seen.multiples[best[1]], dtype=np.int64)
        for g in GHOSTS if not flat else (0,):
            for which, (first, last) in enumerate(BORDERS if not flat else BORDERS[:1]):
                size = ms[:, None] * ratio - g - first * (c == 0) - last * (c == p - 1)
                low = np.maximum(((size - 1) * p + 1).max(axis=1), 2)
                high = ((size + 1) * p - 1).min(axis=1)
                good = (low <= high) & (size.min(axis=1) >= 1) & (high < MAX_EXTENT)
                for a, b in zip(low[good].tolist(), high[good].tolist(), strict=True):
                    e = np.arange(a, b + 1) if b - a < 64 else _few(a, b, known)
                    if flat:
                        e = np.array([int(size[good].max()) * int(p[0])])
                    lists.append(np.stack([e, np.full(len(e), g), np.full(len(e), which)]))
    if not lists:
        return (np.zeros(0, dtype=np.int64),) * 3
    every = np.unique(np.concatenate(lists, axis=1).astype(np.int64), axis=1)[:, :]
    return every[0], every[1], every[2]


def _few(low: int, high: int, known: Sequence[int]) -> np.ndarray:
    """Return some numbers of a wide range: its ends, the middle, those known, round ones."""
    some = {low, high, (low + high) // 2, *(e for e in known if low <= e <= high)}
    step = 1
    while step <= high - low:
        some.add(-(-low // step) * step)
        step *= 2
    step = 1
    while step <= high - low:
        some.add(-(-low // step) * step)
        step *= 10
    return np.array(sorted(some), dtype=np.int64)
