"""Orders in which the cells of a grid are visited: tiles, tilts, space-filling curves.

A grid is one of ranks or of nodes; cells are numbered with the last dimension fastest. An order is
the cells' numbers in the order of their visit.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from p3s.base.arrays import Ints
from p3s.base.errors import P3SError


def rows(dims: Sequence[int]) -> Ints:
    """Visit cells in the order of their numbers."""
    return np.arange(math.prod(dims), dtype=np.int64)


def turned(dims: Sequence[int], axes: Sequence[int]) -> Ints:
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


def tiled(dims: Sequence[int], tiles: Sequence[Sequence[int]]) -> Ints:
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


def tilted(dims: Sequence[int], along: int, across: int, step: int) -> Ints:
    """Visit rows of dimension ``across`` from a place that moves by ``step`` along another one."""
    if along == across:
        raise P3SError("a tilt is of one dimension along another one")
    at = _coordinates(dims)
    at[across] = (at[across] + step * at[along]) % dims[across]
    return np.asarray(np.ravel_multi_index(tuple(at), tuple(dims)), dtype=np.int64)


def morton(dims: Sequence[int]) -> Ints:
    """Visit cells by the bits of their coordinates, interleaved (Z order)."""
    return np.argsort(_interleaved(_coordinates(dims), _bits(dims)), kind="stable")


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
    return np.argsort(_interleaved(at ^ change, bits), kind="stable")


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


def _interleaved(at: Ints, bits: int) -> Ints:
    """Return numbers of the bits of all coordinates, the highest first."""
    if bits * len(at) > 62:
        raise P3SError("a grid of this size has no curve; take tiles")
    found = np.zeros(at.shape[1], dtype=np.int64)
    for level in reversed(range(bits)):
        for row in at:
            found = found << 1 | (row >> level) & 1
    return found


def _times(numbers: Sequence[int]) -> str:
    return " x ".join(map(str, numbers))
