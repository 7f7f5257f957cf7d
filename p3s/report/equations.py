"""The model on a terminal, as the thesis's Table 5.4: phases with their equations, and how sure.

Everything fits 100 columns; what is left out says so, and that ``--all`` shows it.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from markupsafe import Markup

from p3s.base.serialise import to_data
from p3s.base.text import mixed_clocks, not_used, paragraph, percent, plural, processes, visible
from p3s.model import fit, text
from p3s.model.grid import admissible
from p3s.model.notation import MATHML
from p3s.model.reasons import Verdict
from p3s.model.tripcounts import refusal_text
from p3s.model.types import NO_SHARE, Model, NextCount
from p3s.report.places import Places, joined_places
from p3s.report.rules import Equation, PhaseRules, Rule, Share, phase_rules, used_symbols
from p3s.report.show import Columns, Part, PartTable, hanging, lines_of, table_of
from p3s.signature import buffers, tracing
from p3s.signature.phase_file import recorded_text
from p3s.signature.unmodelled import sentences

#: Without --all: phases, and rules of one phase.
MAX_PHASES, MAX_RULES = 24, 16
_HEAD = ("rule", "call", "destination", "volume (bytes)", "work (fitted)", "verdict")
#: A longer volume has lines of its own.
_LONG = 66


def render(
    model: Model, places: Places | None = None, everything: bool = False, take_back: str = ""
) -> str:
    """Return the model as a page: grid, phases, verdicts, hold-out, what to run next.

    ``take_back``: the command that takes counts back which the model leaves out.
    """
    phases = phase_rules(model, places or {})
    shown, hidden = chosen_phases(phases, everything)
    lines = [*_title(model, shown, take_back), ""]
    for phase in shown:
        lines += [*_phase(phase, model, everything), ""]
    if hidden:
        total = {what: sum(p.share[what] for p in hidden) for what in hidden[0].share}
        lines += [_count_hidden("phase", len(hidden), _share_text(total)), ""]
    held = holdout(model)
    lines += [*verdicts(model), "", *paragraph(held.lead), *hanging(2, *held.notes)]
    lines += [line for note in notes(model, places or {}) for line in paragraph(note)]
    return "\n".join(lines)


def chosen_phases(
    phases: Sequence[PhaseRules], everything: bool
) -> tuple[list[PhaseRules], list[PhaseRules]]:
    """Return the phases to show, largest share of the time first, and the others."""
    ordered = sorted(phases, key=lambda p: (-p.share["time"], p.phase))
    if everything:
        return ordered, []
    filled = [phase for phase in ordered if phase.rules]
    shown = [phase for phase in filled if phase.relevant][:MAX_PHASES] or filled[:MAX_PHASES]
    return shown, [phase for phase in filled if phase not in shown]


def chosen_rules(phase: PhaseRules, everything: bool) -> tuple[list[Rule], list[Rule]]:
    """Return the rules of a phase to show, in program order, and the others."""
    if everything or len(phase.rules) <= MAX_RULES:
        return list(phase.rules), []
    largest = sorted(range(len(phase.rules)), key=lambda k: (-phase.rules[k].weight_in_view, k))[
        : MAX_RULES - 2
    ]
    keep = set(largest)
    return (
        [rule for k, rule in enumerate(phase.rules) if k in keep],
        [rule for k, rule in enumerate(phase.rules) if k not in keep],
    )


# ---- one phase ---------------------------------------------------------------------------------
def _title(model: Model, phases: Sequence[PhaseRules], take_back: str) -> list[str]:
    counts = model.counts
    last = processes(max(counts))
    lines = [
        f"Equations fitted to {processes(counts)}; shares are those at "
        f"{last}, work is in {visible(text.unit_in_full(model))} before one call"
    ]
    if derived := model.derived:
        at = ", ".join(f"{name}={value}" for name, value in derived.setting.items())
        lines[0] = (
            f"Equations at {at}, by laws of the parameters from "
            f"{', '.join(derived.settings)}. {lines[0]}"
        )
    lines.append(f"process grid: {text.grid_text(model)}")
    meanings = used_symbols(phases, int(model.grid.family.ndims))
    lines.append("symbols: " + ", ".join(f"{name} {what}" for name, what in meanings))
    unused = not_used(model.without, take_back)
    return [
        *(line for each in lines for line in paragraph(visible(each, 2000))),
        *([visible(unused, 2000)] if unused else []),
    ]


def _in_all(phase: PhaseRules) -> str:
    """Return the iterations of a loop in the run where they are the same at all counts."""
    seen = {v for _, v in phase.weight_points}
    return str(*seen) if len(seen) == 1 else "NUMBER"


def _phase(phase: PhaseRules, model: Model, everything: bool) -> list[str]:
    rules, hidden = chosen_rules(phase, everything)
    traced = f"  ({phase.traced})" if phase.traced else ""
    refused = refusal_text(model.phases[phase.phase])
    if refused:
        told = (
            "stated by the user; "
            if phase.weight_verdict == Verdict.STATED
            else f"--trips {phase.phase}={_in_all(phase)} of p3s model states a number, that "
            "of the whole run; "
        )
        refused = f"iterations: {told}{visible(refused, 400)}"
    lines = [
        *paragraph(f"phase {phase.phase}{phase.inside}: {phase.name}  ({phase.shares})"),
        *hanging(
            2,
            f"at {phase.place}" if phase.place else "",
            f"weight w = {phase.weight.text}  [{phase.weight_verdict}]{traced}",
            refused,
            f"work of a rank in the run = {phase.work.text}  [{phase.work_sure}]",
        ),
        *hanging(4, phase.no_trend),
        *_table(rules),
    ]
    if hidden:
        total = {what: sum(r.share[what] for r in hidden) for what in phase.share}
        lines += hanging(2, _count_hidden("rule", len(hidden), _share_text(total)))
    calls = plural(len(model.phases[phase.phase].items), "call")
    notes_ = (f"note ({number} of {calls}): {why}" for number, why in phase.reasons)
    return [*lines, *hanging(2, *notes_)]


def _count_hidden(what: str, number: int, shares: str) -> str:
    """Return how much --all would show."""
    it = "it" if number == 1 else "them"
    return f"{plural(number, f'more {what}')} with {shares}: --all shows {it}"


def _table(rules: Sequence[Rule]) -> list[str]:
    """Lay the rules out; below each is where it is, who takes part, and how often if not once."""
    long = [len(rule.volume.text) > _LONG for rule in rules]
    rows = [
        [
            rule.label,
            rule.call,
            rule.destination.text,
            "y, below" if is_long else rule.volume.text,
            rule.work.text,
            rule.verdict,
        ]
        for rule, is_long in zip(rules, long, strict=True)
    ]
    below = [
        [rule.facts, f"y = {rule.volume.text}" * is_long]
        for rule, is_long in zip(rules, long, strict=True)
    ]
    table = PartTable("Rules", _HEAD, rows, left=range(len(_HEAD)), below=below)
    return lines_of(table, 2)


def _share_text(share: Share) -> str:
    return (
        f"{percent(share['time'])} of the time, {percent(share['events'])} of the events, "
        f"{percent(share['bytes'])} of the bytes"
    )


# ---- how sure ----------------------------------------------------------------------------------
def verdict_table(model: Model) -> PartTable:
    """Return the number of rules of each verdict, and its share of events and bytes."""
    columns: Columns[str] = {
        "verdict": visible,
        "calls": lambda each: f"{sum(item.verdict == each for item in model.items):,}",
        "events": lambda each: percent(model.shares[each].events),
        "bytes": lambda each: percent(model.shares[each].bytes),
    }
    calls = {item.verdict for item in model.items}
    shown = [each for each, share in model.shares.items() if each in calls or share != NO_SHARE]
    return table_of("Traced share per verdict", columns, shown)


def verdicts(model: Model) -> list[str]:
    """Return the share of every verdict as lines."""
    table = verdict_table(model)
    if not table.rows:
        return ["no events, so no verdicts"]
    lines = [f"how sure messages, sizes and weights are (shares at {processes(max(model.counts))})"]
    lines += lines_of(table, 2)
    order = text.order_sure(model)
    return [*lines, f"work: {text.work_sure(model)}", *[f"order of calls: {order}"] * bool(order)]


def holdout(model: Model) -> Part:
    """Return how the fit without the largest count did there: a sentence, and what of each part."""
    name, heading, held = "holdout", "Held-out count", model.holdout
    if held is None:
        return Part(
            name,
            heading,
            "nothing was held out: the rules were not checked at a count they do not know",
        )
    there = held.comparison
    if there is None:
        problem = f"hold-out at {held.without} was not possible: {visible(held.problem)}"
        return Part(name, heading, problem)
    rows = [
        f"{noun}s: {pair.equal:,} of {pair.true:,} equal, {pair.predicted:,} predicted"
        for noun, pair in there.told
    ]
    rows.append(f"weights: {there.weights.exact} of {there.weights.phases} equal")
    missed = missed_rules(model)
    if missed is not None:
        met = len(model.items) - len(missed)
        text_ = f"{met} of {len(model.items)} calls by an exact rule that it met"
        rows.append(f"rules: {text_}" + (f"; not {list_numbers(missed)}" if missed else ""))
    worst = percent(there.work.max_abs_error)
    rows.append(f"work: fitted: off by {percent(there.work.off)}, in the worst phase by {worst}")
    lead = f"hold-out: fitted without {held.without} and compared there"
    return Part(name, heading, lead, notes=rows)


def missed_rules(model: Model) -> list[int] | None:
    """Return the calls that the hold-out missed; None where the model does not say."""
    if all(item.met_holdout is None for item in model.items):
        return None
    return [i for i, item in enumerate(model.items) if item.met_holdout is False]


def list_numbers(numbers: Sequence[int], limit: int = 12) -> str:
    """Return numbers as text, the first few of many."""
    text_ = ", ".join(map(str, numbers[:limit]))
    return text_ + (f" and {len(numbers) - limit} more" if len(numbers) > limit else "")


def notes(model: Model, places: Places) -> list[str]:
    """Return what else is to be known: clocks, late code, what to run next, what is left out."""
    found = []
    clocks = mixed_clocks(model.work_units)
    if clocks:
        found.append(f"note: {clocks}")
    dropped = model.grid.dropped
    if dropped is not None:
        found.append(
            visible(
                "the extents in the program's arguments are not those of its process "
                f"grid: {dropped.why}",
                600,
            )
        )
    found += [visible(line, 600) for line in fit.text(model.growth, _late(model, places))]
    if taken := admissible.text(model.admissible):
        found.append(visible(taken, 400))
    found += [f"run next: {next_text(each)}" for each in model.next]
    found += [visible(line, 400) for line in sentences(to_data(model.not_modelled))]
    found += buffers.sentences(to_data(model.buffers))
    found += recorded_text({int(n): r for n, r in model.recorded.items()}, model.counts)
    found += [visible(line, 400) for line in tracing.sentence(to_data(model.tracing))]
    return found


def _late(model: Model, places: Places) -> dict[str, str]:
    """Return where the calls are that came with larger counts, by their site."""
    named = {x.site for step in model.growth.steps for x in step.named}
    return {
        site: joined_places([list(frames)], places)
        for site in named
        if (frames := model.sites.get(site))
    }


def next_text(each: NextCount) -> str:
    """Return one count worth tracing with its reason, as one line."""
    grid = f" ({'x'.join(map(str, each.dims))})" if each.dims else ""
    return visible(f"{processes(each.n)}{grid}: {each.why}", 600)


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
