"""Parts of a report that show the model: equations per phase, the tables of the thesis."""

from __future__ import annotations

from dataclasses import dataclass

from p3s.base.text import not_used, plural, processes, quoted, visible
from p3s.capture.quoted import Quoted
from p3s.model import text
from p3s.model.types import NO_SHARE, Model
from p3s.pipeline.content import MAX_CALLS, StudyContent
from p3s.report.equations import chosen_phases, chosen_rules
from p3s.report.rules import PhaseRules, Rule, phase_rules, used_symbols

RULE_HEAD = ["call and its source", "destination", "volume (bytes)", "work (fitted)", "verdict"]

#: Rules of a page, and those of them that are set as mathematics; the model has them all.
MAX_RULES, MAX_MATHS = 1000, 400
#: Lines of source beside a rule.
MAX_LINES = 3


@dataclass(frozen=True)
class PhaseEquations:
    """A phase with its title and rules.

    rest: rules that are folded away at first; relevant: whether the phase is open at first;
    formulas: whether its equations are set as mathematics.
    """

    phase: PhaseRules
    title: str
    rules: list[Rule]
    rest: list[Rule]
    relevant: bool
    formulas: bool


@dataclass(frozen=True)
class Equations:
    """The model of a report: grid and symbols, phases with the largest share first."""

    notes: list[str]
    symbols: list[tuple[str, str]]
    phases: list[PhaseEquations]
    cut: str


def equations_of(content: StudyContent) -> Equations:
    """Return what a report shows of the model; all texts are printable."""
    model, places = content.model, content.places
    few = _largest(model)
    phases = phase_rules(model, places, few)
    shown, hidden = chosen_phases(phases, everything=False)
    notes = [
        f"Fitted at {processes(model.counts)}; shares are those at "
        f"{max(model.counts)}; work is in {text.unit_in_full(model)} before one call.",
        f"Process grid: {text.grid_text(model)}.",
    ]
    if content.foreign:
        notes.append("Lines of source are left out: you have not run this study's program.")
    if unused := not_used(model.without, content.program.take_back):
        notes.append(unused[0].upper() + unused[1:] + ".")
    symbols = used_symbols(phases, int(model.grid.family.ndims))
    made, before = [], 0
    for phase in [*shown, *hidden]:
        at = f", at {phase.place}" if phase.place else ""
        title = visible(f"Phase {phase.phase}{phase.inside}: {phase.name}{at}", 400)
        rules, rest = chosen_rules(phase, everything=False)
        made.append(PhaseEquations(phase, title, rules, rest, phase in shown, before < MAX_MATHS))
        before += len(phase.rules)
    left = sum(bool(phase.items) for phase in model.phases) - len(few)
    cut = (
        f"The equations of {plural(left, 'more phase')}: "
        f"p3s model {quoted(content.program.root)} --all."
        if left
        else ""
    )
    return Equations(
        [visible(note, 2000) for note in notes],
        [(visible(name), visible(what, 400)) for name, what in symbols],
        made,
        cut,
    )


def _largest(model: Model) -> set[int]:
    """Return the phases with calls, those with most time, that have up to MAX_RULES calls."""
    share = {
        phase.phase: sum((model.items[i].share or NO_SHARE).time for i in phase.items)
        for phase in model.phases
        if phase.items
    }
    few: set[int] = set()
    calls = 0
    for k in sorted(share, key=lambda k: (-share[k], k)):
        if calls >= MAX_RULES:
            break
        few.add(k)
        calls += len(model.phases[k].items)
    return few


def quoted_source(content: StudyContent, rule: Rule) -> list[Quoted]:
    """Return the lines of source that make the calls of a rule, in their order."""
    sites = (content.model.items[i].site for i in rule.calls)
    return list(dict.fromkeys(line for s in sites if (line := content.quotes.get(s))))[:MAX_LINES]


def instructions_of(content: StudyContent) -> str:
    """Return the instruction table (thesis, Table 5.2) as text; empty where it cannot be made."""
    from p3s.report.scic import table

    calls = len(content.model.items)
    if calls > MAX_CALLS:
        command = f"p3s model {quoted(content.program.root)} --scic"
        return f"The model has {calls:,} calls: {command} prints it."
    found = content.instructions
    return _printable(table(found)).rstrip() if found is not None else ""


def computation_of(content: StudyContent) -> str:
    """Return the compute table (thesis, Tables 6.5 and 6.6) as text; empty without times."""
    from p3s.report.compute import table

    found = content.compute
    return _printable(table(found.model, found.rows)) if found is not None else ""


def _printable(text: str) -> str:
    return "\n".join(visible(line, 400) for line in text.split("\n"))
