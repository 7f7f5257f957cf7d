"""Cells of a report that are formulas: MathML for the page, with the text as its description.

Browsers show MathML without a script.
"""

from __future__ import annotations

from html import escape

from markupsafe import Markup

from p3s.base.text import visible
from p3s.model.notation import MATHML
from p3s.report.rules import Equation

#: Longest equation of a cell.
MAX_LENGTH = 600


def maths(words: str, formula: str, before: str = "", after: str = "") -> Markup:
    """Return a text with the formula in it, which has ``before`` and ``after`` around it.

    One without a formula, or that is a number as it is written, stays text.
    """
    core = words.removeprefix(before).removesuffix(after)
    if not formula or len(words) > MAX_LENGTH or core.replace(".", "", 1).isdigit():
        return Markup(escape(visible(words, MAX_LENGTH)))
    size = ' displaystyle="true"' if "<mfrac>" in formula else ""
    shown = f'<math{size} alttext="{escape(core)}">{formula}</math>'
    return Markup(f"{escape(before)}{shown}{escape(after)}")


def markup(cell: Equation, formulas: bool = True) -> Markup:
    """Return a cell for a page; without ``formulas`` its text alone."""
    write = cell.formula if formulas and len(cell.text) <= MAX_LENGTH else None
    return maths(cell.text, write(MATHML) if write else "", cell.before, cell.after)
