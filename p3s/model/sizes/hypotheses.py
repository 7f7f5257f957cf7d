"""Hypotheses: all ways to write the sizes of a slot as a factor times blocks along axes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product

import numpy as np

from p3s.laws.expr import Expr, mul, num
from p3s.model.sizes.blocks import Axis, Observations
from p3s.model.sizes.positions import decides, plain_axes
from p3s.model.sizes.terms import EVEN_CUTS, UNEVEN_CUTS, Profile, Term, profile, terms_along

#: What hypotheses share: a kind of constant and its value.
Constant = tuple[str, object]
Price = Callable[[Constant], float]
#: Terms per axis (of products over so many axes) and hypotheses per slot that are kept.
MOST_TERMS, MOST_KEPT = {1: 4000, 2: 160, 3: 48}, 400
#: Largest factor: fields, components, planes in one message.
MAX_FACTOR = 4096


@dataclass(frozen=True)
class Hypothesis:
    """A factor times terms; axes: what the terms' axis numbers mean."""

    factor: int
    terms: tuple[Term, ...]
    axes: tuple[Axis, ...]

    def expr(self) -> Expr:
        """Return the equation."""
        return mul(num(self.factor), *(t.expr(self.axes) for t in self.terms))

    def key(self) -> tuple[object, ...]:
        """Return what tells hypotheses apart, also those of different slots."""
        names = ((str(self.axes[t.axis].p), str(self.axes[t.axis].c)) for t in self.terms)
        return (self.factor, *zip(names, ((t.cut, t.extent, t.ghost) for t in self.terms)))

    def constants(self) -> frozenset[Constant]:
        """Return what other hypotheses may share."""
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
        partner = sum("q" in str(self.axes[t.axis].c) for t in self.terms)
        wider = sum((t.ghost != 0) + any(t.cut.border) for t in self.terms)
        return 1.0 + len(self.terms) + wider + partner

    def free(self) -> int:
        """Return the number of constants in the equation."""
        ghosts = {t.ghost for t in self.terms} - {0}
        return len(self.terms) + (self.factor != 1) + len(ghosts)

    def divides(self) -> bool:
        """Tell whether no block had a remainder at any row."""
        return all(
            bool(np.all(t.extent % self.axes[t.axis].count == 0)) for t in self.terms
        )


def whole_bits(value: int) -> float:
    """Return the bits of a whole number: round ones and powers are cheaper."""
    plain = 2 * math.log2(value + 1) + 1
    for base in (2, 10):
        m, e = value, 0
        while m % base == 0:
            m, e = m // base, e + 1
        if e:
            plain = min(plain, 4 + 2 * math.log2(m + 1) + math.log2(e + 1))
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
    return 2.0 if kind == "border" else 1.6


class Slot:
    """The observations of one slot with the axes along which its sizes may be cut."""

    def __init__(self, obs: Observations) -> None:
        self.obs = obs
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

    def sets(self) -> Iterator[tuple[int, ...]]:
        """Yield sets of axes, by number, over which the sizes may be a product."""
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

    def hypotheses(self, known: Sequence[int], price: Price) -> list[Hypothesis]:
        """Return the hypotheses that give every size, cheapest first.

        known: extents of the program, tried where the sizes leave them open.
        """
        found: dict[tuple[object, ...], tuple[float, Hypothesis]] = {}
        for some in self.sets():
            seen = self.of_axes(some)
            if seen is None:
                continue
            lists = [list(terms_along(s, i, known)) for s, i in zip(seen, some, strict=True)]
            if not all(lists):
                continue
            for kind in (*EVEN_CUTS, *UNEVEN_CUTS):
                mine = [[t for t, _ in terms if t.cut.kind == kind] for terms in lists]
                if all(mine):
                    for h in self._products(mine, price):
                        cost = h.own() + sum(price(c) for c in h.constants())
                        found.setdefault(h.key(), (cost, h))
        best = sorted(found.values(), key=lambda x: x[0])[:MOST_KEPT]
        return [h for _, h in best]

    def _products(self, lists: Sequence[list[Term]], price: Price) -> Iterator[Hypothesis]:
        def cost(t: Term) -> float:
            return price(("extent", t.extent)) + 2 * (t.ghost != 0) + 2 * any(t.cut.border)

        most = MOST_TERMS[len(lists)]
        lists = [sorted(terms, key=cost)[:most] for terms in lists]
        rows = self._rows(lists)
        value = self.obs.value[rows]
        size = np.ones((1, len(rows)), dtype=np.int64)
        axes = [
            Axis(a.p, a.c, a.count[rows], a.at[rows]) for a in self.axes
        ]
        for terms in lists:
            each = np.stack([t.sizes(axes) for t in terms])
            size = (size[:, None, :] * each[None, :, :]).reshape(-1, len(rows))
        times = value // np.maximum(size, 1)
        good = np.all((times * size == value) & (times == times[:, :1]), axis=1)
        shape = tuple(len(terms) for terms in lists)
        for at in np.flatnonzero(good & (times[:, 0] <= MAX_FACTOR) & (times[:, 0] >= 1)):
            chosen = tuple(
                terms[int(i)] for terms, i in zip(lists, np.unravel_index(at, shape), strict=True)
            )
            if len({t.cut.border for t in chosen} - {(0, 0)}) < 2:
                yield Hypothesis(int(times[at, 0]), chosen, self.axes)

    def _rows(self, lists: Sequence[list[Term]]) -> np.ndarray:
        """Return rows that stand for all: one per combination of parts of the profiles."""
        some = tuple(terms[0].axis for terms in lists)
        seen = self.of_axes(some) or []
        columns = []
        for s, i in zip(seen, some, strict=True):
            a = self.axes[i]
            part = {(p, c): k for p, c, k in zip(s.p.tolist(), s.c.tolist(), s.part.tolist())}
            columns.append([part[p, c] for p, c in zip(a.count.tolist(), a.at.tolist())])
        _, rows = np.unique(np.array(columns), axis=1, return_index=True)
        return rows


def decides_by(obs: Observations, axes: Sequence[Axis]) -> bool:
    """Tell whether the value is a function of the numbers and positions of blocks alone."""
    if not decides(obs, axes):
        return False
    where = np.stack([c for a in axes for c in (a.count, a.at)])
    _, first, which = np.unique(where, axis=1, return_index=True, return_inverse=True)
    return bool(np.all(obs.value[first][which.ravel()] == obs.value))
