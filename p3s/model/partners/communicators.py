"""Finding the communicator laws of a node: the fewest that give its members at all counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np

from p3s.characterize.tables import PointTable
from p3s.model.grid.at import GridAt
from p3s.model.grid.grids import GridFamily
from p3s.model.grid.guardfit import fit_guard
from p3s.model.partners.places import CUTS, PlaceLaw, instances

#: (count, number of the communicator in the table of the count)
Used = frozenset[tuple[int, int]]
#: Second grids on which rows and columns are looked for when the program's own has none.
_OTHER_GRIDS = tuple(
    GridFamily(kind, 2) for kind in ("cube", "balanced", "balanced_up", "greedy", "greedy_up")
) + (GridFamily("power2", 2, (0, 1)), GridFamily("power2", 2, (1, 0)))
_MAX_K = 64


@dataclass
class Cover:
    """Laws that give a node's communicators, the law of each, and what each law costs."""

    costs: list[float] = field(default_factory=list)
    laws: list[PlaceLaw] = field(default_factory=list)
    law_of: dict[tuple[int, int], int] = field(default_factory=dict)


class Communicators:
    """The laws of a program's communicators on one grid; remembers what it found."""

    def __init__(self, tables: Sequence[PointTable], grids: Mapping[int, GridAt]) -> None:
        self.tables = {t.np: t for t in tables}
        self.grids = grids
        self._sets: dict[str, dict[int, set[tuple[int, ...]]]] = {}
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

    def cost(self, places: Sequence[Used]) -> float:
        """Return what the communicators of all nodes cost: a law counts once, its uses little."""
        laws: dict[str, float] = {}
        for used in places:
            cover = self.cover(used)
            for law, cost in zip(cover.laws, cover.costs, strict=False):
                name = repr(sorted((k, v) for k, v in law.items() if k != "ordinal"))
                laws[name if law["kind"] != "odd" else f"{name}{sorted(used)}"] = cost
        result: float = sum(laws.values()) + 0.05 * sum(
            law["kind"] != "world" for used in places for law in self.cover(used).laws
        )
        return result

    def _has(self, law: PlaceLaw, n: int, members: tuple[int, ...]) -> bool:
        per = self._sets.setdefault(repr(sorted(law.items())), {})
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
        if known:
            self._choose(known, out)
        if not out.laws:
            out.laws = [{"kind": "world", "ordinal": 0}]
        for k, law in enumerate(out.laws):
            mine = [u for u, i in out.law_of.items() if i == k and u in known]
            if mine:
                n, place = max(mine)
                law["ordinal"] = self.tables[n].places[place].ordinal
        return out

    def _choose(self, known: Mapping[tuple[int, int], tuple[int, ...]], out: Cover) -> None:
        """Fill the cover: one law for all if there is one, else two, else what is left is odd."""
        fits: list[tuple[float, PlaceLaw, frozenset[tuple[int, int]]]] = []
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
        if chosen is None:
            chosen, left = [], everything
            while left:
                best = max(fits, key=lambda f: (len(f[2] & left), -f[0]), default=None)
                if best is None or not best[2] & left:
                    break
                chosen.append(best)
                left = left - best[2]
            if left:
                rest = self._where(known, left)
                chosen.append(
                    rest
                    if rest is not None
                    else (2.0 * len(left) / len(self.tables), {"kind": "odd"}, left)
                )
        for cost, law, hit in chosen:
            out.costs.append(cost)
            out.laws.append(dict(law))
            for u in hit:
                out.law_of.setdefault(u, len(out.laws) - 1)

    def _candidates(
        self, known: Mapping[tuple[int, int], tuple[int, ...]]
    ) -> list[tuple[float, PlaceLaw]]:
        ndims = len(next(iter(self.grids.values())).dims)
        out: list[tuple[float, PlaceLaw]] = [(0.0, {"kind": "world"}), (0.1, {"kind": "self"})]
        for size in range(1, ndims):
            out += [
                (0.1 * size, {"kind": "axes", "axes": list(a)})
                for a in combinations(range(ndims), size)
            ]
        out += [(0.5, {"kind": "without", "rank": r}) for r in (0, -1)]
        sizes = {len(m) for m in known.values()}
        gaps = {b - a for m in known.values() for a, b in zip(m, m[1:], strict=False)}
        out += [(0.6, {"kind": "modulo", "k": k}) for k in sorted(gaps) if 1 < k <= _MAX_K]
        out += [(0.6, {"kind": "nodes", "size": k}) for k in sorted(sizes) if 1 < k <= _MAX_K]
        for k in (2, 3, 4, 8):
            even = all(u[0] % k == 0 for u in known)
            out += (
                [(0.5 + k / 20, {"kind": "parts", "k": k})]
                if even
                else [
                    (0.5 + k / 20 + i / 100, {"kind": "parts", "k": k, "cut": cut})
                    for i, cut in enumerate(CUTS)
                ]
            )
            out += [(0.7 + k / 20, {"kind": "spread", "k": k})]
        out += [
            (1.0, {"kind": "axes", "axes": [a], "grid": fam.to_json()})
            for fam in _OTHER_GRIDS
            for a in (0, 1)
            if all(fam.dims(u[0]) is not None for u in known)
        ]
        down = any(len(m) > 1 and m[0] > m[-1] for m in known.values())
        if down:
            out += [
                (c + 0.2, {**law, "order": "reverse"}) for c, law in out if law["kind"] != "self"
            ]
        if any(g.order is not None for g in self.grids.values()):
            out += [(0.1, {"kind": "world", "order": "grid"})]
            out += [
                (0.2, {"kind": "axes", "axes": list(a), "order": "grid"})
                for size in range(1, ndims)
                for a in combinations(range(ndims), size)
            ]
        out.sort(key=lambda f: f[0])
        return out

    def _where(
        self, known: Mapping[tuple[int, int], tuple[int, ...]], left: frozenset[tuple[int, int]]
    ) -> tuple[float, PlaceLaw, frozenset[tuple[int, int]]] | None:
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
        law: dict[str, Any] = {"kind": "where", "guard": guard.to_json()}
        if both:
            law["both"] = True
        return (0.4 + 0.4 * guard.cost, law, left)


def same_place(
    law: PlaceLaw,
    table: PointTable,
    place: int,
    grid: GridAt,
    known: dict[str, set[tuple[int, ...]]],
) -> tuple[bool, bool]:
    """Return whether a communicator of a table is one of the law's, and has its ordinal too.

    known: members of the laws on this grid, filled as they are asked for.
    """
    if not 0 <= place < len(table.places) or not table.places[place].members:
        return law["kind"] == "world", True
    name = repr(sorted(law.items()))
    if name not in known:
        known[name] = set(instances(law, grid)[1])
    mine = table.places[place]
    hit = mine.members in known[name] or law["kind"] == "odd"
    return hit, mine.ordinal == law.get("ordinal", 0)
