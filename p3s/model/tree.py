"""The loop nest over items: phases, weights, order, loops over stages."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from p3s.base.ops import COMPLETION, RECV, SEND, is_on_comm, kind_of, name_phase_op
from p3s.laws.exact import evaluate_int
from p3s.laws.expr import whole_number
from p3s.laws.lawfinder import find_law
from p3s.model.grid.at import GridAt
from p3s.model.grid.nodes import node_key
from p3s.model.law_types import CountLaw
from p3s.model.partners.communicator_laws import World
from p3s.model.partners.communicators import same_communicator
from p3s.model.partners.irregular import is_sample
from p3s.model.partners.stencil import partners, stages_depend_on_n
from p3s.model.types import Item, Phase
from p3s.model.work_types import PhaseWork
from p3s.signature.calltable import least_backward
from p3s.signature.fold import Loop
from p3s.signature.structure import REQUESTS, Structure
from p3s.signature.tables import PointTable

#: Where the communicator is not said: MPI_COMM_WORLD.
WORLD = World(ordinal=0)
UNKNOWN_ITEM = 10**6
#: The name of phase 0.
OUTSIDE = "outside loops"
#: The work of a phase before it is fitted.
NO_WORK = PhaseWork(find_law([], "work").fit, (), False, {}, ())


@dataclass
class Assignment:
    """Which item every row of one count's table belongs to; shared: several would fit.

    of_row: item per row of the table, UNKNOWN_ITEM + group where there is none.
    """

    of_row: np.ndarray
    shared: bool


#: Tables with what their rows were mapped to last: several steps ask for the same.
_LAST: deque[tuple[PointTable, object, Assignment]] = deque(maxlen=8)


def assign(
    items: Sequence[Item], table: PointTable, grid: GridAt, split: Mapping[tuple[str, str], bool]
) -> Assignment:
    """Map the rows of a table to model items; rows of no item get numbers of their own."""
    ranks = None if grid.ranks is None else grid.ranks.tolist()
    rules = [(i.site, i.op, i.tag, i.relation, i.place) for i in items]
    asked = rules, grid.key, ranks, dict(split)
    for known, what, found in _LAST:
        if known is table and what == asked:
            return found
    found = _assign_groups(items, table, grid, split)
    found.of_row.setflags(write=False)
    _LAST.append((table, asked, found))
    return found


def item_of_rows(
    items: Sequence[Item], table: PointTable, grid: GridAt, split: Mapping[tuple[str, str], bool]
) -> np.ndarray:
    """Return the item of each row of a table, their number where there is none, int64."""
    found: np.ndarray = np.minimum(assign(items, table, grid, split).of_row, len(items))
    return found


def _assign_groups(
    items: Sequence[Item], table: PointTable, grid: GridAt, split: Mapping[tuple[str, str], bool]
) -> Assignment:
    by_node: dict[tuple[str, str, int | None], list[int]] = {}
    for i, item in enumerate(items):
        by_node.setdefault((item.site, item.op, item.tag), []).append(i)
    numbers: dict[tuple[str, str, int | None], int] = {}
    of_group = np.array(
        [
            numbers.setdefault(node_key(g.site, g.op, g.tag, split), len(numbers))
            for g in table.groups
        ],
        dtype=np.int64,
    )
    peer_of = np.array([g.peer for g in table.groups], dtype=np.int64)
    comm_of = np.array([g.comm for g in table.groups], dtype=np.int64)
    node = of_group[table.group]
    order = np.argsort(node, kind="stable")
    bounds = np.searchsorted(node[order], np.arange(len(numbers) + 1))
    out = UNKNOWN_ITEM + table.group.astype(np.int64)
    shared = False
    for key, k in numbers.items():
        mine = order[bounds[k] : bounds[k + 1]]
        options = by_node.get(key, [])
        if not len(mine) or not options:
            continue
        kind = kind_of(key[1])
        rank, peer = table.rank[mine], peer_of[table.group[mine]]
        found = np.full(len(mine), -1, dtype=np.int64)
        fits = np.zeros(len(mine), dtype=np.int64)
        for i in options:
            rel = items[i].relation
            if rel is not None and not is_sample(rel):
                hit = (partners(rel, grid)[:, rank] == peer[None, :]).any(axis=0) & (peer >= 0)
            elif is_on_comm(key[1]):
                comms, which = np.unique(comm_of[table.group[mine]], return_inverse=True)
                place = items[i].place or WORLD
                here = [same_communicator(place, table, c, grid) for c in comms.tolist()]
                hit, same = (np.array(each)[which] for each in zip(*here, strict=True))
                found[hit & same & (fits > 0)] = i  # of several, the one made in the same iteration
            else:
                hit = np.full(len(mine), kind not in (SEND, RECV))
            found[hit & (found < 0)] = i
            fits += hit
        if kind in (SEND, RECV):  # what no relation explains has an item of its own
            for i in reversed(
                [i for i in options if items[i].relation is None or is_sample(items[i].relation)]
            ):
                found[fits == 0] = i
        shared |= bool(np.any(fits > 1))
        out[mine[found >= 0]] = found[found >= 0]
    return Assignment(out, shared)


def items_of_nodes(
    s: Structure,
    items: Sequence[Item],
    tables: Sequence[PointTable],
    grids: Mapping[int, GridAt],
    split: Mapping[tuple[str, str], bool],
) -> dict[int, list[int]]:
    """Return the items of each node of the tree of all runs, in order."""
    number = {node: k for k, node in enumerate(s.nodes)}
    of_node: dict[int, list[int]] = {}
    for i, item in enumerate(items):
        of_node.setdefault(number[(item.site, item.op)], []).append(i)
    firsts = _first_events(items, tables, grids, split)
    return {v: _in_order(mine, firsts) for v, mine in of_node.items()}


def _first_events(
    items: Sequence[Item],
    tables: Sequence[PointTable],
    grids: Mapping[int, GridAt],
    split: Mapping[tuple[str, str], bool],
) -> dict[tuple[int, int], dict[int, int]]:
    """Return (count, rank) -> item -> ordinal of its first event."""
    out: dict[tuple[int, int], dict[int, int]] = {}
    for t in tables:
        assigned = assign(items, t, grids[t.np], split)
        for r, item, first in zip(
            t.rank.tolist(), assigned.of_row.tolist(), t.first.tolist(), strict=True
        ):
            seen = out.setdefault((t.np, r), {})
            seen[item] = min(seen.get(item, first), first)
    return out


def _in_order(mine: list[int], firsts: Mapping[tuple[int, int], Mapping[int, int]]) -> list[int]:
    """Order items as most ranks that have both execute them first."""
    if len(mine) < 2:
        return mine
    weight: dict[tuple[int, int], int] = {}
    for seen in firsts.values():
        here = sorted((i for i in mine if i in seen), key=lambda i: seen[i])
        for k, a in enumerate(here):
            for b in here[k + 1 :]:
                weight[(a, b)] = weight.get((a, b), 0) + 1
    return least_backward(mine, weight)


def stage_loop(loop: Loop, own: Sequence[int], items: Sequence[Item]) -> bool:
    """Whether a loop (own: its items) only walks the stages of families of partners."""
    if any(isinstance(c, Loop) for c in loop.children) or not own:
        return False
    p2p = [items[i] for i in own if items[i].kind in (SEND, RECV)]
    if any(items[i].kind not in (SEND, RECV, COMPLETION) for i in own) or not p2p:
        return False
    return all(
        i.relation is not None
        and stages_depend_on_n(i.relation)
        and all(s.count.expr is not None for s in i.slots)
        for i in p2p
    )


def _stages(
    own: Sequence[int], items: Sequence[Item], grids: Mapping[int, GridAt]
) -> dict[int, int] | None:
    """Return the number of stages per count of the families in a loop, None without a family."""
    for i in own:
        rel = items[i].relation
        if rel is not None:
            return {n: len(partners(rel, g)) for n, g in grids.items()}
    return None


def _once_per_turn(loop: Loop, stages: Mapping[int, int]) -> bool:
    return all(t <= loop.entries[m] * stages[m[0]] for m, t in loop.turns.items())


@dataclass(frozen=True)
class _PhaseLoop:
    """The loop of a phase; stages: by count, where its iterations are stages of a family."""

    depth: int
    parent: int | None
    loop: Loop
    stages: dict[int, int] | None


@dataclass(frozen=True)
class _Position:
    """Where an item runs: its phase, its position, that of its loop over stages, its family."""

    phase: int
    order: int
    loop_start: int | None
    family: int | None


class _Placing:
    """Puts the items into phases while walking the tree."""

    def __init__(
        self,
        s: Structure,
        of_node: Mapping[int, list[int]],
        items: Sequence[Item],
        grids: Mapping[int, GridAt],
    ) -> None:
        self.s, self.of_node, self.items, self.grids = s, of_node, items, grids
        self.number = {id(loop): k for k, loop in enumerate(s.nest.loops)}
        self.counter = 0
        self.phases = [_PhaseLoop(0, None, s.tree, None)]
        self.at: dict[int, _Position] = {}
        self.visit(s.tree, 0, None)

    def own(self, loop: Loop) -> list[int]:
        return [i for v in loop.own_nodes() for i in self.of_node.get(v, [])]

    def visit(self, loop: Loop, phase: int, start: int | None) -> None:
        family = next(
            (i for i in self.own(loop) if start is not None and self.items[i].kind in (SEND, RECV)),
            None,
        )
        for child in loop.children:
            if not isinstance(child, Loop):
                for i in self.of_node.get(child, []):
                    self.put(i, phase, start, family)
                continue
            own = self.own(child)
            stages = (
                _stages(own, self.items, self.grids) if stage_loop(child, own, self.items) else None
            )
            walk = self.s.walks.get(self.number[id(child)])
            if walk or (stages is not None and _once_per_turn(child, stages)):
                staged = walk != REQUESTS and any(
                    rel is not None and stages_depend_on_n(rel)
                    for rel in (self.items[i].relation for i in own)
                )
                self.visit(child, phase, self.counter if staged else start)
                continue
            # A loop over stages that is entered less often than it starts over is the
            # perfect nest of two: its iterations are those of the outer one times the stages.
            inner = len(self.phases)
            self.phases.append(_PhaseLoop(self.phases[phase].depth + 1, phase, child, stages))
            self.visit(child, inner, self.counter if stages is not None else start)

    def put(self, i: int, phase: int, start: int | None, family: int | None) -> None:
        self.counter += 1
        staged = start is not None and self.items[i].kind == COMPLETION
        self.at[i] = _Position(phase, self.counter, start, family if staged else None)

    def placed(self) -> list[Item]:
        """Return the items with their positions."""
        first = _Position(0, 0, None, None)
        return [
            replace(
                item, phase=at.phase, order=at.order, loop_start=at.loop_start, stages_of=at.family
            )
            for i, item in enumerate(self.items)
            for at in (self.at.get(i, first),)
        ]


def phases_of(
    s: Structure,
    of_node: Mapping[int, list[int]],
    items: Sequence[Item],
    grids: Mapping[int, GridAt],
) -> tuple[list[Item], list[Phase]]:
    """Return the items placed in the phases, and the phases with their weights, work to come.

    A phase is the loop in which an item lies, innermost first; loops over stages or partners and
    loops that only complete requests belong to the phase around them.
    """
    placing = _Placing(s, of_node, items, grids)
    placed = placing.placed()
    out = []
    for k, phase in enumerate(placing.phases):
        points = []
        for n in s.counts:
            stages = (phase.stages or {}).get(n, 1)
            turns = [t // stages for (m, _), t in phase.loop.turns.items() if m == n and stages]
            if turns and max(turns) > 0:
                points.append((n, max(turns)))
        mine = sorted(
            (i for i, it in enumerate(placed) if it.phase == k), key=lambda i: placed[i].order
        )
        out.append(
            Phase(
                phase=k,
                depth=phase.depth,
                parent=phase.parent,
                name=_name([placed[i] for i in mine]) if phase.parent is not None else OUTSIDE,
                items=tuple(mine),
                weight=weight_law([n for n, _ in points], [v for _, v in points], grids),
                weight_points=tuple(points),
                fused_stages=phase.stages is not None,
                work=NO_WORK,
            )
        )
    return placed, out


def _name(items: Sequence[Item]) -> str:
    """Return a name of a loop: its calls."""
    ops = list(dict.fromkeys(name_phase_op(item.op).removeprefix("MPI_") for item in items))
    ops = [o for o in ops if o != "Sendrecv_recv"]
    return "+".join(ops[:5]) + ("+..." if len(ops) > 5 else "") or "nest"


def weight_law(ns: Sequence[int], values: Sequence[int], grids: Mapping[int, GridAt]) -> CountLaw:
    """Return the law of a weight: exact if there is one, else a statistical one.

    Few ranks do not make all calls of an iteration, and an iteration without a call is not seen:
    the smallest count may be left out, the law then says from which count on it holds."""
    envs = [grids[n].symbols for n in ns]
    for skip in range(2 if len(ns) > 2 else min(len(ns), 1)):
        law = find_law(list(zip(envs, values, strict=True))[skip:], "whole").law
        if law is not None and (not skip or law.free < law.points):
            return CountLaw(
                expr=law.expr,
                points=law.points,
                free=law.free,
                rivals=law.others or None,
                holds_from=ns[skip] if skip else None,
            )
    return CountLaw(stat=find_law(zip(ns, values, strict=True), "work").fit)


def phase_stages(phase: Phase, items: Sequence[Item], grid: GridAt) -> int:
    """Return by how many stages the iterations of a phase's loop are to be divided (1: none)."""
    if not phase.fused_stages:
        return 1
    rels = [rel for i in phase.items if (rel := items[i].relation) is not None]
    return len(partners(rels[0], grid)) if rels else 1


def phase_weight(phase: Phase, grid: GridAt) -> int:
    """Return how often a phase occurs in the run at the grid's process count."""
    law = phase.weight
    if law.expr is not None:
        return int(evaluate_int(law.expr, grid.symbols))
    if law.stat is None:
        raise ValueError(f"the iterations of phase {phase.phase} have no law")
    return whole_number(float(law.stat.value(grid.n)), grid.n)
