"""How sure each rule is: verdicts of items and weights, and their shares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from p3s.characterize.tables import PointTable
from p3s.errors import P3SError
from p3s.laws.exact import exact_value
from p3s.laws.expr import Expr, symbols_of
from p3s.model.compare import items_wrong
from p3s.model.evaluate import Model, generate, model_grid
from p3s.model.grid import admissible
from p3s.model.nextcount import DIRECTION
from p3s.model.partners.irregular import sampled
from p3s.model.sizes.slots import EVEN, OPEN, ROOT
from p3s.model.tree import assign
from p3s.model.tripcounts import as_traced
from p3s.trace.ops import COMPLETION

VERDICTS = ("exact", "fitted", "statistical", "ambiguous", "not seen", "unknown")


#: Operations that post a request, as their names begin.
_POSTS = ("MPI_I", "MPI_Send_init", "MPI_Recv_init")


def judge_items(model: Model, tables: Sequence[PointTable]) -> None:
    """Give every item its verdict from what the model reproduces at the traced counts."""
    wrong: set[int] = set()
    values: dict[tuple[int, int], tuple[set[int], set[int]]] = {}
    for t in tables:
        there = as_traced(model, t.np)
        rows = generate(there, t.np)
        wrong |= set(items_wrong(there, t, rows))
        for i, k, size, times in np.unique(
            np.stack([rows.item, rows.slot, rows.nbytes, rows.repeat], axis=1), axis=0
        ).tolist():
            sizes, counts = values.setdefault((i, k), (set(), set()))
            sizes.add(size)
            counts.add(times)
    widest = [max(g) for g in zip(*(model_grid(model, t.np).dims for t in tables), strict=True)]
    for i, item in enumerate(model["items"]):
        slots = item["slots"]
        if (narrow := _narrow(item["relation"], widest)) and not any(
            w.startswith(DIRECTION) for w in item["notes"]
        ):
            item["notes"] = [*item["notes"], DIRECTION + ", ".join(map(str, narrow))]
        seen = {n for s in slots for n in s["seen"]}
        why = [w for s in slots for w in s["why"]] + item["notes"]
        if any(s["guard"] is None for s in slots):
            verdict = "unknown"
        elif (
            any(
                "stat" in s["count"]
                or "total" in s["count"]
                or ("stat" in s["elements"] and item["kind"] != COMPLETION)
                for s in slots
            )
            or ROOT in why
            or sampled(item["relation"])
        ):
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
        elif any(_parts_open(model, s) for s in slots):
            verdict = "ambiguous"
            why.append(EVEN)
        elif any(_as_many(s, values.get((i, k), (set(), set()))) for k, s in enumerate(slots)):
            verdict = "fitted"
            why.append("as many numbers were fitted as different values were seen")
        else:
            verdict = "exact"
        item["verdict"], item["why"] = verdict, sorted(set(why))
    _judge_completions(model)


def _parts_open(model: Model, slot: Mapping[str, Any]) -> bool:
    """Tell whether a slot's size or number is a fraction at counts the program may run at."""
    return any(
        "expr" in law and fraction_open(model, law["expr"])
        for law in (slot["elements"], slot["count"])
    )


def fraction_open(model: Model, expr: Expr) -> bool:
    """Tell whether a law of whole numbers has none at some count the program may run at.

    It divided evenly at every traced count: floor, ceil and others are as likely.
    """
    if not _divides(expr) or not symbols_of(expr) <= {"n", "p0", "p1", "p2", "p3"}:
        return False
    known = model["admissible"]
    if not known["sure"] and known["kind"] != "powers":  # counts may be the user's choice
        known = {**known, "kind": "any"}
    reach = 16 if known["kind"] == "powers" else 2
    for n in admissible.candidates(known, reach * max(model["counts"]) + 1):
        try:
            dims = model_grid(model, n).dims
        except P3SError:
            continue
        value = exact_value(expr, {"n": n, **{f"p{d}": p for d, p in enumerate(dims)}})
        if value is not None and value.denominator != 1:
            return True
    return False


def _divides(expr: Any) -> bool:
    """Return whether an expression divides other than by floor and the like."""
    if not isinstance(expr, list) or expr[0] in ("floor", "ceil", "quot", "mod", "block"):
        return False
    if expr[0] == "num":
        return bool(expr[2] != 1)
    return (expr[0] == "pow" and expr[2] < 0) or any(_divides(a) for a in expr[1:])


def _narrow(relation: Mapping[str, Any] | None, widest: Sequence[int]) -> list[int]:
    """Return the dimensions a relation moves along that never had more than two ranks.

    A shift either way, a mirror and an exchange are all the same there.
    """
    if relation is None or len(widest) < 2:
        return []
    axes = {d for d, v in enumerate(relation.get("vec", ())) if v}
    if isinstance(relation.get("axis"), int):
        axes.add(relation["axis"])
    return sorted(d for d in axes if d < len(widest) and widest[d] <= 2)


def _numbers(expr: Any) -> int:
    """Return how many numbers stand in an equation, not counting zeros, ones and exponents."""
    if not isinstance(expr, list):
        return 0
    if expr[0] == "num":
        return int(abs(expr[1]) != abs(expr[2]) and expr[1] != 0)
    return sum(_numbers(a) for a in expr[1:] if isinstance(a, list))


def _as_many(slot: Mapping[str, Any], seen: tuple[set[int], set[int]]) -> bool:
    """Tell whether a slot's size or number has a law of no more values than fitted numbers."""
    for law, distinct in ((slot["elements"], seen[0]), (slot["count"], seen[1])):
        if "expr" in law and law["expr"][0] != "num":
            free = max(law.get("free", 0), _numbers(law["expr"]))
            if free > 1 and free >= len(distinct):
                return True
    return False


def _judge_completions(model: Model) -> None:
    """How often requests are completed is no surer than how often they are posted."""
    items = model["items"]
    for item in items:
        if item["kind"] != COMPLETION or item["verdict"] != "exact":
            continue
        posts = {j for s in item["slots"] for j in s["count"].get("follows", ())} or {
            j
            for j, other in enumerate(items)
            if other["phase"] == item["phase"] and other["op"].startswith(_POSTS)
        }
        weak = [v for v in (_number_verdict(items[j]) for j in posts) if v != "exact"]
        if weak:
            item["verdict"] = max(weak, key=VERDICTS.index)
            if item["verdict"] == "unknown":  # the completions themselves have a rule
                item["verdict"] = "fitted"
            item["why"] = sorted({*item["why"], "no surer than the requests it completes"})


def _number_verdict(item: Mapping[str, Any]) -> str:
    """Return how sure it is how often an item happens on which rank, whatever its size."""
    verdict: str = item["verdict"]
    if verdict == "statistical" and not any(
        "stat" in s["count"] or "total" in s["count"] for s in item["slots"]
    ):
        return "exact"
    if verdict == "ambiguous" and not any(
        "direction open" in w or "seen at" in w for w in item["why"]
    ):
        return "exact"
    return verdict


def phase_key(phase: Mapping[str, Any], items: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a phase's calls, the same in a fit of fewer counts."""
    return sorted(
        {f"{items[i]['site']}:{items[i]['op']}:{items[i]['tag']}" for i in phase["items"]}
    )


def judge_weights(model: Model) -> None:
    """Give every phase's weight its verdict: exact needs a rule and a hold-out that met it."""
    held = model["holdout"] or {}
    missed, known = held.get("weights_missed", []), held.get("phases_seen", [])
    for phase in model["phases"]:
        law, key = phase["weight"], phase_key(phase, model["items"])
        if "stated" in law:
            phase["weight_verdict"] = "stated"
        elif "expr" not in law:
            phase["weight_verdict"] = "statistical"
        elif fraction_open(model, law["expr"]):
            phase["weight_verdict"] = "fitted"
        elif key not in missed and (
            key in known or (law["expr"][0] == "num" and len(phase["weight_points"]) > 1)
        ):
            phase["weight_verdict"] = "exact"
        else:
            phase["weight_verdict"] = "fitted"


def shares(model: Model, t: PointTable) -> dict[str, dict[str, float]]:
    """Return the share of events, bytes and time per verdict at one traced count."""
    split = {(s, o): bool(v) for s, o, v in model["tag_splits"]}
    rows = generate(model, t.np)
    assignment = assign(model["items"], t, rows.grid, split)
    number = np.array(
        [VERDICTS.index(it["verdict"]) for it in model["items"]] + [VERDICTS.index("unknown")],
        dtype=np.int64,
    )
    of_row = number[np.minimum(assignment.of_row, len(model["items"]))]
    amounts = {
        "events": t.count.astype(float),
        "bytes": t.nbytes * t.count.astype(float),
        "time": (t.work + t.elapsed_ns).astype(float),
    }
    out: dict[str, dict[str, float]] = {v: {} for v in VERDICTS}
    total = {}
    for name, amount in amounts.items():
        total[name] = float(amount.sum())
        for v, x in zip(VERDICTS, np.bincount(of_row, amount, len(VERDICTS)), strict=True):
            out[v][name] = float(x)
    return {v: {k: x / total[k] if total[k] else 0.0 for k, x in d.items()} for v, d in out.items()}
