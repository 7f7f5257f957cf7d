"""What waits for what in a program: messages matched, completions as edges of a graph."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from p3s.replay.plan.build_blocks import waited
from p3s.replay.plan.build_traffic import dense
from p3s.replay.plan.program import Code, Program, among
from p3s.simulate.steps import Bools, Ints

_SENDS = (Code.SEND, Code.SSEND, Code.ISEND, Code.ISSEND, Code.SENDRECV, Code.BUFFERED, Code.ANSWER)
_RECEIVES = (Code.RECV, Code.IRECV, Code.SECOND)
_REQUESTS = (
    Code.ISEND,
    Code.ISSEND,
    Code.IRECV,
    Code.START,
    Code.COLLECTIVE_START,
    Code.BUFFERED,
    Code.ANSWER,
)
_SYNCHRONOUS = (Code.SSEND, Code.ISSEND)
#: Kinds of channels: messages, control messages, floods of a link program.
MESSAGE, CONTROL, FLOOD = 0, 1, 2


@dataclass(frozen=True)
class Half:
    """Ends of messages, sends or receives; ``event`` counts all events of the program.

    ``posted``: the event whose completion means that this end is posted, -1 from the beginning.
    ``waits``: the event that cannot complete before the other end is posted, -1 if it is a
    request (of ``slot``). ``code``: a Code, of a START of what it starts.
    """

    event: Ints
    process: Ints
    peer: Ints
    tag: Ints
    bytes: Ints
    kind: Ints
    posted: Ints
    waits: Ints
    slot: Ints
    code: Ints


@dataclass(frozen=True)
class Columns:
    """Columns of all events, with what a START starts filled in."""

    code: Ints
    act: Ints
    peer: Ints
    tag: Ints
    bytes: Ints
    process: Ints
    before: Ints


def columns_of(program: Program) -> Columns:
    """Return the columns; ``act`` is the code of what is done, ``before`` the event before."""
    events = program.events
    number = len(events)
    process = np.repeat(np.arange(len(program.start) - 1), np.diff(program.start))
    before = np.arange(number) - 1
    before[program.start[:-1][np.diff(program.start) > 0]] = -1
    values = {name: events[name].astype(np.int64) for name in ("peer", "tag", "bytes")}
    act = events["code"].astype(np.int64)
    starts = np.flatnonzero(act == Code.START)
    for p in np.unique(process[starts]).tolist():
        mine = starts[process[starts] == p]
        records = program.persistent[p][events["arg"][mine]]
        act[mine] = records["code"]
        for name, column in values.items():
            column[mine] = records[name]
    return Columns(
        events["code"].astype(np.int64),
        act,
        values["peer"],
        values["tag"],
        values["bytes"],
        process,
        before,
    )


def halves(program: Program, columns: Columns) -> tuple[Half, Half]:
    """Return all sends and all receives, in the order of events."""
    slot = program.events["slot"].astype(np.int64)
    parts: tuple[list[tuple[Ints, ...]], list[tuple[Ints, ...]]] = ([], [])

    def add(
        sends: bool,
        codes: tuple[Code, ...],
        kind: int,
        blocking: bool,
        shift: int = 0,
        after: bool = False,
    ) -> None:
        at = np.flatnonzero(among(columns.act, *codes))
        posted = at if after else columns.before[at - shift]
        waits = at - shift if blocking else np.full(len(at), -1, dtype=np.int64)
        parts[0 if sends else 1].append(
            (
                at,
                np.full(len(at), kind),
                posted,
                waits,
                np.full(len(at), -1) if blocking else slot[at],
            )
        )

    add(True, (Code.SEND, Code.SSEND, Code.SENDRECV), MESSAGE, True)
    add(True, (Code.ISEND, Code.ISSEND, Code.BUFFERED), MESSAGE, False)
    add(True, (Code.ANSWER,), MESSAGE, False, after=True)
    add(True, (Code.ASK,), CONTROL, True)
    add(True, (Code.LINK_SEND,), FLOOD, True)
    add(False, (Code.RECV,), MESSAGE, True)
    add(False, (Code.IRECV,), MESSAGE, False)
    add(False, (Code.SECOND,), MESSAGE, True, shift=1)
    add(False, (Code.ANSWER,), CONTROL, True)
    add(False, (Code.LINK_RECV,), FLOOD, True)
    found = []
    for part in parts:
        event, kind, posted, waits, slots = (
            np.concatenate(column) for column in zip(*part, strict=True)
        )
        order = np.argsort(event, kind="stable")
        event, kind, posted, waits, slots = (
            x[order].astype(np.int64) for x in (event, kind, posted, waits, slots)
        )
        found.append(
            Half(
                event,
                columns.process[event],
                columns.peer[event],
                columns.tag[event],
                columns.bytes[event],
                kind,
                posted,
                waits,
                slots,
                columns.act[event],
            )
        )
    return found[0], found[1]


def match(sends: Half, receives: Half) -> tuple[Ints, Ints]:
    """Return (sends, receives) that meet: the k-th of each channel; -1 where one is missing."""
    kind = np.concatenate((sends.kind, receives.kind))
    tag = np.where(kind == MESSAGE, np.concatenate((sends.tag, receives.tag)), 0)
    channel = dense(
        kind,
        np.concatenate((sends.process, receives.peer)),
        np.concatenate((sends.peer, receives.process)),
        tag,
    )
    parts = channel[: len(sends.event)], channel[len(sends.event) :]
    channels = int(channel.max(initial=-1)) + 1
    counts = [np.bincount(part, minlength=channels) for part in parts]
    first = np.concatenate(([0], np.cumsum(np.maximum(*counts))))
    ends = np.full((2, int(first[-1])), -1, dtype=np.int64)
    for end, part, count in zip(ends, parts, counts, strict=True):
        order = np.argsort(part, kind="stable")
        begin = np.cumsum(count) - count
        end[first[part[order]] + np.arange(len(part)) - begin[part[order]]] = order
    return ends[0], ends[1]


@dataclass(frozen=True)
class Graph:
    """Edges between events (and calls of collectives, numbered after them).

    Event ``target[e]`` cannot complete before ``source[e]`` has; ``message[e]``: why (-1: a
    collective). ``enough``: how many of its edges an event needs; of all but WAITANY and WAITSOME
    all. The order of the events of a process is not among the edges. ``nodes``: their number.
    """

    nodes: int
    source: Ints
    target: Ints
    message: Ints
    enough: Ints
    choosy: Bools


def graph_of(
    program: Program,
    columns: Columns,
    sends: Half,
    receives: Half,
    ends: tuple[Ints, Ints],
    eager_bytes: int,
) -> Graph:
    """Return what waits for what; sends of up to ``eager_bytes`` wait for nobody (-1: all wait)."""
    number = len(program.events)
    known = (ends[0] >= 0) & (ends[1] >= 0)
    message = np.flatnonzero(known)
    s, r = ends[0][message], ends[1][message]
    waiting = (
        (sends.bytes[s] > eager_bytes)
        | among(sends.code[s], *_SYNCHRONOUS)
        | (sends.kind[s] == FLOOD)
    )
    sources, targets, messages = [], [], []
    in_slot: list[tuple[Ints, Ints, Ints, Ints]] = []
    for half, end, other, use in (
        (sends, s, receives.posted[r], waiting),
        (receives, r, sends.posted[s], np.ones(len(r), dtype=bool)),
    ):
        direct = use & (half.waits[end] >= 0)
        sources.append(other[direct])
        targets.append(half.waits[end][direct])
        messages.append(message[direct])
        request = use & (half.waits[end] < 0)
        in_slot.append(
            (half.process[end][request], half.slot[end][request], other[request], message[request])
        )
    process, slot, other, which = (np.concatenate(x) for x in zip(*in_slot, strict=True))
    _wait_edges(program, columns, process, slot, other, which, sources, targets, messages)
    nodes = _collective_edges(program, columns, sources, targets, messages)
    source, target = np.concatenate(sources), np.concatenate(targets)
    reason = np.concatenate(messages)
    real = source >= 0
    source, target, reason = source[real], target[real], reason[real]
    enough = np.bincount(target, minlength=nodes)
    choosy = np.zeros(nodes, dtype=bool)
    choosy[:number] = among(columns.code, Code.WAITANY, Code.WAITSOME)
    _thresholds(program, columns, enough, choosy)
    return Graph(nodes, source, target, reason, enough, choosy)


def _wait_edges(
    program: Program,
    columns: Columns,
    process: Ints,
    slot: Ints,
    other: Ints,
    which: Ints,
    sources: list[Ints],
    targets: list[Ints],
    messages: list[Ints],
) -> None:
    """Add an edge for every request to each wait that lists it, and to the END."""
    base = np.concatenate(([0], np.cumsum(program.slots)))
    of_slot = np.full(int(base[-1]) + 1, -1, dtype=np.int64)
    of_slot[base[process] + slot] = np.arange(len(process))
    waits, entry = listed(program, columns)
    request = of_slot[base[columns.process[waits]] + entry]
    good = request >= 0
    sources.append(other[request[good]])
    targets.append(waits[good])
    messages.append(which[request[good]])
    sources.append(other)
    targets.append((program.start[1:] - 1)[process])
    messages.append(which)


def listed(program: Program, columns: Columns) -> tuple[Ints, Ints]:
    """Return (event, slot) for every slot that a wait lists."""
    waits = np.flatnonzero(among(columns.code, Code.WAIT, Code.WAITANY, Code.WAITSOME))
    number = program.events["number"][waits].astype(np.int64)
    begin = program.list_start[columns.process[waits]] + program.events["first"][waits]
    return np.repeat(waits, number), program.lists[waited(begin, number)]


def _collective_edges(
    program: Program,
    columns: Columns,
    sources: list[Ints],
    targets: list[Ints],
    messages: list[Ints],
) -> int:
    """Let every member of a collective wait until all members have called it."""
    number = len(program.events)
    calls = np.flatnonzero(among(columns.code, Code.COLLECTIVE, Code.COLLECTIVE_START))
    if len(calls) == 0:
        return number
    call = number + numbered_calls(program, columns, calls)
    sources.append(columns.before[calls])
    targets.append(call)
    blocking = columns.code[calls] == Code.COLLECTIVE
    sources.append(call[blocking])
    targets.append(calls[blocking])
    base = np.concatenate(([0], np.cumsum(program.slots)))
    of_slot = np.full(int(base[-1]) + 1, -1, dtype=np.int64)
    place = base[columns.process[calls]] + program.events["slot"][calls]
    of_slot[place[~blocking]] = call[~blocking]
    waits, entry = listed(program, columns)
    request = of_slot[base[columns.process[waits]] + entry]
    sources.append(request[request >= 0])
    targets.append(waits[request >= 0])
    sources.append(call[~blocking])
    targets.append((program.start[1:] - 1)[columns.process[calls[~blocking]]])
    for source in sources[-4:]:
        messages.append(np.full(len(source), -1, dtype=np.int64))
    return int(call.max()) + 1


def numbered_calls(program: Program, columns: Columns, calls: Ints) -> Ints:
    """Return which call of all each collective event is part of: the k-th of its communicator."""
    comm = program.events["comm"][calls].astype(np.int64)
    group = dense(columns.process[calls], comm)
    order = np.argsort(group, kind="stable")
    ordinal = np.empty(len(calls), dtype=np.int64)
    ordinal[order] = np.arange(len(calls)) - np.searchsorted(group[order], group[order])
    return dense(comm, ordinal)


def _thresholds(program: Program, columns: Columns, enough: Ints, choosy: Bools) -> None:
    """Set how many requests must be complete before a WAITANY or WAITSOME returns in any case.

    Those that one before it may have taken do not count: it has as many as it wants only when
    there are that many more. When all that it lists are complete it returns too.
    """
    at = np.flatnonzero(choosy)
    if len(at) == 0:
        return
    events = program.events
    earlier: dict[tuple[int, int], list[int]] = {}
    for event in at.tolist():
        process = int(columns.process[event])
        begin = int(program.list_start[process] + events["first"][event])
        slots = program.lists[begin : begin + int(events["number"][event])].tolist()
        wanted = 1 if columns.code[event] == Code.WAITANY else int(events["arg"][event])
        before = {e for slot in slots for e in earlier.get((process, slot), ())}
        shared = sum(1 for slot in slots if (process, slot) in earlier)
        taken = min(
            shared,
            sum(1 if columns.code[e] == Code.WAITANY else int(events["arg"][e]) for e in before),
        )
        # Requests that are complete from the beginning have no edge.
        free = len(slots) - int(enough[event])
        enough[event] = max(0, min(len(slots), wanted + taken) - free)
        for slot in slots:
            earlier.setdefault((process, slot), []).append(event)
