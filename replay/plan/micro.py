"""Small programs that measure one thing at a time: messages of each class, calls, links.

"one way": for each class of messages, and for each size alone, a process of one node sends to one
of the other and back, after a pause in which the link comes to rest; the receiver waits already.
With a load of k, k pairs of processes do so at the same time. "calls": what calls cost by
themselves. "link": messages back to back from one node to the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from p3s.base.arrays import Ints
from p3s.replay.plan.build_traffic import DEFAULTS, MAX_MESSAGE_BYTES, Blocks
from p3s.replay.plan.check import refuse_unproven
from p3s.replay.plan.classes import MessageClass
from p3s.replay.plan.program import (
    FIELDS,
    FIRST_TAG,
    MEASURED,
    Code,
    Collective,
    Pairing,
    Program,
    World,
)
from p3s.replay.plan.types import Placement, placement_of

#: Pause before a message inside a node, and bounds of the pause before one between nodes: as
#: long as a link of 10 MB/s needs for it, so that a slow link has nothing left to send.
_PAUSE_INSIDE_NS = 200_000
_PAUSE_NS = (1_000_000, 20_000_000)
_PAUSE_NS_PER_BYTE = 100
#: Messages of a flood, and bytes of each.
_FLOOD, _FLOOD_BYTES = 128, 1 << 15
#: How much later than the send a late receive comes.
LATE_NS = 5_000_000
#: Sizes at which calls are measured in any case.
_SIZES = (1, 1024)
#: Sizes over one distance at which calls are measured at most.
_MOST_SIZES = 12
_HANDSHAKE_TAG = FIRST_TAG + 1


class Sheet:
    """Events of a micro-program under construction; ``messages``: rows of its Pairing."""

    def __init__(self, processes: int) -> None:
        self.processes = processes
        self.events: list[list[dict[str, int]]] = [[] for _ in range(processes)]
        self.lists: list[list[int]] = [[] for _ in range(processes)]
        self.slots = [0] * processes
        self.comms: dict[tuple[int, ...], int] = {}
        self.messages: list[tuple[int, ...]] = []
        self.own: list[tuple[int, int, str]] = []

    def add(self, process: int, code: Code, *, kind: str = "", **columns: int) -> int:
        """Append an event and return its position in the list of its process."""
        event = {"code": int(code), **columns}
        if code in (Code.ISEND, Code.IRECV):
            event["slot"] = self.slots[process]
            self.slots[process] += 1
        self.events[process].append(event)
        if kind:
            self.own.append((process, len(self.events[process]) - 1, kind))
        return len(self.events[process]) - 1

    def wait(self, process: int, posted: int, sample: int) -> int:
        """Append a wait, for the request that an event left behind, whose cost is measured."""
        self.lists[process].append(self.events[process][posted]["slot"])
        return self.add(
            process,
            Code.WAIT,
            kind="wait",
            first=len(self.lists[process]) - 1,
            number=1,
            sample=sample,
        )

    def together(self, processes: Sequence[int]) -> None:
        """Let processes of one node go on at the same time."""
        if len(processes) < 2:
            return
        comm = self.comms.setdefault(tuple(processes), len(self.comms))
        for process in processes:
            self.add(process, Code.COLLECTIVE, arg=int(Collective.BARRIER), comm=comm)

    def pause(self, processes: Sequence[int], duration_ns: int) -> None:
        """Let processes compute."""
        for process in processes:
            self.add(process, Code.NOTHING, work_ns=duration_ns)

    def program(self, purpose: str, name: str) -> Program:
        """Return the program; it is proven to end."""
        rows = [row for events in self.events for row in events]
        process = np.repeat(np.arange(self.processes), list(map(len, self.events)))
        columns: dict[str, Any] = {
            name: [row.get(name, DEFAULTS[name]) for row in rows] for name in FIELDS
        }
        blocks = Blocks(self.processes)
        blocks.add(process, np.arange(len(rows)), np.full(len(rows), -1), **columns)
        table = blocks.finish(np.zeros(0, dtype=np.int64))
        program = Program(
            purpose,
            name,
            -1,
            table.events,
            table.start,
            table.step,
            np.array([slot for entries in self.lists for slot in entries], dtype=np.int64),
            np.concatenate(([0], np.cumsum(list(map(len, self.lists))))).astype(np.int64),
            table.slots,
            tuple(self.comms),
            Pairing(*np.array(self.messages, dtype=np.int64).T) if self.messages else None,
            False,
            False,
            tuple((int(table.start[process]) + at, kind) for process, at, kind in self.own),
        )
        refuse_unproven(program, name)
        return program


@dataclass(frozen=True)
class _Job:
    """Processes that send and those that receive, for one class (-1: none)."""

    cls: int
    bytes: int
    inside: bool
    pairs: tuple[tuple[int, int], ...]

    @property
    def alone(self) -> bool:
        """Whether the one pair is a process with itself."""
        return self.pairs[0][0] == self.pairs[0][1]

    @property
    def pause_ns(self) -> int:
        """Idle time before a message."""
        if self.inside:
            return _PAUSE_INSIDE_NS
        scaled_ns = self.bytes * len(self.pairs) * _PAUSE_NS_PER_BYTE
        return min(max(scaled_ns, _PAUSE_NS[0]), _PAUSE_NS[1])


def partners(world: World, distance: int, load: int) -> tuple[tuple[int, int], ...]:
    """Return up to ``load`` pairs of measured processes on two nodes, or one inside a node.

    Nodes of one process each: it is paired with itself, as there are no other messages inside.
    """
    measured = world.rank_of(MEASURED)
    if distance > 0:
        both = [slot for side, slot in measured if side == 0 and (1, slot) in measured]
        return tuple((measured[0, slot], measured[1, slot]) for slot in sorted(both)[:load])
    for side in (0, 1):
        if (side, 0) in measured and (side, 1) in measured:
            return ((measured[side, 0], measured[side, 1]),)
    return tuple((rank, rank) for rank in list(measured.values())[:1])


def pair_programs(
    messages: Sequence[MessageClass], world: World, indices: Ints | None = None
) -> tuple[Program, ...]:
    """Return the programs "one way" and "calls" for classes of messages.

    ``indices``: numbers of the classes (default: all). A class that no two measured processes can
    show is in none of them; calls are measured at some of the sizes only.
    """
    numbers = range(len(messages)) if indices is None else indices.tolist()
    jobs = []
    for number in numbers:
        cls = messages[number]
        pairs = partners(world, cls.distance, max(cls.load, 1))
        if pairs and cls.bytes <= MAX_MESSAGE_BYTES:
            jobs.append(_Job(number, cls.bytes, cls.distance == 0, pairs))
    if not jobs:
        return ()
    singles: dict[tuple[int, bool], _Job] = {}
    for job in jobs:
        singles.setdefault(
            (job.bytes, job.inside), _Job(job.cls, job.bytes, job.inside, job.pairs[:1])
        )
    for inside in {job.inside for job in jobs}:
        pairs = partners(world, 0 if inside else 1, 1)
        for nbytes in _SIZES:
            singles.setdefault((nbytes, inside), _Job(-1, nbytes, inside, pairs))
    one_way, calls = Sheet(world.size), Sheet(world.size)
    alone = {(job.bytes, job.inside) for job in jobs if len(job.pairs) == 1}
    beside = [replace(job, cls=-1) for key, job in singles.items() if key not in alone]
    # Small ones first: what a message has left in a link's queue is gone before the next one.
    for job in sorted([*jobs, *beside], key=lambda job: job.bytes * len(job.pairs)):
        _both_ways(one_way, job)
    for job in _thin_sizes(list(singles.values())):
        _late(calls, job)
        _post_requests(calls, job)
    return (one_way.program("pair", "one way"), calls.program("pair", "calls"))


def _thin_sizes(jobs: Sequence[_Job]) -> list[_Job]:
    """Keep a bounded number of sizes per distance: the ends, and evenly between them."""
    groups: dict[bool, list[_Job]] = {}
    for job in jobs:
        groups.setdefault(job.inside, []).append(job)
    thinned = []
    for group in groups.values():
        group.sort(key=lambda job: job.bytes)
        picks = np.linspace(0, len(group) - 1, min(len(group), _MOST_SIZES)).round().astype(int)
        thinned += [group[i] for i in np.unique(picks).tolist()]
    return thinned


def _both_ways(sheet: Sheet, job: _Job) -> None:
    """Let the pairs send a message one way and then one back."""
    if job.alone:
        _to_itself(sheet, job)
        return
    _send(sheet, job)
    _send(sheet, replace(job, pairs=tuple((b, a) for a, b in job.pairs)))


def _call(sheet: Sheet, job: _Job, me: int, peer: int, code: Code, kind: str = "") -> int:
    """Let a process send to another one, or receive from it; return the event's position."""
    return sheet.add(
        me, code, kind=kind, peer=peer, tag=FIRST_TAG, bytes=job.bytes, sample=max(job.cls, 0)
    )


def _to_itself(sheet: Sheet, job: _Job) -> None:
    """Let a process send a message to itself."""
    me = job.pairs[0][0]
    posted = _call(sheet, job, me, me, Code.IRECV)
    sheet.pause([me], job.pause_ns)
    sent = _call(sheet, job, me, me, Code.SEND, "send")
    received = sheet.wait(me, posted, max(job.cls, 0))
    sheet.messages.append((job.cls, me, me, sent, sent, posted, received, 1))


def _send(sheet: Sheet, job: _Job) -> None:
    """Let all pairs send one message at once; receivers wait already."""
    senders = [a for a, _ in job.pairs]
    received = [_call(sheet, job, b, a, Code.RECV) for a, b in job.pairs]
    sheet.pause(senders, job.pause_ns)
    sheet.together(senders)
    for (a, b), at in zip(job.pairs, received, strict=True):
        sent = _call(sheet, job, a, b, Code.SEND, "send" if len(job.pairs) == 1 else "")
        sheet.messages.append((job.cls, a, b, sent, sent, at, at, 1))


def _late(sheet: Sheet, job: _Job) -> None:
    """Send a message whose receive comes late, both ways."""
    if job.alone:
        return
    first, second = job.pairs[0]
    for a, b in ((first, second), (second, first)):
        _handshake(sheet, (first, second), 0)
        sheet.pause([a], job.pause_ns)
        sheet.pause([b], job.pause_ns + LATE_NS)
        sent = _call(sheet, job, a, b, Code.SEND, "late")
        at = _call(sheet, job, b, a, Code.RECV, "receive")
        sheet.messages.append((job.cls, a, b, sent, sent, at, at, 0))


def _handshake(sheet: Sheet, pair: tuple[int, int], work_ns: int) -> None:
    """Let two processes meet after some computation."""
    for a, b in (pair, pair[::-1])[: 1 if pair[0] == pair[1] else 2]:
        sheet.add(a, Code.SENDRECV, work_ns=work_ns, peer=b, tag=_HANDSHAKE_TAG)
        sheet.add(a, Code.SECOND, peer=b, tag=_HANDSHAKE_TAG)


def _post_requests(sheet: Sheet, job: _Job) -> None:
    """Post requests on both sides, let them become complete, and wait for them."""
    requests = {}
    (first, second) = job.pairs[0]
    sides = ((first, second), (second, first))[: 1 if job.alone else 2]
    for a, b in sides:
        requests[a] = [_call(sheet, job, a, b, code, "post") for code in (Code.IRECV, Code.ISEND)]
    for _ in range(2):  # the second one finds what the first one has set going
        _handshake(sheet, (first, second), job.pause_ns)
    for a, _ in sides:
        for request in requests[a]:
            sheet.wait(a, request, max(job.cls, 0))


def link_programs(world: World) -> tuple[Program, ...]:
    """Return floods of messages from node 0 to node 1: by one process, by all.

    Nothing when the world has measured processes on one node only.
    """
    everybody = partners(world, 1, world.size)
    sizes = sorted({min(len(everybody), 1), len(everybody)} - {0})
    return tuple(_flood(world, everybody[:size]) for size in sizes)


def _flood(world: World, pairs: Sequence[tuple[int, int]]) -> Program:
    """Return a flood of _FLOOD messages in all, each pair's from the first to the second.

    By one pair: as many bytes in messages of a quarter, as the finer grain shows the burst.
    """
    sheet = Sheet(world.size)
    grain = 4 if len(pairs) == 1 else 1
    each = max(grain * _FLOOD // len(pairs), 1)
    senders = [a for a, _ in pairs]
    sheet.pause(senders, _PAUSE_NS[1])
    sheet.together(senders)
    for a, b in pairs:
        for code, me, other in ((Code.LINK_SEND, a, b), (Code.LINK_RECV, b, a)):
            sheet.add(
                me,
                code,
                peer=other,
                tag=FIRST_TAG,
                bytes=_FLOOD_BYTES // grain,
                number=each,
                sample=0,
            )
    return sheet.program("link", f"link, {len(pairs)} sending")


def class_programs(
    messages: Sequence[MessageClass], world: World, placements: Sequence[Placement], measured: Ints
) -> Iterator[tuple[int, Program]]:
    """Return (number of the placement, program) for what messages and links cost.

    ``measured``: numbers of the message classes to measure. Messages inside a node are measured in
    the first placement, the others in the one that shows their distance, or comes nearest to it.
    """
    number_of = np.array(
        [0 if cls.distance == 0 else placement_of(placements, cls.distance) for cls in messages],
        dtype=np.int64,
    )
    both = all(world.on_node(side) for side in (0, 1))
    for number in range(len(placements)):
        programs = list(pair_programs(messages, world, measured[number_of[measured] == number]))
        if both and number == 0 and any(cls.distance for cls in messages):
            programs += link_programs(world)
        for program in programs:
            yield number, program
