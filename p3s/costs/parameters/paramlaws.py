"""Numbers of a model as laws of the parameters of a workload: size=400, 800, 1200."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from p3s.base.errors import P3SError
from p3s.base.settings import Setting, without_threads
from p3s.laws import lawfinder
from p3s.laws.exact import value_at
from p3s.laws.expr import Expr, num
from p3s.laws.lawfinder import find_law
from p3s.laws.worklaws import Powers

#: A law is exact, with a value to spare; open: as many numbers as values, or rivals; fitted: real.
EXACT, OPEN, FITTED = "exact", "open", "fitted"


@dataclass(frozen=True)
class Number:
    """A number as a law of the parameters.

    state: EXACT, OPEN or FITTED. expr: an expression whose symbols are parameters, None for a
    fitted one; then ``terms`` are [coefficient, powers of the parameters], ``error`` their
    relative error at a setting left out. whole: all values were whole numbers. rivals: other
    exact laws that meet the values.
    """

    state: str
    expr: Expr | None = None
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
        own = without_threads(setting)
        return Powers(tuple(own), self.terms, self.error).value(own)

    def settled(self, setting: Setting) -> bool:
        """Tell whether the law is exact and gives a number of the right kind at a setting."""
        if self.state != EXACT:
            return False
        value = self.value(setting)
        return not self.whole or (isinstance(value, Fraction) and value.denominator == 1)


def with_values(expr: Any, setting: Setting) -> Any:
    """Return an expression with the values of the parameters in the place of their symbols."""
    if not isinstance(expr, list):
        return expr
    if expr[0] == "sym" and expr[1] in setting:
        return num(setting[expr[1]])
    return [with_values(part, setting) for part in expr]


def find_number(settings: Sequence[Setting], values: Sequence[Fraction | float]) -> Number:
    """Return the law of a number with one value at each of the settings (at least one).

    The threads of a process are the same at all of them, and in no law.
    """
    settings = [without_threads(setting) for setting in settings]
    exact = [Fraction(v) if not isinstance(v, float) or v.is_integer() else v for v in values]
    rational = not any(isinstance(v, float) for v in exact)
    whole = rational and all(Fraction(v).denominator == 1 for v in exact)
    found = find_law(
        zip(settings, exact, strict=True), "any" if rational else "work", of="parameters"
    )
    if found.powers is not None:
        return Number(FITTED, None, found.powers.terms, found.powers.error, whole)
    state = EXACT if found.verdict == lawfinder.EXACT else OPEN
    return Number(state, found.expr, whole=whole, rivals=found.rivals)
