"""Folding: the loop nest of a program from the graph of transitions between its nodes.

Nothing is matched approximately: loops are the cycles of the graph, turns are counts of
transitions. Ranks with the same set of transitions form a class; one tree is built for all
classes (of all ranks and process counts). The rules for shared headers and several entries
are those of the design notes on structure (natural loops, one header per class).
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

START, END = -1, -2
Edge = tuple[int, int]


@dataclass
class Loop:
    """A loop (or, as the root, the whole program): ordered children and turns per member."""

    children: list[int | Loop] = field(default_factory=list)
    turns: dict[Hashable, int] = field(default_factory=dict)

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
    members: list[Hashable]
    counts: list[Mapping[Edge, int]]
    total: dict[Edge, int]
    active: set[Edge]


def strongly_connected(nodes: Iterable[int], succ: Mapping[int, Iterable[int]]) -> list[set[int]]:
    """Return the strongly connected components (Tarjan, iterative)."""
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    on: set[int] = set()
    stack: list[int] = []
    out: list[set[int]] = []
    for root in nodes:
        if root in index:
            continue
        work: list[tuple[int, Any]] = [(root, iter(succ.get(root, ())))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on.add(root)
        while work:
            v, it = work[-1]
            advanced = False
            for w in it:
                if w not in index:
                    index[w] = low[w] = len(index)
                    stack.append(w)
                    on.add(w)
                    work.append((w, iter(succ.get(w, ()))))
                    advanced = True
                    break
                if w in on:
                    low[v] = min(low[v], index[w])
            if advanced:
                continue
            work.pop()
            if work:
                low[work[-1][0]] = min(low[work[-1][0]], low[v])
            if low[v] == index[v]:
                comp: set[int] = set()
                while True:
                    w = stack.pop()
                    on.discard(w)
                    comp.add(w)
                    if w == v:
                        break
                out.append(comp)
    return out


def _adjacency(nodes: set[int], edges: Iterable[Edge]) -> dict[int, list[int]]:
    succ: dict[int, list[int]] = {v: [] for v in nodes}
    for a, b in edges:
        if a in succ and b in succ:
            succ[a].append(b)
    for v in succ:
        succ[v].sort()
    return succ


def _cyclic(comp: set[int], edges: set[Edge]) -> bool:
    return len(comp) > 1 or any((v, v) in edges for v in comp)


def _natural_loop(tail: int, head: int, pred: Mapping[int, list[int]]) -> set[int]:
    loop, stack = {head}, [tail]
    while stack:
        v = stack.pop()
        if v not in loop:
            loop.add(v)
            stack += pred.get(v, [])
    return loop


def fold(members: Mapping[Hashable, Mapping[Edge, int]], position: Mapping[int, float]) -> Loop:
    """Return the loop nest of all members as one tree.

    members: member (for example (np, rank)) -> transitions with counts, START and END
    included; position: node -> mean place in the run, used only where order is free.
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
    root = Loop(turns=dict.fromkeys(members, 1))
    root.children = _nest(nodes, classes, position)
    return root


def _nest(nodes: set[int], classes: Sequence[_Class],
          position: Mapping[int, float]) -> list[int | Loop]:
    union = {e for c in classes for e in c.active if e[0] in nodes and e[1] in nodes}
    comps = strongly_connected(sorted(nodes), _adjacency(nodes, union))
    items: list[tuple[set[int], int | Loop]] = []
    for comp in comps:
        if not _cyclic(comp, union):
            items.append((comp, next(iter(comp))))
            continue
        loop = _one_loop(comp, classes)
        if loop is None:  # only the orders of different ranks disagree: no loop anywhere
            for c in classes:
                c.active -= {(a, b) for a, b in c.active if a in comp and b in comp
                             and position[a] >= position[b]}
            inner = _nest(comp, classes, position)
            for child in inner:
                items.append((child.nodes() if isinstance(child, Loop) else {child}, child))
            continue
        loop.children = _nest(comp, classes, position)
        items.append((comp, loop))
    return _ordered(items, union, position)


def _one_loop(comp: set[int], classes: Sequence[_Class]) -> Loop | None:
    """Take one level of back edges out of ``comp`` in every class; count the turns."""
    turns: dict[Hashable, int] = {}
    removed: list[tuple[_Class, set[Edge]]] = []
    found = False
    for cls in classes:
        local = {e for e in cls.active if e[0] in comp and e[1] in comp}
        entries = {e for e in cls.total if e[1] in comp and e not in local}
        touched = {v for e in cls.total for v in e if v in comp}
        if not touched:
            continue
        back: set[Edge] = set()
        for scc in strongly_connected(sorted(touched), _adjacency(touched, local)):
            if _cyclic(scc, local):
                found = True
                back |= _outer_back_edges(scc, cls, {e for e in local
                                                     if e[0] in scc and e[1] in scc})
        counting = back | entries
        for m, counts in zip(cls.members, cls.counts, strict=True):
            turns[m] = sum(counts.get(e, 0) for e in counting)
        removed.append((cls, back))
    if not found:
        return None
    for cls, back in removed:
        cls.active -= back
    return Loop(turns=turns)


def _outer_back_edges(scc: set[int], cls: _Class, local: set[Edge]) -> set[Edge]:
    """Return the back edges of the outermost loop of one class's component."""
    entry: dict[int, int] = {}
    for e, k in cls.total.items():
        if e[1] in scc and e not in local:
            entry[e[1]] = entry.get(e[1], 0) + k
    header = max(sorted(entry), key=lambda v: entry[v]) if entry else min(scc)
    pred: dict[int, list[int]] = {}
    for a, b in local:
        pred.setdefault(b, []).append(a)
    tails = list(pred.get(header, []))
    natural = {a: _natural_loop(a, header, pred) for a in tails}
    widest = max(natural.values(), key=len)
    outer = {a for a in tails if len(natural[a]) == len(widest)}
    turns = sum(entry.values()) + sum(cls.total[(a, header)] for a in outer)
    for a in sorted(set(tails) - outer, key=lambda a: -len(natural[a])):
        inner = natural[a] < widest and cls.total[(a, header)] >= turns
        if not inner:  # taken less than once per turn: the outer loop with a guard
            outer.add(a)
            turns += cls.total[(a, header)]
    return {(a, header) for a in outer}


def _ordered(items: list[tuple[set[int], int | Loop]], union: set[Edge],
             position: Mapping[int, float]) -> list[int | Loop]:
    """Order items by the union's forward transitions; free choices by position."""
    owner = {v: i for i, (vs, _) in enumerate(items) for v in vs}
    place = [min(position[v] for v in vs) for vs, _ in items]
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
