"""Placements that are worked out from the traffic: parts that talk much together, then swaps.

Nodes are halved again and again where the network is thinnest, and ranks with them: KaHIP (Sanders
and Schulz) cuts the graph of their traffic so that few bytes pass between the halves. Swaps of two
ranks then make a cost smaller that the caller gives, such as a predicted time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from p3s.base.arrays import Bools, Floats, Ints
from p3s.base.errors import P3SError
from p3s.machine.topology.direct import Torus
from p3s.machine.topology.fabric import Fabric
from p3s.methods.placement.allocation import Allocation
from p3s.methods.placement.phases import Traffic, sums
from p3s.program.mapping import RankMap, rank_map

#: Tables of this many nodes squared are made at most.
MOST_NODES = 2048
#: Sums over nodes cubed that swaps take at most.
_WORK = 1 << 30
_SWEEPS = 8


def distances_of(fabric: Fabric, at: Ints) -> Floats:
    """Return the links between each two of some nodes of a network."""
    number = len(at)
    one, other = np.repeat(at, number), np.tile(at, number)
    return fabric.distances(one, other).reshape(number, number).astype(np.float64)


def nearer_changed(sent: tuple[Floats, Floats], halves: tuple[Ints, Ints], apart: Floats) -> bool:
    """Tell whether two groups of ranks are nearer to the rest if they change their nodes.

    ``sent``: bytes between each group and every node, now as far as ranks are spread evenly over
    their nodes. ``halves``: nodes of each group.
    """
    near = [apart[half].mean(axis=0) for half in halves]
    return bool((sent[0] - sent[1]) @ (near[0] - near[1]) > 0)


def swapped_nodes(between: Floats, apart: Floats, slots: Ints) -> Ints:
    """Return the node that all ranks of each node go to, for fewer bytes times links.

    ``between``: bytes from node to node, both ways together. Only nodes with as many slots change.
    """
    number = len(slots)
    goes = np.arange(number)
    sent = between.copy()
    for _ in range(min(_SWEEPS, _WORK // max(number, 1) ** 3)):
        moved = False
        for one in range(number):
            gain = _gains(sent, apart, one)
            gain[slots != slots[one]] = 0.0
            other = int(gain.argmax())
            if gain[other] > 1e-9 * max(float(sent[one].sum()), 1.0):
                pair = [one, other]
                sent[pair] = sent[pair[::-1]]
                sent[:, pair] = sent[:, pair[::-1]]
                goes[pair] = goes[pair[::-1]]
                moved = True
        if not moved:
            break
    return np.argsort(goes)


def _gains(sent: Floats, apart: Floats, one: int) -> Floats:
    """Return by how much bytes times links fall if a node changes its ranks with each other one."""
    change = np.einsum("bk,bk->b", sent[one] - sent, apart - apart[one])
    return np.asarray(-change - 2.0 * sent[one] * apart[one], dtype=np.float64)


BISECTED, ARRANGED = "bisected", "bisected, arranged"
#: Weights of the partitioner are integers of 32 bits, also their sum.
_WHOLE = 1 << 29
#: By how much its parts may differ; exact ones take it long, and they are evened out here.
_UNEVEN = 0.03

Cost = Callable[[RankMap], float]


@dataclass(frozen=True, eq=False)
class _Graph:
    """Bytes between ranks, both ways together: of vertex v ``to[start[v]:start[v + 1]]``."""

    start: Ints
    to: Ints
    weight: Floats

    @property
    def vertex(self) -> Ints:
        """Vertex of each entry of ``to``."""
        return np.repeat(np.arange(len(self.start) - 1), np.diff(self.start))

    def part(self, vertices: Ints) -> _Graph:
        """Return the graph of some vertices, numbered in their order."""
        place = np.full(len(self.start) - 1, -1, dtype=np.int64)
        place[vertices] = np.arange(len(vertices))
        first, second = place[self.vertex], place[self.to]
        kept = (first >= 0) & (second >= 0)
        return _graph(len(vertices), first[kept], second[kept], self.weight[kept])


@dataclass(frozen=True, eq=False)
class _Job:
    """What stays the same in all halves; ``at``: number of each node in the network."""

    where: Allocation
    fabric: Fabric
    at: Ints
    seed: int


def bisect_ranks(
    traffic: Traffic, where: Allocation, fabric: Fabric, seed: int = 0, *, arranged: bool = False
) -> RankMap:
    """Return ranks placed by halving the network and their traffic alike.

    ``arranged``: halves go nearer to what they talk to, and nodes then exchange their ranks while
    that makes bytes times links less; not done with more than MOST_NODES. Errors: UsageError where
    there is no room, P3SError for nodes that the network does not have and without KaHIP.
    """
    where.check(traffic.ranks)
    apart = traffic.source != traffic.dest
    first, second = traffic.source[apart], traffic.dest[apart]
    whole = _graph(
        where.room,  # slots that stay empty are ranks without traffic
        np.concatenate([first, second]),
        np.concatenate([second, first]),
        np.tile(traffic.volume[apart] + traffic.messages[apart], 2).astype(np.float64),
    )
    at = fabric.numbers(where.hosts)
    arranged = arranged and 1 < where.nodes <= MOST_NODES
    apart = distances_of(fabric, at) if arranged else None
    node_of = _halve_network(whole, _Job(where, fabric, at, seed), apart)
    if apart is not None:
        node_of = swapped_nodes(_between(whole, node_of, where), apart, where.slots)[node_of]
    kind = BISECTED if apart is None else ARRANGED
    return rank_map(kind, node_of[: traffic.ranks], where.hosts)


def _between(graph: _Graph, node_of: Ints, where: Allocation) -> Floats:
    """Return the bytes from node to node, none from a node to itself."""
    number = where.nodes
    key = node_of[graph.vertex] * number + node_of[graph.to]
    found = sums(key, graph.weight, number**2).reshape(number, number)
    np.fill_diagonal(found, 0.0)
    return found


def improve_by_swaps(
    placed: RankMap, cost: Cost, trials: int, seed: int = 0
) -> tuple[RankMap, float]:
    """Return a placement that swaps make cheaper, and its cost.

    In turns two ranks of different nodes are swapped, and all ranks of two nodes that have as many.
    """
    rng = np.random.default_rng(seed)
    best, least = placed, cost(placed)
    for trial in range(trials):
        one, other = rng.integers(0, placed.n, 2).tolist()
        node_of = _swap_ranks(best, one, other, whole=trial % 2 == 1)
        if node_of is None:
            continue
        tried = rank_map(f"{placed.kind}, swapped", node_of, placed.names)
        found = cost(tried)
        if found < least:
            best, least = tried, found
    return best, least


def _swap_ranks(placed: RankMap, one: int, other: int, whole: bool) -> Ints | None:
    """Return nodes with two ranks, or all of their nodes' ranks, swapped; None: it cannot be."""
    first, second = int(placed.node_of[one]), int(placed.node_of[other])
    if first == second or (whole and placed.sizes[first] != placed.sizes[second]):
        return None
    node_of = placed.node_of.copy()
    if whole:
        node_of[placed.node_of == first], node_of[placed.node_of == second] = second, first
    else:
        node_of[[one, other]] = second, first
    return node_of


def _halve_network(whole: _Graph, job: _Job, apart: Floats | None) -> Ints:
    """Return the node of each rank; all parts of one size are halved before smaller ones are.

    ``apart``: links between nodes; of two halves each then goes nearer to what it talks to.
    """
    parts = _Parts(whole, job.where.room, job.where.nodes)
    waiting = deque([(whole, np.arange(job.where.room), np.arange(job.where.nodes))])
    while waiting:
        graph, ranks, nodes = waiting.popleft()
        if len(nodes) == 1:
            continue
        halves = _two(nodes, job.fabric, job.at)
        slots = [int(job.where.slots[half].sum()) for half in halves]
        first = _cut(graph, slots[0], job.seed)
        if apart is not None and slots[0] == slots[1]:
            sent = parts.sent(ranks[first]), parts.sent(ranks[~first])
            if nearer_changed(sent, halves, apart):
                first = ~first
        for side, half in zip((first, ~first), halves, strict=True):
            parts.put(ranks[side], half)
            waiting.append((graph.part(np.flatnonzero(side)), ranks[side], half))
    return parts.of_nodes[parts.of_ranks]


class _Parts:
    """Which ranks are on which nodes so far: ``of_ranks``: part of each, ``of_nodes``: its node.

    A part is known by its first node once it has one only.
    """

    def __init__(self, graph: _Graph, ranks: int, nodes: int) -> None:
        self._graph = graph
        self.of_ranks = np.zeros(ranks, dtype=np.int64)
        self.of_nodes = np.zeros(1, dtype=np.int64)
        self._part = np.zeros(nodes, dtype=np.int64)

    def put(self, ranks: Ints, nodes: Ints) -> None:
        """Make a part of its own of some ranks and nodes."""
        number = len(self.of_nodes)
        self.of_ranks[ranks], self._part[nodes] = number, number
        self.of_nodes = np.append(self.of_nodes, nodes[0])

    def sent(self, ranks: Ints) -> Floats:
        """Return the bytes between ranks and every node; those of a part go to all of its nodes
        alike, what stays in the part of the ranks nowhere."""
        start, number = self._graph.start[ranks], np.diff(self._graph.start)[ranks]
        rows = np.repeat(start - np.cumsum(number) + number, number) + np.arange(number.sum())
        part = self.of_ranks[self._graph.to[rows]]
        found = sums(part, self._graph.weight[rows], len(self.of_nodes))
        found[self.of_ranks[ranks[:1]]] = 0.0
        share = found / np.maximum(np.bincount(self._part, minlength=len(found)), 1)
        return np.asarray(share[self._part], dtype=np.float64)


def _two(nodes: Ints, fabric: Fabric, at: Ints) -> tuple[Ints, Ints]:
    """Return nodes in two parts: halves of the longest side of a torus, else whole components.

    A level with several components is cut between these, the highest one first.
    """
    if isinstance(fabric, Torus):
        sides = np.stack(np.unravel_index(at[nodes], fabric.dims[::-1]))
        axis = int(np.argmax([len(np.unique(side)) for side in sides]))
        order = nodes[np.argsort(sides[axis], kind="stable")]
        return order[: len(order) // 2], order[len(order) // 2 :]
    for level in reversed(fabric.levels()):
        names, of = np.unique(level.of[at[nodes]], return_inverse=True)
        if len(names) > 1:
            low = of.ravel() < len(names) // 2
            return nodes[low], nodes[~low]
    return nodes[: len(nodes) // 2], nodes[len(nodes) // 2 :]


def _cut(graph: _Graph, size: int, seed: int) -> Bools:
    """Return which ranks are in the first part, ``size`` of them."""
    number = len(graph.start) - 1
    if not len(graph.to):
        return np.arange(number) < size
    weights = np.maximum(np.rint(graph.weight * (_WHOLE / graph.weight.sum())), 1).astype(np.int64)
    parts = _partition_graph(graph, weights, seed)
    first = np.asarray(parts, dtype=np.int64) == 0
    if abs(int(first.sum()) - size) > abs(number - int(first.sum()) - size):
        first = ~first
    return _balance_parts(graph, first, size)


def _partition_graph(graph: _Graph, weights: Ints, seed: int) -> list[int]:
    try:
        import kahip
    except ImportError as error:
        raise P3SError(
            "cutting the traffic needs KaHIP, which is not installed; pip install 'p3s[placement]'"
        ) from error
    ones = [1] * (len(graph.start) - 1)
    _, parts = kahip.kaffpa(
        ones, graph.start.tolist(), weights.tolist(), graph.to.tolist(), 2, _UNEVEN, True, seed,
        kahip.ECO,
    )  # fmt: skip
    return list(parts)


def _balance_parts(graph: _Graph, first: Bools, size: int) -> Bools:
    """Move those ranks to the other side that cost the least, until the first part has its size."""
    vertex, side = graph.vertex, first.copy()
    while (extra := int(side.sum()) - size) != 0:
        same = side[vertex] == side[graph.to]
        loss = sums(vertex, np.where(same, graph.weight, -graph.weight), len(side))
        movable = np.flatnonzero(side == (extra > 0))
        side[movable[int(loss[movable].argmin())]] ^= True
    return side


def _graph(number: int, first: Ints, second: Ints, weight: Floats) -> _Graph:
    """Return the graph of rows, those of the same two vertices added up."""
    key, place = np.unique(first * number + second, return_inverse=True)
    start = np.zeros(number + 1, dtype=np.int64)
    np.cumsum(np.bincount(key // number, minlength=number), out=start[1:])
    return _Graph(start, key % number, sums(place.ravel(), weight, len(key)))
