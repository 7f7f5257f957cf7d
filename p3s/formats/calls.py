"""What one rank does, call by call, in a form that every format of calls can be written from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from p3s.base.arrays import Floats, Ints, starts
from p3s.program.order.pairs import codes_of
from p3s.simulate.steps import REQUESTS, Op, Steps

#: What events do. A persistent operation that is started is its nonblocking twin; MPI_Sendrecv is
#: ISEND, RECV and the WAIT for the send; MPI_Waitany and MPI_Waitsome are WAIT for the requests
#: that have been outstanding for the longest time.
_PLAIN = {
    Op.START_SEND: Op.ISEND,
    Op.START_SSEND: Op.ISSEND,
    Op.START_RECV: Op.IRECV,
    Op.WAITANY: Op.WAIT,
    Op.WAITSOME: Op.WAIT,
}
#: Number of the plain operation of every Op.
PLAIN = np.array([int(_PLAIN.get(Op(k), Op(k))) if k else 0 for k in range(len(Op) + 1)])
SENDING = frozenset({int(op) for op in (Op.SEND, Op.SSEND, Op.BSEND, Op.ISEND, Op.ISSEND)})
RECEIVING = frozenset({int(Op.RECV), int(Op.IRECV)})
_REQUESTS = np.array(sorted({int(PLAIN[int(op)]) for op in REQUESTS} - {int(Op.ICOLLECTIVE)}))

#: Requests of waits: (numbers of waiting events, numbers of the events that left the requests).
Pairs = tuple[Ints, Ints]


@dataclass(frozen=True)
class RankProgram:
    """The events of one rank in program order; every column has one entry per event.

    ``op``: as in PLAIN. ``peer``: destination, source or root as a world rank, -1: none. ``tag``:
    tells apart the messages of a pair of ranks on all communicators. ``bytes``: of the message, of
    a collective as in a scaled trace. ``call``: index into ``names``, -1: none. ``work_ns``:
    computation before it. A WAIT completes the requests of the events
    ``done[done_start[i]:done_start[i + 1]]``, which come before it. Every request is completed by
    one event.
    """

    rank: int
    op: Ints
    peer: Ints
    tag: Ints
    bytes: Ints
    call: Ints
    work_ns: Floats
    names: tuple[str, ...]
    done_start: Ints
    done: Ints

    def __len__(self) -> int:
        return len(self.op)


#: What the columns are where an event has nothing of the kind.
_NOTHING: dict[str, Any] = {"op": 0, "peer": -1, "tag": -1, "bytes": 0, "call": -1, "work_ns": 0.0}


def _program(
    rank: int, columns: dict[str, Any], names: tuple[str, ...], pairs: Pairs
) -> RankProgram:
    """Return a rank's program from the columns of its events, with every request completed once.

    Requests that nobody completes are completed by a WAIT at the end.
    """
    waiting, requests = pairs
    op = columns["op"]
    leaves = np.isin(op, _REQUESTS)
    good = leaves[requests] & (op[waiting] == int(Op.WAIT))
    waiting, requests = waiting[good], requests[good]
    order = np.lexsort((requests, waiting))
    waiting, requests = waiting[order], requests[order]
    leaves[requests] = False
    rest = np.flatnonzero(leaves)
    if len(rest):
        names = names if "MPI_Waitall" in names else (*names, "MPI_Waitall")
        last = {**_NOTHING, "op": int(Op.WAIT), "call": names.index("MPI_Waitall")}
        columns = {name: np.append(column, last[name]) for name, column in columns.items()}
        waiting = np.append(waiting, np.full(len(rest), len(op)))
        requests = np.append(requests, rest)
    done_start = starts(np.bincount(waiting, minlength=len(columns["op"])))
    return RankProgram(rank, **columns, names=names, done_start=done_start, done=requests)


def pairs_of(done_start: Ints, requests: Ints, op: Ints, number: Ints) -> Pairs:
    """Return which events complete which requests.

    MPI_Waitany and MPI_Waitsome list all requests that they may complete, ``number`` says how many
    they do: those that have been outstanding for the longest time are taken.
    """
    counts = np.diff(done_start)
    waiting = np.repeat(np.arange(len(op)), counts)
    completes_some = np.isin(op, (int(Op.WAITANY), int(Op.WAITSOME)))
    if not completes_some.any():
        return waiting, requests
    completed: set[int] = set()
    is_kept = np.ones(len(requests), dtype=bool)
    for event in np.flatnonzero(counts).tolist():
        a, b = int(done_start[event]), int(done_start[event + 1])
        free = [k for k in range(a, b) if int(requests[k]) not in completed]
        if completes_some[event]:
            free = sorted(free, key=lambda k: int(requests[k]))[: int(number[event])]
        chosen = set(free)
        is_kept[a:b] = [k in chosen for k in range(a, b)]
        completed.update(int(requests[k]) for k in free)
    return waiting[is_kept], requests[is_kept]


def programs_of_steps(steps: Steps) -> Iterator[RankProgram]:
    """Yield the programs of the ranks of some steps, in their order."""
    op = PLAIN[steps.op]
    both = steps.op == int(Op.SENDRECV)
    talks = np.isin(op, list(SENDING | RECEIVING))
    plain = (talks | both) & (steps.peer >= 0)
    second = both & (steps.peer2 >= 0)
    tag, tag2 = (np.full(len(steps), -1, dtype=np.int64) for _ in range(2))
    number = codes_of(
        [
            np.concatenate((one[plain], two[second])).astype(np.int64)
            for one, two in ((steps.comm, steps.comm), (steps.tag, steps.tag2))
        ]
    )
    tag[plain], tag2[second] = np.split(number, [int(plain.sum())])
    op = np.where(both, int(Op.ISEND), op)
    op = np.where((talks | both) & ~plain, int(Op.REST), op)  # no partner: MPI_PROC_NULL
    op = np.where(op == int(Op.ICOLLECTIVE), int(Op.COLLECTIVE), op)
    for i, rank in enumerate(steps.ranks.tolist()):
        mine = slice(int(steps.start[i]), int(steps.start[i + 1]))
        start = steps.done_start[mine.start : mine.stop + 1]
        waiting, requests = pairs_of(
            start - start[0],
            steps.done[start[0] : start[-1]] - mine.start,
            steps.op[mine],
            steps.number[mine],
        )
        size = np.where(both[mine], 3, 1)  # a send, a receive, the wait for the send
        begin = np.cumsum(size) - size
        columns = {
            "op": op[mine],
            "peer": steps.peer[mine],
            "tag": tag[mine],
            "bytes": steps.bytes[mine],
            "call": steps.call[mine],
            "work_ns": steps.work_ns[mine],
        }
        columns = {
            name: np.repeat(column, size).astype(np.result_type(_NOTHING[name]))
            for name, column in columns.items()
        }
        halves = np.flatnonzero(both[mine])
        positions, receive, wait = halves + mine.start, begin[halves] + 1, begin[halves] + 2
        columns["op"][receive] = np.where(second[positions], int(Op.RECV), int(Op.REST))
        columns["peer"][receive] = steps.peer2[positions]
        columns["tag"][receive] = tag2[positions]
        columns["bytes"][receive] = steps.bytes2[positions]
        columns["work_ns"][receive] = 0.0
        for name, default in _NOTHING.items():
            columns[name][wait] = int(Op.WAIT) if name == "op" else default
        pairs = (
            np.concatenate((begin[waiting], wait)),
            np.concatenate((begin[requests], begin[halves])),
        )
        yield _program(rank, columns, steps.calls, pairs)


def members_are_world(members: Mapping[int, Ints], comm: int, n: int) -> bool:
    """Tell whether a communicator has all ranks in their order."""
    ranks = members.get(comm)
    return ranks is not None and len(ranks) == n and bool((ranks == np.arange(n)).all())
