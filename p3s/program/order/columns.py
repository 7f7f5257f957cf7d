"""Columns of the Steps of a stretch from its events."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from p3s.base.arrays import Bools, Floats, Ints, starts
from p3s.program.order.calls import op_of, step_name
from p3s.program.order.sequence import Calls
from p3s.program.scaled import IO, ScaledTrace
from p3s.simulate.steps import WAITS, Op, Steps, constant, narrow, narrowed, taken

_WAITS = [int(op) for op in WAITS]


@dataclass(frozen=True)
class Rows:
    """What is known of the rows of a trace before they are put in order.

    reason: a Reason per row. out, into: channel that a row sends into, receives from, -1: none;
    tag: that of its message. alone: rows whose partner is a rank that the trace does not hold.
    """

    trace: ScaledTrace
    calls: Calls
    reason: Ints
    out: Ints
    into: Ints
    tag: Ints
    alone: Bools


@dataclass
class Flat:
    """All events of a stretch, rank after rank, before any is left out."""

    ranks: Ints
    start: Ints
    row: Ints
    turn: Ints
    sort: Ints
    chunk: Ints
    sent: Ints
    received: Ints
    op: Ints
    number: Ints
    done_start: Ints
    done: Ints

    def clear(self) -> None:
        """Forget what only tells which events meet."""
        none = np.zeros(0, dtype=np.int64)
        self.sort = self.chunk = self.sent = self.received = none


def steps_of(
    rows: Rows,
    flat: Flat,
    kept: Bools,
    second: Bools,
    to: Ints,
    source: Ints,
    number: Ints,
    weight: Floats,
    by: Ints,
    done: Ints,
    entries: float,
) -> Steps:
    """Return the steps that are kept; computation before the others goes to the next one."""
    trace = rows.trace
    calls = tuple(trace.ops)
    row, op = flat.row, flat.op
    merged = np.flatnonzero(second) - 1  # the send halves
    source[merged] = source[merged + 1]
    for link in (to, source):
        moved = np.flatnonzero(link >= 0)[second[link[link >= 0]]]
        link[moved] -= 1
    op[op == Op.SENDRECV] = Op.SEND  # where only half of it is known
    op[merged] = Op.SENDRECV

    away = np.asarray([name in ("MPI_Init", "MPI_Init_thread") for name in calls] + [False])
    work = np.where(away[trace.op], 0.0, trace.before)[row]
    places = _places(flat, kept, work)
    column, new = places.column, places.new

    of_waits = np.isin(op, _WAITS)
    peer = narrowed(trace.peer)[row]
    rooted = np.flatnonzero(op >= int(Op.COLLECTIVE))
    peer[rooted] = trace.root[row[rooted]]
    peer[of_waits] = -1
    halves = [(-1, trace.peer), (-1, rows.tag), (0, trace.bytes)]
    peer2, tag2, bytes2 = (
        _of_halves(narrowed(values) if fill else values, row, merged, fill)
        for fill, values in halves
    )
    nbytes = trace.bytes[row]
    nbytes[of_waits | trace.is_kind(IO)[row]] = 0
    number[~of_waits] = 0
    waiting = by if new is None else new[by]
    done = done if new is None else new[done]
    order = np.argsort(waiting, kind="stable")
    partner = [
        link if new is None else np.where(link >= 0, new[link], new.dtype.type(-1))
        for link in (to, source)
    ]
    names, call = _names(calls, trace.op)
    return Steps(
        n=trace.n,
        ranks=flat.ranks,
        start=places.start,
        op=column(op, 0, int(Op.REST)),
        peer=column(peer, -1, -1),
        tag=column(narrowed(rows.tag)[row], -1, -1),
        comm=column(_gathered(trace.comm, row), 0, 0),
        bytes=column(nbytes, 0, 0),
        peer2=column(peer2, -1, -1),
        tag2=column(tag2, -1, -1),
        bytes2=column(bytes2, 0, 0),
        call=column(narrowed(call)[row], 0, len(names) - 1),
        work_ns=column(places.work, 0.0, places.rest),
        number=column(number, 0, 0),
        row=column(row, -1, -1),
        weight=column(weight, 0.0, entries),
        turn=column(flat.turn, 0, _last_turn(flat, places.resting)),
        done_start=starts(np.bincount(waiting, minlength=places.count)),
        done=done[order],
        to=column(partner[0], -1, -1),
        source=column(partner[1], -1, -1),
        calls=names,
        members=dict(trace.members),
    )


def _gathered(values: Ints, row: Ints) -> Ints:
    """Return the entries of rows; equal ones lie in memory once."""
    first = int(values[0]) if len(values) else 0
    return constant(first, len(row)) if (values == first).all() else values[row]


def _of_halves(values: np.ndarray, row: Ints, merged: Ints, fill: int) -> np.ndarray:
    """Return what the receive halves of MPI_Sendrecv say, ``fill`` elsewhere."""
    if not len(merged):
        return constant(fill, len(row))
    made = np.full(len(row), fill, dtype=values.dtype)
    made[merged] = values[row[merged + 1]]
    return made


@dataclass(frozen=True, eq=False)
class _Places:
    """Where events go that are kept, and computation behind them.

    ``new``: the step of each event, -1: none; None: all of them are, in their order. ``where``:
    events that are kept, ``at``: their steps; ``tail``: steps of computation behind the last call
    of the ranks ``resting``, ``rest``: how much. ``work``: computation before each event.
    """

    start: Ints
    new: Ints | None
    where: Ints
    at: Ints
    tail: Ints
    resting: Ints
    rest: Floats
    work: Floats

    @property
    def count(self) -> int:
        """How many steps there are."""
        return int(self.start[-1])

    def column(
        self, values: np.ndarray, nothing: float, rest_value: float | Ints | Floats
    ) -> np.ndarray:
        """Return a column of the steps from one of the events."""
        if self.new is None:
            return values
        if self.count == len(self.where):
            return taken(values, self.where)
        if values.strides == (0,) and values.size and (values[0] == nothing == rest_value):
            return np.broadcast_to(values[0], (self.count,))
        made = np.full(self.count, nothing, dtype=values.dtype)
        made[self.at] = taken(values, self.where)
        made[self.tail] = rest_value
        return made


def _places(flat: Flat, kept: Bools, work: Floats) -> _Places:
    """Computation goes to the next step of the rank; after the last one it is a step of its own."""
    total, none = len(kept), np.zeros(0, dtype=np.int64)
    if kept.all():
        return _Places(flat.start, None, none, none, none, none, np.zeros(0), work)
    dtype = flat.row.dtype
    rank_of = np.repeat(np.arange(len(flat.ranks), dtype=dtype), np.diff(flat.start))
    where = np.flatnonzero(kept).astype(dtype)
    following = np.cumsum(kept, dtype=dtype)
    following -= kept
    target = np.append(where, dtype.type(0))[following]
    late = (following == len(where)) | (rank_of[np.minimum(target, max(total - 1, 0))] != rank_of)
    del following
    before, rest = (
        np.asarray(np.bincount(of[mine], weights=work[mine], minlength=size), dtype=np.float64)
        for of, mine, size in ((target, ~late, total), (rank_of, late, len(flat.ranks)))
    )
    del target, late
    resting = np.flatnonzero(rest > 0)
    lengths = np.bincount(rank_of[kept], minlength=len(flat.ranks))
    ends = lengths.copy()
    ends[resting] += 1
    start = starts(ends)
    new = np.full(total, -1, dtype=narrow(total + len(flat.ranks)))
    shift = (start[:-1] - starts(lengths)[:-1]).astype(new.dtype)
    at = np.arange(len(where), dtype=new.dtype) + shift[rank_of[where]]
    new[where] = at
    return _Places(start, new, where, at, start[1:][resting] - 1, resting, rest[resting], before)


def _last_turn(flat: Flat, ranks: Ints) -> Ints:
    return flat.turn[flat.start[ranks + 1] - 1] if len(ranks) else np.zeros(0, dtype=np.int64)


def _names(ops: tuple[str, ...], op: Ints) -> tuple[tuple[str, ...], Ints]:
    """Return the names of calls, "REST" the last one, and the number of each event's call."""
    used = [k for k, name in enumerate(ops) if op_of(name) is not None]
    number = np.full(max(len(ops), 1), -1, dtype=np.int64)
    number[used] = np.arange(len(used))
    return (*(step_name(ops[k]) for k in used), "REST"), number[op]


def with_weights(steps: Steps, factor: Floats) -> Steps:
    """Return steps whose weights are multiplied by the factor of their row."""
    if (factor == 1.0).all():
        return steps
    of_row = np.append(factor, 1.0)[steps.row]
    return replace(steps, weight=steps.weight * of_row)
