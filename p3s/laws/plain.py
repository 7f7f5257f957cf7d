"""The text of usual equations, the same that sympy's printer gives, without importing sympy.

Sums of products of symbols, blocks, logarithms, and minima and maxima whose value is open; all
others are for p3s.laws.symbolic. Sums and products are ordered as sympy orders them
(``Expr.sort_key``, ``as_ordered_terms``), and of a sum and its factored form the one with fewer
operations is taken, as there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from math import gcd
from typing import Any

from p3s.laws.expr import Expr

#: What a product consists of: ("symbol", name), ("call", name, arguments), ("sum", terms).
Atom = tuple[Any, ...]
#: Powers of atoms; a sum of products with their coefficients.
Product = frozenset[tuple[Atom, Fraction]]
Terms = Mapping[Product, Fraction]
_ONE: Product = frozenset()
#: Symbols that are at least one; the others start at zero.
FROM_ONE = frozenset({"n", "p0", "p1", "p2", "p3"})


class _Unusual(Exception):
    """An equation of another form."""


def plain_text(expr: Expr) -> str | None:
    """Return an equation as one line of text, simplified; None for one of another form."""
    try:
        return _simplest(_terms(expr))
    except _Unusual:
        return None


# ---- what an equation consists of
def _terms(expr: Expr) -> dict[Product, Fraction]:
    op = expr[0]
    if op == "num":
        return _kept({_ONE: Fraction(expr[1], expr[2])})
    if op == "sym":
        return _atom(("symbol", expr[1]))
    if op == "pow":
        return _power(_terms(expr[1]), Fraction(expr[2], expr[3]))
    if op == "add":
        out: dict[Product, Fraction] = {}
        for part in map(_terms, expr[1:]):
            for product, factor in part.items():
                out[product] = out.get(product, Fraction(0)) + factor
        return _kept(out)
    if op == "mul":
        parts = sorted(map(_terms, expr[1:]), key=lambda part: set(part) <= {_ONE})
        found = parts[0]
        for part in parts[1:]:  # numbers last: into a sum that stands alone, else before it
            found = _times(found, part)
        return found
    if op in ("min", "max"):
        return _atom(("call", op, _open(op, [_terms(a) for a in expr[1:]])))
    if op == "log2":
        return _atom(("call", "log2", (_argument(_terms(expr[1]), number=False),)))
    if op == "mod":
        return _atom(("call", "mod", _remainder(*map(_terms, expr[1:]))))
    if op == "block" and expr[1] in ("low", "high"):
        return _atom(("call", "floor" if expr[1] == "low" else "ceil", _parts(*expr[2:4])))
    if op == "block":
        arguments = tuple(_argument(_terms(a)) for a in expr[2:])
        return _atom(("call", f"block_{expr[1]}", arguments))
    raise _Unusual


def _atom(atom: Atom) -> dict[Product, Fraction]:
    return {frozenset({(atom, Fraction(1))}): Fraction(1)}


def _kept(terms: Mapping[Product, Fraction]) -> dict[Product, Fraction]:
    return {product: factor for product, factor in terms.items() if factor}


def _power(base: Terms, exponent: Fraction) -> dict[Product, Fraction]:
    if len(base) == 1:
        ((product, factor),) = base.items()
        if factor == 1 and len(product) == 1:
            ((atom, power),) = product
            if atom[0] == "symbol" and power == 1:
                return {frozenset({(atom, exponent)} if exponent else ()): Fraction(1)}
    raise _Unusual


def _times(a: Terms, b: Terms) -> dict[Product, Fraction]:
    """Return a product: a number goes into a sum, beside all else that is a factor."""
    if not a or not b:
        return {}
    for one, other in ((a, b), (b, a)):
        if set(one) == {_ONE}:
            return {product: one[_ONE] * factor for product, factor in other.items()}
    factor, powers = Fraction(1), dict[Atom, Fraction]()
    for part in (a, b):
        if len(part) > 1:
            product: Iterable[tuple[Atom, Fraction]] = [(_sum(part), Fraction(1))]
        else:
            ((product, own),) = part.items()
            factor *= own
        for atom, power in product:
            powers[atom] = powers.get(atom, Fraction(0)) + power
    if any(atom[0] == "sum" and power != 1 for atom, power in powers.items()):
        raise _Unusual
    return {frozenset((a, p) for a, p in powers.items() if p): factor}


def _sum(terms: Terms) -> Atom:
    """Return a sum that is a factor, or an argument: one that is not simplified further."""
    if _content(terms) != 1 or any(_sums(product) for product in terms):
        raise _Unusual
    return ("sum", frozenset(terms.items()))


def _sums(product: Product) -> list[Atom]:
    return [atom for atom, _ in product if atom[0] == "sum"]


def _content(terms: Terms) -> int:
    """Return the common divisor of the coefficients; no atom may be common to all products."""
    factors = list(terms.values())
    if any(f.denominator != 1 for f in factors) or all(f < 0 for f in factors):
        raise _Unusual
    if set.intersection(*({atom for atom, _ in product} for product in terms)):
        raise _Unusual
    if any(power.denominator != 1 or power < 0 for product in terms for _, power in product):
        raise _Unusual
    return gcd(*(int(f) for f in factors))


def _argument(terms: Terms, number: bool = True) -> frozenset[tuple[Product, Fraction]]:
    if len(terms) > 1:
        return _sum(terms)[1]  # type: ignore[no-any-return]
    if not terms or any(_sums(product) for product in terms):
        raise _Unusual
    ((product, factor),) = terms.items()
    if factor.denominator != 1 or factor < 0 or (product != _ONE and factor != 1):
        raise _Unusual
    if (product == _ONE and not number) or any(p.denominator != 1 or p < 0 for _, p in product):
        raise _Unusual
    return frozenset(terms.items())


def _remainder(number: Terms, by: Terms) -> tuple[Any, ...]:
    """Return the arguments of a remainder: the difference or sum of two coordinates, an extent."""
    if len(number) != 2 or not all(abs(f) == 1 for f in number.values()):
        raise _Unusual
    if any(len(p) != 1 for p in (*number, *by)) or _names(number) & (FROM_ONE | {""}):
        raise _Unusual
    if len(by) != 1 or not _names(by) <= FROM_ONE:
        raise _Unusual
    return _argument(number), _argument(by)


def _parts(extent: Expr, parts: Expr) -> tuple[Any, ...]:
    """Return the argument of a rounded quotient: a number by an extent."""
    if extent[0] != "num" or extent[2] != 1 or extent[1] < 2 or parts[0] != "sym":
        raise _Unusual
    if parts[1] not in FROM_ONE:
        raise _Unusual
    product = frozenset({(("symbol", parts[1]), Fraction(-1))})
    return (frozenset({(product, Fraction(extent[1]))}),)


def _open(op: str, parts: list[dict[Product, Fraction]]) -> tuple[Any, ...]:
    """Return the arguments of a minimum or maximum of which none is known to be the one.

    That of 1 and a coordinate, its distance from the end, or a product of blocks, and that of two
    differences.
    """
    numbers = [part for part in parts if set(part) <= {_ONE}]
    others = [part for part in parts if not set(part) <= {_ONE}]
    if len(numbers) == 1 and numbers[0] == {_ONE: 1} and len(others) == 1:
        fine = _may_be_either(others[0], op)
    elif not numbers and len(others) == 2:
        fine = others[0] == {p: -f for p, f in others[1].items()} and set(others[0].values()) == {
            Fraction(1),
            Fraction(-1),
        }
        fine = fine and len(others[0]) == 2 and not _names(others[0]) & (FROM_ONE | {""})
    else:
        fine = False
    if not fine:
        raise _Unusual
    return tuple(_argument(part) for part in parts)


def _names(terms: Terms) -> set[str]:
    """Return the symbols of a sum of symbols; "" for anything else."""
    atoms = [atom for product in terms for atom, _ in product]
    return {atom[1] if atom[0] == "symbol" else "" for atom in atoms}


def _may_be_either(terms: Terms, op: str) -> bool:
    names = _names(terms)
    if len(terms) == 1:
        ((product, factor),) = terms.items()
        if "" in names:  # a product of blocks, of which nothing is known
            kinds = [atom[1].partition("_")[0] for atom, _ in product if atom[0] == "call"]
            known = kinds == ["max"] and op == "min" or set(kinds) == {"block"}
            return factor == 1 and known and len(kinds) == len(product)
        return op == "min" and factor == 1 and len(product) == 1 and not names & FROM_ONE
    signs = {
        atom[1]: factor
        for product, factor in terms.items()
        for atom, power in product
        if atom[0] == "symbol" and power == 1 and len(product) == 1
    }
    return (
        op == "min"
        and terms.get(_ONE) == -1
        and len(terms) == 3
        and len(signs) == 2
        and {signs[s] for s in signs if s in FROM_ONE} == {1}
        and {signs[s] for s in signs if s not in FROM_ONE} == {-1}
    )


# ---- its text
def _simplest(terms: Terms) -> str:
    if not terms:
        return "0"
    if len(terms) == 1:
        ((product, factor),) = terms.items()
        if _sums(product) and factor < 0:
            raise _Unusual
        return _term(product, factor)
    if any(_sums(product) for product in terms):
        raise _Unusual
    common = _content(terms)
    factors = [abs(f) for product, f in terms.items() if product != _ONE]
    if 1 + sum(f != common for f in factors) < sum(f != 1 for f in factors):
        return f"{common}*({_added({p: f / common for p, f in terms.items()})})"
    return _added(terms)


def _added(terms: Terms) -> str:
    out = ""
    for product in _in_order(terms):
        text = _term(product, terms[product])
        sign, text = ("-", text[1:]) if text.startswith("-") else ("+", text)
        out += (f" {sign} " if out else sign.replace("+", "")) + text
    return out


def _in_order(terms: Terms) -> list[Product]:
    """Return the products of a sum in the order in which they are written."""
    atoms = {atom for product in terms for atom, _ in product}
    order = sorted(atoms, key=_key)

    def place(product: Product) -> list[Fraction]:
        powers = dict(product)
        return [-powers.get(atom, Fraction(0)) for atom in order]

    found = sorted(terms, key=place)
    first, *rest = found
    if rest == [_ONE] and len(first) == 1 and terms[first] < 0 < terms[_ONE]:
        found.reverse()  # 1 - 8*x, not -8*x + 1
    return found


def _term(product: Product, factor: Fraction) -> str:
    sign = "-" if factor < 0 else ""
    over = [] if abs(factor.numerator) == 1 else [str(abs(factor.numerator))]
    under = [] if factor.denominator == 1 else [str(factor.denominator)]
    powers = sorted(product, key=lambda each: (_key(each[0]), each[1]))
    if len(powers) == 1 and factor == 1 and powers[0][1] < 0:
        return _alone(*powers[0])
    for atom, power in powers:
        (over if power > 0 else under).append(_raised(atom, abs(power)))
    above = "*".join(over) or "1"
    below = f"/{under[0]}" if len(under) == 1 else f"/({'*'.join(under)})" if under else ""
    return sign + above + below


def _alone(atom: Atom, power: Fraction) -> str:
    """Return a power below zero that stands alone."""
    if power in (Fraction(-1), Fraction(-1, 2)):
        return f"1/{_raised(atom, -power)}"
    return f"{_text(atom)}**({power})"


def _raised(atom: Atom, power: Fraction) -> str:
    if power == 1:
        return _text(atom)
    if power == Fraction(1, 2):
        return f"sqrt({_text(atom)})"
    return f"{_text(atom)}**{power}" if power.denominator == 1 else f"{_text(atom)}**({power})"


def _text(atom: Atom) -> str:
    if atom[0] == "symbol":
        return str(atom[1])
    if atom[0] == "sum":
        return f"({_added(dict(atom[1]))})"
    arguments = [_added(dict(each)) for each in atom[2]]
    if atom[1] in ("min", "max"):
        arguments.sort(key=lambda text: (len(text), text))
    return f"{atom[1]}({', '.join(arguments)})"


# ---- sympy's order
def _key(atom: Atom) -> tuple[Any, ...]:
    if atom[0] == "symbol":
        return (2, 0, "Symbol"), (1, (atom[1],)), _NUMBER, 1
    if atom[0] == "sum":
        return _of_terms(dict(atom[1]))
    name, arguments = atom[1], [_of_terms(dict(each)) for each in atom[2]]
    if name in ("min", "max"):
        return (5, 0, name.capitalize()), (len(arguments), tuple(sorted(arguments))), _NUMBER, 1
    if name in _OF_SYMPY:
        return (4, 10000, _OF_SYMPY[name]), (len(arguments), tuple(arguments)), _NUMBER, 1
    return (4, 0, name), (len(arguments), tuple(arguments)), _NUMBER, 1


#: Names of functions that sympy knows.
_OF_SYMPY = {"ceil": "ceiling", "floor": "floor", "mod": "Mod"}
#: The key of 1, an exponent.
_NUMBER = ((1, 0, "Number"), (0, ()), (), 1)


def _of_terms(terms: Terms) -> tuple[Any, ...]:
    if len(terms) > 1:
        parts = tuple(_of_product(p, terms[p]) for p in _in_order(terms))
        return (3, 1, "Add"), (len(parts), parts), _NUMBER, 1
    return _of_product(*next(iter(terms.items())))


def _of_product(product: Product, factor: Fraction) -> tuple[Any, ...]:
    if product == _ONE:
        return (1, 0, "Number"), (0, ()), (), factor
    if len(product) == 1:
        ((atom, power),) = product
        kind, arguments, _, _ = _key(atom)
        return kind, arguments, ((1, 0, "Number"), (0, ()), (), power), factor
    parts = sorted(_of_product(frozenset({each}), Fraction(1)) for each in product)
    return (3, 0, "Mul"), (len(parts), tuple(parts)), _NUMBER, factor
