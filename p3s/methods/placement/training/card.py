"""The card of a communication model, as people read it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from p3s.base.text import figures, percent, plural, table, visible
from p3s.cli.common import header
from p3s.methods.placement.learned import Card, LearnedModel, doubts, load
from p3s.methods.placement.ranking import Agreement
from p3s.report.show import reason_lines

#: Ways to tell the time of a phase, by their codes.
WAYS: Mapping[str, str] = {
    "alpha-beta": "latency and bandwidth",
    "max-bytes": "bytes on the busiest link",
    "simulation": "simulation of messages on links",
    "A": "class A: messages of ranks",
    "B": "class B: and of nodes",
    "C": "class C: and of the network",
    "corrected": "simulation, corrected by class C",
    "SV": "line of one feature (LinReg-SV)",
    "MV": "lines of several features (LinReg-MV)",
    **{name: f"features {name} of SC13" for name in ("H1", "H2", "H3", "H4", "H5", "H6")},
}
_CAVEATS: Mapping[str, str] = {
    "not-converged": "its trees have not learned all there is: more trees, or a larger rate",
    "one-group": "all phases are of one allocation: errors are those of phases, not of allocations",
}


def shown(path: Path) -> tuple[dict[str, Any], str]:
    """Return what p3s machine show prints of a model's file, as JSON and as text."""
    return print_card(load(path))


def print_card(model: LearnedModel) -> tuple[dict[str, Any], str]:
    """Return the card of a model as JSON and as text."""
    return {**header("machine.learn"), "card": asdict(model.card)}, render(model)


def render(model: LearnedModel) -> str:
    """Return the card of a model as text."""
    card = model.card
    lines = [
        f"communication model of {visible(card.machine)}",
        f"network: {visible(card.network)}",
        *([f"topology: {visible(card.topology)}"] if card.topology else []),
        f"trained on {plural(card.rows, 'phase')} of random pairs, "
        f"{plural(card.groups, 'allocation')}: {_span(model)}",
        *(f"{visible(name)}: {visible(value)}" for name, value in card.facts.items()),
        "",
        "errors on allocations that were left out of training:",
        _table(card),
        "",
        f"used: {_name(card.features)}",
        *(f"caveat: {_CAVEATS.get(code, code)}" for code in card.caveats),
        *reason_lines(doubts(card)),
    ]
    return "\n".join(lines)


def _name(code: str) -> str:
    return WAYS.get(code, code)


def _table(card: Card) -> str:
    head = ["", "mean error", "median", "within 25 %", "R2", "in order"]
    return table([_row(code, each) for code, each in card.compared.items()], head)


def _row(code: str, each: Agreement) -> list[str]:
    shares = (each.mmre, each.log_median, each.within)
    return [_name(code), *map(percent, shares), figures(each.r2), percent(each.rcc)]


def _span(model: LearnedModel) -> str:
    """Return the ends of what a model was trained on, as far as it uses them."""
    most = dict(zip(model.names, model.most.tolist(), strict=True))
    shapes = (("n", "{:.0f} nodes"), ("ppn", "{:.0f} ranks each"), ("l(max)", "{:,.0f} bytes"))
    limits = [form.format(most[name]) for name, form in shapes if name in most]
    return f"up to {', '.join(limits)}" if limits else ", ".join(model.names)
