"""Equations as text, LaTeX and Python source: readable, deterministic, and the same numbers."""

from __future__ import annotations

import ast
import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from p3s.base.errors import P3SError
from p3s.laws.expr import BLOCK_KINDS, add, block, evaluate, mul, num, power, sym
from p3s.laws.symbolic import PYTHON_HEADER, to_latex, to_python, to_sympy, to_text

N, P0, C0 = sym("n"), sym("p0"), sym("c0")

#: Environments of whole numbers as they occur: extents divide n, coordinates lie below them.
ENVS = [
    {"n": p * q, "p0": p, "p1": q, "c0": c, "c1": q - 1, "r": c * q + q - 1, "s": s, "t": t}
    for p, q, c, s, t in ((2, 2, 0, 0, 0), (3, 5, 2, 1, 4), (4, 4, 3, 2, 1), (8, 2, 5, 3, 7))
]


def run_source(source: str, env: dict[str, int]) -> float:
    """Run the text of one function as the user would: in a module of its own."""
    module: dict = {}
    exec(compile(PYTHON_HEADER + source, "model.py", "exec"), module)  # noqa: S102
    function = module["law"]
    code = function.__code__
    return function(*(env[a] for a in code.co_varnames[: code.co_argcount]))


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


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.recursive(leaves, grow, max_leaves=6))
def test_python_text_computes_what_the_model_evaluates(expr):
    for env in ENVS:
        want = float(evaluate(expr, env))
        if not math.isfinite(want) or abs(want) > 1e12:
            continue
        got = run_source(to_python(expr), env)
        assert got == pytest.approx(want, rel=1e-9, abs=1e-6)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.recursive(leaves, grow, max_leaves=5))
def test_texts_are_always_made_and_always_the_same(expr):
    again = json.loads(json.dumps(expr))
    assert to_text(expr) == to_text(again) and "\n" not in to_text(expr)
    assert to_latex(expr) == to_latex(again)
    assert to_latex(expr).count("{") == to_latex(expr).count("}")
    assert to_python(expr) == to_python(again)


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


def test_python_text_is_a_pure_function_of_math():
    law = add(mul(num(3), ["ceil", ["log2", N]]), block("ceil", 10, P0, C0))
    tree = ast.parse(PYTHON_HEADER + to_python(law))
    names = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
    assert names == {"math", "n", "p0", "c0", "min"}
    assert isinstance(tree.body[1], ast.FunctionDef)
    assert [a.arg for a in tree.body[1].args.args] == ["n", "p0", "c0"]


def test_a_function_that_cannot_be_written_is_refused():
    with pytest.raises(P3SError):
        to_python(mul(N, P0), "2x")


def test_sympy_knows_that_counts_are_whole():
    assert to_sympy(["floor", N]) == to_sympy(N)
    assert np.isclose(float(to_sympy(["quot", num(7), num(2)])), 3)
