"""Finding the relations of a node: the fewest that lead from every rank to its partners."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from p3s.model.grid.at import GridAt
from p3s.model.grid.axes import Axis, line
from p3s.model.grid.covers import MOST, covers_by_size
from p3s.model.memory import Memory
from p3s.model.partners.communicator_laws import CommunicatorLaw
from p3s.model.partners.pairs import Pairs
from p3s.model.partners.relation import (
    MAX_REACH,
    NO_GUARD,
    Relation,
    Shift,
    StagedRelation,
    bordered_steps,
    is_stencil,
    shift_vectors,
)
from p3s.model.partners.single import Oneself
from p3s.model.partners.stencil import MOST_CELLS, mixture, partners, stencil, used_pairs

_STACKS: Memory[tuple[np.ndarray, np.ndarray]] = Memory(MOST_CELLS, lambda found: found[0].size)


def _stack(rels: Sequence[Relation], g: GridAt) -> tuple[np.ndarray, np.ndarray]:
    """Return the partners of all stages of the relations, and which relation each row is of."""

    def made() -> tuple[np.ndarray, np.ndarray]:
        tables = [partners(rel, g) for rel in rels]
        of = np.repeat(np.arange(len(rels)), [len(table) for table in tables])
        return np.concatenate(tables), of

    return _STACKS.of((g.key, *rels), made)


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
        if not isinstance(rel, StagedRelation) or not self.somewhere[k]:
            return bool(self.somewhere[k])
        return bool(loose or rel.sparse or self._much[k]) and any(
            self._levels(rel, at) > 1 for at in reversed(range(len(self.pairs)))
        )

    def _levels(self, rel: StagedRelation, at: int) -> int:
        g = self.pairs[at].grid
        table = partners(rel, g)
        there = self.used[at][np.arange(g.n)[None, :], table] & (table >= 0)
        return rel.levels(there, table, g)


def explaining(rels: Sequence[Relation], pairs: Sequence[Pairs]) -> list[Relation]:
    """Return those of the relations that lead to all pairs."""
    used, found = [used_pairs(p) for p in pairs], []
    for start in range(0, len(rels), TOGETHER):
        some = Together(rels[start : start + TOGETHER], pairs, used)
        found += [rel for rel, hit in zip(some.rels, some.hits, strict=True) if hit.all()]
    return found


def _parts(rows: np.ndarray, pairs: int) -> list[np.ndarray]:
    """Return rows in parts that have few cells when compared with so many pairs."""
    step = max(1, MOST_CELLS // max(1, pairs))
    return [rows[start : start + step] for start in range(0, len(rows), step)]


#: A staged relation along a shorter line says nothing that shifts do not.
MIN_LINE = 4
#: Relations that are looked for among the pairs at once; neighbours in three dimensions.
TOGETHER, WHOLE_BOX = 48, 26
#: What is said beside a relation costs: a step beyond the neighbours, a dimension crossed beside
#: the first, each relation that a guard costs.
BESIDE = 0.15
#: Mixtures of as many relations that are tried.
MIXTURES = 12
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


def _lines(pairs: Sequence[Pairs], axes: Sequence[CommunicatorLaw]) -> list[Axis]:
    """Return the axes along which relations are tried: dimensions, all ranks, communicators."""
    ndims = len(pairs[0].grid.dims)
    closed = [law for kind in CommunicatorLaw.kinds.values() for law in kind.closed(pairs)]
    parts = [law for _, law in sorted(closed, key=lambda c: c[0])]
    return [*(range(ndims) if ndims > 1 else ()), None, *axes, *parts]


def _extra(axis: Axis, ndims: int) -> tuple[float, float]:
    """Return what a relation to one partner costs more along an axis, and what others do."""
    if isinstance(axis, int):
        return 0.1, 0.0
    return 0.15, 0.3 if axis is not None else 0.5 * (ndims > 1)


def candidates(
    pairs: Sequence[Pairs], axes: Sequence[CommunicatorLaw]
) -> list[tuple[float, Relation]]:
    """Return the relations that may lead from rank to partner, cheapest first.

    Of equally cheap ones those of the grid come first, then those of one axis after the other.
    """
    read_off = [tried for kind in Relation.kinds.values() for tried in kind.read_off(pairs)]
    return sorted([*_of_grids(pairs, axes), *read_off], key=lambda c: c[0])


_TRIED: Memory[list[tuple[float, Relation]]] = Memory(256)


def _of_grids(
    pairs: Sequence[Pairs], axes: Sequence[CommunicatorLaw]
) -> list[tuple[float, Relation]]:
    """Return the relations that are tried on grids whatever the pairs, remembered."""
    along = _lines(pairs, axes)

    def made() -> list[tuple[float, Relation]]:
        kinds, ndims = list(Relation.kinds.values()), len(pairs[0].grid.dims)
        found = [tried for kind in kinds for tried in kind.on_grid(ndims)]
        for axis in along:
            longest = max(line(axis, p.grid).longest for p in pairs)
            single, staged = _extra(axis, ndims)
            short = (tried for kind in kinds for tried in kind.on_line(axis, ndims))
            found += [(c + single, rel) for c, rel in short if longest > 1]
            signs = (1, -1, 0) if longest >= MIN_LINE else ()
            long = (
                t for sign in signs for kind in kinds for t in kind.on_long_line(axis, ndims, sign)
            )
            found += [(c + staged, rel) for c, rel in long]
        return found

    return _TRIED.of((tuple(Relation.kinds), *along, *(p.grid.key for p in pairs)), made)


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
        led = [(partners(rel, p.grid)[:, p.rank] == p.peer).any(axis=0) for p in self.pairs]
        return np.concatenate(led)

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
            rel.no_guard if guard is None else BESIDE * guard.cost
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
        extra, missing = self.guards(rels, min([NO_GUARD, *complete]) - cost)
        if not missing or cost + extra < NO_GUARD:
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
        if not found or len(found) > WHOLE_BOX:
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
        cost = len(rels) * 2.0 if far else len(rels) + BESIDE * (reach + askew)
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
        parts = sorted(self.partial, key=lambda c: c[0])
        if self.beaten(2.2) or not parts:
            return
        costs = [cost for cost, _, _ in parts]
        sizes = covers_by_size(costs, np.array([hit for _, _, hit in parts]))
        next(sizes, None)  # what explains everything alone was tried
        for size, some in enumerate(sizes, start=2):
            for cost, chosen in some[:MIXTURES]:
                self.offer([parts[k][1] for k in chosen], cost)
            if self.beaten((size + 1) * costs[0]):
                break

    def best(self) -> Explanation:
        """Return the cheapest option; one that leaves pairs unexplained costs dearly."""
        best = min(self.options, key=lambda e: (e.unexplained > 0, e.cost), default=None)
        if best is not None and not best.unexplained:
            return best
        if best is None or best.unexplained > self.total // 5 or len(best.relations) > MOST:
            return Explanation([], NO_GUARD, self.total)
        return replace(best, cost=min(best.cost + 10.0, NO_GUARD))


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
