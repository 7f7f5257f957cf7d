"""The process grid at one count, on which all rules are evaluated."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

#: Multiples of this, less what is whole, lie evenly wherever one stops.
_GOLDEN = (5**0.5 - 1) / 2


@dataclass(frozen=True)
class GridAt:
    """The process grid at one count: n, extents, coordinates (ndims, n).

    order: rank at each place of the grid in row-major order (None: the place itself); ranks that
    are not on the grid have coordinates of -1. stage of how many stages: where guards are
    evaluated. Rules are evaluated for all ranks, or for some (``only``): then coords are those
    of the ``ranks``, and ``whole`` is the grid of all."""

    n: int
    dims: tuple[int, ...]
    coords: np.ndarray
    order: np.ndarray | None = None
    stage: int = 0
    stages: int = 1
    layout: str = "row"
    ranks: np.ndarray | None = None
    whole: GridAt | None = None

    def only(self, ranks: np.ndarray) -> GridAt:
        """Return the grid for some of its ranks (numbers of ranks), ascending."""
        whole = self.whole or self
        return replace(self, coords=whole.coords[:, ranks], ranks=ranks, whole=whole)

    @property
    def r(self) -> np.ndarray:
        """The ranks that rules are evaluated for."""
        return np.arange(self.n) if self.ranks is None else self.ranks

    @property
    def size(self) -> int:
        """How many these are."""
        return self.n if self.ranks is None else len(self.ranks)

    def at(self, stage: int = 0, stages: int = 1) -> GridAt:
        """Return the same grid at a stage."""
        if (stage, stages) == (self.stage, self.stages):
            return self
        return replace(self, stage=stage, stages=stages)

    def rank_at(self, coords: np.ndarray) -> np.ndarray:
        """Return the ranks at ``coords``, shape (ndims, m), all inside the grid."""
        place = np.ravel_multi_index(tuple(coords), self.dims).astype(np.int64)
        result: np.ndarray = place if self.order is None else self.order[place]
        return result

    @property
    def inside(self) -> np.ndarray:
        """Which ranks are on the grid; the coordinates of the others are -1."""
        return np.asarray(self.coords[0] >= 0)

    @property
    def symbols(self) -> dict[str, int]:
        """The symbols of laws that hold for all ranks: n and the extents."""
        return {"n": self.n, **{f"p{d}": p for d, p in enumerate(self.dims)}}

    @property
    def key(self) -> tuple[Any, ...]:
        """What tells grids apart, stages left out."""
        return (self.n, self.dims, self.layout)


def standing_for_all(grid: GridAt, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Return ranks that stand for all of a grid, ascending, and how many each stands for.

    All up to ``most``; of more some of the places along each dimension. Those near its ends stand
    for themselves, so that a root or a border counts as often as there is one.
    """
    if grid.n <= most:
        return np.arange(grid.n), np.ones(grid.n)
    left, places = most, {}
    for k, d in enumerate(sorted(range(len(grid.dims)), key=lambda d: grid.dims[d])):
        each = int((left + 0.5) ** (1 / (len(grid.dims) - k)))
        places[d] = _some_places(grid.dims[d], max(each, 1))
        left = max(left // len(places[d][0]), 1)
    pairs = [places[d] for d in range(len(grid.dims))]
    coords = np.stack([c.ravel() for c in np.meshgrid(*(at for at, _ in pairs), indexing="ij")])
    weight = np.ones(1)
    for _, times in pairs:
        weight = np.multiply.outer(weight, times).ravel()
    outside = np.flatnonzero(~grid.inside)
    at, times = _some_places(len(outside), most)
    ranks = np.concatenate([grid.rank_at(coords), outside[at]])
    order = np.argsort(ranks)
    return ranks[order], np.concatenate([weight, times])[order]


def _some_places(extent: int, number: int) -> tuple[np.ndarray, np.ndarray]:
    """Return about ``number`` places of an extent, and how many each stands for.

    A quarter of them at each end, for themselves; those between fill it evenly, whatever repeats.
    """
    if extent <= number:
        return np.arange(extent), np.ones(extent)
    edge = number // 4
    inside = extent - 2 * edge
    between = np.unique((np.arange(1, number - 2 * edge + 1) * _GOLDEN % 1.0 * inside).astype(int))
    at = np.concatenate([np.arange(edge), edge + between, np.arange(extent - edge, extent)])
    times = np.ones(len(at))
    times[edge : edge + len(between)] = inside / len(between)
    return at, times


def low_power(n: int) -> int:
    """Return the largest power of two that is at most ``n``."""
    return 1 << (n.bit_length() - 1)
