"""Where the time goes: phases at the largest count, their parts over all counts, laws, limits."""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING

from p3s.base.text import percent, plural, span, visible
from p3s.predict.checks import NOTED, ratio_text
from p3s.predict.types import Count, Limit, PhaseAt, Prediction, part_s
from p3s.report.counts import thin_values

if TYPE_CHECKING:
    from markupsafe import Markup

#: Phases listed one by one; the rest is summed up and said so.
MAX_PHASES = 200
#: Phases with a colour of their own in the stacked bars.
COLOURED = 7
#: Phases with curves of their own, and with laws.
DRAWN, LAWS = 9, 60
#: Counts with a bar.
MAX_BARS = 24
#: Parts of the time in the order of a stack; ``comm`` is communication that is not split.
KINDS = ("compute", "io", "software", "transfer", "waiting", "comm")
KIND_NAMES = {
    "compute": "computation",
    "io": "files",
    "software": "MPI software",
    "transfer": "transfer",
    "waiting": "waiting",
    "comm": "communication",
}
#: What a part of a prediction's phase is when it is of another kind than a loop.
SORTS = {"start": "start of the program", "end": "end of the program", "rest": "outside loops"}


@dataclass(frozen=True)
class Stack:
    """The time of the model at one count, in seconds: by kind and by phase, and its interval."""

    n: int
    kinds: dict[str, float]
    phases: list[float]
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Stacks:
    """Stacks of all counts; ``names``: of the phases, with others the last one is all of those."""

    rows: list[Stack]
    names: list[str]
    has_others: bool
    cut: str


@dataclass(frozen=True)
class PhaseCurves:
    """The parts of one phase over the counts, in seconds; None where a part is not known."""

    name: str
    share: str
    counts: list[int]
    parts: dict[str, list[float | None]]
    key: str = ""


@dataclass(frozen=True)
class LawRow:
    """The laws of one phase: by part, the law as mathematics and how far it is off at most."""

    name: str
    parts: dict[str, tuple[Markup, str]]
    key: str = ""


def phase_costs(prediction: Prediction) -> tuple[list[PhaseAt], str]:
    """Return the phases at the largest count, largest first, and what was left out."""
    phases = sorted(prediction.last.phases, key=attrgetter("time_s"), reverse=True)
    rest = phases[MAX_PHASES:]
    cut = ""
    if rest:
        whole = sum(phase.time_s for phase in phases)
        left = percent(sum(phase.time_s for phase in rest) / whole if whole else 0.0)
        cut = f"{len(rest)} more phases with {left} of the time are in prediction.json."
    return phases[:MAX_PHASES], cut


def sure(phase: PhaseAt) -> str:
    """Return the interval of a phase's computation, and by how much its work is outside."""
    if not phase.compute_s:
        return ""
    text = span(phase.compute_low_s, phase.compute_high_s)
    if (phase.outside or 1.0) > NOTED:
        text += f"; {ratio_text(phase)} that was measured"
    return text


def kinds_of(row: Count | PhaseAt) -> dict[str, float]:
    """Return the parts of a time by kind; communication that is not told apart stays whole."""
    known = {kind: part_s(row, kind) for kind in ("software", "transfer", "waiting")}
    parts = {
        "compute": row.compute_s,
        **({"io": row.io_s} if row.io_s else {}),
        **{kind: value for kind, value in known.items() if value is not None},
    }
    rest = row.comm_s - sum(value for kind, value in parts.items() if kind not in ("compute", "io"))
    if rest > 1e-6 * (row.compute_s + row.comm_s):
        parts["comm"] = rest
    return {kind: parts[kind] for kind in KINDS if kind in parts}


def stacks_of(prediction: Prediction) -> Stacks:
    """Return the time of the model at every count, by kind and by phase."""
    found = prediction.counts
    largest: dict[int, float] = {}
    for row in found:  # a phase that matters at one count has a colour at all
        whole = sum(phase.time_s for phase in row.phases) or 1.0
        for phase in row.phases:
            share = phase.time_s / whole
            largest[phase.phase] = max(largest.get(phase.phase, 0.0), share)
    names = {phase.phase: visible(phase.name, 60) for row in found for phase in row.phases}
    keys = sorted(largest, key=lambda key: -largest[key])[:COLOURED]
    others = len(largest) - len(keys)
    stacks = []
    for row in (kept := thin_values(found, MAX_BARS)):
        own = dict.fromkeys(keys, 0.0)
        for phase in row.phases:
            if phase.phase in own:
                own[phase.phase] += phase.time_s
        rest = sum(phase.time_s for phase in row.phases if phase.phase not in own)
        parts = [*own.values(), *([rest] if others else [])]
        stacks.append(Stack(row.n, kinds_of(row), parts, row.model_low_s, row.model_high_s))
    more = [plural(others, "other phase")] if others else []
    cut = "" if len(kept) == len(found) else f"{len(kept)} of {len(found)} counts have a bar."
    return Stacks(stacks, [*(names[key] for key in keys), *more], bool(others), cut)


def phase_curves(prediction: Prediction) -> list[PhaseCurves]:
    """Return the parts over the counts of the phases that cost most at the largest count."""
    found = prediction.counts
    if len(found) < 2:
        return []
    last = sorted(found[-1].phases, key=attrgetter("time_s"), reverse=True)
    whole = sum(phase.time_s for phase in last) or 1.0
    few = thin_values(found, MAX_BARS)
    by_key = [{phase.phase: phase for phase in row.phases} for row in few]
    curves = []
    for phase in (each for each in last[:DRAWN] if each.time_s > 0):
        mine = [each.get(phase.phase) for each in by_key]
        parts = {
            kind: [None if each is None else part_s(each, kind) for each in mine] for kind in KINDS
        }
        if any(v is not None for kind in ("transfer", "waiting", "software") for v in parts[kind]):
            del parts["comm"]
        shown = {kind: values for kind, values in parts.items() if any(values)}
        share, counts = percent(phase.time_s / whole), [row.n for row in few]
        name, key = visible(phase.name, 80), str(phase.phase)
        curves.append(PhaseCurves(name, share, counts, shown, key))
    return curves


LAW_PARTS = ("time", "compute", "io", "transfer", "waiting", "software")


def law_rows(prediction: Prediction) -> tuple[list[LawRow], str]:
    """Return the laws of each phase, and what was left out.

    Phases come with the largest time at the largest count first.
    """
    from p3s.report.equations import maths

    last = {str(phase.phase): phase.time_s for phase in prediction.last.phases}
    found = []
    for entry in prediction.phase_laws:
        parts = {}
        for part in LAW_PARTS:
            law = entry.parts.get(part)
            if law is not None and law.text not in ("", "0"):
                within = "" if law.error is None else f"within {percent(law.error)}"
                parts[part] = maths(visible(law.text, 400), law.mathml()), within
        if parts:
            key = str(entry.phase)
            row = LawRow(visible(entry.name, 400), parts, key)
            found.append((last.get(key, 0.0), row))
    found.sort(key=lambda pair: -pair[0])
    shown = [row for _, row in found[:LAWS]]
    cut = (
        f"The laws of {len(found) - LAWS} more phases are in prediction.json."
        if len(found) > LAWS
        else ""
    )
    return shown, cut


def limit_text(limit: Limit) -> str:
    """Return what is said of a limit, without the name of its phase."""
    name = visible(limit.name, 400)
    return visible(limit.text, 600).removeprefix("phase ").removeprefix(f"{name}: ")
