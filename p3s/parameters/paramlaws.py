"""Laws of numbers in the parameters of a workload: exact ones first, else a fit with a width.

A number of a model at several settings (size=400, 800, 1200) gets the shortest law that meets
every value in exact arithmetic: a constant, k*m, k*m + c, k*m + l*m', k times the floor or the
ceiling of a parameter over a whole number. m is a power, a logarithm or a product of parameters.
As in p3s/laws/counts.py a law must be shorter than the values it explains. Whole numbers in laws
are never powers of two of roots of parameters: what n does to a program, a parameter seldom does.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from typing import Any

import numpy as np

from p3s.errors import P3SError
from p3s.laws.exact import exact_value
from p3s.laws.expr import Expr, add, mul, num, power, sym
from p3s.laws.shapes import bits_of
from p3s.settings import Setting

#: A law is exact, with a value to spare; open: as many numbers as values, or rivals; fitted: real.
EXACT, OPEN, FITTED = "exact", "open", "fitted"
#: Bits that a law other than a multiple has to save; those within RIVAL_BITS of it are rivals.
_MARGIN, _RIVAL_BITS = 4.0, 4.0
_MAX_DENOMINATOR = 64
#: Divisors that are tried in floor and ceil.
_MAX_DIVISOR = 64


@dataclass(frozen=True)
class Number:
    """A number as a law of the parameters.

    state: EXACT, OPEN or FITTED. expr: an expression whose symbols are parameters, None for a
    fitted one; then ``terms`` are [coefficient, powers of the parameters], ``error`` their
    relative error at a setting left out. whole: all values were whole numbers. rivals: other
    exact laws that meet the values.
    """

    state: str
    expr: Expr | None
    terms: tuple[tuple[float, tuple[float, ...]], ...] = ()
    error: float = 0.0
    whole: bool = True
    rivals: tuple[Expr, ...] = ()

    def value(self, setting: Setting) -> Fraction | float:
        """Return the number at a setting, as the law says it; never rounded."""
        if self.expr is not None:
            found = value_at(self.expr, setting)
            if found is not None:
                return found
            raise P3SError("model: a law of the parameters has no value there")
        at = [float(v) for v in setting.values()]
        try:
            return sum(
                c * math.prod(math.pow(v, e) for v, e in zip(at, p, strict=True))
                for c, p in self.terms
            )
        except (ValueError, OverflowError) as err:  # math.pow: of 0 and below
            raise P3SError("model: a law of the parameters has no value there") from err

    def settled(self, setting: Setting) -> bool:
        """Tell whether the law is exact and gives a number of the right kind at a setting."""
        if self.state != EXACT:
            return False
        value = self.value(setting)
        return not self.whole or (isinstance(value, Fraction) and value.denominator == 1)

    def to_json(self) -> dict[str, Any]:
        """Return the law as plain data."""
        out: dict[str, Any] = {"state": self.state, "whole": self.whole}
        if self.expr is not None:
            out["expr"] = self.expr
            out["rivals"] = list(self.rivals)
        else:
            out["terms"] = [[c, list(p)] for c, p in self.terms]
            out["error"] = self.error
        return out

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Number:
        """Return the law stored by :meth:`to_json`."""
        return cls(
            data["state"],
            data.get("expr"),
            tuple((float(c), tuple(p)) for c, p in data.get("terms", ())),
            float(data.get("error", 0.0)),
            bool(data["whole"]),
            tuple(data.get("rivals", ())),
        )


def value_at(expr: Expr, setting: Setting) -> Fraction | None:
    """Return the exact value of an expression in the parameters, None where it has none."""
    try:
        return exact_value(with_values(expr, setting), {})
    except (ZeroDivisionError, OverflowError):
        return None


def with_values(expr: Any, setting: Setting) -> Any:
    """Return an expression with the values of the parameters in the place of their symbols."""
    if not isinstance(expr, list):
        return expr
    if expr[0] == "sym" and expr[1] in setting:
        return num(setting[expr[1]])
    return [with_values(part, setting) for part in expr]


def find_number(settings: Sequence[Setting], values: Sequence[Fraction | float]) -> Number:
    """Return the law of a number with one value at each of the settings (at least one)."""
    exact = [Fraction(v) if not isinstance(v, float) or v.is_integer() else None for v in values]
    y = [v for v in exact if v is not None]
    if len(y) == len(values):
        whole = all(v.denominator == 1 for v in y)
        found = _exact(settings, y)
        if found:
            best = found[0]
            rivals = tuple(
                c.expr
                for c in found[1:]
                if c.bits - best.bits <= _RIVAL_BITS and _differ(best.expr, c.expr, settings)
            )[:3]
            state = EXACT if len(values) > best.free and not rivals else OPEN
            return Number(state, best.expr, whole=whole, rivals=rivals)
    else:
        whole = False
    terms, error = fit_real(settings, [float(v) for v in values])
    return Number(FITTED, None, terms, error, whole)


@dataclass(frozen=True)
class _Candidate:
    expr: Expr
    bits: float
    free: int


@dataclass(frozen=True)
class _Shape:
    expr: Expr
    bits: float
    values: tuple[Fraction, ...]


def _exact(settings: Sequence[Setting], y: Sequence[Fraction]) -> list[_Candidate]:
    """Return the exact laws that are believed, shortest first."""
    if all(v == y[0] for v in y):
        return [_Candidate(num(y[0]), 0.0, 1)]
    if len(y) < 2:
        return []
    shapes = list(_shapes(settings))
    spent = sum(bits_of(v) for v in y)
    sure = list(_multiples(shapes, y))
    more = list(_affine(shapes, y))
    if len(y) > 2:
        more += _rounded(settings, y)
    if len(y) > 3:
        more += _sums(shapes, y)
    found = [*sure, *(c for c in more if c.bits + (_MARGIN if len(y) > 2 else 0.0) <= spent)]
    return sorted(found, key=lambda c: c.bits)


def _shapes(settings: Sequence[Setting]) -> Iterator[_Shape]:
    names = list(settings[0])
    varying = [name for name in names if len({s[name] for s in settings}) > 1]
    powers = [
        (Fraction(1), 1.0),
        (Fraction(2), 3.0),
        (Fraction(3), 4.0),
        (Fraction(-1), 4.0),
        (Fraction(1, 2), 5.0),
    ]
    single = {name: [(power(sym(name), e), bits) for e, bits in powers] for name in varying}
    made = [each for name in varying for each in single[name]]
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
    for expr, bits in made:
        values = [value_at(expr, s) for s in settings]
        known = tuple(v for v in values if v is not None)
        if len(known) == len(values):
            yield _Shape(expr, bits + max(0, len(varying) - 1), known)


def _simple(value: Fraction) -> bool:
    return value.denominator <= _MAX_DENOMINATOR


def _multiples(shapes: Sequence[_Shape], y: Sequence[Fraction]) -> Iterator[_Candidate]:
    for shape in shapes:
        first = next((i for i, v in enumerate(shape.values) if v), None)
        if first is None:
            continue
        k = y[first] / shape.values[first]
        if (
            k
            and k.denominator <= 1024
            and all(k * v == w for v, w in zip(shape.values, y, strict=True))
        ):
            # of two settings any power meets both values: only the parameter itself is believed
            plain = shape.expr[0] == "sym" or len(set(y)) > 2
            yield _Candidate(mul(num(k), shape.expr), shape.bits + bits_of(k), 1 if plain else 2)


def _affine(shapes: Sequence[_Shape], y: Sequence[Fraction]) -> Iterator[_Candidate]:
    for shape in shapes:
        pair = _apart(shape.values)
        if pair is None:
            continue
        i, j = pair
        k = (y[i] - y[j]) / (shape.values[i] - shape.values[j])
        c = y[i] - k * shape.values[i]
        if (
            k
            and c
            and _simple(k)
            and _simple(c)
            and all(k * v + c == w for v, w in zip(shape.values, y, strict=True))
        ):
            yield _Candidate(
                add(mul(num(k), shape.expr), num(c)), shape.bits + 3.0 + bits_of(k) + bits_of(c), 2
            )


def _apart(values: Sequence[Fraction]) -> tuple[int, int] | None:
    low, high = values.index(min(values)), values.index(max(values))
    return (high, low) if values[low] != values[high] else None


def _sums(shapes: Sequence[_Shape], y: Sequence[Fraction]) -> Iterator[_Candidate]:
    """Try k*m + l*m' + c: the numbers follow from as many settings, all others check them."""
    one = _Shape(num(1), 0.0, tuple(Fraction(1) for _ in y))
    for a, b in combinations(shapes[:16], 2):
        for extra in ([], [one]):
            parts = [a, b, *extra]
            if len(y) <= len(parts):
                continue
            coef = _solve(parts, y)
            if coef is None or not all(c and _simple(c) for c in coef):
                continue
            if all(
                sum(c * p.values[i] for c, p in zip(coef, parts, strict=True)) == w
                for i, w in enumerate(y)
            ):
                yield _Candidate(
                    add(*(mul(num(c), p.expr) for c, p in zip(coef, parts, strict=True))),
                    3.0 * (len(parts) - 1)
                    + sum(p.bits + bits_of(c) for c, p in zip(coef, parts, strict=True)),
                    len(parts),
                )


def _solve(parts: Sequence[_Shape], y: Sequence[Fraction]) -> list[Fraction] | None:
    """Return the coefficients from the first settings that determine them."""
    size = len(parts)
    rows = [[*(p.values[i] for p in parts), w] for i, w in enumerate(y)]
    for col in range(size):
        pivot = next((i for i in range(col, len(rows)) if rows[i][col]), None)
        if pivot is None:
            return None
        rows[col], rows[pivot] = rows[pivot], rows[col]
        rows[col] = [v / rows[col][col] for v in rows[col]]
        for i in range(len(rows)):
            if i != col and rows[i][col]:
                factor = rows[i][col]
                rows[i] = [v - factor * w for v, w in zip(rows[i], rows[col], strict=True)]
    return [rows[i][size] for i in range(size)]


def _rounded(settings: Sequence[Setting], y: Sequence[Fraction]) -> Iterator[_Candidate]:
    """Try k * floor(s / d) and k * ceil(s / d), where s / d is not whole at every setting."""
    if any(v.denominator != 1 for v in y):
        return
    step = Fraction(int(np.gcd.reduce([abs(int(v)) for v in y])))
    for name in settings[0]:
        s = [each[name] for each in settings]
        if len(set(s)) < 3 or not step:
            continue
        for k in dict.fromkeys((Fraction(1), step)):
            ratio = max(s) * k / y[s.index(max(s))] if y[s.index(max(s))] else Fraction(0)
            for d in {max(int(ratio), 1), int(ratio) + 1}:
                if not 1 < d <= _MAX_DIVISOR:
                    continue
                for op in ("floor", "ceil"):
                    inner = mul(num(Fraction(1, d)), sym(name))
                    expr = mul(num(k), [op, inner])
                    if any((v / d).denominator != 1 for v in s) and all(
                        value_at(expr, {name: v}) == w for v, w in zip(s, y, strict=True)
                    ):
                        yield _Candidate(expr, 5.0 + bits_of(k) + bits_of(d), 2)


def _differ(a: Expr, b: Expr, settings: Sequence[Setting]) -> bool:
    """Tell whether two laws differ at settings two and four times as large, or in between."""
    for factor in (Fraction(2), Fraction(4)):
        at = {name: max(s[name] for s in settings) * factor for name in settings[0]}
        x, y = value_at(a, at), value_at(b, at)
        if x is not None and y is not None and x != y:
            return True
    return False


def fit_real(
    settings: Sequence[Setting], values: Sequence[float]
) -> tuple[tuple[tuple[float, tuple[float, ...]], ...], float]:
    """Return terms c * product of powers of the parameters, and their error where one is left out.

    One or two terms with positive coefficients; the error is the root mean square of the
    relative errors at each setting left out in turn, 1 where none can be left out.
    """
    names = list(settings[0])
    x = np.array([[float(s[name]) for name in names] for s in settings])
    y = np.array(values, dtype=float)
    flat = tuple(0.0 for _ in names)
    if len(y) < 2 or np.all(y == y[0]):
        return ((float(y[0]), flat),), 1.0 if len(y) < 2 else 0.0
    if np.any(y < 0) or not np.all(np.isfinite(y)):
        return ((float(y.mean()), flat),), 1.0
    steps = (-1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0)
    shapes = [flat]
    for d in range(len(names)):
        if len(np.unique(x[:, d])) > 1:
            has = np.all(x[:, d] > 0)  # powers have no value at 0 and below but some
            shapes += [
                tuple(e if k == d else s[k] for k in range(len(names)))
                for s in list(shapes)
                for e in steps
                if e and (has or e > 0 and e == round(e))
            ]
    columns = {s: np.prod(x ** np.array(s), axis=1) for s in dict.fromkeys(shapes)}
    sets: list[tuple[tuple[float, ...], ...]] = [(s,) for s in columns]
    if len(y) > 2:
        sets += [(flat, s) for s in columns if s != flat]
    best: tuple[float, float, Any] | None = None
    size = np.maximum(y, 1e-3 * y.max())
    for some in sets:
        matrix = np.stack([columns[s] for s in some], axis=1)
        coef = _positive(matrix, y, size)
        if coef is None:
            continue
        missed = []
        for k in range(len(y)):
            keep = np.arange(len(y)) != k
            part = _positive(matrix[keep], y[keep], size[keep])
            told = float(matrix[k] @ part) if part is not None else 0.0
            missed.append((told - y[k]) / size[k])
        error = float(np.sqrt(np.mean(np.square(missed))))
        key = (error + 1e-6) * (1.5 if len(some) > 1 else 1.0)
        if best is None or key < best[0]:
            best = (key, error, tuple((float(c), s) for c, s in zip(coef, some, strict=True)))
    if best is None:
        return ((float(y.mean()), flat),), 1.0
    return best[2], best[1]


def _positive(matrix: np.ndarray, y: np.ndarray, size: np.ndarray) -> np.ndarray | None:
    """Return the least-squares coefficients, None unless all are positive; size: of y, positive."""
    if matrix.shape[0] < matrix.shape[1]:
        return None
    weight = 1.0 / size
    scale = np.abs(matrix).max(axis=0)
    if not np.all(scale > 0):
        return None
    coef, _, rank, _ = np.linalg.lstsq(matrix / scale * weight[:, None], y * weight, rcond=None)
    if rank < matrix.shape[1] or np.any(coef <= 0):
        return None
    return np.asarray(coef / scale)
