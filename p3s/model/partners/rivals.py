"""Rival relations: others that lead to the traced partners, to be asked at larger counts."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np

from p3s.model.grid.at import GridAt, Guard
from p3s.model.partners.communicator_laws import CommunicatorLaw
from p3s.model.partners.infer_partners import Explanation, candidates
from p3s.model.partners.pairs import Pairs
from p3s.model.partners.relation import MAX_REACH, Relation, Shift
from p3s.model.partners.stencil import MOST_CELLS, at_stage, partners

#: What a rival costs more at most, and how many are kept.
_WITHIN, _MOST = 1.3, 6
#: Up to so many ranks all are asked for their partners; those at the ends always.
_ALL, _ENDS = 8192, 256
#: Pairs of relations at counts.
_REACHED: dict[tuple[object, ...], np.ndarray] = {}


def rival_relations(
    found: Explanation, pairs: Sequence[Pairs], axes: Sequence[CommunicatorLaw]
) -> dict[Relation, float]:
    """Return the single relations that have all pairs of the ranks of a node and no others, each
    with what it costs more than those found, in relations; at least 0.

    Where those found have as many messages for each way to a partner, a rival has, too. Where
    those found say by themselves which ranks take part, as borders do, so does a rival: one that
    needs a guard beside it is no rule that anyone writes.
    """
    if not found.relations or found.unexplained:
        return {}
    traced = [np.unique(p.rank * p.grid.n + p.peer) for p in pairs]
    near: dict[Relation, float] = {}
    for cost, rel in candidates(pairs, axes):
        if cost <= found.cost + _WITHIN:
            near.setdefault(rel, max(cost - found.cost, 0.0))
    near |= {rel: 0.0 for rel in _shifts(pairs[-1]) if rel not in near}
    others = [rel for rel in near if [rel] != found.relations]
    alike = [rel for rel in others if _leads(rel, pairs, traced)]
    if _takes_part(found.relations, pairs, traced):
        alike = [rel for rel in alike if _takes_part([rel], pairs, traced)]
    if all(_as_often(found.relations, p) for p in pairs):
        alike = [rel for rel in alike if all(_as_often([rel], p) for p in pairs)]
    return {rel: near[rel] for rel in alike[:_MOST]}


def _shifts(last: Pairs) -> list[Relation]:
    """Return the shifts that lead from every rank to its partner at the largest count."""
    if not last.grid.inside.all():
        return []
    dims = np.array(last.grid.dims)
    steps = last.grid.coords[:, last.peer] - last.grid.coords[:, last.rank]
    step = np.unique(steps.T % dims, axis=0)
    if len(step) != 1 or not step.any():
        return []
    ways = [
        [(0, False)]
        if not by
        else [(x, w) for x in (by, by - p) if abs(x) <= MAX_REACH for w in (False, True)]
        for by, p in zip(step[0].tolist(), last.grid.dims, strict=True)
    ]
    return [
        Shift(vec=vec, wrap=wrap)
        for vec, wrap in (zip(*way, strict=True) for way in product(*ways))
    ]


def _leads(rel: Relation, pairs: Sequence[Pairs], traced: Sequence[np.ndarray]) -> bool:
    return all(
        np.array_equal(_of_ranks(reached(rel, p.grid), p), codes)
        for p, codes in zip(reversed(pairs), reversed(traced), strict=True)
    )


def _takes_part(
    rels: Sequence[Relation], pairs: Sequence[Pairs], traced: Sequence[np.ndarray]
) -> bool:
    """Tell whether relations lead nowhere from the ranks that do not take part."""
    return all(
        np.array_equal(np.unique(np.concatenate([reached(rel, p.grid) for rel in rels])), codes)
        for p, codes in zip(pairs, traced, strict=True)
    )


def _of_ranks(codes: np.ndarray, p: Pairs) -> np.ndarray:
    """Return the pairs of ranks that take part: who does not has the same guard as now."""
    there = np.zeros(p.grid.n, dtype=bool)
    there[p.rank] = True
    return np.asarray(codes[there[codes // p.grid.n]])


def _as_often(rels: Sequence[Relation], p: Pairs) -> bool:
    """Return whether each way to a partner has as many messages as any other of the count."""
    if p.times is None:
        return True
    ways = np.zeros(len(p.rank), dtype=np.int64)
    for rel in rels:
        ways += (partners(rel, p.grid)[:, p.rank] == p.peer[None, :]).sum(axis=0)
    other = p.rank != p.peer
    each = p.times[other] / np.maximum(ways[other], 1)
    return not len(each) or bool((each == each[0]).all())


def reached(rel: Relation, g: GridAt, guards: Sequence[Guard] = ()) -> np.ndarray:
    """Return the distinct pairs of a relation at one count as numbers, rank * n + partner.

    guards: only those that one of them holds for. Of many thousand ranks, pairs of some.
    """
    if g.n > _ALL and g.ranks is None:
        g = g.only(_asked(g.n))
    if guards or g.ranks is not None:
        return _reached(rel, g, guards)
    key = (*g.key, rel)
    found = _REACHED.get(key)
    if found is None:  # nodes have the same rivals
        if len(_REACHED) * g.n > MOST_CELLS:
            _REACHED.clear()
        found = _REACHED[key] = _reached(rel, g, ())
        found.setflags(write=False)
    return found


def _reached(rel: Relation, g: GridAt, guards: Sequence[Guard]) -> np.ndarray:
    table = partners(rel, g)
    there = table >= 0
    for s, row in enumerate(table if guards else ()):
        here = at_stage(rel, g, s, len(table))
        there[s] &= np.any([guard.holds(here, row) for guard in guards], axis=0)
    codes: np.ndarray = (g.r * g.n + table)[there]
    codes.sort()
    first = np.ones(len(codes), dtype=bool)
    np.not_equal(codes[1:], codes[:-1], out=first[1:])
    return codes[first]


def _asked(n: int) -> np.ndarray:
    """Return ranks from everywhere, and those at both ends."""
    spread = np.linspace(0, n - 1, _ALL, dtype=np.int64)
    ends = np.arange(_ENDS, dtype=np.int64)
    return np.unique(np.concatenate([ends, spread, n - 1 - ends]))
