"""The process grid at one count, on which all rules are evaluated."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np


@dataclass(frozen=True)
class GridAt:
    """The process grid at one count: n, extents, coordinates (ndims, n).

    order: rank at each place of the grid in row-major order (None: the place itself); ranks that
    are not on the grid have coordinates of -1. stage of how many stages, turn: where guards
    are evaluated. Rules are evaluated for all ranks, or for some (``only``): then coords are those
    of the ``ranks``, and ``whole`` is the grid of all."""

    n: int
    dims: tuple[int, ...]
    coords: np.ndarray
    order: np.ndarray | None = None
    stage: int = 0
    stages: int = 1
    turn: int = 0
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

    def at(self, stage: int = 0, stages: int = 1, turn: int = 0) -> GridAt:
        """Return the same grid at a stage and a turn."""
        if (stage, stages, turn) == (self.stage, self.stages, self.turn):
            return self
        return replace(self, stage=stage, stages=stages, turn=turn)

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
    def key(self) -> tuple[Any, ...]:
        """What tells grids apart, stages and iterations left out."""
        return (self.n, self.dims, self.layout)


def low_power(n: int) -> int:
    """Return the largest power of two that is at most ``n``."""
    return 1 << (n.bit_length() - 1)
