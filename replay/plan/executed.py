"""Programs of the replay as steps, so that they can be proven to end and simulated."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from p3s.program.order.pairs import pair
from p3s.replay.plan.program import Code, Program
from p3s.replay.plan.world import NOISE, World
from p3s.simulate.steps import Ints, Op, Steps

#: Tag, which no other message has, and bytes of control messages: questions to a black hole.
CONTROL_TAG, _CONTROL_BYTES = 1 << 30, 32

#: Columns of events that say what a process does.
_READ = ("code", "peer", "tag", "bytes", "work_ns", "arg", "comm", "slot", "first", "number")
_OPS: dict[int, Op] = {
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
#: Columns of Steps that are written step by step.
_ROW = ("op", "peer", "tag", "comm", "bytes", "peer2", "tag2", "bytes2", "number")
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

    @property
    def event(self) -> Ints:
        """Position in Program.events of the event that each step belongs to."""
        here = np.flatnonzero(self.first >= 0)
        return np.repeat(here, self.last[here] - self.first[here] + 1)


@dataclass
class _Columns:
    """Steps while they are written; ``rows``: of each step the columns that _ROW names."""

    rows: list[tuple[int, ...]] = field(default_factory=list)
    work: list[float] = field(default_factory=list)
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
        self.rows.append((op, peer, tag, comm, nbytes, *second, number))
        self.work.append(work)
        self.done.append(done or [])
        return len(self.rows) - 1


def executed(program: Program, world: World | None = None, *, work_scale: float = 1.0) -> Executed:
    """Return what the processes of a program do as steps; schedules of black holes are ignored.

    With a ``world`` processes are on its nodes, and the noise pair, which does everything by its
    schedule, does nothing. ``work_scale``: factor on emulated computation.
    """
    columns = _Columns()
    first = np.full(len(program.events), -1, dtype=np.int64)
    last = first.copy()
    start = [0]
    size = len(program.start) - 1
    for process in range(size):
        if world is None or world.processes[process].role != NOISE or not program.noise:
            _process(program, process, columns, first, last, work_scale)
        start.append(len(columns.rows))
    members: dict[int, Ints] = {0: np.arange(size)}
    for i, ranks in enumerate(program.comms):
        members[i + 1] = np.asarray(ranks, dtype=np.int64)
    steps = _steps(columns, np.asarray(start, dtype=np.int64), members)
    node_of = np.array([p.node for p in world.processes] if world else [0] * size, dtype=np.int64)
    return Executed(steps, node_of, first, last)


def _process(
    program: Program, process: int, columns: _Columns, first: Ints, last: Ints, scale: float
) -> None:
    """Write the steps of one process."""
    begin = int(program.start[process])
    events = program.of(process)
    lists = program.lists[program.list_start[process] : program.list_start[process + 1]].tolist()
    rows = [events[name].tolist() for name in _READ]
    slots: dict[int, int] = {}  # request slot -> step that left the request behind
    for i, (code, peer, tag, nbytes, work_ns, arg, comm, slot, at, number) in enumerate(
        zip(*rows, strict=True)
    ):
        work = work_ns * scale
        here = len(columns.rows)
        if code in _WAITS:
            wanted = lists[at : at + number]
            done = [slots[one] for one in wanted if one in slots]
            most = len(done) if code == Code.WAIT else 1 if code == Code.WAITANY else arg
            columns.add(_OPS[code], work=work, done=done, number=min(most, len(done)))
            if code == Code.WAIT:
                for one in wanted:
                    slots.pop(one, None)
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
        elif code == Code.ASK:
            columns.add(Op.BSEND, peer, CONTROL_TAG, _CONTROL_BYTES, work=work)
        elif code == Code.ANSWER:
            columns.add(Op.RECV, peer, CONTROL_TAG, _CONTROL_BYTES, work=work)
            columns.add(Op.BSEND, peer, tag, nbytes)
        elif code in (Code.LINK_SEND, Code.LINK_RECV):
            op = Op.SEND if code == Code.LINK_SEND else Op.RECV
            for k in range(number):
                columns.add(op, peer, tag, nbytes, work=0.0 if k else work)
        elif code == Code.END:
            if slots:
                columns.add(Op.WAIT, work=work, done=sorted(slots.values()), number=len(slots))
        elif code == Code.NOTHING:
            if work > 0:
                columns.add(Op.REST, work=work)
        elif code in (Code.COLLECTIVE, Code.COLLECTIVE_START):
            step = columns.add(_OPS[code], peer, -1, nbytes, work=work, comm=comm + 1)
            if code == Code.COLLECTIVE_START:
                slots[slot] = step
        elif code in _OPS:
            step = columns.add(_OPS[code], peer, tag, nbytes, work=work)
            if code in (Code.ISEND, Code.ISSEND, Code.IRECV):
                slots[slot] = step
        if len(columns.rows) > here:
            first[begin + i], last[begin + i] = here, len(columns.rows) - 1


def _steps(columns: _Columns, start: Ints, members: dict[int, Ints]) -> Steps:
    """Return the columns as steps, every receive linked with the send that it meets."""
    count = len(columns.rows)
    table = np.array(columns.rows, dtype=np.int64).reshape(count, len(_ROW)).T
    none = np.full(count, -1, dtype=np.int64)
    done_start = np.concatenate(([0], np.cumsum([len(d) for d in columns.done]))).astype(np.int64)
    steps = Steps(
        n=len(start) - 1,
        ranks=np.arange(len(start) - 1),
        start=start,
        **dict(zip(_ROW, np.ascontiguousarray(table), strict=True)),
        call=np.zeros(count, dtype=np.int64),
        work_ns=np.asarray(columns.work, dtype=np.float64),
        row=none,
        weight=np.ones(count),
        turn=np.zeros(count, dtype=np.int64),
        done_start=done_start,
        done=np.array([d for done in columns.done for d in done], dtype=np.int64),
        to=none,
        source=none,
        calls=("",),
        members=members,
    )
    to, source = pair(steps)
    return replace(steps, to=to.astype(np.int64), source=source.astype(np.int64))
