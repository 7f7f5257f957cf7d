"""The communication matrix of a run: messages and bytes by source and destination."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from p3s.base import ops
from p3s.base.arrays import Ints
from p3s.base.text import plural
from p3s.capture.types import present_ranks
from p3s.signature.calltable import SEND, call_table

if TYPE_CHECKING:
    from p3s.capture import RankTrace, RunTrace


@dataclass(frozen=True)
class CommMatrix:
    """What ranks sent to each other point to point, as pairs that occur.

    ``source``, ``destination``, ``messages``, ``bytes`` (int64, equal length) are sorted by
    source, then destination. Messages are counted where they were sent, with the bytes that were
    sent; cancelled ones and those to MPI_PROC_NULL are none. ``collective_calls`` and
    ``collective_bytes`` are summed over ranks (docs/capture-format.md says what each contributes)
    and are in no pair. ``notes``: what is missing, one line each.
    """

    np: int
    source: Ints
    destination: Ints
    messages: Ints
    bytes: Ints
    collective_calls: int
    collective_bytes: int
    notes: tuple[str, ...] = ()

    def values(self, quantity: str) -> Ints:
        """Return the column ``messages`` or ``bytes``."""
        return self.messages if quantity == "messages" else self.bytes

    def binned(self, quantity: str, cells: int) -> tuple[Ints, int]:
        """Return (square of at most ``cells`` sums a side, ranks per cell side)."""
        width = max(-(-self.np // max(cells, 1)), 1)
        side = -(-self.np // width)
        square = np.zeros((side, side), dtype=np.int64)
        np.add.at(square, (self.source // width, self.destination // width), self.values(quantity))
        return square, width


def communication_matrix(run: RunTrace) -> CommMatrix:
    """Return who sent how much to whom, reading one rank's columns at a time.

    Events that were only counted after the limit of a capture are counted too.
    """
    table = call_table(run.calls, run.np)
    length = len(run.calls)
    bytes_of = np.fromiter((call.bytes for call in run.calls), dtype=np.int64, count=length)
    peers = np.fromiter((call.peer for call in run.calls), dtype=np.int64, count=length)
    sends = (table.role == SEND) & (table.way >= 0)
    nobody = (table.role == SEND) & table.unknown
    collective = np.array([ops.kind_of(call.op) == ops.COLLECTIVE for call in run.calls], bool)
    parts: list[Ints] = []
    lost_messages = calls = volume = 0
    ranks = present_ranks(run)
    for rank in ranks:
        events = _events_of_calls(run.ranks[rank], length)
        calls += int(events[collective].sum())
        volume += int((events * bytes_of)[collective].sum())
        lost_messages += int(events[nobody].sum())
        used = np.flatnonzero(sends & (events > 0))
        peer, place = np.unique(peers[used], return_inverse=True)
        rows = np.zeros((4, len(peer)), dtype=np.int64)
        rows[0], rows[1] = rank, peer
        np.add.at(rows[2], place, events[used])
        np.add.at(rows[3], place, events[used] * bytes_of[used])
        parts.append(rows)
    whole = np.concatenate(parts, axis=1) if parts else np.zeros((4, 0), dtype=np.int64)
    notes = []
    missing = run.np - len(ranks)
    if missing:
        few = "1 rank has" if missing == 1 else f"{missing:,} ranks have"
        notes.append(f"{few} no readable capture: what was sent there is not in the matrix")
    if lost_messages:
        notes.append(f"{plural(lost_messages, 'message')} to no rank of the run: not in the matrix")
    source, destination, messages, moved = whole
    return CommMatrix(run.np, source, destination, messages, moved, calls, volume, tuple(notes))


def _events_of_calls(trace: RankTrace, length: int) -> Ints:
    """Return how often a rank made each call; a cancelled one was not made."""
    events = trace.made(length)
    if trace.cancelled.any():
        np.subtract.at(events, trace.call[trace.done[trace.cancelled, 1]], 1)
    return events
