"""Neighbourhoods from one call, and mixtures of relations: trained small, exact at large counts."""

from __future__ import annotations

from itertools import product

import corpus
import numpy as np
import pytest
from corpus import neighbours as nb

from p3s.model.compare import compare
from p3s.model.grid.at import GridAt
from p3s.model.holdout import build_model
from p3s.model.partners.infer_partners import infer_partners
from p3s.model.partners.pairs import Pairs
from p3s.model.partners.stencil import mixture, partners, stencil
from p3s.model.reasons import Verdict
from p3s.model.verdicts import judged_at

B2, B3 = nb.balanced(2), nb.balanced(3)
TORUS = (1, 1, 1)

ONCE = [
    ("star-3d", nb.stencil(B3, nb.star, TORUS, once=True), (2, 4, 6, 8, 12, 16)),
    ("star-2d", nb.stencil(B2, nb.star, TORUS, once=True), (4, 6, 8, 12)),
    ("box-3d", nb.stencil(B3, nb.box, TORUS, once=True), (8, 12, 18, 36)),
    ("box-2d", nb.stencil(B2, nb.box, (1, 0), once=True), (4, 6, 8, 12, 16)),
]


@pytest.mark.parametrize(("program", "counts"), [c[1:] for c in ONCE], ids=[c[0] for c in ONCE])
def test_what_is_not_reproduced_at_a_traced_count_is_not_exact(program, counts):
    """A neighbour on both sides gets one message: the two shifts to it together say two."""
    model = build_model([corpus.table(program, n) for n in counts])
    for n in counts:
        found = compare(model, corpus.table(program, n))
        assert found.p2p_triples.all_equal or found.items_wrong
        assert Verdict.EXACT not in {model.items[i].verdict for i in found.items_wrong}


def _pairs(dims, vectors, periodic, ranks=None):
    """Return the distinct pairs of shifts on a grid, of some ranks or all."""
    n = int(np.prod(dims))
    coords = np.array(np.unravel_index(np.arange(n), dims))
    grid = GridAt(n, dims, coords)
    out = set()
    for v in vectors:
        to = coords + np.array(v)[:, None]
        for d, extent in enumerate(dims):
            if periodic[d]:
                to[d] %= extent
        there = ((to >= 0) & (to < np.array(dims)[:, None])).all(axis=0)
        there &= True if ranks is None else ranks(coords, dims)
        for r in np.flatnonzero(there):
            q = int(np.ravel_multi_index(to[:, r], dims))
            if q != r:
                out.add((int(r), q))
    both = np.array(sorted(out)).reshape(-1, 2)
    return Pairs(grid, both[:, 0].copy(), both[:, 1].copy())


def _said(found, pairs):
    """Return for each count the pairs of an explanation with its guards."""
    mixed = mixture(found.relations, pairs)
    out = []
    for p in pairs:
        said = set()
        for rel, guard in zip(found.relations, mixed.guards, strict=True):
            for s, row in enumerate(partners(rel, p.grid)):
                there = guard.holds(p.grid.at(s, len(partners(rel, p.grid))), row) & (row >= 0)
                said |= {(int(r), int(row[r])) for r in np.flatnonzero(there) if row[r] != r}
        out.append(said)
    return out


def test_one_step_of_more_than_half_of_a_ring_is_a_step():
    """Of three to eight ranks the fifth next is the second, the next, the last and the third."""
    pairs = [_pairs((n,), [(5,)], (True,)) for n in (3, 4, 6, 8)]
    assert [rel.text() for rel in infer_partners(pairs).relations] == ["(r + 5) mod n"]


def test_six_swaps_on_a_torus_invent_no_pairs():
    """Cells that two relations lead to are the traced ones, too."""
    faces = list(nb.vectors(3, nb.star))
    grids = ((2, 1, 1), (2, 2, 1), (3, 2, 1), (2, 2, 2), (3, 2, 2), (4, 2, 2))
    pairs = [_pairs(dims, faces, TORUS) for dims in grids]
    found = infer_partners(pairs, (True, True, True))
    assert not found.unexplained and mixture(found.relations, pairs).complete
    for each, said in zip(pairs, _said(found, pairs), strict=True):
        assert said == set(zip(each.rank.tolist(), each.peer.tolist(), strict=True))


@pytest.mark.parametrize("seed", range(40))
def test_mixtures_lead_to_the_traced_pairs_and_to_no_others(seed):
    """Two to four shifts of any kind through one call, some of a part of the ranks."""
    rng = np.random.default_rng(seed)
    ndims = int(rng.integers(1, 4))
    periodic = tuple(int(x) for x in rng.integers(0, 2, ndims))
    choices = list(nb.vectors(ndims, nb.box))
    vectors = [choices[k] for k in rng.permutation(len(choices))[: rng.integers(2, 5)]]
    lower = bool(rng.integers(0, 2))
    grids = [tuple(int(x) for x in rng.integers(1, 5, ndims)) for _ in range(5)]
    grids = sorted({g for g in grids if np.prod(g) > 1}, key=np.prod)
    pairs = [
        _pairs(g, vectors, periodic, (lambda c, d: c[0] < d[0] - 1) if lower else None)
        for g in grids
    ]
    pairs = [each for each in pairs if len(each.rank)]
    if not pairs:
        return
    found = infer_partners(pairs)
    mixed = mixture(found.relations, pairs)
    if found.unexplained or None in mixed.guards or not mixed.complete:
        return  # no rule: taken for a sample
    for each, said in zip(pairs, _said(found, pairs), strict=True):
        assert said == set(zip(each.rank.tolist(), each.peer.tolist(), strict=True))


@pytest.mark.parametrize(
    "grids",
    [
        ((1, 1, 2), (1, 2, 2), (1, 2, 3), (2, 2, 2), (2, 2, 3)),
        ((1, 1, 2), (1, 2, 2), (1, 2, 3), (2, 2, 2), (2, 2, 3), (2, 2, 4)),
        ((2, 2, 2), (2, 2, 3), (2, 3, 3), (3, 3, 3)),
    ],
)
def test_an_open_box_is_one_rule_and_has_no_periodic_dimension(grids):
    pairs = [_pairs(g, list(nb.vectors(3, nb.box)), (0, 0, 0)) for g in grids]
    found = stencil(pairs)
    assert found is not None and found.cost < 1.5
    assert len(found.shifts) == 26 and not any(any(s.wrap) for s in found.shifts)
    assert infer_partners(pairs).cost == found.cost


def _each(axis, side, op):
    return axis, side, op


def _axis(axis, side, op):
    return axis, op


def _side(axis, side, op):
    return side, op


#: Half of them, with each pair of values, are quick.
SIDES = [
    pytest.param(site, periodic, sends, marks=() if (k + periodic + turn) % 2 else pytest.mark.slow)
    for k, site in enumerate((_each, _axis, _side))
    for periodic in (True, False)
    for turn, sends in enumerate(((-1, 1), (1, -1)))
]


@pytest.mark.parametrize(("site", "periodic", "sends"), SIDES)
def test_two_ranks_do_as_siblings_that_show_their_direction(site, periodic, sends):
    """Two dimensions have two ranks at every traced count, the third shows what is done."""
    program = nb.sides(site, B3, periodic, sends)
    model = build_model([corpus.table(program, n) for n in (8, 12, 16)], holdout=False)
    for n in (27, 64):
        found = compare(model, corpus.table(program, n))
        assert found.p2p_triples.all_equal and not found.items_wrong, n


@pytest.mark.parametrize("tags", [False, True])
@pytest.mark.parametrize("first", [-1, 1])
def test_axes_of_two_ranks_in_a_loop_go_as_the_third(first, tags):
    program = nb.axes_in_a_loop(B3, first, tags)
    model = build_model([corpus.table(program, n) for n in (8, 12, 16)], holdout=False)
    for n in (27, 64):
        found = compare(model, corpus.table(program, n))
        assert found.p2p_triples.all_equal and not found.items_wrong, n


def test_edges_that_a_single_rank_shortens_keep_both_directions():
    """Edges along dimensions of two ranks: at 2 x 2 x 1 they look like faces."""

    def program(rec):
        dims = B3(rec.n)
        here = np.unravel_index(rec.rank, dims)
        for _ in range(3):
            for dimensions in ((0,), (1,), (2,), (0, 1), (1, 2), (0, 2)):
                for signs in product((-1, 1), repeat=len(dimensions)):
                    there = list(here)
                    for d, s in zip(dimensions, signs, strict=True):
                        there[d] += s
                    peer = int(np.ravel_multi_index(there, dims, mode="wrap"))
                    rec("Send", f"send{dimensions}", peer=peer, nbytes=80)

    model = build_model([corpus.table(program, n) for n in (4, 8, 12)], holdout=False)
    for n in (27, 36):
        assert compare(model, corpus.table(program, n)).p2p_triples.all_equal


def test_an_exchange_on_four_ranks_alone_is_not_exact_on_others():
    """A torus of 2 x 2 ranks is an exchange by powers of two on 4, at every traced count."""
    program = nb.sides(lambda a, s, op: (min(a, 1), s, op), B3)
    model = build_model([corpus.table(program, n) for n in (8, 12, 16)])
    staged = [i for i in model.items if i.relation is not None and i.relation.kind == "xor"]
    there = judged_at(model, 64)
    assert all(i.verdict != Verdict.EXACT for i in there.items if i.key in {s.key for s in staged})
