"""What the laws of sizes and numbers cost, to compare process grids by them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from fractions import Fraction
from math import log2

from p3s.laws.expr import Expr
from p3s.model.law_types import CountLaw
from p3s.model.types import Slot

#: Bits that cost as much as a relation, and those of sizes and numbers without a law.
BITS, WITHOUT_LAW = 20.0, 60.0
#: Bits of a number among the program's arguments, and of cutting an extent along a dimension.
_TYPED, _CUT = 0.5, 1.6


def cost_of_sizes(slots: Iterable[Slot], typed: Collection[int] = ()) -> float:
    """Return the bits of the laws of all sizes and numbers, in relations.

    Each number counts once for the program; ``typed`` ones are known where they are a factor or
    an extent.
    """
    used: set[object] = set()
    bits = 0.0
    for law in (law for slot in slots for law in (slot.elements, slot.count)):
        if law.expr is None:
            bits += WITHOUT_LAW
        else:
            used.update(_constants(law.expr, "mul"))
            bits += _operations(law.expr)
    return (bits + sum(_bits(each, typed) for each in used)) / BITS


def cost_without_laws(laws: Iterable[CountLaw]) -> float:
    """Return what those of the laws cost that have no equation, in relations."""
    return sum(law.expr is None for law in laws) * WITHOUT_LAW / BITS


def _constants(expr: Expr, inside: str) -> Iterator[object]:
    """Yield what an expression names: numbers with what they are in, cuts of extents."""
    if expr[0] == "num":
        yield Fraction(expr[1], expr[2]), inside in ("mul", "block")
    elif expr[0] == "block":
        yield repr(expr[2:])
    for each in expr[1:]:
        if isinstance(each, list):
            yield from _constants(each, expr[0])


def _bits(constant: object, typed: Collection[int]) -> float:
    if not isinstance(constant, tuple):
        return _CUT
    number, known = constant
    if known and number in typed:
        return _TYPED
    return 2 * log2(abs(number.numerator) + 1) + 2 * log2(number.denominator)


def _operations(expr: Expr) -> int:
    """Return how many operations an expression has, but products of blocks."""
    inner = [a for a in expr[1:] if isinstance(a, list)] if expr[0] != "block" else []
    return (expr[0] not in ("num", "sym", "block", "mul")) + sum(map(_operations, inner))
