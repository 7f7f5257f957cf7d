"""Rival laws of a size: equations that fit as well, and where they differ."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from p3s.laws.whole import evaluate_int
from p3s.model.grid.guards import GridAt
from p3s.model.sizes.blocks import differs

#: Iterations that are compared.
_TURNS = 8


def differ_at(law: Mapping[str, Any], grid: GridAt) -> bool:
    """Return whether a slot's law and one of its rivals give different sizes on a grid.

    Rivals are other cuts of one extent, [extent symbol, kind, extent, other kind, other extent],
    or whole equations, {"expr": ...}.
    """
    extents = {"n": grid.n, **{f"p{d}": p for d, p in enumerate(grid.dims)}}
    for rival in law["rivals"]:
        if not isinstance(rival, Mapping):
            symbol, kind, extent, other, other_extent = rival
            if differs(kind, extent, other, other_extent, extents[symbol]):
                return True
            continue
        for t in range(min(_TURNS, max(grid.dims))):
            env = {k: np.full(grid.n, v) for k, v in extents.items()}
            env |= {"r": np.arange(grid.n), "s": np.zeros(grid.n), "t": np.full(grid.n, t)}
            for d, p in enumerate(grid.dims):
                env |= {f"c{d}": grid.coords[d], f"q{d}": (grid.coords[d] + 1) % p}
            own, other = (evaluate_int(e["expr"], env, undefined=-1) for e in (law, rival))
            if np.any(own != other):
                return True
    return False
