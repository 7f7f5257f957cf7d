"""Equations in sympy and back, compared there, and printed: text, LaTeX, MathML, C and Python.

sympy is loaded by what needs it alone: usual equations have their text without it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache, reduce
from typing import TYPE_CHECKING, Any

from p3s.base.errors import P3SError
from p3s.laws.expr import Expr, add, mul, num, power, sym
from p3s.laws.words import scaled_text, usual_text

if TYPE_CHECKING:
    import sympy

#: Symbols that are at least one; the others start at zero.
FROM_ONE = frozenset({"n", "p0", "p1", "p2", "p3"})
#: Signs of sympy's MathML as they are set: minus, and a gap between factors.
_SET = {"<mo>-</mo>": "<mo>−</mo>", "<mn>-": "<mn>−", "<mo>\u2062</mo>": '<mspace width="0.17em"/>'}


def to_sympy(expr: Expr) -> sympy.Expr:
    """Return ``expr`` as a sympy expression, built by constructors."""
    import sympy as sp

    op = expr[0]
    if op == "num":
        return sp.Rational(expr[1], expr[2])
    if op == "sym":
        name = expr[1]
        return sp.Symbol(
            name, integer=True, **{"positive" if name in FROM_ONE else "nonnegative": True}
        )
    if op == "pow":
        return sp.Pow(to_sympy(expr[1]), sp.Rational(expr[2], expr[3]))
    if op == "sum":
        count, body = to_sympy(expr[1]), to_sympy(expr[2])
        j = to_sympy(sym("j"))
        return sp.Sum(body, (j, 0, count - 1)) if j in body.free_symbols else count * body
    if op == "block":
        extent, p, c = (to_sympy(a) for a in expr[2:])
        if expr[1] in ("low", "high"):
            return (sp.floor if expr[1] == "low" else sp.ceiling)(extent / p)
        return sp.Function(f"block_{expr[1]}")(extent, p, c)
    args = [to_sympy(a) for a in expr[1:]]
    if op == "log2" and args[0].is_Integer and args[0] > 0:
        whole = int(args[0]).bit_length() - 1
        if args[0] == 2**whole:
            return sp.Integer(whole)
    if op == "quot":
        return sp.floor(args[0] / args[1])
    if op == "exp2":
        return sp.Pow(2, args[0])
    made = {
        "add": sp.Add,
        "mul": sp.Mul,
        "min": sp.Min,
        "max": sp.Max,
        "mod": sp.Mod,
        "floor": sp.floor,
        "ceil": sp.ceiling,
        "log2": sp.Function("log2"),
    }.get(op)
    if made is None:
        raise P3SError(f"model: unknown operator {op!r}; the file was made by another version")
    return made(*args)


def from_sympy(found: sympy.Expr) -> Expr:
    """Return an expression in sympy as data; P3SError where the language has no such function."""
    import sympy as sp

    def of(name: str) -> Expr:
        return [name, *map(from_sympy, found.args)]

    if found.is_Rational:
        return num(Fraction(int(found.p), int(found.q)))
    if found.is_Float:
        return num(Fraction(float(found)))
    if found.is_Symbol:
        return sym(found.name)
    if found.is_Add or found.is_Mul:
        return (add if found.is_Add else mul)(*map(from_sympy, found.args))
    if found.is_Pow and found.exp.is_Rational:
        return power(from_sympy(found.base), Fraction(int(found.exp.p), int(found.exp.q)))
    if found.is_Pow and found.base == 2:
        return ["exp2", from_sympy(found.exp)]
    if isinstance(found, sp.Min | sp.Max):
        parts = [from_sympy(a) for a in found.args]
        return reduce(lambda a, b: ["min" if isinstance(found, sp.Min) else "max", a, b], parts)
    if isinstance(found, sp.Sum) and found.limits[0][1] == 0:
        return ["sum", from_sympy(found.limits[0][2] + 1), from_sympy(found.function)]
    name = type(found).__name__
    if name in ("floor", "ceiling", "Mod", "log2"):
        return of({"ceiling": "ceil", "Mod": "mod"}.get(name, name))
    if name.startswith("block_"):
        return ["block", name.removeprefix("block_"), *map(from_sympy, found.args)]
    raise P3SError(f"law: {name} is no function of equations; see docs/laws.md")


def equal(a: Expr, b: Expr) -> bool:
    """Return whether sympy proves that two equations are one: their difference is zero."""
    import sympy as sp

    return bool(sp.simplify(to_sympy(a) - to_sympy(b)) == 0)


def to_python(expr: Expr) -> str:
    """Return an equation as a Python expression of its symbols (math; block_* are functions)."""
    from sympy import pycode

    names = {"log2": "math.log2"}
    return str(pycode(simplify_expr(expr), user_functions=names, allow_unknown_functions=True))


def to_c(expr: Expr) -> str:
    """Return an equation as a C expression of doubles (math.h; block_* are functions)."""
    from sympy import ccode

    names = {"log2": "log2"}
    return str(ccode(simplify_expr(expr), user_functions=names, allow_unknown_functions=True))


def decimal(expr: Expr, figures: int = 4) -> sympy.Expr:
    """Return an expression in sympy with decimal numbers of ``figures`` for its constants."""
    import sympy as sp

    values: dict[str, Any] = {}

    def named(part: Any) -> Any:
        if not isinstance(part, list):
            return part
        if part[0] == "num" and (part[2] != 1 or abs(part[1]) >= 1000):
            name = f"constant{len(values)}"
            values[name] = sp.Float(part[1], figures) / part[2]
            return ["sym", name]
        return [named(each) for each in part]

    found = to_sympy(named(expr))
    return found.xreplace({s: values[s.name] for s in found.free_symbols if s.name in values})


def simplify_expr(expr: Expr) -> sympy.Expr:
    """Return the form of ``expr`` with the fewest operations: plain, factored or expanded."""
    return _simplify_json(json.dumps(expr))


@lru_cache(maxsize=4096)
def _simplify_json(data: str) -> sympy.Expr:
    import sympy as sp

    plain = to_sympy(json.loads(data))
    forms = [plain]
    if plain.is_Add or plain.is_Mul:
        forms += [sp.factor_terms(plain), sp.expand(plain)]
    return min(forms, key=lambda e: int(e.count_ops()))


@lru_cache(maxsize=1)
def _text_printer() -> Any:
    from sympy.printing.str import StrPrinter

    class TextPrinter(StrPrinter):  # type: ignore[misc]
        """Plain text with the names used for loops and blocks in docs/model.md."""

        def _print_ceiling(self, e: Any) -> str:
            return f"ceil({self._print(e.args[0])})"

        def _print_Mod(self, e: Any) -> str:
            return f"mod({self._print(e.args[0])}, {self._print(e.args[1])})"

        def _print_Min(self, e: Any) -> str:
            return f"min({', '.join(sorted(map(self._print, e.args), key=_short))})"

        def _print_Max(self, e: Any) -> str:
            return f"max({', '.join(sorted(map(self._print, e.args), key=_short))})"

        def _print_Sum(self, e: Any) -> str:
            j, low, high = e.limits[0]
            return f"sum({self._print(e.function)}, {j} = {low}..{self._print(high)})"

    return TextPrinter()


def _short(text: str) -> tuple[int, str]:
    return len(text), text


@lru_cache(maxsize=1)
def _latex_printer() -> Any:
    from sympy.printing.latex import LatexPrinter

    class MathPrinter(LatexPrinter):  # type: ignore[misc]
        """LaTeX; blocks as a named function with the way of cutting as its index."""

        def _print_Function(self, expr: Any, exp: Any = None) -> str:
            name = type(expr).__name__
            if name != "log2" and not name.startswith("block_"):
                return str(super()._print_Function(expr, exp))
            args = ", ".join(self._print(a) for a in expr.args)
            head = (
                r"\log_{2}"
                if name == "log2"
                else r"\operatorname{block}_{\mathrm{" + name.removeprefix("block_") + "}}"
            )
            head += f"^{{{exp}}}" if exp is not None else ""
            if name == "log2" and expr.args[0].is_Symbol:
                return f"{head} {args}"
            return head + rf"\left({args}\right)"

    return MathPrinter()


@lru_cache(maxsize=1)
def _mathml_printer() -> Any:
    from html import escape

    from sympy.printing.mathml import MathMLPresentationPrinter
    from sympy.printing.precedence import PRECEDENCE

    class MarkupPrinter(MathMLPresentationPrinter):  # type: ignore[misc]
        """MathML with the names of docs/model.md; only what is made here becomes an element."""

        def doprint(self, expr: Any) -> str:
            found: str = self._print(expr).toxml()
            for plain, set_ in _SET.items():
                found = found.replace(plain, set_)
            return found

        def _made(self, tag: str, *children: Any, **attributes: str) -> Any:
            made = self.dom.createElement(tag)
            for name, value in attributes.items():
                made.setAttribute(name, value)
            for child in children:
                made.appendChild(
                    self.dom.createTextNode(escape(child)) if isinstance(child, str) else child
                )
            return made

        def _print_Symbol(self, e: Any, style: str = "plain") -> Any:
            name = e.name
            if name[1:].isdigit():
                return self._made("msub", self._made("mi", name[0]), self._made("mn", name[1:]))
            return self._made("mi", name)

        def _print_Function(self, e: Any) -> Any:
            name, _, index = type(e).__name__.partition("_")
            if name == "log2":
                head = self._made("msub", self._made("mi", "log"), self._made("mn", "2"))
                if e.args[0].is_Symbol or e.args[0].is_Integer:
                    gap = self._made("mspace", width="0.17em")
                    return self._made("mrow", head, gap, self._print(e.args[0]))
            else:
                head = self._made("mi", name)
                head = self._made("msub", head, self._made("mtext", index)) if index else head
            return self._made("mrow", head, self._paren_comma_separated(*e.args))

        def _print_Mod(self, e: Any) -> Any:
            sign = self._made("mo", "mod", lspace="0.3em", rspace="0.3em")
            a, b = (
                self.parenthesize(arg, PRECEDENCE["Mul" if arg.func == e.func else "Add"])
                for arg in e.args
            )
            return self._made("mrow", a, sign, b)

        def parenthesize(self, item: Any, level: int, strict: bool = False) -> Any:
            if type(item).__name__ == "log2" and level >= PRECEDENCE["Pow"]:
                return self._paren_comma_separated(item)
            return super().parenthesize(item, level, strict)

    return MarkupPrinter({"mul_symbol": "\u2062", "mul_symbol_mathml_numbers": "·"})


def to_text(expr: Expr) -> str:
    """Return ``expr`` as one line of text, simplified."""
    usual = usual_text(expr)
    return sympy_to_text(simplify_expr(expr)) if usual is None else usual


def term_text(coefficient: float, expr: Expr) -> str:
    """Return a measured number times ``expr`` as text, four figures of the number."""
    usual = scaled_text(coefficient, expr)
    if usual is not None:
        return usual
    shape = to_text(expr)
    shape = f"({shape})" if " + " in shape or " - " in shape else shape
    return f"{coefficient:.4g}*{shape}"


def sympy_to_text(expr: sympy.Expr) -> str:
    """Return what :func:`to_sympy` made as one line of text."""
    return str(_text_printer().doprint(expr))


def to_latex(expr: Expr) -> str:
    """Return ``expr`` as LaTeX for math mode, simplified; p0 becomes p_{0}."""
    return sympy_to_latex(simplify_expr(expr))


def sympy_to_latex(expr: sympy.Expr) -> str:
    """Return what :func:`to_sympy` made, with decimal constants maybe, as LaTeX for math mode."""
    return str(_latex_printer().doprint(expr))


def sympy_to_mathml(expr: sympy.Expr) -> str:
    """Return what :func:`to_sympy` made, with decimal constants maybe, as presentation MathML."""
    return str(_mathml_printer().doprint(expr))


def row(*parts: str) -> str:
    """Return parts of MathML as one; a single one stays as it is."""
    return parts[0] if len(parts) == 1 else f"<mrow>{''.join(parts)}</mrow>"


def total(terms: Sequence[str]) -> str:
    """Return a sum of terms in MathML."""
    return join_formulas("<mo>+</mo>", terms) if terms else "<mn>0</mn>"


def join_formulas(sign: str, parts: Sequence[str]) -> str:
    """Return several formulas in MathML with a sign between them."""
    return row(*[piece for part in parts for piece in (sign, part)][1:])
