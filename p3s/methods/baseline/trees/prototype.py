"""A general expression of the run time, given as text and linear in its coefficients.

    b3*W**2/(K*T) + b2*W/(K*T) + b1*K + b0

A. Castellanos Carrazana, UAB 2014, eq. 4.1 to 4.3. Python's parser reads the text, its tree is
turned into expressions of p3s.laws.expr; nothing of it is executed. Coefficients are b0, b1, ...;
every other name is a variable. A coefficient may stand in a product, or over a divisor without one,
only.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import accumulate

import numpy as np

from p3s.base.arrays import Floats
from p3s.base.errors import UsageError
from p3s.laws.expr import Expr, add, evaluate, mul, num, power, sym, symbols_of

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
#: What no expression has in it.
_OTHER = re.compile(r"[^\w\s.+\-*/^(),]", re.ASCII)
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
        terms_read = _Reader(self.text).read()
        return tuple(
            sorted(terms_read.items(), key=lambda term: (bool(symbols_of(term[1])), term[0]))
        )

    @cached_property
    def coefficients(self) -> tuple[str, ...]:
        """Names of the coefficients, in the order of the columns."""
        return tuple(name for name, _ in self.terms)

    @cached_property
    def variables(self) -> tuple[str, ...]:
        """Names of the variables, sorted."""
        return tuple(sorted({name for _, expr in self.terms for name in symbols_of(expr)}))

    def design(self, columns: Mapping[str, Floats]) -> Floats:
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
        matrix = np.empty((rows, len(self.terms)))
        for i, (name, expr) in enumerate(self.terms):
            matrix[:, i] = evaluate(expr, columns)
            if not np.isfinite(matrix[:, i]).all():
                at = int(np.flatnonzero(~np.isfinite(matrix[:, i]))[0])
                raise UsageError(
                    f"expression {self.text[:60]}: the term of {name} has no value in row {at + 1}"
                )
        return matrix


def parse(text: str) -> Prototype:
    """Return the prototype of a text; UsageError, one line, for one that is none."""
    prototype = Prototype(text)
    _ = prototype.terms
    return prototype


class _Reader:
    """Turns one text into a sum: of what Python's parser reads only arithmetic is taken."""

    def __init__(self, text: str) -> None:
        self.text = " ".join(text.split())

    def refusal(self, why: str) -> UsageError:
        return UsageError(
            f"expression {self.text[:60]}: {why}; write a sum as b2*W**2/(K*T) + b1*K + b0"
        )

    def read(self) -> _Linear:
        if len(self.text) > _LONGEST:
            raise self.refusal(f"longer than {_LONGEST:,} characters")
        if not self.text:
            raise self.refusal("it is empty")
        if unreadable := _OTHER.search(self.text):
            raise self.refusal(f"{self.text[unreadable.start() :][:10]!r} cannot be read")
        if max(accumulate((c == "(") - (c == ")") for c in self.text)) >= _DEEPEST:
            raise self.refusal(f"brackets deeper than {_DEEPEST}")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of numbers that touch a word
                linear = self.linear(ast.parse(self.text.replace("^", "**"), mode="eval").body)
        except SyntaxError as error:
            raise self.refusal(f"cannot be read ({error.msg})") from error
        except (MemoryError, RecursionError) as error:
            raise self.refusal("nested too deeply") from error
        if "" in linear:
            raise self.refusal("a term has no coefficient (b0, b1, ...)")
        return linear

    def linear(self, node: ast.expr) -> _Linear:
        """Return a node as a sum."""
        match node:
            case ast.Constant():
                return {"": num(self.number(node))}
            case ast.Name(id=word):
                of_coefficient = _COEFFICIENT.fullmatch(word)
                return {word: num(1)} if of_coefficient else {"": sym(ALIASES.get(word, word))}
            case ast.UnaryOp(op=ast.UAdd()):
                return self.linear(node.operand)
            case ast.UnaryOp(op=ast.USub()):
                return _negate(self.linear(node.operand))
            case ast.BinOp(op=ast.Add() | ast.Sub()):
                total, part = self.linear(node.left), self.linear(node.right)
                for name, expr in (_negate(part) if isinstance(node.op, ast.Sub) else part).items():
                    total[name] = add(total[name], expr) if name in total else expr
                return total
            case ast.BinOp(op=ast.Mult()):
                return self.product(self.linear(node.left), self.linear(node.right))
            case ast.BinOp(op=ast.Div()):
                one = self.linear(node.left)
                below = self.plain(node.right, "stands below a division")
                return self.product(one, {"": ["pow", below, -1, 1]})
            case ast.BinOp(op=ast.Pow()):
                base = self.plain(node.left, "is raised to a power")
                return {"": power(base, self.exponent(node.right))}
            case ast.Call(func=ast.Name(id=word), keywords=[]):
                return {"": self.call(word, node.args)}
        raise self.refusal(f"{ast.unparse(node)[:20]!r} cannot be read")

    def product(self, one: _Linear, other: _Linear) -> _Linear:
        if set(one) - {""} and set(other) - {""}:
            a, b = (sorted(set(side) - {""})[0] for side in (one, other))
            raise self.refusal(f"not linear in its coefficients: {a} is multiplied with {b}")
        if set(other) - {""}:
            one, other = other, one
        return {name: mul(expr, other[""]) for name, expr in one.items()}

    def exponent(self, node: ast.expr) -> Fraction:
        value = self.constant(node)
        if abs(value) > _LARGEST or value.denominator > 64:
            raise self.refusal(f"the exponent {value} is not between -{_LARGEST} and {_LARGEST}")
        return value

    def constant(self, node: ast.expr) -> Fraction:
        """Return the number that an exponent is: a constant, negative, or over another one."""
        match node:
            case ast.Constant():
                return self.number(node)
            case ast.UnaryOp(op=ast.USub()):
                return -self.constant(node.operand)
            case ast.BinOp(op=ast.Div()):
                below = self.constant(node.right)
                if not below:
                    raise self.refusal("an exponent is divided by zero")
                return self.constant(node.left) / below
            case ast.Name(id=word) if _COEFFICIENT.fullmatch(word):
                raise self.refusal(f"not linear in its coefficients: {word} is an exponent")
        raise self.refusal(
            f"{ast.unparse(node)[:20]!r} stands where an exponent's number should be"
        )

    def number(self, node: ast.Constant) -> Fraction:
        value = node.value
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self.refusal(f"{str(value)[:20]!r} cannot be read")
        if not value <= _NUMBER:
            raise self.refusal(f"the number {str(value)[:20]} is too large")
        return Fraction(str(value)).limit_denominator(_NUMBER)

    def call(self, word: str, arguments: list[ast.expr]) -> Expr:
        args = [self.plain(each, f"stands inside {word}()") for each in arguments]
        if word not in _FUNCTIONS:
            raise self.refusal(f"there is no function {word}; there are {', '.join(_FUNCTIONS)}")
        operator, takes = _FUNCTIONS[word]
        if len(args) != takes:
            raise self.refusal(f"{word} takes {takes} values, not {len(args)}")
        return ["pow", args[0], 1, 2] if word == "sqrt" else [operator, *args]

    def plain(self, node: ast.expr, where: str) -> Expr:
        """Return an expression without coefficients; refuses one that has some."""
        linear_terms = self.linear(node)
        for name in sorted(set(linear_terms) - {""}):
            raise self.refusal(f"not linear in its coefficients: {name} {where}")
        return linear_terms[""]


def _negate(linear: _Linear) -> _Linear:
    return {name: mul(num(-1), expr) for name, expr in linear.items()}
