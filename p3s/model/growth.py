"""Calls that are first made above the smallest count: how much a still larger count may hide.

Code that runs for the first time above the largest traced count cannot be known. What can be
said is whether the set of calls was still growing there, and how much those that came last are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields

import numpy as np

from p3s.base.text import processes
from p3s.model.grid.guards import Above
from p3s.model.measured import shares_of
from p3s.model.types import Growth, GrowthStep, Item, NewCall, Share
from p3s.signature.tables import PointTable

#: Sites named per count.
MAX_NAMED = 8
#: Of them in a sentence.
_SHOWN = 3


def growth(tables: Sequence[PointTable], items: Sequence[Item]) -> Growth:
    """Return what each count above the smallest showed for the first time."""
    ruled = _ruled(items)
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


def _ruled(items: Sequence[Item]) -> set[tuple[str, str]]:
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
