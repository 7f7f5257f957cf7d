"""Finding the relations of a node: the fewest that lead from every rank to its partners."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations, permutations, product
from math import gcd
from typing import Any

import numpy as np

from p3s.model.grid.at import GridAt
from p3s.model.grid.atom import Guard
from p3s.model.grid.axes import Axis, line
from p3s.model.grid.guardfit import fit_guard
from p3s.model.partners.relations import (
    FAMILIES,
    Relation,
    at_stage,
    partners,
    place_on,
    relation_key,
)

MAX_SHIFTS = 26
MAX_REACH = 4
#: A family along a shorter line says nothing that shifts do not.
MIN_LINE = 4
#: What a guard costs beside its relation; a shift, a family for whose ranks there is no rule.
GUARD_WEIGHT, NO_GUARD, NO_FAMILY = 0.15, 3.0, 12.0
#: What partners without a rule cost.
NO_RULE = 12.0
#: More relations than this in one node are a neighbourhood without a rule.
MAX_MIXED = 6
#: Where the grid is known, a stencil on it is one rule: what it costs, and each of its shifts.
STENCIL, STENCIL_SHIFT = 1.0, 0.02


@dataclass(frozen=True)
class Pairs:
    """The distinct (rank, partner) pairs of one node at one count."""

    grid: GridAt
    rank: np.ndarray
    peer: np.ndarray


@dataclass
class Explanation:
    """Relations that cover a node's pairs; cost in relations, what stays unexplained."""

    relations: list[Relation]
    cost: float
    unexplained: int
    ambiguous: list[int] = field(default_factory=list)  # axes whose direction stays open
    rivals: list[list[Relation]] = field(default_factory=list)  # explain as well, as cheaply


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


def _on_grid(p: Pairs) -> Pairs:
    """Return the pairs of which both are on the grid."""
    both = p.grid.inside[p.rank] & p.grid.inside[p.peer]
    return p if both.all() else Pairs(p.grid, p.rank[both], p.peer[both])


def _shift_vectors(
    pairs: Sequence[Pairs], periods: tuple[bool, ...] | None, known: bool = False
) -> tuple[list[Relation], set[int]]:
    """Return shift relations covering the pairs, and the axes whose direction stays open.

    known: the grid is known, so dimensions of two ranks end as those that show how they end.
    """
    ndims = len(pairs[0].grid.dims)
    found: dict[tuple[int, ...], list[bool]] = {}
    unclear: list[tuple[Pairs, np.ndarray]] = []
    for p in pairs:
        dims = np.array(p.grid.dims)[:, None]
        p = _on_grid(p)
        delta = p.grid.coords[:, p.peer] - p.grid.coords[:, p.rank]
        open_sign = ((2 * np.abs(delta) == dims) | (dims == 1)).any(axis=0)
        unclear.append((p, open_sign))
        clear = ~open_sign
        wraps = 2 * np.abs(delta) > dims
        vec = np.where(wraps, delta - np.sign(delta) * dims, delta)
        for col, w in zip(vec[:, clear].T, wraps[:, clear].T, strict=True):
            flags = found.setdefault(tuple(int(x) for x in col), [False] * ndims)
            for d in range(ndims):
                flags[d] |= bool(w[d])
    rels = [_shift(v, f, periods) for v, f in found.items()]
    two_sided = bool(found) and all(tuple(-x for x in v) in found for v in found)
    bordered = known and two_sided and not any(map(any, found.values()))
    ambiguous: set[int] = set()
    for p, mask in unclear:
        left = mask.copy()
        for rel in rels:
            if not left.any():
                break
            left &= partners(rel, p.grid)[0][p.rank] != p.peer
        if not left.any():
            continue
        delta = p.grid.coords[:, p.peer[left]] - p.grid.coords[:, p.rank[left]]
        cols = sorted({tuple(int(x) for x in c) for c in delta.T}, reverse=True)
        for col in cols:
            if not any(col):
                continue
            mirror = tuple(-x for x in col)
            open_axes = [d for d in range(ndims) if col[d] and 2 * abs(col[d]) == p.grid.dims[d]]
            both = mirror in cols
            if both and col < mirror:
                continue
            wrap = [
                bool(both and d in open_axes) and not bordered
                if periods is None
                else bool(periods[d])
                for d in range(ndims)
            ]
            rels.append({"kind": "shift", "vec": list(col), "wrap": wrap})
            if both and periods is not None and not any(periods[d] for d in open_axes):
                rels.append({"kind": "shift", "vec": list(mirror), "wrap": wrap})
            elif both:
                ambiguous.update(open_axes)
                if two_sided:  # as in the dimensions where it shows, both ways through one call
                    rels.append({"kind": "shift", "vec": list(mirror), "wrap": wrap})
    return rels, ambiguous


def _shift(vec: tuple[int, ...], flags: list[bool], periods: tuple[bool, ...] | None) -> Relation:
    wrap = [
        bool(periods[d]) or flags[d] if periods is not None and vec[d] else flags[d]
        for d in range(len(vec))
    ]
    return {"kind": "shift", "vec": list(vec), "wrap": wrap}


def _levels(rel: Relation, there: np.ndarray, table: np.ndarray, g: GridAt) -> int:
    """Return how many stages, or levels of a tree, of a family are used.

    there: cells of the table of partners that are used. Where only the root of a tree has
    children it is a star, not a tree.
    """
    stages = np.flatnonzero(there.any(axis=1))
    if rel["kind"] not in ("heap", "tree"):
        return len(stages)
    parent = np.where(rel["sign"] > 0, np.arange(g.n)[None, :], table)[there]
    ln = line(rel["axis"], g)
    root = place_on(rel.get("root", 0), ln.p, g)
    if not bool((ln.c != root)[parent].any()):
        return 1
    return 2 if rel["kind"] == "heap" else len(np.unique(stages // (rel.get("base", 2) - 1)))


def _along(ndims: int, axis: Axis) -> list[tuple[float, Relation]]:
    """Return what may lead along one axis, with its cost."""
    far = (
        0.0
        if isinstance(axis, int) or (axis is None and ndims == 1)
        else 0.3
        if axis is not None
        else 0.5
    )
    out: list[tuple[float, Relation]] = [(1.5, {"kind": "xor"})]
    for sign in (1, -1):
        out += [(1.55, {"kind": "stride", "sign": sign, "wrap": w}) for w in (True, False)]
        out += [
            (1.6, {"kind": "level", "sign": sign, "wrap": w, "all": every})
            for w in (True, False)
            for every in ((True, False) if ndims > 1 else (False,))
        ]
        out += [
            (1.75, {"kind": "level", "sign": sign, "wrap": w, "all": every, "anchor": "last"})
            for w in (True, False)
            for every in ((True, False) if ndims > 1 else (False,))
        ]
        out += [
            (1.6, {"kind": "tree", "sign": sign, "root": 0}),
            (1.65, {"kind": "tree", "sign": sign, "root": 0, "form": "low"}),
            (1.8, {"kind": "tree", "sign": sign, "root": -1}),
            (1.85, {"kind": "tree", "sign": sign, "root": "half"}),
        ]
        out += [(1.9, {"kind": "heap", "k": k, "sign": sign}) for k in (2, 3, 4)]
        out += [(1.4, {"kind": "fold", "sign": sign})]
        out += [
            (1.5 + k / 20 if k > 2 else 1.1, {"kind": "far", "k": k, "sign": sign, "wrap": w})
            for k in (2, 3, 4)
            for w in (False, True)
            if not (w and k == 2 and sign < 0)
        ]
        if isinstance(axis, int):
            out += [
                (1.85, {"kind": "tree", "sign": sign, "root": f"c{d}"})
                for d in range(ndims)
                if d != axis
            ]
    out += [(1.6, {"kind": "xor", "fold": "power"}), (1.7, {"kind": "xor", "fold": "pairs"})]
    out += [(2.0, {"kind": "others"})]
    out += [
        (1.95, {"kind": "tree", "sign": sign, "root": 0, "base": k})
        for sign in (1, -1)
        for k in (3, 4)
    ]
    out += [
        (1.95, {"kind": "stride", "sign": sign, "wrap": True, "base": k})
        for sign in (1, -1)
        for k in (3, 4)
    ]
    return [(cost + far, {**rel, "axis": axis}) for cost, rel in out]


def _once(ndims: int, axis: Axis) -> list[tuple[float, Relation]]:
    """Return single partners along one axis: a place, the next, the mirrored one."""
    far = 0.1 if isinstance(axis, int) else 0.15
    out: list[tuple[float, Relation]] = []
    if axis is not None:
        out += [(1.0 + far, {"kind": "place", "axis": axis, "rank": k}) for k in (0, -1)]
        out += [(1.3 + far, {"kind": "place", "axis": axis, "rank": "half"})]
    if isinstance(axis, int):
        out += [
            (1.2 + far, {"kind": "place", "axis": axis, "rank": f"c{d}"})
            for d in range(ndims)
            if d != axis
        ]
        out += [
            (1.4 + far, {"kind": "skew", "axis": axis, "of": d, "sign": sign})
            for d in range(ndims)
            if d != axis
            for sign in (1, -1)
        ]
    if ndims > 1 or axis is not None:
        out += [(1.1 + far, {"kind": "mirror", "axis": axis})]
    if not isinstance(axis, int) and (ndims > 1 or axis is not None):
        out += [
            (1.0 + far, {"kind": "along", "axis": axis, "by": by, "wrap": w})
            for by in (1, -1)
            for w in (False, True)
        ]
    return out


def _numbered(pairs: Sequence[Pairs]) -> list[tuple[float, Relation]]:
    """Return relations whose number is read off the pairs: r mod k, every k-th rank, a root."""
    out: list[tuple[float, Relation]] = []
    last = pairs[-1]
    tops = {int(p.peer.max()) for p in pairs}
    if (
        len(tops) == 1
        and (top := tops.pop()) + 1 < last.grid.n
        and all((p.peer < p.rank).all() for p in pairs)
    ):
        out += [(1.6, {"kind": "modulo", "k": top + 1})]
    steps = {
        gcd(*(int(d) for d in np.unique(np.abs(p.peer - p.rank))))
        for p in pairs
        if len(np.unique(np.abs(p.peer - p.rank))) > 1
    }
    if len(steps) == 1 and (step := steps.pop()) and all((p.peer > p.rank).all() for p in pairs):
        out += [(1.9, {"kind": "steps", "axis": None, "by": step})]
    # a rank that receives from nobody but all others lead to: the root of a tree
    free: set[int] | None = None
    for p in pairs:
        mine = set(range(p.grid.n)) - {int(r) for r in p.rank}
        mine2 = set(range(p.grid.n)) - {int(r) for r in p.peer}
        both = mine | mine2
        free = both if free is None else free & both
    for root in sorted(free or ())[:3]:
        if root:
            out += [
                (1.9, {"kind": "tree", "axis": None, "sign": sign, "root": root})
                for sign in (1, -1)
            ]
    return out


def _block_axes(pairs: Sequence[Pairs]) -> list[dict[str, Any]]:
    """Return nodes of k ranks, k parts, ranks equal modulo k that no message leaves."""
    out: list[dict[str, Any]] = []
    n = max(p.grid.n for p in pairs)
    for k in range(2, min(n // 2, 64) + 1):
        if all((p.rank // k == p.peer // k).all() for p in pairs):
            out.append({"kind": "nodes", "size": k, "ordinal": 0})
            break
    steps = [gcd(*(int(d) for d in np.unique(np.abs(p.peer - p.rank)))) for p in pairs]
    for k in (8, 4, 3, 2):
        if all(
            p.grid.n % k == 0 and (p.rank * k // p.grid.n == p.peer * k // p.grid.n).all()
            for p in pairs
        ):
            out.append({"kind": "parts", "k": k, "ordinal": 0})
            break
    step = gcd(*steps)
    if 1 < step <= 64 and n > step:
        out.append({"kind": "modulo", "k": step, "ordinal": 0})
    return out


def explain(
    pairs: Sequence[Pairs],
    periods: tuple[bool, ...] | None = None,
    loose: bool = False,
    axes: Sequence[dict[str, Any]] = (),
    known: bool = False,
) -> Explanation:
    """Return the cheapest set of relations that covers all pairs at all counts.

    loose: partners differ from run to run (whoever is free gets the work), so a relation to
    all others need not be complete in any one run. axes: laws of communicators along which
    relations may lead. known: the grid is known, not sought, so neighbours on it come first.
    """
    pairs = [p for p in pairs if len(p.rank)]
    if not pairs:
        return Explanation([], 0.0, 0)
    search = _Search(pairs, periods, loose, known)
    search.fixed_partners()
    search.shifts()
    search.families(axes)
    search.mixtures()
    return search.best()


class _Search:
    """Collects explanations of one node's pairs; cheaper ones found first save later work."""

    def __init__(
        self, pairs: Sequence[Pairs], periods: tuple[bool, ...] | None, loose: bool, known: bool
    ) -> None:
        self.pairs = pairs
        self.periods = periods
        self.loose = loose
        self.known = known
        self.ndims = len(pairs[0].grid.dims)
        self.total = sum(len(p.rank) for p in pairs)
        self.options: list[Explanation] = []
        self.partial: list[tuple[float, Relation, np.ndarray]] = []
        self.used = []
        for p in pairs:
            adjacent = np.zeros((p.grid.n, p.grid.n + 1), dtype=bool)
            adjacent[p.rank, p.peer] = True
            self.used.append(adjacent)

    def covered(self, rel: Relation) -> np.ndarray:
        """Return which of all pairs the relation explains."""
        return np.concatenate(_covered(rel, self.pairs))

    def beaten(self, cost: float) -> bool:
        """Return whether something complete is already as cheap."""
        return any(not e.unexplained and e.cost <= cost for e in self.options)

    def guards(self, rels: Sequence[Relation]) -> tuple[float, int]:
        """Return what the guards of the relations cost together, and how many have none."""
        if self.loose:
            return 0.0, 0
        tables = [[partners(rel, p.grid) for rel in rels] for p in self.pairs]
        cost, missing = 0.0, 0
        for k, rel in enumerate(rels):
            grids, sets, peers, care = [], [], [], []
            for p, tabs, used in zip(self.pairs, tables, self.used, strict=True):
                mine = tabs[k]
                for s, row in enumerate(mine):
                    ways = sum((t == row[None, :]).sum(axis=0) for t in tabs)
                    grids.append(at_stage(rel, p.grid, s, len(mine)))
                    sets.append(used[np.arange(p.grid.n), row] & (row >= 0))
                    peers.append(row)
                    care.append((ways <= 1) | (row < 0))
            guard = fit_guard(grids, sets, peers, care) if grids else Guard()
            if guard is None:
                cost += NO_GUARD if rel["kind"] == "shift" else NO_FAMILY
                missing += 1
            else:
                cost += GUARD_WEIGHT * guard.cost
        return cost, missing

    def offer(self, rels: list[Relation], cost: float, ambiguous: Sequence[int] = ()) -> None:
        """Add a set of relations that explains all pairs, if it may be the cheapest."""
        if self.known and is_stencil(rels):
            cost = STENCIL + STENCIL_SHIFT * len(rels)
        if self.beaten(cost):
            return
        extra, missing = self.guards(rels)
        if not missing or cost + extra < NO_RULE:
            self.options.append(Explanation(rels, cost + extra, 0, list(ambiguous)))

    def fixed_partners(self) -> None:
        """Try self and one rank for all."""
        candidates: list[Relation] = [
            {"kind": "self"},
            {"kind": "root", "rank": 0},
            {"kind": "root", "rank": -1},
        ]
        same = {int(q) for p in self.pairs for q in p.peer}
        if len(same) == 1:
            candidates.append({"kind": "root", "rank": same.pop()})
        candidates.append({"kind": "root", "rank": "half"})
        for rel in candidates:
            self.consider(1.0 if rel.get("rank") != "half" else 1.3, rel)

    def consider(self, cost: float, rel: Relation) -> None:
        """Offer a relation if it explains everything, remember it if a part."""
        hit = self.covered(rel)
        if hit.all():
            self.offer([rel], cost)
        elif hit.any():
            self.partial.append((cost, rel, hit))

    def shifts(self) -> None:
        """Try shifts on the grid, with messages to oneself where nothing else explains them."""
        self.bordered()
        found, ambiguous = _shift_vectors(self.pairs, self.periods, self.known)
        if not found or len(found) > MAX_SHIFTS:
            return
        found = self.needed(found)
        hit = [self.covered(r) for r in found]
        rels = list(found)
        left = ~np.any(hit, axis=0)
        if left.any():
            own = self.covered({"kind": "self"})
            if (own | ~left).all():
                rels.append({"kind": "self"})
                left[:] = False
        far = max(abs(x) for r in found for x in r["vec"]) > MAX_REACH
        cost = len(rels) * (2.0 if far else 1.0)
        if left.any():
            self.options.append(Explanation(rels, cost, int(left.sum()), sorted(ambiguous)))
        else:
            self.offer(rels, cost, sorted(ambiguous))
        if not far and len(found) <= 8:
            self.partial += [(1.0, r, h) for r, h in zip(found, hit, strict=True) if h.any()]

    def needed(self, found: list[Relation]) -> list[Relation]:
        """Leave out shifts that few ranks alone show, and that others are there: 3 is -1 of 4."""
        hits = [self.covered(r) for r in found]
        last = np.arange(self.total) >= self.total - len(self.pairs[-1].rank)
        kept = list(range(len(found)))
        for k in range(len(found)):
            others = [hits[j] for j in kept if j != k]
            if others and not hits[k][last].any() and np.any(others, axis=0)[hits[k]].all():
                kept.remove(k)
        return [found[k] for k in kept]

    def bordered(self) -> None:
        """Try steps as they are, none around the edge: c + 2 is c - 1 on three ranks otherwise."""
        steps: set[tuple[int, ...]] = set()
        for p in self.pairs:
            delta = p.grid.coords[:, p.peer] - p.grid.coords[:, p.rank]
            steps.update(tuple(c) for c in np.unique(delta.T, axis=0).tolist())
            if len(steps) > 8 or not p.grid.inside.all():
                return
        if any(max(map(abs, s)) < 2 for s in steps) or not steps:
            return  # nearest neighbours: the other search knows their directions better
        if max(abs(x) for s in steps for x in s) <= MAX_REACH:
            self.offer(
                [
                    {"kind": "shift", "vec": list(s), "wrap": [False] * self.ndims}
                    for s in sorted(steps, reverse=True)
                ],
                float(len(steps)),
            )

    def families(self, axes: Sequence[dict[str, Any]]) -> None:
        """Try families, permutations and single places along all axes."""
        if self.beaten(1.0):
            return
        lines: list[Axis] = [*range(self.ndims)] if self.ndims > 1 else []
        lines += [None, *axes, *_block_axes(self.pairs)]
        candidates: list[tuple[float, Relation]] = [
            (1.2, {"kind": "mirror", "axis": None}),
            (1.1, {"kind": "opposite"}),
        ]
        candidates += [
            (1.2, {"kind": "transpose", "axes": list(a)})
            for a in combinations(range(self.ndims), 2)
        ]
        for axis in lines:
            longest = max(line(axis, p.grid).longest for p in self.pairs)
            if longest > 1:
                candidates += _once(self.ndims, axis)
            if longest >= MIN_LINE:
                candidates += _along(self.ndims, axis)
        candidates += _numbered(self.pairs)
        candidates.sort(key=lambda c: c[0])
        for cost, rel in candidates:
            if self.beaten(cost):
                break
            if self._leads(rel):
                self.consider(cost, rel)

    def _leads(self, rel: Relation) -> bool:
        """Whether a family is used in two stages somewhere, and much of what it says is there."""
        last = self.pairs[-1]
        if rel["kind"] not in FAMILIES:
            return bool((partners(rel, last.grid)[:, last.rank] == last.peer[None, :]).any())
        hit, said, levels = 0, 0, 0
        for p, used in zip(self.pairs[::-1], self.used[::-1], strict=True):
            table = partners(rel, p.grid)
            there = used[np.arange(p.grid.n)[None, :], table] & (table >= 0)
            took = np.zeros(p.grid.n, dtype=bool)
            took[p.rank] = True
            hit += int(there.sum())
            said += int((table[:, took] >= 0).sum())
            if not hit:  # nothing at the largest count
                return False
            levels = max(levels, _levels(rel, there, table, p.grid))
        return levels > 1 and (self.loose or 4 * hit >= said or rel["kind"] == "level")

    def mixtures(self) -> None:
        """Try several relations through one call (a shared wrapper line, a list of partners)."""
        if self.beaten(2.2) or not self.partial:
            return
        parts = sorted(self.partial, key=lambda c: c[0])
        hits = np.array([h for _, _, h in parts])
        pairs: list[tuple[float, int, int]] = []
        miss = (~hits).astype(np.float32)
        whole = np.argwhere(np.triu(miss @ miss.T == 0, 1))
        pairs = sorted((parts[i][0] + parts[j][0] + 0.2, int(i), int(j)) for i, j in whole)
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
        mine = {relation_key(r) for r in best.relations}
        best.rivals = [
            e.relations
            for e in ranked[1:4]
            if not e.unexplained
            and e.cost <= best.cost + 0.1
            and {relation_key(r) for r in e.relations} != mine
        ]
        return best


def is_stencil(rels: Sequence[Relation]) -> bool:
    """Return whether relations are nearest neighbours on the grid, no dimension unlike another.

    These are neighbours along dimensions, or all vectors that permuting the dimensions and turning
    them round makes of each other. A grid of wrong extents needs others: (1, -1) without (1, 1).
    """
    vectors = {tuple(r["vec"]) for r in rels if r["kind"] == "shift"}
    if len(vectors) < len(rels) or any(abs(x) > 1 for v in vectors for x in v):
        return False
    diagonal = {tuple(sorted(map(abs, v))) for v in vectors if sum(map(abs, v)) > 1}
    alike = {
        v
        for each in diagonal
        for order in permutations(each)
        for v in product(*((x, -x) for x in order))
    }
    return alike <= vectors


def rough_cost(grids: Sequence[GridAt], pairs: Sequence[tuple[np.ndarray, np.ndarray]]) -> float:
    """Return how many different steps on the grid a node's pairs need, four at most."""
    most = 0
    for g, (rank, peer) in zip(grids, pairs, strict=True):
        dims = np.array(g.dims)[:, None]
        step = (g.coords[:, peer] - g.coords[:, rank]) % dims
        most = max(most, len(np.unique(np.ravel_multi_index(tuple(step), g.dims))))
    return min(most, 4.0)
