"""How sure each rule is: verdicts of items and weights, shares, and which run would tell more."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from p3s.characterize.tables import PointTable
from p3s.errors import P3SError
from p3s.model.blocks import differs
from p3s.model.compare import items_wrong
from p3s.model.evaluate import Model, generate, model_grid
from p3s.model.slots import EVEN, OPEN, ROOT
from p3s.model.tree import assign
from p3s.trace.ops import COMPLETION

VERDICTS = ("exact", "fitted", "statistical", "ambiguous", "not seen", "unknown")


def judge_items(model: Model, tables: Sequence[PointTable]) -> None:
    """Give every item its verdict from what the model reproduces at the traced counts."""
    wrong: set[int] = set()
    for t in tables:
        wrong |= set(items_wrong(model, t))
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


def phase_key(phase: Mapping[str, Any], items: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a phase's calls, the same in a fit of fewer counts."""
    return sorted({f"{items[i]['site']}:{items[i]['op']}:{items[i]['tag']}"
                   for i in phase["items"]})


def judge_weights(model: Model) -> None:
    """Give every phase's weight its verdict: exact needs a rule and a hold-out that met it."""
    held = model["holdout"] or {}
    missed, known = held.get("weights_missed", []), held.get("phases_seen", [])
    for phase in model["phases"]:
        law, key = phase["weight"], phase_key(phase, model["items"])
        if "expr" not in law:
            phase["weight_verdict"] = "statistical"
        elif key not in missed and (key in known or (law["expr"][0] == "num"
                                                     and len(phase["weight_points"]) > 1)):
            phase["weight_verdict"] = "exact"
        else:
            phase["weight_verdict"] = "fitted"


def shares(model: Model, t: PointTable) -> dict[str, dict[str, float]]:
    """Return the share of events, bytes and time per verdict at one traced count."""
    split = {(s, o): bool(v) for s, o, v in model["tag_splits"]}
    rows = generate(model, t.np)
    assignment = assign(model["items"], t, rows.grid, split)
    number = np.array([VERDICTS.index(it["verdict"]) for it in model["items"]]
                      + [VERDICTS.index("unknown")], dtype=np.int64)
    of_row = number[np.minimum(assignment.of_row, len(model["items"]))]
    amounts = {"events": t.count.astype(float), "bytes": t.nbytes * t.count.astype(float),
               "time": (t.work + t.elapsed_ns).astype(float)}
    out: dict[str, dict[str, float]] = {v: {} for v in VERDICTS}
    total = {}
    for name, amount in amounts.items():
        total[name] = float(amount.sum())
        for v, x in zip(VERDICTS, np.bincount(of_row, amount, len(VERDICTS)), strict=True):
            out[v][name] = float(x)
    return {v: {k: x / total[k] if total[k] else 0.0 for k, x in d.items()}
            for v, d in out.items()}


def next_counts(model: Model) -> list[dict[str, Any]]:
    """Return process counts worth tracing next, with the reason."""
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
