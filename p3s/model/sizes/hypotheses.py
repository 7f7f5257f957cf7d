"""Hypotheses: all ways to write the sizes of a slot as a factor times blocks along axes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import combinations, product

import numpy as np

from p3s.laws.exact import evaluate_int
from p3s.laws.expr import Expr, mul, num
from p3s.model.sizes.blocks import Axis, FittedSize, Observations, cells_of
from p3s.model.sizes.levels import blocks_in
from p3s.model.sizes.positions import decides, plain_axes
from p3s.model.sizes.terms import BORDERS, CUTS, Profile, Term, Terms, joined, profile, terms_along

#: What hypotheses share: a kind of constant and its value.
Constant = tuple[str, object]
Price = Callable[[Constant], float]
#: Terms per axis (of products over so many axes) and hypotheses per slot that are kept.
MOST_TERMS, MOST_KEPT = {1: 4000, 2: 160, 3: 40}, 240
#: Largest factor: fields, components, planes in one message.
MAX_FACTOR = 1 << 20

#: The smaller of two numbers whose product a number is, at most.
_LARGEST_PART = 2048
#: Bits of an axis of the partner's, of one that no face has, of a face that is no product.
_PARTNERS, _NO_FACE, _LESS_FACE = 1.0, 3.0, 4.0


@dataclass(frozen=True)
class Hypothesis:
    """A factor times terms; axes: what the terms' axis numbers mean; odd: bits of unlikely axes."""

    factor: int
    terms: tuple[Term, ...]
    axes: tuple[Axis, ...]
    odd: float = 0.0

    def expr(self) -> Expr:
        """Return the equation."""
        return mul(num(self.factor), *(t.expr(self.axes) for t in self.terms))

    def key(self) -> tuple[object, ...]:
        """Return what tells hypotheses apart, also those of different slots."""
        names = ((str(self.axes[t.axis].p), str(self.axes[t.axis].c)) for t in self.terms)
        terms = ((t.cut, t.extent, t.ghost) for t in self.terms)
        return (self.factor, *zip(names, terms, strict=True))

    @cached_property
    def constants(self) -> frozenset[Constant]:
        """What other hypotheses may share."""
        out: set[Constant] = {("factor", self.factor)}
        for t in self.terms:
            out |= {("extent", t.extent), ("cut", t.cut.kind)}
            out.add(("axis", (self.axes[t.axis].name, t.extent)))
            if any(t.cut.border):
                out.add(("border", t.cut.border))
            if t.ghost:
                out.add(("ghost", t.ghost))
        return frozenset(out)

    def own(self) -> float:
        """Return the bits that the hypothesis costs whatever is shared."""
        wider = sum((t.ghost != 0) + any(t.cut.border) for t in self.terms)
        return 1.0 + len(self.terms) + (self.factor != 1) + wider + self.odd

    def free(self) -> int:
        """Return the number of constants in the equation."""
        ghosts = {t.ghost for t in self.terms} - {0}
        return len(self.terms) + (self.factor != 1) + len(ghosts)

    def values(self, env: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return the sizes, int64, for arrays of symbols."""
        out = np.full(len(env["n"]), self.factor, dtype=np.int64)
        for t in self.terms:
            axis = self.axes[t.axis]
            p, c = (evaluate_int(e, env) for e in (axis.p, axis.c))
            out = out * np.maximum(t.cut.sizes(t.extent, p, c) + t.ghost, 0)
        return out


@dataclass(frozen=True)
class Given(Hypothesis):
    """A law that was found for the slot alone, of whatever form."""

    law: FittedSize = FittedSize(num(0), 0, 0)

    def expr(self) -> Expr:
        return self.law.expr

    def key(self) -> tuple[object, ...]:
        return (str(self.law.expr),)

    @cached_property
    def constants(self) -> frozenset[Constant]:
        out: set[Constant] = set()
        for b in blocks_in(self.law.expr):
            out.add(("cut", b[1]))
            if b[2][0] == "num":
                out.add(("extent", b[2][1]))
        return frozenset(out)

    def own(self) -> float:
        """Return the bits of what is no block: numbers, operations, symbols."""
        return 1.0 + _bits_beside_blocks(self.law.expr)

    def free(self) -> int:
        return self.law.free

    def values(self, env: Mapping[str, np.ndarray]) -> np.ndarray:
        found = evaluate_int(self.law.expr, env, undefined=-1)
        return np.broadcast_to(found, (len(env["n"]),)).astype(np.int64)


def _bits_beside_blocks(expr: Expr) -> float:
    if expr[0] == "num":
        plain = 0.0 if expr[1] in (0, 1) else whole_bits(abs(expr[1]))
        return plain + 2 * math.log2(expr[2])
    if expr[0] == "sym":
        return 1.6
    inner = [a for a in expr[3:] if isinstance(a, list)] if expr[0] == "block" else expr[1:]
    return 1.0 + sum(_bits_beside_blocks(a) for a in inner if isinstance(a, list))


@lru_cache(maxsize=65536)
def whole_bits(value: int) -> float:
    """Return the bits of a whole number: round ones and powers are cheaper.

    None costs more than two whose product it is: else the same blocks would be cheaper as a factor
    times smaller ones, which are others where these do not divide.
    """
    plain = 2 * math.log2(value + 1) + 1
    for base in (2, 10):
        m, e = value, 0
        while m and m % base == 0:
            m, e = m // base, e + 1
        if e:
            plain = min(plain, 4 + 2 * math.log2(m + 1) + math.log2(e + 1))
    for a in range(2, min(math.isqrt(value), _LARGEST_PART) + 1):
        if value % a == 0:
            plain = min(plain, whole_bits(a) + whole_bits(value // a))
    return plain


def bits_of(constant: Constant, typed: frozenset[int]) -> float:
    """Return the bits of a constant; numbers that the user typed are nearly free."""
    kind, value = constant
    if kind == "extent":
        assert isinstance(value, int)
        return 0.5 if value in typed else whole_bits(value)
    if kind == "factor":
        assert isinstance(value, int)
        return 0.0 if value == 1 else whole_bits(value)
    if kind == "cut":
        return {"first": 1.0, "floor": 1.5}.get(str(value), 3.0)
    if kind == "ghost":
        assert isinstance(value, int)
        return 2.0 + abs(value)
    if kind == "border":  # points are one more than cells, at the end as a rule
        return 4.0 if value == (0, 1) else 8.0
    return 1.6


class Slot:
    """The observations of one slot with the axes along which its sizes may be cut.

    terms: those along axes that slots have in common.
    """

    def __init__(self, obs: Observations, terms: dict[object, list[Terms]]) -> None:
        self.obs, self.terms = obs, terms
        every = plain_axes(obs)
        self.axes: tuple[Axis, ...] = tuple(
            a
            for i, a in enumerate(every)
            if not any(
                b.p == a.p and np.array_equal(b.at, a.at) and np.array_equal(b.count, a.count)
                for b in every[:i]
            )
        )
        self.profiles: dict[tuple[int, ...], list[Profile] | None] = {}
        self.rows: dict[tuple[int, ...], tuple[np.ndarray, list[np.ndarray]]] = {}

    def sets(self) -> list[list[tuple[int, ...]]]:
        """Return sets of axes, by number, over which the sizes are a product, likeliest first.

        Of a halo's face those of its dimensions before all others.
        """
        face = {f"p{d}" for d in self.obs.across}
        every = [some for some in self._sets() if self.of_axes(some) is not None]
        own = [some for some in every if {self.axes[i].name for i in some} <= face]
        return [some for some in (own, [some for some in every if some not in own]) if some]

    def digest(self) -> bytes:
        """Return what tells slots apart of which the same can be said."""
        found = []
        for some in (some for alike in self.sets() for some in alike):
            axes = "|".join(f"{self.axes[i].p}{self.axes[i].c}" for i in some)
            rows, _ = self._rows(some)
            found += [axes.encode(), *(s.digest for s in self.of_axes(some) or [])]
            found.append(self.obs.value[rows].tobytes())
        return b"#".join([*found, repr(self.obs.across).encode()])

    def _sets(self) -> Iterator[tuple[int, ...]]:
        ranks = [i for i, a in enumerate(self.axes) if a.name == "n"]
        by_name: dict[str, list[int]] = {}
        for i, a in enumerate(self.axes):
            if a.name != "n":
                by_name.setdefault(a.name, []).append(i)
        yield from ((i,) for i in ranks)
        for size in (1, 2, 3):
            for names in combinations(by_name, size):
                for some in product(*(by_name[x] for x in names)):
                    if sum(str(self.axes[i].c[1])[0] == "q" for i in some) < 2:
                        yield some

    def of_axes(self, some: tuple[int, ...]) -> list[Profile] | None:
        """Return the profiles along some axes; None where the sizes are no such product."""
        if some not in self.profiles:
            axes = [self.axes[i] for i in some]
            found: list[Profile] | None = None
            if decides_by(self.obs, axes):
                seen = [profile(self.obs, axes, k) for k in range(len(axes))]
                found = [s for s in seen if s is not None]
                found = found if len(found) == len(axes) else None
            self.profiles[some] = found
        return self.profiles[some]

    def hypotheses(
        self, known: Sequence[int], price: Price, most: int = MOST_KEPT
    ) -> list[tuple[float, Hypothesis]]:
        """Return the hypotheses that give every size with their bits, cheapest first.

        known: extents of the program, tried where the sizes leave them open.
        """
        found: list[_Products] = []
        for alike in self.sets():
            if not found:
                found = [p for some in alike for p in self._over(some, tuple(known), price)]
        cost = np.concatenate([f.cost for f in found]) if found else np.zeros(0)
        where = [(k, i) for k, f in enumerate(found) for i in range(len(f.cost))]
        best = np.argsort(cost, kind="stable")[:most].tolist()
        return [
            (float(cost[i]), found[where[i][0]].hypothesis(where[i][1], self.axes)) for i in best
        ]

    def _over(
        self, some: tuple[int, ...], known: tuple[int, ...], price: Price
    ) -> Iterator[_Products]:
        """Yield the products over some axes that give every size, per way of cutting."""
        lists = [
            self._terms(s, i, known) for s, i in zip(self.of_axes(some) or [], some, strict=True)
        ]
        for mine in zip(*lists, strict=True):
            if all(len(terms.kind) for terms in mine):
                products = self._products(some, mine, price)
                if len(products.factor):
                    yield products

    def _terms(self, seen: Profile, axis: int, known: tuple[int, ...]) -> list[Terms]:
        """Return the terms along an axis, per way of cutting."""
        for of in ((), known):
            if (seen.digest, of) not in self.terms:
                some = [terms_along(seen, axis)]
                if of:
                    some = [joined(self.terms[seen.digest, ()]), terms_along(seen, axis, of)]
                every = joined(some)
                self.terms[seen.digest, of] = [
                    every.take(every.kind == kind) for kind in range(len(CUTS))
                ]
        return [replace(terms, axis=axis) for terms in self.terms[seen.digest, known]]

    def _products(self, some: tuple[int, ...], lists: Sequence[Terms], price: Price) -> _Products:
        """Return the products of one term per axis that leave the same factor at every row."""
        most = MOST_TERMS[len(lists)]
        names = [self.axes[i].name for i in some]
        kept, costs = [], []
        for terms, name in zip(lists, names, strict=True):
            cost = _costs(terms, name, price)
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
        odd = self._odd(some)
        times = np.array([bits[f] + (f != 1) for f in factor.tolist()])
        cost = 1.0 + total - back + cut + times + odd
        return _Products(kept, which, factor, cost, odd)

    def _odd(self, some: tuple[int, ...]) -> float:
        """Return what it costs that axes are not those of a halo's face, or are the partner's."""
        axes = [self.axes[i] for i in some]
        out = sum("q" in str(a.c) for a in axes) * _PARTNERS
        if not self.obs.across:
            return out
        face = {f"p{d}" for d in self.obs.across}
        out += sum(a.name not in face for a in axes) * _NO_FACE
        missing = face - {a.name for a in axes}
        return out + sum(bool(np.any(self.obs.env[p] > 1)) for p in missing) * _LESS_FACE

    def _rows(self, some: tuple[int, ...]) -> tuple[np.ndarray, list[np.ndarray]]:
        """Return rows that stand for all, one per combination of parts, and their cells per axis.

        Within a part the terms are as the sizes are: one row tells the factor.
        """
        if some not in self.rows:
            columns, cells = [], []
            for s, i in zip(self.of_axes(some) or [], some, strict=True):
                a = self.axes[i]
                cells.append(cells_of([a.count, a.at])[2])  # as those of the profile
                columns.append(s.part[cells[-1]])
            _, rows, _ = cells_of(columns)
            self.rows[some] = (rows, [cell[rows] for cell in cells])
        return self.rows[some]


@dataclass(frozen=True, eq=False)
class _Products:
    """Products of terms: which term per axis, the factor, what each costs by itself."""

    terms: Sequence[Terms]
    which: np.ndarray
    factor: np.ndarray
    cost: np.ndarray
    odd: float

    def hypothesis(self, i: int, axes: tuple[Axis, ...]) -> Hypothesis:
        chosen = [t.one(k) for t, k in zip(self.terms, self.which[:, i].tolist(), strict=True)]
        return Hypothesis(int(self.factor[i]), tuple(chosen), axes, self.odd)


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


def decides_by(obs: Observations, axes: Sequence[Axis]) -> bool:
    """Tell whether the value is a function of the numbers and positions of blocks alone."""
    if not decides(obs, axes):
        return False
    _, first, which = cells_of([c for a in axes for c in (a.count, a.at)])
    return bool(np.all(obs.value[first][which] == obs.value))
