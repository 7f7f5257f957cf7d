"""Classes of events: those that cost the same, as far as the replay can tell."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from replay.scaled import COLLECTIVE, COMPLETION, RECV, SEND, Bools, Ints, ScaledTrace
from replay.thesis.calls import SENDRECV_RECV
from replay.thesis.match import Matches, Reason

INTRA = "intra"
INTER = "inter"


@dataclass(frozen=True)
class EventClass:
    """Events of one MPI call that move the same bytes over the same distance.

    ``bytes`` of a completion: all bytes of the messages that it completes (``requests`` of
    them). ``distance`` is "inter" as soon as one partner is on another node. ``members`` is the
    size of the communicator of a collective, else 0.
    """

    op: str
    kind: str
    bytes: int
    distance: str
    requests: int = 0
    members: int = 0


@dataclass(frozen=True)
class Classified:
    """The classes of a trace cut into nodes of ``cores_per_node`` consecutive ranks.

    ``of_row`` is the class of each row, -1 for rows without an own cost (never executed, or
    second half of an MPI_Sendrecv). ``other_row`` and ``other_range`` list, for each executed
    row, the ranges other than its own that hold a partner of it (no entry: all partners are in
    its own range).
    """

    classes: tuple[EventClass, ...]
    of_row: Ints
    range_of_row: Ints
    other_row: Ints
    other_range: Ints

    def others(self) -> Ints:
        """Return how many other ranges each row needs."""
        return np.bincount(self.other_row, minlength=len(self.of_row))


def classify(trace: ScaledTrace, matches: Matches, cores_per_node: int) -> Classified:
    """Give each row that costs something a class."""
    rows = trace.rows
    ranges = trace.rank // cores_per_node
    executed = matches.executed()
    other_row, other_range = _other_ranges(trace, matches, executed, cores_per_node, ranges)

    size = trace.bytes.copy()
    requests = np.zeros(rows, dtype=np.int64)
    members = np.zeros(rows, dtype=np.int64)
    completion = trace.is_kind(COMPLETION)
    counts = np.diff(matches.taken_start)
    messages = trace.is_kind(SEND) | trace.is_kind(RECV)
    moved = np.where(messages, trace.bytes, 0)[matches.taken]
    totals = np.concatenate(([0], np.cumsum(moved)))
    size[completion] = np.diff(totals[matches.taken_start])[completion]
    requests[completion] = counts[completion]

    far = np.bincount(other_row, minlength=rows) > 0
    # Rows that cannot be executed still have a distance, if their partner is known.
    beyond = ~executed & (trace.peer >= 0)
    far[beyond] = (trace.peer // cores_per_node != ranges)[beyond]
    collective = trace.is_kind(COLLECTIVE)
    crosses = {comm: len(np.unique(m // cores_per_node)) > 1 for comm, m in trace.members.items()}
    sizes = {comm: len(m) for comm, m in trace.members.items()}
    for comm in np.unique(trace.comm[collective]).tolist():
        here = collective & (trace.comm == comm)
        far[here] = crosses.get(comm, trace.n > cores_per_node)
        members[here] = sizes.get(comm, trace.n)

    costs = (matches.reason != Reason.NEVER) & _has_cost(trace, matches)
    costs &= ~(completion & (matches.reason == Reason.COMPOSED))
    of_row = np.full(rows, -1, dtype=np.int64)
    where = np.flatnonzero(costs)
    if len(where) == 0:
        return Classified((), of_row, ranges, other_row, other_range)
    keys = np.stack([trace.op, trace.kind, size, far.astype(np.int64), requests, members])[:, where]
    unique, inverse = np.unique(keys, axis=1, return_inverse=True)
    of_row[where] = inverse.reshape(-1)
    classes = tuple(
        EventClass(trace.ops[op], trace.kinds[kind], int(nbytes), INTER if away else INTRA,
                   int(count), int(group))
        for op, kind, nbytes, away, count, group in unique.T.tolist()
    )
    return Classified(classes, of_row, ranges, other_row, other_range)


def _has_cost(trace: ScaledTrace, matches: Matches) -> Bools:
    """Return which rows cost time of their own: not the second half of an MPI_Sendrecv."""
    second = trace.is_op(SENDRECV_RECV)
    first = trace.is_op("MPI_Sendrecv", "MPI_Sendrecv_replace") & matches.executed()
    together = second.copy()
    together[:1] = False
    together[1:] &= (
        first[:-1] & (trace.rank[1:] == trace.rank[:-1]) & (trace.phase[1:] == trace.phase[:-1])
    )
    return ~together


def _other_ranges(
    trace: ScaledTrace, matches: Matches, executed: Bools, cores_per_node: int, ranges: Ints
) -> tuple[Ints, Ints]:
    """Return the pairs (row, range) of executed rows and the other ranges that they need."""
    message = np.flatnonzero(executed & (matches.partner >= 0))
    linked = np.flatnonzero(executed & (matches.half >= 0))
    # Only completions have requests, so their rows follow each other in `taken`.
    taken_by = np.repeat(np.arange(trace.rows), np.diff(matches.taken_start))
    valid = executed[matches.taken] & executed[taken_by]
    row = np.concatenate((message, linked, taken_by[valid]))
    peer = np.concatenate(
        (trace.peer[message], trace.peer[matches.half[linked]], trace.peer[matches.taken[valid]])
    )
    other = peer // cores_per_node
    away = other != ranges[row]
    if not away.any():
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    pairs = np.unique(np.stack((row[away], other[away])), axis=1)
    return pairs[0], pairs[1]
