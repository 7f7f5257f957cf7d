"""Parts of a report: those that show the model, where it comes from, those of extensions."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from p3s.base.extensions import load_provided
from p3s.base.serialise import to_data
from p3s.base.text import (
    command_line,
    not_used,
    percent,
    plural,
    processes,
    quote_word,
    seconds,
    visible,
)
from p3s.base.version import __version__
from p3s.capture.quoted import SourceQuote
from p3s.model import text
from p3s.model.types import NO_SHARE, Model
from p3s.pipeline.content import MAX_CALLS, StudyContent
from p3s.report.compute import instruction_text
from p3s.report.compute import table as compute_text
from p3s.report.equations import chosen_phases, chosen_rules
from p3s.report.rules import PhaseRules, Rule, phase_rules, used_symbols
from p3s.report.show import Part
from p3s.report.sure import lines
from p3s.signature.unmodelled import sentences

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
        f"p3s model {quote_word(content.program.root)} --all."
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


def quoted_source(content: StudyContent, rule: Rule) -> list[SourceQuote]:
    """Return the lines of source that make the calls of a rule, in their order."""
    sites = (content.model.items[i].site for i in rule.calls)
    return list(dict.fromkeys(line for s in sites if (line := content.quotes.get(s))))[:MAX_LINES]


def instructions_of(content: StudyContent) -> str:
    """Return the instruction table (thesis, Table 5.2) as text; empty where it cannot be made."""

    calls = len(content.model.items)
    if calls > MAX_CALLS:
        command = f"p3s model {quote_word(content.program.root)} --scic"
        return f"The model has {calls:,} calls: {command} prints it."
    found = content.instructions
    return _printable(instruction_text(found)).rstrip() if found is not None else ""


def computation_of(content: StudyContent) -> str:
    """Return the compute table (thesis, Tables 6.5 and 6.6) as text; empty without times."""
    found = content.compute
    return _printable(compute_text(found.model, found.rows)) if found is not None else ""


def _printable(text: str) -> str:
    return "\n".join(visible(line, 400) for line in text.split("\n"))


def plain(value: Any) -> str:
    """Return a value of JSON as words."""
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {plain(entry)}" for key, entry in value.items())
    if isinstance(value, (list, tuple)):
        return "; ".join(plain(entry) for entry in value) or "none"
    return str(value)


def facts_of(content: StudyContent) -> list[tuple[str, str]]:
    """Return pairs of what and its value: program, version, runs, replays, estimator, machine."""
    program, prediction = content.program, content.prediction
    facts = [
        ("program", visible(command_line(program.command), 400)),
        ("p3s", __version__),
        ("study made", visible(program.created)),
    ]
    for run in program.runs:
        detail = [
            run.status,
            *["left out of the model"] * (run.np in program.left_out),
            f"launcher ran for {seconds(run.info.get('wall_s'))}",
        ]
        if run.info.get("oversubscribed"):
            detail.append(f"ranks shared {run.info.get('cores', '?')} cores")
        if run.info.get("mpi"):
            detail.append(plain(run.info["mpi"]))
        facts.append((f"traced at {run.np} (run {run.rep})", visible(", ".join(detail))))
    for n, replayed in content.replays.items():
        nodes = visible(", ".join(dict.fromkeys(str(k) for k in replayed.get("nodes") or () if k)))
        detail = [
            f"on {nodes or '?'}",
            f"{visible(str(replayed.get('iterations', '?')))} iterations",
        ]
        share = replayed.get("measured_share")
        if share is not None:
            detail.append(f"{percent(share)} of the events measured")
        facts.append((f"replayed at {n}", ", ".join(detail)))
    if estimator := visible(prediction.estimator, 400):
        why = visible(prediction.estimator_why, 400)
        facts.append(("communication", estimator + (f": {why}" if why else "")))
    for key, value in (prediction.machine or {}).items():
        if isinstance(value, (str, int, float)):
            facts.append((f"machine: {visible(str(key))}", visible(plain(value), 400)))
    return facts


def gaps_of(content: StudyContent) -> list[str]:
    """Return what was not modelled, not measured or approximated, none twice."""
    prediction, replays = content.prediction, content.replays
    gaps = lines(prediction.notes) + lines(prediction.not_modelled)
    if prediction.unknown_share:
        gaps.append(f"no rule is known for {percent(prediction.unknown_share)} of the program")
    largest = prediction.last.n
    gaps += _list_entries("no rule", content.unknown)
    gaps += [visible(line, 400) for line in sentences(to_data(content.model.not_modelled))]
    for n, replayed in replays.items():
        gaps += _list_entries(f"not measured at {processes(n)}", replayed.get("unmeasured"))
    if largest in replays:
        gaps += _list_entries(
            f"taken to cost nothing at {largest}", replays[largest].get("left_out")
        )
        shares = replays[largest].get("shares") or {}
        parts = [f"{visible(how)} {percent(share)}" for how, share in shares.items() if share]
        if parts:
            gaps.append(f"events by origin of their cost at {largest}: {', '.join(parts)}")
    return list(dict.fromkeys(gaps))


def _list_entries(what: str, entries: Any, limit: int = 5) -> list[str]:
    """Return a list of entries as one line, the first few in full."""
    if not isinstance(entries, list) or not entries:
        return []
    shown = "; ".join(visible(plain(entry)) for entry in entries[:limit])
    more = f" and {len(entries) - limit} more" if len(entries) > limit else ""
    return [f"{what}: {shown}{more}"]


def commands_of(content: StudyContent) -> list[str]:
    """Return the commands that make the report again, in the order to type them."""
    program, prediction = content.program, content.prediction
    name = shlex.quote(visible(program.name) or "study")
    command = visible(command_line(program.command), 2000)
    traced = ",".join(map(str, program.complete))
    without = ",".join(map(str, program.left_out))
    modelled = {*program.complete} - {*program.left_out}
    every = [row.n for row in prediction.counts]
    counts = ",".join(map(str, [n for n in every if n not in modelled] or every))
    most = max((run.rep for run in program.runs), default=0) + 1
    repeats = f" -r {most}" if most > 1 else ""
    knee = prediction.knee_efficiency
    knee_text = "" if knee == 0.5 else f" --knee {knee:g}"
    return [
        f"p3s characterize -n {traced}{repeats} -o {name} -- {command}",
        f"p3s model {name}" + f" --without {without}" * bool(without),
        f"p3s predict {name} -n {counts}{knee_text}",
        f"p3s report {name}",
    ]


class Section(Protocol):
    """What an extension registers to add a part to reports; None where it has nothing to say."""

    def __call__(self, content: StudyContent) -> Part | None:
        """Return the part of a study's report."""


def parts_of(content: StudyContent) -> list[Part]:
    """Return the parts that extensions add to a report, in their order."""
    sections: list[Section] = list(load_provided("sections"))
    made = (section(content) for section in sections)
    return [part for part in made if part is not None]
