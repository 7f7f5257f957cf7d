"""Placements that are worked out from the traffic: parts that talk much together, then swaps.

Nodes are halved again and again where the network is thinnest, and ranks with them: KaHIP (Sanders
and Schulz) cuts the graph of their traffic so that few bytes pass between the halves. Swaps of two
ranks then make a cost smaller that the caller gives, such as a predicted time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import numpy as np
from scipy.sparse import coo_array, csr_array

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
    weight = np.tile(traffic.volume[apart] + traffic.messages[apart], 2).astype(np.float64)
    ends = np.concatenate([first, second]), np.concatenate([second, first])
    # Slots that stay empty are ranks without traffic.
    whole = csr_array(coo_array((weight, ends), shape=(where.room, where.room)))
    at = fabric.numbers(where.hosts)
    if not (arranged and 1 < where.nodes <= MOST_NODES):
        node_of = _halve_network(whole, where, fabric, at, seed, None)
        return rank_map(BISECTED, node_of[: traffic.ranks], where.hosts)
    far = fabric.apart(at).astype(np.float64)
    node_of = _halve_network(whole, where, fabric, at, seed, far)
    rows, columns = whole.nonzero()
    pairs = node_of[rows] * where.nodes + node_of[columns]
    between = sums(pairs, whole.data, where.nodes**2).reshape(where.nodes, where.nodes)
    np.fill_diagonal(between, 0.0)
    node_of = swapped_nodes(between, far, where.slots)[node_of]
    return rank_map(ARRANGED, node_of[: traffic.ranks], where.hosts)


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
        cost_found = cost(tried)
        if cost_found < least:
            best, least = tried, cost_found
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


def _halve_network(
    whole: csr_array, where: Allocation, fabric: Fabric, at: Ints, seed: int, apart: Floats | None
) -> Ints:
    """Return the node of each rank; all parts of one size are halved before smaller ones are.

    ``whole``: bytes between ranks, both ways together. ``at``: number of each node in the network.
    ``apart``: links between nodes; of two halves each then goes nearer to what it talks to.
    """
    waiting = deque([(whole, np.arange(where.room), np.arange(where.nodes))])
    # The part that each rank and each node is in, known by its first node.
    of_ranks = np.zeros(where.room, dtype=np.int64)
    of_nodes = np.zeros(where.nodes, dtype=np.int64)
    while waiting:
        graph, ranks, nodes = waiting.popleft()
        if len(nodes) == 1:
            continue
        halves = _two(nodes, fabric, at)
        slots = [int(where.slots[half].sum()) for half in halves]
        first = _bisect(graph, slots[0], seed)
        if apart is not None and slots[0] == slots[1]:
            one, other = (
                _bytes_to_nodes(whole, ranks[side], of_ranks, of_nodes) for side in (first, ~first)
            )
            if nearer_changed((one, other), halves, apart):
                first = ~first
        for side, half in zip((first, ~first), halves, strict=True):
            of_ranks[ranks[side]] = of_nodes[half] = half[0]
            waiting.append((graph[side][:, side], ranks[side], half))
    return of_ranks


def _bytes_to_nodes(whole: csr_array, ranks: Ints, of_ranks: Ints, of_nodes: Ints) -> Floats:
    """Return the bytes between ranks and every node; those of a part go to all of its nodes
    alike, what stays in the part of the ranks nowhere."""
    rows = whole[ranks]
    bytes_to = sums(of_ranks[rows.indices], rows.data, len(of_nodes))
    bytes_to[of_ranks[ranks[:1]]] = 0.0
    share = bytes_to / np.maximum(np.bincount(of_nodes, minlength=len(bytes_to)), 1)
    return np.asarray(share[of_nodes], dtype=np.float64)


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


def _bisect(graph: csr_array, size: int, seed: int) -> Bools:
    """Return which ranks are in the first part, ``size`` of them."""
    number = graph.shape[0]
    if not graph.nnz:
        return np.arange(number) < size
    try:
        import kahip
    except ImportError as error:
        raise P3SError(
            "cutting the traffic needs KaHIP, which is not installed; pip install 'p3s[placement]'"
        ) from error
    weights = np.maximum(np.rint(graph.data * (_WHOLE / graph.sum())), 1).astype(np.int64)
    _, parts = kahip.kaffpa(
        [1] * number, graph.indptr.tolist(), weights.tolist(), graph.indices.tolist(), 2, _UNEVEN,
        True, seed, kahip.ECO,
    )  # fmt: skip
    first = np.asarray(parts, dtype=np.int64) == 0
    if abs(int(first.sum()) - size) > abs(number - int(first.sum()) - size):
        first = ~first
    return _balance_parts(graph, first, size)


def _balance_parts(graph: csr_array, first: Bools, size: int) -> Bools:
    """Move those ranks to the other side that cost the least, until the first part has its size."""
    side = first.copy()
    vertex, to = graph.nonzero()
    while (extra := int(side.sum()) - size) != 0:
        loss = sums(vertex, np.where(side[vertex] == side[to], graph.data, -graph.data), len(side))
        movable = np.flatnonzero(side == (extra > 0))
        side[movable[int(loss[movable].argmin())]] ^= True
    return side
