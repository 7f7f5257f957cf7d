"""Compare a model with a captured run: triples, collectives, weights, work; nothing left out."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from p3s.characterize.structure import structure
from p3s.characterize.tables import PointTable
from p3s.model.evaluate import Model, ScaledRows, generate, phase_weight
from p3s.model.guards import GridAt
from p3s.model.tree import assign, phase_stages
from p3s.trace.ops import COLLECTIVE, RECV, SEND

Tally = Counter[tuple[Any, ...]]


def true_triples(t: PointTable) -> Tally:
    """Return (source, destination, bytes) -> messages sent, over all ranks."""
    out: Tally = Counter()
    for r, gi, b, k in zip(t.rank, t.group, t.nbytes, t.count, strict=True):
        g = t.groups[gi]
        if g.kind == SEND and g.peer >= 0:
            out[(int(r), g.peer, int(b))] += int(k)
    return out


def true_collectives(t: PointTable) -> Tally:
    """Return (operation, members, bytes) -> calls, counted on every rank."""
    out: Tally = Counter()
    for gi, b, k in zip(t.group, t.nbytes, t.count, strict=True):
        g = t.groups[gi]
        if g.kind == COLLECTIVE:
            members = t.places[g.comm].members if 0 <= g.comm < len(t.places) else ()
            out[(g.op, members, int(b))] += int(k)
    return out


def predicted_tallies(model: Model, rows: ScaledRows) -> tuple[Tally, Tally]:
    """Return the triples and collectives of a scaled trace."""
    triples: Tally = Counter()
    colls: Tally = Counter()
    kinds = [it["kind"] for it in model["items"]]
    ops = [it["op"] for it in model["items"]]
    for r, i, q, b, k, c in zip(rows.rank, rows.item, rows.peer, rows.nbytes, rows.repeat,
                                rows.comm, strict=True):
        if kinds[i] == SEND and q >= 0:
            triples[(int(r), int(q), int(b))] += int(k)
        elif kinds[i] == COLLECTIVE and c >= 0:
            colls[(ops[i], rows.members[c], int(b))] += int(k)
    return triples, colls


def overlap(true: Tally, predicted: Tally) -> dict[str, int]:
    """Return {true, predicted, equal} with multiplicity."""
    return {"true": sum(true.values()), "predicted": sum(predicted.values()),
            "equal": sum((true & predicted).values())}


def _true_weights(model: Model, t: PointTable, grid: GridAt) -> list[dict[str, Any]]:
    """Fold the run on its own and pair its loops with the model's phases by their calls."""
    s = structure([t])
    loops = [({s.nodes[v] for v in loop.nodes()}, max(loop.turns.values(), default=0))
             for loop in s.tree.loops()]
    present = set(s.nodes)
    everything = {c["phase"]: {(model["items"][i]["site"], model["items"][i]["op"])
                               for i in c["items"]} for c in model["phases"]}
    for phase in reversed(model["phases"]):  # inner phases add their calls to those around
        if phase["parent"] is not None:
            everything[phase["parent"]] |= everything[phase["phase"]]
    out = []
    for phase in model["phases"]:
        mine = everything[phase["phase"]]
        true = 0
        if mine & present:
            best = max(loops, key=lambda lp: (len(lp[0] & mine) / len(lp[0] | mine), -len(lp[0])))
            true = best[1] // max(phase_stages(phase, model["items"], grid), 1)
        out.append({"phase": phase["phase"], "true": true,
                    "predicted": phase_weight(phase, grid)})
    return out


def compare(model: Model, t: PointTable) -> dict[str, Any]:
    """Return how the model's trace at ``t.np`` agrees with the captured run.

    Keys: p2p_triples and collectives {true, predicted, equal}; weights {phases, exact, each};
    work {mean_abs_error, max_abs_error} over the phases with more than 1 % of the work, as
    relative errors of the total; unmodelled {events, share_of_time}; nodes that differ.
    """
    split = {(s, o): bool(v) for s, o, v in model["tag_splits"]}
    rows = generate(model, t.np)
    triples, colls = predicted_tallies(model, rows)
    true_p2p, true_coll = true_triples(t), true_collectives(t)
    weights = _true_weights(model, t, rows.grid)
    assignment = assign(model["items"], t, rows.grid, split)
    n_items = len(model["items"])
    modelled = np.array([any(s["guard"] is not None for s in it["slots"])
                         for it in model["items"]] + [False])
    of_row = np.array([min(assignment.item[(int(r), int(g))], n_items)
                       for r, g in zip(t.rank, t.group, strict=True)], dtype=np.int64)
    time_ns = t.work + t.elapsed_ns
    left_out = ~modelled[of_row]
    n_phases = len(model["phases"])
    phase_of = np.array([it["phase"] for it in model["items"]] + [n_phases], dtype=np.int64)
    true_work = np.bincount(phase_of[of_row], weights=t.work, minlength=n_phases + 1)
    pred_work = np.bincount(rows.phase, weights=rows.work * rows.repeat,
                            minlength=n_phases + 1)
    total = max(float(true_work.sum()), 1.0)
    each_work: list[dict[str, Any]] = [{"phase": int(k), "share": float(true_work[k] / total),
                  "true": float(true_work[k]), "predicted": float(pred_work[k]),
                  "error": float((pred_work[k] - true_work[k]) / true_work[k])}
                 for k in range(n_phases) if true_work[k] > 0.01 * total]
    if true_work[n_phases] > 0.01 * total:  # work before events that no item explains
        each_work.append({"phase": None, "share": float(true_work[n_phases] / total),
                          "true": float(true_work[n_phases]), "predicted": 0.0, "error": -1.0})
    errors = [abs(w["error"]) for w in each_work]
    return {
        "n": t.np,
        "p2p_triples": overlap(true_p2p, triples),
        "collectives": overlap(true_coll, colls),
        "weights": {"phases": len(weights),
                    "exact": sum(w["true"] == w["predicted"] for w in weights),
                    "each": weights},
        "work": {"mean_abs_error": float(np.mean(errors)) if errors else 0.0,
                 "max_abs_error": float(np.max(errors)) if errors else 0.0,
                 "total_error": float((pred_work.sum() - true_work.sum()) / total),
                 "each": each_work},
        "unmodelled": {"events": int(t.count[left_out].sum()),
                       "share_of_time": float(time_ns[left_out].sum()
                                              / max(float(time_ns.sum()), 1.0))},
        "items_wrong": _wrong_items(model, t, rows, of_row),
        "unseen_sites": sorted({t.groups[g].site for g, i in zip(t.group, of_row, strict=True)
                                if i == n_items}),
    }


def _wrong_items(model: Model, t: PointTable, rows: ScaledRows, of_row: np.ndarray) -> list[int]:
    """Return the items of communication whose calls are not all predicted."""
    true: dict[int, Tally] = {}
    for i, r, gi, b, k in zip(of_row, t.rank, t.group, t.nbytes, t.count, strict=True):
        if i < len(model["items"]):
            g = t.groups[gi]
            peer = g.peer if model["items"][i]["relation"] is not None else -1
            size = int(b) if g.kind in (SEND, COLLECTIVE, RECV) else 0
            true.setdefault(_node_of(model, int(i)), Counter())[(int(r), peer, size)] += int(k)
    pred: dict[int, Tally] = {}
    for i, r, q, b, k in zip(rows.item, rows.rank, rows.peer, rows.nbytes, rows.repeat,
                             strict=True):
        kind = model["items"][i]["kind"]
        size = int(b) if kind in (SEND, COLLECTIVE, RECV) else 0
        pred.setdefault(_node_of(model, int(i)), Counter())[(int(r), int(q), size)] += int(k)
    return sorted(i for i in range(len(model["items"]))
                  if true.get(_node_of(model, i), Counter())
                  != pred.get(_node_of(model, i), Counter()))


def _node_of(model: Model, i: int) -> int:
    node: int = model["items"][i]["node"]
    return node


__all__ = ["compare", "overlap", "predicted_tallies", "true_collectives",
           "true_triples"]
