"""Requests that are read in another form than the run had.

Cancelled ones were no messages, and what completed them completed nothing: neither the call that
left such a request nor a completion of nothing else is read; one that completes others too has
fewer. A request that was not cancelled in time is one like any other.

Receives from anybody (MPI_ANY_SOURCE) are in the order of whom they received from. Of several that
are posted one right after the other and completed by one call, chance decides which takes which
message. Any order is as true as that of the run; one that is always the same shows what runs have
in common.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import numpy as np

from p3s.base import ops
from p3s.base.arrays import Ints
from p3s.capture.parts import CallBook, Parts
from p3s.capture.types import RankTrace, RunTrace, present_ranks


def some_cancelled(run: RunTrace) -> bool:
    """Tell whether a run, of one rank, has requests that were cancelled."""
    return any(run.ranks[rank].cancelled.any() for rank in present_ranks(run))


def without_cancelled(run: RunTrace, rt: RankTrace, book: CallBook) -> Parts:
    """Return which events are left out, and completions with the requests that are left of them."""
    completing, posting = rt.done[rt.cancelled].T
    by_others = completing != posting  # one that was freed stands as completed by itself
    events, less = np.unique(completing[by_others], return_counts=True)
    calls = [run.calls[number] for number in rt.call[events].tolist()]
    requests = np.array([call.bytes for call in calls], dtype=np.int64) - less
    incomplete = requests > 0
    fewer = [
        book.number(replace(call, bytes=number, count=number))
        for call, number in zip(calls, requests.tolist(), strict=True)
        if number > 0
    ]
    return Parts(
        events[incomplete],
        np.array(fewer, dtype=np.int64),
        single=True,
        gone=np.union1d(events[~incomplete], posting),
    )


def some_from_anybody(run: RunTrace) -> bool:
    """Tell whether a run, of one rank, may have several such receives from anybody."""
    if not any(call.op in ops.POSTED for call in run.calls):
        return False
    posting = ((rt.call, rt.anybody) for rt in (run.ranks[rank] for rank in present_ranks(run)))
    return any(sum(run.calls[c].op in ops.POSTED for c in call[at]) > 1 for call, at in posting)


def receivers(run_dir: Path, ranks: Collection[int]) -> set[int]:
    """Return those of some ranks that have receives or probes from anybody in a run.

    Raises P3SError where a rank cannot be read.
    """
    from p3s.capture.reader import read_file, run_files

    files = run_files(run_dir).files
    read = ((rank, read_file(files[rank], completions=False)) for rank in ranks if rank in files)
    return {rank for rank, run in read if len(run.ranks[rank].anybody)}


def in_order_of_ranks(run: RunTrace, rt: RankTrace, book: CallBook) -> Parts:
    """Return the receives that have another place in the order of ranks, each as one part."""
    call = np.asarray(rt.call, dtype=np.int64)
    events, group = _groups(run, rt)
    peer = np.array([run.calls[number].peer for number in call[events]], dtype=np.int64)
    ordered = events[np.lexsort((peer, group))]
    moved = ordered != events
    reordered, new = events[moved], call[ordered[moved]]
    stands = np.stack([reordered, np.arange(len(reordered))], axis=1)
    return Parts(reordered, new, stands=stands)


def _groups(run: RunTrace, rt: RankTrace) -> tuple[Ints, Ints]:
    """Return the receives from anybody that one call completes, ascending, and the number of the
    others of which they are one: posted one after the other at one place, for one communicator."""
    completing = np.full(len(rt.call), -1, dtype=np.int64)
    rows = rt.done[~rt.cancelled]
    completing[rows[:, 1]] = rows[:, 0]
    events = np.unique(rt.anybody)
    calls = [run.calls[number] for number in rt.call[events]]
    posted = np.array([call.op in ops.POSTED for call in calls], dtype=bool) & (
        completing[events] >= 0
    )
    events = events[posted]
    alike = np.array(
        [(call.site, call.comm) for call, keep in zip(calls, posted, strict=True) if keep],
        dtype=np.int64,
    ).reshape(len(events), 2)
    new = np.ones(len(events), dtype=bool)
    new[1:] = (
        (np.diff(events) != 1)
        | (np.diff(completing[events]) != 0)
        | np.any(np.diff(alike, axis=0) != 0, axis=1)
    )
    return events, np.cumsum(new)
