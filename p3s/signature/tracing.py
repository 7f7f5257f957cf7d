"""What recording cost the program: the tracer's own time, as it measured it while it ran."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from p3s.base.text import ends, processes, seconds

if TYPE_CHECKING:
    from p3s.capture import RankTrace

#: Totals of a run: calls recorded or polled, the tracer's time in them (ns), and the largest
#: part of a rank's time between MPI_Init and MPI_Finalize that this was (0 to 1).
Cost = dict[str, float]


def add_rank(cost: Cost, rank: RankTrace, events: int, span_ns: int) -> None:
    """Add one rank, its events and when the last began, to the totals of its run."""
    calls = events + rank.failed_polls
    # From the return of MPI_Init, where start_ns is 0.
    share = min(rank.tracer_ns / span_ns, 1.0) if span_ns > 0 else 0.0
    add(cost, {"calls": calls, "tracer_ns": rank.tracer_ns, "largest_share": share})


def add(cost: Cost, other: Cost) -> None:
    """Add the totals of other ranks of the same run."""
    for key in ("calls", "tracer_ns"):
        cost[key] = cost.get(key, 0) + other.get(key, 0)
    cost["largest_share"] = max(cost.get("largest_share", 0.0), other.get("largest_share", 0.0))


def sentence(costs: Mapping[str, Any]) -> list[str]:
    """Return a line for people from count -> totals; none where nothing was measured."""
    rows = []
    for count, cost in costs.items():
        try:
            calls, tracer_ns = float(cost["calls"]), float(cost["tracer_ns"])
            rows.append((float(cost["largest_share"]), tracer_ns / max(calls, 1.0), int(count)))
        except (KeyError, TypeError, ValueError):
            continue
    rows = [row for row in rows if row[1] > 0]
    if not rows:
        return []
    per_call = [row[1] / 1e9 for row in rows]
    share, _, np = max(rows)
    took = ends(seconds(min(per_call)), seconds(max(per_call)))
    return [
        f"tracing added {took} per MPI call, at most {100 * share:.2g} % of a process's time"
        f" (at {processes(np)}); measured run times include it"
    ]
