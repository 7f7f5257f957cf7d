"""What is looked for at once is what is found one by one."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from p3s.model.grid.covers import JOINED, cheapest_covers
from p3s.model.grid.grids import BalancedGrid, Line
from p3s.model.nextcount import Question, _decisions
from p3s.model.partners import infer_partners as together
from p3s.model.partners.infer_partners import candidates
from p3s.model.partners.pairs import Pairs
from p3s.model.partners.relation import Relation, StagedRelation
from p3s.model.partners.stencil import partners, used_pairs


def some_pairs(family, seed: int) -> list[Pairs]:
    """Return half of all pairs, at random, and those of a ring."""
    rng = np.random.default_rng(seed)
    out = []
    for n in (4, 8, 16):
        there = rng.random((n, n)) < 0.1
        there[np.arange(n), (np.arange(n) + 1) % n] = True
        np.fill_diagonal(there, False)
        out.append(Pairs(family.at(n), *np.nonzero(there)))
    return out


def leads(rel: Relation, pairs: list[Pairs], loose: bool) -> bool:
    """Return of one relation whether it leads to pairs, as a whole or in stages."""
    hit, said, levels, last = 0, 0, 0, False
    for p in pairs:
        table = partners(rel, p.grid)
        there = used_pairs(p)[np.arange(p.grid.n)[None, :], table] & (table >= 0)
        last = bool(there.any())
        hit += int(there.sum())
        said += int((table[:, np.unique(p.rank)] >= 0).sum())
        if isinstance(rel, StagedRelation):
            levels = max(levels, rel.levels(there, table, p.grid))
    if not last or not isinstance(rel, StagedRelation):
        return last
    return levels > 1 and (loose or 4 * hit >= said or rel.sparse)


@pytest.mark.parametrize("family", [Line(1), BalancedGrid(2)], ids=["line", "grid"])
@pytest.mark.parametrize("cells", [1 << 22, 64])
def test_relations_looked_for_at_once_are_those_found_one_by_one(family, cells, monkeypatch):
    monkeypatch.setattr(together, "MOST_CELLS", cells)
    together._STACKS.clear()
    pairs = some_pairs(family, 3)
    rels = [rel for _, rel in candidates(pairs, ())]
    found = together.Together(rels, pairs, [used_pairs(p) for p in pairs])
    assert {found.leads(k, False) for k in range(len(rels))} == {True, False}
    for k, rel in enumerate(rels):
        for loose in (False, True):
            assert found.leads(k, loose) == leads(rel, pairs, loose), rel.text()
        if found.somewhere[k]:
            tables = [(partners(rel, p.grid)[:, p.rank] == p.peer).any(axis=0) for p in pairs]
            assert np.array_equal(found.hits[k], np.concatenate(tables)), rel.text()


@pytest.mark.parametrize("seed", range(40))
def test_a_set_that_hits_everything_is_found_wherever_three_members_are_enough(seed):
    rng = np.random.default_rng(seed)
    hits = rng.random((14, 21)) < rng.choice([0.15, 0.3, 0.5])
    found = cheapest_covers(np.ones(14), hits, 3)
    for cost, members in found:
        assert hits[list(members)].any(axis=0).all()
        assert cost == pytest.approx(len(members) + JOINED * (len(members) - 1))
    enough = [
        k for k in (1, 2, 3) if any(hits[list(c)].any(0).all() for c in combinations(range(14), k))
    ]
    if enough:
        assert len(found[0][1]) == enough[0]


def test_what_rules_differ_in_is_one_sentence():
    def question(text: str, weight: float, differ: bool = False) -> Question:
        return Question(text, weight, lambda g: True, differ)

    asked = [
        question("the size", 0.2, True),
        question("tells the direction", 0.6),
        question("the process grid", 0.3, True),
        question("the size", 0.2, True),
    ]
    said = _decisions(asked)
    assert [d.question for d in said] == [
        "the rules that still fit differ there in the process grid and the size",
        "tells the direction",
    ]
    assert said[0].share == pytest.approx(0.7)
