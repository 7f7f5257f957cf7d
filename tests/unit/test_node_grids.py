"""Grids of nodes of ranks, splits of rows, and dimensions that no traced count cuts."""

from __future__ import annotations

import math

import corpus
import numpy as np
import pytest
from corpus import drawn

from p3s.base.extents import dims_balanced
from p3s.laws.expr import num, sym
from p3s.model.compare import compare
from p3s.model.grid.at import GridRule
from p3s.model.grid.grids import OfNodes, rules_of_nodes
from p3s.model.grid.uncut import Uncut
from p3s.model.holdout import build_model
from p3s.model.law_types import SizeLaw
from p3s.model.partners.communicator_laws import Axes, CommunicatorLaw, Inside, Nodes, instances
from p3s.model.reasons import Verdict
from p3s.model.sizes.observed import differ, differ_at
from p3s.model.verdicts import judged_at


@corpus.program
def halo(rec, place, rank_at, faces):
    """Faces to both neighbours of every dimension, open at the border, a call each."""
    here = place(rec.rank, rec.n)
    for _ in range(3):
        for d in range(len(here)):
            for s in (-1, 1):
                there = list(here)
                there[d] += s
                peer = rank_at(there, rec.n)
                if peer is not None:
                    rec("Send", f"send{d}{s}", peer=peer, nbytes=faces(d, here, rec.n))
    rec("Barrier", "end")


def all_equal(model, program, n):
    triples = compare(model, corpus.table(program, n)).p2p_triples
    return triples.true == triples.predicted == triples.equal


# ---- nodes -------------------------------------------------------------------------------------
@pytest.mark.parametrize(("node", "inner", "column"), [((2, 2), 0, False), ((2, 3), 1, True)])
def test_ranks_that_are_numbered_node_by_node_have_a_grid(node, inner, column):
    each = math.prod(node)
    rule = OfNodes(2, node, inner, layout="column" if column else "row")

    def rank_at(there, n):
        found = np.flatnonzero((rule.at(n).coords == np.array(there)[:, None]).all(axis=0))
        return int(found[0]) if len(found) else None

    program = halo(lambda r, n: rule.at(n).coords[:, r].tolist(), rank_at, lambda *_: 192)
    model = build_model([corpus.table(program, each * k) for k in (1, 2, 4, 6)], holdout=False)
    assert GridRule.load(model.grid.family.to_json()) == model.grid.family
    for k in (8, 9, 12):
        assert all_equal(model, program, each * k)


def test_a_grid_of_nodes_has_a_place_for_every_rank():
    rules = rules_of_nodes((8, 16, 24))
    assert len(set(rules)) == len(rules) > 100
    for rule in rules:
        for n in (8, 24):
            grid = rule.at(n)
            if grid is not None:
                assert len(np.unique(np.ravel_multi_index(tuple(grid.coords), grid.dims))) == n
    assert OfNodes(2, (2, 2)).at(6) is None


# ---- rows of rows ------------------------------------------------------------------------------
def test_pairs_of_a_row_are_split_from_the_row():
    def program(rec):
        p = dims_balanced(rec.n, 2)
        y, x = divmod(rec.rank, p[1])
        members = [r for r in range(rec.n) if r % p[1] == x]
        row = rec.comm(tuple(members))
        pair = rec.comm(tuple(members[y // 2 * 2 : y // 2 * 2 + 2][::-1]))
        for _ in range(3):
            rec("Allgather", "row", comm=row, nbytes=64)
            rec("Bcast", "pair", comm=pair, nbytes=64, root=0)

    model = build_model([corpus.table(program, n) for n in (4, 8, 16)], holdout=False)
    for n in (32, 36):
        found = compare(model, corpus.table(program, n)).collectives
        assert found.true == found.predicted == found.equal


def test_a_split_of_rows_keeps_to_the_row():
    law = Inside(outer=Axes(axes=(0,)), inner=Nodes(size=2), order="reverse")
    assert CommunicatorLaw.from_json(law.to_json()) == law
    grid = GridRule.named("balanced", 2).at(8)
    assert instances(law, grid)[1] == [(2, 0), (6, 4), (3, 1), (7, 5)]


# ---- dimensions that are not cut ---------------------------------------------------------------
@pytest.mark.parametrize("made", [(43, False), (318, True)], ids=["blocks", "points at borders"])
def test_a_dimension_that_no_traced_count_cuts_is_a_rival(made):
    program, counts, targets, typed, _ = drawn.make_domain(*made)
    model = build_model([corpus.table(program, n) for n in counts], typed=typed)
    (rival, *_) = [rule for rule in model.grid.rivals if isinstance(rule, Uncut)]
    assert GridRule.load(rival.to_json()) == rival
    assert all(rival.dims(n) == tuple(model.grid.dims[str(n)]) for n in counts)
    for n in targets:
        there = judged_at(model, n)
        wrong = compare(there, corpus.table(program, n)).items_wrong
        assert not [i for i in wrong if there.items[i].verdict == Verdict.EXACT]


@pytest.mark.parametrize("fields", [1, 5])
def test_a_factor_too_small_for_a_dimension_leaves_the_grid_alone(fields):
    lengths = (240, 180)

    def rank_at(there, n):
        dims = dims_balanced(n, 2)
        inside = all(0 <= c < p for c, p in zip(there, dims, strict=True))
        return there[0] * dims[1] + there[1] if inside else None

    def face(d, here, n):
        e = 1 - d
        return 8 * fields * corpus.block(lengths[e], dims_balanced(n, 2)[e], here[e])

    program = halo(lambda r, n: divmod(r, dims_balanced(n, 2)[1]), rank_at, face)
    model = build_model([corpus.table(program, n) for n in (4, 6, 9, 12)], holdout=False)
    assert not [rule for rule in model.grid.rivals if isinstance(rule, Uncut)]


# ---- grids that were traced --------------------------------------------------------------------
def block_law(kind):
    return ["block", kind, num(102), sym("p0"), sym("c0")]


def test_ranks_apart_from_the_grid_leave_no_size_open():
    grid = GridRule.named("cube", 2, part="root").at(10)
    law = SizeLaw(block_law("floor"), rivals=(block_law("last"), block_law("first")))
    assert not differ_at(law, grid)  # 102 is cut evenly in three
    assert differ_at(law, GridRule.named("cube", 2, part="root").at(17))


@pytest.mark.parametrize("name", ["p0", "c0", "q1", "r", "t"])
def test_several_grids_are_asked_at_once(name):
    grids = [g for n in range(1, 40) if (g := GridRule.named("balanced", 2).at(n)) is not None]
    same = ["min", sym(name), sym(name)]
    law = SizeLaw(sym(name), rivals=(same, ["min", sym(name), num(4)]))
    at_once = differ(law, grids)
    assert at_once.tolist() == [differ_at(law, grid) for grid in grids]
    assert at_once.any() and not at_once.all()
    cut = SizeLaw(block_law("first"), rivals=(block_law("last"), block_law("first")))
    assert differ(cut, grids).tolist() == [102 % grid.dims[0] != 0 for grid in grids]
