"""Equations as MathML, from their text: ``5.1e+06/n + 3*log2(n)`` as mathematics on a page.

The text is that of p3s.laws.symbolic and p3s.model.text. It is parsed by the small grammar below
and nothing of it is evaluated; what the grammar does not know stays text. Browsers show MathML
without a script; the text itself stays as the description of the formula.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from html import escape
from typing import Any, NoReturn

from markupsafe import Markup

from p3s.laws.expr import SYMBOLS

#: Longest text that is parsed, and deepest nesting.
MAX_LENGTH, MAX_DEPTH = 400, 24

_NAMES = frozenset({*SYMBOLS, "b", "b0", "m", "c", "p", "q", "L", "w"})
_CALLS = frozenset({"floor", "ceil", "log2", "log", "sqrt", "exp", "min", "max", "mod", "abs"})
_BLOCK = re.compile(r"block_(first|last|floor|tail|ceil|low|high)$")
_TOKEN = re.compile(
    r"\s*(?:(\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|\.\d+)|([A-Za-z_]\w*)|(\*\*|//|[-+*/(),]))"
)
_BEFORE = re.compile(r"(?:to|from|on|about)\s+(?=\S)")
_AFTER = re.compile(
    r"\s+(?:ns|s|instructions|times in the run|in all, shared evenly|"
    r"ns per instruction|\(from \d+ processes on\))$"
)

#: A node: its kind, then texts and nodes.
Node = tuple[Any, ...]


@dataclass(frozen=True)
class Maths:
    """A formula: its text, and its markup for a page (MathML, or the text, escaped)."""

    text: str
    markup: Markup


def plain(text: str) -> Maths:
    """Return a text that stays as it is."""
    return Maths(text, Markup(escape(text)))


def maths(text: str) -> Maths:
    """Return a text as a formula; what is none stays as it is."""
    before = match[0] if (match := _BEFORE.match(text)) else ""
    after = match[0] if (match := _AFTER.search(text)) else ""
    core = text[len(before) : len(text) - len(after)]
    try:
        terms = _Parser(core).read()
    except _NoFormulaError:
        return plain(text)
    if len(terms) == 1 and terms[0][0] == "num" and "e" not in terms[0][1].lower():
        return plain(text)
    shown = '<mo separator="true">,</mo>'.join(map(_show, terms))
    size = ' displaystyle="true"' if "<mfrac>" in shown else ""
    return Maths(
        text,
        Markup(
            f'{escape(before)}<math{size} alttext="{escape(core)}">{shown}</math>{escape(after)}'
        ),
    )


class _NoFormulaError(Exception):
    """The text is none that this grammar knows."""


class _Parser:
    """Recursive descent over sums, products, powers, calls and lists of them."""

    def __init__(self, text: str) -> None:
        self.tokens: list[tuple[str, str]] = []
        self.at = self.depth = 0
        end = 0
        if len(text) > MAX_LENGTH:
            self._fail()
        while match := _TOKEN.match(text, end):
            number, name, sign = match.groups()
            self.tokens.append(
                ("num", number) if number else ("name", name) if name else ("sign", sign)
            )
            end = match.end()
        if text[end:].strip() or not self.tokens:
            self._fail()

    def read(self) -> list[Node]:
        """Return the expressions of a text, separated by commas at its top."""
        found = [self._sum()]
        while self._take(","):
            found.append(self._sum())
        if self.at < len(self.tokens):
            self._fail()
        return found

    def _fail(self) -> NoReturn:
        raise _NoFormulaError

    def _peek(self) -> tuple[str, str]:
        return self.tokens[self.at] if self.at < len(self.tokens) else ("end", "")

    def _take(self, *signs: str) -> str:
        kind, text = self._peek()
        if text in signs and (kind == "sign" or text == "mod"):
            self.at += 1
            return text
        return ""

    def _sum(self) -> Node:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self._fail()
        terms: list[tuple[str, Node]] = [("+", self._product())]
        while sign := self._take("+", "-"):
            terms.append((sign, self._product()))
        self.depth -= 1
        return terms[0][1] if len(terms) == 1 else ("add", terms)

    def _product(self) -> Node:
        over: list[Node] = [self._unary()]
        under: list[Node] = []
        while sign := self._take("*", "/", "//", "mod"):
            factor = self._unary()
            if sign in ("//", "mod"):
                whole = ("mul", over, under) if under or len(over) > 1 else over[0]
                over, under = [("floordiv" if sign == "//" else "mod", whole, factor)], []
            else:
                (over if sign == "*" else under).append(factor)
        if not under and len(over) == 1:
            return over[0]
        if over[0][0] == "neg":  # the sign belongs to the whole product
            return ("neg", ("mul", [over[0][1], *over[1:]], under))
        return ("mul", over, under)

    def _unary(self) -> Node:
        if self._take("-"):
            self.depth += 1
            if self.depth > MAX_DEPTH:
                self._fail()
            inner = self._unary()
            self.depth -= 1
            return ("neg", inner)
        base = self._atom()
        return ("pow", base, self._unary()) if self._take("**") else base

    def _atom(self) -> Node:
        kind, text = self._peek()
        self.at += 1
        if kind == "num":
            return ("num", text)
        if kind == "sign" and text == "(":
            inner = self._sum()
            if not self._take(")"):
                self._fail()
            return inner
        if kind != "name":
            self._fail()
        if text in _NAMES:
            return ("name", text)
        if text not in _CALLS and not _BLOCK.match(text) or not self._take("("):
            self._fail()
        args = [self._sum()]
        while self._take(","):
            args.append(self._sum())
        if not self._take(")"):
            self._fail()
        return ("call", text, args)


# ---- markup ------------------------------------------------------------------------------------
def _row(*parts: str) -> str:
    return f"<mrow>{''.join(parts)}</mrow>"


def _mo(sign: str) -> str:
    return f"<mo>{escape(sign)}</mo>"


def _fenced(inner: str, left: str = "(", right: str = ")") -> str:
    """Return a part in brackets; they grow with a fraction only."""
    grow = "" if "<mfrac>" in inner else ' stretchy="false"'
    return _row(f"<mo{grow}>{left}</mo>", inner, f"<mo{grow}>{right}</mo>")


def _show(node: Node) -> str:
    kind = node[0]
    if kind == "num":
        return _number(node[1])
    if kind == "name":
        return _name(node[1])
    if kind == "neg":
        return _row(_mo("−"), _inside_product(node[1]))
    if kind == "add":
        parts = []
        for k, (sign, term) in enumerate(node[1]):
            parts += [_mo("−" if sign == "-" else "+")] if k else []
            bare = not k or term[0] != "neg" and (sign == "+" or term[0] != "add")
            parts.append(_show(term) if bare else _fenced(_show(term)))
        return _row(*parts)
    if kind == "mul":
        return _product(node[1], node[2])
    if kind == "pow":
        return _power(node[1], node[2])
    if kind == "mod":
        return _row(
            _inside_product(node[1]),
            '<mo lspace="0.3em" rspace="0.3em">mod</mo>',
            _inside_product(node[2]),
        )
    if kind == "floordiv":
        return _fenced(f"<mfrac>{_show(node[1])}{_show(node[2])}</mfrac>", "⌊", "⌋")
    return _call(node[1], node[2])


def _number(text: str) -> str:
    mantissa, _, exponent = text.lower().partition("e")
    if not exponent:
        return f"<mn>{mantissa}</mn>"
    return _row(
        f"<mn>{mantissa}</mn>",
        _mo("·"),
        f"<msup><mn>10</mn><mn>{int(exponent)}</mn></msup>".replace(">-", ">−"),
    )


def _name(text: str) -> str:
    if len(text) > 1 and text[1:].isdigit():
        return f"<msub><mi>{text[0]}</mi><mn>{text[1:]}</mn></msub>"
    return f"<mi>{text}</mi>"


def _product(over: list[Node], under: list[Node]) -> str:
    """Return a product; powers below zero go below a bar."""
    above: list[Node] = []
    below = list(under)
    for factor in over:
        if factor[0] == "pow" and factor[2][0] == "neg":
            below.append(_raised(factor[1], factor[2][1]))
        else:
            above.append(factor)
    above = [factor for factor in above if factor != ("num", "1")] or [("num", "1")]
    line = _factors(above)
    if not below:
        return line
    return f"<mfrac>{line}{_factors(below)}</mfrac>"


def _raised(base: Node, exponent: Node) -> Node:
    return base if exponent == ("num", "1") else ("pow", base, exponent)


def _factors(factors: list[Node]) -> str:
    parts = []
    for k, factor in enumerate(factors):
        if k:
            plain = factor[0] == "num" or factors[k - 1][0] != "num"
            parts.append(
                _mo("·") if plain and factor[0] == "num" else '<mspace width="0.17em"></mspace>'
            )
        parts.append(_inside_product(factor) if len(factors) > 1 else _show(factor))
    return parts[0] if len(parts) == 1 else _row(*parts)


def _inside_product(node: Node) -> str:
    shown = _show(node)
    return _fenced(shown) if node[0] in ("add", "neg", "mod") else shown


def _power(base: Node, exponent: Node) -> str:
    if exponent[0] == "neg":
        return f"<mfrac><mn>1</mn>{_show(_raised(base, exponent[1]))}</mfrac>"
    if exponent == ("mul", [("num", "1")], [("num", "2")]):
        return f"<msqrt>{_show(base)}</msqrt>"
    if exponent[0] == "mul" and len(exponent[1]) == len(exponent[2]) == 1:
        shown = _row(_show(exponent[1][0]), _mo("/"), _show(exponent[2][0]))
    else:
        shown = _show(exponent)
    simple = base[0] in ("name", "call") or base[0] == "num" and "e" not in base[1].lower()
    return f"<msup>{_show(base) if simple else _fenced(_show(base))}{shown}</msup>"


def _call(name: str, args: list[Node]) -> str:
    shown = [_show(arg) for arg in args]
    inner = shown[0] if len(shown) == 1 else _row('<mo separator="true">,</mo>'.join(shown))
    if name in ("floor", "ceil"):
        return _fenced(inner, "⌊" if name == "floor" else "⌈", "⌋" if name == "floor" else "⌉")
    if name == "abs":
        return _fenced(inner, "|", "|")
    if name == "sqrt":
        return f"<msqrt>{inner}</msqrt>"
    if name == "mod" and len(args) == 2:
        return _show(("mod", *args))
    if name == "log2":
        function = "<msub><mi>log</mi><mn>2</mn></msub>"
        if args[0][0] in ("name", "num"):
            return _row(function, '<mspace width="0.17em"></mspace>', shown[0])
        return _row(function, _fenced(inner))
    if match := _BLOCK.match(name):
        return _row(f"<msub><mi>block</mi><mtext>{match[1]}</mtext></msub>", _fenced(inner))
    return _row(f"<mi>{name}</mi>", _fenced(inner))
