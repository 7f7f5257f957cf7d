"""From the tables of several process counts to the scalable model, held out and refitted."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from p3s.characterize.structure import structure
from p3s.characterize.tables import CPU, INSTRUCTIONS, PointTable
from p3s.characterize.unmodelled import unmodelled_calls
from p3s.errors import P3SError
from p3s.laws.expr import mul, num
from p3s.laws.lawfinder import find_law
from p3s.model.aside import Aside
from p3s.model.compare import compare
from p3s.model.evaluate import Model, generate
from p3s.model.grid import admissible
from p3s.model.grid.check import misled, settled
from p3s.model.grid.choose import GridChoice, cart_grids, choose_grid, decide_splits
from p3s.model.grid.nodes import Node, collect_nodes, tag_splits
from p3s.model.grid.stated import Contradiction, Statement
from p3s.model.growth import growth
from p3s.model.judge import judge_items, judge_weights, phase_key, shares
from p3s.model.measured import add_measured
from p3s.model.nextcount import next_counts
from p3s.model.order.fit import fit_order
from p3s.model.order.turns import with_turns
from p3s.model.partners.irregular import sample_relation
from p3s.model.partners.items import empty_rows, items_of
from p3s.model.sizes.amounts import fit_amounts
from p3s.model.sizes.blocks import ExtentPool
from p3s.model.sizes.slots import EVEN, NO_SIZE, OPEN, Item, fit_item, sample_slot
from p3s.model.tree import items_of_nodes, phases_of, weight_law
from p3s.model.tripcounts import (
    as_traced,
    follow_counts,
    judge_trips,
    per_turn,
    resolve,
    state,
    stated,
    subtree_items,
)
from p3s.model.work.segments import fit_phase_work
from p3s.trace.ops import COLLECTIVE, COMPLETION, HALF_OF_ONE, RECV, SEND, leaves_request

MIN_COUNTS = 2
#: Share of a node's messages without a rule from which on all are taken for a sample.
LOOSE_SHARE = 0.3
Entry = dict[str, Any]


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
    nodes, choice, split = _nodes_on_grid(tables, known or None)
    work = _items(nodes, choice, tables)
    unmodelled = _sum_ops(tables)
    _fit_items(work, counts, tables, ExtentPool(typed=frozenset(typed)), unmodelled)
    work = _with_samples(work, nodes, tables, unmodelled)
    entries = [entry for entry, _ in work]
    fit_amounts(entries, {n: g.dims for n, g in choice.grids.items()})
    _follow_posts(entries, work, counts)
    of_node = items_of_nodes(tree, entries, tables, choice.grids, split)
    for entry in entries:
        entry.update(phase=0, order=0, loop_start=None)
    phases = phases_of(tree, of_node, entries, choice.grids)
    for phase in phases:
        phase["name"] = _phase_name(phase, entries)
    fit_phase_work(phases, entries, tables, choice.grids, split)
    model: Model = {
        "schema": "p3s.model",
        "schema_version": 1,
        "counts": counts,
        "grid": {
            "family": choice.family.to_json(),
            "text": choice.family.text(),
            "dims": {str(n): list(g.dims) for n, g in choice.grids.items()},
            "cart": bool(cart_grids(tables)[0]),
            "considered": [[t, c] for t, c in choice.others],
            **({"stated": known.to_json()} if known else {}),
        },
        "tag_splits": [[s, o, v] for (s, o), v in sorted(split.items())],
        "items": entries,
        "phases": phases,
        "work_unit": work_unit,
        "work_units": {str(t.np): t.work_unit for t in tables},
        "tracing": {str(t.np): t.tracing for t in tables},
        "sites": {k: list(v) for t in tables for k, v in t.sites.items()},
        "unmodelled_ops": unmodelled,
        "not_modelled": unmodelled_calls(tables),
        "first_seen": _first_seen(nodes),
        "growth": growth(tables, entries),
    }
    powers = choice.family.kind == "power2" or any(
        e["relation"] is not None
        and e["relation"]["kind"] == "xor"
        and e["relation"].get("axis") is None
        and "fold" not in e["relation"]
        for e in entries
    )
    model["admissible"] = admissible.learn(counts, failed, model["grid"]["cart"], powers)
    judge_trips(phases, entries, tables, choice.grids, split)
    for where, count in sorted((trips or {}).items()):
        _state_trips(model, work, resolve(model, where), count)
    model["order"] = fit_order(
        model, tables, tree, {n: generate(as_traced(model, n), n) for n in counts}, choice.grids
    )
    follow_counts(model)
    judge_items(model, tables)
    return model


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
    tables: Sequence[PointTable], known: Statement | None
) -> tuple[list[Node], GridChoice, dict[tuple[str, str], bool]]:
    """Return the nodes, the program's grid, and at which places tags make nodes."""
    open_splits = tag_splits(tables)
    split = {k: bool(v) for k, v in open_splits.items()}
    nodes = collect_nodes(tables, split)
    choice = choose_grid(nodes, tables, known)
    if None in open_splits.values():
        split = decide_splits(open_splits, tables, choice)
        if any(split[k] for k, v in open_splits.items() if v is None):
            nodes = collect_nodes(tables, split)
            choice = choose_grid(nodes, tables, known)
    return nodes, choice, split


def _items(
    nodes: Sequence[Node], choice: GridChoice, tables: Sequence[PointTable]
) -> list[tuple[Entry, Item]]:
    """Return every item with its entry in the model, slots still to come."""
    return [
        (
            {
                "node": index,
                "site": node.site,
                "op": node.op,
                "kind": node.kind,
                "tag": node.tag,
                "tag_value": _tag_value(node, tables),
                "relation": item.relation,
                "place": item.place,
                "notes": item.notes,
            },
            item,
        )
        for index, node in enumerate(nodes)
        for item in items_of(node, index, choice, tables)
    ]


def _fit_items(
    work: Sequence[tuple[Entry, Item]],
    counts: Sequence[int],
    tables: Sequence[PointTable],
    pool: ExtentPool,
    unmodelled: Mapping[str, int],
) -> None:
    """Fit the slots of all items.

    Items seen at many counts determine extents best; the others choose among those found, and
    what their sizes left open is decided again when all extents are known.
    """
    varying = {v for t in tables for v in t.moved}
    ranked = sorted(work, key=lambda w: _spread(w[1], counts), reverse=True)
    for entry, item in (*ranked, *ranked):
        if "slots" in entry and not any(s["elements"].get("open") for s in entry["slots"]):
            continue
        entry["slots"] = fit_item(
            item, list(counts), pool, f"{entry['site']}:{entry['op']}" in varying
        )
    for entry, item in work:
        why = None
        if entry["op"] in unmodelled:
            why = "this kind of operation is not modelled"
        elif entry["kind"] in (SEND, RECV) and item.relation is None:
            why = "no rule found for the partners"
        elif item.place is not None and item.place["kind"] == "odd":
            why = "no rule found for the communicator's members"
        for slot in entry["slots"]:
            if why is not None:
                slot["guard"] = None
                slot["why"].append(why)
            if entry["kind"] == COMPLETION:  # how many requests a call completes is no message
                slot["why"] = [w for w in slot["why"] if w not in (EVEN, OPEN, NO_SIZE)]


def _with_samples(
    work: Sequence[tuple[Entry, Item]],
    nodes: Sequence[Node],
    tables: Sequence[PointTable],
    unmodelled: Mapping[str, int],
) -> list[tuple[Entry, Item]]:
    """Let a sample stand for all partners of a node whose messages mostly have no rule."""
    counts = [t.np for t in tables]
    moved = {v for t in tables for v in t.moved}
    by_node: dict[int, list[tuple[Entry, Item]]] = {}
    for entry, item in work:
        by_node.setdefault(entry["node"], []).append((entry, item))
    out: list[tuple[Entry, Item]] = []
    for k, mine in by_node.items():
        entry, item = mine[0]
        sample = None
        if (
            entry["kind"] in (SEND, RECV)
            and entry["op"] not in unmodelled
            and f"{entry['site']}:{entry['op']}" not in moved
        ):
            rows = nodes[k].rows
            loose = [
                sum(int(i.rows[n].count.sum()) for n in counts)
                for e, i in mine
                if any(s["guard"] is None for s in e["slots"])
            ]
            if sum(loose) > LOOSE_SHARE * sum(int(r.count.sum()) for r in rows.values()):
                sample = sample_relation(
                    {n: (r.rank[r.peer >= 0], r.peer[r.peer >= 0]) for n, r in rows.items()},
                    entry["kind"] == SEND,
                )
        if sample is None:
            out += mine
            continue
        one = Item(
            {n: r for n in counts for r in [rows.get(n, empty_rows())]},
            {n: np.zeros(len(rows[n].rank) if n in rows else 0, dtype=np.int64) for n in counts},
            None,
            {n: np.ones((1, n), dtype=bool) for n in counts},
            item.grids,
            sample,
            item.place,
        )
        out.append(
            ({**entry, "relation": sample, "notes": [], "slots": [sample_slot(one, counts)]}, one)
        )
    return out


def _tag_value(node: Node, tables: Sequence[PointTable]) -> int:
    tags = {
        t.groups[g].tag
        for t in tables
        if t.np in node.rows
        for g in np.unique(node.rows[t.np].group)
    }
    return tags.pop() if len(tags) == 1 else -1


def _spread(item: Item, counts: Sequence[int]) -> tuple[int, int]:
    seen = [n for n in counts if len(item.rows[n].rank)]
    sizes = {int(b) for n in seen for b in np.unique(item.rows[n].nbytes)}
    return (len(seen), len(sizes))


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


def _state_trips(model: Model, work: Sequence[tuple[Entry, Item]], k: int, trips: int) -> None:
    """Give a loop the number of iterations that the user states, and all inside it in
    proportion."""
    phases, turns = model["phases"], dict(model["phases"][k]["weight_points"])
    grids = {n: item.grids[n] for _, item in work[:1] for n in item.grids}
    for i in subtree_items(phases, k):
        entry, item = work[i]
        once = per_turn(item, turns)
        if once is not None and all(
            s["guard"] is not None and "follows" not in s["count"] for s in entry["slots"]
        ):
            entry["slots"] = stated(fit_item(once, model["counts"], ExtentPool(), False), trips)
    for phase in phases:
        points = phase["weight_points"]
        if phase["phase"] != k and not set(phase["items"]) <= set(subtree_items(phases, k)):
            continue
        if not phase["items"] or any(n not in turns for n, _ in points):
            continue
        work_points = [[n, v * trips / turns[n]] for n, v in phase["work"].get("points", [])]
        phase["work"].update(points=work_points, law=find_law(work_points, "work").fit.to_json())
        if phase["phase"] != k and all(v % turns[n] == 0 for n, v in points):
            law = weight_law([n for n, _ in points], [v // turns[n] for n, v in points], grids)
            if "expr" in law:
                phase["weight"] = {**law, "expr": mul(num(trips), law["expr"])}
                phase.pop("trips", None)
    state(phases[k], trips)


def _follow_posts(
    entries: Sequence[dict[str, Any]],
    work: Sequence[tuple[dict[str, Any], Item]],
    counts: Sequence[int],
) -> None:
    """Completions whose number has no law of its own: as often as requests were posted."""
    posts = [
        k
        for k, e in enumerate(entries)
        if leaves_request(e["op"])
        or (
            e["kind"] in (SEND, RECV)
            and e["op"] not in HALF_OF_ONE
            and e["op"].startswith(("MPI_I", "MPI_Send_init", "MPI_Recv_init"))
        )
    ]
    if not posts:
        return

    def totals(k: int) -> dict[int, np.ndarray]:
        item = work[k][1]
        return {
            n: np.bincount(item.rows[n].rank, weights=item.rows[n].count, minlength=n)
            for n in counts
        }

    cache = {k: totals(k) for k in posts}
    nodes: dict[int, list[int]] = {}
    for k in posts:
        nodes.setdefault(entries[k]["node"], []).append(k)
    groups = [
        *nodes.values(),
        [k for k in posts if entries[k]["kind"] == SEND],
        [k for k in posts if entries[k]["kind"] == RECV],
        [k for k in posts if entries[k]["kind"] == COLLECTIVE],
        [k for k in posts if entries[k]["kind"] != COLLECTIVE],
        posts,
    ]
    for a in nodes.values():
        for b in nodes.values():
            if entries[a[0]]["kind"] == RECV and entries[b[0]]["kind"] == SEND:
                groups.append(a + b)
    for k, entry in enumerate(entries):
        if entry["kind"] != COMPLETION:
            continue
        slot = entry["slots"][0]
        if (
            len(entry["slots"]) == 1
            and slot["guard"] is not None
            and slot["count"].get("expr", [""])[0] == "num"
        ):
            continue
        mine = totals(k)
        for group in groups:
            sums = {n: sum(cache[j][n] for j in group) for n in counts}
            ratio = [(int(mine[n].sum()), int(np.sum(sums[n]))) for n in counts]
            num, den = max(ratio, key=lambda x: x[1])
            if den and num and all(np.array_equal(mine[n] * den, sums[n] * num) for n in counts):
                g = int(np.gcd(num, den))
                if den // g > 64:
                    continue
                slot = _merged_completion(entry["slots"])
                slot["guard"] = []
                slot["count"] = {"follows": list(group), "factor": [num // g, den // g]}
                slot["why"] = []
                entry["slots"] = [slot]
                break


def _merged_completion(slots: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Keep one slot of a completion; how many requests one call completes becomes a mean."""
    return dict(slots[0])


def _phase_name(phase: Mapping[str, Any], items: Sequence[Mapping[str, Any]]) -> str:
    if phase["parent"] is None:
        return "outside loops"
    ops = list(dict.fromkeys(items[i]["op"].removeprefix("MPI_") for i in phase["items"]))
    ops = [o for o in ops if o != "Sendrecv_recv"]
    return "+".join(ops[:5]) + ("+..." if len(ops) > 5 else "") or "nest"


def hold_out(
    tables: Sequence[PointTable],
    typed: Collection[int] = (),
    trips: Mapping[str, int] | None = None,
    known: Statement | None = None,
) -> tuple[dict[str, Any], set[tuple[str, str, Any]]]:
    """Fit without the largest count, compare there; return the report and the nodes missed."""
    tables = sorted(tables, key=lambda t: t.np)
    model = fit_model(tables[:-1], typed, trips=trips, known=known)
    try:
        result = compare(model, tables[-1])
    except P3SError as err:
        return {"n": tables[-1].np, "possible": False, "why": str(err)}, set()
    items = model["items"]
    # A mean that happens to round to the right number has not shown a rule.
    bare = [
        i
        for i, it in enumerate(items)
        if any(
            "expr" not in law and "follows" not in law
            for s in it["slots"]
            for law in ((s["count"],) if it["kind"] == COMPLETION else (s["count"], s["elements"]))
        )
    ]
    missed = {
        (items[i]["site"], items[i]["op"], items[i]["tag"]) for i in (*result["items_wrong"], *bare)
    }
    for site in result["unseen_sites"]:
        missed.add((site, "", None))
    result["weights_missed"] = [
        phase_key(model["phases"][w["phase"]], items)
        for w in result["weights"]["each"]
        if w["true"] != w["predicted"]
    ]
    result["phases_seen"] = [phase_key(p, items) for p in model["phases"]]
    result["possible"] = True
    return result, missed


def _held_out(
    tables: Sequence[PointTable],
    typed: Collection[int],
    trips: Mapping[str, int] | None = None,
    known: Statement | None = None,
) -> dict[str, Any]:
    """Return :func:`hold_out` as plain data."""
    report, missed = hold_out(tables, typed, trips, known)
    return {"report": report, "missed": sorted(missed, key=repr)}


def build_model(
    tables: Sequence[PointTable],
    holdout: bool = True,
    typed: Collection[int] = (),
    failed: Sequence[int] = (),
    trips: Mapping[str, int] | None = None,
    known: Statement | None = None,
) -> Model:
    """Return the model of all counts with the hold-out result and final verdicts in it.

    typed, failed, trips, known: as of :func:`fit_model`; held out, a loop with stated iterations
    gets those it had at that count. Raises Contradiction where the traces do not allow what the
    user says of the grid.

    An item that the held-out fit missed is "fitted" at best: its rule changed with the last
    count and nothing has tested the new one.
    """
    wanted = holdout and len(tables) > MIN_COUNTS
    said = known
    known, dropped = settled(tables, known)
    aside = Aside(lambda: _held_out(tables, typed, known=known)) if wanted and not trips else None
    model = fit_model(tables, typed, failed, trips, known)
    model["holdout"] = None
    if wanted:
        turns = _turns_at_last(model, trips or {})
        found = aside.result() if aside is not None else _held_out(tables, typed, turns, known)
        why = (
            misled(model, found["report"], lambda: _held_out(tables, typed, turns)["report"])
            if known
            else ""
        )
        if known and why:
            if known.by_user:
                raise Contradiction(why)
            model = build_model(tables, holdout, typed, failed, trips)
            model["grid"]["dropped"] = {"said": known.to_json(), "why": why}
            return model
        _take_hold_out(model, found)
    if said and dropped:
        model["grid"]["dropped"] = {"said": said.to_json(), "why": dropped}
    judge_weights(model)
    model["shares"] = shares(model, max(tables, key=lambda t: t.np))
    add_measured(model, tables)
    model["next"] = next_counts(model)
    return model


def _turns_at_last(model: Model, trips: Mapping[str, int]) -> dict[str, int]:
    """Return the iterations that loops with stated iterations had at the largest count, by their
    names."""
    last = max(model["counts"])
    return {
        where: dict(model["phases"][resolve(model, where)]["weight_points"]).get(last, 0)
        for where in trips
    }


def _take_hold_out(model: Model, found: Mapping[str, Any]) -> None:
    """Put the hold-out into the model; what it missed is no longer exact."""
    report = model["holdout"] = found["report"]
    missed = {(site, op, tag) for site, op, tag in found["missed"]}
    agreed = {(s["site"], s["op"], s["tag"]): s for s in report.get("slots", [])}
    for item in model["items"]:
        key = (item["site"], item["op"], item["tag"])
        met = key not in missed and (item["site"], "", None) not in missed
        if report["possible"]:
            item["met_holdout"] = met
        if key in agreed:
            item["holdout"] = {
                k: v for k, v in agreed[key].items() if k not in ("site", "op", "tag")
            }
        if item["verdict"] == "exact" and not met:
            item["verdict"] = "fitted"
            item["why"] = [*item["why"], "the fit without the largest count missed it"]
