"""Equations as text and LaTeX: readable and deterministic."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from p3s.laws.exact import value_at
from p3s.laws.expr import BLOCK_KINDS, add, block, mul, num, power, sym
from p3s.laws.lawfinder import first_difference
from p3s.laws.symbolic import (
    equal,
    from_sympy,
    simplified,
    sympy_to_text,
    to_c,
    to_latex,
    to_python,
    to_sympy,
    to_text,
)
from p3s.laws.words import usual_text

N, P0, C0 = sym("n"), sym("p0"), sym("c0")

leaves = st.one_of(
    st.integers(1, 50).map(num),
    st.fractions(min_value=0.125, max_value=8, max_denominator=8).map(num),
    st.sampled_from(["n", "p0", "p1", "c0", "r", "s", "t"]).map(sym),
)


def grow(inner):
    """Return strategies for one more operator around ``inner``, defined at every environment."""
    positive = inner.map(lambda e: ["max", e, num(1)])
    return st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(lambda a: ["add", *a]),
        st.lists(inner, min_size=1, max_size=3).map(lambda a: ["mul", *a]),
        positive.flatmap(
            lambda e: st.sampled_from([(1, 2), (1, 3), (-1, 1), (-1, 2), (2, 1)]).map(
                lambda f: ["pow", e, *f]
            )
        ),
        st.tuples(st.sampled_from(["min", "max"]), inner, inner).map(list),
        st.tuples(
            st.sampled_from(["quot", "mod"]),
            inner.map(lambda e: ["floor", e]),
            positive.map(lambda e: ["ceil", e]),
        ).map(list),
        positive.map(lambda e: ["log2", e]),
        st.sampled_from(["s", "c0"]).map(lambda s: ["exp2", sym(s)]),
        st.tuples(st.sampled_from(["floor", "ceil"]), inner).map(list),
        st.tuples(st.sampled_from(BLOCK_KINDS), st.integers(1, 2000)).map(
            lambda b: block(b[0], b[1], P0, C0)
        ),
        inner.map(lambda e: ["sum", P0, ["mul", e, sym("j")]]),
    )


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.recursive(leaves, grow, max_leaves=5))
def test_texts_are_always_made_and_always_the_same(expr):
    again = json.loads(json.dumps(expr))
    assert to_text(expr) == to_text(again) and "\n" not in to_text(expr)
    assert to_latex(expr) == to_latex(again)
    assert to_latex(expr).count("{") == to_latex(expr).count("}")


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        (mul(num(8), block("first", 1400, P0, C0)), "8*block_first(1400, p0, c0)"),
        (add(mul(num(4), N), mul(num(-4), N)), "0"),
        (mul(num(2), add(["log2", N], num(1)), N), "2*n*(log2(n) + 1)"),
        (["quot", num(100), ["exp2", sym("s")]], "floor(100/2**s)"),
        (["mod", N, num(3)], "mod(n, 3)"),
        (["ceil", ["log2", N]], "ceil(log2(n))"),
        (["min", add(P0, num(-1)), num(1)], "min(1, p0 - 1)"),
        (["sum", P0, num(3)], "3*p0"),
        (["log2", num(8)], "3"),
        (["floor", N], "n"),
        (add(num(3), num(4), N), "n + 7"),
        (["num", 1, 2], "1/2"),
        (add(C0, num(-1)), "c0 - 1"),
        (add(num(1), mul(num(-1), ["min", sym("r"), num(1)])), "1 - min(1, r)"),
        (mul(num(10), add(N, num(-1))), "10*n - 10"),
        (["pow", N, -1, 2], "1/sqrt(n)"),
        (["pow", N, -2, 3], "n**(-2/3)"),
        (mul(["log2", N], power(N, -1)), "log2(n)/n"),
        (
            mul(num(8), add(block("first", 40, P0, C0), ["min", C0, num(1)])),
            "8*(block_first(40, p0, c0) + min(1, c0))",
        ),
        (
            mul(block("first", 9, sym("p1"), sym("c1")), block("first", 10, P0, C0)),
            "block_first(9, p1, c1)*block_first(10, p0, c0)",
        ),
        (mul(num(32), block("high", 1000, N, sym("r"))), "32*ceil(1000/n)"),
    ],
)
def test_texts_are_simplified(expr, text):
    assert to_text(expr) == text


def test_latex_reads_like_a_formula():
    assert to_latex(mul(num(1024), power(N, -1))) == r"\frac{1024}{n}"
    assert to_latex(["log2", N]) == r"\log_{2} n"
    assert (
        to_latex(block("first", 10, P0, C0))
        == r"\operatorname{block}_{\mathrm{first}}\left(10, p_{0}, c_{0}\right)"
    )


def test_sympy_knows_that_counts_are_whole():
    assert to_sympy(["floor", N]) == to_sympy(N)
    assert np.isclose(float(to_sympy(["quot", num(7), num(2)])), 3)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.recursive(leaves, grow, max_leaves=4))
def test_equations_come_back_from_sympy(expr):
    env = {"n": 12, "p0": 4, "p1": 3, "c0": 1, "r": 5, "s": 2, "t": 3}
    assert value_at(from_sympy(to_sympy(expr)), env) == value_at(expr, env)


factors = st.one_of(
    st.sampled_from(["n", "p0", "p1", "c0", "r", "s"]).map(sym),
    st.tuples(st.sampled_from(["first", "last"]), st.integers(1, 2000)).map(
        lambda b: block(b[0], b[1], P0, C0)
    ),
    st.just(["log2", N]),
    st.tuples(st.sampled_from(["n", "p0"]), st.fractions(-2, 3, max_denominator=3)).map(
        lambda p: power(sym(p[0]), p[1]) if p[1] else num(1)
    ),
)
products = st.tuples(st.fractions(-5, 9, max_denominator=3), st.lists(factors, max_size=3)).map(
    lambda p: mul(num(p[0]), *p[1])
)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(products, st.integers(-9, 9))
def test_usual_equations_have_the_text_that_sympy_gives_them(product, number):
    for expr in (product, add(product, num(number))):
        assert usual_text(expr) in (None, sympy_to_text(simplified(expr)))


def test_sympy_decides_whether_equations_are_one_and_where_they_part():
    square = add(power(N, 2), num(-1))
    assert equal(mul(add(N, num(1)), add(N, num(-1))), square)
    assert not equal(square, power(N, 2))
    assert first_difference(["log2", N], ["ceil", ["log2", N]], 4) == 5
    assert first_difference(power(N, 2), add(mul(num(3), N), num(-2))) == 3  # equal at 1 and 2
    assert first_difference(["log2", power(N, 2)], mul(num(2), ["log2", N])) is None


def test_code_of_equations():
    expr = add(mul(num(3), N), ["ceil", ["log2", N]], ["exp2", ["floor", ["log2", N]]])
    assert to_python(expr) == "2**math.floor(math.log2(n)) + 3*n + math.ceil(math.log2(n))"
    assert to_c(expr) == "pow(2, floor(log2(n))) + 3*n + ceil(log2(n))"
