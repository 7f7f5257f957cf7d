"""Rival relations: others that lead to the traced partners, to be asked at larger counts."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np

from p3s.model.grid.at import GridAt, Guard, standing_for_all
from p3s.model.memory import Memory
from p3s.model.partners.communicator_laws import CommunicatorLaw
from p3s.model.partners.infer_partners import Explanation, candidates, explaining
from p3s.model.partners.pairs import Pairs
from p3s.model.partners.relation import MAX_REACH, Relation, Shift
from p3s.model.partners.stencil import MOST_CELLS, as_often, at_stage, leads, partners

#: What a rival costs more at most, and how many are kept.
_WITHIN, _MOST = 1.3, 6
#: Up to so many ranks all are asked for their partners.
_ALL = 8192
#: Pairs of relations at counts.
_REACHED: Memory[np.ndarray] = Memory(MOST_CELLS, np.size)


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
    near: dict[Relation, float] = {}
    for cost, rel in candidates(pairs, axes):
        if cost <= found.cost + _WITHIN:
            near.setdefault(rel, max(cost - found.cost, 0.0))
    for rel in _shifts(pairs[-1]):
        near.setdefault(rel, 0.0)
    whole = all(leads(found.relations, p) for p in pairs)
    often = all(as_often(found.relations, p) for p in pairs)
    alike = [
        rel
        for rel in explaining([rel for rel in near if [rel] != found.relations], pairs)
        if all(
            leads([rel], p, everybody=whole) and (as_often([rel], p) or not often) for p in pairs
        )
    ]
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


def enumerate_pairs(rel: Relation, g: GridAt, guards: Sequence[Guard] = ()) -> np.ndarray:
    """Return the distinct pairs of a relation at one count as numbers, rank * n + partner.

    guards: only those that one of them holds for. Of many thousand ranks, pairs of some.
    """
    if g.n > _ALL and g.ranks is None:
        g = g.only(standing_for_all(g, _ALL)[0])
    if guards or g.ranks is not None:
        return _enumerate_pairs(rel, g, guards)
    return _REACHED.of(
        (*g.key, rel), lambda: _enumerate_pairs(rel, g)
    )  # nodes have the same rivals


def _enumerate_pairs(rel: Relation, g: GridAt, guards: Sequence[Guard] = ()) -> np.ndarray:
    table = partners(rel, g)
    there = table >= 0
    for s, row in enumerate(table if guards else ()):
        here = at_stage(rel, g, s, len(table))
        there[s] &= np.any([guard.holds(here, row) for guard in guards], axis=0)
    codes: np.ndarray = (g.r * g.n + table)[there]
    codes.sort()
    first = np.ones(len(codes), dtype=bool)
    np.not_equal(codes[1:], codes[:-1], out=first[1:])
    codes = codes[first]
    codes.setflags(write=False)
    return codes
