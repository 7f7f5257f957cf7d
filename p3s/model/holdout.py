"""The model of a program: fitted to all counts, checked at the largest by a fit without it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from p3s.base import workers
from p3s.base.errors import P3SError
from p3s.base.ops import COMPLETION
from p3s.model.compare import compare, order_at
from p3s.model.comparison import HoldOut, Moved
from p3s.model.evaluate import generate
from p3s.model.fit import MIN_COUNTS, fit_model
from p3s.model.grid.check import misled, settled
from p3s.model.grid.stated import Contradiction, Statement
from p3s.model.judge import judged_weights, phase_key, shares
from p3s.model.measured import MeasuredAt, measured_at, with_measured
from p3s.model.nextcount import next_counts
from p3s.model.partners.relation import Relation
from p3s.model.reasons import Code, Reason, Verdict
from p3s.model.sizing import vote_of_sizes
from p3s.model.tripcounts import as_traced, resolve
from p3s.model.types import Agreement, Dropped, Item, Model, Slot
from p3s.signature.tables import PointTable


@dataclass(frozen=True)
class Missed:
    """What a fit without the largest count missed there.

    calls: keys of items; partners: those of whose relations some were met, as (key, relation);
    sites: those it has not.
    """

    calls: tuple[tuple[str, str, int | None], ...] = ()
    partners: tuple[tuple[tuple[str, str, int | None], Relation], ...] = ()
    sites: tuple[str, ...] = ()

    def met(self, item: Item) -> bool:
        """Tell whether an item was predicted there."""
        if item.site in self.sites:
            return False
        return item.key not in self.calls or (item.key, item.relation) in self.partners


def hold_out(
    tables: Sequence[PointTable],
    typed: Collection[int] = (),
    trips: Mapping[str, int] | None = None,
    known: Statement | None = None,
) -> tuple[HoldOut, Missed]:
    """Fit without the largest count, compare there; return the report and what was missed."""
    tables = sorted(tables, key=lambda t: t.np)
    model = fit_model(tables[:-1], typed, trips=trips, known=known)
    try:
        result = compare(model, tables[-1])
    except P3SError as err:
        return HoldOut(tables[-1].np, False, str(err)), Missed()
    items = model.items
    # A mean that happens to round to the right number has not shown a rule.
    bare = {i for i, it in enumerate(items) if any(_without_equation(it, s) for s in it.slots)}
    wrong = bare | set(result.items_wrong)
    calls = {items[i].key for i in wrong}
    missed = Missed(
        tuple(sorted(calls, key=repr)),
        tuple(
            (item.key, item.relation)
            for i, item in enumerate(items)
            if item.key in calls and i not in wrong and item.relation is not None
        ),
        result.unseen_sites,
    )
    report = HoldOut(
        n=tables[-1].np,
        possible=True,
        comparison=result,
        weights_missed=tuple(
            phase_key(model.phases[w.phase], items)
            for w in result.weights.each
            if w.true != w.predicted
        ),
        phases_seen=tuple(phase_key(p, items) for p in model.phases),
    )
    return report, missed


def _without_equation(item: Item, slot: Slot) -> bool:
    """Tell whether the number or the size of a slot is a mean."""
    number = slot.count.expr is None and slot.count.follows is None
    return number or (item.kind != COMPLETION and slot.elements.expr is None)


def build_model(
    tables: Sequence[PointTable],
    holdout: bool = True,
    typed: Collection[int] = (),
    failed: Sequence[int] = (),
    trips: Mapping[str, int] | None = None,
    known: Statement | None = None,
    shared: Path | None = None,
) -> Model:
    """Return the model of all counts with the hold-out result and final verdicts in it.

    typed, failed, trips, known: as of :func:`fit_model`; held out, a loop with stated iterations
    gets those it had at that count. Raises Contradiction where the traces do not allow what the
    user says of the grid.

    shared: a file of the study that the tables are from; with it, what can be computed at the same
    time is: the hold-out beside the fit, then what was traced against the model, count by count.
    The model is the same.

    An item that the held-out fit missed is "fitted" at best: its rule changed with the last
    count and nothing has tested the new one.
    """
    said, trips = known, trips or {}
    tables = sorted(tables, key=lambda t: t.np)
    known, dropped = settled(tables, known, lambda nodes: vote_of_sizes(nodes, tables, typed))
    wanted = holdout and len(tables) > MIN_COUNTS
    with workers.beside(shared, 1 + len(tables)) as begin:
        # what loops with stated iterations had at the largest count is known after the fit only
        held_out = begin(hold_out, tables, typed, None, known) if wanted and not trips else None
        model = fit_model(tables, typed, failed, trips, known)
        if wanted and held_out is None:
            held_out = begin(hold_out, tables, typed, _turns_at_last(model, trips), known)
        against = [begin(_against, model, t) for t in tables]
        report, missed = held_out() if held_out is not None else (None, Missed())
        why = ""
        if report is not None and known:
            turns = _turns_at_last(model, trips)
            why = misled(model, report, lambda: hold_out(tables, typed, turns)[0])
            if why and known.by_user:
                raise Contradiction(why)
        found = [] if why else [each() for each in against]
    if known and why:
        model = build_model(tables, holdout, typed, failed, trips, shared=shared)
        return replace(model, grid=replace(model.grid, dropped=Dropped(known, why)))
    if report is not None:
        model = _with_hold_out(model, report, missed)
    if said and dropped:
        model = replace(model, grid=replace(model.grid, dropped=Dropped(said, dropped)))
    model = replace(
        model,
        phases=judged_weights(model),
        shares=shares(model, tables[-1]),
        items=with_measured(model.items, [each.measured for each in found]),
    )
    if model.order is not None:
        order = replace(model.order, moved=tuple(each.moved for each in found if each.moved))
        model = replace(model, order=order)
    return replace(model, next=next_counts(model))


@dataclass(frozen=True)
class _Against:
    """A traced count against the model: ``moved``: its ranks that make their calls in another
    order, if there are."""

    moved: Moved | None
    measured: MeasuredAt


def _against(model: Model, t: PointTable) -> _Against:
    """Return what was traced at a count against what the model, fitted to it, says there."""
    there = as_traced(model, t.np)
    rows = generate(there, t.np, work=False)
    order = order_at(there, t, rows) if model.order is not None else None
    moved = Moved(t.np, order.moved, order.ranks) if order and order.moved else None
    if there is not model:
        rows = generate(model, t.np, work=False)
    return _Against(moved, measured_at(model, t, rows))


def _turns_at_last(model: Model, trips: Mapping[str, int]) -> dict[str, int]:
    """Return the iterations that loops with stated iterations had at the largest count, by their
    names."""
    last = max(model.counts)
    return {
        where: dict(model.phases[resolve(model, where)].weight_points).get(last, 0)
        for where in trips
    }


def _with_hold_out(model: Model, report: HoldOut, missed: Missed) -> Model:
    """Return the model with the hold-out in it; what that missed is no longer exact."""
    slots = report.comparison.slots if report.comparison is not None else ()
    agreed = {
        (s.site, s.op, s.tag): Agreement(
            s.true, s.predicted, s.equal, s.true_bytes, s.predicted_bytes
        )
        for s in slots
    }
    items = []
    for item in model.items:
        met = missed.met(item)
        item = replace(
            item, met_holdout=met if report.possible else None, holdout=agreed.get(item.key)
        )
        if item.verdict == Verdict.EXACT and not met:
            why = (*item.why, Reason(Code.MISSED_HOLDOUT))
            item = replace(item, verdict=Verdict.FITTED, why=why)
        if item.settled == Verdict.EXACT and not met:
            item = replace(item, settled=Verdict.FITTED)
        items.append(item)
    return replace(model, holdout=report, items=tuple(items))
