"""The words of an equation, and what the equations of a phase come to at the traced counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial

from p3s.base.errors import P3SError
from p3s.base.ops import COLLECTIVE, COMM, IO, RECV, SEND, is_on_comm
from p3s.base.text import processes
from p3s.laws.counts import WorkLaw
from p3s.laws.expr import evaluate, symbols_of
from p3s.model.evaluate import generate, model_grid, phase_weight
from p3s.model.grid.at import GridAt, Guard
from p3s.model.grid.atoms import HasPartner
from p3s.model.grid.stated import Statement
from p3s.model.law_types import CountLaw, RootLaw, SizeLaw
from p3s.model.notation import TEXT, Terms
from p3s.model.partners.communicator_laws import CommunicatorLaw
from p3s.model.partners.relation import Relation, Shift
from p3s.model.sizes.observed import differ_at
from p3s.model.types import Item, Model, Phase, Slot
from p3s.model.verdicts import ranks_differ

#: Work before a call: by one law, or by the terms of the one segment that leads to it.
WorkOf = WorkLaw | Terms
#: Who takes part where no guard was found.
NO_RULE = "ranks without a rule"


def unit_of(model: Model) -> str:
    """Return the unit of work in a word: ``ns`` or ``instructions``."""
    return "instructions" if model.work_unit == "instructions" else "ns"


def unit_in_full(model: Model) -> str:
    """Return the unit of work with what was measured: ``ns of CPU time``."""
    unit = model.work_unit
    return {"cpu_ns": "ns of CPU time", "wall_ns": "ns of wall time"}.get(unit, unit)


def weight_text(law: CountLaw) -> str:
    """Return the law of a phase's weight as one line."""
    return TEXT.law(law) + since(law)


def since(law: CountLaw) -> str:
    """Return from which count on the law of a weight is meant, as its text ends."""
    return f" (from {law.holds_from} processes on)" if law.holds_from is not None else ""


def destination(item: Item, slot: Slot) -> str:
    """Return the partner of a message or the ranks of a collective; empty for other calls."""
    if item.kind in (SEND, RECV):
        return partner(slot.relation)
    if is_on_comm(item.op):
        text = place_text(slot.place)
        root = slot.root
        return f"{text}, root {root_text(root)}" if root is not None else text
    return ""


def partner(relation: Relation | None) -> str:
    """Return a partner as a function of rank or grid coordinates, as ``(c1 + 1) mod p1``."""
    if relation is None:
        return "?"
    if isinstance(relation, Shift):
        return TEXT.partner(relation) or "self"
    return relation.text()


def place_text(place: CommunicatorLaw | None) -> str:
    """Return the members of a communicator."""
    return "?" if place is None else place.text()


def root_text(root: RootLaw) -> str:
    """Return the root of a collective, a rank of its communicator."""
    if root.expr is not None:
        return TEXT.expression(root.expr)
    if root.half:
        return "half of the size"
    return "size-1" if root.index == -1 else str(root.index)


def condition(slot: Slot) -> str:
    """Return which ranks take part; empty when all do that have a partner."""
    guard = slot.guard
    if guard is None:
        return NO_RULE
    kept = tuple(atom for atom in guard.atoms if not isinstance(atom, HasPartner))
    return Guard(kept).text() if kept else ""


def members(slot: Slot) -> str:
    """Return which ranks take part, in full."""
    return NO_RULE if slot.guard is None else slot.guard.text()


def work_sure(model: Model) -> str:
    """Return how sure the work is: fitted, and by how much it was off at the hold-out."""
    held = model.holdout.comparison if model.holdout is not None else None
    off = held.work.off if held is not None else None
    if off is None:
        return "fitted, never checked"
    share = f"{100 * off:.0f}" if off >= 0.0995 else f"{100 * off:.1f}"
    return (
        f"fitted, ± {share} % at the hold-out"
        if off >= 0.0005
        else "fitted, ± less than 0.1 % at the hold-out"
    )


def order_sure(model: Model) -> str:
    """Return at how many ranks of the traced runs calls come in another order, "" at none."""
    moved = model.order.moved if model.order is not None else ()
    if not moved:
        return ""
    ranks = sum(len(each.moved) for each in moved)
    at = processes([each.n for each in moved])
    return f"another one at {ranks:,} of {sum(each.ranks for each in moved):,} ranks of {at}"


def sum_of(parts: Sequence[WorkLaw]) -> WorkLaw:
    """Return the law of several works together."""
    terms: dict[tuple[Fraction, int], float] = {}
    for law in parts:
        for coefficient, power, log in law.terms:
            terms[(power, log)] = terms.get((power, log), 0.0) + coefficient
    return WorkLaw(
        tuple((c, power, log) for (power, log), c in sorted(terms.items(), reverse=True)),
        max((law.rel_half_width for law in parts), default=0.0),
        max((law.max_n for law in parts), default=1),
    )


def no_trend(law: WorkLaw) -> str:
    """Return why the points of a work law do not tell how it goes on; "" where they do."""
    return f"no trend: {law.refused}" if law.refused else ""


def segments_of(model: Model, i: int) -> list[tuple[tuple[str, str] | None, str, float]]:
    """Return the segments that lead to call ``i``: (site, operation) before, work, error.

    None for the call before: the start of the run; the error is the relative one where left out.
    """
    phase = model.phases[model.items[i].phase]
    for place in phase.work.places:
        if i in place.items:
            return [
                (before, TEXT.segment(segment.terms), segment.error)
                for before, segment in zip(place.before, place.segments, strict=True)
            ]
    return []


def one_segment(model: Model, i: int) -> Terms | None:
    """Return the terms of the work before call ``i``; None if it depends on the call before."""
    phase = model.phases[model.items[i].phase]
    for place in phase.work.places:
        if i in place.items and place.segments:
            same = len({TEXT.segment(s.terms) for s in place.segments}) == 1
            return place.segments[0].terms if same else None
    return None


def repeats(model: Model, phase: Phase, slot: Slot) -> str:
    """Return how often a call happens beside its phase; empty: once in every turn."""
    often, turns = _often(model, phase, slot.count), slot.turns
    if turns is None:
        return often
    first, number = TEXT.expression(turns.first), TEXT.expression(turns.number)
    step = turns.step
    walk = f"{first}, {first} + {step}, ..." if first != "0" else f"0, {step}, ..."
    return (f"{often}, " if often else "") + f"in {number} iterations t = {walk}"


def _often(model: Model, phase: Phase, law: CountLaw) -> str:
    ratio = _per_turn(model, phase.weight, law)
    if ratio is not None:
        return "" if ratio == 1 else f"{ratio} times in every iteration"
    if law.follows is not None:
        return TEXT.law(law)
    words = TEXT.law(law)
    if law.expr is None and law.total is not None:
        return words
    return "once in the run" if words == "1" else f"{words} times in the run"


def _per_turn(model: Model, weight: CountLaw, law: CountLaw) -> int | None:
    """Return the whole number of calls per iteration, where it is the same at every traced
    count."""
    if law.expr is None or weight.expr is None:
        return None
    if law.expr == weight.expr:
        return 1
    if symbols_of(law.expr) - {"n", "p0", "p1", "p2", "p3"}:
        return None
    found = set()
    for n, dims in model.grid.dims.items():
        env = {"n": float(n), **{f"p{d}": float(p) for d, p in enumerate(dims)}}
        turns = float(evaluate(weight.expr, env))
        calls = float(evaluate(law.expr, env))
        if turns <= 0 or calls % turns:
            return None
        found.add(int(calls / turns))
    return found.pop() if len(found) == 1 and min(found) > 0 else None


def grid_text(model: Model) -> str:
    """Return the rule of the process grid with its extents at the traced counts."""
    grid = model.grid
    dims = ", ".join(f"{n}: {'x'.join(map(str, d))}" for n, d in grid.dims.items())
    known = grid.stated or Statement()
    said = (
        f", stated: {known.text()}"
        if known.by_user
        else ", as in the program's arguments"
        if known
        else ""
    )
    return f"{grid.text} ({dims}){said}"


def kind_word(kind: str) -> str:
    """Return the word that leads to a rule's destination."""
    return {SEND: "to", RECV: "from", COLLECTIVE: "on", COMM: "of", IO: "on"}.get(kind, "")


#: Rivals are compared up to this many times the largest traced count; of a law, so many are.
_FAR, MAX_RIVALS = 8, 4
#: Counts above this one are not tried one by one.
_MOST = 512


@dataclass(frozen=True)
class Difference:
    """The smallest count ``n`` at which a rival differs, with its grid; None: not up to ``top``."""

    n: int | None
    dims: tuple[int, ...]
    top: int


@dataclass(frozen=True)
class SlotRivals:
    """Where the rivals of a slot differ: of its guard, of its size, of how often it is called."""

    guards: Sequence[Difference]
    elements: Sequence[Difference]
    count: Sequence[Difference]


@dataclass(frozen=True)
class PhaseValues:
    """A phase evaluated.

    weights: by the law at the counts of ``weight_points``, None where it claims nothing; works:
    mean work of a rank by the laws of its segments at the counts of ``work.points``; weight_rivals:
    those of the weight; slots: of each call that is explained, by the call's number.
    """

    weights: Sequence[int | None]
    works: Sequence[float]
    weight_rivals: Sequence[Difference]
    slots: Mapping[int, Sequence[SlotRivals]]


def phase_values(model: Model, number: int, calls: Sequence[int]) -> PhaseValues:
    """Return what a phase, and calls of it, come to."""
    phase = model.phases[number]
    return PhaseValues(
        [_weight_at(model, phase, n) for n, _ in phase.weight_points],
        [_work_at(model, phase, int(n)) for n, _ in phase.work.points],
        _of_law(model, phase.weight),
        {i: [_of_slot(model, slot) for slot in model.items[i].slots] for i in calls},
    )


def _weight_at(model: Model, phase: Phase, n: int) -> int | None:
    if n < (phase.weight.holds_from or 0):
        return None
    return phase_weight(phase, model_grid(model, n))


def _work_at(model: Model, phase: Phase, n: int) -> float:
    made = generate(model, n)
    mine = made.phase == phase.phase
    ranks = len(set(made.rank[mine].tolist()))
    return float((made.work * made.repeat)[mine].sum()) / max(ranks, 1)


def _of_slot(model: Model, slot: Slot) -> SlotRivals:
    alone = (replace(slot, guard_rivals=(rival,)) for rival in slot.guard_rivals)
    return SlotRivals(
        [_first_difference(model, partial(ranks_differ, each)) for each in alone],
        _of_law(model, slot.elements, slot.relation),
        _of_law(model, slot.count),
    )


def _of_law(
    model: Model, law: CountLaw | SizeLaw, relation: Relation | None = None
) -> list[Difference]:
    """Return where the first rivals of a law differ from it; relation: who calls whom."""
    alone = (replace(law, rivals=(rival,)) for rival in (law.rivals or ())[:MAX_RIVALS])
    return [_first_difference(model, partial(differ_at, each, relation=relation)) for each in alone]


def _first_difference(model: Model, differ: Callable[[GridAt], bool]) -> Difference:
    """Return the first count that the program may take at which two laws differ."""
    top = min(_FAR * max(model.counts), _MOST)
    for n in range(2, top + 1):
        try:
            grid = model_grid(model, n)
        except P3SError:
            continue
        if differ(grid):
            return Difference(n, tuple(grid.dims), top)
    return Difference(None, (), top)
