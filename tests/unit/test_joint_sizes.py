"""Sizes of all calls together: extents, cuts and ghost widths that the program shares."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from corpus.drawn import cut_block

from p3s.laws.counts import Law
from p3s.laws.exact import evaluate_int
from p3s.model.sizes import cover
from p3s.model.sizes.forms import Search
from p3s.model.sizes.hypotheses import whole_bits, written
from p3s.model.sizes.joint import JointSizes
from p3s.model.sizes.observations import Observations

Grids = tuple[tuple[int, ...], ...]


def faces(domain: tuple[int, ...], cut: str, grids: Grids, ghost: int = 0, fields: int = 1):
    """Return the sizes that messages across every face have, per direction."""
    k = len(domain)
    out = {}
    for d, sign in product(range(k), (-1, 1)):
        parts, values = [], []
        for dims in grids:
            n = math.prod(dims)
            at = np.array(np.unravel_index(np.arange(n), dims))
            to = at[d] + sign
            ranks = np.flatnonzero((to >= 0) & (to < dims[d]))
            env = {"n": np.full(len(ranks), n), "r": ranks, "s": ranks * 0, "t": ranks * 0}
            for e in range(k):
                env |= {f"p{e}": np.full(len(ranks), dims[e]), f"c{e}": at[e][ranks]}
                env[f"q{e}"] = at[e][ranks] + sign * (e == d)
            parts.append(env)
            values += [
                fields
                * math.prod(
                    cut_block(cut, domain[e], dims[e], int(at[e][r])) + 2 * ghost
                    for e in range(k)
                    if e != d
                )
                for r in ranks
            ]
        env = {name: np.concatenate([p[name] for p in parts]) for name in parts[0]}
        across = tuple(e for e in range(k) if e != d)
        if len(values):
            out[d, sign] = Observations(env, np.array(values), k, across)
    return out


def joint_sizes(slots, typed):
    return JointSizes(slots, Search(typed)).with_rivals()


def says(law: Law, there: Observations) -> list[bool]:
    """Return whether the law and its rivals give the sizes."""
    return [
        np.array_equal(evaluate_int(e, there.env, undefined=-1), there.value)
        for e in (law.expr, *law.others)
    ]


@pytest.mark.parametrize("cut", ["first", "last", "floor", "ceil bounds", "ceil for all"])
def test_an_extent_that_never_changed_stays_in_the_product(cut):
    seen = ((1, 2, 2), (2, 2, 2), (2, 2, 3))
    slots = {
        (fields, *key): obs
        for fields in (1, 2)
        for key, obs in faces((200, 96, 133), cut, seen, fields=fields).items()
    }
    laws = joint_sizes(slots, frozenset())
    for fields in (1, 2):
        for key, there in faces((200, 96, 133), cut, ((4, 4, 4),), fields=fields).items():
            if len(np.unique(slots[(fields, *key)].env["n"])) > 2:
                assert any(says(laws[(fields, *key)], there)), key


def test_ghost_layers_and_typed_extents_leave_no_odd_numbers():
    seen = ((1, 2, 2), (2, 2, 2), (2, 2, 3))
    slots = faces((96, 500, 360), "first", seen, 2, 5)
    laws = joint_sizes(slots, frozenset({96, 500, 360}))
    there = faces((96, 500, 360), "first", ((4, 4, 6),), 2, 5)
    assert says(laws[2, 1], there[2, 1])[0]
    assert says(laws[1, 1], there[1, 1])[0]


def test_cells_with_a_point_at_the_end_are_never_taken_for_sure():
    seen = ((2, 2), (3, 2), (3, 3), (4, 3))
    slots = faces((60, 60), "one more point", seen)
    laws = joint_sizes(slots, frozenset())
    for key, there in faces((60, 60), "one more point", ((8, 8),)).items():
        law = laws[key]
        values = {
            evaluate_int(e, there.env, undefined=-1).tobytes() for e in (law.expr, *law.others)
        }
        assert len(values) > 1, key


@pytest.mark.parametrize("domain", [(61, 59), (200, 96), (500, 360)])
def test_a_second_extent_is_likelier_than_a_border_that_nobody_writes(domain):
    seen = ((2, 1), (2, 2), (4, 2), (4, 4))
    laws = joint_sizes(faces(domain, "first", seen), frozenset())
    for key, there in faces(domain, "first", ((8, 8),)).items():
        assert says(laws[key], there)[0], key


def test_a_cut_that_would_do_for_all_sizes_is_a_rival_however_many_hypotheses_there_are():
    domain, seen = (117, 96, 117), ((2, 2, 1), (3, 2, 1), (2, 2, 2), (3, 2, 2))
    slots = {
        (ghost, *key): obs
        for ghost in (0, 1)
        for key, obs in faces(domain, "ceil bounds", seen, ghost, 1 + 4 * ghost).items()
    }
    laws = joint_sizes(slots, frozenset())
    for ghost in (0, 1):
        there = faces(domain, "ceil bounds", ((5, 2, 1),), ghost, 1 + 4 * ghost)
        assert any(says(laws[ghost, 1, 1], there[1, 1]))


def test_a_typed_extent_stays_in_a_size_that_never_differed():
    seen = ((2, 4), (3, 4), (4, 4))
    slots = faces((117, 500), "first", seen, ghost=1)
    laws = joint_sizes(slots, frozenset({117, 500}))
    there = faces((117, 500), "first", ((4, 5),), ghost=1)
    assert says(laws[0, 1], there[0, 1])[0]


def test_a_size_that_never_differed_is_not_sure_where_the_grid_has_other_extents():
    seen = ((2, 2), (4, 2), (6, 2))
    slots = faces((360, 180), "first", seen)
    law = joint_sizes(slots, frozenset())[0, 1]
    there = faces((360, 180), "first", ((6, 3),))[0, 1]
    values = {evaluate_int(e, there.env, undefined=-1).max() for e in (law.expr, *law.others)}
    assert len(values) > 1


def test_typed_cells_have_their_point_at_the_end():
    seen = ((2, 2), (3, 2), (3, 3), (4, 3))
    slots = faces((60, 60), "one more point", seen)
    laws = joint_sizes(slots, frozenset({60}))
    for key, there in faces((60, 60), "one more point", ((6, 6),)).items():
        assert says(laws[key], there)[0], key


def test_a_law_with_a_zero_in_it_has_bits():
    assert whole_bits(0) > 0
    assert written(["add", ["num", 0, 1], ["sym", "n"]], 1).own() > 0


def blocks(sizes, grids: Grids) -> Observations:
    """Return sizes that are a function of (p0, p1, c0, c1), on every rank of 2-D grids."""
    rows = np.array([(*d, a, b) for d in grids for a in range(d[0]) for b in range(d[1])]).T
    env = {name: rows[i] for i, name in enumerate(("p0", "p1", "c0", "c1"))}
    zero = rows[0] * 0
    env |= {"n": rows[0] * rows[1], "r": rows[2] * rows[1] + rows[3], "s": zero, "t": zero}
    env |= {"q0": rows[2], "q1": (rows[3] + 1) % rows[1]}
    values = np.array([sizes(*row) for row in rows.T.tolist()])
    return Observations(env, values, 2, (0, 1))


@pytest.mark.parametrize("grid", [(5, 4), (6, 4), (8, 3), (8, 4), (8, 5), (8, 6), (6, 6)])
def test_a_factor_that_may_be_of_either_extent_does_not_hide_another_cut(grid):
    def last(extent, p, c):
        return (extent + c) // p

    def transposed(a, b, times):
        return lambda p0, p1, c0, c1: times * last(a, p0, c0) * last(b, p1, c1)

    seen = ((2, 2), (3, 2), (4, 2), (4, 3))
    kinds = {"x": (28, 21, 576), "y": (28, 36, 336), "z": (36, 21, 448)}
    slots = {name: blocks(transposed(*k), seen) for name, k in kinds.items()}
    laws = joint_sizes(slots, frozenset())
    for name, k in kinds.items():
        there, law = blocks(transposed(*k), (grid,)), laws[name]
        if not says(law, there)[0]:  # then some rival says something else than the law
            own, *others = (
                evaluate_int(e, there.env, undefined=-1) for e in (law.expr, *law.others)
            )
            assert any(np.any(own != o) for o in others), (name, law)


def along_a_line(factor: int, extent: int, counts: tuple[int, ...]) -> Observations:
    """Return the sizes of messages that hold a rank's part of an extent, so many times."""
    parts, values = [], []
    for n in counts:
        r = np.arange(n)
        zero = np.zeros(n, dtype=np.int64)
        parts.append(
            {
                "n": zero + n,
                "r": r,
                "s": zero,
                "t": zero,
                "p0": zero + n,
                "c0": r,
                "q0": (r + 1) % n,
            }
        )
        values += [factor * cut_block("first", extent, n, i) for i in range(n)]
    env = {name: np.concatenate([p[name] for p in parts]) for name in parts[0]}
    return Observations(env, np.array(values), 1, ())


@pytest.mark.parametrize("extent", [9_600, 38_400, 57_600, 96_000, 230_400, 1_152_000])
def test_an_extent_that_all_counts_divide_is_no_multiple_of_a_smaller_one(extent: int) -> None:
    law = joint_sizes({0: along_a_line(1, extent, (4, 8, 12, 16))}, frozenset())[0]
    for n in (20, 36, 64):
        assert says(law, along_a_line(1, extent, (n,)))[0], n
    assert law.others  # that there are others is said


def test_what_several_sizes_share_stays_a_multiple() -> None:
    counts = (4, 8, 12, 16)
    slots = {k: along_a_line(k, 9_600, counts) for k in (1, 3, 5)}
    laws = joint_sizes(slots, frozenset())
    for k in (1, 3, 5):
        assert says(laws[k], along_a_line(k, 9_600, (36,)))[0], k


def test_no_number_costs_more_than_two_whose_product_it_is() -> None:
    for a, b in product((2, 3, 7, 10, 48, 96, 100, 300, 384), repeat=2):
        assert whole_bits(a * b) <= whole_bits(a) + whole_bits(b)


def test_the_cheapest_cover_is_found_with_indices_that_every_scipy_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from scipy import optimize

    asked = []

    def milp(cost, **words):
        asked.append(words["constraints"].A)
        return solve(cost, **words)

    solve = optimize.milp
    monkeypatch.setattr(optimize, "milp", milp)
    monkeypatch.setattr(cover, "MOST_BRANCHES", 0)  # few branches are tried without a solver
    bits = {"a": 3.0, "b": 2.5, "c": 4.0}
    groups = [[(1.0, "ab"), (4.0, "c")], [(1.0, "bc"), (2.0, "a")], [(2.0, "ac"), (1.0, "b")]]
    every = {}
    for numbers in product((0, 1), repeat=3):
        taken = [some[k] for some, k in zip(groups, numbers, strict=True)]
        needs = set().union(*(needs for _, needs in taken))
        every[numbers] = sum(c for c, _ in taken) + sum(bits[c] for c in needs)
    found = cover.Cover(groups, list(bits), list(bits.values())).solve()
    assert found is not None and found[0] == every[tuple(found[1])] == min(every.values())
    assert asked and all(a.indices.dtype == a.indptr.dtype == np.int32 for a in asked)
