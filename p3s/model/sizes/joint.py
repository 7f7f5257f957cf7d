"""One domain per program: the hypotheses of all sizes that share the fewest constants.

Every slot keeps all hypotheses that give its sizes. What is chosen costs the bits of its constants,
each once for the program, and those of every slot: a weighted set cover, solved exactly. What
costs little more and says something else further on is a rival.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Generic, TypeVar

import numpy as np

from p3s.laws.counts import Law
from p3s.model.sizes.cover import Cover
from p3s.model.sizes.forms import BUDGET, Search
from p3s.model.sizes.hypotheses import Constant, Hypothesis, Product, bits_of, listed_bits
from p3s.model.sizes.observations import Observations, distinct, elsewhere
from p3s.model.sizes.terms import CUTS, PADDED

K = TypeVar("K", bound=Hashable)

#: Bits that another cut costs in a program that shows its own.
ANOTHER_CUT = 8.0
#: Rivals of one law that are kept at most, and whatever the others show.
MOST_RIVALS, FIRST_RIVALS = 16, 3
#: Extents tried at every slot; constants that are excluded, and how often what replaces them is.
POPULAR, STARTS, EXCLUSIONS = 12, 12, 3
#: Bits above the cheapest hypothesis of a slot up to which the others are in the cover, and how
#: many at most.
SPREAD, MOST_HYPOTHESES = 16.0, 80
#: Fractions of extents that are tried as rivals.
FRACTIONS = (2, 3, 4, 5, 6, 8, 9, 16, 32, 64)
#: Dimensions of grids.
MOST_DIMENSIONS = 4
#: Bits more at which a constant counts half in use.
HALF = 6.0


@dataclass
class _Group:
    """Slots with the same hypotheses: keys, the sizes of one of them, the hypotheses.

    spare: hypotheses that are rivals whatever is chosen.
    """

    keys: list[Hashable]
    obs: Observations
    hypotheses: list[Hypothesis] = field(default_factory=list)
    chosen: int | None = None
    rivals: dict[int, float] = field(default_factory=dict)
    spare: list[Hypothesis] = field(default_factory=list)

    @property
    def best(self) -> Hypothesis | None:
        """The hypothesis that was chosen."""
        return None if self.chosen is None else self.hypotheses[self.chosen]

    @property
    def blocks(self) -> Product | None:
        """The hypothesis that was chosen, if it is a product of blocks."""
        return best if isinstance(best := self.best, Product) else None

    @property
    def constant(self) -> bool:
        """Whether all sizes are equal."""
        return bool(np.all(self.obs.value == self.obs.value[0]))

    def rival(self, number: int, more: float) -> None:
        """Note a rival and the bits that it costs more."""
        if number != self.chosen:
            self.rivals[number] = min(more, self.rivals.get(number, more))

    def rival_of(self, h: Hypothesis, more: float) -> None:
        """Note a rival that may be none of the hypotheses yet."""
        number = next((k for k, other in enumerate(self.hypotheses) if other.key() == h.key()), -1)
        if number < 0:
            self.hypotheses.append(h)
        self.rival(number if number >= 0 else len(self.hypotheses) - 1, more)


def law_alone(obs: Observations, counted: bool = False) -> Law | None:
    """Return the law of numbers that no other slot helps to find; counted: how often ranks act."""
    return JointSizes({0: obs}, Search(counted=counted)).with_rivals().get(0)


class JointSizes(Generic[K]):
    """The sizes of all slots of a program; what all together say of each, then its rivals.

    slots: any key -> the sizes of a slot.
    """

    def __init__(self, slots: Mapping[K, Observations], search: Search) -> None:
        self._groups = _groups(slots, search)
        self.total = 0.0
        self._cover: _Cover | None = None
        if not self._groups:
            return
        varying = [g for g in self._groups if not g.constant]
        if len(varying) < len(self._groups):
            cover = _Cover(varying, search.typed) if varying else None
            _as_others_show(self._groups, cover, search.typed)
        cover = _Cover(self._groups, search.typed)
        if cover.choose():
            self._cover, self.total = cover, cover.total

    def with_rivals(self) -> dict[K, Law]:
        """Return the laws, with the rivals that are found."""
        if self._cover is not None:
            self._cover.find_rivals()
            _other_cuts(self._groups)
            _other_factors(self._groups)
            for g in self._groups:
                for h in g.spare:
                    g.rival_of(h, BUDGET)
        return self.laws()

    def laws(self) -> dict[K, Law]:
        """Return the laws with the rivals that were found so far."""
        out: dict[K, Law] = {}
        for g in self._groups if self._cover is not None else ():
            law = _law_of(g)
            if law is not None:
                out.update(dict.fromkeys(g.keys, law))  # type: ignore[arg-type]
        return out


def _groups(slots: Mapping[K, Observations], search: Search) -> list[_Group]:
    """Return the slots with their hypotheses, those with the same ones together."""
    each = {key: distinct(obs) for key, obs in slots.items()}
    every = list({obs.digest: obs for obs in each.values()}.values())
    search.learn(_support([search.hypotheses(obs) for obs in every]), POPULAR)
    out: dict[object, _Group] = {}
    seen: dict[bytes, _Group] = {}
    for key, obs in each.items():
        if obs.digest not in seen:
            found = search.hypotheses(obs)
            some = _keep_hypotheses([h for cost, h in found if cost <= found[0][0] + SPREAD])
            alike = frozenset(h.key() for h in some) if some else obs.digest
            seen[obs.digest] = out.setdefault(alike, _Group([], obs, some))
        seen[obs.digest].keys.append(key)
    return list(out.values())


def _keep_hypotheses(found: Sequence[Hypothesis]) -> list[Hypothesis]:
    """Return the hypotheses that are in the cover, of all sets of constants before others."""
    first = {h.constants: k for k, h in reversed(list(enumerate(found)))}
    ranked = sorted(range(len(found)), key=lambda k: (first[found[k].constants] != k, k))
    return [found[k] for k in ranked[:MOST_HYPOTHESES]]


def _as_others_show(
    groups: Sequence[_Group], varying: _Cover | None, typed: frozenset[int]
) -> None:
    """Leave to sizes that never differed those blocks whose extents sizes that differ show.

    Typed extents are shown, too. The likeliest of the others stays as a rival: extents that never
    differed tell nothing of other extents.
    """
    shown = varying.taken if varying is not None and varying.choose() else frozenset()
    along = {("axis", (f"p{d}", e)) for d in range(MOST_DIMENSIONS) for e in typed}
    shown |= along | {("extent", e) for e in typed}
    for g in groups:
        if g.constant:
            every = g.hypotheses
            g.hypotheses = [h for h in every if not isinstance(h, Product) or h.constants <= shown]
            g.spare = [h for h in every if h not in g.hypotheses][:1]


def _support(found: Sequence[Sequence[tuple[float, Hypothesis]]]) -> dict[Constant, float]:
    """Return for how many slots each constant may be in use, by what it costs them to use it."""
    out: dict[Constant, float] = {}
    for some in found:
        mine: dict[Constant, float] = {}
        for cost, h in some:  # cheapest first
            for c in h.constants:
                mine.setdefault(c, 2.0 ** ((some[0][0] - cost) / HALF))
        for c, weight in mine.items():
            out[c] = out.get(c, 0.0) + weight
    return out


class _Cover:
    """The choice of one hypothesis per group that costs the fewest bits together."""

    def __init__(self, groups: Sequence[_Group], typed: frozenset[int]) -> None:
        self.groups = groups
        self.constants = sorted(
            frozenset().union(*(h.constants for g in groups for h in g.hypotheses)), key=str
        )
        self.number = {c: i for i, c in enumerate(self.constants)}
        self.bits = np.array([bits_of(c, typed) for c in self.constants], dtype=float)
        self.total = 0.0
        self.taken: frozenset[Constant] = frozenset()
        self.cover = Cover(
            [
                [*((h.own(), h.constants) for h in g.hypotheses), (listed_bits(g.obs.value), ())]
                for g in groups
            ],
            self.constants,
            self.bits.tolist(),
        )

    def solve(self, without: frozenset[Constant] = frozenset()) -> tuple[float, list[int]] | None:
        """Return the least bits, and the hypothesis of every group (their number: raw)."""
        return self.cover.solve(without)

    def choose(self) -> bool:
        """Choose for every group; tell whether that worked."""
        found = self.solve()
        if found is None:
            return False
        self.total, chosen = found
        self.taken = self._constants(chosen)
        for g, k in zip(self.groups, chosen, strict=True):
            g.chosen = k if k < len(g.hypotheses) else self._plain(g)
        return True

    def _plain(self, g: _Group) -> int | None:
        """Return the cheapest hypothesis that is no chance although a list takes fewer bits."""
        costs = [
            (h.own() + self._bits(h.constants - self.taken), k)
            for k, h in enumerate(g.hypotheses)
            if not isinstance(h, Product) or len(h.terms) == 1
        ]
        return min(costs)[1] if costs else None

    def _constants(self, chosen: Sequence[int]) -> frozenset[Constant]:
        return frozenset().union(
            *(
                g.hypotheses[k].constants
                for g, k in zip(self.groups, chosen, strict=True)
                if k < len(g.hypotheses)
            )
        )

    def find_rivals(self) -> None:
        """Note the rivals of every group: with constants of its own, or others for all."""
        sure = set()
        starts = [c for c in self.taken if c[0] in ("extent", "cut", "border", "ghost")]
        for start in sorted(starts, key=lambda c: (-self.bits[self.number[c]], str(c)))[:STARTS]:
            if not self._exclude(start) and start[0] == "cut":
                sure.add(start)
        twins: dict[object, int] = {}
        users: dict[Constant, set[object]] = {}
        for g in self.groups:
            if (best := g.best) is not None:
                twins[best.key()] = twins.get(best.key(), 0) + 1
                for c in best.constants:
                    users.setdefault(c, set()).add(best.key())
        for g in self.groups:
            if (best := g.best) is not None:
                mine = {c for c in best.constants if len(users[c]) == 1}
                plain = self.taken | _rounded_for_all(g, best)
                for k, h in enumerate(g.hypotheses):
                    more = (h.own() - best.own()) * twins[best.key()]
                    more += self._bits(h.constants - self.taken) - self._bits(mine - h.constants)
                    if sure and not {c for c in h.constants if c[0] == "cut"} <= plain:
                        more += ANOTHER_CUT
                    if more <= BUDGET:
                        g.rival(k, more)

    def _bits(self, some: Iterable[Constant]) -> float:
        return float(sum(self.bits[self.number[c]] for c in some))

    def _exclude(self, start: Constant) -> bool:
        """Note what all together say without a constant, then without what replaced it.

        Returns whether they can do without it.
        """
        without = frozenset([start])
        for again in range(EXCLUSIONS):
            found = self.solve(without)
            if found is None or found[0] - self.total > BUDGET:
                return again > 0
            for g, k in zip(self.groups, found[1], strict=True):
                if g.chosen is not None and k < len(g.hypotheses):
                    g.rival(k, found[0] - self.total)
            new = {c for c in self._constants(found[1]) - self.taken if c[0] == start[0]}
            if not new:
                break
            without |= new
        return True


def _rounded_for_all(g: _Group, best: Hypothesis) -> frozenset[Constant]:
    """Return the ways to round a share for all ranks alike where the traces show no other one.

    They are no other cut of the domain: a program may send them beside its blocks, and where the
    ranks that have the remainder do not send, nothing tells the two apart.
    """
    blocks = best if isinstance(best, Product) else None
    rest = [t.extent % blocks.axes[t.axis].count for t in blocks.terms] if blocks else []
    if not any(bool(np.any(left)) for left in rest):
        return frozenset()
    return frozenset(("cut", kind) for kind in PADDED)


def _other_cuts(groups: Sequence[_Group]) -> None:
    """Note as rivals the ways of cutting that would do for all groups as those chosen do.

    The hypotheses kept are too few to have all of them.
    """
    some = [g for g in groups if g.blocks is not None]
    for kind in CUTS:
        found = [_cut_otherwise(g, kind) for g in some]
        for g, h in zip(some, found, strict=True) if None not in found else ():
            if g.blocks is not None and h is not None:
                mine = g.blocks.terms[0].cut.kind
                more = bits_of(("cut", kind), frozenset()) - bits_of(("cut", mine), frozenset())
                g.rival_of(h, more)


def _cut_otherwise(g: _Group, kind: str) -> Product | None:
    """Return what was chosen for a group with another way of cutting, if it gives the sizes."""
    if g.blocks is None:
        return None
    terms = tuple(replace(t, cut=replace(t.cut, kind=kind)) for t in g.blocks.terms)
    return _that_gives(g, replace(g.blocks, terms=terms))


def _that_gives(g: _Group, h: Product) -> Product | None:
    """Return a hypothesis if it gives the sizes of a group."""
    return h if np.array_equal(h.values(g.obs.env), g.obs.value) else None


def _other_factors(groups: Sequence[_Group]) -> None:
    """Note as rivals a fraction of an extent, and so much larger factors, where all allow of it.

    Blocks that all ranks have the same of do not tell 60/p from 2 * (30/p).
    """
    users: dict[int, list[_Group]] = {}
    for g in groups:
        for e in {t.extent for t in g.blocks.terms} if g.blocks is not None else ():
            users.setdefault(e, []).append(g)
    for (extent, some), k in product(users.items(), FRACTIONS):
        if extent % k or extent == k:
            continue
        found = [_divide_extent(g, extent, k) for g in some]
        more = bits_of(("extent", extent // k), frozenset())
        more -= bits_of(("extent", extent), frozenset())
        for g, h in zip(some, found, strict=True) if None not in found else ():
            if h is not None:
                g.rival_of(h, max(more, 0.0))


def _divide_extent(g: _Group, extent: int, k: int) -> Product | None:
    """Return what was chosen for a group with a fraction of an extent, if it gives the sizes."""
    if g.blocks is None:
        return None
    old = g.blocks.terms
    terms = tuple(replace(t, extent=extent // k) if t.extent == extent else t for t in old)
    times = k ** sum(t.extent == extent for t in old)
    return _that_gives(g, replace(g.blocks, factor=g.blocks.factor * times, terms=terms))


def _law_of(g: _Group) -> Law | None:
    """Return the law of a group with its rivals; None where nothing is to be changed."""
    if g.chosen is None:
        return None
    best, env = g.hypotheses[g.chosen], elsewhere(g.obs)
    ranked = sorted(g.rivals, key=lambda k: (g.rivals[k], k))
    chosen = _that_differ(best.values(env), [g.hypotheses[k] for k in ranked], env)
    others = tuple(h.expr() for h in chosen)
    return Law(best.expr(), best.free(), len(g.obs.counts), others=others)


def _that_differ(
    mine: np.ndarray, rivals: Sequence[Hypothesis], env: Mapping[str, np.ndarray]
) -> list[Hypothesis]:
    """Return the rivals without which fewer grids would show a difference, likeliest first."""
    _, grid = np.unique(env["grid"], return_inverse=True)
    shown = np.zeros(int(grid.max()) + 1, dtype=bool)
    seen: list[np.ndarray] = []
    out: list[Hypothesis] = []
    for h in rivals:
        if len(out) == MOST_RIVALS:
            break
        there = h.values(env)
        apart = np.zeros(len(shown), dtype=bool)
        apart[grid[there != mine]] = True
        first_few = len(out) < FIRST_RIVALS and not any(np.array_equal(there, v) for v in seen)
        if apart.any() and (first_few or np.any(apart & ~shown)):
            shown |= apart
            seen.append(there)
            out.append(h)
    return out
