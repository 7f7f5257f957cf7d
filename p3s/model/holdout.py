"""The model of a program: fitted to all counts, checked at the largest by a fit without it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from p3s.base import workers
from p3s.base.errors import P3SError
from p3s.base.extents import shape
from p3s.base.ops import COMPLETION
from p3s.base.text import processes
from p3s.model.compare import compare, order_at
from p3s.model.comparison import HoldOut, Moved
from p3s.model.evaluate import generate
from p3s.model.fit import MIN_COUNTS, fit_model
from p3s.model.grid.at import GridAt, dimensions
from p3s.model.grid.choose import GridChoice, choose_grid
from p3s.model.grid.nodes import Node, collect_nodes, tag_splits
from p3s.model.grid.stated import Contradiction, Statement
from p3s.model.judge import judged_weights, phase_key, shares
from p3s.model.measured import MeasuredAt, measured_at, with_measured
from p3s.model.nextcount import next_counts
from p3s.model.partners.relation import Relation, StagedRelation
from p3s.model.reasons import Code, Reason, Verdict
from p3s.model.sizes.observed import Rows
from p3s.model.sizing import Sizings
from p3s.model.tripcounts import as_traced, resolve
from p3s.model.types import Agreement, Dropped, Item, Model, Slot
from p3s.model.verdicts import judged_at
from p3s.signature.tables import PointTable

#: A grid on which partners cost so much more than on the one the traces lead to is not the
#: program's: so many times, and so many relations. More where that one is priced as if known, too:
#: on two ranks per dimension what is no stencil may look like one.
_TIMES, _MORE, _TIMES_KNOWN = 1.25, 1.0, 1.5
#: What a relation along all ranks costs more on a grid of several dimensions.
_ALL_RANKS = 0.5


def check_statement(
    tables: Sequence[PointTable], known: Statement | None, typed: Collection[int]
) -> tuple[Statement | None, str]:
    """Return what is known of the grid if the traces allow it, and why it was dropped if not.

    Raises Contradiction and P3SError where the user says what the traces do not allow; what
    arguments alone say is dropped.
    """
    if not known:
        return None, ""
    try:
        nodes = collect_nodes(tables, {k: bool(v) for k, v in tag_splits(tables).items()})
        choice = choose_grid(nodes, tables, known)
        # extents that the program was given have places for all ranks
        apart = not known.arguments
        price = Sizings(nodes, tables, typed)
        for said, times in ((None, _TIMES), (Statement(), _TIMES_KNOWN)):
            free = choose_grid(nodes, tables, said, apart=apart)
            if why := contradiction(nodes, choice, free, times, price):
                raise Contradiction(why)
    except P3SError as err:
        if known.by_user:
            raise
        return None, str(err)
    return known, ""


def contradiction(
    nodes: Sequence[Node],
    choice: GridChoice,
    free: GridChoice,
    times: float,
    sizes: Callable[[GridChoice], float],
) -> str:
    """Return why a grid cannot be the program's, "" where it can.

    What the free choice explains must be explained on it too, at no more than so many ``times``
    the cost. Where partners alone do not say so, ``sizes`` of messages on both grids count, too.
    """
    worse = {i: _price(choice, i) - _price(free, i) for i in choice.explained}
    without = [
        i for i in worse if choice.explained[i].unexplained and not free.explained[i].unexplained
    ]
    total = sum(_price(free, i) for i in worse)
    more, allowed = sum(worse.values()), (times - 1) * total + _MORE
    if (
        not without
        and more <= allowed
        and (more <= 0 or more + sizes(choice) - sizes(free) <= allowed)
    ):
        return ""
    i = max(without or worse, key=lambda k: worse[k])
    n = max(nodes[i].rows)
    here, there = (
        _name_extents(choice.grids[n], free.grids[n]),
        _name_extents(free.grids[n], choice.grids[n]),
    )
    of = f"at {processes(n)}, the partners of {nodes[i].op}"
    if without:
        return f"{of} follow no rule on a grid of {here}, and one on {there}"
    many, few = len(choice.explained[i].relations), len(free.explained[i].relations)
    if many > few:
        return f"{of} need {many} rules on a grid of {here}, and {few} on {there}"
    if apart := _apart(nodes[i], choice.grids[n], free.grids[n]):
        rank, peer = apart
        return (
            f"{of} are neighbours on a grid of {there}, and not on {here}: rank {rank} and its "
            f"partner {peer}"
        )
    return f"{of} follow rules with exceptions on a grid of {here}, and without on {there}"


def _apart(node: Node, grid: GridAt, other: GridAt) -> tuple[int, int] | None:
    """Return the first rank and partner that are neighbours on the other grid alone."""
    rows = node.rows[grid.n]
    far = (_steps(rows, other) == 1) & (_steps(rows, grid) > 1)
    at = np.lexsort((rows.peer, rows.rank, ~far))[:1]
    return (int(rows.rank[at[0]]), int(rows.peer[at[0]])) if far.any() else None


def _steps(rows: Rows, grid: GridAt) -> np.ndarray:
    """Return how many steps away partners are on a grid, at an end round to the other; -1: none."""
    step = np.abs(grid.coords[:, rows.peer] - grid.coords[:, rows.rank])
    step = np.minimum(step, np.array(grid.dims)[:, None] - step).sum(axis=0)
    return np.where(rows.peer < 0, -1, step)


def _name_extents(grid: GridAt, other: GridAt) -> str:
    """Return the extents of a grid, with the order of its ranks where nothing else is different."""
    if len(grid.dims) == 1:
        return f"{grid.dims[0]} in one dimension"
    if sorted(grid.dims) != sorted(other.dims):
        return shape(grid.dims)
    fastest = (
        dimensions(grid.layout, len(grid.dims))[-1]
        if grid.layout in ("row", "column") or grid.layout.isdigit()
        else None
    )
    return shape(grid.dims) + ("" if fastest is None else f" (dimension {fastest} fastest)")


def _price(choice: GridChoice, i: int) -> float:
    """Return what the partners of a call cost on a grid, relations along all ranks as on a line."""
    found = choice.explained[i]
    several = choice.family.ndims > 1
    return found.cost - _ALL_RANKS * several * sum(
        isinstance(r, StagedRelation) and r.along is None for r in found.relations
    )


def refute_grid(model: Model, report: HoldOut, free: Callable[[], HoldOut]) -> str:
    """Return why a grid cannot be the program's by the count that was held out, "" where it can.

    report: the hold-out on that grid; free: makes the one without. Only where the smaller counts
    show every dimension does it say something of the grid that messages are missed.
    """
    last = max(model.counts)
    smaller = [dims for n, dims in model.grid.dims.items() if int(n) < last]
    wrong = _count_missed(report)
    if (
        not wrong
        or any(max(extents) < 2 for extents in zip(*smaller, strict=True))
        or len(smaller[0]) == 1
        or _count_missed(free()) != 0
    ):
        return ""
    here = shape(model.grid.dims[str(last)])
    messages = report.comparison.p2p_triples.true if report.comparison else 0
    return (
        f"rules of the smaller counts miss {wrong:,} of {messages:,} messages at "
        f"{processes(last)} on a grid of {here}, and none without it"
    )


def _count_missed(report: HoldOut) -> int | None:
    """Return how many messages of a held-out count were not predicted, None if it said nothing."""
    if report.comparison is None:
        return None
    messages = report.comparison.p2p_triples
    return max(messages.true, messages.predicted) - messages.equal


@dataclass(frozen=True)
class MissedCalls:
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
) -> tuple[HoldOut, MissedCalls]:
    """Fit without the largest count, compare there; return the report and what was missed."""
    tables = sorted(tables, key=lambda t: t.np)
    model = fit_model(tables[:-1], typed, trips=trips, known=known)
    try:
        result = compare(model, tables[-1])
    except P3SError as err:
        return HoldOut(tables[-1].np, False, str(err)), MissedCalls()
    items = model.items
    # A mean that happens to round to the right number has not shown a rule.
    bare = {i for i, it in enumerate(items) if any(_without_equation(it, s) for s in it.slots)}
    # What the smaller counts leave open, and say so, is settled by the largest, not refuted.
    there = judged_at(model, tables[-1].np).items
    open_ = {i for i, it in enumerate(there) if it.verdict == Verdict.AMBIGUOUS}
    names = {items[i].key for i in open_}
    result = replace(
        result, slots=tuple(replace(s, open=(s.site, s.op, s.tag) in names) for s in result.slots)
    )
    wrong = bare | (set(result.items_wrong) - open_)
    calls = {items[i].key for i in wrong}
    missed = MissedCalls(
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
    known, dropped = check_statement(tables, known, typed)
    wanted = holdout and len(tables) > MIN_COUNTS
    with workers.beside(shared, 1 + len(tables)) as begin:
        # what loops with stated iterations had at the largest count is known after the fit only
        held_out = begin(hold_out, tables, typed, None, known) if wanted and not trips else None
        model = fit_model(tables, typed, failed, trips, known)
        if wanted and held_out is None:
            held_out = begin(hold_out, tables, typed, _turns_at_last(model, trips), known)
        against = [begin(_against, model, t) for t in tables]
        report, missed = held_out() if held_out is not None else (None, MissedCalls())
        why = ""
        if report is not None and known:
            turns = _turns_at_last(model, trips)
            why = refute_grid(model, report, lambda: hold_out(tables, typed, turns)[0])
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


def _with_hold_out(model: Model, report: HoldOut, missed: MissedCalls) -> Model:
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
