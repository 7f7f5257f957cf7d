"""Totals of a run by MPI call."""

from __future__ import annotations

from typing import Any

from p3s.trace import ops
from p3s.trace.types import RunTrace


def summary(run: RunTrace) -> dict[str, dict[str, Any]]:
    """Return op -> {kind, events, bytes, elapsed_ns, work, sites} over all ranks.

    ``work`` is the work before those calls; ops come in order of their elapsed time.
    """
    import numpy as np

    count = len(run.calls)
    events, elapsed, work = (np.zeros(count, dtype=np.int64) for _ in range(3))
    for rank in run.ranks:
        events += np.bincount(rank.call, minlength=count)
        # Exact integers: a float sum of nanoseconds would lose digits in long runs.
        np.add.at(elapsed, rank.call, rank.elapsed_ns)
        np.add.at(work, rank.call, rank.work)
    found: dict[str, dict[str, Any]] = {}
    sites: dict[str, set[int]] = {}
    for index, call in enumerate(run.calls):
        row = found.setdefault(
            call.op,
            {"kind": ops.kind_of(call.op), "events": 0, "bytes": 0, "elapsed_ns": 0, "work": 0},
        )
        moved = 0 if row["kind"] == ops.COMPLETION else call.bytes
        row["events"] += int(events[index])
        row["bytes"] += int(events[index]) * moved
        row["elapsed_ns"] += int(elapsed[index])
        row["work"] += int(work[index])
        sites.setdefault(call.op, set()).add(call.site)
    for op, row in found.items():
        row["sites"] = len(sites[op])
    return dict(sorted(found.items(), key=lambda item: (-item[1]["elapsed_ns"], item[0])))
