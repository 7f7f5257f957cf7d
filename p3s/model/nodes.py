"""Nodes of a program (site, operation, tag) over all process counts, and their partners."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from p3s.characterize.tables import PointTable
from p3s.model.explain import Explanation, Pairs, explain, order_family
from p3s.model.grids import GridFamily, candidate_families, coords_of
from p3s.model.guards import GridAt
from p3s.model.places import PlaceLaw, place_law
from p3s.model.relations import partners
from p3s.model.slots import Item, Rows
from p3s.model.turns import needless
from p3s.trace.ops import COLLECTIVE, COMM, RECV, SEND, kind_of

MAX_TAGS = 16


@dataclass
class Node:
    """A (site, operation, tag) with its rows at every count; tag None: tags do not matter."""

    site: str
    op: str
    tag: int | None
    rows: dict[int, Rows] = field(default_factory=dict)
    place_id: dict[int, np.ndarray] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """The kind of the operation."""
        return kind_of(self.op)


def node_key(site: str, op: str, tag: int, split: Mapping[tuple[str, str], bool]
             ) -> tuple[str, str, int | None]:
    """Return the node of a group; ``split`` tells at which (site, op) tags make nodes."""
    return (site, op, tag if split.get((site, op)) else None)


def tag_splits(tables: Sequence[PointTable]) -> dict[tuple[str, str], bool | None]:
    """Return for each (site, op) whether its tags tell different communications apart.

    They do (True) if they are few, the same at all counts, and each goes with fewer partners
    per rank than the site has in all. Tags that become more with the count may number the
    stages of one exchange or the dimensions that have neighbours: None, to be decided by what
    explains the partners with fewer relations (:func:`decide_splits`).
    """
    seen: dict[tuple[str, str], dict[int, dict[int, set[tuple[int, int]]]]] = {}
    for t in tables:
        used = np.unique(np.stack([t.rank, t.group], axis=1), axis=0)
        for rank, gi in used:
            g = t.groups[gi]
            if g.kind in (SEND, RECV):
                per = seen.setdefault((g.site, g.op), {}).setdefault(t.np, {})
                per.setdefault(g.tag, set()).add((int(rank), g.peer))
    out: dict[tuple[str, str], bool | None] = {}
    for key, by_n in seen.items():
        tags = set().union(*(set(v) for v in by_n.values()))
        last = by_n[max(by_n)]
        everything = len(set().union(*last.values()))
        narrower = all(len(p) < everything for p in last.values())
        if not 1 < len(tags) <= MAX_TAGS or set(last) != tags \
                or not (narrower or _same_pairs_twice(last)):
            out[key] = False
        else:
            out[key] = True if all(set(v) == tags for v in by_n.values()) else None
    return out


def decide_splits(splits: Mapping[tuple[str, str], bool | None], tables: Sequence[PointTable],
                  choice: GridChoice) -> dict[tuple[str, str], bool]:
    """Decide the open splits on the grid of the program: the cheaper explanation wins.

    At equal cost, and where directions stay open without the tags, the tags are used.
    """
    out = {k: bool(v) for k, v in splits.items()}
    counts = [t.np for t in tables]
    for key in (k for k, v in splits.items() if v is None):
        def cost(split: bool, key: tuple[str, str] = key) -> tuple[float, bool]:
            mine = collect_nodes(tables, {**out, key: split})
            found = [explain([_pairs(n.rows[c], choice.grids[c]) for c in counts if c in n.rows],
                             choice.periods) for n in mine if (n.site, n.op) == key]
            return sum(e.cost for e in found), any(e.ambiguous for e in found)
        whole, ambiguous = cost(False)
        out[key] = ambiguous or cost(True)[0] <= whole
    return out


def _same_pairs_twice(by_tag: Mapping[int, set[tuple[int, int]]]) -> bool:
    """Two tags for the same partner: with extents of 2, both directions of one dimension."""
    return len(by_tag) == 2


def collect_nodes(tables: Sequence[PointTable], split: Mapping[tuple[str, str], bool]
                  ) -> list[Node]:
    """Return all nodes with their rows, in order of first appearance."""
    nodes: dict[tuple[str, str, int | None], Node] = {}
    for t in tables:
        keys = [node_key(g.site, g.op, g.tag, split) for g in t.groups]
        number = {k: i for i, k in enumerate(dict.fromkeys(keys))}
        of_group = np.array([number[k] for k in keys], dtype=np.int64)
        peer = np.array([g.peer for g in t.groups], dtype=np.int64)
        place = np.array([g.comm for g in t.groups], dtype=np.int64)
        root = np.array([_root_index(t, g.comm, g.root) for g in t.groups], dtype=np.int64)
        of_row = of_group[t.group]
        order = np.argsort(of_row, kind="stable")
        bounds = np.searchsorted(of_row[order], np.arange(len(number) + 1))
        for key, i in number.items():
            pick = order[bounds[i]:bounds[i + 1]]
            gr = t.group[pick]
            node = nodes.setdefault(key, Node(*key))
            node.rows[t.np] = Rows(t.rank[pick], gr, peer[gr], t.nbytes[pick],
                                   t.elem_bytes[pick], t.count[pick], t.work[pick],
                                   t.first[pick], root[gr],
                                   np.zeros(len(pick), dtype=np.int64) if t.turn is None
                                   else t.turn[pick])
            node.place_id[t.np] = place[gr]
    for node in nodes.values():
        if all(needless(r.rank, r.group, r.nbytes) for r in node.rows.values()):
            for r in node.rows.values():
                r.turn[:] = 0
    return list(nodes.values())


def _root_index(t: PointTable, comm: int, root: int) -> int:
    if root < 0 or not 0 <= comm < len(t.places):
        return -1
    members = t.places[comm].members
    return members.index(root) if root in members else -1


def cart_grids(tables: Sequence[PointTable]
               ) -> tuple[dict[int, tuple[int, ...]], tuple[bool, ...] | None]:
    """Return the extents of the largest Cartesian communicator over all ranks, and its periods.

    Where a program makes several, the one of most dimensions that exists at every count counts.
    """
    per: dict[int, dict[int, tuple[tuple[int, ...], tuple[bool, ...]]]] = {}
    for t in tables:
        for p in t.places:
            if p.dims and p.members == tuple(range(t.np)):
                per.setdefault(len(p.dims), {}).setdefault(
                    t.np, (p.dims, p.periods or (False,) * len(p.dims)))
    for ndims in sorted(per, reverse=True):
        got = per[ndims]
        if len(got) == len(tables):
            periods = {v[1] for v in got.values()}
            return {n: v[0] for n, v in got.items()}, periods.pop() if len(periods) == 1 else None
    return {}, None


def grid_at(family: GridFamily, n: int) -> GridAt | None:
    """Return the family's grid at ``n``, or None where it does not admit ``n``."""
    dims = family.dims(n)
    return None if dims is None else GridAt(n, dims, coords_of(dims, n))


@dataclass
class GridChoice:
    """The grid family of the program, with what each p2p node's partners are on it."""

    family: GridFamily
    grids: dict[int, GridAt]
    explained: dict[int, Explanation]
    cost: float
    others: list[tuple[str, float]]
    periods: tuple[bool, ...] | None = None


def choose_grid(nodes: Sequence[Node], tables: Sequence[PointTable]) -> GridChoice:
    """Choose one grid for the whole program: fewest relations over all nodes."""
    counts = [t.np for t in tables]
    varying = {v for t in tables for v in t.varying}
    cart, periods = cart_grids(tables)
    families = candidate_families(counts, cart) or candidate_families(counts)
    if cart:  # the program asked MPI for extents: prefer MPI's own rule to look-alikes
        families.sort(key=lambda f: f.kind not in ("balanced", "greedy"))
    best: GridChoice | None = None
    tried: list[tuple[str, float]] = []
    for fam in families:
        grids = {n: g for n in counts if (g := grid_at(fam, n)) is not None}
        cache: dict[bytes, Explanation] = {}
        same = cart and len(grids[counts[0]].dims) == len(next(iter(cart.values())))
        known = periods if same else None
        cost, explained = 0.0, {}
        for i, node in enumerate(nodes):
            if node.kind not in (SEND, RECV):
                continue
            pairs = [_pairs(node.rows[n], grids[n]) for n in counts if n in node.rows]
            loose = f"{node.site}:{node.op}" in varying
            key = bytes([loose]) + b"|".join(
                np.array([p.grid.n]).tobytes() + p.rank.tobytes() + p.peer.tobytes()
                for p in pairs)
            if key not in cache:
                cache[key] = explain(pairs, known, loose)
            explained[i] = cache[key]
            cost += cache[key].cost
        cost += _place_cost(nodes, tables, grids)
        tried.append((fam.text(), cost))
        if best is None or cost < best.cost - 1e-9:
            best = GridChoice(fam, grids, explained, cost, [], known)
    assert best is not None  # the 1-D line admits every count
    _opposite_siblings(nodes, best)
    best.others = tried
    return best


def _opposite_siblings(nodes: Sequence[Node], choice: GridChoice) -> None:
    """Where the direction is open, give sibling nodes opposite signs.

    Two sends of one operation along the same dimension go to both sides; the receive with the
    tag of a send looks the other way.
    """
    def open_vector(i: int) -> tuple[int, ...] | None:
        e = choice.explained[i]
        if e.ambiguous and len(e.relations) == 1 and e.relations[0]["kind"] == "shift":
            return tuple(e.relations[0]["vec"])
        return None

    sign_of_tag: dict[tuple[tuple[int, ...], int], int] = {}
    for kind in (SEND, RECV):
        turn: dict[tuple[tuple[int, ...], str], int] = {}
        for i in sorted(choice.explained, key=lambda i: (nodes[i].tag is None, nodes[i].tag or 0)):
            vec = open_vector(i)
            node = nodes[i]
            if node.kind != kind or vec is None:
                continue
            sign = turn.get((vec, node.op), -1 if kind == SEND else 1)
            turn[(vec, node.op)] = -sign
            if node.tag is not None:
                if kind == RECV and (vec, node.tag) in sign_of_tag:
                    sign = -sign_of_tag[(vec, node.tag)]
                sign_of_tag[(vec, node.tag)] = sign
            if sign < 0:
                e = choice.explained[i]
                flipped = {**e.relations[0], "vec": [-v for v in vec]}
                choice.explained[i] = Explanation([flipped], e.cost, e.unexplained, e.ambiguous)


def _pairs(rows: Rows, grid: GridAt) -> Pairs:
    known = rows.peer >= 0
    both = np.unique(np.stack([rows.rank[known], rows.peer[known]], axis=1), axis=0)
    return Pairs(grid, both[:, 0], both[:, 1])


def _place_cost(nodes: Sequence[Node], tables: Sequence[PointTable],
                grids: Mapping[int, GridAt]) -> float:
    cost = 0.0
    for t in tables:
        used = {int(p) for n in nodes if n.kind in (COLLECTIVE, COMM) and t.np in n.place_id
                for p in np.unique(n.place_id[t.np])}
        for p in used:
            if 0 <= p < len(t.places) and t.places[p].members:
                law = place_law(t.places[p], t.places[p].members[0], grids[t.np])
                cost += {"odd": 2.0, "nodes": 1.0, "parts": 0.6, "modulo": 0.6}.get(
                    law["kind"], 0.0) / len(tables)
    return cost


def items_of(node: Node, index: int, choice: GridChoice, tables: Sequence[PointTable]
             ) -> list[Item]:
    """Return the items of a node: one per relation, or per kind of communicator."""
    counts = [t.np for t in tables]
    if node.kind in (SEND, RECV):
        return _p2p_items(node, choice.explained[index], choice.grids, counts, tables)
    return _place_items(node, choice.grids, tables)


def _empty() -> Rows:
    z = np.zeros(0, dtype=np.int64)
    return Rows(z, z, z, z, z, z, z, z, z, z)


def _p2p_items(node: Node, explained: Explanation, grids: Mapping[int, GridAt],
               counts: Sequence[int], tables: Sequence[PointTable]) -> list[Item]:
    relations = [_ordered_relation(r, node, grids) for r in explained.relations]
    tabs = {n: [partners(r, grids[n]) for r in relations] for n in counts}
    places = _law_of_rows(node, tables, grids)
    items = []
    left = {n: np.ones(len(node.rows[n].rank), dtype=bool) for n in node.rows}
    for k, rel in enumerate(relations):
        rows: dict[int, Rows] = {}
        stage: dict[int, np.ndarray] = {}
        care: dict[int, np.ndarray] = {}
        ways: dict[int, np.ndarray] = {}
        for n in counts:
            table = tabs[n][k]
            ways[n] = _ways(tabs[n], k)
            care[n] = ways[n] <= 1
            if n not in node.rows or not len(table):
                rows[n], stage[n] = _empty(), np.zeros(0, dtype=np.int64)
                continue
            nr = node.rows[n]
            hit = (table[:, nr.rank] == nr.peer[None, :]) & (nr.peer >= 0)[None, :]
            mine = hit.any(axis=0)
            left[n] &= ~mine
            rows[n] = nr.take(mine)
            stage[n] = np.argmax(hit, axis=0)[mine]
        item = Item(rows, stage, {n: tabs[n][k] for n in counts}, care, grids, rel, places)
        if len(relations) > 1:
            item.ways = ways
            item.sure = {n: _one_size(rows[n], stage[n], care[n].shape) for n in counts}
        if explained.ambiguous and rel["kind"] == "shift":
            axes = [d for d in explained.ambiguous if rel["vec"][d]]
            if axes:
                item.notes.append("direction open in dimension "
                                  + ", ".join(str(d) for d in axes))
        items.append(item)
    if any(m.any() for m in left.values()):
        rest = {n: node.rows[n].take(left[n]) if n in left else _empty() for n in counts}
        item = Item(rest, {n: np.zeros(len(rest[n].rank), dtype=np.int64) for n in counts}, None,
                    {n: np.ones((1, n), dtype=bool) for n in counts}, grids, None, places)
        item.notes.append("no rule found for the partners")
        items.append(item)
    return items


def _ordered_relation(rel: dict[str, Any], node: Node, grids: Mapping[int, GridAt]
                      ) -> dict[str, Any]:
    if rel["kind"] not in ("xor", "stride", "tree"):
        return rel
    firsts = []
    for n, rows in node.rows.items():
        table = partners(rel, grids[n])
        hit = table[:, rows.rank] == rows.peer[None, :]
        means = [float(rows.first[h].mean()) for h in hit if h.any()]
        firsts.append(np.array(means))
    return order_family(rel, firsts)


def _ways(tables: list[np.ndarray], k: int) -> np.ndarray:
    """Return per cell of relation k how many relations and stages lead to its partner."""
    mine = tables[k]
    out = np.zeros(mine.shape, dtype=np.int64)
    for other in tables:
        for row in other:
            out += (mine == row[None, :]) & (mine >= 0)
    return out


def _one_size(rows: Rows, stage: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return cells (stage, rank) all of whose messages have one size."""
    low = np.full(shape, np.iinfo(np.int64).max, dtype=np.int64)
    high = np.full(shape, -1, dtype=np.int64)
    np.minimum.at(low, (stage, rows.rank), rows.nbytes)
    np.maximum.at(high, (stage, rows.rank), rows.nbytes)
    return low == high


def _law_of_rows(node: Node, tables: Sequence[PointTable], grids: Mapping[int, GridAt]
                 ) -> PlaceLaw:
    for t in reversed(tables):
        if t.np in node.place_id:
            return law_of(t, int(node.place_id[t.np][0]), grids[t.np])
    return {"kind": "world", "ordinal": 0}


def law_of(t: PointTable, place: int, grid: GridAt) -> PlaceLaw:
    """Return the communicator law of one place of a table (world where it is not known)."""
    if not 0 <= place < len(t.places) or not t.places[place].members:
        return {"kind": "world", "ordinal": 0}
    p = t.places[place]
    return place_law(p, p.members[0], grid)


def _place_items(node: Node, grids: Mapping[int, GridAt], tables: Sequence[PointTable]
                 ) -> list[Item]:
    laws: dict[str, PlaceLaw] = {}
    pick: dict[str, dict[int, np.ndarray]] = {}
    per_rank = node.kind not in (COLLECTIVE, COMM)
    for t in tables:
        if t.np not in node.rows:
            continue
        labels = np.empty(len(node.rows[t.np].rank), dtype=object)
        for place in np.unique(node.place_id[t.np]):
            law = {"kind": "world", "ordinal": 0} if per_rank else law_of(t, int(place),
                                                                          grids[t.np])
            name = repr(sorted(law.items()))
            laws.setdefault(name, law)
            labels[node.place_id[t.np] == place] = name
        for name in dict.fromkeys(labels):
            pick.setdefault(name, {})[t.np] = labels == name
    # A law seen at one count only (world == row at p = 1) is merged into one that fits too.
    items = []
    for name, masks in pick.items():
        rows = {t.np: node.rows[t.np].take(masks[t.np]) if t.np in masks else _empty()
                for t in tables}
        items.append(Item(rows, {n: np.zeros(len(r.rank), dtype=np.int64)
                                 for n, r in rows.items()}, None,
                          {t.np: np.ones((1, t.np), dtype=bool) for t in tables}, grids, None,
                          laws[name]))
    return _merge_degenerate(items, tables, grids)


def _merge_degenerate(items: list[Item], tables: Sequence[PointTable],
                      grids: Mapping[int, GridAt]) -> list[Item]:
    """Join items whose communicators coincide at small counts.

    With an extent of 1 a row is the rank alone, and with one row it is the whole world: rows of
    a law with fewer counts move to the law with more, where both give the same members.
    """
    from p3s.model.places import instances

    items.sort(key=lambda i: (-max((n for n, r in i.rows.items() if len(r.rank)), default=0),
                              -sum(len(r.rank) > 0 for r in i.rows.values())))
    kept: list[Item] = []
    for item in items:
        home: Item | None = None
        mine = [n for n, r in item.rows.items() if len(r.rank)]
        for other in kept:
            assert item.place is not None and other.place is not None
            if any(len(other.rows[n].rank) for n in mine) or item.place["kind"] == "odd":
                continue
            if all(set(instances(item.place, grids[n])[1])
                   == set(instances(other.place, grids[n])[1]) for n in mine):
                home = other
                break
        if home is None:
            kept.append(item)
            continue
        for n in mine:
            home.rows[n] = item.rows[n]
            home.stage[n] = item.stage[n]
    return kept
