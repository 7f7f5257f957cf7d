"""One domain per program: the hypotheses of all sizes that share the fewest constants.

Every slot keeps all hypotheses that give its sizes. What is chosen costs the bits of its constants,
each once for the program, and those of every slot: a weighted set cover, solved exactly. What
costs little more and says something else further on is a rival.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import product
from math import log2
from typing import Generic, TypeVar

import numpy as np

from p3s.laws.expr import Expr
from p3s.model.sizes.affine import step_of
from p3s.model.sizes.blocks import PADDED, FittedSize, Observations
from p3s.model.sizes.cover import Cover
from p3s.model.sizes.hypotheses import Constant, Given, Hypothesis, Slot, bits_of, whole_bits
from p3s.model.sizes.positions import moving
from p3s.model.sizes.terms import CUTS, Terms

K = TypeVar("K", bound=Hashable)

#: Bits by which a rival may cost more, and what another cut costs in a program that shows its own.
BUDGET, ANOTHER_CUT = 10.0, 8.0
#: Rivals of one law that are kept at most, and whatever the others show.
MOST_RIVALS, FIRST_RIVALS = 16, 3
#: Extents tried at every slot; constants that are excluded, and how often what replaces them is.
POPULAR, STARTS, EXCLUSIONS = 12, 12, 3
#: Rounds in which slots tell each other what they may share; bits above the cheapest hypothesis
#: of a slot up to which the others are in the cover, and how many at most.
ROUNDS, SPREAD, MOST_HYPOTHESES = 2, 16.0, 80
#: Fractions of extents that are tried as rivals.
FRACTIONS = (2, 3, 4, 5, 6, 8, 9, 16, 32, 64)
#: Dimensions of grids.
MOST_DIMENSIONS = 4
#: Bits more at which a constant counts half in use.
HALF = 6.0


@dataclass
class _Group:
    """Slots with the same hypotheses: keys, the hypotheses, the law so far.

    spare: hypotheses that are rivals whatever is chosen.
    """

    keys: list[Hashable]
    slot: Slot
    law: FittedSize | None
    hypotheses: list[Hypothesis] = field(default_factory=list)
    raw: float = 0.0
    chosen: int | None = None
    rivals: dict[int, float] = field(default_factory=dict)
    spare: list[Hypothesis] = field(default_factory=list)

    @property
    def best(self) -> Hypothesis | None:
        """The hypothesis that was chosen."""
        return None if self.chosen is None else self.hypotheses[self.chosen]

    @property
    def constant(self) -> bool:
        """Whether all sizes are equal."""
        return bool(np.all(self.slot.obs.value == self.slot.obs.value[0]))

    def rival(self, number: int, more: float) -> None:
        """Note a rival and the bits that it costs more."""
        if number != self.chosen:
            self.rivals[number] = min(more, self.rivals.get(number, more))


def joint_sizes(
    slots: Mapping[K, tuple[Observations, FittedSize | None]], typed: frozenset[int]
) -> dict[K, FittedSize]:
    """Return the laws of those sizes about which all together say more than each one alone.

    slots: any key -> the sizes of a slot and the law found for it alone.
    """
    joint = JointSizes(slots, typed)
    joint.find_rivals()
    return joint.laws()


class JointSizes(Generic[K]):
    """The sizes of all slots of a program; what all together say of each, then its rivals.

    slots: any key -> the sizes of a slot and the law found for it alone.
    """

    def __init__(
        self, slots: Mapping[K, tuple[Observations, FittedSize | None]], typed: frozenset[int]
    ) -> None:
        self._groups = _groups(slots, typed)
        self._cover: _Cover | None = None
        if not self._groups:
            return
        fixed = _fixed(slots, self._groups)
        varying = [g for g in self._groups if not g.constant]
        if len(varying) < len(self._groups):
            cover = _Cover(varying, typed, fixed) if varying else None
            _as_others_show(self._groups, cover, typed)
        cover = _Cover(self._groups, typed, fixed)
        if cover.choose():
            self._cover = cover

    def find_rivals(self) -> None:
        """Find the rivals of every law."""
        if self._cover is None:
            return
        self._cover.find_rivals()
        _other_cuts(self._groups)
        _other_factors(self._groups)
        for g in self._groups:
            g.hypotheses += g.spare
            for k in range(len(g.hypotheses) - len(g.spare), len(g.hypotheses)):
                g.rival(k, BUDGET)

    def laws(self) -> dict[K, FittedSize]:
        """Return the laws, with the rivals that were found."""
        out: dict[K, FittedSize] = {}
        for g in self._groups if self._cover is not None else ():
            law = _law_of(g)
            if law is not None:
                out.update(dict.fromkeys(g.keys, law))  # type: ignore[arg-type]
        return out


def _groups(
    slots: Mapping[K, tuple[Observations, FittedSize | None]], typed: frozenset[int]
) -> list[_Group]:
    """Return the slots that blocks may explain with their hypotheses, those alike together."""
    merged: dict[bytes, _Group] = {}
    seen: dict[bytes, _Group] = {}
    terms: dict[object, list[Terms]] = {}
    for key, (obs, law) in slots.items():
        if _may_be_cut(obs):
            of_law = repr(law and law.expr).encode()
            rows = obs.digest() + of_law
            if rows not in seen:
                slot = Slot(obs, terms)
                seen[rows] = merged.setdefault(slot.digest() + of_law, _Group([], slot, law))
            seen[rows].keys.append(key)

    def cheaper(c: Constant) -> float:  # what several slots share costs each of them its part
        return bits_of(c, typed) / max(support.get(c, 0.0), 1.0)

    known, support = sorted(typed), dict[Constant, float]()
    for _ in range(ROUNDS):
        support = _support([g.slot.hypotheses(known, cheaper) for g in merged.values()])
        extents = sorted((c for c in support if c[0] == "extent"), key=lambda c: (-support[c], c))
        known = sorted(typed | {int(str(c[1])) for c in extents[:POPULAR]})
    out: dict[object, _Group] = {}
    for g in merged.values():
        found = g.slot.hypotheses(known, cheaper)
        g.hypotheses = [h for cost, h in found if cost <= found[0][0] + SPREAD][:MOST_HYPOTHESES]
        if g.hypotheses:
            g.hypotheses += _given(g)
            g.raw = _listed_bits(g.slot.obs)
            alike = frozenset(h.key() for h in g.hypotheses)
            out.setdefault(alike, replace(g, keys=[])).keys.extend(g.keys)
    return list(out.values())


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
            g.hypotheses = [h for h in every if isinstance(h, Given) or h.constants <= shown]
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


def product_law(obs: Observations) -> FittedSize | None:
    """Return the cheapest product of blocks that gives all sizes of a slot, if it takes fewer bits
    than a list of them: then no other law is needed."""
    if not _may_be_cut(obs):
        return None
    found = Slot(obs, {}).hypotheses((), lambda c: bits_of(c, frozenset()), 1)
    if not found or found[0][0] >= _listed_bits(obs):
        return None
    best = found[0][1]
    return FittedSize(best.expr(), best.free(), len(np.unique(obs.env["n"])))


def _listed_bits(obs: Observations) -> float:
    """Return the bits of a list of all sizes."""
    return len(obs.value) * log2(len(np.unique(obs.value)) + 1) + whole_bits(int(obs.value[0]))


def _may_be_cut(obs: Observations) -> bool:
    """Tell whether sizes may be blocks: they differ, or the extents of a face never did."""
    if not len(obs.value) or obs.value.min() < 1 or moving(obs):
        return False
    if len(np.unique(obs.env["n"])) < 2 and not obs.across:
        return False
    if np.any(obs.value != obs.value[0]):
        return True
    extents = [obs.env[f"p{d}"] for d in obs.across]
    return any(bool(np.all(p == p[0])) for p in extents)


def _given(g: _Group) -> list[Hypothesis]:
    """Return the laws found for the slot alone as hypotheses, unless another one says the same."""
    if g.law is None:
        return []
    env = elsewhere(g.slot.obs)
    known = [h.values(env) for h in g.hypotheses]
    found: list[Hypothesis] = []
    others = (FittedSize(e, g.law.free, g.law.points) for e in g.law.others)
    for law in (g.law, *others):
        given = Given(1, (), (), law=law)
        mine = given.values(env)
        if not any(np.array_equal(mine, v) for v in known):
            known.append(mine)
            found.append(given)
    return found


def _fixed(
    slots: Mapping[K, tuple[Observations, FittedSize | None]], groups: Sequence[_Group]
) -> frozenset[Constant]:
    """Return the constants of laws that no hypothesis replaces."""
    mine = {k for g in groups for k in g.keys}
    found: set[Constant] = set()
    for key, (_, law) in slots.items():
        if law is not None and key not in mine:
            found |= Given(1, (), (), law=law).constants
    return frozenset(found)


class _Cover:
    """The choice of one hypothesis per group that costs the fewest bits together."""

    def __init__(
        self, groups: Sequence[_Group], typed: frozenset[int], fixed: frozenset[Constant]
    ) -> None:
        self.groups, self.fixed = groups, fixed
        self.constants = sorted(
            frozenset().union(*(h.constants for g in groups for h in g.hypotheses)), key=str
        )
        self.number = {c: i for i, c in enumerate(self.constants)}
        self.bits = np.array(
            [0.0 if c in fixed else bits_of(c, typed) for c in self.constants], dtype=float
        )
        self.total = 0.0
        self.taken: frozenset[Constant] = frozenset()
        self.cover = Cover(
            [[*((h.own(), h.constants) for h in g.hypotheses), (g.raw, ())] for g in groups],
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
        for g, k in zip(self.groups, chosen, strict=True):
            g.chosen = k if k < len(g.hypotheses) else None
        self.taken = self._constants(chosen)
        return True

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
    rest = (t.extent % g.slot.axes[t.axis].count for t in best.terms)
    if not any(bool(np.any(left)) for left in rest):
        return frozenset()
    return frozenset(("cut", kind) for kind in PADDED)


def _other_cuts(groups: Sequence[_Group]) -> None:
    """Note as rivals the ways of cutting that would do for all groups as those chosen do.

    The hypotheses kept are too few to have all of them.
    """
    some = [g for g in groups if g.best is not None and g.best.terms]
    for kind in CUTS:
        found = [_cut_otherwise(g, kind) for g in some]
        if any(h is None for h in found):
            continue
        for g, h in zip(some, found, strict=True):
            assert g.best is not None and h is not None
            number = {other.key(): k for k, other in enumerate(g.hypotheses)}
            if h.key() not in number:
                g.hypotheses.append(h)
            more = bits_of(("cut", kind), frozenset()) - bits_of(
                ("cut", g.best.terms[0].cut.kind), frozenset()
            )
            g.rival(number.get(h.key(), len(g.hypotheses) - 1), more)


def _cut_otherwise(g: _Group, kind: str) -> Hypothesis | None:
    """Return what was chosen for a group with another way of cutting, if it gives the sizes."""
    assert g.best is not None
    terms = tuple(replace(t, cut=replace(t.cut, kind=kind)) for t in g.best.terms)
    other = replace(g.best, terms=terms)
    return other if np.array_equal(other.values(g.slot.obs.env), g.slot.obs.value) else None


def _other_factors(groups: Sequence[_Group]) -> None:
    """Note as rivals a fraction of an extent, and so much larger factors, where all allow of it.

    Blocks that all ranks have the same of do not tell 60/p from 2 * (30/p).
    """
    users: dict[int, list[_Group]] = {}
    for g in groups:
        for e in {t.extent for t in g.best.terms} if g.best is not None else ():
            users.setdefault(e, []).append(g)
    for (extent, some), k in product(users.items(), FRACTIONS):
        if extent % k or extent == k:
            continue
        found = [_less(g, extent, k) for g in some]
        if any(h is None for h in found):
            continue
        more = bits_of(("extent", extent // k), frozenset())
        more -= bits_of(("extent", extent), frozenset())
        for g, h in zip(some, found, strict=True):
            assert h is not None
            number = {other.key(): i for i, other in enumerate(g.hypotheses)}
            if h.key() not in number:
                g.hypotheses.append(h)
            g.rival(number.get(h.key(), len(g.hypotheses) - 1), max(more, 0.0))


def _less(g: _Group, extent: int, k: int) -> Hypothesis | None:
    """Return what was chosen for a group with a fraction of an extent, if it gives the sizes."""
    assert g.best is not None
    terms = tuple(replace(t, extent=extent // k) if t.extent == extent else t for t in g.best.terms)
    times = k ** sum(t.extent == extent for t in g.best.terms)
    other = replace(g.best, factor=g.best.factor * times, terms=terms)
    return other if np.array_equal(other.values(g.slot.obs.env), g.slot.obs.value) else None


def _law_of(g: _Group) -> FittedSize | None:
    """Return the law of a group with its rivals; None where nothing is to be changed."""
    if g.chosen is None:
        return None
    best, env = g.hypotheses[g.chosen], elsewhere(g.slot.obs)
    mine = best.values(env)
    expr, free, points = best.expr(), best.free(), len(np.unique(g.slot.obs.env["n"]))
    others: list[Expr] = []
    if g.law is not None and np.array_equal(Given(1, (), (), law=g.law).values(env), mine):
        expr, free = g.law.expr, g.law.free
        if isinstance(best, Given):
            others += g.law.others
    ranked = sorted(g.rivals, key=lambda k: (g.rivals[k], k))
    chosen = _that_differ(mine, [g.hypotheses[k] for k in ranked], env)
    given = g.law is not None and isinstance(best, Given)
    return FittedSize(
        expr,
        free,
        points,
        g.law is not None and given and g.law.even,
        g.law.rivals if g.law is not None and given else (),
        (*others, *(h.expr() for h in chosen)),
    )


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


def elsewhere(obs: Observations) -> dict[str, np.ndarray]:
    """Return symbols of ranks on grids larger than those seen, to compare laws there.

    Along each axis every number of blocks up to four times the largest, on the others as many as
    were seen and one more, the first, a middle, and the last block; symbol ``grid`` numbers them.
    """
    dimensions = range(obs.ndims)
    top = tuple(int(obs.env[f"p{d}"].max()) for d in dimensions)
    return dict(_elsewhere(top, tuple(step_of(obs, d) for d in dimensions)))


@lru_cache(maxsize=64)
def _elsewhere(top: Sequence[int], steps: Sequence[int]) -> Mapping[str, np.ndarray]:
    """Return the symbols of :func:`elsewhere`; many slots were seen on the same grids."""
    parts: list[np.ndarray] = []
    for d, p in enumerate(top):
        for more in sorted({*range(2, min(4 * p, p + 24) + 1), 3 * p, 4 * p}):
            for besides in range(1 + (more > p)):  # where the other extents divide, and do not
                dims = np.array([q + besides if e != d else more for e, q in enumerate(top)])
                places = [
                    np.arange(x) if e == d else np.unique([0, x // 2, x - 1])
                    for e, x in enumerate(dims.tolist())
                ]
                at = np.stack([x.ravel() for x in np.meshgrid(*places, indexing="ij")])
                parts.append(np.concatenate([np.broadcast_to(dims[:, None], at.shape), at]))
    cells = np.concatenate(parts, axis=1)
    k = len(top)
    n = np.prod(cells[:k], axis=0)
    zero = np.zeros(len(n), dtype=np.int64)
    env = {"n": n, "s": zero, "t": zero, "r": zero}
    for d in range(k):
        p, c = cells[d], cells[k + d]
        env |= {f"p{d}": p, f"c{d}": c, f"q{d}": (c + steps[d]) % p}
        env["r"] = env["r"] * p + c
    env["grid"] = np.repeat(np.arange(len(parts)), [part.shape[1] for part in parts])
    for column in env.values():
        column.setflags(write=False)
    return env
