"""Nodes of a program (site, operation, tag) over all process counts, and their partners."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from p3s.characterize.tables import Place, PointTable
from p3s.model.communicators import Communicators, Used
from p3s.model.explain import Explanation, Pairs, explain, order_family
from p3s.model.grids import GridFamily, candidate_families
from p3s.model.guards import GridAt
from p3s.model.places import PlaceLaw
from p3s.model.relations import FAMILIES, partners
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
    known: dict[bytes, Explanation] = {}

    def explained(pairs: Sequence[Pairs]) -> Explanation:
        key = b"|".join(np.array([p.grid.n]).tobytes() + p.rank.tobytes() + p.peer.tobytes()
                        for p in pairs)
        if key not in known:
            known[key] = explain(pairs, choice.periods)
        return known[key]

    for key in (k for k, v in splits.items() if v is None):
        found = {split: [explained(pairs) for pairs in _pairs_by_tag(tables, key, split, choice)]
                 for split in (False, True)}
        cost = {split: sum(e.cost for e in each) for split, each in found.items()}
        out[key] = any(e.ambiguous for e in found[False]) or cost[True] <= cost[False]
    return out


def _pairs_by_tag(tables: Sequence[PointTable], key: tuple[str, str], split: bool,
                  choice: GridChoice) -> list[list[Pairs]]:
    """Return the pairs of one (site, operation) at all counts, of each tag if ``split``."""
    out: dict[int, list[Pairs]] = {}
    for t in tables:
        tag = {i: g.tag if split else 0 for i, g in enumerate(t.groups)
               if (g.site, g.op) == key}
        rows = np.flatnonzero(np.isin(t.group, list(tag)))
        peer = np.array([t.groups[g].peer for g in t.group[rows].tolist()], dtype=np.int64)
        tags = np.array([tag[g] for g in t.group[rows].tolist()], dtype=np.int64)
        for each in dict.fromkeys(tags.tolist()):
            mine = (tags == each) & (peer >= 0)
            both = np.unique(np.stack([t.rank[rows][mine], peer[mine]], axis=1), axis=0)
            out.setdefault(each, []).append(Pairs(
                choice.grids[t.np], np.ascontiguousarray(both[:, 0]),
                np.ascontiguousarray(both[:, 1])))
    return list(out.values())


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


@dataclass(frozen=True)
class Cart:
    """The Cartesian communicator over all ranks: per count extents and members; periods."""

    dims: dict[int, tuple[int, ...]]
    members: dict[int, tuple[int, ...]]
    periods: tuple[bool, ...] | None


def cart_of(tables: Sequence[PointTable]) -> Cart:
    """Return the largest Cartesian communicator over all ranks (empty where there is none).

    Where a program makes several, the one of most dimensions that exists at every count counts.
    """
    per: dict[int, dict[int, Place]] = {}
    for t in tables:
        for p in t.places:
            if p.dims and len(p.members) == t.np:
                per.setdefault(len(p.dims), {}).setdefault(t.np, p)
    for ndims in sorted(per, reverse=True):
        got = per[ndims]
        if len(got) == len(tables):
            periods = {p.periods or (False,) * ndims for p in got.values()}
            return Cart({n: p.dims for n, p in got.items() if p.dims},
                        {n: p.members for n, p in got.items()},
                        periods.pop() if len(periods) == 1 else None)
    return Cart({}, {}, None)


def cart_grids(tables: Sequence[PointTable]
               ) -> tuple[dict[int, tuple[int, ...]], tuple[bool, ...] | None]:
    """Return the extents of the largest Cartesian communicator over all ranks, and its periods."""
    cart = cart_of(tables)
    return cart.dims, cart.periods


def grid_at(family: GridFamily, n: int) -> GridAt | None:
    """Return the family's grid at ``n``, or None where it does not admit ``n``."""
    return family.at(n)


@dataclass
class GridChoice:
    """The grid family of the program, with what each p2p node's partners are on it.

    rivals: families with the same grids at all counts traced.
    """

    family: GridFamily
    grids: dict[int, GridAt]
    explained: dict[int, Explanation]
    cost: float
    others: list[tuple[str, float]]
    periods: tuple[bool, ...] | None
    communicators: Communicators
    rivals: list[GridFamily] = field(default_factory=list)


#: What a dimension costs: without it, many short dimensions would explain anything.
_DIMENSION = 0.25


def choose_grid(nodes: Sequence[Node], tables: Sequence[PointTable]) -> GridChoice:
    """Choose one grid for the whole program: fewest relations over all nodes."""
    counts = [t.np for t in tables]
    varying = {v for t in tables for v in t.moved}
    cart = cart_of(tables)
    families = candidate_families(counts, cart.dims, cart.members) or candidate_families(counts)
    if cart.dims:  # the program asked MPI for extents: prefer MPI's own rule to look-alikes
        families.sort(key=lambda f: f.kind not in ("balanced", "greedy"))
    todo = _distinct(nodes, counts, varying)
    best: GridChoice | None = None
    tried: list[tuple[str, float]] = []
    seen: dict[tuple[Any, ...], tuple[GridFamily, float]] = {}
    for fam in families:
        grids = {n: g for n in counts if (g := fam.at(n)) is not None}
        layout = tuple(g.key for g in grids.values())
        if layout in seen:  # tells nothing apart at the counts traced: the first, simplest stays
            tried.append((fam.text(), seen[layout][1]))
            if best is not None and best.family == seen[layout][0]:
                best.rivals.append(fam)
            continue
        same = cart.dims and fam.ndims == len(next(iter(cart.dims.values())))
        known = cart.periods if same else None
        comms = Communicators(tables, grids)
        cost = _DIMENSION * (fam.ndims - 1) + sum(comms.cover(_used(n)).cost for n in nodes
                                                  if n.kind in (COLLECTIVE, COMM))
        found: list[Explanation] = []
        for pairs, loose, members in todo:
            if best is not None and cost > best.cost + 1e-9 and len(families) > 1:
                break  # dearer already: what is left cannot make it cheaper
            mine = [Pairs(grids[n], r, q) for n, r, q in pairs]
            found.append(explain(mine, known, loose, _axes(comms, members)))
            cost += found[-1].cost * len(members)
        tried.append((fam.text(), cost))
        seen[layout] = (fam, cost)
        if len(found) == len(todo) and (best is None or cost < best.cost - 1e-9):
            explained = {i: e for e, (_, _, m) in zip(found, todo, strict=True)
                         for i in m}
            best = GridChoice(fam, grids, {i: explained[i] for i in sorted(explained)}, cost, [],
                              known, comms)
    assert best is not None  # the 1-D line admits every count
    best.explained = {i: Explanation(list(e.relations), e.cost, e.unexplained,
                                     list(e.ambiguous), e.rivals)
                      for i, e in best.explained.items()}
    _opposite_siblings(nodes, best)
    best.others = tried
    return best


Todo = tuple[list[tuple[int, np.ndarray, np.ndarray]], bool, dict[int, Used]]


def _distinct(nodes: Sequence[Node], counts: Sequence[int], varying: set[str]) -> list[Todo]:
    """Return the distinct sets of pairs, with the nodes that have them."""
    out: dict[bytes, Todo] = {}
    for i, node in enumerate(nodes):
        if node.kind not in (SEND, RECV):
            continue
        pairs = [(n, *_unique_pairs(node.rows[n])) for n in counts if n in node.rows]
        loose = f"{node.site}:{node.op}" in varying
        used = _used(node)
        key = bytes([loose]) + repr(sorted(used)).encode() + b"|".join(
            np.array([n]).tobytes() + r.tobytes() + q.tobytes() for n, r, q in pairs)
        out.setdefault(key, (pairs, loose, {}))[2][i] = used
    return list(out.values())


def _used(node: Node) -> Used:
    """Return the communicators that a node uses."""
    return frozenset((n, int(p)) for n, ids in node.place_id.items() for p in np.unique(ids))


def _axes(comms: Communicators, members: Mapping[int, Used]) -> list[PlaceLaw]:
    """Return the laws of sub-communicators on which a node's messages travel."""
    laws = comms.cover(next(iter(members.values()))).laws
    return [law for law in laws if law["kind"] not in ("world", "self", "odd")
            and not (law["kind"] == "axes" and "grid" not in law and len(law["axes"]) == 1)]


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


def _unique_pairs(rows: Rows) -> tuple[np.ndarray, np.ndarray]:
    known = rows.peer >= 0
    both = np.unique(np.stack([rows.rank[known], rows.peer[known]], axis=1), axis=0)
    return np.ascontiguousarray(both[:, 0]), np.ascontiguousarray(both[:, 1])


def _pairs(rows: Rows, grid: GridAt) -> Pairs:
    return Pairs(grid, *_unique_pairs(rows))


def items_of(node: Node, index: int, choice: GridChoice, tables: Sequence[PointTable]
             ) -> list[Item]:
    """Return the items of a node: one per relation, or per kind of communicator."""
    counts = [t.np for t in tables]
    if node.kind in (SEND, RECV):
        return _p2p_items(node, choice.explained[index], choice, counts)
    return _place_items(node, choice, tables)


def empty_rows() -> Rows:
    z = np.zeros(0, dtype=np.int64)
    return Rows(z, z, z, z, z, z, z, z, z, z)


def _p2p_items(node: Node, explained: Explanation, choice: GridChoice,
               counts: Sequence[int]) -> list[Item]:
    grids = choice.grids
    relations = [_ordered_relation(r, node, grids) for r in explained.relations]
    tabs = {n: [partners(r, grids[n]) for r in relations] for n in counts}
    places = _law_of_rows(node, choice)
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
                rows[n], stage[n] = empty_rows(), np.zeros(0, dtype=np.int64)
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
        rest = {n: node.rows[n].take(left[n]) if n in left else empty_rows() for n in counts}
        item = Item(rest, {n: np.zeros(len(rest[n].rank), dtype=np.int64) for n in counts}, None,
                    {n: np.ones((1, n), dtype=bool) for n in counts}, grids, None, places)
        item.notes.append("no rule found for the partners")
        items.append(item)
    return items


def _ordered_relation(rel: dict[str, Any], node: Node, grids: Mapping[int, GridAt]
                      ) -> dict[str, Any]:
    if rel["kind"] not in FAMILIES:
        return rel
    return order_family(rel, [(grids[n], rows.rank, rows.peer, rows.first)
                              for n, rows in node.rows.items()])


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


def _law_of_rows(node: Node, choice: GridChoice) -> PlaceLaw:
    """Return the law of the communicator of a node's messages, that of the largest count."""
    cover = choice.communicators.cover(_used(node))
    n = max(node.place_id)
    return cover.laws[cover.law_of[(n, int(node.place_id[n][0]))]]


def _place_items(node: Node, choice: GridChoice, tables: Sequence[PointTable]) -> list[Item]:
    """Return an item for each law that the node's communicators need."""
    grids = choice.grids
    if node.kind not in (COLLECTIVE, COMM):
        laws, law_of = [{"kind": "world", "ordinal": 0}], None
    else:
        cover = choice.communicators.cover(_used(node))
        laws, law_of = cover.laws, cover.law_of
    items = []
    for k, law in enumerate(laws):
        rows = {}
        for t in tables:
            n = t.np
            if n not in node.rows:
                rows[n] = empty_rows()
            elif law_of is None:
                rows[n] = node.rows[n]
            else:
                mine = [p for (m, p), i in law_of.items() if m == n and i == k]
                rows[n] = node.rows[n].take(np.isin(node.place_id[n], mine))
        items.append(Item(rows, {n: np.zeros(len(r.rank), dtype=np.int64)
                                 for n, r in rows.items()}, None,
                          {t.np: np.ones((1, t.np), dtype=bool) for t in tables}, grids, None,
                          law))
    return items
