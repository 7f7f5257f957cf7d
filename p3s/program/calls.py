"""What one rank does, call by call, in a form that every format of calls can be written from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from p3s.simulate.steps import REQUESTS, Bools, Floats, Ints, Op, Steps

#: What entries do. A persistent operation that is started is its nonblocking twin; MPI_Sendrecv is
#: ISEND, RECV and the WAIT for the send; MPI_Waitany and MPI_Waitsome are WAIT for the requests
#: that have been outstanding for the longest time.
OPS = (
    Op.SEND,
    Op.SSEND,
    Op.BSEND,
    Op.ISEND,
    Op.ISSEND,
    Op.RECV,
    Op.IRECV,
    Op.WAIT,
    Op.COLLECTIVE,
    Op.REST,
)
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
class Table:
    """Distinct calls of a rank; every column has one entry per call.

    ``op``: one of OPS. ``peer``: destination, source or root as a world rank, -1: none. ``tag``:
    tells apart the messages of a pair of ranks on all communicators. ``bytes``: of the message, of
    a collective as in a scaled trace. ``comm``: communicator of a collective. ``call``: index into
    ``names``. ``work_ns``: computation before it.
    """

    op: Ints
    peer: Ints
    tag: Ints
    bytes: Ints
    comm: Ints
    call: Ints
    work_ns: Floats
    names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.op)


@dataclass(frozen=True)
class RankProgram:
    """The events of one rank in program order: event i is entry ``at[i]`` of the table.

    A WAIT completes the requests of the events ``done[done_start[i]:done_start[i + 1]]``, which
    come before it. Every request is completed by one event.
    """

    rank: int
    table: Table
    at: Ints
    done_start: Ints
    done: Ints

    def __len__(self) -> int:
        return len(self.at)


#: Columns of a table, and what they are where nothing is said.
_NOTHING = {"op": 0, "peer": -1, "tag": -1, "bytes": 0, "comm": -1, "call": -1, "work_ns": 0.0}


@dataclass
class Rows:
    """A table that is being made; columns of ``add`` may be scalars."""

    names: tuple[str, ...]
    parts: list[dict[str, Any]]
    size: int = 0

    def add(self, number: int, **columns: Any) -> Ints:
        """Append entries and return their numbers; columns not named are -1, 0 for amounts."""
        part: dict[str, Any] = {}
        for name, nothing in _NOTHING.items():
            value = columns.get(name, nothing)
            kind = np.float64 if name == "work_ns" else np.int64
            part[name] = (
                np.asarray(value, dtype=kind)
                if isinstance(value, np.ndarray)
                else np.full(number, value, dtype=kind)
            )
        self.parts.append(part)
        self.size += number
        return np.arange(self.size - number, self.size)

    def table(self) -> Table:
        """Return the table."""
        return Table(
            **{name: np.concatenate([part[name] for part in self.parts]) for name in _NOTHING},
            names=self.names,
        )


NONE = np.zeros(0, dtype=np.int64)


def _none() -> Ints:
    return NONE


@dataclass(frozen=True)
class Block:
    """Entries that stand for each of the ``events``.

    ``entries``, then ``tail``: their numbers. The tail, which only blocks of one event have, comes
    right before what event ``tail_at`` is, or at the end of the run (-1). ``waits``,
    ``requests``: places, in entries and tail together, of waits and of the requests that they
    complete. ``prior``: place of a wait for the request of the event before, -1: none.
    """

    events: Ints
    entries: Ints
    waits: Ints = field(default_factory=_none)
    requests: Ints = field(default_factory=_none)
    prior: int = -1
    tail: Ints = field(default_factory=_none)
    tail_at: int = -1


def assemble(
    rank: int, table: Table, at: Ints, replaced: Bools, blocks: Sequence[Block], pairs: Pairs
) -> RankProgram:
    """Return a rank's program; events that are ``replaced`` become what their blocks say.

    ``pairs``: which events wait for which; those whose request is gone are left out. Requests that
    nobody completes are completed by a WAIT at the end.
    """
    size = len(at)
    ahead = np.zeros(size + 1, dtype=np.int64)
    own = np.append(np.where(replaced, 0, 1), 0)
    offset = []
    for block in blocks:
        own[block.events] = len(block.entries)
        goal = block.tail_at if block.tail_at >= 0 else size
        offset.append((goal, int(ahead[goal])))
        ahead[goal] += len(block.tail)
    begin = np.cumsum(ahead + own) - own
    made = np.zeros(int(begin[-1]), dtype=np.int64)
    plain = np.flatnonzero(~replaced)
    made[begin[plain]] = at[plain]
    place = np.where(replaced, -1, begin[:-1])  # of the request of every event
    waiting, requests = [], []
    for block, (goal, after) in zip(blocks, offset, strict=True):
        first = begin[block.events]
        inside = np.arange(len(block.entries))
        where = first[:, None] + inside
        made[where] = block.entries
        if len(block.tail):
            there = begin[goal] - ahead[goal] + after + np.arange(len(block.tail))
            made[there] = block.tail
            where = np.concatenate((where, there[None, :]), axis=1)
        waiting.append(where[:, block.waits].ravel())
        requests.append(where[:, block.requests].ravel())
        if block.prior >= 0:
            waiting.append(first + block.prior)
            requests.append(place[block.events - 1])
    waiting.append(place[pairs[0]])
    requests.append(place[pairs[1]])
    wait, request = np.concatenate(waiting), np.concatenate(requests)
    there = (wait >= 0) & (request >= 0)
    return _finished(rank, table, made, wait[there], request[there])


def _finished(rank: int, table: Table, at: Ints, waiting: Ints, requests: Ints) -> RankProgram:
    """Return the program with every request completed once."""
    op = table.op[at]
    leaves = np.isin(op, _REQUESTS)
    good = leaves[requests] & (op[waiting] == int(Op.WAIT))
    waiting, requests = waiting[good], requests[good]
    order = np.lexsort((requests, waiting))
    waiting, requests = waiting[order], requests[order]
    left = leaves.copy()
    left[requests] = False
    rest = np.flatnonzero(left)
    if len(rest):
        last = _last_wait(table)
        at = np.append(at, last[1])
        waiting = np.append(waiting, np.full(len(rest), len(at) - 1))
        requests = np.append(requests, rest)
        table = last[0]
    counts = np.bincount(waiting, minlength=len(at))
    return RankProgram(rank, table, at, sums(counts), requests)


def _last_wait(table: Table) -> tuple[Table, int]:
    """Return the table with an entry that only waits, and that entry's number."""
    names = table.names if "MPI_Waitall" in table.names else (*table.names, "MPI_Waitall")
    rows = Rows(names, [{name: getattr(table, name) for name in _NOTHING}], len(table))
    entry = rows.add(1, op=int(Op.WAIT), call=names.index("MPI_Waitall"))
    return rows.table(), int(entry[0])


def pairs_of(done_start: Ints, done: Ints, op: Ints, number: Ints) -> Pairs:
    """Return which events complete which requests.

    MPI_Waitany and MPI_Waitsome list all requests that they may complete, ``number`` says how many
    they do: those that have been outstanding for the longest time are taken.
    """
    counts = np.diff(done_start)
    waiting = np.repeat(np.arange(len(op)), counts)
    some = np.isin(op, (int(Op.WAITANY), int(Op.WAITSOME)))
    if not some.any():
        return waiting, done
    taken: set[int] = set()
    kept = np.ones(len(done), dtype=bool)
    for event in np.flatnonzero(counts).tolist():
        a, b = int(done_start[event]), int(done_start[event + 1])
        free = [k for k in range(a, b) if int(done[k]) not in taken]
        if some[event]:
            free = sorted(free, key=lambda k: int(done[k]))[: int(number[event])]
        chosen = set(free)
        kept[a:b] = [k in chosen for k in range(a, b)]
        taken.update(int(done[k]) for k in free)
    return waiting[kept], done[kept]


class Tags:
    """Numbers of (communicator, tag), from 0."""

    def __init__(self, comm: Ints, tag: Ints) -> None:
        self.keys = (
            np.unique(np.stack((comm, tag), axis=1), axis=0)
            if len(comm)
            else np.zeros((0, 2), dtype=np.int64)
        )
        self.number = {(c, t): k for k, (c, t) in enumerate(self.keys.tolist())}

    def __len__(self) -> int:
        return len(self.keys)

    def of(self, comm: Ints, tag: Ints) -> Ints:
        """Return the numbers; all of them were given before."""
        found, which = np.unique(np.stack((comm, tag), axis=1), axis=0, return_inverse=True)
        mine = np.array([self.number[c, t] for c, t in found.tolist()], dtype=np.int64)
        return mine[which.reshape(-1)] if len(comm) else NONE


def programs_of_steps(steps: Steps) -> Iterator[RankProgram]:
    """Yield the programs of the ranks of some steps, in their order."""
    op = PLAIN[steps.op]
    both = steps.op == int(Op.SENDRECV)
    plain = (np.isin(op, list(SENDING | RECEIVING)) | both) & (steps.peer >= 0)
    second = both & (steps.peer2 >= 0)
    tags = Tags(
        np.concatenate((steps.comm[plain], steps.comm[second])),
        np.concatenate((steps.tag[plain], steps.tag2[second])),
    )
    tag, tag2 = (np.full(len(steps), -1, dtype=np.int64) for _ in range(2))
    tag[plain] = tags.of(steps.comm[plain], steps.tag[plain])
    tag2[second] = tags.of(steps.comm[second], steps.tag2[second])
    nothing = ~plain & ~both & np.isin(op, list(SENDING | RECEIVING))  # no partner: MPI_PROC_NULL
    op = np.where(both, int(Op.ISEND), op)
    op = np.where(nothing | (both & ~plain), int(Op.REST), op)
    op = np.where(op == int(Op.ICOLLECTIVE), int(Op.COLLECTIVE), op)
    for i, rank in enumerate(steps.ranks.tolist()):
        mine = slice(int(steps.start[i]), int(steps.start[i + 1]))
        start = steps.done_start[mine.start : mine.stop + 1]
        pairs = pairs_of(
            start - start[0],
            steps.done[start[0] : start[-1]] - mine.start,
            steps.op[mine],
            steps.number[mine],
        )
        rows = Rows(steps.calls, [])
        number = mine.stop - mine.start
        at = rows.add(
            number,
            op=op[mine],
            peer=steps.peer[mine],
            tag=tag[mine],
            bytes=steps.bytes[mine],
            comm=steps.comm[mine],
            call=steps.call[mine],
            work_ns=steps.work_ns[mine],
        )
        halves = np.flatnonzero(both[mine])
        here = halves + mine.start
        receives = rows.add(
            len(halves),
            op=np.where(second[here], int(Op.RECV), int(Op.REST)),
            peer=steps.peer2[here],
            tag=tag2[here],
            bytes=steps.bytes2[here],
            comm=steps.comm[here],
            call=steps.call[here],
        )
        wait = rows.add(1, op=int(Op.WAIT))
        replaced = np.zeros(number, dtype=bool)
        replaced[halves] = True
        blocks = [
            Block(
                np.array([event]),
                np.array([event, receive, int(wait[0])]),
                np.array([2]),
                np.array([0]),
            )
            for event, receive in zip(halves.tolist(), receives.tolist(), strict=True)
        ]
        yield assemble(rank, rows.table(), at, replaced, blocks, pairs)


def sums(counts: Ints) -> Ints:
    """Return where runs of these lengths begin, and the end of the last."""
    return np.concatenate(([0], np.cumsum(counts))).astype(np.int64)


def members_are_world(members: Mapping[int, Ints], comm: int, n: int) -> bool:
    """Tell whether a communicator has all ranks in their order."""
    found = members.get(comm)
    return found is not None and len(found) == n and bool((found == np.arange(n)).all())
