"""One phase of a model in full: behind each rule the values that were traced, and the rivals.

Everything fits 100 columns; what is left out says so, and that ``--all`` shows it.
"""

from __future__ import annotations

from collections.abc import Sequence

from p3s.base.errors import UsageError
from p3s.base.text import percent, plural, processes, visible
from p3s.model import text
from p3s.model.law_types import CountLaw, SizeLaw
from p3s.model.notation import TEXT, bytes_of
from p3s.model.reasons import Code, Verdict
from p3s.model.text import MAX_RIVALS, Difference, PhaseValues, SlotRivals
from p3s.model.tripcounts import refusal_text
from p3s.model.types import (
    NO_SHARE,
    Item,
    Measured,
    Model,
    MoreClasses,
    Phase,
    RankClass,
    Slot,
    Values,
)
from p3s.report.places import Places, call_place, phase_place
from p3s.report.show import PartTable, hanging, label_lines, lines_of

#: Without --all: calls of a phase, classes of ranks of a count.
MAX_CALLS, MAX_CLASSES = 12, 4


def choose_calls(model: Model, phase: int, call: int | None, everything: bool) -> list[int]:
    """Return the calls (items) to explain, in program order; UsageError for a wrong number."""
    phases = model.phases
    if not 0 <= phase < len(phases):
        raise UsageError(f"PHASE {phase}: the model has phases 0 to {len(phases) - 1}")
    items = list(phases[phase].items)
    if call is not None:
        if call not in items:
            numbers = ", ".join(map(str, items[:12])) + (", ..." if len(items) > 12 else "")
            raise UsageError(f"CALL {call}: phase {phase} has the calls {numbers or 'none'}")
        return [call]

    def most(i: int) -> float:
        share = model.items[i].share or NO_SHARE
        return max(share.events, share.bytes, share.time)

    shown = sorted(items, key=lambda i: -most(i))[: None if everything else MAX_CALLS]
    return sorted(shown, key=items.index)


def render(
    model: Model, places: Places, phase: int, call: int | None = None, everything: bool = False
) -> str:
    """Return a phase, or one call of it, with what its equations rest on.

    everything: all of its calls and rivals. Raises UsageError for a phase or call that is none.
    """
    found = text.phase_values(model, phase, choose_calls(model, phase, call, everything))
    lines = [] if call is not None else [*_phase(model, found, phase, places), ""]
    for i, rivals in found.slots.items():
        lines += [*_call(model, model.phases[phase], i, rivals, places, everything), ""]
    hidden = set(model.phases[phase].items) - set(found.slots)
    if hidden and call is None:
        more = plural(len(hidden), "more call")
        few = ", ".join(map(str, sorted(hidden)[:10]))
        lines += [f"{more} of this phase: --all shows them, or name one: {few}", ""]
    lines += _grid(model)
    return "\n".join(lines)


# ---- phase -------------------------------------------------------------------------------------
def _phase(model: Model, found: PhaseValues, number: int, places: Places) -> list[str]:
    phase = model.phases[number]
    inside = "" if phase.parent in (None, 0) else f" in phase {phase.parent}"
    law, verdict = phase.weight, phase.weight_verdict
    lines = hanging(0, f"phase {number}{inside}: {visible(str(phase.name))}")
    place = phase_place(model, phase, places)
    lines += hanging(2, f"at {place}") if place else []
    weight = TEXT.in_words_of(model, text.weight_text(law))
    lines += hanging(2, f"weight w = {weight}  [{verdict}]")
    lines += hanging(4, _why_chosen(law))
    lines += hanging(4, *rivals(model, law, found.weight_rivals))
    lines += hanging(4, _weight_reason(model, phase))
    if refused := refusal_text(phase):
        lines += hanging(4, f"iterations: {visible(refused, 400)}")
    rows = [
        [str(n), f"{traced:,}", "not claimed" if ruled is None else f"{ruled:,}"]
        for (n, traced), ruled in zip(phase.weight_points, found.weights, strict=True)
    ]
    lines += lines_of(PartTable("", ["processes", "traced", "by the law"], rows, left=()), 4)
    unit = text.unit_of(model)
    work = phase.work.law
    lines += hanging(
        2,
        f"work of a rank in the run, in the mean = {work.text(unit)}"
        f"{'' if phase.work.equal_ranks else ' (ranks differ)'}  "
        f"[{text.work_sure(model)}]",
    )
    lines += hanging(4, text.no_trend(phase.work.law))
    lines += _work_table(phase, found, 4)
    return lines


def _weight_reason(model: Model, phase: Phase) -> str:
    verdict, held = phase.weight_verdict, model.holdout
    if verdict == Verdict.STATED:
        return "stated by the user (p3s model --trips)"
    if verdict == Verdict.STATISTICAL:
        return "statistical: no exact law reproduces the traced counts"
    if verdict == Verdict.FITTED and phase.trips is not None:
        return ""  # the iterations say why
    if verdict == Verdict.FITTED:
        return (
            f"fitted: not confirmed by the fit without {held.without}"
            if held is not None
            else "fitted: nothing was held out to confirm it"
        )
    if verdict == Verdict.EXACT:
        return "exact: reproduced at every traced count" + (
            f", and by the fit without {held.without}" if held and held.possible else ""
        )
    return f"verdict: {visible(str(verdict))}"


# ---- one call ----------------------------------------------------------------------------------
def _call(
    model: Model,
    phase: Phase,
    i: int,
    rivals: Sequence[SlotRivals],
    places: Places,
    everything: bool,
) -> list[str]:
    item = model.items[i]
    place, caller = call_place(model.sites.get(item.site) or ["?"], places)
    share = item.share
    shares = (
        f"time {percent(share.time)}, events {percent(share.events)}, bytes {percent(share.bytes)}"
        if share is not None
        else ""
    )
    lines = hanging(
        0,
        f"call {i}: {visible(str(item.op))}  [{item.verdict}]"
        + (f"  ({shares})" if shares else ""),
    )
    lines += hanging(2, "at " + visible(place + (f" < {caller}" if caller else "")))
    for k, slot in enumerate(item.slots):
        lines += _slot(
            model,
            phase,
            item,
            slot,
            rivals[k],
            f"size {k + 1} of {len(item.slots)}" if len(item.slots) > 1 else "",
        )
    lines += _segments(model, i, places)
    lines += _render_values(item, everything)
    lines += hanging(2, *_reasons(model, item))
    return lines


def _slot(
    model: Model, phase: Phase, item: Item, slot: Slot, others: SlotRivals, name: str
) -> list[str]:
    lines = hanging(2, name) if name else []
    target = TEXT.in_words_of(model, text.destination(item, slot))
    word = text.kind_word(item.kind)
    if target:
        lines += label_lines("destination", f"{word} {visible(target)}")
    lines += label_lines("who", visible(TEXT.in_words_of(model, text.members(slot))))
    lines += hanging(15, *_rival_guards(model, slot, others))
    size = TEXT.in_words_of(model, TEXT.volume(item, slot))
    if size:
        law, width = slot.elements, slot.elem_bytes
        lines += label_lines(
            "volume", f"{size} bytes" + (f", elements of {width}" if width != 1 else "")
        )
        lines += hanging(15, _why_chosen(law))
        rows = rivals(model, law, others.elements, width)
        lines += hanging(15, *rows)
    times = TEXT.in_words_of(model, text.repeats(model, phase, slot)) or "once in every iteration"
    lines += label_lines("how often", visible(times))
    lines += hanging(15, _why_chosen(slot.count))
    lines += [
        line for rival in rivals(model, slot.count, others.count) for line in hanging(15, rival)
    ]
    work, unit = slot.work, text.unit_of(model)
    points = ", ".join(
        f"{n}: {_figures(v)} ({_figures(float(work.value(n)))})" for n, v in slot.work_points
    )
    lines += label_lines(
        "work before",
        f"{work.text(unit)} in the mean" + (f"; traced (by the law): {points}" if points else ""),
    )
    return [*lines, *hanging(15, text.no_trend(slot.work))]


def _segments(model: Model, i: int, places: Places, limit: int = 6) -> list[str]:
    """Return the work of the segments that lead to a call, by the call before it."""
    found = text.segments_of(model, i)
    unit = text.unit_of(model)
    lines = []
    for before, work, error in found[:limit]:
        after = "from the start"
        if before is not None:
            place, _ = call_place(model.sites.get(before[0]) or ["?"], places)
            after = f"after {visible(before[1])} {visible(place)}"
        lines += hanging(
            15,
            f"{after}: {TEXT.in_words_of(model, work)} {unit} (error where left out "
            f"{percent(error)})",
        )
    more = f"and {plural(len(found) - limit, 'more segment')}" if len(found) > limit else ""
    return [*lines, *hanging(15, more)]


def _why_chosen(law: CountLaw | SizeLaw) -> str:
    """Say what a law rests on: how many counts, how many constants were free."""
    if law.expr is not None and law.points is not None:
        points, free = law.points, law.free or 0
        if law.expr[0] == "num":
            return f"the same at {plural(points, 'count')}"
        rest = points - free
        words = (
            f"the simplest law that reproduces {plural(points, 'count')} with "
            f"{plural(free, 'constant')}"
        )
        return words + ("" if rest > 0 else ": as many as counts, so nothing has tested it")
    if isinstance(law, CountLaw) and law.total is not None:
        return "the sum over all ranks has an exact law, the part of each rank has none"
    if isinstance(law, CountLaw) and law.follows is not None:
        posts = ", ".join(map(str, law.follows[:8])) + (", ..." if len(law.follows) > 8 else "")
        if law.together is not None:
            return f"completes what the calls {posts} post, all of an iteration at once"
        return f"completes what the calls {posts} post: their sum at every traced count and rank"
    if law.stat is not None:
        return "no exact law reproduces the traced values: a mean with its trend"
    return ""


def _rival_guards(model: Model, slot: Slot, others: SlotRivals) -> list[str]:
    """Return who else may take part, and from where on that makes a difference."""
    words = (visible(TEXT.in_words_of(model, rival.text())) for rival in slot.guard_rivals)
    return [_fits(*each) for each in zip(words, others.guards, strict=True)]


def rivals(
    model: Model, law: CountLaw | SizeLaw, others: Sequence[Difference], width: int = 1
) -> list[str]:
    """Return the laws that fit as well as the chosen one, and from where on they differ.

    width: bytes of an element, where the law is one of elements.
    """
    lines = []
    for rival, there in zip(law.rivals or (), others, strict=False):
        words = TEXT.in_words_of(model, TEXT.expression(bytes_of(rival, width)))
        lines.append(_fits(words, there))
    hidden = len(law.rivals or ()) - len(others)
    return [*lines, f"and {hidden} more that fit as well"] if hidden > 0 else lines


def _fits(words: str, there: Difference) -> str:
    """Return a rival with the count at which it differs first."""
    if there.n is None:
        return f"fits as well: {words}; the same up to {processes(there.top)}"
    grid = "x".join(map(str, there.dims))
    return f"fits as well: {words}; differs first at {processes(there.n)} ({grid})"


def _met(item: Item, without: str) -> str:
    """Say what the fit without the largest count predicted of a call there."""
    words = f"the fit without {without} " + (
        "predicted it there" if item.met_holdout else "has no exact rule for it or missed it"
    )
    there = item.holdout
    if there and there.true:
        words += f": {there.equal:,} of {plural(there.true, 'call')} of this place"
    return words


def _reasons(model: Model, item: Item) -> list[str]:
    verdict, held = item.verdict, model.holdout
    if item.why:
        why = [
            f"{verdict}: {visible(item.why[0].sentence, 400)}",
            *(f"and: {visible(each.sentence, 400)}" for each in item.why[1:]),
        ]
        if held is not None and held.possible and item.met_holdout is not None:
            why.append(_met(item, held.without))
        return why
    if verdict == "exact":
        met = (
            f", and by the fit without {held.without}"
            if held is not None and held.possible
            else "; nothing was held out"
        )
        return [f"exact: every call at every traced count is as the rules say{met}"]
    return [f"verdict: {verdict}"]


# ---- the values --------------------------------------------------------------------------------
def _render_values(item: Item, everything: bool) -> list[str]:
    """Return the values of a call per count and class of ranks, traced and by the rules."""
    rows: list[list[str]] = []
    requests = item.kind == "completion"
    for point in item.measured or ():
        head = [str(point.n), _format_pair(*point.ranks), _format_pair(*point.calls)]
        classes = point.classes if everything else point.classes[:MAX_CLASSES]
        for entry in classes:
            ruled = _values(entry.rule, requests) if entry.rule is not None else "the same"
            rows.append([*head, _name_ranks(entry), _values(entry.traced, requests), ruled])
            head = ["", "", ""]
        left = _describe_hidden(point, len(classes))
        if left:
            rows.append([*head, left, "", ""])
    if not rows:
        return ["  no values are kept in this model: run p3s model again"]
    head = ["processes", "ranks", "calls", "of them", "traced", "by the rules"]
    return lines_of(PartTable("", head, rows, left=(3, 4, 5)), 2)


def _describe_hidden(point: Measured, shown: int) -> str:
    hidden = point.classes[shown:]
    more = point.more or MoreClasses(0, 0, 0)
    classes = len(hidden) + more.classes
    if not classes:
        return ""
    ranks = sum(entry.ranks for entry in hidden) + more.ranks
    differ = sum(entry.ranks for entry in hidden if entry.rule is not None) + more.differ
    return f"{ranks} with other values, " + (
        f"{differ} not as the rules say" if differ else "all as the rules say"
    )


def _format_pair(traced: int, ruled: int) -> str:
    return f"{traced:,}" if traced == ruled else f"{traced:,} (rules {ruled:,})"


def _name_ranks(entry: RankClass) -> str:
    if entry.ranks == 1:
        return f"rank {entry.rank}"
    return f"{entry.ranks:,} like rank {entry.rank}"


def _values(values: Values, requests: bool) -> str:
    """Return calls, sizes and partners of one rank as text."""
    if not values.calls:
        return "none"
    if not values.sizes or requests:
        words = f"{values.calls:,}"
    else:
        words = " + ".join(f"{k:,} of {b:,} B" for b, k in values.sizes[:4])
        hidden = max(len(values.sizes) - 4, 0) + values.more_sizes
        words += f" + {hidden} more sizes" if hidden else ""
    if values.peers:
        words += f", partner {', '.join(map(str, values.peers))}"
        words += f" and {values.more_peers} more" if values.more_peers else ""
    return words


def _work_table(phase: Phase, found: PhaseValues, pad: int) -> list[str]:
    """Return the mean work of the ranks in a phase, traced and by the laws of its segments."""
    rows = []
    for (n, value), ruled in zip(phase.work.points, found.works, strict=True):
        error = f"{100 * (ruled - value) / value:+.1f} %" if value else ""
        rows.append([f"{n:g}", _figures(value), _figures(ruled), error])
    head = ["processes", "traced", "by the laws", "error"]
    return lines_of(PartTable("", head, rows, left=()), pad)


def _figures(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _grid(model: Model) -> list[str]:
    lines = hanging(0, visible(f"process grid: {text.grid_text(model)}", 2000))
    grid = model.grid
    cheapest = sorted(grid.considered, key=lambda entry: entry[1])
    considered = [f"{visible(str(name))} ({cost:.4g})" for name, cost in cheapest[:4]]
    if considered:
        lines += hanging(
            2,
            "chosen because all partners together need the fewest relations on it; "
            f"considered too, with their cost: {', '.join(considered)}",
        )
    for rule in grid.rivals[:MAX_RIVALS]:
        lines += hanging(2, f"the same at all traced counts: {visible(rule.text())}")
    lines += hanging(2, _hidden(len(grid.rivals)))
    for other in grid.others[:MAX_RIVALS]:
        words = f"explains all partners too, with more relations: {visible(other.rule.text())}"
        lines += hanging(2, words)
    lines += hanging(2, _hidden(len(grid.others)))
    without = [str(i) for i, item in enumerate(model.items) if _no_partners(item)]
    if without:
        lines += hanging(
            2,
            f"no grid that was tried explains the partners of the call{'s' * (len(without) > 1)} "
            f"{', '.join(without[:8])}{', ...' if len(without) > 8 else ''}; if you know the grid: "
            "p3s model --grid",
        )
    return lines


def _hidden(rules: int) -> str:
    return f"and {rules - MAX_RIVALS} more" if rules > MAX_RIVALS else ""


def _no_partners(item: Item) -> bool:
    return any(why.code in (Code.NO_PARTNERS, Code.SAMPLE) for why in item.why)
