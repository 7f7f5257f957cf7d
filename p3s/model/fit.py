"""From the tables of several process counts to the scalable model, held out and refitted."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from p3s.characterize.tables import PointTable
from p3s.errors import P3SError
from p3s.model import guards, places, relations
from p3s.model.compare import compare
from p3s.model.elements import ExtentPool, differs
from p3s.model.evaluate import Model, generate
from p3s.model.nodes import (
    GridChoice,
    Node,
    cart_grids,
    choose_grid,
    collect_nodes,
    decide_splits,
    items_of,
    tag_splits,
)
from p3s.model.slots import EVEN, OPEN, ROOT, Item, fit_item
from p3s.model.tree import build_tree, phases_of
from p3s.model.work import fit_phase_work
from p3s.trace.ops import COMPLETION, RECV, SEND

MIN_COUNTS = 2
VERDICTS = ("exact", "fitted", "statistical", "ambiguous", "not seen", "unknown")


def fit_model(tables: Sequence[PointTable], typed: Collection[int] = ()) -> Model:
    """Fit the model to all tables given (no hold-out).

    typed: numbers among the program's arguments, a hint to extents where sizes leave them open.
    """
    tables = sorted(tables, key=lambda t: t.np)
    counts = [t.np for t in tables]
    if len(counts) < MIN_COUNTS:
        raise P3SError("model: one process count says nothing about scaling; "
                       "run `p3s characterize` at more counts")
    open_splits = tag_splits(tables)
    split = {k: bool(v) for k, v in open_splits.items()}
    nodes = collect_nodes(tables, split)
    choice = choose_grid(nodes, tables)
    if None in open_splits.values():
        split = decide_splits(open_splits, tables, choice)
        if any(split[k] for k, v in open_splits.items() if v is None):
            nodes = collect_nodes(tables, split)
            choice = choose_grid(nodes, tables)
    pool = ExtentPool(typed=frozenset(typed))
    varying = {v for t in tables for v in t.varying}
    entries: list[dict[str, Any]] = []
    work: list[tuple[dict[str, Any], Item]] = []
    for index, node in enumerate(nodes):
        for item in items_of(node, index, choice, tables):
            entry: dict[str, Any] = {
                "node": index, "site": node.site, "op": node.op, "kind": node.kind,
                "tag": node.tag, "tag_value": _tag_value(node, tables),
                "relation": item.relation, "place": item.place, "notes": item.notes}
            entries.append(entry)
            work.append((entry, item))
    # Items seen at many counts determine extents best; the others choose among those found,
    # and what even sizes left open is decided again when all extents are known.
    ranked = sorted(work, key=lambda w: _spread(w[1], counts), reverse=True)
    for entry, item in (*ranked, *ranked):
        if "slots" in entry and not any(w in s["why"] for s in entry["slots"]
                                        for w in (EVEN, OPEN)):
            continue
        unsure = f"{entry['site']}:{entry['op']}" in varying
        slots = entry["slots"] = fit_item(item, counts, pool, unsure)
        if entry["kind"] in (SEND, RECV) and item.relation is None:
            for slot in slots:
                slot["guard"] = None
        if item.place is not None and item.place["kind"] == "odd":
            for slot in slots:
                slot["guard"] = None
                slot["why"].append("no rule found for the communicator's members")
    unmodelled = _sum_ops(tables)
    for entry in entries:
        if entry["op"] in unmodelled:
            unknown: list[dict[str, Any]] = entry["slots"]
            for slot in unknown:
                slot["guard"] = None
                slot["why"].append("this kind of operation is not modelled")
    _follow_posts(entries, work, counts)
    tree, used = build_tree(entries, tables, choice.grids, split)
    for entry in entries:
        entry.update(phase=0, order=0, loop_start=None)
    phases = phases_of(tree, entries, used, choice.grids)
    model: Model = {
        "schema": "p3s.model", "schema_version": 1, "counts": counts,
        "grid": {"family": choice.family.to_json(), "text": choice.family.text(),
                 "dims": {str(n): list(g.dims) for n, g in choice.grids.items()},
                 "cart": bool(cart_grids(tables)[0]),
                 "considered": [[t, c] for t, c in choice.others]},
        "tag_splits": [[s, o, v] for (s, o), v in sorted(split.items())],
        "items": entries, "phases": phases, "work_unit": "cpu_ns",
        "sites": {k: list(v) for t in tables for k, v in t.sites.items()},
        "unmodelled_ops": unmodelled, "first_seen": _first_seen(nodes),
    }
    for phase in phases:
        phase["name"] = _phase_name(phase, entries)
    fit_phase_work(phases, entries, tables, choice.grids, split)
    for entry in entries:
        if entry["kind"] == COMPLETION:  # how many requests a call completes is no message
            completions: list[dict[str, Any]] = entry["slots"]
            for slot in completions:
                slot["why"] = [w for w in slot["why"] if "message size" not in w and w != EVEN]
    _judge(model, tables, choice)
    return model


def _tag_value(node: Node, tables: Sequence[PointTable]) -> int:
    tags = {t.groups[g].tag for t in tables if t.np in node.rows
            for g in np.unique(node.rows[t.np].group)}
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


def _follow_posts(entries: Sequence[dict[str, Any]], work: Sequence[tuple[dict[str, Any], Item]],
                  counts: Sequence[int]) -> None:
    """Completions whose number has no law of its own: as often as requests were posted."""
    posts = [k for k, e in enumerate(entries) if e["kind"] in (SEND, RECV)
             and e["op"].startswith(("MPI_I", "MPI_Send_init", "MPI_Recv_init"))]
    if not posts:
        return

    def totals(k: int) -> dict[int, np.ndarray]:
        item = work[k][1]
        return {n: np.bincount(item.rows[n].rank, weights=item.rows[n].count, minlength=n)
                for n in counts}

    cache = {k: totals(k) for k in posts}
    nodes: dict[int, list[int]] = {}
    for k in posts:
        nodes.setdefault(entries[k]["node"], []).append(k)
    groups = [*nodes.values(),
              [k for k in posts if entries[k]["kind"] == SEND],
              [k for k in posts if entries[k]["kind"] == RECV], posts]
    for a in nodes.values():
        for b in nodes.values():
            if entries[a[0]]["kind"] == RECV and entries[b[0]]["kind"] == SEND:
                groups.append(a + b)
    for k, entry in enumerate(entries):
        if entry["kind"] != COMPLETION:
            continue
        slot = entry["slots"][0]
        if len(entry["slots"]) == 1 and slot["guard"] is not None \
                and slot["count"].get("expr", [""])[0] == "num":
            continue
        mine = totals(k)
        for group in groups:
            sums = {n: sum(cache[j][n] for j in group) for n in counts}
            ratio = [(int(mine[n].sum()), int(np.sum(sums[n]))) for n in counts]
            num, den = max(ratio, key=lambda x: x[1])
            if den and num and all(np.array_equal(mine[n] * den, sums[n] * num)
                                   for n in counts):
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


def _judge(model: Model, tables: Sequence[PointTable], choice: GridChoice) -> None:
    """Give every item its verdict from what the model reproduces at the traced counts."""
    wrong: set[int] = set()
    for t in tables:
        wrong |= set(compare(model, t)["items_wrong"])
    for i, item in enumerate(model["items"]):
        slots = item["slots"]
        seen = {n for s in slots for n in s["seen"]}
        why = [w for s in slots for w in s["why"]] + item["notes"]
        if any(s["guard"] is None for s in slots):
            verdict = "unknown"
        elif any("stat" in s["count"] or "total" in s["count"]
                 or ("stat" in s["elements"] and item["kind"] != COMPLETION)
                 for s in slots) or ROOT in why:
            verdict = "statistical"
        elif any("direction open" in w or w in (EVEN, OPEN) for w in why):
            verdict = "ambiguous"
        elif any(a[0] == "above" for s in slots for a in s["guard"]):
            verdict = "not seen"
        elif i in wrong:
            verdict = "fitted"
            why.append("not reproduced at every traced count")
        elif len(seen) < 2 and len(tables) > 1:
            verdict = "ambiguous"
            why.append("seen at one count only")
        elif len(seen) < min(3, len(tables)):
            verdict = "fitted"  # what starts late is what most often goes on changing
            why.append("seen at two counts only")
        else:
            verdict = "exact"
        item["verdict"], item["why"] = verdict, sorted(set(why))


def hold_out(tables: Sequence[PointTable], typed: Collection[int] = ()
             ) -> tuple[dict[str, Any], set[tuple[str, str, Any]]]:
    """Fit without the largest count, compare there; return the report and the nodes missed."""
    tables = sorted(tables, key=lambda t: t.np)
    model = fit_model(tables[:-1], typed)
    try:
        result = compare(model, tables[-1])
    except P3SError as err:
        return {"n": tables[-1].np, "possible": False, "why": str(err)}, set()
    items = model["items"]
    # A mean that happens to round to the right number has not shown a rule.
    bare = [i for i, it in enumerate(items) if any(
        "expr" not in law and "follows" not in law for s in it["slots"]
        for law in ((s["count"],) if it["kind"] == COMPLETION else (s["count"], s["elements"])))]
    missed = {(items[i]["site"], items[i]["op"], items[i]["tag"])
              for i in (*result["items_wrong"], *bare)}
    for site in result["unseen_sites"]:
        missed.add((site, "", None))
    result["weights_missed"] = [_phase_key(model["phases"][w["phase"]], items)
                                for w in result["weights"]["each"] if w["true"] != w["predicted"]]
    result["phases_seen"] = [_phase_key(p, items) for p in model["phases"]]
    result["possible"] = True
    return result, missed


def build_model(tables: Sequence[PointTable], holdout: bool = True,
                typed: Collection[int] = ()) -> Model:
    """Return the model of all counts with the hold-out result and final verdicts in it.

    An item that the held-out fit missed is "fitted" at best: its rule changed with the last
    count and nothing has tested the new one.
    """
    model = fit_model(tables, typed)
    model["holdout"] = None
    if holdout and len(tables) > MIN_COUNTS:
        report, missed = hold_out(tables, typed)
        model["holdout"] = report
        for item in model["items"]:
            key = (item["site"], item["op"], item["tag"])
            if item["verdict"] == "exact" and (key in missed or (item["site"], "", None)
                                               in missed):
                item["verdict"] = "fitted"
                item["why"] = [*item["why"], "the fit without the largest count missed it"]
    _judge_weights(model)
    model["shares"] = shares(model, max(tables, key=lambda t: t.np))
    model["next"] = next_counts(model)
    return model


def _phase_key(phase: Mapping[str, Any], items: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a phase's calls, the same in a fit of fewer counts."""
    return sorted({f"{items[i]['site']}:{items[i]['op']}:{items[i]['tag']}"
                   for i in phase["items"]})


def _judge_weights(model: Model) -> None:
    """Give every phase's weight its verdict: exact needs a rule and a hold-out that met it."""
    held = model["holdout"] or {}
    missed, known = held.get("weights_missed", []), held.get("phases_seen", [])
    for phase in model["phases"]:
        law, key = phase["weight"], _phase_key(phase, model["items"])
        if "expr" not in law:
            phase["weight_verdict"] = "statistical"
        elif key not in missed and (key in known or (law["expr"][0] == "num"
                                                     and len(phase["weight_points"]) > 1)):
            phase["weight_verdict"] = "exact"
        else:
            phase["weight_verdict"] = "fitted"


def shares(model: Model, t: PointTable) -> dict[str, dict[str, float]]:
    """Return the share of events, bytes and time per verdict at one traced count."""
    from p3s.model.tree import assign

    split = {(s, o): bool(v) for s, o, v in model["tag_splits"]}
    rows = generate(model, t.np)
    assignment = assign(model["items"], t, rows.grid, split)
    out = {v: {"events": 0.0, "bytes": 0.0, "time": 0.0} for v in VERDICTS}
    total = {"events": 0.0, "bytes": 0.0, "time": 0.0}
    for r, gi, b, k, w, e in zip(t.rank, t.group, t.nbytes, t.count, t.work_ns, t.elapsed_ns,
                                 strict=True):
        i = assignment.item[(int(r), int(gi))]
        verdict = model["items"][i]["verdict"] if i < len(model["items"]) else "unknown"
        amount = {"events": float(k), "bytes": float(b) * float(k), "time": float(w) + float(e)}
        for name, value in amount.items():
            out[verdict][name] += value
            total[name] += value
    return {v: {k: x / total[k] if total[k] else 0.0 for k, x in d.items()}
            for v, d in out.items()}


def next_counts(model: Model) -> list[dict[str, Any]]:
    """Return process counts worth tracing next, with the reason."""
    from p3s.model.evaluate import model_grid

    open_axes = sorted({int(d) for it in model["items"] if it["verdict"] == "ambiguous"
                        for w in it["why"] if w.startswith("direction open in dimension ")
                        for d in w.removeprefix("direction open in dimension ").split(", ")})
    out: list[dict[str, Any]] = []
    top = max(model["counts"])
    if open_axes:
        for n in _acceptable(model, 8 * top + 28):
            try:
                dims = model_grid(model, n).dims
            except P3SError:
                continue
            if all(dims[d] >= 3 for d in open_axes):
                out.append({"n": n, "dims": list(dims), "why":
                            "more than two ranks in dimension "
                            + ", ".join(map(str, open_axes)) + " tell the direction"})
                break
    even = [s["elements"] for it in model["items"] for s in it["slots"]
            if EVEN in s["why"] or OPEN in s["why"]]
    if even:
        for n in _acceptable(model, 8 * top + 28):
            if n in model["counts"]:
                continue
            try:
                grid = model_grid(model, n)
            except P3SError:
                continue
            env = {"n": float(n), **{f"p{d}": float(p) for d, p in enumerate(grid.dims)}}
            if any(_uneven(law["expr"], env) if law["even"] else any(
                    differs(k, e, k2, e2, int(env[p])) for p, k, e, k2, e2 in law["rivals"])
                    for law in even):
                out.append({"n": n, "dims": list(grid.dims), "why":
                            "its blocks show how the program deals with a remainder"})
                break
    return out


def _acceptable(model: Model, top: int) -> list[int]:
    """Return counts that the program is likely to take: any on MPI's own grid, else of the kind
    it was traced at (powers of two, squares, cubes)."""
    counts = model["counts"]
    if not model["grid"]["cart"] and len(counts) > 2:
        for kind in (lambda n: n & (n - 1) == 0, lambda n: math.isqrt(n) ** 2 == n,
                     lambda n: round(n ** (1 / 3)) ** 3 == n):
            if all(kind(n) for n in counts):
                return [n for n in range(3, top) if kind(n)]
    return list(range(3, top))


def _uneven(expr: Any, env: Mapping[str, float]) -> bool:
    """Return whether some block of an expression has a remainder."""
    if not isinstance(expr, list):
        return False
    if expr[0] == "block" and expr[2][0] == "num" and expr[3][0] == "sym":
        return bool(expr[2][1] % int(env[expr[3][1]]))
    return any(_uneven(a, env) for a in expr[1:])


__all__ = ["build_model", "fit_model", "guards", "hold_out", "next_counts", "places",
           "relations", "shares"]
