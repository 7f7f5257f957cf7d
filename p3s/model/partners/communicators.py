"""Finding the communicator laws of a node: the fewest that give its members at all counts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from p3s.model.grid.at import GridAt
from p3s.model.grid.covers import cheapest_covers
from p3s.model.grid.guardfit import fit_guard
from p3s.model.partners.communicator_laws import (
    Alone,
    CommunicatorLaw,
    CommunicatorSet,
    GuardedRanks,
    UnknownMembers,
    World,
    gives,
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
        self._covers: dict[Used, Cover] = {}

    def members(self, n: int, place: int) -> tuple[int, ...]:
        """Return the members of a communicator of a table, empty where they are not known."""
        places = self.tables[n].places
        return places[place].members if 0 <= place < len(places) else ()

    def cover(self, used: Used) -> Cover:
        """Return the cheapest laws for the communicators that a node uses."""
        if used not in self._covers:
            self._covers[used] = self._cover(used)
        return self._covers[used]

    def cost(self, uses: Sequence[Used]) -> float:
        """Return what the communicators of all nodes cost: a law counts once, its uses little."""
        laws: dict[object, float] = {}
        for used in uses:
            cover = self.cover(used)
            for law, cost in zip(cover.laws, cover.costs, strict=False):
                name = replace(law, ordinal=None)
                laws[(name, used) if isinstance(law, UnknownMembers) else name] = cost
        result: float = sum(laws.values()) + 0.05 * sum(
            not isinstance(law, World) for used in uses for law in self.cover(used).laws
        )
        return result

    def _has(self, law: CommunicatorLaw, n: int, members: tuple[int, ...]) -> bool:
        return gives(law, self.grids[n], members)

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
        """Fill the cover with the cheapest laws; what none of them gives is odd.

        uses: communicators of one count with the same members, under the first of them, which
        stands for all: a program may make the same ones thousands of times.
        """
        known = {u: self.members(*u) for u in uses}
        everything = frozenset(known)
        fits: list[Fit] = []
        for cost, law in self._candidates(known):
            hit = frozenset(u for u, m in known.items() if self._has(law, u[0], m))
            if hit:
                fits.append((cost, law, hit))
            if hit == everything:
                break
        whole = bool(fits) and fits[-1][2] == everything
        if not whole and (named := self._where(known, everything)) is not None:
            fits = sorted([*fits, named], key=lambda f: f[0])
        given = frozenset().union(*(f[2] for f in fits))
        columns = [u for u in sorted(given) for _ in uses[u]]
        hits = np.array([[u in f[2] for u in columns] for f in fits], dtype=bool)
        costs = [f[0] for f in fits]
        enough = math.inf if whole else 0.0
        found = cheapest_covers(costs, hits, 1, enough=enough, most=len(fits))
        chosen = [fits[k] for k in found[0][1]] if found else []
        recursion = _recursion(fits, everything)
        few = len(chosen) < 3 and sum(f[0] for f in chosen) <= _RECURSION
        if recursion and (given != everything or not few):
            chosen = recursion
        if left := everything.difference(*(f[2] for f in chosen)):
            odd = (2.0 * sum(len(uses[u]) for u in left) / len(self.tables), UnknownMembers(), left)
            chosen = [*chosen, self._where(known, left) or odd]
        for cost, law, hit in chosen:
            out.costs.append(cost)
            out.laws.append(law)
            for u in (each for first in hit for each in uses[first]):
                out.law_of.setdefault(u, len(out.laws) - 1)

    def _candidates(
        self, known: Mapping[tuple[int, int], tuple[int, ...]]
    ) -> list[tuple[float, CommunicatorLaw]]:
        ndims = len(next(iter(self.grids.values())).dims)
        seen = CommunicatorSet(ndims, [n for n, _ in known], list(known.values()))
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
    ) -> Fit | None:
        """Return the ranks for which a guard holds, where that gives the members at each count."""
        per: dict[int, set[frozenset[int]]] = {}
        for u in left:
            per.setdefault(u[0], set()).add(frozenset(known[u]))
        counts, sets = sorted(per), []
        for n in counts:
            first = min(per[n], key=min)
            if per[n] - {first, frozenset(range(n)) - first} or len(counts) < 2:
                return None
            sets.append(np.isin(np.arange(n), list(first)))
        both = any(len(m) > 1 for m in per.values())
        if both:  # of two colours, the one with rank 0 comes first
            sets = [s if s[0] else ~s for s in sets]
        guard = fit_guard([self.grids[n] for n in counts], sets)
        if not guard:
            return None
        return (0.4 + 0.4 * guard.cost, GuardedRanks(guard=guard, both=both), left)


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
    law: CommunicatorLaw, table: PointTable, number: int, grid: GridAt
) -> tuple[bool, bool]:
    """Return whether a communicator of a table is one of the law's, and has its ordinal too."""
    if not 0 <= number < len(table.places) or not table.places[number].members:
        return isinstance(law, World), True
    seen = table.places[number]
    hit = gives(law, grid, seen.members) or isinstance(law, UnknownMembers)
    return hit, seen.ordinal == (law.ordinal or 0)
