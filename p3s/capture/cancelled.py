"""Requests that were cancelled: they were no messages, and what completed them completed nothing.

Neither the call that left such a request nor a completion of nothing else is read; one that
completes others too has fewer. A request that was not cancelled in time is one like any other.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from p3s.capture.parts import CallBook, Parts
from p3s.capture.types import RankTrace, RunTrace, present_ranks


def there(run: RunTrace) -> bool:
    """Tell whether a run, of one rank, has requests that were cancelled."""
    present = present_ranks(run)
    return any(run.ranks[rank].cancelled.any() for rank in present)


def parts(run: RunTrace, rt: RankTrace, book: CallBook) -> Parts:
    """Return which events are left out, and completions with the requests that are left of them."""
    completing, posting = rt.done[rt.cancelled].T
    by_others = completing != posting  # one that was freed stands as completed by itself
    events, less = np.unique(completing[by_others], return_counts=True)
    calls = [run.calls[number] for number in rt.call[events].tolist()]
    left = np.array([call.bytes for call in calls], dtype=np.int64) - less
    some = left > 0
    fewer = [
        book.number(replace(call, bytes=number, count=number))
        for call, number in zip(calls, left.tolist(), strict=True)
        if number > 0
    ]
    return Parts(
        events[some],
        np.array(fewer, dtype=np.int64),
        single=True,
        gone=np.union1d(events[~some], posting),
    )
