"""Hypotheses: ways to write the sizes of a slot, and what each costs in bits."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from p3s.laws.exact import evaluate_int
from p3s.laws.expr import Expr, mul, num
from p3s.model.sizes.observations import Axis
from p3s.model.sizes.terms import Term

#: What hypotheses share: a kind of constant and its value.
Constant = tuple[str, object]
Price = Callable[[Constant], float]

#: The prior: bits of constants by kind and value (None: any other), of symbols, and of what is
#: unlikely of the axes of a product. Numbers that the user typed are nearly free. A program seldom
#: cuts its extents in two ways. Points are one more than cells, at the end as a rule; a second
#: extent of some hundreds is likelier than another border. The cells of a multi-partition are three
#: coordinates, each a slope of two, two coefficients of three, an offset of three.
PRIOR: dict[str, dict[object, float]] = {
    "typed": {None: 0.5},
    "symbol": {None: 1.6},
    "axis": {None: 1.6},
    "cut": {"first": 5.0, "floor": 5.5, None: 7.0},
    "border": {(0, 1): 4.0, None: 18.0},
    "cells": {None: 3 * math.log2(2 * 3**2 * 3)},
    "product": {"axis of the partner": 1.0, "axis of no face": 3.0, "less than a face": 4.0},
    "sum": {None: 4.0},
}


def prior(kind: str, value: object = None) -> float:
    """Return the bits that the prior has for a value of a kind."""
    table = PRIOR[kind]
    return table[value] if value in table else table[None]


class Hypothesis:
    """A way to write the sizes of a slot.

    constants: what other hypotheses may share, paid once for all.
    """

    @property
    def constants(self) -> frozenset[Constant]:
        """What other hypotheses may share."""
        raise NotImplementedError

    def expr(self) -> Expr:
        """Return the equation."""
        raise NotImplementedError

    def key(self) -> tuple[object, ...]:
        """Return what tells hypotheses apart, also those of different slots."""
        raise NotImplementedError

    def own(self) -> float:
        """Return the bits that the hypothesis costs whatever is shared."""
        raise NotImplementedError

    def free(self) -> int:
        """Return the number of constants in the equation."""
        raise NotImplementedError

    def values(self, env: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return the sizes, int64, for arrays of symbols; -1 where there is none."""
        found = evaluate_int(self.expr(), env, undefined=-1)
        return np.broadcast_to(found, (len(env["n"]),)).astype(np.int64)


@dataclass(frozen=True)
class Product(Hypothesis):
    """A factor times terms; axes: what the terms' axis numbers mean; odd: bits of unlikely axes.

    cells: the arrangement of a multi-partition's cells that the axes belong to.
    """

    factor: int
    terms: tuple[Term, ...]
    axes: tuple[Axis, ...]
    odd: float = 0.0
    cells: object = None

    def expr(self) -> Expr:
        return mul(num(self.factor), *(t.expr(self.axes) for t in self.terms))

    def key(self) -> tuple[object, ...]:
        names = ((str(self.axes[t.axis].p), str(self.axes[t.axis].c)) for t in self.terms)
        terms = ((t.cut, t.extent, t.ghost) for t in self.terms)
        return (self.factor, self.cells, *zip(names, terms, strict=True))

    @cached_property
    def constants(self) -> frozenset[Constant]:
        out: set[Constant] = {("factor", self.factor)}
        for t in self.terms:
            out |= {("extent", t.extent), ("cut", t.cut.kind)}
            out.add(("axis", (self.axes[t.axis].name, t.extent)))
            if any(t.cut.border):
                out.add(("border", t.cut.border))
            if t.ghost:
                out.add(("ghost", t.ghost))
        if self.cells is not None:
            out.add(("cells", self.cells))
        return frozenset(out)

    def own(self) -> float:
        wider = sum((t.ghost != 0) + any(t.cut.border) for t in self.terms)
        return 1.0 + len(self.terms) + (self.factor != 1) + wider + self.odd

    def free(self) -> int:
        ghosts = {t.ghost for t in self.terms} - {0}
        return len(self.terms) + (self.factor != 1) + len(ghosts)

    def values(self, env: Mapping[str, np.ndarray]) -> np.ndarray:
        out = np.full(len(env["n"]), self.factor, dtype=np.int64)
        for t in self.terms:
            axis = self.axes[t.axis]
            p, c = (evaluate_int(e, env) for e in (axis.p, axis.c))
            out = out * np.maximum(t.cut.sizes(t.extent, p, c) + t.ghost, 0)
        return out


@dataclass(frozen=True)
class Written(Hypothesis):
    """An equation of any form; bits: of all of it but its constants."""

    equation: Expr
    bits: float
    numbers: int
    shared: frozenset[Constant] = frozenset()

    @property
    def constants(self) -> frozenset[Constant]:
        return self.shared

    def expr(self) -> Expr:
        return self.equation

    def key(self) -> tuple[object, ...]:
        cells = next((value for kind, value in self.shared if kind == "cells"), None)
        return (str(self.equation), cells)

    def own(self) -> float:
        return self.bits

    def free(self) -> int:
        return self.numbers


def written(expr: Expr, numbers: int) -> Written:
    """Return an equation as a hypothesis."""
    shared: set[Constant] = set()
    for b in blocks_in(expr):
        shared.add(("cut", b[1]))
        if b[2][0] == "num":
            shared.add(("extent", b[2][1]))
    return Written(expr, 1.0 + _bits_beside_blocks(expr), numbers, frozenset(shared))


def equation_bits(expr: Expr) -> float:
    """Return the bits of an equation by itself."""
    h = written(expr, 0)
    return h.own() + sum(bits_of(c, frozenset()) for c in h.constants)


def around(inner: Hypothesis, expr: Expr, numbers: int = 1) -> Written:
    """Return an equation that holds another hypothesis, which has so many numbers less."""
    more = _bits_beside_blocks(expr) - _bits_beside_blocks(inner.expr())
    return Written(expr, inner.own() + max(more, 0.0), inner.free() + numbers, inner.constants)


def blocks_in(expr: Expr) -> list[Expr]:
    """Return all blocks in an equation."""
    if expr[0] == "block":
        return [expr]
    return [b for a in expr[1:] if isinstance(a, list) for b in blocks_in(a)]


def _bits_beside_blocks(expr: Expr) -> float:
    if expr[0] == "num":
        plain = 0.0 if abs(expr[1]) < 2 else whole_bits(abs(expr[1]))
        return plain + 2 * math.log2(expr[2])
    if expr[0] == "sym":
        return prior("symbol")
    inner = expr[1:]
    if expr[0] == "block":  # a plain extent is shared
        inner = [a for a in expr[2:] if isinstance(a, list) and (a is not expr[2] or a[0] != "num")]
    return 1.0 + sum(_bits_beside_blocks(a) for a in inner if isinstance(a, list))


#: The smaller of two numbers whose product a number is, at most.
_LARGEST_PART = 2048


@lru_cache(maxsize=65536)
def whole_bits(value: int) -> float:
    """Return the bits of a whole number: round ones and powers are cheaper.

    None costs more than two whose product it is: else the same blocks would be cheaper as a factor
    times smaller ones, which are others where these do not divide.
    """
    plain = 2 * math.log2(value + 1) + 1
    for base in (2, 10):
        m, e = value, 0
        while m and m % base == 0:
            m, e = m // base, e + 1
        if e:
            plain = min(plain, 4 + 2 * math.log2(m + 1) + math.log2(e + 1))
    for a in range(2, min(math.isqrt(value), _LARGEST_PART) + 1):
        if value % a == 0:
            plain = min(plain, whole_bits(a) + whole_bits(value // a))
    return plain


def bits_of(constant: Constant, typed: frozenset[int]) -> float:
    """Return the bits of a constant; numbers that the user typed are nearly free."""
    kind, value = constant
    if kind in ("extent", "factor"):
        assert isinstance(value, int)
        if kind == "factor" and value == 1:
            return 0.0
        return prior("typed") if value in typed and kind == "extent" else whole_bits(value)
    if kind == "ghost":
        assert isinstance(value, int)
        return 2.0 + abs(value)
    return prior(kind, value)


def listed_bits(values: np.ndarray) -> float:
    """Return the bits of a list of sizes."""
    return len(values) * math.log2(len(np.unique(values)) + 1) + whole_bits(int(values[0]))


def likeliest(found: Sequence[tuple[float, Hypothesis]]) -> list[tuple[float, Hypothesis]]:
    """Return hypotheses with their bits, cheapest first, each once."""
    seen: dict[object, tuple[float, Hypothesis]] = {}
    for cost, h in sorted(found, key=lambda each: each[0]):
        seen.setdefault(h.key(), (cost, h))
    return list(seen.values())
