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
from p3s.laws.expr import Expr, mul, num, power, sym
from p3s.laws.symbolic import (
    decimal,
    simplify_expr,
    sympy_to_latex,
    sympy_to_mathml,
    term_text,
    to_text,
)
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

    def term(self, coefficient: float, expr: Expr, factor: str) -> str:
        """Return a term of the work of a segment."""
        return self.shown(decimal(mul(num(Fraction(coefficient)), expr, *_FACTORS[factor])))

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
        return self.shown(simplify_expr(expr))

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
        return term_text(coefficient, mul(expr, *_FACTORS[factor]))

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

    def total(self, terms: Sequence[str]) -> str:
        return symbolic.total(terms)

    def listed(self, parts: Sequence[str]) -> str:
        return symbolic.join_formulas("<mo>,</mo>", parts) if parts else ""

    def modulo(self, to: str, extent: str) -> str:
        return symbolic.row(f"<mrow><mo>(</mo>{to}<mo>)</mo></mrow>", _MOD, extent)

    def about(self, amount: str) -> str:
        return symbolic.row("<mo>≈</mo>", amount)

    def follows(self, factor: Sequence[int]) -> str:
        return ""

    def shared(self, total: str) -> str:
        return symbolic.row(total, "<mtext> in all, shared evenly</mtext>")


TEXT, LATEX, MATHML = Text(), Latex(), MathML()
_FACTORS = {"": [], "here": [sym("b")], "before": [sym("b0")], "once": [power(sym("m"), -1)]}
_MOD = '<mo lspace="0.3em" rspace="0.3em">mod</mo>'


@cache
def _text(frozen: tuple[Any, ...]) -> str:
    return to_text(_thaw_expr(frozen))


def _frozen(expr: Any) -> Any:
    return tuple(map(_frozen, expr)) if isinstance(expr, list) else expr


def _thaw_expr(expr: Any) -> Any:
    return list(map(_thaw_expr, expr)) if isinstance(expr, tuple) else expr


def bytes_of(elements: list[Any], width: int) -> list[Any]:
    """Return elements of ``width`` bytes as an expression in bytes."""
    if elements[0] == "num":
        return num(Fraction(elements[1], elements[2]) * width)
    return mul(num(width), elements)
