"""Finding the communicator laws of a node: the fewest that give its members at all counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations

import numpy as np

from p3s.model.grid.at import GridAt
from p3s.model.grid.guardfit import fit_guard
from p3s.model.partners.communicator_laws import (
    Alone,
    CommunicatorLaw,
    Odd,
    Seen,
    Where,
    World,
    instances,
)
from p3s.signature.tables import PointTable

#: (count, number of the communicator in the table of the count)
Used = frozenset[tuple[int, int]]
#: What a law costs, the law, and the communicators that it gives.
Fit = tuple[float, CommunicatorLaw, Used]
#: What all stages of a recursion cost together.
_RECURSION = 1.3


@dataclass
class Cover:
    """Laws that give a node's communicators, the law of each, and what each law costs."""

    costs: list[float] = field(default_factory=list)
    laws: list[CommunicatorLaw] = field(default_factory=list)
    law_of: dict[tuple[int, int], int] = field(default_factory=dict)


class Communicators:
    """The laws of a program's communicators on one grid; remembers what it found."""

    def __init__(self, tables: Sequence[PointTable], grids: Mapping[int, GridAt]) -> None:
        self.tables = {t.np: t for t in tables}
        self.grids = grids
        self._sets: dict[CommunicatorLaw, dict[int, set[tuple[int, ...]]]] = {}
        self._covers: dict[Used, Cover] = {}

    def members(self, n: int, place: int) -> tuple[int, ...]:
        """Return the members of a communicator of a table, empty where they are not known."""
        places = self.tables[n].places
        return places[place].members if 0 <= place < len(places) else ()

    def cover(self, used: Used) -> Cover:
        """Return the cheapest laws for the communicators that a node uses."""
        found = self._covers.get(used)
        if found is None:
            found = self._cover(used)
            self._covers[used] = found
        return found

    def cost(self, uses: Sequence[Used]) -> float:
        """Return what the communicators of all nodes cost: a law counts once, its uses little."""
        laws: dict[object, float] = {}
        for used in uses:
            cover = self.cover(used)
            for law, cost in zip(cover.laws, cover.costs, strict=False):
                name = replace(law, ordinal=None)
                laws[(name, used) if isinstance(law, Odd) else name] = cost
        result: float = sum(laws.values()) + 0.05 * sum(
            not isinstance(law, World) for used in uses for law in self.cover(used).laws
        )
        return result

    def _has(self, law: CommunicatorLaw, n: int, members: tuple[int, ...]) -> bool:
        per = self._sets.setdefault(law, {})
        if n not in per:
            per[n] = set(instances(law, self.grids[n])[1])
        return members in per[n]

    def _cover(self, used: Used) -> Cover:
        wanted = {u: self.members(*u) for u in used if u[0] in self.grids}
        known = {u: m for u, m in wanted.items() if m}
        out = Cover()
        for u, m in wanted.items():
            if not m:  # recorded without members: the world is what most calls use
                out.law_of[u] = 0
        alike: dict[tuple[int, tuple[int, ...]], list[tuple[int, int]]] = {}
        for u, m in sorted(known.items()):
            alike.setdefault((u[0], m), []).append(u)
        if alike:
            self._choose({uses[0]: uses for uses in alike.values()}, out)
        if not out.laws:
            out.laws = [World(ordinal=0)]
        for k, law in enumerate(out.laws):
            mine = [u for u, i in out.law_of.items() if i == k and u in known]
            if mine:
                n, place = max(mine)
                out.laws[k] = replace(law, ordinal=self.tables[n].places[place].ordinal)
        return out

    def _choose(self, uses: Mapping[tuple[int, int], list[tuple[int, int]]], out: Cover) -> None:
        """Fill the cover: one law for all if there is one, else two, else what is left is odd.

        uses: communicators of one count with the same members, under the first of them, which
        stands for all: a program may make the same ones thousands of times.
        """
        known = {u: self.members(*u) for u in uses}
        fits: list[Fit] = []
        for cost, law in self._candidates(known):
            hit = frozenset(u for u, m in known.items() if self._has(law, u[0], m))
            if hit:
                fits.append((cost, law, hit))
            if len(hit) == len(known):
                break
        everything = frozenset(known)
        chosen = min(([f] for f in fits if f[2] == everything), key=lambda c: c[0][0], default=None)
        if chosen is None:
            named = self._where(known, everything)
            pairs = [[a, b] for a, b in combinations(fits, 2) if a[2] | b[2] == everything]
            if named is not None:
                pairs.append([named])
            chosen = min(pairs, key=lambda c: sum(f[0] for f in c) + 0.2 * len(c), default=None)
        recursion = _recursion(fits, everything)
        if recursion and (chosen is None or sum(f[0] for f in chosen) > _RECURSION):
            chosen = recursion
        if chosen is None:
            chosen, left = [], everything
            while left:
                best = max(
                    fits,
                    key=lambda f: (sum(len(uses[u]) for u in f[2] & left), -f[0]),
                    default=None,
                )
                if best is None or not best[2] & left:
                    break
                chosen.append(best)
                left = left - best[2]
            if left:
                many = sum(len(uses[u]) for u in left)
                odd = (2.0 * many / len(self.tables), Odd(), left)
                chosen.append(self._where(known, left) or odd)
        for cost, law, hit in chosen:
            out.costs.append(cost)
            out.laws.append(law)
            for u in (each for first in hit for each in uses[first]):
                out.law_of.setdefault(u, len(out.laws) - 1)

    def _candidates(
        self, known: Mapping[tuple[int, int], tuple[int, ...]]
    ) -> list[tuple[float, CommunicatorLaw]]:
        ndims = len(next(iter(self.grids.values())).dims)
        seen = Seen(ndims, [n for n, _ in known], list(known.values()))
        kinds = list(CommunicatorLaw.kinds.values())
        out = [tried for kind in kinds for tried in kind.proposed(seen)]
        if any(len(m) > 1 and m[0] > m[-1] for m in known.values()):
            out += [
                (c + 0.2, replace(law, order="reverse"))
                for c, law in out
                if not isinstance(law, Alone)
            ]
        if any(g.order is not None for g in self.grids.values()):
            out += [tried for kind in kinds for tried in kind.in_grid_order(seen)]
        return sorted(out, key=lambda f: f[0])

    def _where(
        self, known: Mapping[tuple[int, int], tuple[int, ...]], left: frozenset[tuple[int, int]]
    ) -> tuple[float, CommunicatorLaw, frozenset[tuple[int, int]]] | None:
        """Return the ranks for which a guard holds, where that gives the members at each count."""
        per: dict[int, list[tuple[int, ...]]] = {}
        for u in sorted(left):
            per.setdefault(u[0], []).append(tuple(sorted(known[u])))
        first = {n: set(m[0]) for n, m in per.items()}
        both = any(len(set(m)) > 1 for m in per.values())
        for n, m in per.items():
            others = {x for x in m if set(x) != first[n]}
            if len(others) > 1 or any(set(x) != set(range(n)) - first[n] for x in others):
                return None
        counts = sorted(per)
        if len(counts) < 2:
            return None
        sets = [np.isin(np.arange(n), list(first[n])) for n in counts]
        if both:  # of two colours, the one with rank 0 comes first
            sets = [s if s[0] else ~s for s in sets]
        guard = fit_guard([self.grids[n] for n in counts], sets)
        if not guard:
            return None
        return (0.4 + 0.4 * guard.cost, Where(guard=guard, both=both), left)


def _recursion(fits: Sequence[Fit], everything: Used) -> list[Fit]:
    """Return the stages of the recursion that gives all communicators, those of all ranks first.

    The stages together cost as one law; those that are met first have what several give.
    """
    world = [f for f in fits if isinstance(f[1], World)][:1]
    stages: dict[object, list[tuple[int, Fit]]] = {}
    for fit in fits:
        if (found := fit[1].series()) is not None:
            stages.setdefault(found[0], []).append((found[1], fit))
    for each in stages.values():
        mine = [*world, *(fit for _, fit in sorted(each, key=lambda stage: stage[0]))]
        if len(each) > 1 and frozenset().union(*(f[2] for f in mine)) == everything:
            return [(_RECURSION / len(mine), law, hit) for _, law, hit in mine]
    return []


def same_communicator(
    law: CommunicatorLaw,
    table: PointTable,
    number: int,
    grid: GridAt,
    known: dict[CommunicatorLaw, set[tuple[int, ...]]],
) -> tuple[bool, bool]:
    """Return whether a communicator of a table is one of the law's, and has its ordinal too.

    known: members of the laws on this grid, filled as they are asked for.
    """
    if not 0 <= number < len(table.places) or not table.places[number].members:
        return isinstance(law, World), True
    if law not in known:
        known[law] = set(instances(law, grid)[1])
    seen = table.places[number]
    hit = seen.members in known[law] or isinstance(law, Odd)
    return hit, seen.ordinal == (law.ordinal or 0)
