"""Grids, relations, guards and communicator laws, each on its own."""

from __future__ import annotations

import numpy as np
import pytest
from corpus import table

from p3s.base.extents import dims_balanced, dims_nested, dims_rounded
from p3s.model.grid.at import GridRule
from p3s.model.grid.choose import choose_grid
from p3s.model.grid.grids import (
    BalancedGrid,
    Bits,
    Cube,
    FixedExtent,
    Line,
    ListedGrid,
    all_rules,
    candidate_rules,
)
from p3s.model.grid.guardfit import fit_guard
from p3s.model.grid.nodes import collect_nodes
from p3s.model.partners.infer_partners import infer_partners
from p3s.model.partners.pairs import Pairs

LINE = Line(1)


@pytest.mark.parametrize(
    "family",
    [
        BalancedGrid(2, layout="column"),
        BalancedGrid(2, layout="reverse"),
        Bits(2, (0, 1)),
        Bits(3, (2, 1, 0), 1),
        FixedExtent(3, (1,), 2, "balanced"),
        Cube(2, part="last"),
        BalancedGrid(3, layout="120"),
        BalancedGrid(4, layout="2031"),
        ListedGrid(2, listed=((16, (2, 8)),), layout="column"),
    ],
)
def test_ranks_and_places_are_each_others_inverse(family):
    n = 17 if family.part else 16
    grid = family.at(n)
    ranks = np.flatnonzero(grid.inside)
    assert np.array_equal(grid.rank_at(grid.coords[:, ranks]), ranks)
    assert GridRule.from_json(family.to_json()) == family
    assert family.text() and int(np.prod(grid.dims)) == len(ranks)


def test_extents_by_nested_divisors():
    assert dims_nested(36, 3) == (3, 3, 4)
    assert dims_nested(64, 3) == (4, 4, 4)
    assert dims_nested(7, 2) == (1, 7)


def test_extents_by_rounded_roots():
    found = {n: dims_rounded(n, (1.0, 1.0, 1.0), (1, 2, 0)) for n in (12, 32, 64, 108, 256, 7)}
    assert found == {
        12: (3, 2, 2),
        32: (4, 2, 4),
        64: (4, 4, 4),
        108: (9, 4, 3),
        256: (8, 4, 8),
        7: (7, 1, 1),
    }
    assert dims_rounded(8, (10.0, 40.0), (1, 0)) == (2, 4)
    assert dims_rounded(12, (40.0, 10.0), (1, 0)) == (6, 2)


def test_families_have_names_and_survive_as_data():
    families = all_rules([12, 24, 48])
    assert len({f.text() + str(f.to_json()) for f in families}) == len(families)
    assert all(GridRule.from_json(f.to_json()) == f for f in families)


def test_a_cartesian_communicator_gives_extents_and_order():
    cart = {4: (2, 2), 6: (3, 2)}
    order = {n: tuple(range(n))[::-1] for n in cart}
    assert {f.layout for f in candidate_rules([4, 6], cart, order)} == {"reverse"}
    assert {f.layout for f in candidate_rules([4, 6], cart)} == {"row"}


def test_a_dimension_of_extent_1_that_was_asked_for_is_none():
    """MPI_Dims_create with a fixed 1 leaves the grid of the other dimensions."""

    def program(rec):
        dims = (*dims_balanced(rec.n, 2), 1)
        rec("Cart_create", comm=rec.comm(tuple(range(rec.n)), 1, dims, (False, True, False)))

    tables = [table(program, n) for n in (4, 6, 8, 12)]
    choice = choose_grid(collect_nodes(tables, {}), tables)
    assert choice.family == BalancedGrid(2) and choice.periods == (False, True)


def test_a_guard_needs_evidence():
    """Two ranks of sixteen, at the largest count alone, could be anything."""
    grids = [BalancedGrid(2).at(n) for n in (4, 8, 16)]
    sets = [np.isin(np.arange(g.n), (7, 13)) & (g.n == 16) for g in grids]
    assert fit_guard(grids, sets) is None


def test_partners_without_a_rule_have_none():
    rng = np.random.default_rng(5)
    for family in (LINE, BalancedGrid(2)):
        pairs = [Pairs(family.at(n), np.arange(n), rng.permutation(n)) for n in (8, 12, 16)]
        found = infer_partners(pairs)
        assert found.unexplained and not found.relations


@pytest.mark.parametrize("dims", [1, 2])
def test_a_star_is_no_tree(dims):
    family = LINE if dims == 1 else Cube(2)
    pairs = []
    for n in (4, 9, 16):
        g = family.at(n)
        pairs.append(Pairs(g, np.zeros(n - 1, dtype=np.int64), np.arange(1, n)))
    assert [r.kind for r in infer_partners(pairs).relations][0] in ("others", "steps")
