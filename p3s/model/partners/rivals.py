"""Rival relations: others that lead to the traced partners, to be asked at larger counts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from p3s.model.grid.at import GridAt
from p3s.model.grid.atom import Guard
from p3s.model.partners.communicator_laws import CommunicatorLaw
from p3s.model.partners.infer_partners import Explanation, candidates
from p3s.model.partners.pairs import Pairs
from p3s.model.partners.relation import Relation
from p3s.model.partners.relations import at_stage, partners

#: What a rival costs more at most, and how many are kept.
_WITHIN, _MOST = 1.3, 6


def rival_relations(
    found: Explanation, pairs: Sequence[Pairs], axes: Sequence[CommunicatorLaw]
) -> list[Relation]:
    """Return the single relations that have all pairs of a node and no others."""
    if not found.relations or found.unexplained:
        return []
    traced = [np.unique(p.rank * p.grid.n + p.peer) for p in pairs]
    near = [rel for cost, rel in candidates(pairs, axes) if cost <= found.cost + _WITHIN]
    others = [rel for rel in dict.fromkeys(near) if [rel] != found.relations]
    return [rel for rel in others if _leads(rel, pairs, traced)][:_MOST]


def _leads(rel: Relation, pairs: Sequence[Pairs], traced: Sequence[np.ndarray]) -> bool:
    return all(
        np.array_equal(reached(rel, p.grid), codes)
        for p, codes in zip(reversed(pairs), reversed(traced), strict=True)
    )


def reached(rel: Relation, g: GridAt, guards: Sequence[Guard] = ()) -> np.ndarray:
    """Return the distinct pairs of a relation at one count as numbers, rank * n + partner.

    guards: only those that one of them holds for.
    """
    table = partners(rel, g)
    there = table >= 0
    for s, row in enumerate(table if guards else ()):
        here = at_stage(rel, g, s, len(table))
        there[s] &= np.any([guard.holds(here, row) for guard in guards], axis=0)
    return np.unique((np.arange(g.n)[None, :] * g.n + table)[there])
