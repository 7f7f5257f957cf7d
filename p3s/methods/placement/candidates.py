"""Placements worth a try: block, cyclic, tilings, tilts, space-filling curves, random ones.

A grid is one of ranks or of nodes; cells are numbered with the last dimension fastest. An order of
its cells is their numbers in the order of their visit.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from p3s.base.arrays import Ints
from p3s.base.errors import P3SError
from p3s.machine.topology.direct import Torus
from p3s.machine.topology.fabric import Fabric, Level
from p3s.methods.placement.allocation import Allocation, put
from p3s.program.mapping import BLOCK, CYCLIC, RankMap

# ---- orders of cells -------------------------------------------------------------------------


def rows(dims: Sequence[int]) -> Ints:
    """Visit cells in the order of their numbers."""
    return np.arange(math.prod(dims), dtype=np.int64)


def visit_rows(dims: Sequence[int], axes: Sequence[int]) -> Ints:
    """Visit rows of another dimension: the last of ``axes`` changes fastest."""
    return np.ascontiguousarray(rows(dims).reshape(tuple(dims)).transpose(tuple(axes))).ravel()


def snake(dims: Sequence[int]) -> Ints:
    """Visit row after row, every second one backwards, so that each step is to a neighbour."""
    order = rows(dims[-1:])
    for extent, block in zip(dims[-2::-1], _blocks(dims)[-2::-1], strict=True):
        order = np.concatenate(
            [(order if k % 2 == 0 else order[::-1]) + k * block for k in range(extent)]
        )
    return order


def visit_tiles(dims: Sequence[int], tiles: Sequence[Sequence[int]]) -> Ints:
    """Visit one tile after the other, tiles of tiles where there are several.

    ``tiles``: cells of a tile in each dimension, the smallest tile first; those after it count
    tiles of the one before. Tiles at the upper ends may be cut off.
    """
    for tile in tiles:
        if len(tile) != len(dims) or min(tile) < 1:
            raise P3SError(f"a tile of {_times(tile)} does not fit a grid of {_times(dims)}")
    at = _coordinates(dims)
    keys: list[Ints] = []
    side = np.ones(len(dims), dtype=np.int64)
    for tile in tiles:
        keys.extend(reversed(list(at // side[:, None] % np.array(tile)[:, None])))
        side = side * np.array(tile)
    keys.extend(reversed(list(at // side[:, None])))
    return np.asarray(np.lexsort(keys), dtype=np.int64)


def visit_tilted(dims: Sequence[int], along: int, across: int, step: int) -> Ints:
    """Visit rows of dimension ``across`` from a place that moves by ``step`` along another one."""
    if along == across:
        raise P3SError("a tilt is of one dimension along another one")
    at = _coordinates(dims)
    at[across] = (at[across] + step * at[along]) % dims[across]
    return np.asarray(np.ravel_multi_index(tuple(at), tuple(dims)), dtype=np.int64)


def morton(dims: Sequence[int]) -> Ints:
    """Visit cells by the bits of their coordinates, interleaved (Z order)."""
    return np.argsort(_interleave_bits(_coordinates(dims), _bits(dims)), kind="stable")


def hilbert(dims: Sequence[int]) -> Ints:
    """Visit cells along a Hilbert curve through the next cube of a power of two.

    Where the grid is that cube, each step is to a neighbour. Source: Skilling, "Programming the
    Hilbert curve", 2004.
    """
    at, bits = _coordinates(dims), _bits(dims)
    if len(dims) == 1:
        return rows(dims)
    for level in range(bits - 1, 0, -1):
        low = (1 << level) - 1
        for d in range(len(dims)):
            flips = (at[d] >> level) & 1 == 1
            swap = np.where(flips, 0, (at[0] ^ at[d]) & low)
            at[0] = np.where(flips, at[0] ^ low, at[0] ^ swap)
            at[d] ^= swap
    for d in range(1, len(dims)):
        at[d] ^= at[d - 1]
    change = np.zeros(at.shape[1], dtype=np.int64)
    for level in range(bits - 1, 0, -1):
        change ^= np.where((at[-1] >> level) & 1 == 1, (1 << level) - 1, 0)
    return np.argsort(_interleave_bits(at ^ change, bits), kind="stable")


def tiles_of(dims: Sequence[int], cells: int) -> list[tuple[int, ...]]:
    """Return the tiles of so many cells that divide a grid."""
    divisors = [[k for k in range(1, min(x, cells) + 1) if x % k == 0] for x in dims]
    return [tile for tile in itertools.product(*divisors) if math.prod(tile) == cells]


def _blocks(dims: Sequence[int]) -> list[int]:
    """Return how many cells one step in each dimension passes over."""
    return [math.prod(dims[d + 1 :]) for d in range(len(dims))]


def _coordinates(dims: Sequence[int]) -> Ints:
    return np.indices(tuple(dims), dtype=np.int64).reshape(len(dims), -1)


def _bits(dims: Sequence[int]) -> int:
    return max(max(dims) - 1, 1).bit_length()


def _interleave_bits(at: Ints, bits: int) -> Ints:
    """Return numbers of the bits of all coordinates, the highest first."""
    if bits * len(at) > 62:
        raise P3SError("a grid of this size has no curve; take tiles")
    interleaved = np.zeros(at.shape[1], dtype=np.int64)
    for level in reversed(range(bits)):
        for row in at:
            interleaved = interleaved << 1 | (row >> level) & 1
    return interleaved


# ---- placements ------------------------------------------------------------------------------

#: How many placements Jain et al. (SC13) compare of each program.
USUAL = 84
_CURVES: dict[str, Callable[[Sequence[int]], Ints]] = {
    "snake": snake,
    "z-order": morton,
    "hilbert": hilbert,
}


@dataclass(frozen=True, eq=False)
class Order:
    """A named order of ranks, or of nodes."""

    name: str
    numbers: Ints


def block_on(ranks: int, where: Allocation) -> RankMap:
    """Return consecutive ranks on each node."""
    return put(BLOCK, np.arange(ranks), np.arange(where.nodes), where)


def cyclic_on(ranks: int, where: Allocation) -> RankMap:
    """Return one rank after the other on the next node."""
    return put(CYCLIC, np.arange(ranks), np.arange(where.nodes), where, turns=True)


def random_on(ranks: int, where: Allocation, seed: int) -> RankMap:
    """Return ranks in a random order, filled into the nodes."""
    order = np.random.default_rng(seed).permutation(ranks)
    return put(f"random {seed}", order, np.arange(where.nodes), where)


def candidates(
    ranks: int,
    where: Allocation,
    *,
    grid: Sequence[int] = (),
    order: Ints | None = None,
    fabric: Fabric | None = None,
    number: int = USUAL,
    seed: int = 0,
) -> list[RankMap]:
    """Return different placements, at most ``number``, block and cyclic first.

    ``grid``: extents of the process grid, the last dimension fastest; none: ranks are only in a
    row. ``order``: rank at each place of the grid, where ranks do not follow it. ``fabric``: the
    network; tiles of nodes follow its levels, and curves its dimensions. At least a third are
    random, by ``seed``: half of these move whole nodes. Errors: UsageError where there is no room,
    P3SError where the grid is not one of these ranks.
    """
    where.check(ranks)
    if grid and math.prod(grid) != ranks:
        raise P3SError(f"a grid of {' x '.join(map(str, grid))} does not have {ranks} ranks")
    of_ranks = _rank_orders(ranks, where, grid, fabric)
    if order is not None:
        of_ranks[1:] = [Order(each.name, order[each.numbers]) for each in of_ranks[1:]]
    placements: dict[bytes, RankMap] = {}
    _keep(
        placements, _in_order(ranks, where, of_ranks, _node_orders(where, fabric)), number * 2 // 3
    )
    drawn = _draw_placements(ranks, where, of_ranks[min(1, len(of_ranks) - 1)], seed)
    _keep(placements, itertools.islice(drawn, 8 * number), number)
    return list(placements.values())


def _keep(placements: dict[bytes, RankMap], proposed: Iterable[RankMap], number: int) -> None:
    """Add placements that are not there yet, until there are enough."""
    for placed in proposed:
        if len(placements) >= number:
            return
        placements.setdefault(placed.node_of.tobytes(), placed)


def _in_order(
    ranks: int, where: Allocation, of_ranks: Sequence[Order], of_nodes: Sequence[Order]
) -> Iterator[RankMap]:
    """Yield placements that follow the grid and the network, those early in both lists first."""
    yield block_on(ranks, where)
    yield cyclic_on(ranks, where)
    pairs = itertools.product(enumerate(of_nodes), enumerate(of_ranks))
    for (_, nodes), (_, order) in sorted(pairs, key=lambda pair: 4 * pair[0][0] + pair[1][0]):
        yield _put_orders(order, nodes, where)


def _draw_placements(ranks: int, where: Allocation, order: Order, seed: int) -> Iterator[RankMap]:
    """Yield random placements without end, in turns of ranks and of whole nodes."""
    for step in itertools.count(seed):
        yield random_on(ranks, where, step)
        mixed = np.random.default_rng(step).permutation(where.nodes)
        yield _put_orders(order, Order(f"random {step}", mixed), where)


def _put_orders(ranks: Order, nodes: Order, where: Allocation) -> RankMap:
    name = ranks.name or BLOCK
    if nodes.name:
        name += f", nodes {nodes.name}"
    return put(name, ranks.numbers, nodes.numbers, where)


def _rank_orders(
    ranks: int, where: Allocation, grid: Sequence[int], fabric: Fabric | None
) -> list[Order]:
    """Return orders of ranks, tiles as large as a node first (the most cubic one before others)."""
    plain = [Order("", np.arange(ranks))]
    if len(grid) < 2:
        return plain
    orders: list[Order] = []
    ppn = int(where.slots.max())
    groups = _nodes_of_switch(where, fabric)
    for tile in sorted(tiles_of(grid, ppn), key=_surface):
        orders.append(Order(f"tiles {_times(tile)}", visit_tiles(grid, [tile])))
        orders += _curved_tiles(grid, tile)
        upper = [x // y for x, y in zip(grid, tile, strict=True)]
        for outer in sorted(tiles_of(upper, groups), key=_surface)[:2] if groups > 1 else ():
            orders.append(
                Order(f"tiles {_times(tile)} in {_times(outer)}", visit_tiles(grid, [tile, outer]))
            )
    orders += [Order(name, curve(grid)) for name, curve in _CURVES.items()]
    orders += [
        Order(f"rows of dimension {axis}", visit_rows(grid, [*_other_axes(grid, axis), axis]))
        for axis in range(len(grid) - 1)
    ]
    return plain + orders + _tilts(grid)


def _curved_tiles(grid: Sequence[int], tile: Sequence[int]) -> Iterator[Order]:
    """Yield tiles that are visited along a curve."""
    upper = [x // y for x, y in zip(grid, tile, strict=True)]
    cells = math.prod(tile)
    inside = visit_tiles(grid, [tile]).reshape(-1, cells)
    for name, curve in _CURVES.items():
        yield Order(f"tiles {_times(tile)} {name}", inside[curve(upper)].ravel())


def _tilts(grid: Sequence[int]) -> list[Order]:
    return [
        Order(f"tilt of {across} along {along} by {step}", visit_tilted(grid, along, across, step))
        for along in range(len(grid))
        for across in range(len(grid))
        for step in (1, 2)
        if along != across and grid[along] > 1 and step < grid[across]
    ]


def _node_orders(where: Allocation, fabric: Fabric | None) -> list[Order]:
    """Return orders of the allocation's nodes: as given, and along curves of a torus or mesh."""
    node_orders = [Order("", np.arange(where.nodes))]
    if not isinstance(fabric, Torus) or len(fabric.dims) < 2:
        return node_orders
    place = np.full(fabric.nodes, -1, dtype=np.int64)
    place[fabric.numbers(where.hosts)] = np.arange(where.nodes)
    dims = fabric.dims[::-1]  # its nodes are numbered with the first dimension fastest
    orders = [Order(name, curve(dims)) for name, curve in _CURVES.items()]
    for axis in range(len(dims) - 1):
        name = f"rows of dimension {len(dims) - 1 - axis}"
        orders.append(Order(name, visit_rows(dims, [*_other_axes(dims, axis), axis])))
    orders += _tilts(dims)
    for order in orders:
        nodes = place[order.numbers]
        node_orders.append(Order(order.name, nodes[nodes >= 0]))
    return node_orders


def _nodes_of_switch(where: Allocation, fabric: Fabric | None) -> int:
    """Return how many of the nodes are on one switch of the lowest level, 0 where that differs."""
    levels: tuple[Level, ...] = () if fabric is None else fabric.levels()
    if not levels or fabric is None:
        return 0
    of = levels[0].of[fabric.numbers(where.hosts)]
    sizes = np.unique(np.unique(of, return_counts=True)[1])
    return int(sizes[0]) if len(sizes) == 1 else 0


def _other_axes(dims: Sequence[int], axis: int) -> list[int]:
    return [d for d in range(len(dims)) if d != axis]


def _surface(tile: Sequence[int]) -> float:
    """Return the surface of a tile for its volume."""
    return sum(1 / x for x in tile)


def _times(numbers: Sequence[int]) -> str:
    return "x".join(map(str, numbers))
