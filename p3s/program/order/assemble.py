"""Make the Steps of a stretch from what its ranks do there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from p3s.base.arrays import Bools, Floats, Ints, starts
from p3s.base.errors import P3SError
from p3s.program.order.calls import Reason, Rows, op_of, step_name
from p3s.program.order.completions import RECEIVES as RECEIVES_FIRST
from p3s.program.order.completions import Outstanding
from p3s.program.order.cut import Part, Piece
from p3s.program.order.pairs import pair_channels
from p3s.program.order.sequence import Kind
from p3s.program.scaled import IO, ScaledTrace
from p3s.simulate.steps import (
    RECEIVES,
    REQUESTS,
    WAITS,
    Op,
    Steps,
    constant,
    narrow,
    narrow_column,
    numbered_calls,
    select_steps,
)

_REQUESTS = [int(op) for op in REQUESTS]
_WAITS = [int(op) for op in WAITS]


@dataclass
class Flat:
    """All events of a stretch, rank after rank, before any is left out.

    row, turn, sort, op, number: of each; chunk: those of a rank that follow each other in the run
    have one number; sent, received: messages on its channel before that. done: events whose
    requests event i completes, done[done_start[i]:done_start[i + 1]].
    """

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


@dataclass(frozen=True)
class AssembledSteps:
    """Steps of a stretch; their weights are not yet final.

    assigned: per row of the trace, the events of the run that its steps stand for. fate: per row
    the Reason why it has no steps here, EXECUTED if it has, -1 if it is not of this stretch.
    """

    steps: Steps
    phases: tuple[int, ...]
    assigned: Floats
    fate: Ints


def assemble(piece: Piece, kinds: Sequence[Kind], rows: Rows, *, in_order: bool) -> AssembledSteps:
    """Return the steps of a stretch.

    in_order: what lies before the stretch is known, so that a message that is under way when it
    begins is not taken for one that is sent in it.
    """
    trace = rows.trace
    flat = _lay_out(piece, kinds, rows, in_order)
    row = flat.row
    reason: np.ndarray = rows.reason.astype(np.int8)[row]
    to, source, lonely = _pair_steps(rows, flat, reason == Reason.EXECUTED, in_order)
    reason[lonely] = np.where(trace.tag[row[lonely]] < 0, Reason.NO_TAG, Reason.NO_PARTNER)
    reason[_not_by_all(rows, flat, reason == Reason.EXECUTED)] = Reason.NO_PARTNER
    # Completions whose requests are all left out.
    by = np.repeat(np.arange(len(row), dtype=row.dtype), np.diff(flat.done_start))
    live = (reason[flat.done] == Reason.EXECUTED) & np.isin(flat.op[flat.done], _REQUESTS)
    counts = np.bincount(by[live], minlength=len(row)).astype(flat.number.dtype)
    waits = np.isin(flat.op, _WAITS)
    reason[waits & (reason == Reason.EXECUTED) & (counts == 0)] = Reason.NO_REQUEST
    executed = reason == Reason.EXECUTED
    weight, assigned, fate = _weights(piece, kinds, rows, flat, reason)
    number = np.where(flat.op == Op.WAIT, counts, np.minimum(flat.number, counts))
    flat.number = np.where(waits, number, 0)
    flat.done, flat.done_start = flat.done[live], starts(counts)
    flat.sort = flat.chunk = flat.sent = flat.received = np.zeros(0, dtype=np.int64)  # for memory
    second = _second_halves(trace, flat, executed)
    _join_halves(flat, np.flatnonzero(second) - 1, second, to, source)
    steps = _steps(rows, flat, executed & ~second, to, source, weight, piece.entries)
    phases = tuple(np.unique(trace.phase[row]).tolist())
    return AssembledSteps(steps, phases, assigned, fate)


def _join_halves(flat: Flat, merged: Ints, second: Bools, to: Ints, source: Ints) -> None:
    """Make MPI_Sendrecv of its halves: of the send half; the receive half's links become its."""
    source[merged] = source[merged + 1]
    for link in (to, source):
        moved = np.flatnonzero(link >= 0)[second[link[link >= 0]]]
        link[moved] -= 1
    flat.op[flat.op == Op.SENDRECV] = Op.SEND  # where only half of it is known
    flat.op[merged] = Op.SENDRECV


def _steps(
    rows: Rows, flat: Flat, executed: Bools, to: Ints, source: Ints, weight: Floats, entries: float
) -> Steps:
    """Return the steps that are kept; computation before the others goes to the next one.

    Behind the last one of a rank it is a step of its own.
    """
    trace, row, op = rows.trace, flat.row, flat.op
    waits, rooted = np.isin(op, _WAITS), np.flatnonzero(op >= int(Op.COLLECTIVE))
    peer = narrow_column(trace.peer)[row]
    peer[rooted] = trace.root[row[rooted]]
    peer[waits] = -1
    nbytes = trace.bytes[row]
    nbytes[waits | trace.is_kind(IO)[row]] = 0
    merged = np.flatnonzero(op == Op.SENDRECV)
    names, call = _names(trace.ops, trace.op)
    comm = int(trace.comm[0]) if trace.rows else 0
    alike = (trace.comm == comm).all()
    full = Steps(
        n=trace.n,
        ranks=flat.ranks,
        start=flat.start,
        op=op,
        peer=peer,
        tag=narrow_column(rows.tag)[row],
        comm=constant(comm, len(row)) if alike else trace.comm[row],
        bytes=nbytes,
        peer2=_of_halves(narrow_column(trace.peer), row, merged, -1),
        tag2=_of_halves(narrow_column(rows.tag), row, merged, -1),
        bytes2=_of_halves(trace.bytes, row, merged, 0),
        call=narrow_column(call)[row],
        work_ns=np.where(trace.is_op("MPI_Init", "MPI_Init_thread"), 0.0, trace.before)[row],
        number=flat.number,
        row=row,
        weight=weight,
        turn=flat.turn,
        done_start=flat.done_start,
        done=flat.done,
        to=to,
        source=source,
        calls=names,
        members=dict(trace.members),
    )
    if executed.all():
        return full
    return _drop_steps(full, executed, entries)


def _drop_steps(full: Steps, executed: Bools, entries: float) -> Steps:
    """Return the steps that are kept, and what is computed behind the last one of each rank."""
    ranks, size = len(full.ranks), len(full) + len(full.ranks)
    ends = full.start[1:] + np.arange(ranks)  # where a rank's last computation would be
    place = np.delete(np.arange(size, dtype=narrow(size)), ends)
    stays = np.zeros(size, dtype=bool)
    stays[place], stays[ends] = executed, True
    before = np.where(stays, np.arange(size, dtype=place.dtype), place.dtype.type(size))
    before = np.minimum.accumulate(before[::-1])[::-1][place]  # the step that computation is before
    work = np.bincount(before, weights=full.work_ns, minlength=size).astype(np.float64)
    stays[ends] = work[ends] > 0

    def wide(name: str, rest: float | Ints) -> np.ndarray:
        values = getattr(full, name)
        if values.strides == (0,) and values.size and np.ndim(rest) == 0 and values[0] == rest:
            return np.broadcast_to(values[0], (size,))
        column = np.empty(size, dtype=values.dtype)
        column[place], column[ends] = values, rest
        return column

    def linked(link: Ints) -> Ints:
        return np.where(link >= 0, place[np.maximum(link, 0)], place.dtype.type(-1))

    full = replace(full, to=linked(full.to), source=linked(full.source))
    rest: dict[str, Any] = {
        **dict.fromkeys(("peer", "tag", "peer2", "tag2", "row", "to", "source"), -1),
        **dict.fromkeys(("comm", "bytes", "bytes2", "number"), 0),
        "op": int(Op.REST),
        "call": len(full.calls) - 1,
        "weight": entries,
        "turn": full.turn[full.start[1:] - 1],
    }
    counts = np.zeros(size, dtype=np.int64)
    counts[place] = np.diff(full.done_start)
    columns: dict[str, Any] = {name: wide(name, value) for name, value in rest.items()}
    everything = replace(
        full,
        start=full.start + np.arange(ranks + 1),
        work_ns=work,
        done=place[full.done],
        done_start=starts(counts),
        **columns,
    )
    return select_steps(everything, stays)


def _of_halves(values: np.ndarray, row: Ints, merged: Ints, fill: int) -> np.ndarray:
    """Return what the receive halves of MPI_Sendrecv say, ``fill`` elsewhere."""
    if not len(merged):
        return constant(fill, len(row))
    column = np.full(len(row), fill, dtype=values.dtype)
    column[merged] = values[row[merged + 1]]
    return column


def _names(ops: tuple[str, ...], op: Ints) -> tuple[tuple[str, ...], Ints]:
    """Return the names of calls, "REST" the last one, and the number of each row's call."""
    used = [k for k, name in enumerate(ops) if op_of(name) is not None]
    number = np.full(max(len(ops), 1), -1, dtype=np.int64)
    number[used] = np.arange(len(used))
    return (*(step_name(ops[k]) for k in used), "REST"), number[op]


def _pair_steps(rows: Rows, flat: Flat, runs: Bools, in_order: bool) -> tuple[Ints, Ints, Bools]:
    """Return which steps meet, and which of those that run meet none."""
    out, into = (narrow_column(channel)[flat.row] for channel in (rows.out, rows.into))
    out[~runs], into[~runs] = -1, -1
    earlier = (flat.chunk, flat.sent, flat.received) if in_order else (None, None, None)
    to, source = pair_channels(out, into, *earlier)
    lonely = (out >= 0) & (to < 0) | (into >= 0) & (source < 0)
    lonely[lonely] = ~rows.alone[flat.row[lonely]]
    return to, source, lonely


def _not_by_all(rows: Rows, flat: Flat, runs: Bools) -> Bools:
    """Return which events are collectives that not all members of the communicator call.

    The k-th call of each member is the same one.
    """
    partial = np.zeros(len(runs), dtype=bool)
    at = np.flatnonzero(runs & np.isin(flat.op, [int(Op.COLLECTIVE), int(Op.ICOLLECTIVE)]))
    if not len(at):
        return partial
    rank = np.repeat(flat.ranks, np.diff(flat.start))[at]
    instance, pairs = numbered_calls(rank, rows.trace.comm[flat.row[at]])
    present, members = np.unique(rows.trace.rank), rows.trace.members
    comms, comm_index = np.unique(pairs[:, 0], return_inverse=True)
    size = [int(np.isin(members.get(c, ()), present).sum()) for c in comms.tolist()]
    few = np.bincount(instance) < np.array(size)[comm_index.reshape(-1)]
    partial[at] = few[instance]
    return partial


def _lay_out(piece: Piece, kinds: Sequence[Kind], rows: Rows, in_order: bool) -> Flat:
    parts = [part for part in piece.parts if len(part.events)]
    owner = np.concatenate(
        [np.full(len(kinds[p.kind].ranks), i) for i, p in enumerate(parts)]
        or [np.zeros(0, dtype=np.int64)]
    )
    ranks = np.concatenate([kinds[p.kind].ranks for p in parts] or [np.zeros(0, dtype=np.int64)])
    order = np.argsort(ranks, kind="stable")
    ranks, owner = ranks[order], owner[order]
    linked = [links(kinds[p.kind], p, rows) for p in parts]
    length = np.asarray([len(p.events) for p in parts] or [0], dtype=np.int64)[owner]
    start = starts(length)
    done_start = starts(np.asarray([len(x.done) for x in linked] or [0], dtype=np.int64)[owner])
    total = int(start[-1])
    # The rows, too, are fewer than the events, or not many more.
    number = narrow(max(total, rows.trace.rows, int(done_start[-1])) + 1)
    row, turn, sort, chunk, count = (np.zeros(total, dtype=number) for _ in range(5))
    sent, received = (np.zeros(total if in_order else 0, dtype=number) for _ in range(2))
    flat = Flat(
        ranks,
        start,
        row,
        turn,
        sort,
        chunk,
        sent,
        received,
        np.zeros(total, dtype=np.uint8),
        count,
        np.zeros(total + 1, dtype=number),
        np.zeros(int(done_start[-1]), dtype=number),
    )
    for i, (part, link) in enumerate(zip(parts, linked, strict=True)):
        kind = kinds[part.kind]
        mine = np.flatnonzero(owner == i)
        at = start[mine][:, None].astype(number) + np.arange(len(part.events), dtype=number)
        local = kind.row[part.events]
        flat.row[at] = kind.first[:, None] + local
        chunk = np.zeros(len(local), dtype=np.int64)
        chunk[1:] = np.cumsum(np.diff(part.events) != 1)
        for column, values in (
            (flat.turn, part.turn),
            (flat.sort, part.sort),
            (flat.op, link.op),
            (flat.chunk, chunk),
            (flat.number, link.number),
        ):
            column[at] = values
        if in_order:
            _before(kind, part.events, chunk, rows, at, flat)
        positions = done_start[mine][:, None] + np.arange(len(link.done))
        flat.done[positions] = start[mine][:, None] + link.done
        flat.done_start[at + number(1)] = link.many
    np.cumsum(flat.done_start, out=flat.done_start)
    return flat


@dataclass(frozen=True)
class Links:
    """Per event of a part its Op, number and number of requests completed; done: which."""

    op: Ints
    number: Ints
    many: Ints
    done: Ints


def links(kind: Kind, part: Part, rows: Rows) -> Links:
    """Return which events of a part complete requests of which others."""
    events = part.events
    op = rows.op[int(kind.first[0]) + kind.row[events]]
    if kind.some and np.isin(op, _WAITS).any():
        return _links_of_some(kind, events, op, rows)
    begin, end = kind.begin[events], kind.end[events]
    counts = end - begin
    by = np.repeat(np.arange(len(events)), counts)
    request = (
        np.arange(len(by))
        - np.repeat(np.cumsum(counts) - counts, counts)
        + np.repeat(begin, counts)
    )
    posted, half = kind.posted[request], kind.half[request]
    both = np.flatnonzero(half >= 0)
    by, posted = np.concatenate((by, by[both])), np.concatenate((posted, half[both]))
    at = np.minimum(np.searchsorted(events, posted), len(events) - 1)
    inside = (events[at] == posted) & (at < by)
    by, at = by[inside], at[inside]
    order = np.lexsort((at, by))
    counts_by = np.bincount(by, minlength=len(events))
    return Links(op, counts_by, counts_by, at[order])


def _links_of_some(kind: Kind, events: Ints, op: Ints, rows: Rows) -> Links:
    first = int(kind.first[0])
    posts = rows.posts[first + kind.row[events]].tolist()
    wants = kind.wants[events].tolist()
    prefer = rows.prefer[first + kind.row[events]].tolist()
    half = dict(zip(kind.posted.tolist(), kind.half.tolist(), strict=True))
    place = {event: i for i, event in enumerate(events.tolist())}
    receives = {int(o) for o in RECEIVES}
    ops, number = op.copy(), np.zeros(len(events), dtype=np.int64)
    counts, completed = np.zeros(len(events), dtype=np.int64), []
    queue = rows.queue[first + kind.row[events]].tolist()
    queues = {each: Outstanding() for each in set(queue)}
    for i, (event, operation) in enumerate(zip(events.tolist(), op.tolist(), strict=True)):
        open_ = queues[queue[i]]
        if posts[i]:
            send = place.get(half.get(event, -1))
            open_.post(i, (i,) if send is None else (send, i), operation in receives)
        elif wants[i]:
            new, number[i], requests = open_.complete(
                Op(operation), wants[i], prefer[i] == RECEIVES_FIRST if prefer[i] else None
            )
            ops[i], counts[i] = int(new), len(requests)
            completed += requests
    return Links(ops, number, counts, np.asarray(completed, dtype=np.int64))


def _before(kind: Kind, events: Ints, chunk: Ints, rows: Rows, place: Ints, flat: Flat) -> None:
    """Add how many messages went through each step's channel before its chunk.

    ``place``: of each rank's events in ``flat``.
    """
    number, per = len(kind.ranks), len(events)
    starts = np.flatnonzero(np.diff(chunk, prepend=-1))
    if not len(starts) or (len(starts) == 1 and events[0] == 0):
        return
    mine = kind.first[:, None] + np.arange(kind.rows)
    local = kind.row[events]
    for channels, target in ((rows.out[mine], flat.sent), (rows.into[mine], flat.received)):
        has = np.flatnonzero((channels >= 0).any(axis=0))
        if not len(has):
            continue
        used = channels[:, has]
        codes, inverse = np.unique(used, return_inverse=True)
        inverse = inverse.reshape(-1)
        column = np.full(kind.rows, -1, dtype=np.int64)
        column[has] = np.arange(len(has))
        counts, at = np.zeros(kind.rows, dtype=np.int64), 0
        for a, b in zip(starts.tolist(), [*starts[1:].tolist(), per], strict=True):
            event = int(events[a])
            counts += np.bincount(kind.row[at:event], minlength=kind.rows)
            at = event
            sums = np.bincount(inverse, weights=np.tile(counts[has], number), minlength=len(codes))[
                inverse
            ].reshape(used.shape)
            where = column[local[a:b]]
            has_channel = np.flatnonzero(where >= 0)
            if int(sums.max(initial=0)) > np.iinfo(target.dtype).max:
                raise P3SError(
                    "the scaled trace sends more messages on one channel than can be counted"
                )
            target[place[:, a + has_channel]] = sums[:, where[has_channel]]


def _weights(
    piece: Piece, kinds: Sequence[Kind], rows: Rows, flat: Flat, reason: np.ndarray
) -> tuple[Floats, Floats, Ints]:
    """Return the weight of every event, the events assigned to each row, and its fate.

    What a row does in iterations of one sort is shared by its steps in iterations of that sort;
    where there are none, by all its steps."""
    total = rows.trace.rows
    assigned = np.zeros(total)
    fate = np.full(total, -1, dtype=np.int64)
    wanted_keys, wanted_events = [], []
    for part in piece.parts:
        kind = kinds[part.kind]
        local, sort = np.nonzero(part.counts)
        wanted_keys.append(((kind.first[:, None] + local) * piece.sorts + sort).ravel())
        wanted_events.append(np.tile(part.counts[local, sort], len(kind.ranks)))
    keys = np.concatenate(wanted_keys) if wanted_keys else np.zeros(0, dtype=np.int64)
    events = (np.concatenate(wanted_events) if wanted_events else np.zeros(0)).astype(np.float64)
    order = np.argsort(keys, kind="stable")
    keys, events = keys[order], events[order]
    row = keys // piece.sorts
    fate[row] = Reason.NOT_SEEN
    fate[flat.row] = reason
    executed = reason == Reason.EXECUTED
    at = np.searchsorted(keys, flat.row.astype(np.int64) * piece.sorts + flat.sort)
    at = at.astype(flat.row.dtype)
    steps = np.bincount(at[executed], minlength=len(keys))
    all_ = np.bincount(at, minlength=len(keys))
    has = steps > 0
    fate[row[has]] = Reason.EXECUTED
    whole = np.bincount(row, weights=events, minlength=total)
    covered = np.bincount(row[has], weights=events[has], minlength=total)
    assigned = np.where(covered > 0, whole, 0.0)
    share = np.divide(whole, covered, out=np.ones(total), where=covered > 0)
    # Those left out have the weight that they would have: it is that of the computation alone.
    each = events / np.maximum(np.where(has, steps, all_), 1)
    weight = each[at]
    weight *= share[flat.row]
    return weight, assigned, fate


def _second_halves(trace: ScaledTrace, flat: Flat, executed: Bools) -> Bools:
    """Return which events are the receive half of the MPI_Sendrecv right before them.

    At a border a rank sends to nobody, or receives from nobody: the send of one iteration and the
    receive of the next one then follow each other. These are two calls, with computation between;
    the row of the receive is the earlier one.
    """
    code = trace.is_op("MPI_Sendrecv", "MPI_Sendrecv_replace")[flat.row]
    second = trace.is_op("MPI_Sendrecv_recv")[flat.row] & executed
    second[:1] = False
    second[1:] &= (code & executed)[:-1] & (flat.row[1:] > flat.row[:-1])
    first_of_rank = flat.start[:-1][np.diff(flat.start) > 0]
    second[first_of_rank] = False
    return second
