"""Message matching: each send with its receive, collectives with each other.

Rules: messages are matched per (source, destination, communicator, tag), first in, first out, in
the order in which receives were *posted* (MPI 4.1, 3.5 and 3.7.4); wildcards by what they turned
out to be; started persistent requests like nonblocking calls; the halves of MPI_Sendrecv are a
send and a receive; what MPI_Mprobe took counts from the probe. Cancelled requests and messages
with MPI_PROC_NULL have no partner. The k-th collective on a communicator is the k-th on all its
members; calls that make or free a communicator count among them.

Numbers count from the first event of a complete run. What a partner lacks stays without one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from p3s.base.arrays import Ints
from p3s.capture.types import present_ranks
from p3s.signature.calltable import (
    COLLECTIVE,
    LOCAL,
    POSTED_COLLECTIVE,
    POSTED_RECV,
    RECV,
    SEND,
    CallTable,
    call_table,
    posting_order,
)

if TYPE_CHECKING:
    from p3s.capture import RankTrace, RunTrace


@dataclass(frozen=True)
class Ends:
    """Events of all ranks, rank after rank, those of each in the order of posting.

    ``key``: of a message the channel in CallTable.way, of a collective its communicator.
    """

    rank: Ints
    event: Ints
    key: Ints

    def of(self, rank: int) -> slice:
        """Return where the events of a rank are."""
        first, last = np.searchsorted(self.rank, [rank, rank + 1])
        return slice(int(first), int(last))


@dataclass(frozen=True)
class Matching:
    """The messages and collectives of a run, matched.

    ``partner``: of each receive the number of its send, -1 without one; ``instance``: of each
    call of a collective which one it is, ``arrivals``: how many ranks call each.
    """

    sends: Ends
    receives: Ends
    partner: Ints
    collectives: Ends
    instance: Ints
    arrivals: Ints

    @property
    def messages(self) -> int:
        """How many messages have both ends."""
        return int((self.partner >= 0).sum())


def match(run: RunTrace) -> Matching:
    """Return the messages and collectives of a run, reading one rank's columns at a time."""
    table = call_table(run.calls, run.np)
    parts = [_ends_of(rank, run.ranks[rank], table) for rank in present_ranks(run)]
    sends, receives, collectives = (_join_ends([part[k] for part in parts]) for k in range(3))
    ways = (
        (sends.rank, table.way_peer[sends.key], table.way_label[sends.key]),
        (table.way_peer[receives.key], receives.rank, table.way_label[receives.key]),
    )
    whole = [(source * run.np + dest) * (1 << 24) + label for source, dest, label in ways]
    _, channel = np.unique(np.concatenate(whole), return_inverse=True)
    sent, received = (part << 32 | turns(part) for part in np.split(channel, [len(sends.key)]))
    _, sender, receiver = np.intersect1d(sent, received, assume_unique=True, return_indices=True)
    partner = np.full(len(receives.key), -1, dtype=np.int64)
    partner[receiver] = sender
    number = turns(collectives.rank << 32 | collectives.key)
    _, instance = np.unique(collectives.key << 32 | number, return_inverse=True)
    arrivals = np.bincount(instance)
    return Matching(sends, receives, partner, collectives, instance, arrivals)


def turns(key: Ints) -> Ints:
    """Return how many entries with the same key are before each."""
    order = np.argsort(key, kind="stable")
    ordered = key[order]
    turn = np.empty(len(key), dtype=np.int64)
    turn[order] = np.arange(len(key)) - np.searchsorted(ordered, ordered)
    return turn


def _ends_of(rank: int, trace: RankTrace, table: CallTable) -> list[Ints]:
    """Return rank, event and key of the sends, the receives and the collectives of a rank."""
    role, way, comm = (column[trace.call] for column in (table.role, table.way, table.comm))
    role[trace.done[trace.cancelled, 1]] = LOCAL
    order = posting_order(trace, table)
    receives = (role == RECV) | (role == POSTED_RECV)
    together = (role == COLLECTIVE) | (role == POSTED_COLLECTIVE)
    ends = []
    for chosen, key in ((role == SEND, way), (receives, way), (together, comm)):
        at = np.flatnonzero(chosen & (key >= 0))
        if order is not None:
            at = at[np.argsort(order[at], kind="stable")]
        ends.append(np.stack([np.full(len(at), rank), at, key[at]]).astype(np.int64))
    return ends


def _join_ends(parts: list[Ints]) -> Ends:
    return Ends(*np.concatenate([np.zeros((3, 0), dtype=np.int64), *parts], axis=1))
