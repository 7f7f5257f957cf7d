"""Cycles of a directed graph: its strongly connected components, and the loops of back edges."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

Edge = tuple[int, int]


def strongly_connected(nodes: Iterable[int], edges: Iterable[Edge]) -> list[set[int]]:
    """Return the strongly connected components of nodes, in the order of their least one.

    Edges from or to other nodes are passed over.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    names = sorted(nodes)
    at = {v: k for k, v in enumerate(names)}
    inner = [(at[a], at[b]) for a, b in edges if a in at and b in at and a != b]
    if not inner:
        return [{v} for v in names]
    graph = coo_array(([1] * len(inner), tuple(zip(*inner, strict=True))), (len(at), len(at)))
    components: dict[int, set[int]] = {}
    for v, label in zip(names, connected_components(graph, connection="strong")[1], strict=True):
        components.setdefault(int(label), set()).add(v)
    return list(components.values())


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
