"""The events of a rank some at a time, so that what is made of them does not grow with them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from p3s.capture import RankTrace

#: Events of a block.
EVENTS = 1 << 16


class Block(NamedTuple):
    """Some events of a rank in a row, as columns of p3s.capture.RankTrace."""

    call: np.ndarray
    start_ns: np.ndarray
    elapsed_ns: np.ndarray
    work: np.ndarray
    counters: np.ndarray
    thread: np.ndarray | None


def blocks_of(rt: RankTrace) -> Iterator[Block]:
    """Yield the events of a rank in blocks of at most EVENTS."""
    call = np.asarray(rt.call)
    counters = getattr(rt, "counters", None)
    if counters is None or not len(counters):
        counters = np.zeros((len(call), 0), dtype=np.int64)
    for at in range(0, len(call), EVENTS):
        part = slice(at, at + EVENTS)
        yield Block(
            call[part],
            rt.start_ns[part],
            rt.elapsed_ns[part],
            rt.work[part],
            counters[part],
            None if rt.thread is None else rt.thread[part],
        )
