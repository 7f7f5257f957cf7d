"""Terms of sizes: blocks along one axis, with what the border and a ghost layer add.

The sizes of a slot are a product of one term per axis and a factor. Sizes that differ along one
axis only give the ratios of its terms, and so, with the divisors of the sizes, the terms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from math import lcm

import numpy as np

from p3s.laws.expr import Expr, add, block, block_size, mul, num
from p3s.laws.shares import divisors
from p3s.model.sizes.observations import Axis, Observations, cells_of, distinct_columns

#: Ways of cutting an extent: those of blocks, and bounds at ceil(c L / p), floor seen from the end.
EVEN_CUTS = ("first", "floor", "last", "roof", "low", "high")
UNEVEN_CUTS = ("ceil", "tail", "nearest")
CUTS = (*EVEN_CUTS, *UNEVEN_CUTS)
#: Of these, shares rounded down or up whatever the block, and those that go with no border.
PADDED = ("low", "high")
WITHOUT_BORDER = ("low", "high", "tail", "nearest")
#: Elements that the first and the last block have more (cells and their points).
BORDERS = ((0, 0), (1, 0), (0, 1), (1, 1), (-1, -1))
#: Elements that every block has more.
GHOSTS = (0, 1, 2, 4, -1, -2, 3, 5, 6)
#: Largest extent (elements, as many as bytes of a terabyte), and multiples of ratios of one axis.
MAX_EXTENT, MAX_MULTIPLES = 1 << 40, 96


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

    @cached_property
    def few(self) -> np.ndarray:
        """A few cells that most terms fail at: at the ends, of few and of many blocks."""
        order = np.lexsort((self.c, self.p))
        return np.unique(order[np.linspace(0, len(order) - 1, 8).astype(np.int64)])

    def uneven(self) -> bool:
        """Tell whether the sizes of some number of blocks differ."""
        return any(np.ptp(self.ratio[self.p == p]) > 0 for p in np.unique(self.p))

    def first_blocks(self) -> np.ndarray:
        """Return which cells are block 0; where none is seen, the first ones seen per number."""
        if np.any(self.c == 0):
            return np.asarray(self.c == 0)
        order = np.lexsort((self.c, self.p))
        out = np.zeros(len(self.p), dtype=bool)
        out[order[np.unique(self.p[order], return_index=True)[1]]] = True
        return out

    def flat(self) -> bool:
        """Tell whether all is one size of one number of blocks."""
        return bool(np.all(self.p == self.p[0]) and np.all(self.ratio == self.ratio[0]))

    @cached_property
    def digest(self) -> bytes:
        """What tells profiles apart."""
        parts = (self.p, self.c, self.ratio, self.part)
        return b"|".join([*(x.tobytes() for x in parts), repr(self.multiples).encode()])

    def at(self, axis: Axis, base: Axis) -> Profile:
        """Return the same sizes numbered along another axis through the cells of ``base``."""
        _, first, _ = cells_of([base.count, base.at])
        return replace(self, c=axis.at[first])

    def leads(self) -> np.ndarray:
        """Return for every cell the first one of its part."""
        _, first, which = np.unique(self.part, return_index=True, return_inverse=True)
        return np.asarray(first[which.ravel()])


@dataclass(frozen=True, eq=False)
class _Links:
    """Which cells along one axis are seen with which of the others.

    pairs: (2, links); first: a row of each; at_a, at_b: the links of each cell; part: cells that
    links connect, directly or not, have one number.
    """

    pairs: np.ndarray
    first: np.ndarray
    at_a: list[list[int]]
    at_b: list[list[int]]
    part: np.ndarray


@lru_cache(maxsize=512)
def _links(a: bytes, b: bytes) -> _Links:
    pairs, first, _ = distinct_columns([np.frombuffer(x, dtype=np.int64) for x in (a, b)])
    at_a: list[list[int]] = [[] for _ in range(1 + int(pairs[0].max()))]
    at_b: list[list[int]] = [[] for _ in range(1 + int(pairs[1].max()))]
    for e, (x, y) in enumerate(pairs.T.tolist()):
        at_a[x].append(e)
        at_b[y].append(e)
    part = np.full(len(at_a), -1)
    reached: set[int] = set()
    for start in range(len(at_a)):
        queue = [start] if part[start] < 0 else []
        number = 1 + int(part.max())
        while queue:
            x = queue.pop()
            if part[x] < 0:
                part[x] = number
                new = {int(pairs[1, e]) for e in at_a[x]} - reached
                reached |= new
                queue += [int(pairs[0, f]) for y in new for f in at_b[y]]
    return _Links(pairs, first, at_a, at_b, part)


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
    mine = [axes[k].count, axes[k].at]
    rest = [c for i, a in enumerate(axes) if i != k for c in (a.count, a.at)] or [mine[0] * 0]
    cells, _, a = cells_of(mine)
    links = _links(a.tobytes(), cells_of(rest)[2].tobytes())
    value = obs.value[links.first]
    if np.all(value == value[0]):
        every = (some_divisors(int(value[0])),) * (1 + int(links.part.max()))
        return Profile(cells[0], cells[1], np.ones_like(links.part), links.part, every)
    common = np.gcd.reduce(value)  # sizes of one field and of several have the same shares
    found = _shares(cells.shape[1], links, (value // common).astype(np.int64).tobytes())
    if found is None:
        return None
    ratio, part = found
    values = value.tolist()
    multiples = []
    for k_part in range(int(part.max(initial=-1)) + 1):
        rows = [e for x in np.flatnonzero(part == k_part).tolist() for e in links.at_a[x]]
        left = np.gcd.reduce([values[e] // int(ratio[links.pairs[0, e]]) for e in rows])
        multiples.append(some_divisors(int(left)))
    return Profile(cells[0], cells[1], ratio, part, tuple(multiples))


@lru_cache(maxsize=4096)
def _shares(cells: int, links: _Links, at_links: bytes) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the ratios of so many cells along an axis, and the part that each is in.

    None where the sizes at the links are no product, or their ratios too large.
    """
    (of_a, of_b), at_a, at_b = links.pairs.tolist(), links.at_a, links.at_b
    values = np.frombuffer(at_links, dtype=np.int64).tolist()
    share: dict[int, Fraction] = {}
    other: dict[int, Fraction] = {}
    part = np.full(cells, -1)
    parts = 0
    for start in range(cells):
        if start in share:
            continue
        share[start] = Fraction(1)
        queue = [start]
        while queue:
            x = queue.pop()
            part[x] = parts
            for e in at_a[x]:
                y = of_b[e]
                if y in other:
                    if other[y] * share[x] != values[e]:
                        return None
                    continue
                other[y] = values[e] / share[x]
                for f in at_b[y]:
                    z = of_a[f]
                    if z not in share:
                        share[z] = values[f] / other[y]
                        queue.append(z)
        parts += 1
    ratio = np.ones(cells, dtype=np.int64)
    for k_part in range(parts):
        mine_at = np.flatnonzero(part == k_part)
        scale = lcm(*(share[int(x)].denominator for x in mine_at))
        whole = np.array([int(share[int(x)] * scale) for x in mine_at], dtype=object)
        whole = whole // np.gcd.reduce(whole)
        if max(whole) > MAX_EXTENT or min(whole) < 1:
            return None
        ratio[mine_at] = whole.astype(np.int64)
    for found in (ratio, part):  # they are shared
        found.setflags(write=False)
    return ratio, part


@dataclass(frozen=True, eq=False)
class Terms:
    """Terms along one axis as arrays, one entry each; size: (terms, cells of the profile).

    axis: the numbers of axes, where several go through the same cells.
    """

    axis: np.ndarray
    kind: np.ndarray
    border: np.ndarray
    extent: np.ndarray
    ghost: np.ndarray
    size: np.ndarray

    def take(self, keep: np.ndarray) -> Terms:
        """Return some of the terms."""
        return Terms(*(getattr(self, name)[keep] for name in self.__dataclass_fields__))

    def along(self, axis: int) -> Terms:
        """Return the terms along another axis."""
        return replace(self, axis=np.full(len(self.kind), axis))

    def one(self, i: int) -> Term:
        """Return a single term."""
        cut = Cut(CUTS[int(self.kind[i])], BORDERS[int(self.border[i])])
        return Term(int(self.axis[i]), cut, int(self.extent[i]), int(self.ghost[i]))


def terms_along(seen: Profile, known: Sequence[int] | None = None) -> Terms:
    """Return the terms in a profile's ratios.

    known: of these extents alone, for where the cells say too little: one count of blocks, all of
    one size.
    """
    found: list[Terms] = []
    every = np.ones(len(seen.p), dtype=bool)
    for cuts, start in ((EVEN_CUTS, every), (UNEVEN_CUTS, seen.first_blocks())):
        tried = _try_multiples(seen, start) if known is None else _try_known(seen, known)
        for kind in cuts:
            some = tried[:, tried[2] == 0] if kind in WITHOUT_BORDER else tried
            if some.shape[1]:
                found.append(_that_fit(seen, kind, *some))
    none = np.zeros(0, dtype=np.int64)
    found.append(Terms(none, none, none, none, none, np.zeros((0, len(seen.p)), dtype=np.int64)))
    return join_terms(found)


def join_terms(some: Sequence[Terms]) -> Terms:
    """Return all terms of lists along one axis, each once."""
    names = Terms.__dataclass_fields__
    out = Terms(*(np.concatenate([getattr(t, x) for t in some]) for x in names))
    return out.take(distinct_columns([out.kind, out.border, out.extent, out.ghost, out.axis])[1])


def _that_fit(
    seen: Profile, kind: str, extents: np.ndarray, ghosts: np.ndarray, borders: np.ndarray
) -> Terms:
    """Return the terms of one way of cutting; borders: their numbers."""
    lead = seen.leads()
    cut, of_border = Cut(kind), np.array(BORDERS)
    size = np.zeros((len(extents), len(seen.p)), dtype=np.int64)

    def sizes(at: np.ndarray) -> np.ndarray:
        p, c = seen.p[at], seen.c[at]
        first, last = of_border[borders].T[:, :, None]
        out = cut.sizes(extents[:, None], p, c) + first * (c == 0) + last * (c == p - 1)
        return np.asarray(out + ghosts[:, None])

    for some in (seen.few[1:2], seen.few, np.arange(len(seen.p))):  # most fail at once
        ratio, size, first = seen.ratio[some], sizes(some), sizes(lead[some])
        good = np.all((size > 0) & (size % ratio == 0), axis=1)
        good &= np.all(size * seen.ratio[lead[some]] == first * ratio, axis=1)
        extents, ghosts, borders, size = extents[good], ghosts[good], borders[good], size[good]
        if not len(extents):
            size = np.zeros((0, len(seen.p)), dtype=np.int64)
            break
    none = np.zeros(len(extents), dtype=np.int64)
    return Terms(none, none + CUTS.index(kind), borders, extents, ghosts, size)


def _try_known(seen: Profile, known: Sequence[int]) -> np.ndarray:
    """Return (extents, ghost widths, numbers of borders) to try for extents of the program."""
    least = 8 * int(seen.p.min())
    some = [e for e in known if e >= least]
    grid = np.meshgrid(np.array(some, dtype=np.int64), GHOSTS, range(len(BORDERS)), indexing="ij")
    return np.stack([g.ravel() for g in grid])


def _try_multiples(seen: Profile, start: np.ndarray) -> np.ndarray:
    """Return (extents, ghost widths, numbers of borders) that may give the sizes of a part."""
    best: tuple[int, int] | None = None
    for k, some in enumerate(seen.multiples):
        cells = (seen.part == k) & start
        if cells.any() and some:
            cost = len(some) * int(seen.p[cells].min())
            best = min(best or (cost, k), (cost, k))
    if best is None:
        return np.zeros((3, 0), dtype=np.int64)
    cells = (seen.part == best[1]) & start
    p, c, ratio = seen.p[cells], seen.c[cells], seen.ratio[cells]
    ms = np.array(seen.multiples[best[1]], dtype=np.int64)
    if seen.flat():  # nothing tells the extent but that it divided
        full = ms * ratio[0] * p[0]
        full = full[full >= 8 * p[0]]
        return np.stack([full, full * 0, full * 0])
    ghost, which = (x.ravel() for x in np.meshgrid(GHOSTS, range(len(BORDERS)), indexing="ij"))
    first, last = np.array(BORDERS)[which].T[:, :, None, None]
    size = ms[:, None] * ratio - ghost[:, None, None] - first * (c == 0) - last * (c == p - 1)
    low = np.maximum(((size - 1) * p + 1).max(axis=2), 2)
    high = ((size + 1) * p - 1).min(axis=2)
    good = (low <= high) & (size.min(axis=2) >= 1) & (high < MAX_EXTENT)
    extent, of = _between(low[good], high[good])
    of = np.nonzero(good)[0][of]
    return distinct_columns([extent, ghost[of], which[of]])[0]


def _between(low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the whole numbers in ranges, of wide ranges a few, and which range each is of."""
    wide = high - low >= 64
    number = np.where(wide, 0, high - low + 1)
    start = np.cumsum(number) - number
    of = np.arange(len(low))
    parts = [(np.repeat(low - start, number) + np.arange(int(number.sum())), np.repeat(of, number))]
    for k in of[wide].tolist():
        some = _few(int(low[k]), int(high[k]))
        parts.append((some, np.full(len(some), k)))
    return np.concatenate([x for x, _ in parts]), np.concatenate([k for _, k in parts])


def _few(low: int, high: int) -> np.ndarray:
    """Return some numbers of a wide range: its ends, the middle, round ones."""
    some = {low, high, (low + high) // 2}
    for base in (2, 10):
        step = 1
        while step <= high - low:
            some.add(-(-low // step) * step)
            step *= base
    return np.array(sorted(some), dtype=np.int64)
