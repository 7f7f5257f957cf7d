"""Cells of a report that are formulas: MathML for the page, with the text as its description.

Browsers show MathML without a script.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from markupsafe import Markup

from p3s.base.ops import RECV, SEND
from p3s.base.text import visible
from p3s.model import text
from p3s.model.notation import MATHML
from p3s.model.types import Model
from p3s.report.rules import PhaseRules, Rule, first_slot

#: Longest equation of a cell.
MAX_LENGTH = 600


@dataclass(frozen=True)
class Maths:
    """A formula: its text, and its markup for a page (MathML, or the text, escaped)."""

    text: str
    markup: Markup


def plain(words: str) -> Maths:
    """Return a text that stays as it is."""
    return Maths(words, Markup(escape(words)))


def maths(words: str, formula: str, before: str = "", after: str = "") -> Maths:
    """Return a text and the formula in it, which has ``before`` and ``after`` around it.

    One without a formula, or that is a number as it is written, stays as it is.
    """
    if len(words) > MAX_LENGTH:
        return plain(visible(words, MAX_LENGTH))
    core = words.removeprefix(before).removesuffix(after)
    if not formula or core.replace(".", "", 1).isdigit():
        return plain(words)
    size = ' displaystyle="true"' if "<mfrac>" in formula else ""
    shown = f'<math{size} alttext="{escape(core)}">{formula}</math>'
    return Maths(words, Markup(f"{escape(before)}{shown}{escape(after)}"))


def destination(model: Model, rule: Rule) -> Maths:
    """Return whom the calls of a row send to or receive from, or the ranks of a collective."""
    item, slot, _ = first_slot(model, rule)
    if item.kind not in (SEND, RECV) or slot.relation is None:
        return plain(rule.destination)
    formula = MATHML.in_words_of(model, MATHML.partner(slot.relation))
    return maths(rule.destination, formula, f"{text.kind_word(item.kind)} ")


def volume(model: Model, rule: Rule) -> Maths:
    """Return the bytes of one call."""
    item, slot, one_size = first_slot(model, rule)
    if not one_size:
        return plain(rule.volume)
    return maths(rule.volume, MATHML.in_words_of(model, MATHML.volume(item, slot)))


def work(model: Model, rule: Rule) -> Maths:
    """Return the work before one call."""
    if rule.law is None:
        return plain(rule.work)
    return maths(rule.work, MATHML.in_words_of(model, MATHML.work_of(rule.law)))


def weight(model: Model, phase: PhaseRules) -> Maths:
    """Return how often a phase occurs in the run."""
    law = model.phases[phase.phase].weight
    after = text.since(law)
    return maths(phase.weight, MATHML.in_words_of(model, MATHML.law(law)), after=after)


def phase_work(model: Model, phase: PhaseRules) -> Maths:
    """Return the work of a rank in a phase over the whole run."""
    law = model.phases[phase.phase].work.law
    return maths(phase.work, MATHML.work(law), after=f" {text.unit_of(model)}")
