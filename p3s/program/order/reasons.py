"""Why a row of a scaled trace is no step."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import Any

import numpy as np

from p3s.base.ops import ORDINARY, queue_of
from p3s.program.order.calls import AGREEING, PROBES, op_of
from p3s.program.scaled import COLLECTIVE, COMM, COMPLETION, IO, RECV, SEND, Ints, ScaledTrace
from p3s.simulate.steps import LeftOut


class Reason(IntEnum):
    """Why a row is not executed; EXECUTED rows are."""

    EXECUTED = 0
    UNKNOWN_VERDICT = 1
    NO_PEER = 2
    NO_TAG = 3
    NO_PARTNER = 4
    NO_REQUEST = 5
    CONSTRUCTOR = 6
    NOT_REPLAYED = 7
    SET_UP = 8
    PROBE = 9
    NOT_SEEN = 10
    FILE = 11
    NOTHING = 12


REASON_TEXT = {
    Reason.UNKNOWN_VERDICT: "the model has no law for it",
    Reason.NO_PEER: "its partner is not known",
    Reason.NO_TAG: "its tag is not known, and its partner has no call left that meets it",
    Reason.NO_PARTNER: "no call of the partner in the same stretch of the program matches it",
    Reason.NO_REQUEST: "no executed request is outstanding where it completes one",
    Reason.CONSTRUCTOR: "it is not known which ranks it waits for, or it waits for none",
    Reason.NOT_REPLAYED: "the replay does not know this call",
    Reason.SET_UP: "the start and the end of the program are not replayed",
    Reason.PROBE: "the receive behind it does its waiting",
    Reason.FILE: "the time of files is told apart from that of messages",
    Reason.NOTHING: "nothing is under way that it would wait for",
    Reason.NOT_SEEN: "it occurs only in iterations of its loop that are not replayed",
}
#: Why a message is left out that the model sends, or receives, without anybody on the other side.
UNMATCHED = frozenset(REASON_TEXT[reason] for reason in (Reason.NO_TAG, Reason.NO_PARTNER))
#: Calls without communication of a phase: constructors, set-up, calls the replay does not know.
SETUP_REASONS = tuple(
    REASON_TEXT[reason]
    for reason in (
        Reason.CONSTRUCTOR,
        Reason.NOT_REPLAYED,
        Reason.SET_UP,
        Reason.PROBE,
        Reason.NOTHING,
        Reason.FILE,
    )
)
_SET_UP = frozenset({"MPI_Init", "MPI_Init_thread", "MPI_Finalize"})


def unmatched(trace: ScaledTrace, left_out: Iterable[LeftOut]) -> dict[str, Any]:
    """Return what of a run's messages no call of the partner meets.

    Keys: events and of (such sends, or receives, and how many there are: of these two the kind of
    which more is left out, as a share), calls (their MPI calls, most first).
    """
    gone: dict[str, float] = {}
    for left in left_out:
        if left.why in UNMATCHED:
            gone[left.call] = gone.get(left.call, 0.0) + left.events
    found = []
    for kind in (SEND, RECV):
        mine = trace.is_kind(kind) & (trace.repeat > 0)
        calls = {trace.ops[op] for op in np.unique(trace.op[mine]).tolist()}
        events = sum(number for call, number in gone.items() if call in calls)
        found.append((events, float(trace.repeat[mine].sum())))
    events, of = max(found, key=lambda pair: pair[0] / max(pair[1], 1.0))
    return {"events": events, "of": of, "calls": sorted(gone, key=lambda call: -gone[call])}


def reasons_of(trace: ScaledTrace) -> Ints:
    """Return the Reason of every row, as far as the row alone tells."""
    known = [op for op in trace.ops if op_of(op) is not None]
    reason = np.full(trace.rows, Reason.NOT_REPLAYED, dtype=np.int64)
    messages = trace.is_kind(SEND) | trace.is_kind(RECV)
    calls = messages | trace.is_kind(COLLECTIVE) | trace.is_kind(COMPLETION)
    reason[calls & trace.is_op(*known)] = Reason.EXECUTED
    messages &= reason == Reason.EXECUTED
    reason[messages & (trace.peer < 0)] = Reason.NO_PEER
    made = trace.is_kind(COMM)
    reason[made] = np.where(trace.is_op(*AGREEING)[made], Reason.EXECUTED, Reason.CONSTRUCTOR)
    files = trace.is_kind(IO)
    reason[files] = Reason.FILE
    reason[files & trace.is_op(*known) & (trace.comm >= 0)] = Reason.EXECUTED
    reason[trace.is_op(*PROBES)] = Reason.PROBE
    windows = trace.is_op(*(op for op in trace.ops if queue_of(op) != ORDINARY))
    reason[windows & trace.is_kind(COMPLETION) & (trace.bytes == 0)] = Reason.NOTHING
    reason[trace.is_op(*_SET_UP)] = Reason.SET_UP
    reason[~trace.known] = Reason.UNKNOWN_VERDICT
    return reason
