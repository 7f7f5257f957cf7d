"""Process grids of nodes: each node has a small grid of its ranks, which are numbered together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import gcd, prod
from typing import Any

import numpy as np

from p3s.base.extents import factorisations
from p3s.model.grid.grid_rule import LAYOUTS, GridRule, coords_of
from p3s.model.grid.grids import Several

#: The most ranks of a node, and dimensions of a grid.
_MOST_RANKS, _DIMENSIONS = 64, (2, 3)
#: Rules of the grid of nodes.
_RULES = ("balanced", "balanced_up", "greedy", "greedy_up", "power2")


@dataclass(frozen=True)
class OfNodes(Several, kind="of_nodes"):
    """A grid of nodes by the rule ``rest``, each with ``order`` ranks, numbered node by node.

    layout: in which order the nodes are numbered; extent: the ranks of a node row by row (0) or
    column by column (1).
    """

    price = 0.4

    @classmethod
    def proposed(cls, ndims: int) -> Iterator[GridRule]:
        yield from ()

    def extents(self, n: int) -> tuple[int, ...] | None:
        nodes, left = divmod(n, prod(self.order))
        if left:
            return None
        found = GridRule.named(self.rest, self.ndims, tuple(range(self.ndims))).dims(nodes)
        return found and tuple(p * q for p, q in zip(found, self.order, strict=True))

    def arrangement(self) -> str:
        return f"nodes{self.order}{self.extent}{self.layout}"

    def coordinates(self, n: int, dims: tuple[int, ...]) -> np.ndarray:
        each = prod(self.order)
        nodes = tuple(p // q for p, q in zip(dims, self.order, strict=True))
        place = np.array(self.order)[:, None] * _places(nodes, n // each, self.layout == "column")
        within = _places(self.order, each, bool(self.extent))
        ranks = np.arange(n)
        found: np.ndarray = place[:, ranks // each] + within[:, ranks % each]
        return found

    def own(self) -> dict[str, Any]:
        return {"rest": self.rest}

    def how(self) -> str:
        node = "x".join(map(str, self.order))
        return f"nodes of {node} ranks numbered together, the nodes as {self.rest}"


def _places(dims: Sequence[int], n: int, column: bool) -> np.ndarray:
    """Return the coordinates of ranks counted row by row or column by column, (ndims, n)."""
    return coords_of(tuple(dims[::-1]), n)[::-1] if column else coords_of(tuple(dims), n)


def rules_of_nodes(counts: Sequence[int]) -> list[GridRule]:
    """Return the rules of grids of nodes with so many ranks that all counts are whole nodes."""
    common = gcd(*counts)
    return [
        OfNodes(len(node), node, inner, rest, layout)
        for ranks in range(2, min(common, _MOST_RANKS) + 1)
        if common % ranks == 0
        for ndims in _DIMENSIONS
        for node in factorisations(ranks, ndims)
        for rest, layout, inner in product(_RULES, LAYOUTS[:2], (0, 1))
        if OfNodes(ndims, node, inner, rest, layout).at(max(counts)) is not None
    ]
