"""Equations evaluated with integers and fractions, so that "exact" means every digit."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction

from p3s.base.errors import P3SError
from p3s.laws.expr import MAX_TERMS, Expr, evaluate

#: Values of symbols: whole numbers (n, extents) or fractions (parameters of the input).
Symbols = Mapping[str, int | Fraction]


def exact_value(expr: Expr, env: Symbols) -> Fraction | None:
    """Return the value of ``expr`` for rational symbols, None where it is irrational or undefined.

    floor and ceil of an irrational number are exact for roots and logarithms, and as good as
    float64 for what is built from them.
    """
    op = expr[0]
    if op == "num":
        return Fraction(expr[1], expr[2])
    if op == "sym":
        value = env[expr[1]]
        return value if isinstance(value, Fraction) else Fraction(int(value))
    if op in ("floor", "ceil"):
        return _rounded(op, expr[1], env)
    if op == "sum":
        return _summed(expr[1], expr[2], env)
    args = [exact_value(a, env) for a in expr[1:] if isinstance(a, list)]
    known = [a for a in args if a is not None]
    if op == "mul" and Fraction(0) in known:
        return Fraction(0)
    if len(known) < len(args):
        return None
    if op == "add":
        return sum(known, Fraction(0))
    if op == "mul":
        return math.prod(known, start=Fraction(1))
    if op in ("min", "max"):
        return min(known) if op == "min" else max(known)
    if op in ("quot", "mod"):
        a, b = (round(k) for k in known)
        return None if b == 0 else Fraction(a // b if op == "quot" else a % b)
    if op == "pow":
        return _power(known[0], Fraction(expr[2], expr[3]))
    if op == "exp2":
        return _power(Fraction(2), known[0])
    if op == "log2":
        return _log2(known[0])
    if op == "block":
        return _block(expr[1], *(round(k) for k in known))
    raise P3SError(f"model: unknown operator {op!r}; the file was made by another version")


def value_at(expr: Expr, env: Symbols) -> Fraction | None:
    """Return the exact value of an expression, None also where it divides by zero."""
    try:
        return exact_value(expr, env)
    except (ZeroDivisionError, OverflowError):
        return None


def integer_root(value: int, degree: int) -> int:
    """Return the floor of the ``degree``-th root of a whole number that is not negative."""
    if degree == 2:
        return math.isqrt(value)
    root = (
        round(value ** (1.0 / degree)) if value < 2**1000 else 1 << (value.bit_length() // degree)
    )
    while root**degree > value:
        root -= 1
    while (root + 1) ** degree <= value:
        root += 1
    return root


def _power(base: Fraction, exponent: Fraction) -> Fraction | None:
    if base < 0 or abs(exponent) > 64 or (base == 0 and exponent < 0):
        return None
    k = exponent.denominator
    top, bottom = integer_root(base.numerator, k), integer_root(base.denominator, k)
    if top**k != base.numerator or bottom**k != base.denominator:
        return None
    return Fraction(top, bottom) ** exponent.numerator


def _log2(value: Fraction) -> Fraction | None:
    if (
        value <= 0
        or value.numerator & (value.numerator - 1)
        or value.denominator & (value.denominator - 1)
    ):
        return None
    return Fraction(value.numerator.bit_length() - value.denominator.bit_length())


def _rounded(op: str, arg: Expr, env: Symbols) -> Fraction | None:
    inner = exact_value(arg, env)
    if inner is not None:
        return Fraction(math.floor(inner) if op == "floor" else math.ceil(inner))
    below: int | None = None
    if arg[0] == "log2" and (x := exact_value(arg[1], env)) is not None and x >= 1:
        below = math.floor(x).bit_length() - 1
    elif (
        arg[0] == "pow"
        and arg[2] > 0 < arg[3]
        and (x := exact_value(arg[1], env)) is not None
        and x >= 0
    ):
        below = integer_root(math.floor(x ** arg[2]), arg[3])
    if below is not None:  # irrational: never whole itself
        return Fraction(below if op == "floor" else below + 1)
    try:
        value = float(evaluate([op, arg], env))
    except ZeroDivisionError:
        return None
    return Fraction(round(value)) if math.isfinite(value) else None


def _summed(count: Expr, body: Expr, env: Symbols) -> Fraction | None:
    upto = exact_value(count, env)
    if upto is None or upto > MAX_TERMS:
        return None
    total = Fraction(0)
    for j in range(round(upto)):
        term = exact_value(body, {**env, "j": j})
        if term is None:
            return None
        total += term
    return total


def _block(kind: str, extent: int, p: int, c: int) -> Fraction | None:
    if p <= 0:
        return None
    width, near = -(-extent // p), (2 * extent + p) // (2 * p)
    sizes = {
        "first": (extent + p - 1 - c) // p,
        "last": (extent + c) // p,
        "floor": (c + 1) * extent // p - c * extent // p,
        "tail": extent - (p - 1) * (extent // p) if c == p - 1 else extent // p,
        "ceil": min(extent, (c + 1) * width) - min(extent, c * width),
        "nearest": max(extent - (p - 1) * near, 0) if c == p - 1 else near,
        "low": extent // p,
        "high": width,
    }
    return Fraction(sizes[kind])
