"""Laws in the process count: exact ones recovered, work never negative, equations are data."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from p3s.base.errors import P3SError
from p3s.base.extents import dims_balanced, dims_greedy
from p3s.laws.exact import evaluate_int
from p3s.laws.expr import BLOCK_KINDS, block, block_size, check, evaluate, num, sym
from p3s.laws.symbolic import to_sympy, to_text
from p3s.laws.worklaws import fit_work
from p3s.model.grid.at import coords_of


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 5000), st.integers(1, 40), st.sampled_from(BLOCK_KINDS[:5]))
def test_blocks_cover_their_extent(extent, p, kind):
    sizes = block_size(kind, extent, p, np.arange(p))
    assert sizes.sum() == extent
    assert sizes.min() >= 0


def test_grids():
    assert dims_balanced(48, 2) == dims_greedy(48, 2) == (8, 6)
    assert dims_balanced(64, 3) == (4, 4, 4)
    assert dims_balanced(7, 2) == (7, 1)
    c = coords_of((3, 4), 12)
    assert np.array_equal(np.ravel_multi_index(tuple(c), (3, 4)), np.arange(12))


def test_equations_survive_json_and_sympy():
    e = ["mul", num(3), ["add", ["log2", sym("p1")], num(-1)], ["floor", sym("n")]]
    again = check(json.loads(json.dumps(e)))
    assert float(evaluate(again, {"n": 8, "p1": 4})) == 24
    assert "log2(p1)" in to_text(again)
    assert to_sympy(["block", "first", num(10), sym("n"), sym("r")]).free_symbols


@pytest.mark.parametrize(
    "bad",
    [
        "n+1",
        ["call", "os.system"],
        ["sym", "__import__('os')"],
        ["num", 1, 0],
        ["num", 1.5, 1],
        ["pow", ["sym", "n"], 10**9, 1],
        ["block", "evil", 1, 2, 3],
        [],
        None,
        ["add", ["add", ["sym", "zz"]]],
    ],
)
def test_malformed_equations_are_refused(bad):
    with pytest.raises(P3SError):
        check(bad)


def test_deep_equations_are_refused():
    e = ["sym", "n"]
    for _ in range(40):
        e = ["floor", e]
    with pytest.raises(P3SError):
        check(e)


def test_operators_of_turns_and_sums():
    """Blocks met along a diagonal: one term per cell, as many cells as the rank's own count."""
    from p3s.laws.expr import add, block, check, evaluate, num, sym

    at = ["mod", add(sym("c0"), sym("j")), sym("p0")]
    diagonal = check(["sum", sym("p0"), block("first", 10, sym("p0"), at)])
    env = {"p0": np.array([3, 4]), "c0": np.array([2, 0])}
    assert evaluate(diagonal, env).tolist() == [10, 10]
    triangle = ["sum", sym("r"), sym("j")]
    assert evaluate(triangle, {"r": np.array([0, 1, 4])}).tolist() == [0, 0, 6]
    halving = ["quot", num(100), ["exp2", sym("s")]]
    assert evaluate(halving, {"s": np.array([0, 1, 3])}).tolist() == [100, 50, 12]
    assert evaluate(["max", ["mod", num(17), num(5)], num(1)], {}) == 2


def test_work_that_falls_below_its_trend_by_a_constant_has_a_law_all_the_same():
    """a*n - b is no sum of non-negative terms: the nearest one, and a word that it is none."""
    from p3s.laws.worklaws import fit_work

    law = fit_work([3, 4, 6, 8, 12, 16], [6000.0 * n - 3000 for n in (3, 4, 6, 8, 12, 16)])
    assert law.refused and law.terms
    assert abs(float(law.value(64)) / (6000 * 64 - 3000) - 1) < 0.2
    assert all(float(law.value(n)) >= 0 for n in (1, 2, 1000, 10**6))


@pytest.mark.parametrize(
    "expr",
    [
        ["pow", ["add", sym("n"), num(-1)], -1, 1],
        ["log2", ["add", sym("n"), num(-1)]],
        ["quot", num(7), ["add", sym("n"), num(-1)]],
        ["mod", num(7), ["add", sym("n"), num(-1)]],
        block("first", 10, ["add", sym("n"), num(-1)], num(0)),
        ["sum", ["pow", ["add", sym("n"), num(-1)], -1, 1], num(1)],
        ["exp2", ["mul", sym("n"), num(70)]],
    ],
)
def test_an_equation_without_a_value_says_so(expr):
    """No infinity is cast to a whole number, and no warning is left to be printed."""
    with pytest.raises(P3SError, match=r"^model: the equation .* has no value at 1 processes"):
        evaluate_int(expr, {"n": np.array([1])})
    assert evaluate_int(expr, {"n": np.array([1])}, undefined=-1).tolist() == [-1]


@pytest.mark.parametrize("counts", [(1, 2, 4), (1, 2, 4, 8), (2, 4, 8, 16)])
def test_terms_below_what_the_points_show_are_left_out(counts):
    """Noise in the last digits has sums that meet it to the last of them, by chance."""
    rng = np.random.default_rng(5)
    for size in (1e-12, 1e-9, 1e-8, 1e-6):
        for shape in (np.ones_like, np.reciprocal):
            n = np.array(counts, dtype=float)
            for _ in range(25):
                values = 20610.5 * shape(n) * (1 + size * rng.standard_normal(len(n)))
                assert len(fit_work(counts, values.tolist()).terms) == 1, values
    # the first count that is rounded decides no less than the others
    assert fit_work((1, 2, 4), (3908538, 1954269, 977134)).text() == "3.909e+06/n"


def test_a_known_resolution_hides_what_is_below_it():
    counts = (2, 4, 8, 16)
    values = [1.2e-3 / n + 2.273e-12 * n for n in counts]
    assert fit_work(counts, values).text() == "0.0012/n + 2.273e-12*n"
    assert fit_work(counts, values, [1e-4 * v for v in values]).text() == "0.0012/n"


def test_values_of_nothing_at_some_counts_have_finite_laws():
    for values in ((0, 5, 9), (0, 0, 7), (7, 0, 0), (1e12, 0, 1e-9)):
        law = fit_work((1, 2, 4), values)
        assert np.isfinite([float(law.value(64)), *law.interval(64)]).all()
