"""What ranks were seen to do, in the iterations of their loops: the ground of the order of events.

A *cell* is (item, slot, stage, iteration): a rule of the model as one rank carries it out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from p3s.base.arrays import Ints
from p3s.base.ops import COMPLETION, RECV, SEND, is_on_comm
from p3s.model.grid.nodes import node_key
from p3s.model.order.patterns import Cell, LoopTurns, turn_of
from p3s.model.partners.relation import Shift
from p3s.model.types import Model
from p3s.signature.parse import Nest, loop_indices, nodes_of, parse
from p3s.signature.structure import Structure
from p3s.signature.tables import PointTable, first_rows, node_of_row

Cells = tuple[Cell, ...]
#: Kinds of ranks looked at per count: of more, the first ones; of those with the same rules (that
#: differ in what they do to whom, not in what they do) fewer.
_KINDS, _ALIKE = 48, 3


@dataclass
class RankGroup:
    """Ranks of one count that do the same in the same turns.

    loop: shape (events, levels + 1), loops around each event, -1 below its own; index: shape
    (events, levels). cell: per event the number of its cell in ``cells``, -1 unknown, -2 moves
    nothing. peer: per cell its partner at the first of the ranks. turns: of each loop entered.
    events: of each cell; rules: (item, slot) -> its cells.
    """

    n: int
    ranks: list[int]
    loop: Ints
    index: Ints
    cell: Ints
    cells: list[Cell]
    peer: list[int]
    turns: dict[int, LoopTurns]
    events: dict[int, Ints] = field(default_factory=dict)
    inside: dict[int, list[int]] = field(default_factory=dict)
    rules: dict[tuple[int, int], list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        order = np.argsort(self.cell, kind="stable")
        kinds, where = np.unique(self.cell[order], return_index=True)
        for c, (item, slot, _, _) in enumerate(self.cells):
            self.rules.setdefault((item, slot), []).append(c)
        self.events = dict(zip(kinds.tolist(), np.split(order, where[1:]), strict=True))

    def cells_in(self, loop: int, level: int) -> list[int]:
        """Return the numbers of the known cells inside a loop of a level, -1 for unknown ones."""
        if loop not in self.inside:
            mine = self.cell[self.loop[:, level] == loop]
            there = np.zeros(len(self.cells) + 2, dtype=bool)
            there[mine] = True  # -1 and -2 are the last ones
            found = np.flatnonzero(there[:-2]).tolist()
            self.inside[loop] = [-1, *found] if there[-1] else found
        return self.inside[loop]


def turns_of_loops(nest: Nest, node: Ints, index: Ints) -> dict[int, LoopTurns]:
    """Return the iterations of every loop that a rank enters, from its events."""
    radix = index.max(axis=0, initial=0) + 1
    code = np.zeros(len(node), dtype=np.int64)
    none = np.zeros((1, 0), dtype=np.int64)
    out = {0: LoopTurns(none, none, np.zeros(1, dtype=np.int64))}
    known = {0: np.zeros(1, dtype=np.int64)}
    for level in range(1, nest.levels + 1):
        upper = code
        code = code * radix[level - 1] + np.maximum(index[:, level - 1], 0)
        inside = nest.around[node, level]
        for loop in np.unique(inside[inside >= 0]).tolist():
            mine = np.flatnonzero(inside == loop)
            codes, first = np.unique(code[mine], return_index=True)
            pick = mine[first]
            parent = int(nest.around[node[pick[0]], level - 1])
            within = np.searchsorted(known[parent], upper[pick])
            count = np.bincount(within, minlength=len(known[parent]))
            known[loop] = codes
            out[loop] = LoopTurns(
                index[pick, :level],
                np.concatenate([out[parent].trips[within], count[within][:, None]], axis=1),
                within,
            )
    return out


def by_partner(index: Ints, loop: Ints, peer: Ints, apart: Collection[int]) -> Ints:
    """Return the iterations around each event, in some loops one for each partner in a row.

    Calls that exclude one another, as what a rank of a tree does at one stage (send or receive),
    look like one iteration where one's place is behind the other's. index, loop: as in Seen;
    peer: of each event, -1 none; apart: the loops.
    """
    out = index.copy()
    for level in range(1, loop.shape[1]):
        mine = np.flatnonzero(np.isin(loop[:, level], list(apart)))
        if not len(mine):
            continue
        around = np.concatenate([loop[mine, level, None], index[mine, : level - 1]], axis=1)
        enters = np.append(True, (np.diff(around, axis=0) != 0).any(axis=1))
        partner = peer[mine]
        known = np.where((partner >= 0) | enters, np.arange(len(mine)), 0)
        partner = partner[np.maximum.accumulate(known)]
        turns = np.diff(index[mine, level - 1], prepend=0) != 0
        begins = np.cumsum(enters | turns | (np.diff(partner, prepend=-1) != 0))
        out[mine, level - 1] = begins - np.maximum.accumulate(np.where(enters, begins, 0))
    return out


def see(
    model: Model,
    t: PointTable,
    s: Structure,
    cell_of: Sequence[Cells],
    sign: Mapping[int, int],
    apart: Collection[int] = (),
) -> Iterator[RankGroup]:
    """Yield the kinds of ranks of one count; cell_of: as of :func:`cells_of_rows`.

    sign: per node the direction in which its messages go first. Messages of several rules to one
    partner follow these in turn. apart: loops as of :func:`by_partner`.
    """
    number = {node: k for k, node in enumerate(s.nodes)}
    union = np.array([number.get(node, -1) for node in t.nodes], dtype=np.int64)
    of_row, first = node_of_row(t), first_rows(t)
    bounds = {r: (a, int(np.searchsorted(t.rank, r, side="right"))) for r, a in first.items()}
    partner = np.array([g.peer for g in t.groups], dtype=np.int64)
    kinds: dict[tuple[int, bytes], list[int]] = {}
    for rank, codes in t.sequences.items():
        a, b = bounds.get(rank, (0, 0))
        key = (
            of_row[a:b].tobytes()
            + repr(cell_of[a:b]).encode()
            + np.argsort(partner[t.group[a:b]], kind="stable").tobytes()
        )
        kinds.setdefault((id(codes), key), []).append(rank)
    like: dict[frozenset[tuple[int, int] | None], int] = {}
    left = _KINDS
    for ranks in kinds.values():
        a, b = bounds.get(ranks[0], (0, 0))
        what = frozenset(c[:2] for some in cell_of[a:b] for c in some or ((-1, -1),))
        like[what] = like.get(what, 0) + 1
        if like[what] > _ALIKE or not left:
            continue
        left -= 1
        codes = t.sequences[ranks[0]].astype(np.int64)
        node = union[nodes_of(codes, a, of_row)]
        index = loop_indices(parse(s.nest, node))
        peers = partner[t.group[a:b]]
        index = by_partner(
            index, s.nest.around[node], np.append(peers, -1)[np.maximum(codes, -1)], apart
        )
        cell, cells, peer = _cells_of_events(codes, cell_of[a:b], peers.tolist(), model, sign)
        yield RankGroup(
            t.np,
            ranks,
            s.nest.around[node],
            index,
            cell,
            cells,
            peer,
            turns_of_loops(s.nest, node, index),
        )


def _cells_of_events(
    codes: Ints,
    cell_of: Sequence[Cells],
    partner: Sequence[int],
    model: Model,
    sign: Mapping[int, int],
) -> tuple[Ints, list[Cell], list[int]]:
    """Return the number of the cell of each event of a rank, the cells, and their partners.

    codes: the row of each event, negative where it moves nothing.
    """
    number = {some: i for i, some in enumerate(dict.fromkeys(cell_of))}
    of_event = np.array([*(number[some] for some in cell_of), -1])[np.maximum(codes, -1)]
    order = np.argsort(of_event, kind="stable")
    starts = np.searchsorted(of_event[order], np.arange(len(number) + 1))
    cell = np.where(codes < 0, -2, -1)
    cells: dict[Cell, int] = {}
    for some, i in number.items():
        events = order[starts[i] : starts[i + 1]]
        for j, c in enumerate(_one_after_another(some, model, sign)):
            if len(own := events[j :: len(some)]):  # more rules than messages leave some none
                cell[own] = cells.setdefault(c, len(cells))
    peer = {c: to for some, to in zip(cell_of, partner, strict=True) for c in some}
    return cell, list(cells), [peer[c] for c in cells]


def _one_after_another(some: Cells, model: Model, sign: Mapping[int, int]) -> Cells:
    """Return the cells of a row in the order in which its messages follow them."""
    first = sign.get(model.items[some[0][0]].node, 1) if len(some) > 1 else 1
    return tuple(sorted(some, key=lambda c: [-first * x for x in _step(model, c)]))


def _step(model: Model, cell: Cell) -> tuple[int, ...]:
    """Return the step to a neighbour, nothing of other relations."""
    relation = model.items[cell[0]].relation
    return relation.vec if isinstance(relation, Shift) else ()


def first_signs(model: Model, seen: Iterable[tuple[PointTable, Sequence[Cells]]]) -> dict[int, int]:
    """Return per node in which direction its messages go first: up (1) or down (-1).

    seen: tables with the cells of their rows. Those tell it that are of one rule alone.
    """
    votes: dict[int, int] = {}
    for t, cell_of in seen:
        first: dict[tuple[int, int, tuple[int, ...]], int] = {}
        for rank, when, some in zip(t.rank.tolist(), t.first.tolist(), cell_of, strict=True):
            if len(some) == 1 and (step := _step(model, some[0])):
                node = model.items[some[0][0]].node
                first.setdefault((rank, node, step), when)
        for (rank, node, step), when in first.items():
            back = first.get((rank, node, tuple(-x for x in step)))
            if back is not None and step > tuple(-x for x in step):
                votes[node] = votes.get(node, 0) + (1 if when < back else -1)
    return {node: 1 if vote >= 0 else -1 for node, vote in votes.items()}


def cells_of_rows(model: Model, t: PointTable, rows: Any) -> list[Cells]:
    """Return which cells of the model each row of a table is; none: unknown.

    Where neighbours on several sides are one rank, the messages to it follow several rules; of
    sizes that follow none, which of them is unknown.
    """
    split, items = model.splits, model.items
    node = {it.key: it.node for it in items}
    about = [(it.kind == COMPLETION, is_on_comm(it.op), it.node) for it in items]
    full: dict[tuple[Any, ...], set[Cell]] = defaultdict(set)
    loose: dict[tuple[Any, ...], set[Cell]] = defaultdict(set)
    for r, i, slot, stage, at, peer, size, c in zip(
        rows.rank.tolist(),
        rows.item.tolist(),
        rows.slot.tolist(),
        rows.stage.tolist(),
        turn_of(rows).tolist(),
        rows.peer.tolist(),
        rows.nbytes.tolist(),
        rows.comm.tolist(),
        strict=True,
    ):
        completes, on_comm, of_node = about[i]
        if completes:  # how many requests there are may be known on average only, but not if any
            size, stage = min(size, 1), 0
        where = rows.members[c] if on_comm and c >= 0 else ()
        loosely = (r, of_node, peer, where)
        full[(*loosely, size)].add((i, slot, stage, at))
        loose[loosely].add((i, slot, stage, at))
    groups: list[tuple[bool, tuple[Any, ...]]] = []
    for g in t.groups:
        peer = g.peer if g.kind in (SEND, RECV) else -1
        where = t.places[g.comm].members if is_on_comm(g.op) and 0 <= g.comm < len(t.places) else ()
        of_group = (node.get(node_key(g.site, g.op, g.tag, split)), peer, where)
        groups.append((g.kind == COMPLETION, of_group))
    out: list[Cells] = []
    keys: list[tuple[Any, ...]] = []
    none: set[Cell] = set()
    for r, gi, size, at in zip(
        t.rank.tolist(), t.group.tolist(), t.nbytes.tolist(), turn_of(t).tolist(), strict=True
    ):
        completes, of_group = groups[gi]
        loosely = (r, *of_group)
        keys.append(loosely)
        exactly = full.get((*loosely, min(size, 1) if completes else size), none)
        found = exactly or loose.get(loosely, none)
        if len(found) > 1:
            found = {c for c in found if c[3] == at} or found
        known = len(found) == 1 or (exactly and all(_step(model, c) for c in found))
        out.append(tuple(sorted(found)) if known else ())
    _in_order_of_appearance(out, keys, loose, t.first)
    return out


def _in_order_of_appearance(
    out: list[Cells],
    keys: list[tuple[Any, ...]],
    loose: Mapping[tuple[Any, ...], set[Cell]],
    first: Ints,
) -> None:
    """Pair rows whose sizes are not the model's with the sizes of one rule, as these are numbered.

    They have to be as many.
    """
    open_: dict[tuple[Any, ...], list[int]] = {}
    for k, cell in enumerate(out):
        if not cell:
            open_.setdefault(keys[k], []).append(k)
    for key, rows in open_.items():
        cells = sorted(loose.get(key, ()))
        if len(cells) == len(rows) and len({(c[0], *c[2:]) for c in cells}) == 1:
            rows.sort(key=lambda k: int(first[k]))
            for k, one in zip(rows, cells, strict=True):
                out[k] = (one,)
