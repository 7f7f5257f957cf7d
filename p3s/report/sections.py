"""Parts of a report that show the model: equations per phase, the account of a run's time."""

from __future__ import annotations

from dataclasses import dataclass

from p3s.base.text import not_used, plural, processes, quoted, visible
from p3s.capture.quoted import Quoted
from p3s.model import text
from p3s.model.types import NO_SHARE, Model
from p3s.pipeline.content import MAX_CALLS, StudyContent
from p3s.report import mathml
from p3s.report.equations import VERDICT_HEAD, chosen_phases, chosen_rules, next_text, verdict_rows
from p3s.report.mathml import Maths, plain
from p3s.report.places import phase_places
from p3s.report.rules import PhaseRules, Rule, phase_rules, used_symbols
from p3s.signature.phase_file import Phases

RULE_HEAD = ["call and its source", "destination", "volume (bytes)", "work (fitted)", "verdict"]

#: Rules of a page, and those of them that are set as mathematics; the model has them all.
MAX_RULES, MAX_MATHS = 1000, 400
#: Lines of source beside a rule.
MAX_LINES = 3


@dataclass(frozen=True)
class RuleRow:
    """A rule beside the lines of source that make its calls; ``facts``: where and for whom."""

    label: str
    call: str
    source: list[Quoted]
    destination: Maths
    volume: Maths
    work: Maths
    verdict: str
    facts: str


@dataclass(frozen=True)
class PhaseEquations:
    """One phase: name and shares, weight, rules, and why not surer.

    rest: rows that are folded away at first; relevant: whether the phase is open at first.
    """

    title: str
    share: str
    weight: Maths
    weight_sure: str
    work: Maths
    work_sure: str
    no_trend: str
    rows: list[RuleRow]
    rest: list[RuleRow]
    reasons: list[str]
    relevant: bool


@dataclass(frozen=True)
class Equations:
    """The model of a report: grid and symbols, phases with the largest share first, next runs.

    places: where the calls of a phase are, by its number.
    """

    notes: list[str]
    symbols: list[tuple[str, str]]
    head: list[str]
    phases: list[PhaseEquations]
    cut: str
    verdict_head: list[str]
    verdicts: list[list[str]]
    work_sure: str
    next: list[str]
    places: dict[str, str]


@dataclass(frozen=True)
class Account:
    """Where all events and all the time of each count are, as rows under ``head``."""

    head: list[str]
    rows: list[list[str]]
    notes: list[str]


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
    made, rules = [], 0
    for phase in [*shown, *hidden]:
        made.append(_phase(content, phase, phase in shown, rules < MAX_MATHS))
        rules += len(phase.rules)
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
        RULE_HEAD,
        made,
        cut,
        VERDICT_HEAD,
        verdict_rows(model),
        text.work_sure(model),
        [next_text(each) for each in model.next],
        phase_places(model, places),
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


def _quoted(content: StudyContent, rule: Rule) -> list[Quoted]:
    """Return the lines of source that make the calls of a rule, in their order."""
    sites = (content.model.items[i].site for i in rule.calls)
    return list(dict.fromkeys(line for s in sites if (line := content.quotes.get(s))))[:MAX_LINES]


def _phase(content: StudyContent, phase: PhaseRules, relevant: bool, set_: bool) -> PhaseEquations:
    """Return a phase; its equations are set as mathematics or stay text."""
    model = content.model
    traced = f", {phase.traced}" if phase.traced else ""
    rules, rest = chosen_rules(phase, everything=False)
    return PhaseEquations(
        visible(
            f"Phase {phase.phase}{phase.inside}: {phase.name}"
            + (f", at {phase.place}" if phase.place else ""),
            400,
        ),
        visible(phase.shares),
        mathml.weight(model, phase) if set_ else plain(phase.weight),
        f"{phase.weight_verdict}{traced}",
        mathml.phase_work(model, phase) if set_ else plain(phase.work),
        phase.work_sure,
        phase.no_trend,
        [_row(content, rule, set_) for rule in rules],
        [_row(content, rule, set_) for rule in rest],
        [f"{why} ({number} of the calls)" for number, why in phase.reasons],
        relevant,
    )


def _row(content: StudyContent, rule: Rule, set_: bool) -> RuleRow:
    model = content.model
    texts = (rule.destination, rule.volume, rule.work)
    destination, volume, work = (plain(visible(cell, 600)) for cell in texts)
    if set_:
        parts = (mathml.destination, mathml.volume, mathml.work)
        destination, volume, work = (part(model, rule) for part in parts)
    return RuleRow(
        rule.label,
        visible(rule.call, 600),
        _quoted(content, rule),
        destination,
        volume,
        work,
        visible(rule.verdict, 600),
        visible(rule.facts, 600),
    )


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


def account_of(found: Phases | None) -> Account | None:
    """Return the account of the study's runs; None where there is none."""
    from p3s.report.phase_table import ACCOUNT_HEAD, account_notes, account_rows

    if found is None:
        return None
    return Account(
        ACCOUNT_HEAD, account_rows(found), [visible(note, 2000) for note in account_notes(found)]
    )
