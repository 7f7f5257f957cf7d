"""Equations are written without sympy as sympy writes them."""

from __future__ import annotations

import random
import subprocess
import sys
from typing import Any

import pytest

from p3s.laws.expr import Expr, add, block, mul, num, power, sym
from p3s.laws.plain import plain_text
from p3s.laws.symbolic import simplified, sympy_to_text

COORDINATES = ("c0", "c1", "q0", "r", "s", "t")
EXTENTS = ("n", "p0", "p1")


def _end(draw: random.Random) -> Expr:
    p, c = draw.choice([("p0", "c0"), ("p1", "c1"), ("n", "r")])
    return add(sym(p), num(-1), mul(num(-1), sym(c)))


def _block(draw: random.Random) -> Expr:
    kind = draw.choice(("first", "floor", "last", "low", "high", "tail"))
    p = sym(draw.choice(EXTENTS))
    at = draw.choice([sym(draw.choice(COORDINATES)), _end(draw), _remainder(draw)])
    return block(kind, draw.choice((7, 40, 1000)), p, at)


def _remainder(draw: random.Random) -> Expr:
    a, b = draw.sample(COORDINATES, 2)
    signs = draw.choice([(1, 1), (1, -1), (-1, 1)])
    terms = [
        sym(x) if sign > 0 else mul(num(-1), sym(x)) for x, sign in zip((a, b), signs, strict=True)
    ]
    return ["mod", add(*terms), sym(draw.choice(EXTENTS))]


def _factor(draw: random.Random) -> Expr:
    a, b = draw.sample(COORDINATES, 2)
    apart = [add(sym(x), mul(num(-1), sym(y))) for x, y in ((a, b), (b, a))]
    at_border = ["min", draw.choice([sym(a), _end(draw), ["max", *apart]]), num(1)]
    powers = [power(sym("n"), f) for f in ((-1), 2, -2)]
    root = ["pow", ["sym", "n"], draw.choice((-2, -1, 1, 2)), draw.choice((2, 3))]
    return draw.choice(
        [
            *(_block(draw) for _ in range(4)),
            *[sym(draw.choice(COORDINATES + EXTENTS)) for _ in range(3)],
            add(num(1), mul(num(-1), at_border)),
            at_border,
            ["log2", sym("n")],
            ["log2", ["max", num(1), mul(_block(draw), _block(draw))]],
            draw.choice(powers),
            root,
        ]
    )


def _term(draw: random.Random) -> Expr:
    factors = [_factor(draw) for _ in range(draw.choice((1, 1, 2, 3)))]
    number = draw.choice(([1, 1], [1, 1], [8, 1], [-1, 1], [-8, 1], [1, 2], [4, 1]))
    return mul(["num", *number], *factors)


def _equation(draw: random.Random) -> Expr:
    terms = [_term(draw) for _ in range(draw.choice((1, 1, 2, 3)))]
    more = [num(draw.choice((1, -1, 2, 8, -32)))] if draw.random() < 0.4 else []
    whole = add(*terms, *more) if len(terms) + len(more) > 1 else terms[0]
    return mul(num(draw.choice((4, 8))), whole) if draw.random() < 0.3 else whole


def test_random_equations_read_as_sympy_writes_them() -> None:
    draw = random.Random(7)
    plain = 0
    for _ in range(1500):
        expr = _equation(draw)
        text = plain_text(expr)
        if text is not None:
            plain += 1
            assert text == sympy_to_text(simplified(expr)), expr
    assert plain > 500  # else the test says nothing


USUAL: list[tuple[Any, str]] = [
    (num(8), "8"),
    (["num", 1, 2], "1/2"),
    (add(sym("c0"), num(-1)), "c0 - 1"),
    (add(num(1), mul(num(-1), ["min", sym("r"), num(1)])), "1 - min(1, r)"),
    (mul(num(10), add(sym("n"), num(-1))), "10*n - 10"),
    (["pow", ["sym", "n"], -1, 2], "1/sqrt(n)"),
    (["pow", ["sym", "n"], -2, 3], "n**(-2/3)"),
    (mul(["log2", sym("n")], power(sym("n"), -1)), "log2(n)/n"),
    (
        mul(num(8), add(block("first", 40, sym("p0"), sym("c0")), ["min", sym("c0"), num(1)])),
        "8*(block_first(40, p0, c0) + min(1, c0))",
    ),
    (
        mul(block("first", 9, sym("p1"), sym("c1")), block("first", 10, sym("p0"), sym("c0"))),
        "block_first(9, p1, c1)*block_first(10, p0, c0)",
    ),
    (mul(num(32), block("high", 1000, sym("n"), sym("r"))), "32*ceil(1000/n)"),
]


@pytest.mark.parametrize(("expr", "text"), USUAL)
def test_usual_equations(expr: Expr, text: str) -> None:
    assert plain_text(expr) == text == sympy_to_text(simplified(expr))


def test_others_are_left_to_sympy() -> None:
    decided = ["min", sym("n"), num(1)]
    assert plain_text(decided) is None
    assert plain_text(["sum", sym("n"), sym("j")]) is None


def test_usual_equations_load_no_sympy() -> None:
    code = (
        "import sys; from p3s.laws.symbolic import to_text\n"
        f"print([to_text(expr) for expr in {[expr for expr, _ in USUAL]!r}])\n"
        "sys.exit('sympy' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0 and done.stdout.strip() == str([text for _, text in USUAL])
