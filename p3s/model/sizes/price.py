"""What the laws of sizes and numbers cost, to compare process grids by them."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from math import log2

from p3s.laws.expr import Expr, numbers_in
from p3s.model.types import Slot

#: Bits that cost as much as a relation, and those of sizes and numbers without a law.
BITS, WITHOUT_LAW = 20.0, 60.0


def cost_of_sizes(slots: Iterable[Slot]) -> float:
    """Return the bits of the laws of all sizes and numbers, in relations.

    Each number counts once for the program.
    """
    constants: set[Fraction] = set()
    bits = 0.0
    for law in (law for slot in slots for law in (slot.elements, slot.count)):
        if law.expr is None:
            bits += WITHOUT_LAW
        else:
            constants |= numbers_in(law.expr)
            bits += _operations(law.expr)
    bits += sum(2 * log2(abs(c.numerator) + 1) + 2 * log2(c.denominator) for c in constants)
    return bits / BITS


def _operations(expr: Expr) -> int:
    """Return how many operations an expression has, but products of blocks."""
    inner = [a for a in expr[1:] if isinstance(a, list)] if expr[0] != "block" else []
    return (expr[0] not in ("num", "sym", "block", "mul")) + sum(map(_operations, inner))
