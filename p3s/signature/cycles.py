"""Cycles of a directed graph: its strongly connected components, and the loops of back edges."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

Edge = tuple[int, int]


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


def adjacency(nodes: set[int], edges: Iterable[Edge]) -> dict[int, list[int]]:
    """Return the successors of nodes among themselves, ascending."""
    succ: dict[int, list[int]] = {v: [] for v in nodes}
    for a, b in edges:
        if a in succ and b in succ:
            succ[a].append(b)
    for v in succ:
        succ[v].sort()
    return succ


def cyclic(comp: set[int], edges: set[Edge]) -> bool:
    """Tell whether a strongly connected component has a cycle."""
    return len(comp) > 1 or any((v, v) in edges for v in comp)


def natural_loop(tail: int, head: int, pred: Mapping[int, list[int]]) -> set[int]:
    """Return the nodes that reach the tail of a back edge without its head, and both."""
    loop, stack = {head}, [tail]
    while stack:
        v = stack.pop()
        if v not in loop:
            loop.add(v)
            stack += pred.get(v, [])
    return loop
