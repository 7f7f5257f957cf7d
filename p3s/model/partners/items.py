"""Items of a node: what it does towards each of its partners, on each kind of communicator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from p3s.base.ops import RECV, SEND, is_on_comm
from p3s.model.grid.at import GridAt
from p3s.model.grid.choose import GridChoice
from p3s.model.grid.nodes import Node, find_communicators, pairs_on
from p3s.model.partners.communicator_laws import CommunicatorLaw, World
from p3s.model.partners.infer_partners import Explanation
from p3s.model.partners.relation import Relation, Shift
from p3s.model.partners.stencil import at_partners, known_cells, partners, ways_to
from p3s.model.reasons import Code, Reason
from p3s.model.sizes.observed import ObservedRows, Rows
from p3s.signature.tables import PointTable

#: Which rows of a node, and which cells, are of each of its relations: per relation and count, by
#: relations and traced pairs.
Alike = dict[object, "_Split"]


def items_of(
    node: Node, index: int, choice: GridChoice, tables: Sequence[PointTable], alike: Alike
) -> list[ObservedRows]:
    """Return the items of a node: one per relation, or per kind of communicator.

    alike: what nodes of the same choice with the same partners share.
    """
    counts = [t.np for t in tables]
    if node.kind in (SEND, RECV):
        return _p2p_items(node, choice.explained[index], choice, counts, alike)
    return _communicator_items(node, choice, tables)


def whole(
    rows: dict[int, Rows],
    grids: Mapping[int, GridAt],
    place: CommunicatorLaw | None,
    relation: Relation | None = None,
) -> ObservedRows:
    """Return rows as traced, of which no rule says who the partners are."""
    stage = {n: np.zeros(len(r.rank), dtype=np.int64) for n, r in rows.items()}
    care = {n: np.ones((1, n), dtype=bool) for n in rows}
    return ObservedRows(rows, stage, None, care, grids, relation, place)


@dataclass(frozen=True)
class _RelationCells:
    """What of a node is of one of its relations, per count: which rows (and the stage of each), and
    partners, care, taken and ways as of Observed."""

    rows: dict[int, np.ndarray] = field(default_factory=dict)
    stage: dict[int, np.ndarray] = field(default_factory=dict)
    peers: dict[int, np.ndarray] = field(default_factory=dict)
    care: dict[int, np.ndarray] = field(default_factory=dict)
    taken: dict[int, np.ndarray] = field(default_factory=dict)
    ways: dict[int, np.ndarray] = field(default_factory=dict)


@dataclass(frozen=True)
class _Split:
    """What of a node is of each of its relations, and which rows per count are of none."""

    own: list[_RelationCells]
    left: dict[int, np.ndarray]


def _split_of(
    relations: Sequence[Relation], node: Node, grids: Mapping[int, GridAt], counts: Sequence[int]
) -> _Split:
    seen = list(node.rows)
    known = known_cells(relations, [pairs_on(node.rows[n], grids[n]) for n in seen])
    out = _Split([_RelationCells() for _ in relations], {})
    for n in counts:
        tables = [partners(r, grids[n]) for r in relations]
        many = ways_to(tables, grids[n].n)
        rows = node.rows.get(n)
        if rows is not None:
            out.left[n] = np.ones(len(rows.rank), dtype=bool)
        for k, (own, table) in enumerate(zip(out.own, tables, strict=True)):
            own.peers[n], own.ways[n] = table, at_partners(many, table)
            own.care[n] = own.taken[n] = np.ones(table.shape, dtype=bool)
            if rows is None:
                continue
            own.care[n], own.taken[n] = known.alone[k][seen.index(n)], known.care[k][seen.index(n)]
            if not len(table):
                continue
            hit = (table[:, rows.rank] == rows.peer[None, :]) & (rows.peer >= 0)[None, :]
            mine = hit.any(axis=0)
            out.left[n] &= ~mine
            own.rows[n], own.stage[n] = mine, np.argmax(hit, axis=0)[mine]
    return out


def _p2p_items(
    node: Node, explained: Explanation, choice: GridChoice, counts: Sequence[int], alike: Alike
) -> list[ObservedRows]:
    grids = choice.grids
    relations: list[Relation] = [_in_order(r, node, grids) for r in explained.relations]
    places = _law_of_rows(node, choice)
    traced = (
        (n, r.rank.tobytes(), r.peer.tobytes(), r.count.tobytes()) for n, r in node.rows.items()
    )
    key = (*relations, *traced)
    if key not in alike:
        alike[key] = _split_of(relations, node, grids, counts)
    split = alike[key]
    nothing = np.zeros(0, dtype=np.int64)
    items = []
    for rel, own in zip(relations, split.own, strict=True):
        rows = {n: node.at(n, own.rows.get(n, nothing)) for n in counts}
        stage = {n: own.stage.get(n, nothing) for n in counts}
        item = ObservedRows(rows, stage, own.peers, own.care, grids, rel, places)
        if len(relations) > 1:
            item.ways, item.taken = own.ways, own.taken
            item.sure = {n: _one_size(rows[n], stage[n], own.care[n].shape) for n in counts}
        if explained.ambiguous and isinstance(rel, Shift):
            axes = [d for d in explained.ambiguous if rel.vec[d]]
            if axes:
                item.notes.append(Reason(Code.DIRECTION, dims=tuple(axes)))
        items.append(item)
    if any(left.any() for left in split.left.values()):
        rest = {n: node.at(n, split.left.get(n, nothing)) for n in counts}
        item = whole(rest, grids, places)
        item.notes.append(Reason(Code.NO_PARTNERS))
        items.append(item)
    return items


def _in_order(rel: Relation, node: Node, grids: Mapping[int, GridAt]) -> Relation:
    """Return the relation with its stages in the order in which they were seen to run."""
    ways = rel.walks()
    if len(ways) < 2:
        return rel
    wrong = [0] * len(ways)
    for n, rows in node.rows.items():
        order = np.lexsort((rows.first, rows.rank))
        r, q = rows.rank[order], rows.peer[order]
        next_ = r[1:] == r[:-1]
        for k, way in enumerate(ways):
            table = partners(way, grids[n])
            if not len(table):
                continue
            hit = table[:, r] == q[None, :]
            stage = np.where(hit.any(axis=0), np.argmax(hit, axis=0), -1)
            both = next_ & (stage[1:] >= 0) & (stage[:-1] >= 0)
            wrong[k] += int((stage[1:] < stage[:-1])[both].sum())
    return ways[int(np.argmin(wrong))]


def _one_size(rows: Rows, stage: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return cells (stage, rank) all of whose messages have one size."""
    out, size = np.zeros(shape, dtype=bool), np.zeros(shape, dtype=np.int64)
    size[stage, rows.rank] = rows.nbytes  # of several one stays
    out[stage, rows.rank] = True
    other = size[stage, rows.rank] != rows.nbytes
    out[stage[other], rows.rank[other]] = False
    return out


def _law_of_rows(node: Node, choice: GridChoice) -> CommunicatorLaw:
    """Return the law of the communicator of a node's messages, that of the largest count."""
    cover = choice.communicators.cover(find_communicators(node))
    n = max(node.place_id)
    return cover.laws[cover.law_of[(n, int(node.place_id[n][0]))]]


def _communicator_items(
    node: Node, choice: GridChoice, tables: Sequence[PointTable]
) -> list[ObservedRows]:
    """Return an item for each law that the node's communicators need."""
    grids = choice.grids
    if not is_on_comm(node.op):
        laws: list[CommunicatorLaw] = [World(ordinal=0)]
        law_of = None
    else:
        cover = choice.communicators.cover(find_communicators(node))
        laws, law_of = cover.laws, cover.law_of
    items = []
    for k, law in enumerate(laws):
        rows = {}
        for t in tables:
            n, there = t.np, node.place_id.get(t.np, np.zeros(0, dtype=np.int64))
            mine = [p for (m, p), i in (law_of or {}).items() if m == n and i == k]
            rows[n] = node.at(n, None if law_of is None else np.isin(there, mine))
        item = whole(rows, grids, law)
        item.care = {t.np: (law.colours(grids[t.np]) >= 0)[None, :] for t in tables}
        items.append(item)
    return items
