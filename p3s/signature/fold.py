"""Folding: the loop nest of a program from the graph of transitions between its nodes.

Nothing is matched approximately: loops are the cycles of the graph, iterations are counts of
transitions. Ranks with the same set of transitions form a class; one tree is built for all
classes (of all ranks and process counts). The rules for shared headers and several entries
are those of the design notes on structure (natural loops, one header per class).
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from p3s.signature.calltable import least_backward
from p3s.signature.cycles import Edge, cyclic, natural_loop, strongly_connected

START, END = -1, -2
#: Iterations of a loop without inner ones may differ this much, relative, between ranks: where an
#: iteration of a corner rank only receives and its next one only sends, the two look like one.
_EQUAL_TURNS = 0.1


@dataclass
class Loop:
    """A loop (or, as the root, the whole program): ordered children, iterations, entries per
    member."""

    children: list[int | Loop] = field(default_factory=list)
    turns: dict[Any, int] = field(default_factory=dict)
    entries: dict[Any, int] = field(default_factory=dict)

    def nodes(self) -> set[int]:
        """Return all nodes inside, however deep."""
        out: set[int] = set()
        for c in self.children:
            out |= c.nodes() if isinstance(c, Loop) else {c}
        return out

    def own_nodes(self) -> list[int]:
        """Return the nodes directly in this loop, in order."""
        return [c for c in self.children if not isinstance(c, Loop)]

    def loops(self) -> Iterable[Loop]:
        """Yield this loop and all inside, outermost first, in program order."""
        yield self
        for c in self.children:
            if isinstance(c, Loop):
                yield from c.loops()


@dataclass
class _Class:
    """Members with the same transitions; active: those that end no iteration, as far as known."""

    members: list[Hashable]
    counts: list[Mapping[Edge, int]]
    total: dict[Edge, int]
    active: set[Edge]

    @cached_property
    def _edges_at(self) -> dict[int, list[Edge]]:
        """The transitions from and to each node, those of one to itself once."""
        transitions: dict[int, list[Edge]] = {}
        for edge in self.total:
            for v in set(edge):
                transitions.setdefault(v, []).append(edge)
        return transitions

    def near(self, nodes: Iterable[int]) -> set[Edge]:
        """Return the transitions that begin or end at one of some nodes.

        A loop asks for its own alone: what it takes grows with it, not with the program.
        """
        return {edge for v in nodes for edge in self._edges_at.get(v, ())}

    def inside(self, nodes: set[int]) -> set[Edge]:
        """Return the active transitions between some nodes."""
        return {e for e in self.near(nodes) & self.active if e[0] in nodes and e[1] in nodes}


def fold(
    members: Mapping[Any, Mapping[Edge, int]],
    position: Mapping[int, float],
    code: Mapping[int, int] | None = None,
) -> Loop:
    """Return the loop nest of all members as one tree.

    members: member (for example (np, rank)) -> transitions with counts, START and END
    included; position, code: node -> mean place in the run and place in the program's code, used
    only where order is free. Tuples as members belong together if their first entries are equal.
    """
    by_shape: dict[frozenset[Edge], _Class] = {}
    for member, counts in members.items():
        cls = by_shape.setdefault(frozenset(counts), _Class([], [], {}, set(counts)))
        cls.members.append(member)
        cls.counts.append(counts)
        for e, k in counts.items():
            cls.total[e] = cls.total.get(e, 0) + k
    classes = list(by_shape.values())
    nodes = {v for c in classes for e in c.active for v in e if v >= 0}
    for c in classes:
        c.active = {e for e in c.active if e[0] >= 0 and e[1] >= 0}
    root = Loop()
    root.children = _nest(nodes, classes, position, code or {})
    count_turns(root, members)
    return root


def count_turns(root: Loop, members: Mapping[Any, Mapping[Edge, int]]) -> None:
    """Set iterations and entries of every loop of a tree for all members from their transitions.

    A transition to an earlier place, or the same, begins an iteration of the innermost loop that
    holds both ends; every loop further inside that holds its target is entered."""
    path: dict[int, tuple[tuple[int, ...], list[Loop]]] = {}

    def walk(loop: Loop, places: tuple[int, ...], around: list[Loop]) -> None:
        loop.turns, loop.entries = {}, {}
        for k, c in enumerate(loop.children):
            if isinstance(c, Loop):
                walk(c, (*places, k), [*around, c])
            else:
                path[c] = ((*places, k), [*around])

    walk(root, (), [root])
    begun: dict[Edge, tuple[Loop | None, list[Loop]]] = {}

    def begins(edge: Edge) -> tuple[Loop | None, list[Loop]]:
        """Return the loop that goes on to its next iteration, and those that are entered."""
        u, v = edge
        if v < 0:
            return None, []
        place, loops = path[v]
        if u < 0:
            return None, loops[1:]
        from_place, from_loops = path[u]
        common = 0
        while (
            common + 1 < min(len(loops), len(from_loops))
            and loops[common + 1] is from_loops[common + 1]
        ):
            common += 1
        turned = place[common] <= from_place[common] and common > 0
        return loops[common] if turned else None, loops[common + 1 :]

    for member, counts in members.items():
        root.turns[member] = root.entries[member] = 1
        for e, k in counts.items():
            if e not in begun:
                begun[e] = begins(e)
            again, entered = begun[e]
            if again is not None:
                again.turns[member] = again.turns.get(member, 0) + k
            for loop in entered:
                loop.turns[member] = loop.turns.get(member, 0) + k
                loop.entries[member] = loop.entries.get(member, 0) + k


def _nest(
    nodes: set[int],
    classes: Sequence[_Class],
    position: Mapping[int, float],
    code: Mapping[int, int],
) -> list[int | Loop]:
    union = {e for c in classes for e in c.inside(nodes)}
    comps = strongly_connected(nodes, union)
    items: list[tuple[set[int], int | Loop]] = []
    for comp in comps:
        if not cyclic(comp, union):
            items.append((comp, next(iter(comp))))
            continue
        before = [c.inside(comp) for c in classes]
        loop = _one_loop(comp, classes)
        if loop is None:  # only the orders of different ranks disagree: no loop anywhere
            for c in classes:
                c.active -= {(a, b) for a, b in c.inside(comp) if position[a] >= position[b]}
            inner = _nest(comp, classes, position, code)
            for child in inner:
                items.append((child.nodes() if isinstance(child, Loop) else {child}, child))
            continue
        loop.children = _nest(comp, classes, position, code)
        if len(loop.children) == 1 and isinstance(loop.children[0], Loop):
            loop = loop.children[0]  # nothing of its own: two loops that cannot be told apart
        _merge_guards(loop, comp, classes)
        _rotate(loop, comp, classes)
        flat = _better_flat(loop, comp, classes, before, position)
        items.append((comp, flat or loop))
    return _order_items(items, union, position, code)


def _merge_guards(loop: Loop, comp: set[int], classes: Sequence[_Class]) -> None:
    """Take out inner loops that run less than twice per entry on every rank.

    They are no loops: two ways through an iteration (either this or that) end at one call and look
    so."""
    if not any(isinstance(c, Loop) for c in loop.children):
        return
    inside = _local_members(comp, classes)
    while True:
        count_turns(Loop([loop]), inside)
        pick = next(
            (
                c
                for c in loop.children
                if isinstance(c, Loop) and all(c.turns[m] < 2 * c.entries[m] for m in c.turns)
            ),
            None,
        )
        if pick is None:
            return
        units = [u for c in loop.children for u in (pick.children if c is pick else [c])]
        owner = {
            v: k for k, u in enumerate(units) for v in (u.nodes() if isinstance(u, Loop) else {u})
        }
        weight: dict[Edge, int] = {}
        for c in classes:
            for (a, b), k in c.total.items():
                if a in owner and b in owner and owner[a] != owner[b]:
                    edge = (owner[a], owner[b])
                    weight[edge] = weight.get(edge, 0) + k * len(units)
        # Among equals: what all iterations have ends them.
        reached = [sum(k for e, k in weight.items() if e[1] == u) for u in range(len(units))]
        last = reached.index(max(reached))
        for u in range(len(units)):
            if u != last:
                weight[(u, last)] = weight.get((u, last), 0) + 1
        loop.children = [units[k] for k in least_backward(range(len(units)), weight)]


def _rotate(loop: Loop, comp: set[int], classes: Sequence[_Class]) -> None:
    """Let a loop that ranks enter at different places begin where that takes fewest turns."""
    near = {e for c in classes for e in c.near(comp)}
    headers = {e[1] for e in near if e[1] in comp and e[0] not in comp}
    starts = [
        k
        for k, child in enumerate(loop.children)
        if headers & (child.nodes() if isinstance(child, Loop) else {child})
    ]
    if len(starts) < 2:
        return
    inside = _local_members(comp, classes)
    children = list(loop.children)
    ways = []
    for k in sorted({0, *starts}):
        loop.children = children[k:] + children[:k]
        count_turns(Loop([loop]), inside)
        ways.append((sum(loop.turns.values()), k))
    best = min(ways)[1]
    loop.children = children[best:] + children[:best]


def _local_members(comp: set[int], classes: Sequence[_Class]) -> dict[Any, dict[Edge, int]]:
    """Return the transitions of a component's members, from and to it as START and END."""
    out: dict[Any, dict[Edge, int]] = {}
    for c in classes:
        mine = [(e, _inside(e, comp)) for e in c.near(comp)]
        for m, counts in zip(c.members, c.counts, strict=True):
            local: dict[Edge, int] = {}
            for e, renamed in mine:
                local[renamed] = local.get(renamed, 0) + counts[e]
            if local:
                out[m] = local
    return out


def _better_flat(
    loop: Loop,
    comp: set[int],
    classes: Sequence[_Class],
    before: Sequence[set[Edge]],
    position: Mapping[int, float],
) -> Loop | None:
    """Return one loop without inner ones if that makes the iterations of all ranks nearly equal.

    Ranks that leave out different parts of each iteration (the corners of a sweep whose direction
    changes) show cycles that are no loops: their numbers of iterations differ from rank to rank.
    """
    inside = _local_members(comp, classes)
    nested = _spread(Loop([loop]), inside)
    if not nested:
        return None
    flat = Loop(list(_transition_order(comp, classes, before, position)))
    inner = any(isinstance(c, Loop) for c in loop.children)
    if _spread(Loop([flat]), inside) > min(_EQUAL_TURNS, nested / 2 if inner else 1.0):
        return None
    # Two orders of a loop without inner ones: that which needs fewer turns.
    return flat if inner or sum(flat.turns.values()) < sum(loop.turns.values()) else None


def _inside(edge: Edge, comp: set[int]) -> Edge:
    return (edge[0] if edge[0] in comp else START, edge[1] if edge[1] in comp else END)


def _spread(root: Loop, members: Mapping[Any, Mapping[Edge, int]]) -> float:
    """Return how much the iterations differ between ranks, relative, summed over loops and counts.

    A rank that executes nothing directly in a loop says nothing about its turns.
    """
    count_turns(root, members)
    nodes_of = {m: {v for e in counts for v in e} for m, counts in members.items()}
    spread = 0.0
    for loop in root.loops():
        if loop is root:
            continue
        own_nodes = set(loop.own_nodes())
        values: dict[Any, set[int]] = {}
        for m, t in loop.turns.items():
            if own_nodes & nodes_of[m]:
                values.setdefault(m[0] if isinstance(m, tuple) else None, set()).add(t)
        spread += max((1 - min(v) / max(v) for v in values.values()), default=0.0)
    return spread


def _transition_order(
    comp: set[int],
    classes: Sequence[_Class],
    active: Sequence[set[Edge]],
    position: Mapping[int, float],
) -> list[int]:
    """Return an order of a component's nodes with the fewest backward transitions of ``active``."""
    weight: dict[Edge, int] = {}
    for c, edges in zip(classes, active, strict=True):
        for e in edges:
            if e[0] != e[1]:
                weight[e] = weight.get(e, 0) + c.total[e]
    return least_backward(sorted(comp, key=lambda v: (position[v], v)), weight)


def _one_loop(comp: set[int], classes: Sequence[_Class]) -> Loop | None:
    """Take one level of back edges out of ``comp`` in every class."""
    closer = _closer(comp, classes)
    removed: list[tuple[_Class, set[Edge]]] = []
    for cls in classes:
        local = cls.inside(comp)
        if closer is not None:
            removed.append((cls, {e for e in local if e[0] == closer}))
            continue
        touched = {v for e in cls.near(comp) for v in e if v in comp}
        for scc in strongly_connected(touched, local):
            if cyclic(scc, local):
                inside = {e for e in local if e[0] in scc and e[1] in scc}
                removed.append((cls, _outer_back_edges(scc, cls, inside)))
    if not removed:
        return None
    for cls, back in removed:
        cls.active -= back
    return Loop()


def _closer(comp: set[int], classes: Sequence[_Class]) -> int | None:
    """Return the node that ends every iteration of a loop that ranks enter at different places.

    All ranks execute it, those of one process count equally often, and it leads to nothing in
    the component but its entries: the Allreduce at the end of a step. Where several do, the one
    executed least is of the outermost loop.
    """
    candidates: dict[int, int] = {}
    first = True
    headers: set[int] = set()
    times: dict[tuple[int, Any], int] = {}
    for cls in classes:
        near = cls.near(comp)
        touched = {v for e in near for v in e if v in comp}
        if not touched:
            continue
        local = cls.inside(comp)
        entries = {e[1] for e in near if e[1] in comp and e not in local}
        headers |= entries
        out: dict[int, set[int]] = {}
        for a, b in local:
            out.setdefault(a, set()).add(b)
        mine = {v for v in touched if v in out and out[v] <= entries}
        for m, counts in zip(cls.members, cls.counts, strict=True) if mine else ():
            for v, k in _times(mine, near, counts).items():
                if times.setdefault((v, m[0] if isinstance(m, tuple) else None), k) != k:
                    mine.discard(v)
        total = _times(mine, near, cls.total)
        both = {v: candidates[v] + k for v, k in total.items() if v in candidates}
        candidates, first = total if first else both, False
    if len(headers) < 2 or not candidates:
        return None
    return min(candidates, key=lambda v: (candidates[v], v))


def _times(
    nodes: Collection[int], near: Iterable[Edge], counts: Mapping[Edge, int]
) -> dict[int, int]:
    """Return how often nodes are executed; near: the transitions to them, among others."""
    out = dict.fromkeys(nodes, 0)
    for edge in near:
        if edge[1] in out:
            out[edge[1]] += counts[edge]
    return out


def _outer_back_edges(scc: set[int], cls: _Class, local: set[Edge]) -> set[Edge]:
    """Return the back edges of the outermost loop of one class's component."""
    entry: dict[int, int] = {}
    for e in cls.near(scc):
        if e[1] in scc and e not in local:
            entry[e[1]] = entry.get(e[1], 0) + cls.total[e]
    header = max(sorted(entry), key=lambda v: entry[v]) if entry else min(scc)
    pred: dict[int, list[int]] = {}
    for a, b in local:
        pred.setdefault(b, []).append(a)
    tails = sorted(pred.get(header, []))
    natural = {a: natural_loop(a, header, pred) for a in tails}
    widest = max(natural.values(), key=len)
    outer = {a for a in tails if len(natural[a]) == len(widest)}
    turns = sum(entry.values()) + sum(cls.total[(a, header)] for a in outer)
    for a in sorted(set(tails) - outer, key=lambda a: -len(natural[a])):
        inner = natural[a] < widest and cls.total[(a, header)] >= turns
        if not inner:  # taken less than once per iteration: the outer loop with a guard
            outer.add(a)
            turns += cls.total[(a, header)]
    return {(a, header) for a in outer}


def _order_items(
    items: list[tuple[set[int], int | Loop]],
    union: set[Edge],
    position: Mapping[int, float],
    code: Mapping[int, int],
) -> list[int | Loop]:
    """Order items by the union's forward transitions; free choices as the code, or by position."""
    owner = {v: i for i, (vs, _) in enumerate(items) for v in vs}
    whole = owner.keys() <= code.keys()
    place = [min((code[v] if whole else 0, position[v]) for v in vs) for vs, _ in items]
    succ: list[set[int]] = [set() for _ in items]
    indegree = [0] * len(items)
    for a, b in union:
        i, j = owner[a], owner[b]
        if i != j and j not in succ[i]:
            succ[i].add(j)
            indegree[j] += 1
    heap = [(place[i], i) for i in range(len(items)) if indegree[i] == 0]
    heapq.heapify(heap)
    waiting = set(range(len(items)))
    out: list[int | Loop] = []
    while waiting:
        if not heap:  # ranks disagree about the order: break the cycle at the earliest
            i = min(waiting, key=lambda k: place[k])
        else:
            i = heapq.heappop(heap)[1]
            if i not in waiting:
                continue
        waiting.discard(i)
        out.append(items[i][1])
        for j in succ[i]:
            indegree[j] -= 1
            if indegree[j] == 0 and j in waiting:
                heapq.heappush(heap, (place[j], j))
    return out
