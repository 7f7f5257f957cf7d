"""Totals of a run by MPI call."""

from __future__ import annotations

from typing import Any

import numpy as np

from p3s.base import ops
from p3s.capture.threads import COLUMNS, Threads
from p3s.capture.types import RunTrace


def threads_of(run: RunTrace) -> dict[int, Threads]:
    """Return rank -> what its threads did before its events, of the ranks that have several."""
    return {rank.rank: rank.threads for rank in run.ranks if rank.threads is not None}


#: Columns of which totals over ranks say nothing, and those of which the most counts.
_NO_TOTALS, _MOST = ("wall_ns", "longest_other_ns"), ("team", "worked")


def thread_totals(run: RunTrace) -> dict[str, Any] | None:
    """Return what the threads of all ranks did, added up; None if no rank had more than its first.

    Times in nanoseconds, counts as in Threads; ``ranks``: how many have several; ``team`` and
    ``worked``: the most of any region; ``imbalance``: the longest thread over the mean of its team,
    less 1, of all regions together (None without any).
    """
    threads = threads_of(run).values()
    if not threads:
        return None
    totals = {
        name: max(int(t[name].max()) for t in threads)
        if name in _MOST
        else sum(t.total(name) for t in threads)
        for name in COLUMNS
        if name not in _NO_TOTALS
    }
    full, busy = sum(t.full_ns for t in threads), totals["busy_ns"]
    return {"ranks": len(threads), **totals, "imbalance": full / busy - 1.0 if busy else None}


def summary(run: RunTrace) -> dict[str, dict[str, Any]]:
    """Return op -> {kind, events, bytes, elements, elapsed_ns, work, sites} over all ranks.

    ``work`` (in ``run.work_unit``) is the work before those calls, ``elements`` counts elements of
    the datatypes passed; events that were only counted after the limit are in all of them. Ops
    come in order of their elapsed time. Bytes and elements of completions are those of the
    requests and not counted again.
    """
    # Exact integers: a float sum of nanoseconds would lose digits in long runs.
    totals = np.zeros((3, len(run.calls)), dtype=np.int64)  # events, time and work of each call
    for rank in run.ranks:
        totals[0] += np.bincount(rank.call, minlength=len(run.calls))
        np.add.at(totals[1], rank.call, rank.elapsed_ns)
        np.add.at(totals[2], rank.call, rank.work)
        for number, counted in rank.counted.items():
            totals[:, number] += counted
    rows: dict[str, dict[str, Any]] = {}
    sites: dict[str, set[int]] = {}
    sums = ("events", "bytes", "elements", "elapsed_ns", "work")
    for call, (count, time_ns, before) in zip(run.calls, totals.T.tolist(), strict=True):
        row = rows.setdefault(call.op, {"kind": ops.kind_of(call.op), **dict.fromkeys(sums, 0)})
        moved = count * (row["kind"] != ops.COMPLETION)
        more = (count, moved * call.bytes, moved * call.count, time_ns, before)
        row.update((name, row[name] + each) for name, each in zip(sums, more, strict=True))
        sites.setdefault(call.op, set()).add(call.site)
    for op, row in rows.items():
        row["sites"] = len(sites[op])
    return dict(sorted(rows.items(), key=lambda item: (-item[1]["elapsed_ns"], item[0])))
