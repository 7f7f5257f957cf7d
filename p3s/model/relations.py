"""Relations: who a rank's partner is, in process-grid coordinates.

A relation is plain data, {"kind": ...}. Families (xor, dissemination, others) have several
stages; all others have one. ``partners`` gives the partners of all ranks at one count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from p3s.errors import P3SError
from p3s.model.grids import rank_of
from p3s.model.guards import GridAt

Relation = dict[str, Any]
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


def _log2_exact(p: int) -> int | None:
    return p.bit_length() - 1 if p > 0 and p & (p - 1) == 0 else None


def _axis(rel: Relation, g: GridAt) -> tuple[np.ndarray, int]:
    """Return coordinate and extent along the relation's axis (None: all ranks)."""
    if rel["axis"] is None:
        return np.arange(g.n), g.n
    return g.coords[rel["axis"]], g.dims[rel["axis"]]


def _replace(rel: Relation, g: GridAt, c: np.ndarray, inside: np.ndarray) -> np.ndarray:
    out = np.full(g.n, -1, dtype=np.int64)
    if rel["axis"] is None:
        out[inside] = c[inside]
        return out
    coords = g.coords.copy()
    coords[rel["axis"]] = np.where(inside, c, 0)
    full = rank_of(g.dims, coords)
    out[inside] = full[inside]
    return out


_TABLES: dict[tuple[object, ...], np.ndarray] = {}


def partners(rel: Relation, g: GridAt) -> np.ndarray:
    """Return partners, shape (stages, n): world ranks, -1 where there is none (read-only)."""
    key = (g.n, g.dims, *((k, tuple(v) if isinstance(v, list) else v)
                          for k, v in sorted(rel.items())))
    table = _TABLES.get(key)
    if table is None:
        table = _partners(rel, g)
        table.setflags(write=False)
        if g.n <= 1024:  # the search asks for the same small tables again and again
            if len(_TABLES) > 4096:
                _TABLES.clear()
            _TABLES[key] = table
    return table


def _partners(rel: Relation, g: GridAt) -> np.ndarray:
    kind = rel["kind"]
    ranks = np.arange(g.n)
    if kind == "self":
        return ranks[None, :].copy()
    if kind == "root":
        r = rel["rank"] if rel["rank"] >= 0 else g.n + rel["rank"]
        return np.full((1, g.n), r if 0 <= r < g.n else -1, dtype=np.int64)
    if kind == "shift":
        coords = g.coords + np.array(rel["vec"], dtype=np.int64)[:, None]
        inside = np.ones(g.n, dtype=bool)
        for d, p in enumerate(g.dims):
            if rel["wrap"][d]:
                coords[d] %= p
            else:
                inside &= (coords[d] >= 0) & (coords[d] < p)
        out = np.full(g.n, -1, dtype=np.int64)
        out[inside] = rank_of(g.dims, coords[:, inside])
        return out[None, :]
    if kind == "xor":
        c, p = _axis(rel, g)
        k = _log2_exact(p)
        if k is None:
            return np.empty((0, g.n), dtype=np.int64)
        stages = range(k - 1, -1, -1) if rel.get("descending") else range(k)
        every = np.ones(g.n, dtype=bool)
        return np.array([_replace(rel, g, c ^ (1 << i), every) for i in stages],
                        dtype=np.int64).reshape(k, g.n)
    if kind == "stride":  # partner at distance 2^i along the axis
        c, p = _axis(rel, g)
        table = []
        for i in range((p - 1).bit_length()):
            target = c + rel["sign"] * (1 << i)
            inside = (target >= 0) & (target < p)
            if rel["wrap"]:
                target, inside = target % p, np.ones(g.n, dtype=bool)
            table.append(_replace(rel, g, target, inside))
        if rel.get("descending"):
            table.reverse()
        return np.array(table, dtype=np.int64).reshape(len(table), g.n)
    if kind == "tree":  # binomial tree with root 0: down to r + 2^s, up to r - 2^s
        stairs = []
        for s in range((g.n - 1).bit_length()):
            step = 1 << s
            if rel["sign"] > 0:
                there = (ranks % (2 * step) == 0) & (ranks + step < g.n)
            else:
                there = ranks % (2 * step) == step
            stairs.append(np.where(there, ranks + rel["sign"] * step, -1))
        if rel.get("descending"):
            stairs.reverse()
        return np.array(stairs, dtype=np.int64).reshape(len(stairs), g.n)
    if kind == "mirror":
        return (g.n - 1 - ranks)[None, :]
    if kind == "opposite":
        return ((ranks + g.n // 2) % g.n)[None, :]
    if kind == "others":
        c, p = _axis(rel, g)
        every = np.ones(g.n, dtype=bool)
        return np.array([_replace(rel, g, (c + s) % p, every) for s in range(1, p)],
                        dtype=np.int64).reshape(p - 1, g.n)
    if kind == "transpose":
        rows, cols = g.dims
        i, j = g.coords
        if rows == cols:
            return (j * cols + i)[None, :]
        if cols == 2 * rows:
            return (j // 2 * cols + 2 * i + j % 2)[None, :]
        if rows == 2 * cols:
            return ((2 * j + i % 2) * cols + i // 2)[None, :]
        return np.full((1, g.n), -1, dtype=np.int64)
    raise P3SError(f"model: unknown relation {kind!r}; the file was made by another version")


def stages_depend_on_n(rel: Relation) -> bool:
    """Return whether the relation is a family whose number of partners is a law."""
    return rel["kind"] in ("xor", "stride", "others", "tree")


def text(rel: Relation) -> str:
    """Return a relation for people."""
    kind = rel["kind"]
    where = "" if rel.get("axis", 0) is None else f" in dimension {rel.get('axis')}"
    if kind == "shift":
        return "shift (" + ", ".join(
            f"{v:+d}{' periodic' if w and v else ''}" if v else "0"
            for v, w in zip(rel["vec"], rel["wrap"], strict=True)) + ")"
    if kind == "root":
        return f"rank {rel['rank'] if rel['rank'] >= 0 else 'n-1'}"
    if kind == "xor":
        return f"c xor 2**s, s < log2(p){where}"
    if kind == "stride":
        return f"c {'+' if rel['sign'] > 0 else '-'} 2**s{' mod p' if rel['wrap'] else ''}{where}"
    if kind == "tree":
        return "binomial tree, " + ("r + 2**s" if rel["sign"] > 0 else "r - 2**s")
    return {"mirror": "n - 1 - r", "opposite": "(r + n//2) mod n",
            "self": "self", "others": f"all others{where}",
            "transpose": "transpose (i,j) -> (j,i)"}[kind]


# -- finding the relations of a node ---------------------------------------------------------


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
    ndims = len(pairs[0].grid.dims)
    options: list[Explanation] = []

    def residual(rels: Sequence[Relation]) -> int:
        left = 0
        hit = [np.zeros(len(p.rank), dtype=bool) for p in pairs]
        for rel in rels:
            for h, c in zip(hit, _covered(rel, pairs), strict=True):
                h |= c
        for h in hit:
            left += int((~h).sum())
        return left

    fixed: list[Relation] = [{"kind": "self"}, {"kind": "root", "rank": 0},
                             {"kind": "root", "rank": -1}]
    for rel in fixed:
        if residual([rel]) == 0:
            options.append(Explanation([rel], 1.0, 0))
    consts = {int(q) for p in pairs for q in p.peer}
    if len(consts) == 1:
        options.append(Explanation([{"kind": "root", "rank": consts.pop()}], 1.0, 0))
    shifts, ambiguous = _shift_vectors(pairs, periods)
    reach = max((abs(x) for r in shifts for x in r["vec"]), default=0)
    if shifts and len(shifts) <= MAX_SHIFTS:
        left = residual(shifts)
        rels = list(shifts)
        if left and residual([*shifts, {"kind": "self"}]) == 0:
            rels.append({"kind": "self"})
            left = 0
        wide = 1.0 if reach > MAX_REACH else 0.0
        odd = sum(_partial(rel, pairs) for rel in shifts)
        options.append(Explanation(rels, len(rels) + 0.2 * odd + wide * len(rels), left,
                                   sorted(ambiguous)))
    singles: list[tuple[float, Relation, int]] = []

    def beaten(cost: float) -> bool:
        return any(not e.unexplained and e.cost <= cost for e in options)

    for cost, rel in _family_candidates(ndims):
        if beaten(cost):
            continue
        complete = rel["kind"] in ("transpose", "mirror", "opposite") \
            or _family_complete(rel, pairs)
        left = residual([rel])
        if left == 0 and complete:
            options.append(Explanation([rel], cost, 0))
        elif left and residual([rel, {"kind": "self"}]) == 0 and complete:
            options.append(Explanation([rel, {"kind": "self"}], cost + 1, 0))
        elif rel["kind"] == "others" and left == 0 and (
                loose or _each_all_or_none(rel, pairs)):
            options.append(Explanation([rel], cost, 0))
        if left and complete:
            singles.append((cost, rel, left))
    # one family and a few shifts, roots or a transpose in one node (a shared wrapper line)
    for cost, rel, _ in singles:
        if beaten(cost + 1.2):
            continue
        rest = []
        for p, c in zip(pairs, _covered(rel, pairs), strict=True):
            rest.append(Pairs(p.grid, p.rank[~c], p.peer[~c]))
        rest = [p for p in rest if len(p.rank)]
        more, amb = _shift_vectors(rest, periods)
        for extra in ([{"kind": "transpose"}] if ndims == 2 else [], more,
                      [{"kind": "root", "rank": 0}]):
            if extra and len(extra) <= 8 and residual([rel, *extra]) == 0:
                options.append(Explanation([rel, *extra], cost + 1.2 * len(extra), 0,
                                           sorted(amb) if extra is more else []))
    if not options:
        return Explanation([], 12.0, sum(len(p.rank) for p in pairs))
    best = min(options, key=lambda e: (e.unexplained > 0, e.cost))
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
