"""The rules of a model as rows that people read, the same for the page, LaTeX and the report.

Calls that follow one rule are one row; a phase keeps its rows in program order.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass

from p3s.base.ops import RECV, SEND
from p3s.base.text import percent, visible
from p3s.model import text
from p3s.model.notation import TEXT, Notation
from p3s.model.reasons import Verdict
from p3s.model.types import Item, Model, Phase, Slot
from p3s.report.places import Places, joined_places, phase_place

Share = Mapping[str, float]
#: A phase or rule with less of everything than this is not shown at first.
RELEVANT = 0.01
#: Sizes of one call that have rows of their own.
MAX_SIZES = 3
WHAT = ("events", "bytes", "time")


@dataclass(frozen=True)
class Equation:
    """A cell of a row: its text, and the formula in it between words; None where it has none."""

    text: str
    formula: Callable[[Notation], str] | None = None
    before: str = ""
    after: str = ""


def _equation(
    model: Model, words: str, write: Callable[[Notation], str], before: str = "", after: str = ""
) -> Equation:
    """Return an equation of a model; ``write``: writes its formula in a notation."""
    return Equation(words, lambda n: n.in_words_of(model, write(n)), before, after)


@dataclass(frozen=True)
class Rule:
    """One row: the calls (items of model.json) that follow one equation.

    ``calls`` are items, ``slot`` is the one of them (-1: the item has only one). All texts are
    printable.
    """

    calls: tuple[int, ...]
    slot: int
    call: str
    destination: Equation
    volume: Equation
    work: Equation
    verdict: str
    place: str
    condition: str
    repeats: str
    share: Share

    @property
    def label(self) -> str:
        """The number of the rule, that of its first call."""
        name = str(self.calls[0]) if self.slot < 0 else f"{self.calls[0]}.{self.slot}"
        return name if len(self.calls) == 1 else f"{name} +{len(self.calls) - 1}"

    @property
    def facts(self) -> str:
        """Where its calls are, who makes them, and how often if not once."""
        condition = f"for {self.condition}" if self.condition else ""
        return "; ".join(filter(None, (self.place, condition, self.repeats)))

    @property
    def weight_in_view(self) -> float:
        """How much of the program it is: the largest of its shares."""
        return max(self.share.values(), default=0.0)


@dataclass(frozen=True)
class PhaseRules:
    """A phase with its rows in program order, its weight, and why rules are not surer.

    inside: in which phase it lies, to follow its name; empty where in none. place: the function
    around its calls; empty where it has no name or the phase is outside of loops. no_trend: why the
    points do not tell how its work goes on; empty where they do.
    """

    phase: int
    parent: int | None
    inside: str
    depth: int
    name: str
    place: str
    weight: Equation
    weight_verdict: Verdict
    weight_points: Sequence[tuple[int, int]]
    work: Equation
    work_sure: str
    no_trend: str
    share: Share
    rules: Sequence[Rule]
    reasons: Sequence[tuple[int, str]]

    @property
    def shares(self) -> str:
        """Its shares of the program."""
        return ", ".join(f"{what} {percent(self.share[what])}" for what in ("time", *WHAT[:2]))

    @property
    def traced(self) -> str:
        """Its weights as traced; empty where none were."""
        points = ", ".join(f"{n}: {v:,}" for n, v in self.weight_points)
        return f"traced {points}" if points else ""

    @property
    def relevant(self) -> bool:
        """Whether it is worth showing at first."""
        return any(self.share[what] >= RELEVANT for what in WHAT)


def phase_rules(
    model: Model, places: Places, only: Container[int] | None = None
) -> list[PhaseRules]:
    """Return all phases of a model in program order, each with all its rules.

    only: numbers of the phases that are wanted.
    """
    return [
        _phase(model, phase, places)
        for phase in model.phases
        if only is None or phase.phase in only
    ]


def _phase(model: Model, phase: Phase, places: Places) -> PhaseRules:
    items = model.items
    unit = text.unit_of(model)
    alike: dict[str, list[tuple[int, int]]] = {}
    for i in phase.items:
        if len(items[i].slots) > MAX_SIZES:  # one row for all sizes of a call
            alike[f"item {i}"] = [(i, k) for k in range(len(items[i].slots))]
            continue
        for k, slot in enumerate(items[i].slots):
            alike.setdefault(_key(items[i], slot), []).append((i, k))
    reasons: dict[str, int] = {}
    for i in phase.items:
        for why in [*(w.sentence for w in items[i].why), *_without_trend(items[i])]:
            reasons[why] = reasons.get(why, 0) + 1
    share = {what: sum(_share(items[i], what) for i in phase.items) for what in WHAT}
    return PhaseRules(
        phase.phase,
        phase.parent,
        _inside(model, phase),
        phase.depth,
        visible(str(phase.name)),
        phase_place(model, phase, places),
        _equation(
            model,
            TEXT.in_words_of(model, text.weight_text(phase.weight)),
            lambda n: n.law(phase.weight),
            after=text.since(phase.weight),
        ),
        phase.weight_verdict,
        [(int(n), int(v)) for n, v in phase.weight_points],
        Equation(phase.work.law.text(unit), lambda n: n.work(phase.work.law), after=f" {unit}"),
        text.work_sure(model),
        visible(text.no_trend(phase.work.law)),
        share,
        [_rule(model, phase, cells, places, unit) for cells in alike.values()],
        [(k, visible(why)) for why, k in reasons.items()],
    )


def _without_trend(item: Item) -> list[str]:
    """Return why the work before a call that takes time has no trend."""
    if _share(item, "time") < RELEVANT:
        return []
    found = dict.fromkeys(filter(None, (text.no_trend(slot.work) for slot in item.slots)))
    return [f"work before it has {why}" for why in found]


def _inside(model: Model, phase: Phase) -> str:
    """Return in which phase another lies, with its weight if it has no rules of its own."""
    if phase.parent in (None, 0):
        return ""
    parent = model.phases[phase.parent]
    words = f" in phase {int(phase.parent)}"
    if parent.items:
        return words
    return words + f" (w = {TEXT.in_words_of(model, text.weight_text(parent.weight))})"


def _key(item: Item, slot: Slot) -> str:
    """Return what calls of one row have in common, as a text to compare by."""
    count = slot.count
    return repr(
        (
            item.op,
            slot.relation,
            slot.place,
            slot.guard,
            slot.root,
            slot.elem_bytes,
            slot.elements.expr or slot.elements.stat,
            count.expr or count.total or count.stat or "as posted",
            item.verdict,
            item.why,
        )
    )


def _share(item: Item, what: str) -> float:
    return float(getattr(item.share, what)) if item.share is not None else 0.0


def _rule(
    model: Model, phase: Phase, cells: Sequence[tuple[int, int]], places: Places, unit: str
) -> Rule:
    first, k = cells[0]
    item, calls = model.items[first], tuple(dict.fromkeys(i for i, _ in cells))
    slot = item.slots[k]
    sites = [model.sites.get(model.items[i].site) or ("?",) for i in calls]
    share = {
        what: sum(_share(model.items[i], what) / len(model.items[i].slots) for i, _ in cells)
        for what in WHAT
    }
    condition = TEXT.in_words_of(model, text.condition(slot))
    many = len(calls) == 1 and len(cells) > 1
    slots = [model.items[i].slots[j] for i, j in cells]
    destination = visible(_with_word(item, TEXT.in_words_of(model, text.destination(item, slot))))
    relation = slot.relation if item.kind in (SEND, RECV) else None
    return Rule(
        calls,
        -1 if many or len(item.slots) == 1 else k,
        visible(str(item.op).removeprefix("MPI_")),
        Equation(destination)
        if relation is None
        else _equation(
            model,
            destination,
            lambda n: n.partner(relation),
            before=f"{text.kind_word(item.kind)} ",
        ),
        Equation(TEXT.in_words_of(model, _sizes(item, slots)))
        if many
        else _equation(
            model, TEXT.in_words_of(model, TEXT.volume(item, slot)), lambda n: n.volume(item, slot)
        ),
        _mean_work(model, slots) if many else _work_of(model, cells, slots),
        item.verdict,
        visible(joined_places(sites, places), 160),
        visible(condition),
        "" if many else visible(TEXT.in_words_of(model, text.repeats(model, phase, slot))),
        share,
    )


def _sizes(item: Item, slots: Sequence[Slot]) -> str:
    """Return the sizes of a call with many of them as one text."""
    found = list(dict.fromkeys(TEXT.volume(item, slot) for slot in slots))
    if all(size.isdigit() for size in found):
        return f"{min(map(int, found)):,}..{max(map(int, found)):,}, {len(found)} sizes"
    return f"{found[0]} and {len(found) - 1} other sizes"


def _work_of(model: Model, cells: Sequence[tuple[int, int]], slots: Sequence[Slot]) -> Equation:
    """Return the work before all calls of a row; long sums at the largest count."""
    if len(cells) == 1 and len(model.items[cells[0][0]].slots) == 1:
        terms = text.one_segment(model, cells[0][0])
        if terms is not None:
            words = TEXT.in_words_of(model, TEXT.segment(terms))
            return _equation(model, words, lambda n: n.segment(terms))
    law = text.sum_of([slot.work for slot in slots])
    if len(slots) > 1 and len(law.terms) > 2:
        return Equation(f"{float(law.value(law.max_n)):.4g} at {law.max_n}")
    return _equation(model, law.text(), lambda n: n.work(law))


def _mean_work(model: Model, slots: Sequence[Slot]) -> Equation:
    """Return the work before one call, the mean over its sizes at the largest count."""
    top = max(model.counts)
    values = [float(slot.work.value(top)) for slot in slots]
    return Equation(f"about {sum(values) / len(values):.4g}")


def _with_word(item: Item, destination: str) -> str:
    word = text.kind_word(item.kind)
    return f"{word} {destination}" if word and destination else destination


#: Symbols of equations with their meaning; of work, where they mean something else than in sizes.
_SYMBOLS = {"s": "stage", "t": "iteration of the loop", "b": "ranks of the tree's branch"}
_OF_WORK = {
    "b": "bytes of the call",
    "b0": "bytes of the call before",
    "m": "how often a rank computes this",
}
_OF_GRID = {
    "p": "extents of the grid",
    "c": "coordinates in it (no partner beyond it)",
    "q": "coordinates of the partner",
}
_BLOCKS = {
    "block_ceil": "ceil(L/p) until none is left",
    "block_first": "one more in the first",
    "block_floor": "cut at floor(c L/p)",
    "block_last": "one more in the last",
    "block_nearest": "L/p rounded, what is left in the last",
    "block_tail": "the rest in the last",
}


def used_symbols(phases: Sequence[PhaseRules], ndims: int) -> list[tuple[str, str]]:
    """Return the symbols that equations of these phases use, with their meaning."""
    rules = [rule for phase in phases for rule in phase.rules]
    said = _words(
        *(phase.weight.text for phase in phases),
        *(" ".join((r.destination.text, r.volume.text, r.condition, r.repeats)) for r in rules),
    )
    of_work = _words(*(rule.work.text for rule in rules))
    meanings = [("n", "processes"), ("r", "rank")]
    for letter, what in _OF_GRID.items():
        if names := [f"{letter}{d}" for d in range(ndims) if f"{letter}{d}" in said | of_work]:
            meanings.append((" ".join(names), what))
    meanings += [
        (name, what)
        for name, what in _SYMBOLS.items()
        if name in (said if name == "b" else said | of_work)
    ]
    meanings += [(name, what) for name, what in _OF_WORK.items() if name in of_work]
    whole = " ".join(rule.volume.text + rule.repeats + rule.work.text for rule in rules)
    meanings += [
        (f"{name}(L, p, c)", f"block c of L in p blocks, {how}")
        for name, how in _BLOCKS.items()
        if name in whole
    ]
    return meanings


def _words(*texts: str) -> set[str]:
    return set(re.findall(r"[a-z]+\d*", " ".join(texts)))
