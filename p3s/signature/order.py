"""The order of things that follow each other, with the least weight against it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Edge = tuple[int, int]
#: Up to so many things the best order is found exactly.
_EXACT_ORDER = 10


def least_backward(nodes: Sequence[int], weight: Mapping[Edge, int]) -> list[int]:
    """Return an order of nodes in which few pairs (a, b) of weight have a behind b.

    Exact for few nodes; for more the best of several local searches, of which the given order
    is a start and decides ties.
    """
    start = list(nodes)
    if len(start) <= _EXACT_ORDER:
        return _exact_order(start, weight)
    net = dict.fromkeys(start, 0)
    for (a, b), k in weight.items():
        net[a] += k
        net[b] -= k
    tries = [
        _local_order(order, weight)
        for order in (start, start[::-1], sorted(start, key=lambda v: -net[v]))
    ]
    return min(tries, key=lambda t: t[0])[1]


def _exact_order(nodes: list[int], weight: Mapping[Edge, int]) -> list[int]:
    """Return the order with the least weight backward (dynamic programming over subsets)."""
    size = len(nodes)
    # cost[i][j]: weight of the transitions from j to i, backward when i is placed before j
    cost = [[weight.get((b, a), 0) for b in nodes] for a in nodes]
    best: list[tuple[int, int]] = [(0, -1)] * (1 << size)
    for chosen in range(1, 1 << size):
        options = []
        for i in range(size):
            if chosen >> i & 1:
                before = chosen & ~(1 << i)
                back = sum(cost[j][i] for j in range(size) if before >> j & 1)
                options.append((best[before][0] + back, -i))
        total, last = min(options)
        best[chosen] = (total, -last)
    order = []
    left = (1 << size) - 1
    while left:
        last = best[left][1]
        order.append(nodes[last])
        left &= ~(1 << last)
    return order[::-1]


def _local_order(order: list[int], weight: Mapping[Edge, int]) -> tuple[int, list[int]]:
    """Return an order that no move of a single node improves, with its backward weight."""
    into = dict.fromkeys(order, 0)
    # What it costs v more to stand behind u than before it; all others leave the cost as it is.
    behind: dict[int, dict[int, int]] = {v: {} for v in order}
    for (a, b), k in weight.items():
        if a != b:
            into[b] += k
            behind[a][b] = behind[a].get(b, 0) + k
            behind[b][a] = behind[b].get(a, 0) - k
    place = {v: k for k, v in enumerate(order)}
    for _ in range(len(order)):
        moved = False
        for v in list(order):
            at = place[v]
            # Cost of v at place 0: everything that leads to v comes from behind it.
            cost = best = here = into[v]
            where = 0
            for k, change in sorted(
                (place[u] - (place[u] > at), change) for u, change in behind[v].items()
            ):
                cost += change
                if k < at:
                    here = cost
                if cost < best:
                    best, where = cost, k + 1
            if best < here:
                order = order[:at] + order[at + 1 :]
                order.insert(where, v)
                place = {v: k for k, v in enumerate(order)}
                moved = True
        if not moved:
            break
    return sum(k for (a, b), k in weight.items() if place[a] > place[b]), order
