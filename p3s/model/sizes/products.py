"""Products of blocks: all ways to write the sizes of a slot as a factor times blocks along axes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from p3s.model.sizes.hypotheses import Price, Product, prior
from p3s.model.sizes.observations import (
    Axis,
    Observations,
    cells_of,
    composite_axes,
    decides,
    plain_axes,
)
from p3s.model.sizes.terms import BORDERS, CUTS, Profile, Terms, join_terms, profile, terms_along

#: Terms per axis (of products over so many axes) and hypotheses per slot that are kept.
MOST_TERMS, MOST_KEPT = {1: 4000, 2: 160, 3: 40}, 240
#: Largest factor: fields, components, planes in one message.
MAX_FACTOR = 1 << 20

#: Terms of profiles along axes that slots have in common, per way of cutting.
TermsKnown = dict[object, list[Terms]]


@dataclass(frozen=True, eq=False)
class Line:
    """Ways of numbering the same blocks, and the bits of each; the cells are those of the first."""

    ways: tuple[tuple[Axis, float], ...]

    @property
    def axis(self) -> Axis:
        """The first way."""
        return self.ways[0][0]


def plain_products(obs: Observations, known: TermsKnown) -> Products:
    """Return the products over coordinates of the grid, ranks and those of partners.

    Of a halo's face those of its dimensions before all others.
    """
    axes = plain_axes(obs)
    face = {f"p{d}" for d in obs.across}
    lines = []
    for a in axes:
        bits = prior("product", "axis of the partner") if "q" in str(a.c) else 0.0
        if face and a.name not in face:
            bits += prior("product", "axis of no face")
        lines.append(Line(((a, bits),)))
    every = list(_sets(axes))
    own = [some for some in every if {axes[i].name for i in some} <= face]
    return Products(obs, lines, [own, [some for some in every if some not in own]], known)


def composite_products(obs: Observations, known: TermsKnown) -> Products:
    """Return the blocks cut over two dimensions of the grid at once."""
    lines = [Line(((axis, 0.0),)) for axis in composite_axes(obs)]
    return Products(obs, lines, [[(i,) for i in range(len(lines))]], known)


def _sets(axes: Sequence[Axis]) -> Iterator[tuple[int, ...]]:
    """Yield sets of axes, by number, over which sizes may be a product.

    At most one is of the partner. It may be cut into as many blocks as one of the rank's own: in a
    transposition a rank has a share of one extent and sends to each partner that one's of another.
    """
    whole = [i for i, a in enumerate(axes) if a.name in ("n", "")]
    cut = [i for i, a in enumerate(axes) if a.name not in ("n", "")]
    yield from ((i,) for i in whole)
    yield from (pair for pair in combinations(whole, 2) if _is_transposed(axes, pair))
    for size in (1, 2, 3):
        for some in combinations(cut, size):
            partners = [i for i in some if str(axes[i].c[1])[0] == "q"]
            alike = size - len({axes[i].name for i in some})
            if len(partners) < 2 and (not alike or _is_transposed(axes, some)):
                yield some


def _is_transposed(axes: Sequence[Axis], some: tuple[int, ...]) -> bool:
    """Tell whether one axis is an own one again as the partner has it, and rows can contradict.

    Where the partner is always the same, as of a shift, any sizes are a product of both.
    """
    pairs = [(a, b) for a, b in combinations((axes[i] for i in some), 2) if a.p == b.p]
    if len(pairs) != 1:
        return False
    own, other = pairs[0]
    columns = ([own.count, own.at], [other.count, other.at], [own.count, own.at, other.at])
    mine, theirs, both = (cells_of(each)[0].shape[1] for each in columns)
    return bool(both > mine + theirs)


class Products:
    """The observations of one slot with the lines along which its sizes may be cut.

    sets: lines, by number, over which the sizes may be a product, the likeliest sets first; known:
    terms along axes that slots have in common; uneven: lines along which sizes of one number of
    blocks never differ are none.
    """

    def __init__(
        self,
        obs: Observations,
        lines: Sequence[Line],
        sets: Sequence[Sequence[tuple[int, ...]]],
        known: TermsKnown,
        uneven: bool = False,
    ) -> None:
        self.uneven = uneven
        self.obs, self.lines, self.terms = obs, lines, known
        self.axes = tuple(axis for line in lines for axis, _ in line.ways)
        self.bits = np.array([bits for line in lines for _, bits in line.ways])
        self.first = np.cumsum([0, *(len(line.ways) for line in lines)])[:-1].tolist()
        self.profiles: dict[tuple[int, ...], list[Profile] | None] = {}
        self.rows: dict[tuple[int, ...], tuple[np.ndarray, list[np.ndarray]]] = {}
        self.sets = [
            those
            for alike in sets
            if (those := [some for some in alike if self.of_lines(some) is not None])
        ]

    def digest(self) -> bytes:
        """Return what tells slots apart of which the same can be said."""
        found = []
        for some in (some for alike in self.sets for some in alike):
            axes = "|".join(f"{self.lines[i].axis.p}{self.lines[i].axis.c}" for i in some)
            rows, _ = self._rows(some)
            found += [axes.encode(), *(s.digest for s in self.of_lines(some) or [])]
            found.append(self.obs.value[rows].tobytes())
        return b"#".join([*found, repr(self.obs.across).encode()])

    def of_lines(self, some: tuple[int, ...]) -> list[Profile] | None:
        """Return the profiles along some lines; None where the sizes are no such product."""
        if some not in self.profiles:
            axes = [self.lines[i].axis for i in some]
            found: list[Profile] | None = None
            if _decides(self.obs, axes):
                seen = [profile(self.obs, axes, k) for k in range(len(axes))]
                found = [s for s in seen if s is not None and (not self.uneven or s.uneven())]
                found = found if len(found) == len(axes) else None
            self.profiles[some] = found
        return self.profiles[some]

    def hypotheses(
        self, known: tuple[int, ...], price: Price, most: int = MOST_KEPT
    ) -> list[tuple[float, Product]]:
        """Return the hypotheses that give every size with their bits, cheapest first.

        known: extents of the program, tried where the sizes leave them open.
        """
        found: list[_TermProducts] = []
        for alike in self.sets:
            if not found:
                found = [p for some in alike for p in self._over(some, known, price)]
        cost = np.concatenate([f.cost for f in found]) if found else np.zeros(0)
        where = [(k, i) for k, f in enumerate(found) for i in range(len(f.cost))]
        best = np.argsort(cost, kind="stable")[:most].tolist()
        return [(float(cost[i]), self._hypothesis(found[where[i][0]], where[i][1])) for i in best]

    def _hypothesis(self, found: _TermProducts, i: int) -> Product:
        chosen = [t.one(k) for t, k in zip(found.terms, found.which[:, i].tolist(), strict=True)]
        odd = found.odd + float(sum(self.bits[t.axis] for t in chosen))
        return Product(int(found.factor[i]), tuple(chosen), self.axes, odd)

    def _over(
        self, some: tuple[int, ...], known: tuple[int, ...], price: Price
    ) -> Iterator[_TermProducts]:
        """Yield the products over some lines that give every size, per way of cutting."""
        lists = [
            self._terms(s, i, known) for s, i in zip(self.of_lines(some) or [], some, strict=True)
        ]
        for mine in zip(*lists, strict=True):
            if all(len(terms.kind) for terms in mine):
                products = self._products(some, mine, price)
                if len(products.factor):
                    yield products

    def _terms(self, seen: Profile, line: int, known: tuple[int, ...]) -> list[Terms]:
        """Return the terms along a line, per way of cutting."""
        per_way = []
        for k, (axis, _) in enumerate(self.lines[line].ways):
            there = seen if not k else seen.at(axis, self.lines[line].axis)
            terms = self._along(there, known)
            per_way.append([each.along(self.first[line] + k) for each in terms])
        return (
            per_way[0] if len(per_way) == 1 else list(map(join_terms, zip(*per_way, strict=True)))
        )

    def _along(self, seen: Profile, known: tuple[int, ...]) -> list[Terms]:
        for of in ((), known):
            if (seen.digest, of) not in self.terms:
                some = [terms_along(seen)]
                if of:
                    some = [join_terms(self.terms[seen.digest, ()]), terms_along(seen, of)]
                every = join_terms(some)
                self.terms[seen.digest, of] = [
                    every.take(every.kind == kind) for kind in range(len(CUTS))
                ]
        return self.terms[seen.digest, known]

    def _products(
        self, some: tuple[int, ...], lists: Sequence[Terms], price: Price
    ) -> _TermProducts:
        """Return the products of one term per axis that leave the same factor at every row."""
        most = MOST_TERMS[len(lists)]
        kept, costs = [], []
        for terms, i in zip(lists, some, strict=True):
            cost = _costs(terms, self.lines[i].axis.name, price) + self.bits[terms.axis]
            keep = np.argsort(cost, kind="stable")[:most]
            kept.append(terms.take(keep))
            costs.append(cost[keep])
        rows, cells = self._rows(some)
        sizes = [terms.size[:, cell] for terms, cell in zip(kept, cells, strict=True)]
        which, factor = _same_factor(sizes, self.obs.value[rows])
        border = np.stack([t.border[i] for t, i in zip(kept, which, strict=True)])
        top = border.max(axis=0)
        alike = np.all((border == 0) | (border == top), axis=0)
        which, factor = which[:, alike], factor[alike]
        total = np.zeros(len(factor))
        for one, i in zip(costs, which, strict=True):
            total = total + one[i]
        back = _shared_bits(kept, which, price)
        bits = {f: price(("factor", f)) for f in np.unique(factor).tolist()}
        cut = price(("cut", CUTS[int(kept[0].kind[0])]))
        odd = self._less_than_face(some)
        times = np.array([bits[f] + (f != 1) for f in factor.tolist()])
        return _TermProducts(kept, which, factor, 1.0 + total - back + cut + times + odd, odd)

    def _less_than_face(self, some: tuple[int, ...]) -> float:
        """Return what it costs that axes of a halo's face are missing."""
        missing = {f"p{d}" for d in self.obs.across} - {self.lines[i].axis.name for i in some}
        return sum(bool(np.any(self.obs.env[p] > 1)) for p in missing) * prior(
            "product", "less than a face"
        )

    def _rows(self, some: tuple[int, ...]) -> tuple[np.ndarray, list[np.ndarray]]:
        """Return rows that stand for all, one per combination of parts, and their cells per line.

        Within a part the terms are as the sizes are: one row tells the factor.
        """
        if some not in self.rows:
            columns, cells = [], []
            for s, i in zip(self.of_lines(some) or [], some, strict=True):
                a = self.lines[i].axis
                cells.append(cells_of([a.count, a.at])[2])  # as those of the profile
                columns.append(s.part[cells[-1]])
            _, rows, _ = cells_of(columns)
            self.rows[some] = (rows, [cell[rows] for cell in cells])
        return self.rows[some]


@dataclass(frozen=True, eq=False)
class _TermProducts:
    """Products of terms: which term per axis, the factor, what each costs by itself."""

    terms: Sequence[Terms]
    which: np.ndarray
    factor: np.ndarray
    cost: np.ndarray
    odd: float


def _same_factor(sizes: Sequence[np.ndarray], value: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return which products of one term per axis leave one factor at every row, and that factor.

    sizes: per axis the terms at every row, (terms, rows). Most products fail at the first rows.
    """
    many = tuple(len(size) for size in sizes)
    at = np.arange(math.prod(many))
    factor = np.zeros(len(at), dtype=np.int64)
    start = 0
    for end in sorted({min(rows, len(value)) for rows in (1, 2, 8, len(value))}):
        which = np.unravel_index(at, many)
        product_of = np.ones((len(at), end - start), dtype=np.int64)
        for size, i in zip(sizes, which, strict=True):
            product_of = product_of * size[:, start:end][i]
        times = value[start:end] // np.maximum(product_of, 1)  # a block may be empty
        if not start:
            factor = times[:, 0]
        good = np.all((product_of > 0) & (times * product_of == value[start:end]), axis=1)
        good &= np.all(times == factor[:, None], axis=1) & (factor <= MAX_FACTOR)
        at, factor = at[good], factor[good]
        start = end
    return np.stack(np.unravel_index(at, many)), factor


def _costs(terms: Terms, name: str, price: Price) -> np.ndarray:
    """Return the bits of terms, each by itself."""
    extents, back = np.unique(terms.extent, return_inverse=True)
    bits = np.array([price(("extent", e)) + price(("axis", (name, e))) for e in extents.tolist()])
    ghost = {g: price(("ghost", g)) + 1.0 if g else 0.0 for g in np.unique(terms.ghost).tolist()}
    border = np.array([price(("border", b)) + 1.0 if any(b) else 0.0 for b in BORDERS])
    wider = np.array([ghost[g] for g in terms.ghost.tolist()])
    return np.asarray(1.0 + bits[back.ravel()] + wider + border[terms.border])


def _shared_bits(terms: Sequence[Terms], which: np.ndarray, price: Price) -> np.ndarray:
    """Return the bits of extents, ghost widths and borders that terms of a product share."""
    out = np.zeros(which.shape[1])
    of_border = np.array([price(("border", b)) if any(b) else 0.0 for b in BORDERS])
    for a, b in combinations(range(len(terms)), 2):
        for kind, none in (("extent", -1), ("ghost", 0)):
            x, y = getattr(terms[a], kind)[which[a]], getattr(terms[b], kind)[which[b]]
            same = (x == y) & (x != none)
            bits = {v: price((kind, v)) for v in np.unique(x[same]).tolist()}
            out[same] += [bits[v] for v in x[same].tolist()]
        x, y = terms[a].border[which[a]], terms[b].border[which[b]]
        out += np.where(x == y, of_border[x], 0.0)
    return out / max(len(terms) - 1, 1)


def _decides(obs: Observations, axes: Sequence[Axis]) -> bool:
    """Tell whether the value is a function of the numbers and positions of blocks alone."""
    if not decides(obs, axes):
        return False
    _, first, which = cells_of([c for a in axes for c in (a.count, a.at)])
    return bool(np.all(obs.value[first][which] == obs.value))
