"""Finding the relations of a node: the fewest that lead from every rank to its partners."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from p3s.model.guards import GridAt
from p3s.model.relations import PERMUTATIONS, Relation, partners

MAX_SHIFTS = 26
MAX_REACH = 4


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


def _covered(rel: Relation, pairs: Sequence[Pairs]) -> list[np.ndarray]:
    """Return for each count which pairs the relation explains."""
    out = []
    for p in pairs:
        table = partners(rel, p.grid)
        out.append((table[:, p.rank] == p.peer[None, :]).any(axis=0)
                   if len(table) else np.zeros(len(p.rank), dtype=bool))
    return out


def _family_complete(rel: Relation, pairs: Sequence[Pairs]) -> bool:
    """Every rank that takes part at all has every stage with a partner; two stages somewhere."""
    stages_seen = 0
    for p in pairs:
        table = partners(rel, p.grid)
        stages_seen = max(stages_seen, len(table))
        have = {(int(r), int(q)) for r, q in zip(p.rank, p.peer, strict=True)}
        for r in np.unique(p.rank):
            want = [int(q) for q in table[:, r] if q >= 0]
            hits = sum((int(r), q) in have for q in want)
            if hits not in (0, len(want)) or (hits == 0 and want):
                return False
    return stages_seen >= 2


def _shift_vectors(
    pairs: Sequence[Pairs], periods: tuple[bool, ...] | None
) -> tuple[list[Relation], set[int]]:
    """Return shift relations covering the pairs, and the axes whose direction stays open."""
    ndims = len(pairs[0].grid.dims)
    found: dict[tuple[int, ...], list[bool]] = {}
    unclear: list[tuple[Pairs, np.ndarray]] = []
    for p in pairs:
        dims = np.array(p.grid.dims)[:, None]
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
            open_axes = [d for d in range(ndims)
                         if col[d] and 2 * abs(col[d]) == p.grid.dims[d]]
            both = mirror in cols
            if both and col < mirror:
                continue
            wrap = [bool(both and d in open_axes) if periods is None else bool(periods[d])
                    for d in range(ndims)]
            rels.append({"kind": "shift", "vec": list(col), "wrap": wrap})
            if both and periods is not None and not any(periods[d] for d in open_axes):
                rels.append({"kind": "shift", "vec": list(mirror), "wrap": wrap})
            elif both:
                ambiguous.update(open_axes)
                if two_sided:  # as in the dimensions where it shows, both ways through one call
                    rels.append({"kind": "shift", "vec": list(mirror), "wrap": wrap})
    return rels, ambiguous


def _shift(vec: tuple[int, ...], flags: list[bool], periods: tuple[bool, ...] | None) -> Relation:
    wrap = [bool(periods[d]) or flags[d] if periods is not None and vec[d] else flags[d]
            for d in range(len(vec))]
    return {"kind": "shift", "vec": list(vec), "wrap": wrap}


def _family_candidates(ndims: int) -> list[tuple[float, Relation]]:
    axes: list[int | None] = list(range(ndims)) if ndims > 1 else []
    out: list[tuple[float, Relation]] = []
    for a in (*axes, None):
        extra = 0.0 if a is not None or ndims == 1 else 2.0
        out.append((1.5 + extra, {"kind": "xor", "axis": a}))
        for sign in (1, -1):
            for wrap in (True, False):
                out.append((1.5 + extra, {"kind": "stride", "axis": a, "sign": sign,
                                          "wrap": wrap}))
        out.append((2.0 + extra, {"kind": "others", "axis": a}))
    out += [(1.6, {"kind": "tree", "sign": sign}) for sign in (1, -1)]
    out += [(1.2, {"kind": "mirror"}), (1.2, {"kind": "opposite"})]
    if ndims == 2:
        out.append((1.2, {"kind": "transpose"}))
    return out


def explain(pairs: Sequence[Pairs], periods: tuple[bool, ...] | None = None,
            loose: bool = False) -> Explanation:
    """Return the cheapest set of relations that covers all pairs at all counts.

    loose: partners differ from run to run (whoever is free gets the work), so a relation to
    all others need not be complete in any one run.
    """
    pairs = [p for p in pairs if len(p.rank)]
    if not pairs:
        return Explanation([], 0.0, 0)
    search = _Search(pairs, periods)
    search.fixed_partners()
    search.shifts()
    partial = search.families(loose)
    search.mixtures(partial)
    return search.best()


class _Search:
    """Collects explanations of one node's pairs; cheaper ones found first save later work."""

    def __init__(self, pairs: Sequence[Pairs], periods: tuple[bool, ...] | None) -> None:
        self.pairs = pairs
        self.periods = periods
        self.ndims = len(pairs[0].grid.dims)
        self.options: list[Explanation] = []

    def residual(self, rels: Sequence[Relation]) -> int:
        """Return how many pairs none of the relations explains."""
        hit = [np.zeros(len(p.rank), dtype=bool) for p in self.pairs]
        for rel in rels:
            for h, c in zip(hit, _covered(rel, self.pairs), strict=True):
                h |= c
        return sum(int((~h).sum()) for h in hit)

    def beaten(self, cost: float) -> bool:
        """Return whether something complete is already as cheap."""
        return any(not e.unexplained and e.cost <= cost for e in self.options)

    def fixed_partners(self) -> None:
        """Try self and one rank for all."""
        candidates: list[Relation] = [{"kind": "self"}, {"kind": "root", "rank": 0},
                                      {"kind": "root", "rank": -1}]
        same = {int(q) for p in self.pairs for q in p.peer}
        if len(same) == 1:
            candidates.append({"kind": "root", "rank": same.pop()})
        self.options += [Explanation([rel], 1.0, 0) for rel in candidates
                         if self.residual([rel]) == 0]

    def shifts(self) -> None:
        """Try shifts on the grid, with messages to oneself where nothing else explains them."""
        found, ambiguous = _shift_vectors(self.pairs, self.periods)
        if not found or len(found) > MAX_SHIFTS:
            return
        left, rels = self.residual(found), list(found)
        if left and self.residual([*found, {"kind": "self"}]) == 0:
            rels.append({"kind": "self"})
            left = 0
        far = max(abs(x) for r in found for x in r["vec"]) > MAX_REACH
        odd = sum(_partial(rel, self.pairs) for rel in found)
        self.options.append(Explanation(rels, len(rels) * (2.0 if far else 1.0) + 0.2 * odd, left,
                                        sorted(ambiguous)))

    def families(self, loose: bool) -> list[tuple[float, Relation]]:
        """Try families and permutations alone; return those that explain a part."""
        partial = []
        for cost, rel in _family_candidates(self.ndims):
            if self.beaten(cost):
                continue
            complete = rel["kind"] in PERMUTATIONS or _family_complete(rel, self.pairs)
            left = self.residual([rel])
            if left == 0 and (complete or (rel["kind"] == "others" and (
                    loose or _each_all_or_none(rel, self.pairs)))):
                self.options.append(Explanation([rel], cost, 0))
            elif left and complete:
                partial.append((cost, rel))
                if self.residual([rel, {"kind": "self"}]) == 0:
                    self.options.append(Explanation([rel, {"kind": "self"}], cost + 1, 0))
        return partial

    def mixtures(self, partial: Sequence[tuple[float, Relation]]) -> None:
        """Try a family with a few shifts, a root or a transpose (a shared wrapper line)."""
        for cost, rel in partial:
            if self.beaten(cost + 1.2):
                continue
            rest = [Pairs(p.grid, p.rank[~c], p.peer[~c])
                    for p, c in zip(self.pairs, _covered(rel, self.pairs), strict=True)]
            shifts, open_axes = _shift_vectors([p for p in rest if len(p.rank)], self.periods)
            more: list[list[Relation]] = [shifts, [{"kind": "root", "rank": 0}]]
            if self.ndims == 2:
                more.append([{"kind": "transpose"}])
            for extra in more:
                if extra and len(extra) <= 8 and self.residual([rel, *extra]) == 0:
                    self.options.append(Explanation(
                        [rel, *extra], cost + 1.2 * len(extra), 0,
                        sorted(open_axes) if extra is shifts else []))

    def best(self) -> Explanation:
        """Return the cheapest option; one that leaves pairs unexplained costs dearly."""
        if not self.options:
            return Explanation([], 12.0, sum(len(p.rank) for p in self.pairs))
        best = min(self.options, key=lambda e: (e.unexplained > 0, e.cost))
        if best.unexplained:
            best.cost += 10.0
        return best


def _partial(rel: Relation, pairs: Sequence[Pairs]) -> bool:
    """Whether some rank with a partner inside the grid does not use the shift."""
    for p in pairs:
        inside = partners(rel, p.grid)[0]
        used = np.zeros(p.grid.n, dtype=bool)
        used[p.rank[inside[p.rank] == p.peer]] = True
        if np.any((inside >= 0) & ~used):
            return True
    return False


def _each_all_or_none(rel: Relation, pairs: Sequence[Pairs]) -> bool:
    for p in pairs:
        table = partners(rel, p.grid)
        for r in np.unique(p.rank):
            if len(np.unique(p.peer[p.rank == r])) != len(table):
                return False
    return max(p.grid.n for p in pairs) > 2


def order_family(rel: Relation, first_seen: Sequence[np.ndarray]) -> Relation:
    """Return the family with its stages in the order in which they were seen to run.

    first_seen: per count, the mean ordinal of each stage's first event.
    """
    if rel["kind"] not in ("xor", "stride", "tree"):
        return rel
    down = sum(bool(len(f) > 1 and f[0] > f[-1]) for f in first_seen)
    up = sum(bool(len(f) > 1 and f[0] < f[-1]) for f in first_seen)
    return {**rel, "descending": True} if down > up else rel
