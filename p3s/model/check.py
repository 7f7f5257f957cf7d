"""Whether a model that was read can be one: references, equations, patterns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from p3s.capture.layout import MAX_RANKS
from p3s.laws.expr import Expr
from p3s.laws.expr import check as check_expr
from p3s.model.grid import domain_grids, grids, uncut
from p3s.model.law_types import LoopRule, OrderedItem, Rival
from p3s.model.order.patterns import check as check_patterns
from p3s.model.partners import relations
from p3s.model.types import Item, Model, Phase, Slot

#: How far weights that were written with their digits may be from 1 together.
_ROUNDING = 1e-6


def check(model: Model) -> None:
    """Raise ValueError, with what is wrong, where a model cannot be used."""
    if not model.counts or min(model.counts) < 1:
        raise ValueError("it was fitted to no process count")
    if max(model.counts) > MAX_RANKS:
        raise ValueError(f"it was fitted to {max(model.counts)} processes, more than are traced")
    if min((*model.admissible.counts, *model.admissible.failed), default=1) < 1:
        raise ValueError("a process count is below 1")
    _check_tree([p.parent for p in model.phases], "phases")
    for k, phase in enumerate(model.phases):
        if phase.phase != k:
            raise ValueError("phases are out of order")
        _in_range(phase.items, len(model.items), "an item of a phase")
    for item in model.items:
        _in_range([item.phase], len(model.phases), "the phase of an item")
        _in_range([] if item.stages_of is None else [item.stages_of], len(model.items), "a family")
        for slot in item.slots:
            _in_range(slot.count.follows or (), len(model.items), "an item that is followed")
    check_loops(model.order.loops if model.order is not None else (), model.items)
    for item in model.items:
        for slot in item.slots:
            count, size = slot.count, slot.elements
            _one_of("a number of calls", count.expr, count.total, count.stat, count.follows)
            _one_of("a size", size.expr, size.stat)
            if slot.root is not None:
                _one_of("a root", slot.root.expr, slot.root.half, slot.root.index)
        check_exprs(expr for slot in item.slots for expr in _of_slot(slot))
    for phase in model.phases:
        _one_of(f"the iterations of phase {phase.phase}", phase.weight.expr, phase.weight.stat)
        for occurs in (o for p in phase.work.places for case in p.cases for o in case.counts):
            known = (occurs.const, occurs.like, occurs.expr, occurs.share, occurs.rest)
            _one_of("how often a segment occurs", *known)
    check_exprs(expr for phase in model.phases for expr in _of_phase(phase))
    level = model.level
    if level is not None:
        weights = level.weights.values()
        if min(weights, default=-1.0) < 0 or abs(sum(weights) - 1.0) > _ROUNDING:
            raise ValueError("the weights of the laws of work do not add up to 1")
        laws = set(level.weights)
        missing = laws != {"segments"} and not laws <= set(level.errors)
        if missing or min(level.errors.values(), default=0.0) < 0:
            raise ValueError("the errors of the laws of work are not known")


def check_loops(loops: Sequence[LoopRule], items: Sequence[Item | OrderedItem]) -> None:
    """Raise ValueError for loops that are around themselves, or not there, or without a form."""
    known = {loop.loop for loop in loops}
    for loop in loops:
        if loop.parent not in known | {0} or loop.parent >= loop.loop:
            raise ValueError("a loop is around itself")
        for trips in loop.trips:
            check_patterns(trips.when or ())
            if trips.law is not None:
                _one_of("the iterations of a loop", trips.law.expr, trips.law.listed)
                check_exprs([trips.law.expr])
    for item in items:
        if loops and not known.issuperset(item.loops or ()):
            raise ValueError("an item is in a loop that is not there")
        for slot in item.slots:
            for rule in slot.when or ():
                check_patterns(rule.when or ())


def check_exprs(exprs: Iterable[Expr | None]) -> None:
    """Raise ValueError for an equation that is none; None stands for no equation."""
    for expr in exprs:
        if expr is not None:
            check_expr(expr)


def _of_slot(slot: Slot) -> Iterator[Expr | None]:
    rivals: Sequence[Rival] = (*(slot.count.rivals or ()), *(slot.elements.rivals or ()))
    yield from (slot.count.expr, slot.count.total, slot.count.per_turn, slot.elements.expr)
    yield from (rival.expr for rival in rivals)
    if slot.turns is not None:
        yield from (slot.turns.first, slot.turns.number)
    if slot.root is not None:
        yield slot.root.expr
    if slot.elements.stat is not None:
        yield slot.elements.stat.expr


def _of_phase(phase: Phase) -> Iterator[Expr | None]:
    yield phase.weight.expr
    for place in phase.work.places:
        for segment in place.segments:
            for terms in (segment.terms, *segment.rivals):
                yield from (expr for _, expr, _ in terms)
        yield from (law.expr for case in place.cases for law in case.counts)


def _one_of(what: str, *laws: object) -> None:
    if sum(law is not None for law in laws) != 1:
        raise ValueError(f"{what}: no law, or several")


def _in_range(numbers: Iterable[int], end: int, what: str) -> None:
    for number in numbers:
        if not 0 <= number < end:
            raise ValueError(f"{what} is number {number}, and there are {end}")


def _check_tree(parents: Sequence[int | None], what: str) -> None:
    """Raise ValueError unless parents come before their children and only the first has none."""
    for k, parent in enumerate(parents):
        if (parent is None) != (k == 0) or (parent is not None and not 0 <= parent < k):
            raise ValueError(f"the nest of {what} is broken at {k}")


#: The kinds of relations and grids that a model may hold are known once they are imported.
RULES = (*relations.KINDS, domain_grids, grids, domain_grids, uncut)

__all__ = ["RULES", "check", "check_exprs"]
