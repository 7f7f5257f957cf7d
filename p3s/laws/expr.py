"""Equations as data: small expression trees in JSON, evaluated by numpy, shown by sympy.

An expression is a JSON list whose first element names the operator:

    ["num", a, b]            the rational a/b
    ["sym", name]            a symbol of SYMBOLS
    ["add", e...] ["mul", e...]
    ["pow", e, a, b]         e ** (a/b)
    ["log2", e] ["exp2", e] ["floor", e] ["ceil", e] ["min", e, e] ["max", e, e]
    ["quot", e, e] ["mod", e, e] floor division and what it leaves
    ["sum", count, e]        e summed over j = 0, 1, ..., count - 1
    ["block", kind, L, p, c] extent L cut into p blocks, the size of block c (all expressions)

Nothing is ever parsed from text; sympy objects are made by constructors only.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from p3s.base.errors import P3SError

Expr = list[Any]
Env = Mapping[str, Any]

#: n processes; p_d grid extents; c_d own and q_d partner coordinates; r own rank;
#: s stage of a family of partners (0, 1, ...); t iteration of a loop; j bound by a sum.
SYMBOLS = ("n", "r", "s", "t", "j", "b", *(f"{k}{d}" for k in "pcq" for d in range(4)))

#: Longest sum that is evaluated: more terms than extents of any grid in use.
MAX_TERMS = 1 << 16

#: Whole numbers from here on are none of int64.
_BEYOND = 2.0**63

#: Operators and how many arguments each has; None: one or more.
ARGUMENTS = {
    **dict.fromkeys(("sym", "exp2", "log2", "floor", "ceil"), 1),
    **dict.fromkeys(("num", "min", "max", "quot", "mod", "sum"), 2),
    "pow": 3,
    "block": 4,
    "add": None,
    "mul": None,
}
BLOCK_KINDS = ("first", "floor", "last", "tail", "ceil", "nearest", "low", "high")


def num(value: int | Fraction) -> Expr:
    """Return the constant ``value`` as an expression."""
    value = Fraction(value)
    return ["num", value.numerator, value.denominator]


def sym(name: str) -> Expr:
    """Return the symbol ``name`` as an expression."""
    return ["sym", name]


def mul(*args: Expr) -> Expr:
    """Return the product of ``args``, dropping factors of one."""
    kept = [a for a in args if a != ["num", 1, 1]]
    if not kept:
        return num(1)
    return kept[0] if len(kept) == 1 else ["mul", *kept]


def add(*args: Expr) -> Expr:
    """Return the sum of ``args``, dropping zeros."""
    kept = [a for a in args if a != ["num", 0, 1]]
    if not kept:
        return num(0)
    return kept[0] if len(kept) == 1 else ["add", *kept]


def power(base: Expr, exponent: int | Fraction) -> Expr:
    """Return ``base ** exponent`` for a rational exponent."""
    exponent = Fraction(exponent)
    return base if exponent == 1 else ["pow", base, exponent.numerator, exponent.denominator]


def block(kind: str, extent: int, p: Expr, c: Expr) -> Expr:
    """Return the size of block ``c`` of ``extent`` elements cut into ``p`` blocks."""
    return ["block", kind, num(extent), p, c]


def block_size(kind: str, extent: Any, p: Any, c: Any) -> Any:
    """Return sizes of block ``c`` of ``p`` (arrays broadcast); kinds are listed in BLOCK_KINDS.

    first/last: the remainder goes one each to the first/last blocks; floor: boundaries at
    floor(c L / p); tail: the last block takes the whole remainder; ceil: blocks of ceil(L/p),
    the last ones short or empty; nearest: blocks of L/p rounded, halves up, the last one takes what
    is left; low/high: floor(L/p) and ceil(L/p) whatever the block.
    """
    if kind == "first":
        return (extent + p - 1 - c) // p
    if kind == "last":
        return (extent + c) // p
    if kind == "floor":
        return (c + 1) * extent // p - c * extent // p
    if kind == "tail":
        return np.where(c == p - 1, extent - (p - 1) * (extent // p), extent // p)
    if kind == "ceil":
        width = -(-extent // p)
        return np.minimum(extent, (c + 1) * width) - np.minimum(extent, c * width)
    if kind == "nearest":
        width = (2 * extent + p) // (2 * p)
        return np.where(c == p - 1, np.maximum(extent - (p - 1) * width, 0), width)
    if kind == "low":
        return extent // p + 0 * c
    if kind == "high":
        return -(-extent // p) + 0 * c
    raise P3SError(f"model: unknown block partition {kind!r}; the file was made by another version")


def evaluate(expr: Expr, env: Env) -> Any:
    """Return the value of ``expr`` in float64 (arrays broadcast); ``env`` gives the symbols.

    Not finite where it has no value (1/0, log2 of 0) or one beyond float64: whoever asks looks.
    """
    with np.errstate(all="ignore"):
        return _value(expr, env)


def _value(expr: Expr, env: Env) -> Any:
    op = expr[0]
    if op == "num":
        return expr[1] / expr[2]
    if op == "sym":
        return env[expr[1]]
    if op == "add":
        total = _value(expr[1], env)
        for a in expr[2:]:
            total = total + _value(a, env)
        return total
    if op == "mul":
        total = _value(expr[1], env)
        for a in expr[2:]:
            total = total * _value(a, env)
        return total
    if op == "pow":
        base = np.asarray(_value(expr[1], env), dtype=float)
        return np.sqrt(base) if expr[2:] == [1, 2] else base ** (expr[2] / expr[3])
    if op == "min":
        return np.minimum(_value(expr[1], env), _value(expr[2], env))
    if op == "max":
        return np.maximum(_value(expr[1], env), _value(expr[2], env))
    if op in ("quot", "mod"):
        (a, b), undefined = round_values(*(_value(e, env) for e in expr[1:]))
        by = np.where(b == 0, 1, b)
        return _mask_undefined(a // by if op == "quot" else a % by, undefined | (b == 0))
    if op == "sum":
        return _sum(expr[1], expr[2], env)
    if op == "exp2":
        return np.exp2(np.asarray(_value(expr[1], env), dtype=float))
    if op == "log2":
        return np.log2(np.asarray(_value(expr[1], env), dtype=float))
    if op in ("floor", "ceil"):
        value = np.asarray(_value(expr[1], env), dtype=float)
        # 1e-9 forgives the last bit of a float root or logarithm of an exact integer
        return np.floor(value + 1e-9) if op == "floor" else np.ceil(value - 1e-9)
    if op == "block":
        (extent, p, c), undefined = round_values(*(_value(a, env) for a in expr[2:]))
        size = block_size(expr[1], extent, np.where(p == 0, 1, p), c)
        return _mask_undefined(size, undefined | (p == 0))
    raise P3SError(f"model: unknown operator {op!r}; the file was made by another version")


def _sum(count: Expr, body: Expr, env: Env) -> Any:
    """Return ``body`` summed over j; where counts differ, each element has its own number."""
    (upto,), undefined = round_values(_value(count, env))
    most = int(upto.max(initial=0))
    if most > MAX_TERMS:
        raise P3SError(f"model: a sum of {most} terms; the largest evaluated is {MAX_TERMS}")
    total: Any = 0.0
    for j in range(most):
        total = total + np.where(j < upto, _value(body, {**env, "j": j}), 0.0)
    return _mask_undefined(total + 0.0 * upto, undefined)


def round_values(*values: Any) -> tuple[list[np.ndarray], np.ndarray]:
    """Return values rounded to int64, and where one of them is no such number."""
    out, undefined = [], np.zeros((), dtype=bool)
    for value in map(np.asarray, values):
        if value.dtype.kind not in "iu":
            value = np.rint(value.astype(float))
            bad = ~(np.abs(value) < _BEYOND)
            value, undefined = np.where(bad, 0, value), undefined | bad
        out.append(value.astype(np.int64))
    return out, undefined


def _mask_undefined(value: Any, undefined: np.ndarray) -> Any:
    """Return a value, NaN where it is undefined."""
    return np.where(undefined, np.nan, value) if undefined.any() else value


def whole_number(value: float, n: int) -> int:
    """Return a law's value at ``n`` processes rounded, never negative; P3SError if it is none."""
    if not abs(value) < _BEYOND:
        raise P3SError(f"model: a fitted law has no value at {n} processes; choose another count")
    return max(round(value), 0)


def symbols_of(expr: Expr) -> set[str]:
    """Return the names of the symbols in ``expr``."""
    if expr[0] == "sym":
        return {expr[1]}
    return {s for a in expr[1:] if isinstance(a, list) for s in symbols_of(a)}


def check(expr: Any, depth: int = 0) -> Expr:
    """Return ``expr`` if it is a well-formed expression; raise P3SError otherwise."""
    if depth > 16 or not isinstance(expr, list) or not expr:
        raise P3SError("model: an equation is malformed; run `p3s model` again")
    op, args = expr[0], expr[1:]
    number = ARGUMENTS.get(op, -1) if isinstance(op, str) else -1
    ok = bool(args) if number is None else len(args) == number
    if ok and op in ("num", "pow"):
        whole = args[-2:]
        ok = all(type(a) is int for a in whole) and whole[-1] != 0
        ok = ok and (op == "num" or all(abs(a) <= 64 for a in whole))
    elif ok and op in ("sym", "block"):
        ok = args[0] in (SYMBOLS if op == "sym" else BLOCK_KINDS)
    if not ok:
        raise P3SError(f"model: an equation is malformed at {op!r}; run `p3s model` again")
    for a in args:
        if isinstance(a, list):
            check(a, depth + 1)
    return expr
