"""Which send meets which receive, which wait completes which request, and what is left out.

One iteration of a phase executes its rows once each, in the order of their index. A send row
meets the receive row of the same phase, communicator, tag and pair of ranks, in order; a
completion takes the oldest requests that are outstanding.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from p3s.trace.ops import leaves_request
from replay.scaled import COLLECTIVE, COMM, COMPLETION, RECV, SEND, Bools, Ints, ScaledTrace
from replay.thesis.calls import COMPLETIONS, RECV_CODES, REQUEST_CODES, SEND_CODES, SENDRECV_RECV


class Reason(IntEnum):
    """Why a row is not executed; EXECUTED rows are, and COMPOSED rows need not be."""

    EXECUTED = 0
    COMPOSED = 1
    UNKNOWN_VERDICT = 2
    NO_PEER = 3
    NO_TAG = 4
    NO_PARTNER = 5
    NO_REQUEST = 6
    CONSTRUCTOR = 7
    NOT_REPLAYED = 8
    NEVER = 9
    DEADLOCK = 10
    TOO_LARGE = 11


REASON_TEXT = {
    Reason.UNKNOWN_VERDICT: "the model has no law for it",
    Reason.NO_PEER: "its partner is not known",
    Reason.NO_TAG: "its tag is not known",
    Reason.NO_PARTNER: "no row of the partner in the same phase matches it",
    Reason.NO_REQUEST: "no executed request is outstanding where it completes one",
    Reason.CONSTRUCTOR: "communicators are not constructed in the replay",
    Reason.NOT_REPLAYED: "the replay does not know this call",
    Reason.TOO_LARGE: "the message is larger than the replay sends",
    Reason.DEADLOCK: "executed in the order of the trace it would wait for ever",
}


@dataclass(frozen=True)
class Matches:
    """What the rows of a trace mean to each other; every array has one entry per row.

    ``reason`` holds a Reason. ``partner`` is the row at the other end of a send or receive, -1 if
    there is none. ``half`` links the two rows of one MPI_Sendrecv when both are executed, else
    -1. A completion takes the requests of rows ``taken[taken_start[row]:taken_start[row + 1]]``
    (executed or not, oldest first); when they come after it in the phase, it belongs to the turn
    before of a loop and is executed at the end. One that takes collectives only is COMPOSED: it
    is part of their cost.
    """

    reason: Ints
    partner: Ints
    half: Ints
    taken_start: Ints
    taken: Ints

    def executed(self) -> Bools:
        """Return which rows are executed."""
        return self.reason == Reason.EXECUTED


def match(trace: ScaledTrace) -> Matches:
    """Match the rows of a scaled trace; nothing is dropped without a reason."""
    reason = np.full(trace.rows, Reason.NOT_REPLAYED, dtype=np.int64)
    sends = trace.is_kind(SEND) & trace.is_op(*SEND_CODES)
    recvs = trace.is_kind(RECV) & trace.is_op(*RECV_CODES)
    completions = trace.is_kind(COMPLETION) & trace.is_op(*COMPLETIONS)
    messages = sends | recvs
    reason[trace.is_kind(COLLECTIVE)] = Reason.COMPOSED
    reason[trace.is_kind(COMM)] = Reason.CONSTRUCTOR
    reason[completions] = Reason.EXECUTED
    reason[messages] = Reason.EXECUTED
    reason[messages & (trace.tag < 0)] = Reason.NO_TAG
    reason[messages & (trace.peer < 0)] = Reason.NO_PEER
    reason[~trace.known] = Reason.UNKNOWN_VERDICT
    reason[trace.repeat == 0] = Reason.NEVER

    alive = reason == Reason.EXECUTED
    partner = _partners(trace, np.flatnonzero(sends & alive), np.flatnonzero(recvs & alive))
    reason[messages & alive & (partner < 0)] = Reason.NO_PARTNER
    half = _halves(trace, reason == Reason.EXECUTED)
    start, taken = _requests(trace, messages, completions & alive)
    counts = np.diff(start)
    live = np.concatenate(([0], np.cumsum(reason[taken] == Reason.EXECUTED)))
    empty = live[start[1:]] == live[start[:-1]]
    reason[completions & alive & (empty | (counts == 0))] = Reason.NO_REQUEST
    # What waits for collectives only is part of their cost.
    composed = np.concatenate(([0], np.cumsum(reason[taken] == Reason.COMPOSED)))
    whole = np.diff(composed[start]) == counts
    reason[completions & alive & whole & (counts > 0)] = Reason.COMPOSED
    return Matches(reason, partner, half, start, taken)


def _partners(trace: ScaledTrace, sends: Ints, recvs: Ints) -> Ints:
    """Return the row at the other end of each row, -1 where there is none."""
    partner = np.full(trace.rows, -1, dtype=np.int64)
    rows = np.concatenate((sends, recvs))
    if len(rows) == 0:
        return partner
    is_recv = np.concatenate((np.zeros(len(sends), np.int64), np.ones(len(recvs), np.int64)))
    source = np.where(is_recv == 1, trace.peer[rows], trace.rank[rows])
    target = np.where(is_recv == 1, trace.rank[rows], trace.peer[rows])
    keys = (trace.tag[rows], trace.comm[rows], target, source, trace.phase[rows])
    order = np.lexsort((rows, is_recv, *keys))
    # Number the channels (source, target, communicator, tag, phase) and the rows in each.
    change = np.zeros(len(rows), dtype=bool)
    for key in (is_recv, *keys):
        change[1:] |= key[order][1:] != key[order][:-1]
    begin = np.maximum.accumulate(np.where(change, np.arange(len(rows)), 0))
    ordinal = np.arange(len(rows)) - begin
    new_channel = np.zeros(len(rows), dtype=bool)
    for key in keys:
        new_channel[1:] |= key[order][1:] != key[order][:-1]
    channel = np.cumsum(new_channel)
    place = np.lexsort((is_recv[order], ordinal, channel))
    row, kind = rows[order][place], is_recv[order][place]
    channel, ordinal = channel[place], ordinal[place]
    meet = np.flatnonzero(
        (kind[:-1] == 0) & (kind[1:] == 1)
        & (channel[:-1] == channel[1:]) & (ordinal[:-1] == ordinal[1:])
    )
    partner[row[meet]] = row[meet + 1]
    partner[row[meet + 1]] = row[meet]
    return partner


def _halves(trace: ScaledTrace, executed: Bools) -> Ints:
    """Link each MPI_Sendrecv row with the MPI_Sendrecv_recv row that directly follows it."""
    half = np.full(trace.rows, -1, dtype=np.int64)
    first = trace.is_op("MPI_Sendrecv", "MPI_Sendrecv_replace") & executed
    second = trace.is_op(SENDRECV_RECV) & executed
    here = np.flatnonzero(
        first[:-1] & second[1:]
        & (trace.rank[:-1] == trace.rank[1:]) & (trace.phase[:-1] == trace.phase[1:])
    )
    half[here] = here + 1
    half[here + 1] = here
    return half


def _requests(trace: ScaledTrace, messages: Bools, completions: Bools) -> tuple[Ints, Ints]:
    """Return start (rows + 1) and rows of the requests that each completion takes."""
    codes = SEND_CODES | RECV_CODES
    leaves = messages & trace.is_op(*(op for op, code in codes.items() if code in REQUEST_CODES))
    leaves |= trace.is_op(*filter(leaves_request, trace.ops))
    take_all = trace.is_op(*(op for op, many in COMPLETIONS.items() if many))
    counts = np.zeros(trace.rows, dtype=np.int64)
    found: dict[int, list[int]] = {}
    where = np.flatnonzero((leaves & (trace.repeat > 0)) | completions)
    columns = (leaves[where].tolist(), take_all[where].tolist(), trace.bytes[where].tolist())
    rows = where.tolist()
    for begin, end in iter_groups(trace.rank[where], trace.phase[where]):
        waiting: deque[int] = deque()
        early: list[int] = []
        for place in [*range(begin, end), -1]:
            # A completion that comes before anything is outstanding belongs to the end of the
            # loop's turn before: its requests are those that are left at the end.
            for at in early if place < 0 else [place]:
                if columns[0][at]:
                    waiting.append(rows[at])
                elif not waiting and place >= 0:
                    early.append(at)
                else:
                    wanted = max(int(columns[2][at]), 1) if columns[1][at] else 1
                    number = min(wanted, len(waiting))
                    counts[rows[at]] = number
                    found[rows[at]] = [waiting.popleft() for _ in range(number)]
    start = np.concatenate(([0], np.cumsum(counts)))
    taken = [request for row in sorted(found) for request in found[row]]
    return start, np.asarray(taken, dtype=np.int64)


def iter_groups(*keys: Ints) -> Iterator[tuple[int, int]]:
    """Yield (begin, end) of each run of rows in which all keys are constant."""
    if len(keys[0]) == 0:
        return
    new = np.zeros(len(keys[0]), dtype=bool)
    for key in keys:
        new[1:] |= key[1:] != key[:-1]
    bounds = [0, *np.flatnonzero(new).tolist(), len(keys[0])]
    yield from zip(bounds[:-1], bounds[1:], strict=True)
