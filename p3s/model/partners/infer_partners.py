"""Finding the relations of a node: the fewest that lead from every rank to its partners."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from p3s.model.grid.at import GridAt
from p3s.model.grid.axes import Axis, line
from p3s.model.partners.communicator_laws import CommunicatorLaw
from p3s.model.partners.pairs import Pairs
from p3s.model.partners.relation import (
    MAX_REACH,
    Relation,
    Shift,
    Staged,
    bordered_steps,
    is_stencil,
    shift_vectors,
)
from p3s.model.partners.single import Oneself
from p3s.model.partners.stencil import mixture, partners, stencil, used_pairs

#: Cells of partners that are kept, and that are compared at once.
MOST_CELLS = 1 << 22

_STACKS: dict[object, tuple[np.ndarray, np.ndarray]] = {}


def _stack(rels: Sequence[Relation], g: GridAt) -> tuple[np.ndarray, np.ndarray]:
    """Return the partners of all stages of the relations, and which relation each row is of."""
    key = (g.key, *rels)
    if key not in _STACKS:
        tables = [partners(rel, g) for rel in rels]
        of = np.repeat(np.arange(len(rels)), [len(table) for table in tables])
        if len(_STACKS) * len(of) * g.n > MOST_CELLS:
            _STACKS.clear()
        _STACKS[key] = np.concatenate(tables), of
    return _STACKS[key]


class Together:
    """What some relations lead to, of one node's pairs.

    used: for each count as of :func:`p3s.model.partners.stencil.used_pairs`.
    """

    def __init__(
        self, rels: Sequence[Relation], pairs: Sequence[Pairs], used: Sequence[np.ndarray]
    ) -> None:
        self.rels, self.pairs, self.used = rels, pairs, used
        there, of = self._there(-1)
        #: Which of the relations have a pair at the largest count.
        self.somewhere = np.bincount(of[there.any(axis=1)], minlength=len(rels)) > 0

    def _there(self, at: int) -> tuple[np.ndarray, np.ndarray]:
        """Return which cells of all tables are pairs at a count, and whose rows these are."""
        g = self.pairs[at].grid
        table, of = _stack(self.rels, g)
        return self.used[at][np.arange(g.n)[None, :], table] & (table >= 0), of

    @cached_property
    def hits(self) -> np.ndarray:
        """Which of all pairs each relation explains, shape (relations, pairs of all counts)."""
        found = np.zeros((len(self.rels), sum(len(p.rank) for p in self.pairs)), dtype=bool)
        end = 0
        for p in self.pairs:
            table, of = _stack(self.rels, p.grid)
            begin, end = end, end + len(p.rank)
            rows = np.flatnonzero(self.somewhere[of])
            for some in _parts(rows, len(p.rank)):
                first = np.flatnonzero(np.diff(of[some], prepend=-1))
                equal = table[some][:, p.rank] == p.peer
                found[of[some[first]], begin:end] |= np.logical_or.reduceat(equal, first, axis=0)
        return found

    @cached_property
    def _much(self) -> np.ndarray:
        """Whether a quarter of what each relation says of ranks that have partners is there."""
        hit, said = np.zeros(len(self.rels)), np.zeros(len(self.rels))
        for at, p in enumerate(self.pairs):
            table, _ = _stack(self.rels, p.grid)
            there, of = self._there(at)
            took = np.zeros(p.grid.n, dtype=bool)
            took[p.rank] = True
            hit += np.bincount(of, there.sum(axis=1), len(self.rels))
            said += np.bincount(of, (table[:, took] >= 0).sum(axis=1), len(self.rels))
        return 4 * hit >= said

    def leads(self, k: int, loose: bool) -> bool:
        """Whether a relation has pairs; of stages two, and much of what they say, unless loose."""
        rel = self.rels[k]
        if not isinstance(rel, Staged) or not self.somewhere[k]:
            return bool(self.somewhere[k])
        return bool(loose or rel.sparse or self._much[k]) and any(
            self._levels(rel, at) > 1 for at in reversed(range(len(self.pairs)))
        )

    def _levels(self, rel: Staged, at: int) -> int:
        g = self.pairs[at].grid
        table = partners(rel, g)
        there = self.used[at][np.arange(g.n)[None, :], table] & (table >= 0)
        return rel.levels(there, table, g)


def _parts(rows: np.ndarray, pairs: int) -> list[np.ndarray]:
    """Return rows in parts that have few cells when compared with so many pairs."""
    step = max(1, MOST_CELLS // max(1, pairs))
    return [rows[start : start + step] for start in range(0, len(rows), step)]


MAX_SHIFTS = 26
#: A staged relation along a shorter line says nothing that shifts do not.
MIN_LINE = 4
#: Relations that are looked for among the pairs at once.
TOGETHER = 48
#: What a guard costs beside its relation.
GUARD_WEIGHT = 0.15
#: What a neighbour's neighbour costs more than a neighbour, and one across a corner.
BEYOND, DIAGONAL = 0.15, 0.15
#: What partners without a rule cost.
NO_RULE = 12.0
#: More relations than this in one node are a neighbourhood without a rule.
MAX_MIXED = 6
#: Where the grid is known, a stencil on it is one rule: what it costs, and each of its shifts.
STENCIL, STENCIL_SHIFT = 1.0, 0.02


@dataclass
class Explanation:
    """Relations that cover a node's pairs; cost in relations, what stays unexplained."""

    relations: list[Relation]
    cost: float
    unexplained: int
    ambiguous: list[int] = field(default_factory=list)  # axes whose direction stays open
    #: Other single ones that lead to the same partners, and what each costs more.
    rivals: dict[Relation, float] = field(default_factory=dict)


def _covered(rel: Relation, pairs: Sequence[Pairs]) -> list[np.ndarray]:
    """Return for each count which pairs the relation explains."""
    out = []
    for p in pairs:
        table = partners(rel, p.grid)
        out.append(
            (table[:, p.rank] == p.peer[None, :]).any(axis=0)
            if len(table)
            else np.zeros(len(p.rank), dtype=bool)
        )
    return out


def _lines(pairs: Sequence[Pairs], axes: Sequence[CommunicatorLaw]) -> list[Axis]:
    """Return the axes along which relations are tried: dimensions, all ranks, communicators."""
    ndims = len(pairs[0].grid.dims)
    closed = [law for kind in CommunicatorLaw.kinds.values() for law in kind.closed(pairs)]
    parts = [law for _, law in sorted(closed, key=lambda c: c[0])]
    return [*(range(ndims) if ndims > 1 else ()), None, *axes, *parts]


def _single_extra(axis: Axis) -> float:
    """Return what a relation to one partner costs more along an axis."""
    return 0.1 if isinstance(axis, int) else 0.15


def _staged_extra(axis: Axis, ndims: int) -> float:
    """Return what other relations cost more along an axis."""
    if isinstance(axis, int) or (axis is None and ndims == 1):
        return 0.0
    return 0.3 if axis is not None else 0.5


def candidates(
    pairs: Sequence[Pairs], axes: Sequence[CommunicatorLaw]
) -> list[tuple[float, Relation]]:
    """Return the relations that may lead from rank to partner, cheapest first.

    Of equally cheap ones those of the grid come first, then those of one axis after the other.
    """
    read_off = [tried for kind in Relation.kinds.values() for tried in kind.read_off(pairs)]
    return sorted([*_of_grids(pairs, axes), *read_off], key=lambda c: c[0])


_TRIED: dict[object, list[tuple[float, Relation]]] = {}


def _of_grids(
    pairs: Sequence[Pairs], axes: Sequence[CommunicatorLaw]
) -> list[tuple[float, Relation]]:
    """Return the relations that are tried on grids whatever the pairs, remembered."""
    kinds, ndims = list(Relation.kinds.values()), len(pairs[0].grid.dims)
    along = _lines(pairs, axes)
    key = (tuple(Relation.kinds), *along, *(p.grid.key for p in pairs))
    if key in _TRIED:
        return _TRIED[key]
    found = [tried for kind in kinds for tried in kind.on_grid(ndims)]
    for axis in along:
        longest = max(line(axis, p.grid).longest for p in pairs)
        if longest > 1:
            more = _single_extra(axis)
            found += [(c + more, rel) for kind in kinds for c, rel in kind.on_line(axis, ndims)]
        if longest >= MIN_LINE:
            more = _staged_extra(axis, ndims)
            found += [
                (c + more, rel)
                for sign in (1, -1, 0)
                for kind in kinds
                for c, rel in kind.on_long_line(axis, ndims, sign)
            ]
    if len(_TRIED) > 256:
        _TRIED.clear()
    _TRIED[key] = found
    return found


def infer_partners(
    pairs: Sequence[Pairs],
    periods: tuple[bool, ...] | None = None,
    loose: bool = False,
    axes: Sequence[CommunicatorLaw] = (),
    known: bool = False,
    limit: float = math.inf,
) -> Explanation:
    """Return the cheapest set of relations that covers all pairs at all counts.

    loose: partners differ from run to run (whoever is free gets the work), so a relation to
    all others need not be complete in any one run. axes: laws of communicators along which
    relations may lead. known: the grid is known, not sought, so neighbours on it come first.
    limit: what costs more is not sought; something dearer is returned where all does.
    """
    pairs = [p for p in pairs if len(p.rank)]
    if not pairs:
        return Explanation([], 0.0, 0)
    search = _Search(pairs, periods, loose, known, limit)
    search.stencil()
    search.for_everybody()
    search.shifts()
    search.along_axes(axes)
    search.mixtures()
    return search.best()


class _Search:
    """Collects explanations of one node's pairs; cheaper ones found first save later work."""

    def __init__(
        self,
        pairs: Sequence[Pairs],
        periods: tuple[bool, ...] | None,
        loose: bool,
        known: bool,
        limit: float,
    ) -> None:
        self.pairs = pairs
        self.periods = periods
        self.loose = loose
        self.known = known
        self.limit = limit
        self.ndims = len(pairs[0].grid.dims)
        self.total = sum(len(p.rank) for p in pairs)
        self.options: list[Explanation] = []
        self.partial: list[tuple[float, Relation, np.ndarray]] = []
        self.used = [used_pairs(p) for p in pairs]

    def covered(self, rel: Relation) -> np.ndarray:
        """Return which of all pairs the relation explains."""
        return np.concatenate(_covered(rel, self.pairs))

    def beaten(self, cost: float) -> bool:
        """Return whether something complete is already as cheap, or so dear is not wanted."""
        return cost > self.limit or any(not e.unexplained and e.cost <= cost for e in self.options)

    def guards(self, rels: Sequence[Relation], most: float) -> tuple[float, int]:
        """Return what the guards of the relations cost together, and how many have none.

        Where a traced pair is left out one has none, too. most: what relations without a guard
        must stay below.
        """
        if self.loose:
            return 0.0, 0
        found = mixture(rels, self.pairs, most)
        if found is None:
            return math.inf, len(rels)
        cost = sum(
            rel.no_guard if guard is None else GUARD_WEIGHT * guard.cost
            for rel, guard in zip(rels, found.guards, strict=True)
        )
        if not found.complete:
            return cost + rels[-1].no_guard, 1
        return cost, found.guards.count(None)

    def offer(self, rels: list[Relation], cost: float, ambiguous: Sequence[int] = ()) -> None:
        """Add a set of relations that explains all pairs, if it may be the cheapest."""
        if self.known and is_stencil(rels):
            cost = STENCIL + STENCIL_SHIFT * len(rels)
        if self.beaten(cost):
            return
        complete = (e.cost for e in self.options if not e.unexplained)
        extra, missing = self.guards(rels, min([NO_RULE, *complete]) - cost)
        if not missing or cost + extra < NO_RULE:
            self.options.append(Explanation(rels, cost + extra, 0, list(ambiguous)))

    def stencil(self) -> None:
        """Try a neighbourhood on the grid, one rule however many neighbours it has."""
        found = stencil(self.pairs, self.periods)
        if found is not None:
            cost = STENCIL + STENCIL_SHIFT * len(found.shifts) if self.known else found.cost
            self.options.append(Explanation([*found.shifts], cost, 0, list(found.open)))

    def for_everybody(self) -> None:
        """Try oneself and one rank for all."""
        for kind in Relation.kinds.values():
            for cost, rel in kind.for_everybody(self.pairs):
                self.consider(cost, rel)

    def consider(self, cost: float, rel: Relation, hit: np.ndarray | None = None) -> None:
        """Offer a relation if it explains everything, remember it if a part.

        hit: the pairs that it explains, where that is known.
        """
        hit = self.covered(rel) if hit is None else hit
        if hit.all():
            self.offer([rel], cost)
        elif hit.any():
            self.partial.append((cost, rel, hit))

    def shifts(self) -> None:
        """Try shifts on the grid, with messages to oneself where nothing else explains them."""
        if steps := bordered_steps(self.pairs):
            self.offer([*steps], float(len(steps)))
        found, ambiguous = shift_vectors(self.pairs, self.periods, self.known)
        if not found or len(found) > MAX_SHIFTS:
            return
        found = self.needed(found)
        hit = [self.covered(r) for r in found]
        rels: list[Relation] = [*found]
        left = ~np.any(hit, axis=0)
        if left.any():
            own = self.covered(Oneself())
            if (own | ~left).all():
                rels.append(Oneself())
                left[:] = False
        far = max(abs(x) for r in found for x in r.vec) > MAX_REACH
        reach = sum(max(abs(x) for x in r.vec) - 1 for r in found if any(r.vec))
        askew = sum(len(r.vec) - r.vec.count(0) - 1 for r in found if any(r.vec))
        cost = len(rels) * 2.0 if far else len(rels) + BEYOND * reach + DIAGONAL * askew
        if left.any():
            self.options.append(Explanation(rels, cost, int(left.sum()), sorted(ambiguous)))
        else:
            self.offer(rels, cost, sorted(ambiguous))
        if not far and len(found) <= 8:
            self.partial += [(1.0, r, h) for r, h in zip(found, hit, strict=True) if h.any()]

    def needed(self, found: list[Shift]) -> list[Shift]:
        """Leave out shifts that few ranks alone show, and that others are there: 3 is -1 of 4."""
        hits = [self.covered(r) for r in found]
        last = np.arange(self.total) >= self.total - len(self.pairs[-1].rank)
        kept = list(range(len(found)))
        for k in range(len(found)):
            others = [hits[j] for j in kept if j != k]
            if others and not hits[k][last].any() and np.any(others, axis=0)[hits[k]].all():
                kept.remove(k)
        return [found[k] for k in kept]

    def along_axes(self, axes: Sequence[CommunicatorLaw]) -> None:
        """Try staged relations, permutations and single places along all axes."""
        if self.beaten(1.0):
            return
        tried = candidates(self.pairs, axes)
        for start in range(0, len(tried), TOGETHER):
            some = tried[start : start + TOGETHER]
            if self.beaten(some[0][0]):
                break
            together = Together([rel for _, rel in some], self.pairs, self.used)
            for k, (cost, rel) in enumerate(some):
                if self.beaten(cost):
                    return
                if together.leads(k, self.loose):
                    self.consider(cost, rel, together.hits[k])

    def mixtures(self) -> None:
        """Try several relations through one call (a shared wrapper line, a list of partners)."""
        if self.beaten(2.2) or not self.partial:
            return
        parts = sorted(self.partial, key=lambda c: c[0])
        hits = np.array([h for _, _, h in parts])
        led = hits.sum(axis=0)
        if not led.all():
            return  # a pair that none leads to
        few = np.flatnonzero(hits[:, int(led.argmin())])  # one of them takes part
        miss = (~hits).astype(np.float32)
        whole = {tuple(sorted((few[i], j))) for i, j in np.argwhere(miss[few] @ miss.T == 0)}
        pairs = sorted(
            (parts[i][0] + parts[j][0] + 0.2, int(i), int(j)) for i, j in whole if i != j
        )
        for cost, i, j in pairs[:12]:
            if self.beaten(cost):
                break
            self.offer([parts[i][1], parts[j][1]], cost)
        if not self.beaten(4.0):
            self._greedy(parts, hits)

    def _greedy(
        self, parts: Sequence[tuple[float, Relation, np.ndarray]], hits: np.ndarray
    ) -> None:
        costs = np.array([c for c, _, _ in parts])
        for weight in (1.0, 0.5):
            left = np.ones(self.total, dtype=bool)
            chosen: list[int] = []
            while left.any() and len(chosen) < MAX_MIXED:
                gain = hits[:, left].sum(axis=1) / costs**weight
                best = int(np.argmax(gain))
                if gain[best] <= 0:
                    break
                chosen.append(best)
                left &= ~hits[best]
            if not left.any():
                chosen = [
                    k for k in chosen if not hits[[j for j in chosen if j != k]].any(axis=0).all()
                ] or chosen
                self.offer(
                    [parts[k][1] for k in chosen], float(costs[chosen].sum()) + 0.2 * len(chosen)
                )

    def best(self) -> Explanation:
        """Return the cheapest option; one that leaves pairs unexplained costs dearly."""
        if not self.options:
            return Explanation([], NO_RULE, self.total)
        ranked = sorted(self.options, key=lambda e: (e.unexplained > 0, e.cost))
        best = ranked[0]
        if best.unexplained:
            if best.unexplained > self.total // 5 or len(best.relations) > MAX_MIXED:
                return Explanation([], NO_RULE, self.total)
            best.cost = min(best.cost + 10.0, NO_RULE)
            return best
        return best


def rough_cost(pairs: Sequence[Pairs]) -> float:
    """Return how many different steps on the grid a node's pairs need, four at most."""
    found = stencil([p for p in pairs if len(p.rank)])
    if found is not None:
        return found.cost
    most = 0
    for p in pairs:
        dims = np.array(p.grid.dims)[:, None]
        step = (p.grid.coords[:, p.peer] - p.grid.coords[:, p.rank]) % dims
        most = max(most, len(np.unique(np.ravel_multi_index(tuple(step), p.grid.dims))))
    return min(most, 4.0)
