"""Rival laws of a size: equations that fit as well, and where they differ."""

from __future__ import annotations

import numpy as np

from p3s.laws.expr import symbols_of
from p3s.laws.whole import evaluate_int
from p3s.model.grid.guards import GridAt
from p3s.model.law_types import CountLaw, SizeLaw
from p3s.model.sizes.blocks import differs

#: Iterations that are compared.
_TURNS = 8


def differ_at(law: SizeLaw | CountLaw, grid: GridAt) -> bool:
    """Return whether a law and one of its rivals give different values on a grid."""
    extents = {"n": grid.n, **{f"p{d}": p for d, p in enumerate(grid.dims)}}
    others = []
    for rival in law.rivals or ():
        if rival.cut is None:
            others.append(rival.expr or [])
            continue
        symbol, kind, extent, other_kind, other_extent = rival.cut
        if differs(kind, extent, other_kind, other_extent, extents[symbol]):
            return True
    own = law.expr or []
    follow = bool(others) and any("t" in symbols_of(e) for e in (own, *others))
    for t in range(min(_TURNS, max(grid.dims)) if follow else len(others[:1])):
        env = {k: np.full(grid.n, v) for k, v in extents.items()}
        env |= {"r": np.arange(grid.n), "s": np.zeros(grid.n), "t": np.full(grid.n, t)}
        for d, p in enumerate(grid.dims):
            env |= {f"c{d}": grid.coords[d], f"q{d}": (grid.coords[d] + 1) % p}
        mine = evaluate_int(own, env, undefined=-1)
        if any(np.any(mine != evaluate_int(e, env, undefined=-1)) for e in others):
            return True
    return False
