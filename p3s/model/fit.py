"""From the tables of several process counts to the scalable model."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial

import numpy as np

from p3s.base.errors import P3SError
from p3s.base.ops import RECV, SEND
from p3s.base.serialise import from_data
from p3s.base.text import processes
from p3s.laws.expr import mul, num
from p3s.laws.lawfinder import find_law
from p3s.model.evaluate import generate
from p3s.model.follow import follow_posts
from p3s.model.grid import admissible
from p3s.model.grid.at import GridAt
from p3s.model.grid.atoms import Above
from p3s.model.grid.carts import cart_of
from p3s.model.grid.choose import GridChoice, Memo, choose_grid, decide_splits
from p3s.model.grid.grids import Power2
from p3s.model.grid.nodes import Node, collect_nodes, tag_splits
from p3s.model.grid.stated import Statement
from p3s.model.grid.uncut import uncut_rivals
from p3s.model.judge import judged_items
from p3s.model.measured import shares_of
from p3s.model.order.fit import fit_order
from p3s.model.order.iterations import with_turns
from p3s.model.partners.irregular import Sample, edges_seen, sample_relations
from p3s.model.partners.items import whole
from p3s.model.partners.lines import Xor
from p3s.model.sizes.amounts import alike, fit_amounts
from p3s.model.sizes.observed import ObservedRows
from p3s.model.sizes.slots import fit_item, sample_slots
from p3s.model.sizing import Draft, Sizings
from p3s.model.tree import items_of_nodes, phases_of, weight_law
from p3s.model.tripcounts import (
    as_traced,
    follow_counts,
    judge_trips,
    multiply_slots,
    per_turn,
    resolve,
    state,
    subtree_items,
)
from p3s.model.types import (
    Buffers,
    Growth,
    GrowthStep,
    Item,
    Model,
    NewCall,
    NotModelled,
    OtherGrid,
    Phase,
    ProcessGrid,
    Share,
    Tracing,
    packed_of,
)
from p3s.model.work.levels import without_total
from p3s.model.work.segments import with_phase_work
from p3s.signature.part import CPU
from p3s.signature.rank import INSTRUCTIONS
from p3s.signature.structure import structure
from p3s.signature.tables import PointTable
from p3s.signature.unmodelled import unmodelled_calls

#: Sites named per count.
MAX_NAMED = 8
#: Of them in a sentence.
_SHOWN = 3


def growth(tables: Sequence[PointTable], items: Sequence[Item]) -> Growth:
    """Return what each count above the smallest showed for the first time."""
    ruled = _find_ruled_calls(items)
    tables = sorted(tables, key=lambda t: t.np)
    seen = {(g.site, g.op) for g in tables[0].groups}
    steps: list[GrowthStep] = []
    for t in tables[1:]:
        keys = [(g.site, g.op) for g in t.groups]
        new = sorted({k for k in keys if k not in seen})
        seen.update(new)
        loose = {k for k in new if k not in ruled}
        of_row = np.array([k not in loose for k in keys], dtype=np.int64)[t.group]
        named = tuple(
            NewCall(site, op, (t.sites.get(site) or ("?",))[0])
            for site, op in sorted(loose or new)[:MAX_NAMED]
        )
        steps.append(
            GrowthStep(t.np, len(new), len(new) - len(loose), named, shares_of(t, of_row, 1)[0])
        )
    bound = Share(
        *(max((getattr(s.share, f.name) for s in steps), default=0.0) for f in fields(Share))
    )
    still = bool(steps) and steps[-1].calls > steps[-1].ruled
    return Growth(still, tuple(steps), bound)


def text(found: Growth, places: Mapping[str, str] | None = None) -> list[str]:
    """Return in words what grew, and the bound; nothing where the set of calls stood still.

    places: where a site is, as function and line; without, its innermost frame is shown.
    """
    out = [_step_text(step, places or {}) for step in found.steps if step.calls]
    if found.still:
        bound = found.bound
        out.append(
            "the set of calls still grows with the number of processes: what starts above "
            "the largest count traced is not in the model; a step like those traced would "
            f"hide up to {_percent(bound.events)} of the events and "
            f"{_percent(bound.time)} of the time"
        )
    return out


def _step_text(step: GrowthStep, places: Mapping[str, str]) -> str:
    """Return what one count showed for the first time."""
    line = f"{_calls(step.calls)} first made at {processes(step.n)}"
    if step.ruled == step.calls:
        rules = "its rule says" if step.calls == 1 else "their rules say"
        return f"{line}; {rules} why"
    names = list(dict.fromkeys(f"{x.op} at {places.get(x.site, x.frame)}" for x in step.named))
    shown = ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
    parts = (
        f"{_percent(step.share.events)} of the events and {_percent(step.share.time)} of the "
        f"time there ({shown})"
    )
    if not step.ruled:
        return f"{line}: {parts}"
    return f"{line}; the rules of {step.ruled} say why, the others are {parts}"


def _calls(number: int) -> str:
    return "1 call was" if number == 1 else f"{number} calls were"


def _find_ruled_calls(items: Sequence[Item]) -> set[tuple[str, str]]:
    """Return the calls whose rules for who takes part hold at all counts."""
    out: dict[tuple[str, str], bool] = {}
    for item in items:
        sure = all(
            s.guard is not None
            and not any(isinstance(a, Above) for a in s.guard.atoms)
            and len(s.seen) > 1
            for s in item.slots
        )
        key = (item.site, item.op)
        out[key] = out.get(key, True) and sure
    return {k for k, sure in out.items() if sure}


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %"


MIN_COUNTS = 2
#: Other grids that are kept, and rules of each that only other counts tell apart.
MAX_OTHERS, MAX_ALIKE = 4, 3
#: Share of a node's messages without a rule from which on all are taken for a sample.
LOOSE_SHARE = 0.3


def fit_model(
    tables: Sequence[PointTable],
    typed: Collection[int] = (),
    failed: Sequence[int] = (),
    trips: Mapping[str, int] | None = None,
    known: Statement | None = None,
) -> Model:
    """Fit the model to all tables given (no hold-out).

    typed: numbers among the program's arguments, a hint to extents where sizes leave them open;
    failed: counts at which the program did not run; trips: iterations of loops as the user states
    them, by phase number, call site or function; known: what is known of the process grid.
    """
    tables = sorted(tables, key=lambda t: t.np)
    counts = [t.np for t in tables]
    if len(counts) < MIN_COUNTS:
        raise P3SError(
            "model: one process count says nothing about scaling; "
            "run `p3s characterize` at more counts"
        )
    work_unit = _work_unit(tables)
    tree = structure(tables)
    tables = with_turns(tables, tree)
    unmodelled = _sum_ops(tables)
    nodes, choice, split, drafts = _nodes_on_grid(tables, known or None, typed, unmodelled)
    drafts = _with_samples(drafts, nodes, tables, unmodelled)
    drafts = _with_means(drafts, choice)
    seen = [d.seen for d in drafts]
    items = follow_posts([d.item for d in drafts], seen, counts)
    of_node = items_of_nodes(tree, items, tables, choice.grids, split)
    items, phases = phases_of(tree, of_node, items, choice.grids)
    phases, level = with_phase_work(phases, items, tables, choice.grids, split, bool(trips))
    phases = judge_trips(phases, items, tables, choice.grids, split, typed)
    model = Model(
        counts=tuple(counts),
        grid=_grid_rule(choice, tables, known, items, typed),
        tag_splits=tuple((s, o, v) for (s, o), v in sorted(split.items())),
        items=tuple(items),
        phases=tuple(phases),
        work_unit=work_unit,
        work_units={str(t.np): t.work_unit for t in tables},
        tracing={str(t.np): _tracing(t) for t in tables},
        buffers={str(t.np): Buffers(**t.buffers) for t in tables},
        packed=packed_of(tables),
        recorded={str(t.np): t.recorded for t in tables if t.recorded is not None},
        sites={k: tuple(v) for t in tables for k, v in t.sites.items()},
        unmodelled_ops=unmodelled,
        not_modelled=tuple(from_data(NotModelled, row) for row in unmodelled_calls(tables)),
        first_seen=_first_seen(nodes),
        growth=growth(tables, items),
        admissible=admissible.learn(
            counts, failed, bool(cart_of(tables).dims), _powers_only(choice, items)
        ),
        order=None,
        holdout=None,
        shares={},
        next=(),
        level=level,
    )
    if trips:
        model = replace(model, level=without_total(level))
    for where, count in sorted((trips or {}).items()):
        model = _with_trips(model, seen, resolve(model, where), count)
    # what is found after this leaves them as they are
    rows = {t.np: generate(as_traced(model, t.np), t.np, work=False) for t in tables}
    order, ordered = fit_order(model, tables, tree, rows, choice.grids)
    model = follow_counts(replace(model, order=order, items=ordered))
    return replace(model, items=judged_items(model, tables, rows, typed))


def _tracing(t: PointTable) -> Tracing:
    cost = t.tracing
    return Tracing(
        int(cost.get("calls", 0)),
        int(cost.get("tracer_ns", 0)),
        float(cost.get("largest_share", 0)),
    )


def _grid_rule(
    choice: GridChoice,
    tables: Sequence[PointTable],
    known: Statement | None,
    items: Sequence[Item],
    typed: Collection[int],
) -> ProcessGrid:
    cart = bool(cart_of(tables).dims)
    uncut = (
        uncut_rivals(choice.family, choice.grids, items, typed) if not cart and not known else []
    )
    return ProcessGrid(
        family=choice.family,
        text=choice.family.text(),
        dims={str(n): tuple(g.dims) for n, g in choice.grids.items()},
        cart=cart,
        considered=tuple((text, cost) for text, cost in choice.others),
        rivals=(*choice.rivals, *uncut),
        others=tuple(_other_grids(choice)),
        stated=known or None,
    )


def _other_grids(choice: GridChoice) -> Iterator[OtherGrid]:
    for near in choice.near[:MAX_OTHERS]:
        partners = tuple((node, tuple(e.relations)) for node, e in near.explained.items())
        for rule in (near.family, *near.rivals[: MAX_ALIKE - 1]):
            yield OtherGrid(rule, partners, max(near.cost - choice.cost, 0.0))


def _powers_only(choice: GridChoice, items: Sequence[Item]) -> bool:
    """Tell whether partners are there at powers of two only."""
    return isinstance(choice.family, Power2) or any(
        isinstance(rel, Xor) and rel.axis is None and not rel.fold
        for rel in (item.relation for item in items)
    )


def _work_unit(tables: Sequence[PointTable]) -> str:
    """Return the unit of all work; wall and CPU time together count as CPU time."""
    units = {t.work_unit: t.np for t in tables}
    if INSTRUCTIONS in units and len(units) > 1:
        other = next(unit for unit in units if unit != INSTRUCTIONS)
        raise P3SError(
            f"model: work is in instructions at {units[INSTRUCTIONS]} processes and in "
            f"{other} at {units[other]}; run `p3s characterize` at all counts with one "
            "--work"
        )
    return next(iter(units)) if len(units) == 1 else CPU


def _nodes_on_grid(
    tables: Sequence[PointTable],
    known: Statement | None,
    typed: Collection[int],
    unmodelled: Mapping[str, int],
) -> tuple[list[Node], GridChoice, dict[tuple[str, str], bool], list[Draft]]:
    """Return the nodes, the program's grid, at which places tags make nodes, and the items."""
    open_splits = tag_splits(tables)
    split = {k: bool(v) for k, v in open_splits.items()}
    nodes = collect_nodes(tables, split)

    memo: Memo = {}
    search = partial(choose_grid, tables=tables, known=known, typed=typed, memo=memo)
    if None in open_splits.values():  # sizes are asked when it is known which nodes there are
        split = decide_splits(open_splits, tables, search(nodes))
        nodes = collect_nodes(tables, split)
    sizings = Sizings(nodes, tables, typed)
    choice = search(nodes, vote=sizings)
    return nodes, choice, split, sizings.of(choice).finished(choice, unmodelled)


def _with_samples(
    drafts: Sequence[Draft],
    nodes: Sequence[Node],
    tables: Sequence[PointTable],
    unmodelled: Mapping[str, int],
) -> list[Draft]:
    """Let a sample stand for all partners of nodes whose messages mostly have no rule."""
    counts = [t.np for t in tables]
    moved = {v for t in tables for v in t.moved}
    by_node: dict[int, list[Draft]] = {}
    for draft in drafts:
        by_node.setdefault(draft.item.node, []).append(draft)
    edges = {
        k: edges_seen(
            {n: (r.rank[r.peer >= 0], r.peer[r.peer >= 0]) for n, r in nodes[k].rows.items()},
            mine[0].item.kind == SEND,
        )
        for k, mine in by_node.items()
        if mine[0].item.kind in (SEND, RECV)
        and mine[0].item.op not in unmodelled
        and f"{mine[0].item.site}:{mine[0].item.op}" not in moved
        and _mostly_without_rule(nodes[k], mine, counts)
    }
    samples = dict(zip(edges, sample_relations(list(edges.values())), strict=True))
    out: list[Draft] = []
    for k, mine in by_node.items():
        sample = samples.get(k)
        out += mine if sample is None else [_of_sample(mine[0], nodes[k], sample, counts)]
    return out


def _mostly_without_rule(node: Node, drafts: Sequence[Draft], counts: Sequence[int]) -> bool:
    loose = [
        sum(int(d.seen.rows[n].count.sum()) for n in counts)
        for d in drafts
        if any(s.guard is None for s in d.item.slots)
    ]
    return sum(loose) > LOOSE_SHARE * sum(int(r.count.sum()) for r in node.rows.values())


def _of_sample(draft: Draft, node: Node, sample: Sample, counts: Sequence[int]) -> Draft:
    """Return the draft of all messages of a node."""
    relation = sample if draft.item.kind == SEND else replace(sample, sign=-1)
    rows = {n: node.at(n) for n in counts}
    one = whole(rows, draft.seen.grids, draft.seen.place, relation)
    slots = sample_slots(one, counts)
    return Draft(replace(draft.item, relation=relation, notes=(), slots=slots), one)


def _with_means(drafts: Sequence[Draft], choice: GridChoice) -> list[Draft]:
    """Return the items with laws of the mean for sizes that have no equation."""
    sizes = {
        (i, k): (slot.elements, alike(d.item, i, k))
        for i, d in enumerate(drafts)
        for k, slot in enumerate(d.item.slots)
    }
    fitted = fit_amounts(sizes, {n: g.dims for n, g in choice.grids.items()})
    return [
        replace(
            d,
            item=replace(
                d.item,
                slots=tuple(
                    replace(s, elements=fitted.get((i, k), s.elements))
                    for k, s in enumerate(d.item.slots)
                ),
            ),
        )
        for i, d in enumerate(drafts)
    ]


def _first_seen(nodes: Sequence[Node]) -> dict[str, int]:
    """Return how many nodes were first seen at each count above the smallest."""
    firsts = [min(n.rows) for n in nodes]
    return {str(n): firsts.count(n) for n in sorted(set(firsts))[1:]}


def _sum_ops(tables: Sequence[PointTable]) -> dict[str, int]:
    out: dict[str, int] = {}
    for t in tables:
        for op, k in t.unmodelled.items():
            out[op] = out.get(op, 0) + k
    return out


# ---- iterations that the user states -----------------------------------------------------------
def _with_trips(model: Model, seen: Sequence[ObservedRows], k: int, trips: int) -> Model:
    """Return the model with the iterations that the user states for a loop.

    All inside it is in proportion.
    """
    turns = dict(model.phases[k].weight_points)
    grids = {n: each.grids[n] for each in seen[:1] for n in each.grids}
    inside = subtree_items(model.phases, k)
    items = list(model.items)
    for i in inside:
        once = per_turn(seen[i], turns)
        if once is not None and all(
            s.guard is not None and s.count.follows is None for s in items[i].slots
        ):
            slots = fit_item(once, list(model.counts))
            items[i] = replace(items[i], slots=multiply_slots(slots, trips))
    phases = [_in_proportion(p, k, inside, turns, trips, grids) for p in model.phases]
    phases[k] = state(phases[k], trips)
    return replace(model, items=tuple(items), phases=tuple(phases))


def _in_proportion(
    phase: Phase,
    k: int,
    inside: Sequence[int],
    turns: Mapping[int, int],
    trips: int,
    grids: Mapping[int, GridAt],
) -> Phase:
    """Return a phase in or below one whose iterations are stated, its work and weight with them."""
    points = phase.weight_points
    if phase.phase != k and not set(phase.items) <= set(inside):
        return phase
    if not phase.items or any(n not in turns for n, _ in points):
        return phase
    work = tuple((n, v * trips / turns[n]) for n, v in phase.work.points)
    law = find_law(work, "work").fit
    phase = replace(phase, work=replace(phase.work, points=work, law=law))
    if phase.phase == k or any(v % turns[n] for n, v in points):
        return phase
    weight = weight_law([n for n, _ in points], [v // turns[n] for n, v in points], grids)
    if weight.expr is None:
        return phase
    return replace(phase, weight=replace(weight, expr=mul(num(trips), weight.expr)), trips=None)
