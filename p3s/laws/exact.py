"""Equations evaluated with integers and fractions, so that "exact" means every digit."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import combinations
from typing import Any

import numpy as np

from p3s.base.errors import P3SError
from p3s.laws.expr import (
    MAX_TERMS,
    Env,
    Expr,
    add,
    block_size,
    evaluate,
    mul,
    num,
    power,
    round_values,
    sym,
)
from p3s.laws.statistics import FLOAT_ERROR

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
        return _round_exact(op, expr[1], env)
    if op == "sum":
        return _sum_terms(expr[1], expr[2], env)
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


def evaluate_int(expr: Expr, env: Env, undefined: int | None = None) -> Any:
    """Return the value of ``expr`` rounded to int64, never negative.

    undefined: stands where the expression has no value; without it P3SError is raised there.
    """
    (value,), bad = round_values(evaluate(expr, env))
    value = np.maximum(value, 0)
    if bad.any():
        if undefined is None:
            from p3s.laws.symbolic import to_text

            raise P3SError(
                f"model: the equation {to_text(expr)} has no value at "
                f"{np.max(env['n'])} processes; choose another count"
            )
        value = np.where(bad, undefined, value)
    return value[()]


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


def _round_exact(op: str, arg: Expr, env: Symbols) -> Fraction | None:
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


def _sum_terms(count: Expr, body: Expr, env: Symbols) -> Fraction | None:
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
    return None if p <= 0 else Fraction(int(block_size(kind, extent, p, c)))


#: What a product costs besides its factors, and a number alone as a term of a sum.
PRODUCT_BITS, NUMBER_BITS = 2.0, 3.0
#: So many of the cheapest shapes are tried in sums of several, of those without such operators: a
#: number beside a shape is a term of its own, and what is rounded comes with a number alone.
FEW, ROUNDING = 14, frozenset({"add", "floor", "ceil", "exp2", "min"})
#: Where numbers were seen: the symbols at each point.
Envs = Sequence[Symbols]
#: Values of parameters of the input, one mapping per run.
Settings = Sequence[Mapping[str, Fraction]]


@dataclass(frozen=True)
class Shape:
    """A function of the symbols; bits: its price; plain: may be a factor of a product; factors: of
    a product, else 0."""

    expr: Expr
    bits: float
    plain: bool = False
    factors: int = 0

    def exact(self, env: Symbols) -> Fraction | None:
        """Return the exact value, None where it is irrational."""
        return exact_value(self.expr, env)


def shapes(ndims: int) -> list[Shape]:
    """Return the shapes in n and, for grids of several dimensions, in the extents."""
    n, log = sym("n"), ["log2", sym("n")]
    root = power(n, Fraction(1, 2))
    extents = [sym(f"p{d}") for d in range(ndims if ndims > 1 else 0)]
    out = [
        Shape(n, 1.0, True),
        Shape(log, 2.0, True),
        Shape(root, 2.2, True),
        Shape(add(n, num(-1)), 2.4, True),
        Shape(add(n, num(1)), 3.4, True),
    ]
    for p in extents:
        out += [
            Shape(p, 2.6, True),
            Shape(["log2", p], 2.8, True),
            Shape(add(p, num(-1)), 3.0, True),
            Shape(add(p, num(1)), 3.6, True),
        ]
    if extents:
        out += [
            Shape(add(*extents), 3.2),
            # how many dimensions have neighbours at all
            Shape(add(*(["min", add(p, num(-1)), num(1)] for p in extents)), 3.4),
        ]
    whole = [["floor", log], ["ceil", log]]
    out += [
        Shape(add(log, num(1)), 4.6, True),
        Shape(whole[1], 3.6),
        Shape(whole[0], 3.7),
        Shape(add(n, num(-2)), 3.8),
        Shape(add(root, num(-1)), 3.9, True),
        Shape(power(n, Fraction(1, 3)), 4.0),
        Shape(power(n, -1), 2.5, True),
        Shape(power(add(n, num(-1)), -1), 3.8),  # what a master deals to the others
        Shape(power(n, Fraction(-1, 2)), 4.1, True),
        Shape(power(n, Fraction(-2, 3)), 4.3),
        Shape(power(n, 2), 4.2),
        Shape(power(n, -2), 4.4),
        Shape(power(n, Fraction(-3, 2)), 4.5),
        Shape(power(n, Fraction(3, 2)), 4.6),
    ]
    for p in extents:
        out += [
            Shape(power(p, -1), 2.7, True),
            Shape(add(p, num(-2)), 4.5),
            Shape(["ceil", ["log2", p]], 4.6),
        ]
    # counts that are no power of two: the largest one below, what is left above it, the next
    below = ["exp2", whole[0]]
    out += [
        Shape(below, 4.8),
        Shape(["exp2", whole[1]], 5.0),
        Shape(add(n, mul(num(-1), below)), 5.0),
    ]
    # the extents of 2-D grids of powers of two, one dimension doubled first
    half = mul(num(Fraction(1, 2)), log)
    sides: list[Expr] = [["exp2", [kind, half]] for kind in ("ceil", "floor")]
    out += [Shape(side, 5.2 if ndims == 1 else 7.0, ndims == 1) for side in sides]
    if ndims == 1:
        out.append(Shape(add(*sides), 5.8))
    return out


def parameter_shapes(settings: Settings) -> list[Shape]:
    """Return the shapes in the parameters that differ between settings."""
    varying = [name for name in settings[0] if len({s[name] for s in settings}) > 1]
    powers = ((1, 1.0), (2, 3.0), (3, 4.0), (-1, 4.0), (Fraction(1, 2), 5.0))
    made = [(power(sym(name), e), bits) for name in varying for e, bits in powers]
    made += [(["log2", sym(name)], 5.0) for name in varying]
    made += [(["ceil", ["log2", sym(name)]], 6.0) for name in varying]
    made += [(["floor", ["log2", sym(name)]], 6.0) for name in varying]
    made += [(mul(sym(name), ["log2", sym(name)]), 7.0) for name in varying]
    for count in range(2, len(varying) + 1):
        for some in combinations(varying, count):
            made.append((mul(*(sym(name) for name in some)), 1.0 + count))
    for a, b in ((a, b) for a in varying for b in varying if a != b):
        made.append((mul(sym(a), power(sym(b), -1)), 5.0))
        made.append((mul(power(sym(a), 2), sym(b)), 5.0))
    return [Shape(expr, bits + max(0, len(varying) - 1)) for expr, bits in made]


@dataclass(frozen=True)
class Basis:
    """Shapes with their values at the points: row i of ``values`` belongs to ``shapes[i]``.

    Only shapes with a value everywhere, in n none that is the same everywhere; the last one is 1.
    """

    shapes: tuple[Shape, ...]
    values: np.ndarray

    @staticmethod
    def of(kept: Sequence[Shape], rows: Sequence[np.ndarray], points: int) -> Basis:
        """Return the basis of shapes, of the products of those that are plain, and of 1."""
        shapes, values = list(kept), [*rows]
        plain = [i for i, s in enumerate(kept) if s.plain]
        for k, i in enumerate(plain):
            for j in plain[k:]:
                a, b = kept[i], kept[j]
                if not _cancel(a.expr, b.expr):
                    expr, bits = mul(a.expr, b.expr), PRODUCT_BITS + a.bits + b.bits
                    shapes.append(Shape(expr, bits, factors=2))
                    values.append(rows[i] * rows[j])
        shapes.append(Shape(num(1), NUMBER_BITS))
        return Basis(tuple(shapes), np.array([*values, np.ones(points)]))

    def at(self, points: Sequence[int]) -> Basis:
        """Return the basis at some of the points."""
        return Basis(self.shapes, self.values[:, list(points)])

    def near(self, size: int, values: np.ndarray) -> list[tuple[int, ...]]:
        """Return the sets of ``size`` shapes that give all values as far as float64 can tell."""
        if size not in self._residuals:
            self._residuals[size] = self._solved(size)
        sets, left = self._residuals[size]
        close = np.all(np.abs(left @ values) <= FLOAT_ERROR * np.abs(values).max(), axis=1)
        return [tuple(one) for one in sets[close].tolist()]

    @cached_property
    def _residuals(self) -> dict[int, tuple[np.ndarray, np.ndarray]]:
        return {}

    def _solved(self, size: int) -> tuple[np.ndarray, np.ndarray]:
        """Return sets of shapes (sets, size) and what turns values into what each sum leaves."""
        one = len(self.shapes) - 1
        smooth = [i for i in range(one) if not _operators(self.shapes[i].expr) & ROUNDING]
        few = [*sorted(smooth, key=lambda i: self.shapes[i].bits)[:FEW], one]
        some: list[tuple[int, ...]] = [(i,) for i in range(one)]
        if size > 1:
            some = [(i, one) for i in range(one) if not self.shapes[i].factors and size == 2]
            some = list(dict.fromkeys([*some, *combinations(few, size)]))
        sets = np.array(some, dtype=np.int64).reshape(-1, size)
        x = self.values[sets].transpose(0, 2, 1)
        if x.shape[1] < size:
            return sets[:0], np.zeros((0, x.shape[1], x.shape[1]))
        x = x / np.maximum(np.abs(x).max(axis=1, keepdims=True), 1e-300)
        u, s, _ = np.linalg.svd(x, full_matrices=False)
        sure = s[:, -1] > FLOAT_ERROR
        return sets[sure], np.eye(x.shape[1]) - u[sure] @ u[sure].transpose(0, 2, 1)


def basis(envs: Envs, ndims: int) -> Basis:
    """Return the shapes that are usable at these counts with their values."""
    return _basis(tuple(tuple(sorted((k, int(v)) for k, v in e.items())) for e in envs), ndims)


@lru_cache(maxsize=256)
def _basis(key: tuple[tuple[tuple[str, int], ...], ...], ndims: int) -> Basis:
    names = [k for k, _ in key[0]]
    env = {name: np.array([dict(e)[name] for e in key], dtype=float) for name in names}
    kept, rows = [], []
    for shape in shapes(ndims):
        row = np.asarray(evaluate(shape.expr, env), dtype=float) + np.zeros(len(key))
        if np.all(np.isfinite(row)) and not np.all(row == row[0]):
            kept.append(shape)
            rows.append(row)
    return Basis.of(kept, rows, len(key))


def parameter_basis(settings: Settings) -> Basis:
    """Return the shapes in parameters that have an exact value at every setting."""
    kept, rows = [], []
    for shape in parameter_shapes(settings):
        row = [value_at(shape.expr, s) for s in settings]
        if None not in row:
            kept.append(shape)
            rows.append(np.array([float(v) for v in row if v is not None]))
    return Basis.of(kept, rows, len(settings))


def _operators(expr: Expr) -> set[str]:
    return {
        expr[0],
        *(op for part in expr[1:] if isinstance(part, list) for op in _operators(part)),
    }


def _cancel(a: Expr, b: Expr) -> bool:
    """Whether a product is one of the single shapes, or a constant, once more."""
    bases = [(e[1], Fraction(e[2], e[3])) if e[0] == "pow" else (e, Fraction(1)) for e in (a, b)]
    return bases[0][0] == bases[1][0] and (bases[0][1] != bases[1][1] or bases[0][0] == sym("n"))


def bits_of(value: int | Fraction) -> float:
    """Return what it takes to write a number down, in bits; fractions cost their denominator."""
    value = Fraction(value)
    return 1.0 + math.log2(1 + abs(value.numerator)) + 2.0 * math.log2(value.denominator)


def roundness(e: int) -> int:
    """Return how round a number is: trailing decimal zeros first, then factors of two."""
    twos = (e & -e).bit_length() - 1
    tens = 0
    while e and e % 10 == 0:
        e //= 10
        tens += 1
    return max(2 * tens, twos // 2)
