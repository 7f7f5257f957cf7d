"""Rival laws of a size: equations that fit as well, and where they differ."""

from __future__ import annotations

import numpy as np

from p3s.laws.expr import symbols_of
from p3s.laws.whole import evaluate_int
from p3s.model.grid.guards import GridAt
from p3s.model.law_types import CountLaw, SizeLaw
from p3s.model.partners.relation import Relation
from p3s.model.partners.relations import partners
from p3s.model.sizes.blocks import differs
from p3s.model.sizes.observed import env_of

#: Iterations that are compared.
_TURNS = 8
#: Grids and relations whose calls are remembered at most.
_KNOWN_CALLS = 256


def differ_at(law: SizeLaw | CountLaw, grid: GridAt, relation: Relation | None = None) -> bool:
    """Return whether a law and one of its rivals give different values on a grid.

    relation: who calls whom at which stage.
    """
    extents = {"n": grid.n, **{f"p{d}": p for d, p in enumerate(grid.dims)}}
    exprs = []
    for rival in law.rivals or ():
        if rival.cut is None:
            exprs.append(rival.expr or [])
            continue
        symbol, kind, extent, other_kind, other_extent = rival.cut
        if differs(kind, extent, other_kind, other_extent, extents[symbol]):
            return True
    if not exprs:
        return False
    names = {name[0] for e in (law.expr or [], *exprs) if e for name in symbols_of(e)}
    inside = bool(names & {"c", "q"})  # a law of places says nothing of ranks without one
    for turn in range(min(_TURNS, max(grid.dims)) if "t" in names else 1):
        env = _everywhere(grid, relation, turn, inside)
        own = evaluate_int(law.expr or [], env, undefined=-1)
        if any(np.any(own != evaluate_int(e, env, undefined=-1)) for e in exprs):
            return True
    return False


def _everywhere(
    grid: GridAt, relation: Relation | None, turn: int, inside: bool
) -> dict[str, np.ndarray]:
    """Return the symbols of all calls, remembered: many laws are asked at one grid.

    inside: without a relation those ranks call that are on the grid, else all.
    """
    if grid.ranks is not None:
        return _calls(grid, relation, turn, inside)
    key = (*grid.key, relation, turn, inside)
    if key not in _CALLS:
        if len(_CALLS) >= _KNOWN_CALLS:
            _CALLS.clear()
        _CALLS[key] = _calls(grid, relation, turn, inside)
    return _CALLS[key]


_CALLS: dict[tuple[object, ...], dict[str, np.ndarray]] = {}


def _calls(
    grid: GridAt, relation: Relation | None, turn: int, inside: bool
) -> dict[str, np.ndarray]:
    if relation is None:
        ranks = np.flatnonzero(grid.inside) if inside else np.arange(grid.n)
        return env_of(grid, ranks, (ranks + 1) % grid.n, 0, turn)
    table = partners(relation, grid)
    stage, rank = np.nonzero(table >= 0)
    return env_of(grid, rank, table[stage, rank], stage, turn, relation)
