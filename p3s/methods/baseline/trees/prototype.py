"""A general expression of the run time, given as text and linear in its coefficients.

    b3*W**2/(K*T) + b2*W/(K*T) + b1*K + b0

A. Castellanos Carrazana, UAB 2014, eq. 4.1 to 4.3. The text is read by a parser of its own into
expressions of p3s.laws.expr; nothing of it is executed. Coefficients are b0, b1, ...; every other
name is a variable. A coefficient may stand in a product, or over a divisor without one, only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from p3s.base.errors import UsageError
from p3s.laws.expr import Expr, add, evaluate, mul, num, power, sym, symbols_of

Array = NDArray[np.float64]
#: Other names of the variables: those of the thesis's equations.
ALIASES = {
    "W": "workload",
    "K": "workers",
    "T": "threads",
    "P": "processes",
    "n": "processes",
    "workld": "workload",
    "local_workload": "local_workld",
    "thrs": "threads",
}
#: Longest text, deepest brackets, largest exponent and number.
_LONGEST, _DEEPEST, _LARGEST, _NUMBER = 1000, 16, 8, 10**12
_FUNCTIONS = {"log2": ("log2", 1), "sqrt": ("pow", 1), "min": ("min", 2), "max": ("max", 2)}
_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<sign>\*\*|[-+*/^(),]))",
    re.ASCII,
)
_COEFFICIENT = re.compile(r"b\d{1,3}", re.ASCII)
#: An expression as a sum: by coefficient, "" for what has none, what it is multiplied with.
_Linear = dict[str, Expr]


@dataclass(frozen=True)
class Prototype:
    """An expression that is linear in its coefficients; ``text`` as it was given."""

    text: str

    @cached_property
    def terms(self) -> tuple[tuple[str, Expr], ...]:
        """Coefficients with what each is multiplied with; the constant term is the first."""
        found = _Reader(self.text).read()
        return tuple(sorted(found.items(), key=lambda term: (bool(symbols_of(term[1])), term[0])))

    @cached_property
    def coefficients(self) -> tuple[str, ...]:
        """Names of the coefficients, in the order of the columns."""
        return tuple(name for name, _ in self.terms)

    @cached_property
    def variables(self) -> tuple[str, ...]:
        """Names of the variables, sorted."""
        return tuple(sorted({name for _, expr in self.terms for name in symbols_of(expr)}))

    def design(self, columns: Mapping[str, Array]) -> Array:
        """Return a column per coefficient, (rows, coefficients), from the variables' values.

        Errors: UsageError for a variable that is not there, or a term without a value in a row.
        """
        for name in self.variables:
            if name not in columns:
                raise UsageError(
                    f"expression {self.text[:60]}: {name} is no variable here; there are "
                    + ", ".join(sorted(columns))
                )
        rows = len(next(iter(columns.values())))
        made = np.empty((rows, len(self.terms)))
        for i, (name, expr) in enumerate(self.terms):
            made[:, i] = evaluate(expr, columns)
            if not np.isfinite(made[:, i]).all():
                at = int(np.flatnonzero(~np.isfinite(made[:, i]))[0])
                raise UsageError(
                    f"expression {self.text[:60]}: the term of {name} has no value in row {at + 1}"
                )
        return made


def parse(text: str) -> Prototype:
    """Return the prototype of a text; UsageError, one line, for one that is none."""
    made = Prototype(text)
    _ = made.terms
    return made


class _Reader:
    """Reads one text: sums of products of powers of names, numbers, brackets and functions."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.depth = 0
        if len(text) > _LONGEST:
            self.refuse(f"longer than {_LONGEST:,} characters")
        self.tokens = list(self._split())

    def refuse(self, why: str) -> NoReturn:
        shown = " ".join(self.text.split())
        raise UsageError(
            f"expression {shown[:60]}: {why}; write a sum as b2*W**2/(K*T) + b1*K + b0"
        )

    def _split(self) -> Iterator[tuple[str, str]]:
        at = 0
        while at < len(self.text.rstrip()):
            match = _TOKEN.match(self.text, at)
            if match is None:
                self.refuse(f"{self.text[at:].strip()[:10]!r} cannot be read")
            kind = str(match.lastgroup)
            yield kind, match[kind].replace("^", "**")
            at = match.end()

    def read(self) -> _Linear:
        found = self.sum()
        if self.at < len(self.tokens):
            self.refuse(f"{self.tokens[self.at][1]!r} stands where a sum should end")
        if "" in found:
            self.refuse("a term has no coefficient (b0, b1, ...)")
        return found

    # ---- tokens ----

    def next(self) -> tuple[str, str]:
        if self.at == len(self.tokens):
            self.refuse("it ends too early")
        self.at += 1
        return self.tokens[self.at - 1]

    def takes(self, *signs: str) -> str:
        """Return the sign that comes next and pass it, "" if it is none of these."""
        if self.at < len(self.tokens) and self.tokens[self.at] in [("sign", s) for s in signs]:
            self.at += 1
            return self.tokens[self.at - 1][1]
        return ""

    def expect(self, sign: str) -> None:
        if not self.takes(sign):
            self.refuse(f"{sign!r} is missing")

    # ---- grammar ----

    def sum(self) -> _Linear:
        self.depth += 1
        if self.depth > _DEEPEST:
            self.refuse(f"brackets deeper than {_DEEPEST}")
        total: _Linear = {}
        sign = self.takes("+", "-") or "+"
        while sign:
            part = self.product()
            for name, expr in (_negated(part) if sign == "-" else part).items():
                total[name] = add(total[name], expr) if name in total else expr
            sign = self.takes("+", "-")
        self.depth -= 1
        return total

    def product(self) -> _Linear:
        made = self.power()
        while sign := self.takes("*", "/"):
            other = self.power()
            if sign == "/":
                below = self.plain(other, "stands below a division")
                other = {"": ["pow", below, -1, 1]}
            if set(made) - {""} and set(other) - {""}:
                one, two = sorted(set(made) - {""})[0], sorted(set(other) - {""})[0]
                self.refuse(f"not linear in its coefficients: {one} is multiplied with {two}")
            if set(other) - {""}:
                made, other = other, made
            factor = other[""]
            made = {name: mul(expr, factor) for name, expr in made.items()}
        return made

    def power(self) -> _Linear:
        made = self.atom()
        if not self.takes("**"):
            return made
        exponent = self.exponent()
        return {"": power(self.plain(made, "is raised to a power"), exponent)}

    def exponent(self) -> Fraction:
        bracket = self.takes("(")
        sign = -1 if self.takes("-") else 1
        value = sign * self.constant()
        if bracket:
            if self.takes("/"):
                below = self.constant()
                value = value / below if below else self.refuse("an exponent is divided by zero")
            self.expect(")")
        if abs(value) > _LARGEST or value.denominator > 64:
            self.refuse(f"the exponent {value} is not between -{_LARGEST} and {_LARGEST}")
        return value

    def constant(self) -> Fraction:
        kind, word = self.next()
        if _COEFFICIENT.fullmatch(word):
            self.refuse(f"not linear in its coefficients: {word} is an exponent")
        if kind != "number":
            self.refuse(f"{word!r} stands where an exponent's number should be")
        return self.number(word)

    def number(self, word: str) -> Fraction:
        if len(word) > 20 or not float(word) <= _NUMBER:
            self.refuse(f"the number {word[:20]} is too large or too long")
        return Fraction(word).limit_denominator(_NUMBER)

    def atom(self) -> _Linear:
        kind, word = self.next()
        if kind == "number":
            return {"": num(self.number(word))}
        if kind == "sign":
            if word != "(":
                self.refuse(f"{word!r} stands where a name or a number should be")
            made = self.sum()
            self.expect(")")
            return made
        if self.takes("("):
            return {"": self.call(word)}
        if _COEFFICIENT.fullmatch(word):
            return {word: num(1)}
        return {"": sym(ALIASES.get(word, word))}

    def call(self, word: str) -> Expr:
        first = self.at
        args = [self.plain(self.sum(), f"stands inside {word}()")]
        while self.takes(","):
            args.append(self.plain(self.sum(), f"stands inside {word}()"))
        self.expect(")")
        if word not in _FUNCTIONS:
            self.refuse(f"there is no function {word}; there are {', '.join(_FUNCTIONS)}")
        operator, takes = _FUNCTIONS[word]
        if len(args) != takes:
            self.at = first
            self.refuse(f"{word} takes {takes} values, not {len(args)}")
        return ["pow", args[0], 1, 2] if word == "sqrt" else [operator, *args]

    def plain(self, made: _Linear, where: str) -> Expr:
        """Return an expression without coefficients; refuses one that has some."""
        for name in sorted(set(made) - {""}):
            self.refuse(f"not linear in its coefficients: {name} {where}")
        return made[""]


def _negated(made: _Linear) -> _Linear:
    return {name: mul(num(-1), expr) for name, expr in made.items()}
