"""Usual equations as text without sympy, letter for letter as sympy would have them.

Usual are a product of numbers, symbols, blocks and logarithms, and such a product plus a number;
for all others there is sympy (p3s.laws.symbolic), which takes half a second to load.
"""

from __future__ import annotations

from fractions import Fraction

from p3s.laws.expr import Expr

#: Sort key of a factor, its text and its exponent.
_Key = tuple[int, str, tuple[tuple[int, float, str], ...]]
_Factors = dict[tuple[_Key, str], Fraction]
SYMBOL, BLOCK, LOGARITHM = range(3)


def usual_text(expr: Expr) -> str | None:
    """Return an equation as one line of text, simplified; None of one that is not usual."""
    parts = expr[1:] if expr[0] == "add" else [expr]
    found = [_product(part) for part in parts]
    numbers = [f[0] for f in found if f is not None and not f[1]]
    products = [f for f in found if f is not None and f[1] and f[0]]
    if None in found or len(products) > 1:
        return None
    constant = sum(numbers, Fraction(0))
    if not products:
        return str(constant)
    number, factors = products[0]
    if not constant:
        return _written(number, factors)
    whole = number.denominator == constant.denominator == 1
    if not whole or number < 0 or any(e < 0 or e.denominator != 1 for e in factors.values()):
        return None
    sign = "-" if constant < 0 else "+"
    return f"{_written(number, factors)} {sign} {abs(constant)}"


def scaled_text(coefficient: float, expr: Expr) -> str | None:
    """Return a product with a measured number, four figures of it; None of one not usual."""
    found = _product(expr)
    if found is None or found[0] != 1:
        return None
    return _join_factors(f"{coefficient:.4g}", "", found[1])


def _product(expr: Expr) -> tuple[Fraction, _Factors] | None:
    """Return the number and the factors (with exponents) of a product; None of one not usual."""
    op = expr[0]
    if op == "num":
        return Fraction(expr[1], expr[2]), {}
    if op == "mul":
        number, factors = Fraction(1), dict[tuple[_Key, str], Fraction]()
        for part in expr[1:]:
            found = _product(part)
            if found is None:
                return None
            number *= found[0]
            for key, exponent in found[1].items():
                factors[key] = factors.get(key, Fraction(0)) + exponent
        if len({text for (place, _, _), text in factors if place == LOGARITHM}) > 1:
            return None  # whose order is sympy's
        return number, {key: exponent for key, exponent in factors.items() if exponent}
    if op == "pow":
        found = _product(expr[1])
        if found is None or found[0] != 1 or len(found[1]) != 1:
            return None
        ((key, exponent),) = found[1].items()
        # of roots of powers the sign would matter
        return (
            (Fraction(1), {key: Fraction(expr[2], expr[3])}) if exponent == 1 and expr[2] else None
        )
    found_factor = _factor(expr)
    return None if found_factor is None else (Fraction(1), {found_factor: Fraction(1)})


def _factor(expr: Expr) -> tuple[_Key, str] | None:
    """Return sort key and text of a symbol, a block or a logarithm; None of what is not usual."""
    op = expr[0]
    if op == "sym":
        return (SYMBOL, expr[1], ()), expr[1]
    if op == "block" and all(arg[0] in ("num", "sym") for arg in expr[2:]):
        if expr[1] in ("low", "high"):
            return None
        args = expr[2:]
        places = tuple((0, a[1] / a[2], "") if a[0] == "num" else (1, 0.0, a[1]) for a in args)
        name = f"block_{expr[1]}"
        return (BLOCK, name, places), f"{name}({', '.join(usual_text(a) or '' for a in args)})"
    if op == "log2":
        inner = _of_log(expr[1])
        return None if inner is None else ((LOGARITHM, "log2", ()), f"log2({inner})")
    return None


def _of_log(expr: Expr) -> str | None:
    if expr[0] == "sym":
        return str(expr[1])
    if expr[0] == "max" and expr[2] == ["num", 1, 1]:  # of blocks, which may be empty
        found = _product(expr[1])
        if found and found[1] and found[0] == 1 and all(k[0][0] == BLOCK for k in found[1]):
            return f"max(1, {_written(*found)})"
    return None


def _written(number: Fraction, factors: _Factors) -> str:
    """Return a product as text."""
    above, below = abs(number.numerator), number.denominator
    if number < 0 and len(factors) == above == below == 1 and min(factors.values()) < 0:
        return "-" + _join_factors("1", "", factors)
    return "-" * (number < 0) + _join_factors(
        "" if above == 1 else str(above), "" if below == 1 else str(below), factors
    )


def _join_factors(above: str, below: str, factors: _Factors) -> str:
    order = sorted(factors.items(), key=lambda item: item[0][0])
    alone = len(order) == 1 and not above and not below
    if alone and order[0][1] < 0 and order[0][1] not in (-1, Fraction(-1, 2)):
        return f"{order[0][0][1]}**({order[0][1]})"
    over = [above] * bool(above) + [_power(key[1], e) for key, e in order if e > 0]
    under = [below] * bool(below) + [_power(key[1], -e) for key, e in order if e < 0]
    top = "*".join(over) or "1"
    if not under:
        return top
    return f"{top}/{under[0]}" if len(under) == 1 else f"{top}/({'*'.join(under)})"


def _power(text: str, exponent: Fraction) -> str:
    if exponent == 1:
        return text
    if exponent == Fraction(1, 2):
        return f"sqrt({text})"
    return f"{text}**{exponent}" if exponent.denominator == 1 else f"{text}**({exponent})"
