"""Calls that are first made above the smallest count: how much a still larger count may hide.

Code that runs for the first time above the largest traced count cannot be known. What can be
said is whether the set of calls was still growing there, and how much those that came last are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from p3s.characterize.tables import PointTable
from p3s.text import processes

#: Sites named per count.
MAX_NAMED = 8
#: Of them in a sentence.
_SHOWN = 3


def growth(tables: Sequence[PointTable], items: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return {still, steps, bound}: what each count above the smallest showed for the first time.

    steps: per count {n, calls, ruled, named, share}; calls: (site, operation) first seen there;
    ruled: how many of them have a rule that says why not before; named: where some of them are;
    share: of events, bytes and time at that count. still: calls without such a rule came with
    the largest count. bound: the largest shares of calls without a rule over all steps, what the
    next step may hold if the program goes on as before.
    """
    ruled = _ruled(items)
    tables = sorted(tables, key=lambda t: t.np)
    seen = {(g.site, g.op) for g in tables[0].groups}
    steps: list[dict[str, Any]] = []
    for t in tables[1:]:
        keys = [(g.site, g.op) for g in t.groups]
        new = sorted({k for k in keys if k not in seen})
        seen.update(new)
        loose = {k for k in new if k not in ruled}
        of_row = np.array([k in loose for k in keys], dtype=bool)[t.group]
        step = {
            "n": t.np,
            "calls": len(new),
            "ruled": len(new) - len(loose),
            "named": [
                {"site": s, "op": op, "frame": (t.sites.get(s) or ("?",))[0]}
                for s, op in sorted(loose or new)[:MAX_NAMED]
            ],
            "share": _shares(t, of_row),
        }
        steps.append(step)
    bound = {
        k: max((s["share"][k] for s in steps), default=0.0) for k in ("events", "bytes", "time")
    }
    still = bool(steps) and steps[-1]["calls"] > steps[-1]["ruled"]
    return {"still": still, "steps": steps, "bound": bound}


def text(found: Mapping[str, Any], places: Mapping[str, str] | None = None) -> list[str]:
    """Return in words what grew, and the bound; nothing where the set of calls stood still.

    places: where a site is, as function and line; without, its innermost frame is shown.
    """
    out = [_step_text(step, places or {}) for step in found["steps"] if step["calls"]]
    if found["still"]:
        bound = found["bound"]
        out.append(
            "the set of calls still grows with the number of processes: what starts above "
            "the largest count traced is not in the model; a step like those traced would "
            f"hide up to {_percent(bound['events'])} of the events and "
            f"{_percent(bound['time'])} of the time"
        )
    return out


def _step_text(step: Mapping[str, Any], places: Mapping[str, str]) -> str:
    """Return what one count showed for the first time."""
    calls, ruled = step["calls"], step["ruled"]
    line = f"{_calls(calls)} first made at {processes(step['n'])}"
    if ruled == calls:
        return f"{line}, by {'a rule that says' if calls == 1 else 'rules that say'} why not before"
    names = list(
        dict.fromkeys(f"{x['op']} at {places.get(x['site'], x['frame'])}" for x in step["named"])
    )
    shown = ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
    share = step["share"]
    parts = (
        f"{_percent(share['events'])} of the events and {_percent(share['time'])} of the "
        f"time there ({shown})"
    )
    if not ruled:
        return f"{line}: {parts}"
    return f"{line}, {ruled} of them by a rule that says why not before; the others are {parts}"


def _calls(number: int) -> str:
    return "1 call was" if number == 1 else f"{number} calls were"


def _ruled(items: Sequence[Mapping[str, Any]]) -> set[tuple[str, str]]:
    """Return the calls whose rules for who takes part hold at all counts."""
    out: dict[tuple[str, str], bool] = {}
    for item in items:
        sure = all(
            s["guard"] is not None
            and all(a[0] != "above" for a in s["guard"])
            and len(s["seen"]) > 1
            for s in item["slots"]
        )
        key = (item["site"], item["op"])
        out[key] = out.get(key, True) and sure
    return {k for k, sure in out.items() if sure}


def _shares(t: PointTable, mine: np.ndarray) -> dict[str, float]:
    time = (t.work + t.elapsed_ns).astype(float)
    amounts = {
        "events": t.count.astype(float),
        "bytes": t.nbytes * t.count.astype(float),
        "time": time,
    }
    return {k: float(v[mine].sum() / v.sum()) if v.sum() else 0.0 for k, v in amounts.items()}


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %"
