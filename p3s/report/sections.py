"""Parts of a report: those that show the model, where it comes from, those of extensions."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from p3s.base.extensions import provided
from p3s.base.study import Study
from p3s.base.text import (
    aligned,
    command_line,
    not_used,
    percent,
    plural,
    processes,
    quoted,
    seconds,
    visible,
)
from p3s.base.version import __version__
from p3s.capture.quoted import Quoted
from p3s.model import text
from p3s.model.types import NO_SHARE, Model
from p3s.model.work.scic import InstructionTable, Row
from p3s.pipeline.content import MAX_CALLS, Program, StudyContent
from p3s.predict.types import Prediction
from p3s.report.compute import number
from p3s.report.counts import lines_csv, rows_of
from p3s.report.equations import chosen_phases, chosen_rules
from p3s.report.rules import PhaseRules, Rule, phase_rules, used_symbols

_NAMES = {"instructions": "instructions", "cpu_ns": "ns of CPU time", "wall_ns": "ns"}


def table(found: InstructionTable) -> str:
    """Return the instruction table as text, one part per phase and instruction group."""
    unit = _NAMES.get(found.unit, found.unit)
    out = []
    for phase, group in dict.fromkeys((r.phase, r.group) for r in found.rows):
        rows = [r for r in found.rows if (r.phase, r.group) == (phase, group)]
        groups = len({r.group for r in found.rows if r.phase == phase})
        name = f"phase {phase}: {visible(rows[0].name)}"
        if groups > 1:
            name += f", instruction group {group + 1} of {groups}"
            guard = found.guards.get((phase, group))
            name += f" (if {guard})" if guard else ""
        out += [name, *_part(rows, unit, groups > 1), ""]
        if group == groups - 1:
            out += [*_balance(found, phase), ""]
    return "\n".join(out)


def _part(rows: Sequence[Row], unit: str, grouped: bool) -> list[str]:
    """Return one part of the table: measured above predicted."""
    head = [
        f"{unit} per process and iteration",
        "processes",
        *(["of them"] if grouped else []),
        "weight",
        f"total {unit}",
        "",
        *(["ranks"] if grouped else []),
    ]
    truth = {r.n: r.total for r in rows if r.measured}
    lines: list[list[str] | str] = [head]
    for measured in (True, False):
        lines.append("  measured" if measured else "  predicted")
        for r in rows:
            if r.measured == measured:
                lines.append(
                    [
                        number(r.work),
                        str(r.n),
                        *([str(r.ranks)] if grouped else []),
                        f"{r.weight:,.10g}",
                        number(r.total),
                        "" if measured else _sure(r, truth.get(r.n)),
                        *([r.where] if grouped else []),
                    ]
                )
    return _aligned(lines)


def _sure(row: Row, truth: float | None) -> str:
    """Return the error where it is known, else the half width of the interval."""
    if truth:
        return f"{100 * (row.total - truth) / truth:+.2f} %"
    return f"within {percent(row.half_width / row.total)}" if row.total else ""


def _aligned(lines: Sequence[list[str] | str]) -> list[str]:
    cells = iter(aligned([line for line in lines if not isinstance(line, str)], indent="    "))
    return [line if isinstance(line, str) else next(cells) for line in lines]


def _balance(found: InstructionTable, phase: int) -> list[str]:
    """Return whether the phase's total stays what it was (strong scaling, Eq. 5.4 and 5.5)."""
    counts = sorted({r.n for r in found.rows if r.phase == phase and r.measured})
    totals = [t for n in counts if (t := found.total(phase, n, True))]
    if len(totals) < 2:
        return []
    change = totals[-1] / totals[0] - 1
    return [
        f"  total of all ranks from {counts[0]} to {counts[-1]} processes: {100 * change:+.2f} %"
    ]


def csv(found: InstructionTable) -> str:
    """Return the instruction table as CSV: a line per phase, group and count.

    Columns: phase, name, group (from 1), where (ranks), part (measured or predicted), processes,
    ranks (of the group), weight (iterations of the phase in the run), work (of one process in one
    iteration), total (of the group in the run), half_width (of the total's 90 % interval), unit.
    """
    columns: dict[str, Callable[[Row], object]] = {
        "phase": lambda r: r.phase,
        "name": lambda r: r.name,
        "group": lambda r: r.group + 1,
        "where": lambda r: r.where,
        "part": lambda r: "measured" if r.measured else "predicted",
        "processes": lambda r: r.n,
        "ranks": lambda r: r.ranks,
        "weight": lambda r: f"{r.weight:.10g}",
        "work": lambda r: f"{r.work:.10g}",
        "total": lambda r: f"{r.total:.12g}",
        "half_width": lambda r: f"{r.half_width:.6g}",
        "unit": lambda _: found.unit,
    }
    return lines_csv(rows_of(columns, found.rows))


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


def commands_of(program: Program, prediction: Prediction) -> list[str]:
    """Return the commands that make the report again, in the order to type them."""
    name = shlex.quote(visible(program.name) or "study")
    command = visible(command_line(program.command), 2000)
    traced = ",".join(map(str, program.complete))
    without = ",".join(map(str, program.left_out))
    modelled = {*program.complete} - {*program.left_out}
    every = [row.n for row in prediction.counts]
    asked = [n for n in every if n not in modelled]
    counts = ",".join(map(str, asked or every))
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


@dataclass(frozen=True)
class Curve:
    """Run times by another method, drawn behind the predicted curve; empty: nothing to draw.

    counts: ascending, with low, mid, high in seconds at each. ``sentences``: below the chart.
    """

    legend: str
    counts: Sequence[int]
    low: Sequence[float]
    mid: Sequence[float]
    high: Sequence[float]
    sentences: Sequence[str]


@dataclass(frozen=True)
class PartTable:
    """A table of texts; ``lead``: a sentence above it."""

    label: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    lead: str = ""


@dataclass(frozen=True)
class Part:
    """A part of the page, and ``lines`` of the terminal; without a heading it has a curve alone.

    ``charts``: caption, what is drawn, SVG of each.
    """

    name: str
    heading: str = ""
    lead: str = ""
    tables: Sequence[PartTable] = ()
    charts: Sequence[tuple[str, str, str]] = ()
    notes: Sequence[str] = ()
    curve: Curve | None = None
    lines: Sequence[str] = ()


class Section(Protocol):
    """What an extension registers to add a part to reports; None where it has nothing to say."""

    def __call__(self, study: Study, prediction: Prediction) -> Part | None:
        """Return the part of a study's report of a prediction."""


def parts_of(study: Study, prediction: Prediction) -> list[Part]:
    """Return the parts that extensions add to a report, in their order."""
    sections: list[Section] = list(provided("sections"))
    made = (section(study, prediction) for section in sections)
    return [part for part in made if part is not None]
