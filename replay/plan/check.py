"""Proof, before anything is launched, that a program of the replay comes to its end.

Every process executes its events in order. A message is complete only when both its send and its
receive have been posted, as if nothing was ever buffered, and a collective when all members have
called it; so whatever ends here ends with any amount of buffering. With ``eager_bytes`` sends of
up to so many bytes are buffered by the library. There are no wildcards, so one schedule decides
for all of them; of WAITANY and WAITSOME the worst choice is assumed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from p3s.replay.plan.check_graph import (
    CONTROL,
    FLOOD,
    Columns,
    Graph,
    Half,
    columns_of,
    graph_of,
    halves,
    listed,
    match,
    numbered_calls,
)
from p3s.replay.plan.program import TAG_GO, TAG_NOISE, Code, Program, among
from p3s.simulate.steps import Bools, Ints

_MOST_NAMED = 64


@dataclass(frozen=True)
class Missing:
    """A message that somebody waits for: processes, tag, bytes, and the steps of both ends.

    ``sends``: the process that waits is its sender.
    """

    source: int
    target: int
    tag: int
    bytes: int
    kind: int
    send_step: int
    receive_step: int
    sends: bool


@dataclass(frozen=True)
class Stuck:
    """A process that waits for ever: its event (of its list), and what it waits for."""

    process: int
    event: int
    step: int
    code: Code
    waits_for: tuple[Missing, ...]


@dataclass(frozen=True)
class Verdict:
    """Outcome of a check.

    ``stuck``: processes that wait for ever. ``uneven``: ends of messages without the other end.
    ``faults``: buffers that do not fit, sizes and calls that do not agree, each in words.
    """

    stuck: tuple[Stuck, ...]
    uneven: tuple[Missing, ...]
    faults: tuple[str, ...]

    @property
    def ends(self) -> bool:
        """True when every process ends, every send has its receive and everything fits."""
        return not self.stuck and not self.uneven and not self.faults


def check(program: Program, eager_bytes: int = -1) -> Verdict:
    """Execute a program on paper; see Verdict.ends."""
    columns = columns_of(program)
    faults = _faults(program, columns)
    if faults:
        return Verdict((), (), faults)
    sends, receives = halves(program, columns)
    ends = match(sends, receives)
    uneven = _uneven(program, sends, receives, ends)
    faults = _disagree(program, columns, sends, receives, ends)
    if uneven or faults:
        return Verdict((), uneven, faults)
    graph = graph_of(program, columns, sends, receives, ends, eager_bytes)
    if _acyclic(columns, graph):
        return Verdict((), (), ())
    return Verdict(_stuck(program, columns, graph, sends, receives, ends), (), ())


# ---- what is wrong with single events ------------------------------------------------------
def _faults(program: Program, columns: Columns) -> tuple[str, ...]:
    events = program.events
    processes = len(program.start) - 1
    code, act, process = columns.code, columns.act, columns.process
    last = program.start[1:] - 1
    if (
        (np.diff(program.start) < 1).any()
        or (code[last] != Code.END).any()
        or np.count_nonzero(code == Code.END) != processes
    ):
        return ("a process has no END, or more than one",)
    found: list[str] = []

    def refuse(bad: Bools, why: str) -> None:
        for event in np.flatnonzero(bad)[:_MOST_NAMED].tolist():
            found.append(f"{_event(program, columns, event)}: {why}")

    requests = among(
        code,
        Code.ISEND,
        Code.ISSEND,
        Code.IRECV,
        Code.START,
        Code.BUFFERED,
        Code.COLLECTIVE_START,
        Code.ANSWER,
    )
    slot = events["slot"]
    refuse(requests & ((slot < 0) | (slot >= program.slots[process])), "its slot does not exist")
    refuse(~requests & (slot >= 0), "it has a slot but leaves no request")
    base = np.concatenate(([0], np.cumsum(program.slots)))
    place = base[process[requests]] + slot[requests]
    again = np.zeros(len(events), dtype=bool)
    again[np.flatnonzero(requests)[_repeated(place)]] = True
    refuse(again, "its slot is used twice")
    messages = among(
        act,
        Code.SEND,
        Code.SSEND,
        Code.ISEND,
        Code.ISSEND,
        Code.IRECV,
        Code.RECV,
        Code.SENDRECV,
        Code.SECOND,
        Code.BUFFERED,
        Code.ASK,
        Code.ANSWER,
        Code.LINK_SEND,
        Code.LINK_RECV,
    )
    refuse(messages & ((columns.peer < 0) | (columns.peer >= processes)), "no such process")
    refuse(columns.bytes < 0, "negative bytes")
    receives = among(act, Code.RECV, Code.IRECV, Code.SECOND)
    offset = events["offset"]
    refuse(
        receives & ((offset < 0) | (offset + columns.bytes > program.in_bytes[process])),
        "its buffer is too small",
    )
    sends = messages & ~receives & (act != Code.ASK) & (act != Code.LINK_RECV)
    refuse(sends & (columns.bytes > program.out_bytes[process]), "its buffer is too small")
    if found:
        return tuple(found)
    second = np.zeros(len(events), dtype=bool)
    second[1:] = code[:-1] == Code.SENDRECV
    refuse(second != (code == Code.SECOND), "SENDRECV and SECOND do not follow each other")
    waits, entries = listed(program, columns)
    bad = np.zeros(len(events), dtype=bool)
    bad[waits[(entries < 0) | (entries >= program.slots[process[waits]])]] = True
    refuse(bad, "it waits for a slot that does not exist")
    used = np.full(int(base[-1]) + 1, len(events), dtype=np.int64)
    used[place] = np.flatnonzero(requests)
    if not bad.any():
        early = used[base[process[waits]] + entries] > waits
        bad[waits[early]] = True
        refuse(bad, "it waits for a request that is not there yet")
    return tuple(found)


def _repeated(values: Ints) -> Bools:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    return counts[inverse.reshape(-1)] > 1


def _disagree(
    program: Program, columns: Columns, sends: Half, receives: Half, ends: tuple[Ints, Ints]
) -> tuple[str, ...]:
    """Return where the two ends of a message or the members of a collective do not agree."""
    found = []
    both = np.flatnonzero((ends[0] >= 0) & (ends[1] >= 0))
    s, r = ends[0][both], ends[1][both]
    differ = (sends.bytes[s] > receives.bytes[r]) & (sends.kind[s] != FLOOD)
    questions = sends.kind[s] == CONTROL
    differ |= questions & (
        (sends.bytes[s] != receives.bytes[r]) | (sends.tag[s] != receives.tag[r])
    )
    number = program.events["number"]
    differ |= (sends.kind[s] == FLOOD) & (
        (number[sends.event[s]] != number[receives.event[r]])
        | (sends.bytes[s] != receives.bytes[r])
    )
    for k in np.flatnonzero(differ)[:_MOST_NAMED].tolist():
        found.append(
            f"{_event(program, columns, int(sends.event[s[k]]))} meets "
            f"{_event(program, columns, int(receives.event[r[k]]))}"
        )
    calls = np.flatnonzero(among(columns.code, Code.COLLECTIVE, Code.COLLECTIVE_START))
    if len(calls):
        found += _collectives(program, columns, calls)
    return tuple(found)


def _collectives(program: Program, columns: Columns, calls: Ints) -> list[str]:
    events = program.events
    call = numbered_calls(program, columns, calls)
    order = np.argsort(call, kind="stable")
    found = []
    bounds = np.searchsorted(call[order], np.arange(int(call.max()) + 2))
    for low, high in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        mine = calls[order[low:high]]
        comm = int(events["comm"][mine[0]])
        members = program.comms[comm] if 0 <= comm < len(program.comms) else ()
        same = all(
            len(np.unique(events[name][mine])) == 1 for name in ("code", "arg", "bytes", "peer")
        )
        if not same or sorted(members) != sorted(columns.process[mine].tolist()):
            found.append(
                f"{_event(program, columns, int(mine[0]))}: the members of "
                f"communicator {comm} do not all make the same call"
            )
    return found[:_MOST_NAMED]


def _uneven(
    program: Program, sends: Half, receives: Half, ends: tuple[Ints, Ints]
) -> tuple[Missing, ...]:
    lonely = np.flatnonzero((ends[0] < 0) | (ends[1] < 0))[:_MOST_NAMED]
    return tuple(
        _message(program, sends, receives, ends, m, ends[1][m] < 0) for m in lonely.tolist()
    )


def _message(
    program: Program, sends: Half, receives: Half, ends: tuple[Ints, Ints], m: int, is_sender: bool
) -> Missing:
    s, r = int(ends[0][m]), int(ends[1][m])
    half, i = (sends, s) if s >= 0 else (receives, r)
    me, peer = int(half.process[i]), int(half.peer[i])
    return Missing(
        me if s >= 0 else peer,
        peer if s >= 0 else me,
        int(half.tag[i]),
        int(half.bytes[i]),
        int(half.kind[i]),
        int(program.step[sends.event[s]]) if s >= 0 else -1,
        int(program.step[receives.event[r]]) if r >= 0 else -1,
        bool(is_sender),
    )


# ---- whether it ends -----------------------------------------------------------------------
def _acyclic(columns: Columns, graph: Graph) -> bool:
    """Tell whether nobody waits in a circle, even if WAITANY waits for everything it lists."""
    if (graph.source == graph.target).any():
        return False
    here = np.flatnonzero(columns.before >= 0)
    source = np.concatenate((graph.source, columns.before[here]))
    target = np.concatenate((graph.target, here))
    edges = coo_array(
        (np.ones(len(source), dtype=np.int8), (source, target)), shape=(graph.nodes, graph.nodes)
    )
    number, _ = connected_components(edges.tocsr(), directed=True, connection="strong")
    return bool(number == graph.nodes)


def _stuck(
    program: Program,
    columns: Columns,
    graph: Graph,
    sends: Half,
    receives: Half,
    ends: tuple[Ints, Ints],
) -> tuple[Stuck, ...]:
    """Complete what can complete, one after the other; return who is left."""
    order = np.argsort(graph.source, kind="stable")
    target = graph.target[order].tolist()
    bounds = np.searchsorted(graph.source[order], np.arange(graph.nodes + 1)).tolist()
    need = graph.enough.tolist()
    events = len(program.events)
    last = set((program.start[1:] - 1).tolist())
    reached = np.zeros(graph.nodes, dtype=bool)
    reached[program.start[:-1]] = True
    reached[events:] = True  # a collective call is complete once all have called it
    front = reached.tolist()
    done = [False] * graph.nodes
    ready = [node for node in range(graph.nodes) if front[node] and need[node] <= 0]
    while ready:
        node = ready.pop()
        if done[node]:
            continue
        done[node] = True
        after = target[bounds[node] : bounds[node + 1]]
        for other in after:
            need[other] -= 1
            if need[other] <= 0 and front[other]:
                ready.append(other)
        if node < events and node not in last:
            front[node + 1] = True
            if need[node + 1] <= 0:
                ready.append(node + 1)
    by_target = np.argsort(graph.target, kind="stable")
    first = np.searchsorted(graph.target[by_target], np.arange(graph.nodes + 1))
    found = []
    for node in range(events):
        if not front[node] or done[node]:
            continue
        process = int(columns.process[node])
        missing = []
        for edge in by_target[first[node] : first[node + 1]].tolist():
            m = int(graph.message[edge])
            if m >= 0 and not done[graph.source[edge]]:
                is_sender = int(sends.process[ends[0][m]]) == process
                missing.append(_message(program, sends, receives, ends, m, is_sender))
        found.append(
            Stuck(
                process,
                node - int(program.start[process]),
                int(program.step[node]),
                Code(int(columns.code[node])),
                tuple(missing),
            )
        )
    return tuple(found)


# ---- in words ------------------------------------------------------------------------------
def _event(program: Program, columns: Columns, event: int) -> str:
    process = int(columns.process[event])
    return (
        f"process {process} event {event - int(program.start[process])} "
        f"{Code(int(columns.code[event])).name} peer {columns.peer[event]} "
        f"tag {columns.tag[event]} {columns.bytes[event]} B"
    )


def _place(missing: Missing) -> str:
    names = {TAG_GO: "start of noise", TAG_NOISE: "noise"}
    what = (
        "question"
        if missing.kind == CONTROL
        else names.get(missing.tag, f"tag {missing.tag}, {missing.bytes} B")
    )
    return f"{missing.source}->{missing.target} ({what})"


def describe(verdict: Verdict, limit: int = 4) -> str:
    """Return the first few things that are wrong as text."""
    words = [
        f"process {entry.process} in {entry.code.name} (step {entry.step}) for "
        + (", ".join(map(_place, entry.waits_for[:3])) or "a collective")
        for entry in verdict.stuck
    ]
    words += [f"{_place(entry)} has no other end" for entry in verdict.uneven]
    words += verdict.faults
    more: Sequence[str] = () if len(words) <= limit else (f"and {len(words) - limit} more",)
    return "; ".join([*words[:limit], *more])
