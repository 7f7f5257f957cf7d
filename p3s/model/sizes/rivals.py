"""Rival laws of a size: equations that fit as well, and where they differ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from p3s.laws.expr import symbols_of
from p3s.laws.whole import evaluate_int
from p3s.model.grid.guards import GridAt
from p3s.model.law_types import CountLaw, SizeLaw
from p3s.model.partners.relation import Relation
from p3s.model.partners.relations import partners
from p3s.model.sizes.blocks import differs
from p3s.model.sizes.observed import env_of

#: Iterations that are compared; ranks that rules are evaluated for at once; sets of calls that are
#: remembered at most.
_TURNS, _AT_ONCE, _KNOWN_CALLS = 8, 1 << 14, 64


def differ_at(law: SizeLaw | CountLaw, grid: GridAt, relation: Relation | None = None) -> bool:
    """Return whether a law and one of its rivals give different values on a grid.

    relation: who calls whom at which stage.
    """
    return bool(differ(law, [grid], relation)[0])


def differ(
    law: SizeLaw | CountLaw, grids: Sequence[GridAt], relation: Relation | None = None
) -> np.ndarray:
    """Return on which grids, of one number of dimensions, :func:`differ_at` holds."""
    found = np.zeros(len(grids), dtype=bool)
    cuts = [rival.cut for rival in law.rivals or () if rival.cut is not None]
    exprs = [rival.expr or [] for rival in law.rivals or () if rival.cut is None]
    for k, grid in enumerate(grids if cuts else ()):
        found[k] = any(differs(a, x, b, y, grid.symbols[symbol]) for symbol, a, x, b, y in cuts)
    if not exprs:
        return found
    names = {name[0] for e in (law.expr or [], *exprs) if e for name in symbols_of(e)}
    inside = bool(names & {"c", "q"})  # a law of places says nothing of ranks without one
    for batch in _batches(grids, np.flatnonzero(~found).tolist()):
        for turn in range(_TURNS if "t" in names else 1):
            asked = [k for k in batch if turn < max(grids[k].dims)]
            if not asked:
                break
            env, of_grid = _everywhere([grids[k] for k in asked], relation, turn, inside)
            own = evaluate_int(law.expr or [], env, undefined=-1)
            off = np.zeros(len(of_grid), dtype=bool)
            for e in exprs:
                off |= own != evaluate_int(e, env, undefined=-1)
            found[asked] |= np.bincount(of_grid[off], minlength=len(asked)) > 0
    return found


def _batches(grids: Sequence[GridAt], which: Sequence[int]) -> Iterator[list[int]]:
    """Yield the numbers of grids that are evaluated at once."""
    batch: list[int] = []
    ranks = 0
    for k in which:
        ranks += grids[k].n
        if batch and ranks > _AT_ONCE:
            yield batch
            batch, ranks = [], grids[k].n
        batch.append(k)
    if batch:
        yield batch


_CALLS: dict[tuple[object, ...], tuple[dict[str, np.ndarray], np.ndarray]] = {}


def _everywhere(
    grids: Sequence[GridAt], relation: Relation | None, turn: int, inside: bool
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Return the symbols of all calls on several grids, and the number of the grid of each.

    They are remembered: many laws are asked on the same grids. inside: without a relation those
    ranks call that are on the grid, else all.
    """
    key = (tuple(g.key for g in grids), relation, turn, inside)
    if key not in _CALLS:
        if len(_CALLS) >= _KNOWN_CALLS:
            _CALLS.clear()
        each = [_calls(grid, relation, turn, inside) for grid in grids]
        env = {name: np.concatenate([e[name] for e in each]) for name in each[0]}
        _CALLS[key] = env, np.repeat(np.arange(len(each)), [len(e["n"]) for e in each])
    return _CALLS[key]


def _calls(
    grid: GridAt, relation: Relation | None, turn: int, inside: bool
) -> dict[str, np.ndarray]:
    if relation is None:
        ranks = np.flatnonzero(grid.inside) if inside else np.arange(grid.n)
        return env_of(grid, ranks, (ranks + 1) % grid.n, 0, turn)
    table = partners(relation, grid)
    stage, rank = np.nonzero(table >= 0)
    return env_of(grid, rank, table[stage, rank], stage, turn, relation)
