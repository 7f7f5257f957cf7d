"""Nodes of a program (site, operation, tag) over all process counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields

import numpy as np

from p3s.base.ops import RECV, SEND, kind_of
from p3s.model.grid.at import GridAt
from p3s.model.order.iterations import needless
from p3s.model.partners.communicators import Used
from p3s.model.partners.pairs import Pairs
from p3s.model.sizes.observed import Rows
from p3s.signature.tables import PointTable

MAX_TAGS = 16
#: So many neighbours may be one rank, where dimensions are short.
_MOST_WAYS = 27


@dataclass
class Node:
    """A (site, operation, tag) with its rows at every count; tag None: tags do not matter.

    only_tag: the tag that all its messages have, None if there are several.
    """

    site: str
    op: str
    tag: int | None
    rows: dict[int, Rows] = field(default_factory=dict)
    place_id: dict[int, np.ndarray] = field(default_factory=dict)
    only_tag: int | None = None

    @property
    def kind(self) -> str:
        """The kind of the operation."""
        return kind_of(self.op)

    def at(self, n: int, mask: np.ndarray | None = None) -> Rows:
        """Return the rows at a count, or some of them."""
        rows = self.rows.get(n) or Rows(*[np.zeros(0, dtype=np.int64)] * len(fields(Rows)))
        return rows if mask is None else rows.take(mask)


def node_key(
    site: str, op: str, tag: int, split: Mapping[tuple[str, str], bool]
) -> tuple[str, str, int | None]:
    """Return the node of a group; ``split`` tells at which (site, op) tags make nodes."""
    return (site, op, tag if split.get((site, op)) else None)


def tag_splits(tables: Sequence[PointTable]) -> dict[tuple[str, str], bool | None]:
    """Return for each (site, op) whether its tags tell different communications apart.

    They do (True) if they are few, the same at all counts, and each goes with fewer partners
    per rank than the site has in all. A tag that names its sender or receiver tells nothing that
    the partner does not. Tags that become more with the count may number the
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
        if (
            not 1 < len(tags) <= MAX_TAGS
            or set(last) != tags
            # two tags for the same partner: with extents of 2, both directions of one dimension
            or not (narrower or len(last) == 2)
            or _names_a_rank(by_n)
        ):
            out[key] = False
        else:
            out[key] = True if all(set(v) == tags for v in by_n.values()) else None
    return out


def _names_a_rank(by_n: Mapping[int, Mapping[int, set[tuple[int, int]]]]) -> bool:
    """Tell whether a tag belongs to one sender, or to one receiver, at every count.

    There are several of them, at one count at least more than the two of any exchange.
    """
    for end in (0, 1):
        ranks = [
            [{pair[end] for pair in pairs} for pairs in tags.values()] for tags in by_n.values()
        ]
        if all(len(mine) == 1 for tags in ranks for mine in tags) and any(
            len(set().union(*tags)) > 2 for tags in ranks
        ):
            return True
    return False


def collect_nodes(
    tables: Sequence[PointTable], split: Mapping[tuple[str, str], bool]
) -> list[Node]:
    """Return all nodes with their rows, in order of first appearance."""
    nodes: dict[tuple[str, str, int | None], Node] = {}
    tags: dict[tuple[str, str, int | None], set[int]] = {}
    for t in tables:
        keys = [node_key(g.site, g.op, g.tag, split) for g in t.groups]
        number = {k: i for i, k in enumerate(dict.fromkeys(keys))}
        for k, g in zip(keys, t.groups, strict=True):
            tags.setdefault(k, set()).add(g.tag)
        of_group = np.array([number[k] for k in keys], dtype=np.int64)
        peer = np.array([g.peer for g in t.groups], dtype=np.int64)
        place = np.array([g.comm for g in t.groups], dtype=np.int64)
        root = np.array([_root_index(t, g.comm, g.root) for g in t.groups], dtype=np.int64)
        of_row = of_group[t.group]
        order = np.argsort(of_row, kind="stable")
        bounds = np.searchsorted(of_row[order], np.arange(len(number) + 1))
        for key, i in number.items():
            pick = order[bounds[i] : bounds[i + 1]]
            gr = t.group[pick]
            node = nodes.setdefault(key, Node(*key))
            node.rows[t.np] = Rows(
                t.rank[pick],
                gr,
                peer[gr],
                t.nbytes[pick],
                t.elem_bytes[pick],
                t.count[pick],
                t.work[pick],
                t.first[pick],
                root[gr],
                np.zeros(len(pick), dtype=np.int64) if t.turn is None else t.turn[pick],
            )
            node.place_id[t.np] = place[gr]
    for key, node in nodes.items():
        if len(tags[key]) == 1:
            node.only_tag = next(iter(tags[key]))
        if all(needless(r.rank, r.group, r.nbytes) for r in node.rows.values()):
            for r in node.rows.values():
                r.turn[:] = 0
    return list(nodes.values())


def _root_index(t: PointTable, comm: int, root: int) -> int:
    if root < 0 or not 0 <= comm < len(t.places):
        return -1
    members = t.places[comm].members
    return members.index(root) if root in members else -1


def find_communicators(node: Node) -> Used:
    """Return the communicators that a node uses."""
    return frozenset((n, int(p)) for n, ids in node.place_id.items() for p in np.unique(ids))


def unique_pairs(rows: Rows) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Return the distinct (rank, partner) pairs of rows and how many messages each has.

    The numbers are relative to each other, and None where they are large: not ways to a partner.
    """
    known = rows.peer >= 0
    of_rank = int(rows.peer.max(initial=-1)) + 1
    pair = rows.rank[known] * of_rank + rows.peer[known]
    both, which = np.unique(pair, return_inverse=True)
    times = np.bincount(which, weights=rows.count[known], minlength=len(both))
    each = times.astype(np.int64) // max(int(np.gcd.reduce(times.astype(np.int64))), 1)
    few = len(each) and each.max() <= _MOST_WAYS
    rank, peer = np.divmod(both, max(of_rank, 1))
    return rank, peer, each if few else None


def pairs_on(rows: Rows, grid: GridAt) -> Pairs:
    """Return the distinct pairs of rows on a grid."""
    return Pairs(grid, *unique_pairs(rows))
