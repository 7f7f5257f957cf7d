"""Equations of a model as text, as LaTeX and as MathML: one walk over what each is made of.

Expressions are printed by p3s.laws.symbolic. The words around equations are in p3s.model.text.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import cache
from typing import Any, ClassVar

from p3s.base.ops import COLLECTIVE, IO, RECV, SEND
from p3s.laws import symbolic
from p3s.laws.expr import Expr, mul, num
from p3s.laws.symbolic import simplified, sympy_to_latex, sympy_to_mathml, to_sympy, to_text
from p3s.laws.worklaws import WorkLaw
from p3s.model.law_types import Amount, CountLaw, SizeLaw
from p3s.model.partners.relation import Relation
from p3s.model.types import Item, Model, Slot

Law = CountLaw | SizeLaw
#: Work of a segment: coefficient, expression, what it is multiplied by besides: "here" (b, bytes of
#: the message), "before" (b0, of the one before it), "once" (1/m, m: how many such segments a rank
#: runs through) or nothing.
Terms = Sequence[Sequence[Any]]


class Notation(ABC):
    """How the parts of a formula are written; ``names`` maps symbols of a 1-D grid to r and n."""

    names: ClassVar[Mapping[str, str]] = {}

    @abstractmethod
    def shown(self, expr: Any) -> str:
        """Return a sympy expression."""

    @abstractmethod
    def work(self, law: WorkLaw) -> str:
        """Return a law of work."""

    @abstractmethod
    def term(self, coefficient: float, expr: Expr, factor: str) -> str:
        """Return a term of the work of a segment."""

    @abstractmethod
    def total(self, terms: Sequence[str]) -> str:
        """Return a sum."""

    @abstractmethod
    def listed(self, parts: Sequence[str]) -> str:
        """Return several formulas, a coordinate each."""

    @abstractmethod
    def modulo(self, to: str, extent: str) -> str:
        """Return a coordinate that comes in again at the other end."""

    @abstractmethod
    def about(self, amount: str) -> str:
        """Return a statistical amount."""

    @abstractmethod
    def follows(self, factor: Sequence[int]) -> str:
        """Return how often a completion is called: as messages were posted, times a fraction."""

    @abstractmethod
    def shared(self, total: str) -> str:
        """Return the share of a rank in a total."""

    # ---- what a model is made of
    def expression(self, expr: Expr) -> str:
        """Return an expression, simplified."""
        return self.shown(simplified(expr))

    def law(self, law: Law) -> str:
        """Return a count or size law; empty for one that has no formula."""
        if law.expr is not None:
            return self.expression(law.expr)
        if isinstance(law, CountLaw) and law.total is not None:
            return self.shared(self.expression(law.total))
        if isinstance(law, CountLaw) and law.follows is not None:
            return self.follows(law.factor or (1, 1))
        return self.about(self.amount(law.stat)) if law.stat is not None else ""

    def amount(self, stat: Amount | WorkLaw) -> str:
        """Return a statistical amount."""
        return self.work(stat) if isinstance(stat, WorkLaw) else self.shown(decimal(stat.expr))

    def volume(self, item: Item, slot: Slot) -> str:
        """Return the bytes of one call; empty for calls that move nothing."""
        if item.kind not in (SEND, RECV, COLLECTIVE, IO):
            return ""
        law, width = slot.elements, slot.elem_bytes
        if law.expr is not None:
            return self.expression(bytes_of(law.expr, width))
        if law.stat is not None:
            return self.about(self.shown(decimal(bytes_of(law.stat.expr, width))))
        return ""

    def work_of(self, law: WorkLaw | Terms) -> str:
        """Return the work before a call: a law of n, or the terms of a segment."""
        return self.work(law) if isinstance(law, WorkLaw) else self.segment(law)

    def segment(self, terms: Terms) -> str:
        """Return the work of a segment."""
        return self.total([self.term(*term) for term in terms])

    def partner(self, relation: Relation) -> str:
        """Return a partner as a formula, a coordinate each; empty where it is none."""
        return self.listed(
            [
                self.modulo(self.expression(to), self.expression(extent))
                if extent is not None
                else self.expression(to)
                for to, extent in relation.formula()
            ]
        )

    def in_words_of(self, model: Model, formula: str) -> str:
        """Return a formula with r and n for the only coordinate and extent of a 1-D grid."""
        if model.grid.family.ndims == 1:
            formula = self.renamed(formula)
        return formula

    def renamed(self, formula: str) -> str:
        """Return a formula with r and n for the coordinate and the extent in dimension 0."""
        for name, plain in self.names.items():
            formula = formula.replace(name, plain)
        return formula


class Text(Notation):
    """One line of text."""

    def shown(self, expr: Any) -> str:
        return str(expr)

    def expression(self, expr: Expr) -> str:
        return _text(_frozen(expr))

    def work(self, law: WorkLaw) -> str:
        return law.text()

    def term(self, coefficient: float, expr: Expr, factor: str) -> str:
        shape = self.expression(expr)
        shape = f"({shape})" if " + " in shape or " - " in shape else shape
        shapes = [shape] * (shape != "1") + [_FACTORS.get(factor, "")] * bool(factor)
        number = f"{coefficient:.4g}"
        factors = [number, *shapes] if number != "1" or not shapes else shapes
        return "*".join(factors).replace("*1/m", "/m")

    def total(self, terms: Sequence[str]) -> str:
        return " + ".join(terms) or "0"

    def listed(self, parts: Sequence[str]) -> str:
        return ", ".join(parts)

    def modulo(self, to: str, extent: str) -> str:
        return f"({to}) mod {extent}"

    def about(self, amount: str) -> str:
        return f"about {amount}"

    def follows(self, factor: Sequence[int]) -> str:
        share = Fraction(*factor)
        return "as posted" if share == 1 else f"as posted x {share}"

    def shared(self, total: str) -> str:
        return f"{total} in all, shared evenly"

    def renamed(self, formula: str) -> str:
        return re.sub(r"\bp0\b", "n", re.sub(r"\bc0\b", "r", formula))


class Latex(Notation):
    """LaTeX for math mode."""

    names = {"c_{0}": "r", "p_{0}": "n"}

    def shown(self, expr: Any) -> str:
        return sympy_to_latex(expr)

    def work(self, law: WorkLaw) -> str:
        return law.latex()

    def term(self, coefficient: float, expr: Expr, factor: str) -> str:
        part = _latex_number(coefficient)
        if expr != num(1):
            part += rf"\,\left({self.expression(expr)}\right)"
        return part + {"here": r"\,b", "before": r"\,b_{0}", "once": "/m"}.get(factor, "")

    def total(self, terms: Sequence[str]) -> str:
        return " + ".join(terms) or "0"

    def listed(self, parts: Sequence[str]) -> str:
        return r",\ ".join(parts)

    def modulo(self, to: str, extent: str) -> str:
        return rf"({to}) \bmod {extent}"

    def about(self, amount: str) -> str:
        return rf"\approx {amount}"

    def follows(self, factor: Sequence[int]) -> str:
        return r"\mathrm{as\ posted}"

    def shared(self, total: str) -> str:
        return rf"\frac{{1}}{{m}}\,{total}"


class MathML(Notation):
    """Presentation MathML, without the <math> around it."""

    names = {
        "<msub><mi>c</mi><mn>0</mn></msub>": "<mi>r</mi>",
        "<msub><mi>p</mi><mn>0</mn></msub>": "<mi>n</mi>",
    }

    def shown(self, expr: Any) -> str:
        return sympy_to_mathml(expr)

    def work(self, law: WorkLaw) -> str:
        return law.mathml()

    def term(self, coefficient: float, expr: Expr, factor: str) -> str:
        import sympy

        top, bottom = sympy.fraction(simplified(expr))
        over = sympy_to_mathml(top)
        over = symbolic.fenced(over) if top.is_Add else over
        names = {"here": "<mi>b</mi>", "before": "<msub><mi>b</mi><mn>0</mn></msub>"}
        message = [names[factor]] if factor in names else []
        under = [] if bottom == 1 else [sympy_to_mathml(bottom)]
        under += ["<mi>m</mi>"] if factor == "once" else []
        return symbolic.fraction([symbolic.number(coefficient), over, *message], under)

    def total(self, terms: Sequence[str]) -> str:
        return symbolic.total(terms)

    def listed(self, parts: Sequence[str]) -> str:
        return symbolic.listed(parts) if parts else ""

    def modulo(self, to: str, extent: str) -> str:
        return symbolic.row(symbolic.fenced(to), symbolic.MOD, extent)

    def about(self, amount: str) -> str:
        return symbolic.row("<mo>≈</mo>", amount)

    def follows(self, factor: Sequence[int]) -> str:
        return ""

    def shared(self, total: str) -> str:
        return symbolic.row(total, "<mtext> in all, shared evenly</mtext>")


TEXT, LATEX, MATHML = Text(), Latex(), MathML()
_FACTORS = {"here": "b", "before": "b0", "once": "1/m"}


@cache
def _text(frozen: tuple[Any, ...]) -> str:
    return to_text(_thawed(frozen))


def _frozen(expr: Any) -> Any:
    return tuple(map(_frozen, expr)) if isinstance(expr, list) else expr


def _thawed(expr: Any) -> Any:
    return list(map(_thawed, expr)) if isinstance(expr, tuple) else expr


def _latex_number(value: float) -> str:
    mantissa, _, exponent = f"{value:.4g}".partition("e")
    return rf"{mantissa} \cdot 10^{{{int(exponent)}}}" if exponent else mantissa


def decimal(expr: list[Any], figures: int = 4) -> Any:
    """Return an expression in sympy with decimal numbers of ``figures`` for its constants."""
    import sympy

    values: dict[str, Any] = {}

    def named(part: Any) -> Any:
        if not isinstance(part, list):
            return part
        if part[0] == "num" and (part[2] != 1 or abs(part[1]) >= 1000):
            name = f"constant{len(values)}"
            values[name] = sympy.Float(part[1], figures) / part[2]
            return ["sym", name]
        return [named(each) for each in part]

    found = to_sympy(named(expr))
    return found.xreplace(
        {symbol: values[symbol.name] for symbol in found.free_symbols if symbol.name in values}
    )


def bytes_of(elements: list[Any], width: int) -> list[Any]:
    """Return elements of ``width`` bytes as an expression in bytes."""
    if elements[0] == "num":
        return num(Fraction(elements[1], elements[2]) * width)
    return mul(num(width), elements)
