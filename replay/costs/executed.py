"""Programs of the replay as steps, so that what was measured can be simulated too."""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, field

import numpy as np

from p3s.replay.plan.program import Code, Program
from p3s.replay.plan.world import NOISE, World
from p3s.simulate.steps import Ints, Op, Steps

#: Tag and bytes of control messages between a measured rank and its black hole.
_CONTROL, _CONTROL_BYTES = -10, 32

_OPS = {
    Code.SEND: Op.SEND,
    Code.SSEND: Op.SSEND,
    Code.ISEND: Op.ISEND,
    Code.ISSEND: Op.ISSEND,
    Code.IRECV: Op.IRECV,
    Code.RECV: Op.RECV,
    Code.BUFFERED: Op.BSEND,
    Code.SENDRECV: Op.SENDRECV,
    Code.WAIT: Op.WAIT,
    Code.WAITANY: Op.WAITANY,
    Code.WAITSOME: Op.WAITSOME,
    Code.COLLECTIVE: Op.COLLECTIVE,
    Code.COLLECTIVE_START: Op.ICOLLECTIVE,
}
_WAITS = (Code.WAIT, Code.WAITANY, Code.WAITSOME)


@dataclass(frozen=True)
class Executed:
    """A program as steps; ranks are the replay's processes.

    ``first``: the step that an event begins with, ``last``: the one that it ends with, by
    position in Program.events (-1: the event is no step).
    """

    steps: Steps
    node_of: Ints
    first: Ints
    last: Ints


@dataclass
class _Columns:
    """Steps while they are written."""

    op: list[int] = field(default_factory=list)
    peer: list[int] = field(default_factory=list)
    tag: list[int] = field(default_factory=list)
    comm: list[int] = field(default_factory=list)
    nbytes: list[int] = field(default_factory=list)
    peer2: list[int] = field(default_factory=list)
    tag2: list[int] = field(default_factory=list)
    bytes2: list[int] = field(default_factory=list)
    work: list[float] = field(default_factory=list)
    number: list[int] = field(default_factory=list)
    done: list[list[int]] = field(default_factory=list)

    def add(
        self,
        op: Op,
        peer: int = -1,
        tag: int = -1,
        nbytes: int = 0,
        *,
        work: float = 0.0,
        comm: int = 0,
        done: list[int] | None = None,
        number: int = 0,
        second: tuple[int, int, int] = (-1, -1, 0),
    ) -> int:
        """Append a step and return its number."""
        self.op.append(int(op))
        self.peer.append(peer)
        self.tag.append(tag)
        self.comm.append(comm)
        self.nbytes.append(nbytes)
        self.peer2.append(second[0])
        self.tag2.append(second[1])
        self.bytes2.append(second[2])
        self.work.append(work)
        self.done.append(done or [])
        self.number.append(number)
        return len(self.op) - 1


def executed(program: Program, world: World, *, work_scale: float = 1.0) -> Executed:
    """Return what the processes of a program do as steps; schedules of black holes are ignored.

    The noise pair, which does everything by its schedule, does nothing here. ``work_scale``:
    factor on emulated computation.
    """
    columns = _Columns()
    first = np.full(len(program.events), -1, dtype=np.int64)
    last = first.copy()
    start = [0]
    for process in range(world.size):
        if world.processes[process].role != NOISE or not program.noise:
            _process(program, process, columns, first, last, work_scale)
        start.append(len(columns.op))
    members: dict[int, Ints] = {0: np.arange(world.size)}
    for i, ranks in enumerate(program.comms):
        members[i + 1] = np.asarray(ranks, dtype=np.int64)
    steps = _steps(columns, np.asarray(start, dtype=np.int64), members)
    node_of = np.array([process.node for process in world.processes], dtype=np.int64)
    return Executed(steps, node_of, first, last)


def _process(
    program: Program, process: int, columns: _Columns, first: Ints, last: Ints, scale: float
) -> None:
    """Write the steps of one process."""
    begin = int(program.start[process])
    events = program.of(process)
    lists = program.lists[program.list_start[process] : program.list_start[process + 1]]
    slots: dict[int, int] = {}  # request slot -> step that left the request behind
    skip = False
    for i, event in enumerate(events):
        if skip:
            skip = False
            continue
        code = Code(int(event["code"]))
        peer, tag, nbytes = int(event["peer"]), int(event["tag"]), int(event["bytes"])
        work = float(event["work_ns"]) * scale
        here = len(columns.op)
        if code == Code.START:
            kept = program.persistent[process][int(event["arg"])]
            op = _OPS[Code(int(kept["code"]))]
            step = columns.add(
                op, int(kept["peer"]), int(kept["tag"]), int(kept["bytes"]), work=work
            )
            slots[int(kept["slot"])] = step
        elif code in _WAITS:
            wanted = lists[int(event["first"]) : int(event["first"] + event["number"])].tolist()
            done = [slots[slot] for slot in wanted if slot in slots]
            number = (
                len(done) if code == Code.WAIT else 1 if code == Code.WAITANY else int(event["arg"])
            )
            columns.add(_OPS[code], work=work, done=done, number=min(number, len(done)))
            if code == Code.WAIT:
                for slot in wanted:
                    slots.pop(slot, None)
        elif code == Code.SENDRECV:
            half = events[i + 1]
            columns.add(
                Op.SENDRECV,
                peer,
                tag,
                nbytes,
                work=work,
                second=(int(half["peer"]), int(half["tag"]), int(half["bytes"])),
            )
            skip = True
        elif code == Code.ASK:
            columns.add(Op.BSEND, peer, _CONTROL, _CONTROL_BYTES, work=work)
        elif code == Code.ANSWER:
            columns.add(Op.RECV, peer, _CONTROL, _CONTROL_BYTES, work=work)
            columns.add(Op.BSEND, peer, tag, nbytes)
        elif code in (Code.LINK_SEND, Code.LINK_RECV):
            for k in range(int(event["number"])):
                columns.add(
                    Op.SEND if code == Code.LINK_SEND else Op.RECV,
                    peer,
                    tag,
                    nbytes,
                    work=work if k == 0 else 0.0,
                )
        elif code == Code.END:
            if slots:
                columns.add(Op.WAIT, work=work, done=sorted(slots.values()), number=len(slots))
                slots.clear()
        elif code == Code.NOTHING:
            if work > 0:
                columns.add(Op.REST, work=work)
        elif code in (Code.COLLECTIVE, Code.COLLECTIVE_START):
            step = columns.add(_OPS[code], peer, -1, nbytes, work=work, comm=int(event["comm"]) + 1)
            if code == Code.COLLECTIVE_START:
                slots[int(event["slot"])] = step
        elif code in _OPS:
            step = columns.add(_OPS[code], peer, tag, nbytes, work=work)
            if code in (Code.ISEND, Code.ISSEND, Code.IRECV):
                slots[int(event["slot"])] = step
        if len(columns.op) > here:
            first[begin + i], last[begin + i] = here, len(columns.op) - 1


def _steps(columns: _Columns, start: Ints, members: dict[int, Ints]) -> Steps:
    """Return the columns as steps, every receive linked with the send that it meets."""
    count = len(columns.op)
    op = np.asarray(columns.op, dtype=np.int64)
    rank = np.repeat(np.arange(len(start) - 1), np.diff(start))
    to, source = np.full(count, -1, dtype=np.int64), np.full(count, -1, dtype=np.int64)
    waiting: dict[tuple[int, int, int], deque[int]] = defaultdict(deque)
    sends = np.isin(
        op, [int(o) for o in (Op.SEND, Op.SSEND, Op.BSEND, Op.ISEND, Op.ISSEND, Op.SENDRECV)]
    )
    receives = np.isin(op, [int(o) for o in (Op.RECV, Op.IRECV, Op.SENDRECV)])
    for i in np.flatnonzero(sends).tolist():
        waiting[int(rank[i]), columns.peer[i], columns.tag[i]].append(i)
    for i in np.flatnonzero(receives).tolist():
        two = columns.op[i] == Op.SENDRECV
        peer = columns.peer2[i] if two else columns.peer[i]
        tag = columns.tag2[i] if two else columns.tag[i]
        queue = waiting.get((peer, int(rank[i]), tag))
        if queue:
            source[i] = queue.popleft()
            to[source[i]] = i

    def ints(values: list[int]) -> Ints:
        return np.asarray(values, dtype=np.int64)

    done_start = np.concatenate(([0], np.cumsum([len(d) for d in columns.done]))).astype(np.int64)
    nothing = np.full(count, -1, dtype=np.int64)
    return Steps(
        n=len(start) - 1,
        ranks=np.arange(len(start) - 1),
        start=start,
        op=op,
        peer=ints(columns.peer),
        tag=ints(columns.tag),
        comm=ints(columns.comm),
        bytes=ints(columns.nbytes),
        peer2=ints(columns.peer2),
        tag2=ints(columns.tag2),
        bytes2=ints(columns.bytes2),
        call=np.zeros(count, dtype=np.int64),
        work_ns=np.asarray(columns.work, dtype=np.float64),
        number=ints(columns.number),
        row=nothing,
        weight=np.ones(count),
        turn=np.zeros(count, dtype=np.int64),
        done_start=done_start,
        done=ints([d for done in columns.done for d in done]),
        to=to,
        source=source,
        calls=("",),
        members=members,
    )
