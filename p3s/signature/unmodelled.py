"""Calls that were seen but are not modelled: how many, and how much of the time they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from p3s.base.ops import PROCESS, kind_of
from p3s.base.text import plural, processes

if TYPE_CHECKING:
    from p3s.signature.tables import PointTable


def unmodelled_calls(tables: Sequence[PointTable]) -> list[dict[str, Any]]:
    """Return a row per operation that is not modelled, those that take most time first.

    Keys: op, kind, np (the largest count that has it), and of that count events, share_of_events
    and share_of_time (the calls and the computation before them, between 0 and 1).
    """
    rows: dict[str, dict[str, Any]] = {}
    for table in sorted(tables, key=lambda t: t.np):
        rows.update(_of_one(table))
    return sorted(rows.values(), key=lambda row: (-row["share_of_time"], row["op"]))


def _of_one(t: PointTable) -> dict[str, dict[str, Any]]:
    time_ns = t.work + t.elapsed_ns
    events = np.bincount(t.group, weights=t.count, minlength=len(t.groups))
    time_of = np.bincount(t.group, weights=time_ns, minlength=len(t.groups))
    all_events, all_time = max(float(events.sum()), 1.0), max(float(time_of.sum()), 1.0)
    rows = {}
    for op in t.unmodelled:
        mine = [i for i, group in enumerate(t.groups) if group.op == op]
        rows[op] = {
            "op": op,
            "kind": kind_of(op),
            "np": t.np,
            "events": int(events[mine].sum()),
            "share_of_events": float(events[mine].sum() / all_events),
            "share_of_time": float(time_of[mine].sum() / all_time),
        }
    return rows


def sentence(row: Mapping[str, Any]) -> str:
    """Return one row of :func:`unmodelled_calls` as a line for people."""
    others = "; what the other processes do is not recorded" if row["kind"] == PROCESS else ""
    return (
        f"seen, not modelled: {row['op']} {plural(int(row['events']), 'event')} at"
        f" {processes(int(row['np']))} ({100 * float(row['share_of_events']):.1f} % of the events,"
        f" {100 * float(row['share_of_time']):.1f} % of the time)"
        f"{others}"
    )


def sentences(rows: Any) -> list[str]:
    """Return the lines of ``not_modelled`` of a file; none for a damaged entry."""
    out = []
    for row in rows if isinstance(rows, list) else ():
        try:
            out.append(sentence(row))
        except (KeyError, TypeError, ValueError):
            continue
    return out
