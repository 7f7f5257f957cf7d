"""Loops whose number of iterations is no law of the process count, and numbers that the user
states.

A loop that runs until it converges, until time is up or as long as there is work runs as often
as the data, the machine or chance want. Such a loop is refused a law, with the reason; its user
may know the number (``p3s model STUDY --trips SITE=COUNT``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from p3s.characterize.tables import PointTable
from p3s.errors import P3SError
from p3s.laws.expr import mul, num
from p3s.laws.lawfinder import find_law
from p3s.model.grid.guards import GridAt
from p3s.model.sizes.slots import Item
from p3s.model.tree import assign

#: Relative spread over counts up to which the time of a loop counts as the same.
SAME_TIME = 0.08
#: Iterations have to differ this much before a time that does not is a sign.
_TURNS_DIFFER = 1.25
MAX_TRIPS = 1 << 40

Phase = dict[str, Any]
Entry = dict[str, Any]


def judge_trips(
    phases: Sequence[Phase],
    items: Sequence[Entry],
    tables: Sequence[PointTable],
    grids: Mapping[int, GridAt],
    split: Mapping[tuple[str, str], bool],
) -> None:
    """Give phases whose iterations are no law of the count "trips": {kind, reason}.

    kind: "repeats" (differs between runs at one count), "time" (ends when a time is over) or
    "data" (differs over the counts without a rule). The first takes away a law that seemed to
    fit, the second one that needs as many numbers as it explains.
    """
    recounted = {name: t.np for t in tables for name in t.recounted}
    seconds = _seconds(phases, items, tables, grids, split)
    for k, phase in enumerate(phases):
        if phase["parent"] is None or not phase["items"]:
            continue
        law, points = phase["weight"], phase["weight_points"]
        own = [f"{items[i]['site']}:{items[i]['op']}" for i in phase["items"]]
        loose = "expr" not in law or law["expr"][0] != "num" and law["free"] >= len(points) - 1
        differ = len(points) > 1 and max(v for _, v in points) >= _TURNS_DIFFER * min(
            v for _, v in points
        )
        if all(name in recounted for name in own):
            n = recounted[own[0]]
            _refuse(
                phase,
                "repeats",
                f"it runs differently often in the repeats at {n} "
                "processes: it may run until something converges, or as long as there is "
                "work; no rule in the process count is sought",
            )
        elif loose and differ and len(points) > 2 and _same(seconds[k]):
            _refuse(
                phase,
                "time",
                f"it has {_listed(points)} iterations, and takes about "
                f"{np.mean(seconds[k]):.3g} s at every count: it seems to end when a time "
                "is over",
            )
        elif "expr" not in law:
            _refuse(
                phase,
                "data",
                f"it has {_listed(points)} iterations, by no rule found: it may "
                "run until something converges, or as long as there is work",
            )


def _refuse(phase: Phase, kind: str, reason: str) -> None:
    points = phase["weight_points"]
    phase["trips"] = {"kind": kind, "reason": reason}
    if "expr" in phase["weight"]:
        phase["weight"] = {"stat": find_law(points, "work").fit.to_json()}


def _listed(points: Sequence[Sequence[int]]) -> str:
    return ", ".join(f"{v}" for _, v in points) + f" (at {', '.join(str(n) for n, _ in points)})"


def _same(values: Sequence[float]) -> bool:
    v = np.asarray(values, dtype=float)
    return bool(len(v) > 2 and v.min() > 0 and np.ptp(v) <= SAME_TIME * v.mean())


def _seconds(
    phases: Sequence[Phase],
    items: Sequence[Entry],
    tables: Sequence[PointTable],
    grids: Mapping[int, GridAt],
    split: Mapping[tuple[str, str], bool],
) -> list[list[float]]:
    """Return per phase, inner ones included, the mean time of its ranks at every count, in s."""
    out: list[list[float]] = [[] for _ in phases]
    inside = [list(_subtree(phases, k)) for k in range(len(phases))]
    for t in tables:
        if t.elapsed_ns.sum() == 0:  # under emulation times tell nothing
            continue
        phase_of = np.array([it["phase"] for it in items] + [len(phases)], dtype=np.int64)
        of_row = np.minimum(assign(items, t, grids[t.np], split).of_row, len(items))
        time = np.bincount(phase_of[of_row], (t.work + t.elapsed_ns).astype(float), len(phases) + 1)
        for k, mine in enumerate(inside):
            out[k].append(float(time[mine].sum()) / t.np / 1e9)
    return out


def _subtree(phases: Sequence[Phase], k: int) -> Iterator[int]:
    yield k
    for phase in phases:
        if phase["parent"] == k:
            yield from _subtree(phases, phase["phase"])


def resolve(model: Mapping[str, Any], where: str) -> int:
    """Return the phase that a user names: its number, a call site of its own, or a function.

    A function names the outermost loop with a call made in it or below it. Raises P3SError in
    one line when nothing or several loops fit.
    """
    phases, items = model["phases"], model["items"]
    if where.isdigit():
        if not 0 < int(where) < len(phases):
            raise P3SError(
                f"--trips {where}: no such phase; the loops are phases 1 to {len(phases) - 1}"
            )
        return int(where)
    found = [
        p["phase"]
        for p in phases
        if p["parent"] is not None
        and any(_is_at(model, items[i]["site"], where) for i in p["items"])
    ]
    if not found:
        raise P3SError(
            f"--trips {where}: no loop has a call of that site or function; "
            "p3s model without it shows them, phases can be named by their number"
        )
    around = [k for k in found if all(j in set(_subtree(phases, k)) for j in found)]
    if not around:
        raise P3SError(
            f"--trips {where}: fits the loops of phases "
            f"{', '.join(map(str, found))}; name one by its number"
        )
    return int(around[0])


def _is_at(model: Mapping[str, Any], site: str, where: str) -> bool:
    names = [
        frame.split()[0].split("(")[0].split("+0x")[0]
        for frame in model["sites"].get(site, [])
        if frame.split()
    ]
    return site == where or where in names


def per_turn(item: Item, turns: Mapping[int, int]) -> Item | None:
    """Return the item as it is in one iteration of a loop, None where its calls do not divide.

    turns: of the loop, per count.
    """
    rows = {}
    for n, r in item.rows.items():
        if not len(r.rank):
            rows[n] = r
            continue
        w = turns.get(n, 0)
        if not w or np.any(r.count % w):
            return None
        rows[n] = type(r)(
            **{
                **{f: getattr(r, f) for f in r.__dataclass_fields__},
                "count": r.count // w,
                "work": r.work // w,
            }
        )
    return Item(**{**{f: getattr(item, f) for f in item.__dataclass_fields__}, "rows": rows})


def stated(slots: Sequence[dict[str, Any]], trips: int) -> list[dict[str, Any]]:
    """Return slots fitted to one iteration for ``trips`` turns."""
    out = []
    for slot in slots:
        law = slot["count"]
        if "expr" in law:
            slot = {
                **slot,
                "count": {**law, "expr": mul(num(trips), law["expr"]), "per_turn": law["expr"]},
            }
        elif "total" in law:
            slot = {
                **slot,
                "count": {**law, "total": mul(num(trips), law["total"]), "per_turn": law["total"]},
            }
        out.append(slot)
    return out


def as_traced(model: Mapping[str, Any], n: int) -> dict[str, Any]:
    """Return the model with the iterations that stated loops had at a traced count."""
    told = {
        k: {int(m): int(v) for m, v in p["weight_points"]}.get(n)
        for p in model["phases"]
        if "stated" in p["weight"]
        for k in _subtree(model["phases"], p["phase"])
    }
    if not told:
        return dict(model)
    items = []
    for item in model["items"]:
        turns = told.get(item["phase"])
        slots = []
        for slot in item["slots"]:
            law = slot["count"]
            if turns is not None and "per_turn" in law:
                key = "expr" if "expr" in law else "total"
                slot = {**slot, "count": {**law, key: mul(num(turns), law["per_turn"])}}
            slots.append(slot)
        items.append({**item, "slots": slots})
    return {**model, "items": items}


def subtree_items(phases: Sequence[Phase], k: int) -> list[int]:
    """Return the items of a phase and of all phases inside it."""
    return sorted(i for j in _subtree(phases, k) for i in phases[j]["items"])


def state(phase: Phase, trips: int) -> None:
    """Give a phase the number of iterations that the user states."""
    phase["weight"] = {
        "expr": num(trips),
        "points": len(phase["weight_points"]),
        "free": 0,
        "stated": trips,
    }


def follow_counts(model: Mapping[str, Any]) -> None:
    """Let the order of events take the iterations of refused and stated loops from their calls."""
    if not model.get("order"):
        return
    loops = {loop["loop"]: loop for loop in model["order"]["loops"]}
    for phase in model["phases"]:
        if "trips" not in phase and "stated" not in phase["weight"]:
            continue
        around = [model["items"][i]["loops"] for i in phase["items"]]
        common = [level[0] for level in zip(*around, strict=False) if len(set(level)) == 1]
        own = [k for k in common if loops[k]["walk"] is None]
        if own:
            loops[own[-1]]["trips"] = [{**rule, "law": None} for rule in loops[own[-1]]["trips"]]
