"""Rival laws of a size: equations that fit as well, and where they differ."""

from __future__ import annotations

import numpy as np

from p3s.laws.expr import Expr, symbols_of
from p3s.laws.whole import evaluate_int
from p3s.model.grid.guards import GridAt
from p3s.model.law_types import CountLaw, SizeLaw
from p3s.model.sizes.blocks import differs

#: Iterations that are compared.
_TURNS = 8


def _of_places(expr: Expr) -> bool:
    """Tell whether a law asks for a place on the grid, which not every rank may have."""
    return any(name[0] in "cq" for name in symbols_of(expr))


def differ_at(law: SizeLaw | CountLaw, grid: GridAt) -> bool:
    """Return whether a law and one of its rivals give different values on a grid."""
    extents = {"n": grid.n, **{f"p{d}": p for d, p in enumerate(grid.dims)}}
    for rival in law.rivals or ():
        if rival.cut is not None:
            symbol, kind, extent, other_kind, other_extent = rival.cut
            if differs(kind, extent, other_kind, other_extent, extents[symbol]):
                return True
            continue
        for t in range(min(_TURNS, max(grid.dims))):
            env = {k: np.full(grid.n, v) for k, v in extents.items()}
            env |= {"r": np.arange(grid.n), "s": np.zeros(grid.n), "t": np.full(grid.n, t)}
            for d, p in enumerate(grid.dims):
                env |= {f"c{d}": grid.coords[d], f"q{d}": (grid.coords[d] + 1) % p}
            laws = (law.expr or [], rival.expr or [])
            own, other = (evaluate_int(e, env, undefined=-1) for e in laws)
            apart = np.broadcast_to(own != other, grid.n)
            if np.any(apart & grid.inside if any(map(_of_places, laws)) else apart):
                return True
    return False
