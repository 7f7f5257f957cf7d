"""Compare a model with a captured run: triples, collectives, weights, work; nothing left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from p3s.base.ops import COLLECTIVE, IO, RECV, SEND
from p3s.laws.statistics import relative_error, scores
from p3s.model.comparison import (
    CallAgreement,
    Comparison,
    OrderAgreement,
    Overlap,
    Unmodelled,
    WeightAt,
    Weights,
    WorkAt,
    WorkErrors,
)
from p3s.model.evaluate import ScaledRows, generate, phase_weight
from p3s.model.grid.at import GridAt
from p3s.model.order.unfold import compare_order
from p3s.model.tree import item_of_rows, phase_stages
from p3s.model.types import Agreement, Item, Model
from p3s.model.work.workload import rank_work
from p3s.signature.structure import structure
from p3s.signature.tables import PointTable

Tally = Counter[tuple[Any, ...]]


def _sum_rows(columns: Sequence[np.ndarray], amount: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct rows of columns, (columns, rows), and the sum of amounts of each."""
    stack = np.stack([np.asarray(c, dtype=np.int64) for c in columns])
    if not stack.shape[1]:
        return stack, np.zeros(0, dtype=np.int64)
    order = np.lexsort(stack[::-1])
    stack, amount = stack[:, order], np.asarray(amount, dtype=np.int64)[order]
    new = np.concatenate([[True], np.any(stack[:, 1:] != stack[:, :-1], axis=0)])
    return stack[:, new], np.add.reduceat(amount, np.flatnonzero(new))


def _of_groups(t: PointTable) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the kind, the partner and the communicator of every row of a table."""
    kind = np.array([g.kind for g in t.groups])
    peer = np.array([g.peer for g in t.groups], dtype=np.int64)
    comm = np.array([g.comm for g in t.groups], dtype=np.int64)
    return kind[t.group], peer[t.group], comm[t.group]


def true_triples(t: PointTable) -> Tally:
    """Return (source, destination, bytes) -> messages sent, over all ranks."""
    kind, peer, _ = _of_groups(t)
    mine = (kind == SEND) & (peer >= 0)
    keys, sums = _sum_rows([t.rank[mine], peer[mine], t.nbytes[mine]], t.count[mine])
    return Counter(dict(zip(zip(*keys.tolist(), strict=True), sums.tolist(), strict=True)))


def true_collectives(t: PointTable) -> Tally:
    """Return (operation, members, bytes) -> calls, counted on every rank."""
    return _true_calls(t, COLLECTIVE)


def true_files(t: PointTable) -> Tally:
    """Return (operation, (), bytes) -> calls on files, counted on every rank."""
    return _true_calls(t, IO)


def _true_calls(t: PointTable, wanted: str) -> Tally:
    kind, _, _ = _of_groups(t)
    mine = kind == wanted
    out: Tally = Counter()
    (group, size), sums = _sum_rows([t.group[mine], t.nbytes[mine]], t.count[mine])
    for gi, b, k in zip(group.tolist(), size.tolist(), sums.tolist(), strict=True):
        g = t.groups[gi]
        known = g.kind == COLLECTIVE and 0 <= g.comm < len(t.places)
        members = t.places[g.comm].members if known else ()
        out[(g.op, members, b)] += k
    return out


def predicted_tallies(model: Model, rows: ScaledRows) -> tuple[Tally, Tally, Tally]:
    """Return the triples, collectives and calls on files of a scaled trace."""
    kinds = np.array([it.kind for it in model.items])[rows.item]
    mine = (kinds == SEND) & (rows.peer >= 0)
    keys, sums = _sum_rows([rows.rank[mine], rows.peer[mine], rows.nbytes[mine]], rows.repeat[mine])
    triples: Tally = Counter(
        dict(zip(zip(*keys.tolist(), strict=True), sums.tolist(), strict=True))
    )
    colls: Tally = Counter()
    files: Tally = Counter()
    mine = (kinds == COLLECTIVE) & (rows.comm >= 0) | (kinds == IO)
    keys, sums = _sum_rows([rows.item[mine], rows.comm[mine], rows.nbytes[mine]], rows.repeat[mine])
    for i, c, b, k in zip(*keys.tolist(), sums.tolist(), strict=True):
        if model.items[i].kind == IO:
            files[(model.items[i].op, (), b)] += k
        else:
            colls[(model.items[i].op, rows.members[c], b)] += k
    return triples, colls, files


def overlap(true: Tally, predicted: Tally) -> Overlap:
    """Return how many there are, and how many are equal, with multiplicity."""
    return Overlap(sum(true.values()), sum(predicted.values()), sum((true & predicted).values()))


def _true_weights(model: Model, t: PointTable, grid: GridAt) -> list[WeightAt]:
    """Fold the run on its own and pair its loops with the model's phases by their calls."""
    s = structure([t])
    loops = [
        ({s.nodes[v] for v in loop.nodes()}, max(loop.turns.values(), default=0))
        for loop in s.tree.loops()
    ]
    present = set(s.nodes)
    everything = {
        c.phase: {(model.items[i].site, model.items[i].op) for i in c.items} for c in model.phases
    }
    for phase in reversed(model.phases):  # inner phases add their calls to those around
        if phase.parent is not None:
            everything[phase.parent] |= everything[phase.phase]
    out = []
    for phase in model.phases:
        mine = everything[phase.phase]
        true = 0
        if mine & present:
            best = max(loops, key=lambda lp: (len(lp[0] & mine) / len(lp[0] | mine), -len(lp[0])))
            true = best[1] // max(phase_stages(phase, model.items, grid), 1)
        out.append(WeightAt(phase.phase, true, phase_weight(phase, grid)))
    return out


def compare(model: Model, t: PointTable, moved: Mapping[int, float] | None = None) -> Comparison:
    """Return how the model's trace at ``t.np`` agrees with the captured run.

    moved: by which factor the work of phases differs from the model's, where the run had other
    threads than those it was fitted to.

    Errors of work are relative, of the phases with more than 1 % of it (p3s.laws.statistics).
    """
    rows = generate(model, t.np, work=False)
    triples, colls, files = predicted_tallies(model, rows)
    weights = _true_weights(model, t, rows.grid)
    n_items = len(model.items)
    of_row = _of_row(model, t, rows)
    left_out = _left_out(model, of_row)
    calls = _calls(model, t, rows, of_row)
    time_ns = t.work + t.elapsed_ns
    return Comparison(
        n=t.np,
        p2p_triples=overlap(true_triples(t), triples),
        collectives=overlap(true_collectives(t), colls),
        files=overlap(true_files(t), files),
        weights=Weights(
            phases=len(weights),
            exact=sum(w.true == w.predicted for w in weights),
            each=tuple(weights),
        ),
        order=compare_order(model, t, rows, ~left_out),
        work=_work_errors(model, t, rows, of_row, moved or {}),
        unmodelled=Unmodelled(
            events=int(t.count[left_out].sum()),
            share_of_time=float(time_ns[left_out].sum() / max(float(time_ns.sum()), 1.0)),
        ),
        slots=_by_call(model, _agreement(calls)),
        items_wrong=tuple(_wrong_items(model, t, rows, of_row, calls)),
        unseen_sites=tuple(
            sorted({t.groups[g].site for g in np.unique(t.group[of_row == n_items])})
        ),
    )


def order_at(model: Model, t: PointTable, rows: ScaledRows) -> OrderAgreement | None:
    """Return how the order of events agrees with that of a run; rows: the model's at its count."""
    return compare_order(model, t, rows, ~_left_out(model, _of_row(model, t, rows)))


def _of_row(model: Model, t: PointTable, rows: ScaledRows) -> np.ndarray:
    """Return the item of each row of a table, their number where none explains it."""
    return item_of_rows(model.items, t, rows.grid, model.splits)


def _left_out(model: Model, of_row: np.ndarray) -> np.ndarray:
    """Tell of each row of a table whether the model leaves it out; of_row: their items."""
    modelled = np.array(
        [any(s.guard is not None for s in it.slots) for it in model.items] + [False]
    )
    found: np.ndarray = ~modelled[of_row]
    return found


def _work_errors(
    model: Model, t: PointTable, rows: ScaledRows, of_row: np.ndarray, moved: Mapping[int, float]
) -> WorkErrors:
    """Return the errors of the work of phases; of_row: item of each row of the table."""
    n_phases = len(model.phases)
    phase_of = np.array([it.phase for it in model.items] + [n_phases], dtype=np.int64)
    true = np.bincount(phase_of[of_row], weights=t.work, minlength=n_phases + 1)
    predicted = _work_of_phases(model, rows, n_phases + 1)
    for phase, factor in moved.items():
        predicted[phase] *= factor
    total = max(float(true.sum()), 1.0)
    each = [
        WorkAt(
            phase=k,
            share=float(true[k] / total),
            true=float(true[k]),
            predicted=float(predicted[k]),
            error=relative_error(float(predicted[k]), float(true[k])),
        )
        for k in range(n_phases)
        if true[k] > 0.01 * total
    ]
    if true[n_phases] > 0.01 * total:  # work before events that no item explains
        share = float(true[n_phases] / total)
        each.append(WorkAt(None, share, float(true[n_phases]), 0.0, -1.0))
    of_work = scores(w.error for w in each)
    return WorkErrors(
        mean_abs_error=of_work.mean if of_work.count else 0.0,
        median_abs_error=of_work.median if of_work.count else 0.0,
        max_abs_error=of_work.largest if of_work.count else 0.0,
        total_error=float((predicted.sum() - true.sum()) / total),
        each=tuple(each),
    )


def _work_of_phases(model: Model, rows: ScaledRows, phases: int) -> np.ndarray:
    """Return the work of all ranks in each phase, as a run would have it."""
    found = rank_work(
        model,
        rows.grid,
        {name: getattr(rows, name) for name in ("rank", "item", "nbytes", "repeat")},
        widths=False,
    )
    return np.bincount(found.phases, weights=found.as_in_a_run().sum(axis=1), minlength=phases)


def items_wrong(model: Model, t: PointTable, rows: ScaledRows) -> list[int]:
    """Return the items whose calls at ``t.np`` are not all in the model's rows for that count."""
    of_row = _of_row(model, t, rows)
    return _wrong_items(model, t, rows, of_row, _calls(model, t, rows, of_row))


@dataclass(frozen=True)
class _Calls:
    """Calls of nodes, true and predicted, of each rank, partner and size.

    keys: (4, number): node, rank, partner (-1: of no relation), bytes of what is sized.
    """

    keys: np.ndarray
    true: np.ndarray
    predicted: np.ndarray


def _calls(model: Model, t: PointTable, rows: ScaledRows, of_row: np.ndarray) -> _Calls:
    """Return the calls of all nodes; of_row: item of each row of the table."""
    items = model.items
    node = np.array([it.node for it in items], dtype=np.int64)
    has_peer = np.array([it.relation is not None for it in items], dtype=bool)
    sized = np.array([it.kind in (SEND, COLLECTIVE, RECV, IO) for it in items], dtype=bool)
    kind, peer, _ = _of_groups(t)
    mine = np.flatnonzero(of_row < len(items))
    i = of_row[mine]
    sizes = np.isin(kind[mine], (SEND, COLLECTIVE, RECV, IO))
    columns = [
        np.concatenate([node[i], node[rows.item]]),
        np.concatenate([t.rank[mine], rows.rank]),
        np.concatenate([np.where(has_peer[i], peer[mine], -1), rows.peer]),
        np.concatenate(
            [np.where(sizes, t.nbytes[mine], 0), np.where(sized[rows.item], rows.nbytes, 0)]
        ),
    ]
    none = np.zeros(len(mine), dtype=np.int64), np.zeros(len(rows.rank), dtype=np.int64)
    keys, true = _sum_rows(columns, np.concatenate([t.count[mine], none[1]]))
    _, predicted = _sum_rows(columns, np.concatenate([none[0], rows.repeat]))
    return _Calls(np.array(keys), true, predicted)


def _agreement(calls: _Calls) -> dict[int, Agreement]:
    """Return the agreement of every node: calls and, of what is sized, their bytes.

    Calls are equal on the same rank, to the same partner, of the same size, with multiplicity.
    """
    node, nbytes = calls.keys[0], calls.keys[3]
    totals = {
        name: np.bincount(node, weights=v)
        for name, v in (
            ("true", calls.true),
            ("predicted", calls.predicted),
            ("equal", np.minimum(calls.true, calls.predicted)),
            ("true_bytes", calls.true * nbytes),
            ("predicted_bytes", calls.predicted * nbytes),
        )
    }
    return {
        k: Agreement(**{name: int(v[k]) for name, v in totals.items()})
        for k in np.unique(node).tolist()
    }


def _wrong_items(
    model: Model, t: PointTable, rows: ScaledRows, of_row: np.ndarray, calls: _Calls
) -> list[int]:
    """Return the items of which a rank's calls to a partner differ in number or size.

    Where messages of a node have no item at all, none of its items is right.
    """
    items = model.items
    differs = calls.true != calls.predicted
    bad = set(map(tuple, calls.keys[:3, differs].T.tolist()))
    nodes = _nodes_with_more(model, t, of_row)
    wrong = {k for k, item in enumerate(items) if item.node in nodes}
    has_peer = np.array([it.relation is not None for it in items] + [False], dtype=bool)
    peer = np.where(has_peer[of_row], _of_groups(t)[1], -1)
    for item, rank, partner in zip(
        np.concatenate([of_row, rows.item]).tolist(),
        np.concatenate([t.rank, rows.rank]).tolist(),
        np.concatenate([peer, rows.peer]).tolist(),
        strict=True,
    ):
        if item < len(items) and (items[item].node, rank, partner) in bad:
            wrong.add(item)
    return sorted(wrong)


def _nodes_with_more(model: Model, t: PointTable, of_row: np.ndarray) -> set[int]:
    """Return the nodes that have messages without an item in a table."""
    nodes: dict[tuple[str, str], list[Item]] = {}
    for item in model.items:
        nodes.setdefault((item.site, item.op), []).append(item)
    found = set()
    for group in np.unique(t.group[of_row == len(model.items)]).tolist():
        g = t.groups[group]
        for item in nodes.get((g.site, g.op), []):
            if item.kind in (SEND, RECV) and item.tag in (None, g.tag):
                found.add(item.node)
    return found


def _by_call(model: Model, agreement: Mapping[int, Agreement]) -> tuple[CallAgreement, ...]:
    """Return the agreement of every node under its site, operation and tag."""
    names = {it.node: it.key for it in model.items}
    return tuple(CallAgreement(*names[k], **vars(v)) for k, v in sorted(agreement.items()))


__all__ = [
    "compare",
    "items_wrong",
    "order_at",
    "overlap",
    "predicted_tallies",
    "true_collectives",
    "true_files",
    "true_triples",
]
