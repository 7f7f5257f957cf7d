"""Which step each MPI call of a scaled trace is, or why it is none."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np

from p3s.base.arrays import Bools, Ints
from p3s.base.ops import COLLECTIVE as COLLECTIVE_KIND
from p3s.base.ops import (
    HALF_OF_ONE,
    ISENDRECV_RECV,
    MAKES_COMM,
    NOT_BY_ALL,
    ORDINARY,
    SENDRECV_RECV,
    is_file_collective,
    kind_of,
    lacks_waiter,
    leaves_file_request,
    leaves_request,
    like,
    parts_like,
    queue_of,
)
from p3s.program.order.pairs import row_channels
from p3s.program.scaled import COLLECTIVE, COMM, COMPLETION, IO, RECV, SEND, ScaledTrace
from p3s.simulate.steps import WAITS, LeftOut, Op

#: A started persistent operation carries the name of the call that made it.
_OPS = {
    "MPI_Send": Op.SEND,
    "MPI_Rsend": Op.SEND,
    "MPI_Ssend": Op.SSEND,
    "MPI_Bsend": Op.BSEND,
    "MPI_Isend": Op.ISEND,
    "MPI_Irsend": Op.ISEND,
    "MPI_Ibsend": Op.BSEND,
    "MPI_Issend": Op.ISSEND,
    "MPI_Send_init": Op.START_SEND,
    "MPI_Rsend_init": Op.START_SEND,
    "MPI_Bsend_init": Op.BSEND,
    "MPI_Ssend_init": Op.START_SSEND,
    "MPI_Isendrecv": Op.ISEND,
    "MPI_Isendrecv_replace": Op.ISEND,
    ISENDRECV_RECV: Op.IRECV,
    "MPI_Sendrecv": Op.SENDRECV,
    "MPI_Sendrecv_replace": Op.SENDRECV,
    SENDRECV_RECV: Op.RECV,
    "MPI_Recv": Op.RECV,
    "MPI_Mrecv": Op.RECV,
    "MPI_Irecv": Op.IRECV,
    "MPI_Imrecv": Op.IRECV,
    "MPI_Recv_init": Op.START_RECV,
    "MPI_Wait": Op.WAIT,
    "MPI_Waitall": Op.WAIT,
    "MPI_Test": Op.WAIT,
    "MPI_Testall": Op.WAIT,
    "MPI_Waitany": Op.WAITANY,
    "MPI_Testany": Op.WAITANY,
    "MPI_Waitsome": Op.WAITSOME,
    "MPI_Testsome": Op.WAITSOME,
}
#: Completions that may complete more than one request.
MANY = frozenset({"MPI_Waitall", "MPI_Testall", "MPI_Waitsome", "MPI_Testsome"}) | parts_like(
    "MPI_Waitall"
)
#: Calls whose request is complete at once: it has its turn among the requests, but nobody waits.
AT_ONCE = frozenset({"MPI_Ibsend", "MPI_Bsend_init"})
#: Calls that look for a message without receiving it.
PROBES = frozenset({"MPI_Probe", "MPI_Iprobe", "MPI_Mprobe", "MPI_Improbe"})
#: Calls in which all members of a communicator agree on a new one, or on leaving it.
AGREEING = MAKES_COMM - NOT_BY_ALL | {"MPI_Comm_disconnect"}


def op_of(call: str) -> Op | None:
    """Return the step that an MPI call is, None if the replay has none for it."""
    operation = _OPS.get(like(call))
    if operation is None and (kind_of(call) == COLLECTIVE_KIND or call in AGREEING):
        return Op.ICOLLECTIVE if leaves_request(call) else Op.COLLECTIVE
    if is_file_collective(call) and not leaves_file_request(call):
        return Op.COLLECTIVE
    return operation


def step_name(call: str) -> str:
    """Return the name of the step that a call is: what all do on a file is a barrier of them.

    The time that it takes at the file is computation's place before it: the same for all.
    """
    return "MPI_Barrier" if is_file_collective(call) else call


def requests_of(call: str) -> int:
    """Return how many requests a call leaves for completions to count: 0 or 1.

    The one request of MPI_Isendrecv is that of its receive half; nobody waits for what a process
    does for a one-sided call of another that synchronises alone.
    """
    if call in AT_ONCE or leaves_file_request(call):
        return 1
    op = op_of(call)
    leaves = op in (
        Op.ISEND,
        Op.ISSEND,
        Op.START_SEND,
        Op.START_SSEND,
        Op.IRECV,
        Op.START_RECV,
        Op.ICOLLECTIVE,
    )
    return int(leaves and call not in HALF_OF_ONE and not lacks_waiter(call))


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


def count_unmatched(trace: ScaledTrace, left_out: Iterable[LeftOut]) -> dict[str, Any]:
    """Return what of a run's messages no call of the partner meets.

    Keys: events and of (such sends, or receives, and how many there are: of these two the kind of
    which more is left out, as a share), calls (their MPI calls, most first).
    """
    lost: dict[str, float] = {}
    for row in left_out:
        if row.why in UNMATCHED:
            lost[row.call] = lost.get(row.call, 0.0) + row.events
    shares = []
    for kind in (SEND, RECV):
        mine = trace.is_kind(kind) & (trace.repeat > 0)
        calls = {trace.ops[op] for op in np.unique(trace.op[mine]).tolist()}
        events = sum(number for call, number in lost.items() if call in calls)
        shares.append((events, float(trace.repeat[mine].sum())))
    events, of = max(shares, key=lambda pair: pair[0] / max(pair[1], 1.0))
    return {"events": events, "of": of, "calls": sorted(lost, key=lambda call: -lost[call])}


def reasons_of(trace: ScaledTrace) -> Ints:
    """Return the Reason of every row, as far as the row alone tells."""
    ops = [op for op in trace.ops if op_of(op) is not None]
    reason = np.full(trace.rows, Reason.NOT_REPLAYED, dtype=np.int64)
    messages = trace.is_kind(SEND) | trace.is_kind(RECV)
    calls = messages | trace.is_kind(COLLECTIVE) | trace.is_kind(COMPLETION)
    reason[calls & trace.is_op(*ops)] = Reason.EXECUTED
    messages &= reason == Reason.EXECUTED
    reason[messages & (trace.peer < 0)] = Reason.NO_PEER
    makes = trace.is_kind(COMM)
    reason[makes] = np.where(trace.is_op(*AGREEING)[makes], Reason.EXECUTED, Reason.CONSTRUCTOR)
    files = trace.is_kind(IO)
    reason[files] = Reason.FILE
    reason[files & trace.is_op(*ops) & (trace.comm >= 0)] = Reason.EXECUTED
    reason[trace.is_op(*PROBES)] = Reason.PROBE
    windows = trace.is_op(*(op for op in trace.ops if queue_of(op) != ORDINARY))
    reason[windows & trace.is_kind(COMPLETION) & (trace.bytes == 0)] = Reason.NOTHING
    reason[trace.is_op(*_SET_UP)] = Reason.SET_UP
    reason[~trace.known] = Reason.UNKNOWN_VERDICT
    return reason


@dataclass(frozen=True)
class Rows:
    """What is known of the rows of a trace before they are put in order; columns per row.

    op: its Op (0: none); posts: requests left behind; wants: requests completed; many: 1 where
    that is an average; half: 1 for the send half of MPI_Isendrecv; queue: that these requests are
    of (p3s.base.ops.queue_of); prefer: ANY, SENDS or RECEIVES, what a completion completes first.
    reason: a Reason. out, into: channel that it sends into, receives from, -1: none; tag: that of
    its message. alone: rows whose partner is a rank that the trace does not hold.
    """

    trace: ScaledTrace
    op: Ints
    posts: Ints
    wants: Ints
    many: Ints
    half: Ints
    queue: Ints
    prefer: Ints
    reason: Ints
    out: Ints
    into: Ints
    tag: Ints
    alone: Bools


def rows_of(scaled: ScaledTrace, short: ScaledTrace) -> Rows:
    """Return what is known of the rows of a trace; short: the same with fewer iterations."""

    def per_row(values: list[int]) -> Ints:
        return np.asarray(values or [0], dtype=np.int64)[scaled.op]

    op = per_row([int(op_of(name) or 0) for name in scaled.ops])
    queue = per_row([queue_of(name) for name in scaled.ops])
    completes_many = scaled.is_op(*MANY)
    completes = scaled.is_kind(COMPLETION) & np.isin(op, [int(o) for o in WAITS])
    several = np.where(queue > 0, scaled.bytes, np.maximum(scaled.bytes, 1))
    wants = np.where(completes, np.where(completes_many, several, 1), 0)
    reason = reasons_of(scaled)
    message = (reason == Reason.EXECUTED) & (scaled.repeat > 0)
    sends, receives = (message & scaled.is_kind(kind) for kind in (SEND, RECV))
    absent = ~np.isin(np.arange(scaled.n), scaled.rank)
    return Rows(
        short,
        op,
        per_row([requests_of(name) for name in scaled.ops]),
        wants,
        (completes_many & (wants > 0)).astype(np.int64),
        scaled.is_op(*HALF_OF_ONE).astype(np.int64),
        queue,
        np.zeros(len(op), dtype=np.int64),
        reason,
        *row_channels(scaled, sends, receives),
        (sends | receives) & absent[np.maximum(scaled.peer, 0)],
    )
