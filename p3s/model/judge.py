"""How sure each rule is: verdicts of items and weights, and their shares."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from p3s.base.errors import P3SError
from p3s.base.ops import COMPLETION, like
from p3s.capture.neighbours import side_of
from p3s.laws.exact import exact_value
from p3s.laws.expr import Expr, symbols_of
from p3s.model.compare import items_wrong
from p3s.model.evaluate import ScaledRows, model_grid
from p3s.model.grid import admissible
from p3s.model.grid.atoms import Above
from p3s.model.measured import shares_of
from p3s.model.partners.irregular import is_sample
from p3s.model.partners.relation import Relation, Shift, StagedRelation
from p3s.model.reasons import VERDICTS, Code, Reason, Verdict, in_order
from p3s.model.sizes.positions import by_class
from p3s.model.tree import item_of_rows
from p3s.model.tripcounts import as_traced
from p3s.model.types import Item, Model, Phase, Share, Slot
from p3s.signature.tables import PointTable

#: What is open because several rules meet all traced counts; what was seen too seldom.
_PARTNERS = (Code.DIRECTION, Code.ONE_EXTENT)
_OPEN = (*_PARTNERS, Code.REMAINDER_OPEN, Code.CUT_OPEN, Code.CONSTANT_OPEN)
_SELDOM = (Code.ONE_COUNT, Code.TWO_COUNTS)
#: What is open at one count.
_OPEN_AT = (Code.GRID_OPEN, Code.PARTNERS_OPEN, Code.RANKS_OPEN, Code.NUMBERS_OPEN)

#: Counts that make a law of what is not there, or another, at the first ones.
_LATE = 3
#: Operations that post a request, as their names begin.
_POSTS = ("MPI_I", "MPI_Send_init", "MPI_Recv_init")


def judged_items(
    model: Model,
    tables: Sequence[PointTable],
    evaluated: Mapping[int, ScaledRows],
    typed: Collection[int] = (),
) -> tuple[Item, ...]:
    """Return the items with verdicts, from what the model reproduces at the traced counts.

    evaluated: its rows at each of them, with the iterations that stated loops had there; typed:
    numbers among the program's arguments.
    """
    wrong: set[int] = set()
    values: dict[tuple[int, int], tuple[set[int], set[int]]] = {}
    for t in tables:
        rows = evaluated[t.np]
        wrong |= set(items_wrong(as_traced(model, t.np), t, rows))
        for i, k, size, times in np.unique(
            np.stack([rows.item, rows.slot, rows.nbytes, rows.repeat], axis=1), axis=0
        ).tolist():
            sizes, counts = values.setdefault((i, k), (set(), set()))
            sizes.add(size)
            counts.add(times)
    extents = list(zip(*(model_grid(model, t.np).dims for t in tables), strict=True))
    widest = [max(each) for each in extents]
    items = []
    for i, item in enumerate(model.items):
        stated = item.tag is not None and side_of(item.op, item.tag) is not None
        open_ = not stated and not _has(item.notes, Code.DIRECTION)
        if open_ and (narrow := _narrow(item.relation, widest)):
            more = Reason(Code.DIRECTION, dims=tuple(narrow))
            item = replace(item, notes=(*item.notes, more))
        if (dim := _of_one_extent(item.relation, extents)) is not None:
            item = replace(item, notes=(*item.notes, Reason(Code.ONE_EXTENT, dims=(dim,))))
        item = replace(item, notes=(*item.notes, *_domain(item, widest, typed)))
        why = {w for s in item.slots for w in s.why} | set(item.notes)
        seen = [values.get((i, k), (set(), set())) for k in range(len(item.slots))]
        verdict, more_why = _verdict(model, item, why, i in wrong, seen, len(tables))
        settled = verdict
        if verdict == Verdict.AMBIGUOUS and not _has(more_why, Code.ONE_COUNT):
            settled = _settle_verdict(item, i in wrong, seen, len(tables))[0]
        why = why | more_why
        items.append(replace(item, verdict=verdict, settled=settled, why=in_order(why)))
    return judged_completions([_in_open_loop(item, model) for item in items])


def _in_open_loop(item: Item, model: Model) -> Item:
    """Return an item, fitted at best inside a loop that a tolerance may end."""
    verdict, settled = (
        Verdict.FITTED if v == Verdict.EXACT else v for v in (item.verdict, item.settled)
    )
    if (verdict, settled) == (item.verdict, item.settled):
        return item
    if not _may_converge(model, model.phases[item.phase]):
        return item
    why = in_order({*item.why, Reason(Code.TOLERANCE)})
    return replace(item, verdict=verdict, settled=settled, why=why)


def _may_converge(model: Model, phase: Phase) -> bool:
    """Tell whether a tolerance may end a loop, or one around it; not where the user states it."""
    if phase.weight.stated is None and phase.trips is not None and phase.trips.kind == "tolerance":
        return True
    return phase.parent is not None and _may_converge(model, model.phases[phase.parent])


def _verdict(
    model: Model,
    item: Item,
    why: set[Reason],
    wrong: bool,
    values: Sequence[tuple[set[int], set[int]]],
    tables: int,
) -> tuple[Verdict, set[Reason]]:
    """Return the verdict of an item, and what else keeps it from being surer.

    wrong: not reproduced at a traced count; values: per slot the sizes and numbers it has there.
    """
    slots = item.slots
    if any(s.guard is None for s in slots):
        return Verdict.UNKNOWN, set()
    if (
        any(_a_mean(item, s) for s in slots)
        or _has(why, Code.ROOT_VARIES)
        or is_sample(item.relation)
    ):
        return Verdict.STATISTICAL, set()
    if _has(why, *_OPEN) and not wrong:
        return Verdict.AMBIGUOUS, set()
    verdict, more = _settle_verdict(item, wrong, values, tables)
    weak = verdict == Verdict.FITTED and (wrong or _has(more, *_SELDOM))
    if verdict not in (Verdict.EXACT, Verdict.FITTED) or weak:
        return verdict, more
    if any(_parts_open(model, slot) for slot in slots):
        return Verdict.AMBIGUOUS, {Reason(Code.REMAINDER_OPEN)}
    return verdict, more


def _settle_verdict(
    item: Item, wrong: bool, values: Sequence[tuple[set[int], set[int]]], tables: int
) -> tuple[Verdict, set[Reason]]:
    """Return the verdict of an item where nothing that several rules say differently is asked."""
    slots = item.slots
    seen = {n for s in slots for n in s.seen}
    if any(isinstance(a, Above) for s in slots if s.guard for a in s.guard.atoms):
        return Verdict.NOT_SEEN, set()
    if wrong:
        return Verdict.FITTED, {Reason(Code.NOT_REPRODUCED)}
    if len(seen) < 2 and tables > 1:
        return Verdict.AMBIGUOUS, {Reason(Code.ONE_COUNT)}
    if len(seen) < min(_LATE, tables):
        # what starts late is what most often goes on changing
        return Verdict.FITTED, {Reason(Code.TWO_COUNTS)}
    if any(_as_many(s, seen_values) for s, seen_values in zip(slots, values, strict=True)):
        return Verdict.FITTED, {Reason(Code.AS_MANY_NUMBERS)}
    return Verdict.EXACT, set()


def _has(reasons: Iterable[Reason], *codes: Code) -> bool:
    return any(reason.code in codes for reason in reasons)


def _a_mean(item: Item, slot: Slot) -> bool:
    """Tell whether a slot's number or size is a mean or a total, no value of its own."""
    return (
        slot.count.stat is not None
        or slot.count.total is not None
        or (slot.elements.stat is not None and item.kind != COMPLETION)
    )


def _parts_open(model: Model, slot: Slot) -> bool:
    """Tell whether a slot's size or number is a fraction at counts the program may run at."""
    return any(
        expr is not None and fraction_open(model, expr)
        for expr in (slot.elements.expr, slot.count.expr)
    )


def fraction_open(model: Model, expr: Expr) -> bool:
    """Tell whether a law of whole numbers has none at some count the program may run at.

    It divided evenly at every traced count: floor, ceil and others are as likely.
    """
    if not divides(expr) or not symbols_of(expr) <= {"n", "p0", "p1", "p2", "p3"}:
        return False
    known = model.admissible
    if not known.sure and known.kind != "powers":  # counts may be the user's choice
        known = replace(known, kind="any")
    reach = 16 if known.kind == "powers" else 2
    for n in admissible.candidates(known, reach * max(model.counts) + 1):
        try:
            grid = model_grid(model, n)
        except P3SError:
            continue
        value = exact_value(expr, grid.symbols)
        if value is not None and value.denominator != 1:
            return True
    return False


def divides(expr: Any) -> bool:
    """Return whether an expression divides other than by floor and the like."""
    if not isinstance(expr, list) or expr[0] in ("floor", "ceil", "quot", "mod", "block"):
        return False
    if expr[0] == "num":
        return bool(expr[2] != 1)
    return (expr[0] == "pow" and expr[2] < 0) or any(divides(a) for a in expr[1:])


def _narrow(relation: Relation | None, widest: Sequence[int]) -> list[int]:
    """Return the dimensions a relation moves along that never had more than two ranks.

    A shift either way, a mirror and an exchange are all the same there.
    """
    if relation is None or len(widest) < 2:
        return []
    axes = {d for d, v in enumerate(relation.vec) if v} if isinstance(relation, Shift) else set()
    axis = getattr(relation, "axis", None)
    if isinstance(axis, int):
        axes.add(axis)
    return sorted(d for d in axes if d < len(widest) and widest[d] <= 2)


def _of_one_extent(relation: Relation | None, extents: Sequence[tuple[int, ...]]) -> int | None:
    """Return the dimension of a relation of several stages that always had as many ranks.

    On four ranks an exchange by powers of two is one with both neighbours on a 2 x 2 torus.
    """
    if not isinstance(relation, StagedRelation) or len(extents) < 2 or len(extents[0]) < 2:
        return None
    axis = relation.along
    return axis if isinstance(axis, int) and len(set(extents[axis])) == 1 else None


def _domain(item: Item, widest: Sequence[int], typed: Collection[int]) -> Iterator[Reason]:
    """Yield up to how many ranks along a dimension neighbours are one rank away.

    Of a message as long as an extent that was typed, the extent that is cut is likely as long: with
    more ranks than that a block is thinner than what its neighbours need. Only where it ends, as a
    domain does: a message around a ring may be of any length.
    """
    if not isinstance(item.relation, Shift):
        return
    sizes = {repr(slot.elements.expr): slot.elements.expr for slot in item.slots}
    expr = next(iter(sizes.values()), None)
    if len(sizes) != 1 or expr is None or expr[0] != "num":
        return
    extent = max((e for e in typed if e > 1 and expr[1] % e == 0), default=0)
    for d, (step, wrap) in enumerate(zip(item.relation.vec, item.relation.wrap, strict=True)):
        if step and not wrap and extent >= widest[d]:
            yield Reason(Code.DOMAIN_OPEN, at=extent, dims=(d,))


def _numbers(expr: Any) -> int:
    """Return how many numbers stand in an equation, not counting zeros, ones and exponents."""
    if not isinstance(expr, list):
        return 0
    if expr[0] == "num":
        return int(abs(expr[1]) != abs(expr[2]) and expr[1] != 0)
    return sum(_numbers(a) for a in expr[1:] if isinstance(a, list))


def _as_many(slot: Slot, seen: tuple[set[int], set[int]]) -> bool:
    """Tell whether a slot's size or number has a law of no more values than fitted numbers."""
    for law, distinct in ((slot.elements, seen[0]), (slot.count, seen[1])):
        if law is slot.count and law.expr is not None and by_class(law.expr):
            continue  # each class has a law of its own that its counts confirm
        if law.expr is not None and law.expr[0] != "num":
            free = max(law.free or 0, _numbers(law.expr))
            if free > 1 and free >= len(distinct):
                return True
    return False


def judged_completions(items: Sequence[Item]) -> tuple[Item, ...]:
    """Return the items: how often requests are completed is no surer than how often posted."""
    out = list(items)
    in_phase: dict[int, set[Verdict]] = {}
    for item in items:
        if like(item.op).startswith(_POSTS):
            in_phase.setdefault(item.phase, set()).add(_number_verdict(item))
    for i, item in enumerate(items):
        if item.kind != COMPLETION or item.verdict != Verdict.EXACT:
            continue
        posts = {j for s in item.slots for j in s.count.follows or ()}
        found = {_number_verdict(items[j]) for j in posts} or in_phase.get(item.phase, set())
        if weak := found - {Verdict.EXACT}:
            verdict = max(weak, key=VERDICTS.index)
            if verdict == Verdict.UNKNOWN:  # the completions themselves have a rule
                verdict = Verdict.FITTED
            why = in_order({*item.why, Reason(Code.LIKE_REQUESTS)})
            out[i] = replace(item, verdict=verdict, why=why)
    return tuple(out)


def _number_verdict(item: Item) -> Verdict:
    """Return how sure it is how often an item happens on which rank, whatever its size."""
    if item.verdict != Verdict.UNKNOWN and _has(item.why, *_OPEN_AT):
        return Verdict.AMBIGUOUS
    if item.verdict == Verdict.STATISTICAL and not any(
        s.count.stat is not None or s.count.total is not None for s in item.slots
    ):
        return Verdict.EXACT
    if item.verdict == Verdict.AMBIGUOUS and not _has(item.why, *_SELDOM, *_PARTNERS):
        return Verdict.EXACT
    return item.verdict


def phase_key(phase: Phase, items: Sequence[Item]) -> tuple[str, ...]:
    """Return a phase's calls, the same in a fit of fewer counts."""
    return tuple(sorted({f"{items[i].site}:{items[i].op}:{items[i].tag}" for i in phase.items}))


def judged_weights(model: Model) -> tuple[Phase, ...]:
    """Return the phases with the verdicts of their weights.

    Exact needs a rule and a hold-out that met it.
    """
    return tuple(
        replace(phase, weight_verdict=_weight_verdict(model, phase)) for phase in model.phases
    )


def _weight_verdict(model: Model, phase: Phase) -> Verdict:
    law, key, held = phase.weight, phase_key(phase, model.items), model.holdout
    if law.stated is not None:
        return Verdict.STATED
    if law.expr is None:
        return Verdict.STATISTICAL
    if _may_converge(model, phase):
        return Verdict.FITTED
    if fraction_open(model, law.expr) or (held is not None and key in held.weights_missed):
        return Verdict.FITTED
    if law.holds_from is not None and (law.points or 0) < _LATE:
        return Verdict.FITTED  # what starts late is what most often goes on changing
    # Those of a program that was ended are taken from the other counts.
    told = [n for n, _ in phase.weight_points if not _ended(model, n)]
    met = held is not None and key in held.phases_seen and not _ended(model, held.n)
    constant = law.expr[0] == "num" and len(told) > 1
    return Verdict.EXACT if met or constant else Verdict.FITTED


def _ended(model: Model, n: int) -> bool:
    recorded = model.recorded.get(str(n))
    return recorded is not None and recorded.ended > 0


def shares(model: Model, t: PointTable) -> dict[str, Share]:
    """Return the share of events, bytes and time per verdict at one traced count."""
    of_item = [VERDICTS.index(each.verdict) for each in model.items]
    number = np.array([*of_item, VERDICTS.index(Verdict.UNKNOWN)], dtype=np.int64)
    of_row = item_of_rows(model.items, t, model_grid(model, t.np), model.splits)
    found = shares_of(t, number[of_row], len(VERDICTS))
    return {str(verdict): share for verdict, share in zip(VERDICTS, found, strict=True)}
