"""Steps in logical order, and programs of the replay as steps, to be proven and simulated."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np

from p3s.base.arrays import Bools, Ints
from p3s.base.ops import ROOTED, blocking_of
from p3s.program.order.pairs import pair
from p3s.replay.plan.program import NOISE, WAITING, Code, Collective, Program, World
from p3s.simulate.network import Network, Path, line
from p3s.simulate.simulate import simulate
from p3s.simulate.steps import Op, Steps, instances


@dataclass(frozen=True)
class Transit:
    """Messages between nodes in one section, in logical order.

    ``source``, ``target``: nodes; ``sent``, ``taken``: ticks between which it is on its way;
    ``bytes``; ``ticks``: length of the section.
    """

    source: Ints
    target: Ints
    sent: Ints
    taken: Ints
    bytes: Ints
    ticks: int


def completers(steps: Steps) -> Ints:
    """Return for each step the one that completes its request, -1 where none does."""
    found = np.full(len(steps), -1, dtype=np.int64)
    found[steps.done] = np.repeat(np.arange(len(steps)), np.diff(steps.done_start))
    return found


def logical_time(steps: Steps) -> tuple[Ints, Ints]:
    """Return the ticks at which every step begins and ends, from the start of the section.

    A step comes after the one before it on its rank and takes a tick, a completion one for each
    message that it receives; a message is there a tick after its send at the earliest (thesis
    A.4.2 counts receives a tick earlier). It is a simulation in which everything costs one and
    computation nothing; calls of ranks that wait for each other for ever do not wait.
    """
    one = line(1.0)
    unit = Network({0: Path(one, one, one, math.inf, False)}, post=1.0, source="logical order")
    found = simulate(
        replace(steps, work_ns=np.zeros(len(steps))),
        np.zeros(steps.n, dtype=np.int64),
        unit,
        collective_ns=np.ones(len(steps)),
        anyway=True,
    )
    return np.rint(found.begin_ns).astype(np.int64), np.rint(found.end_ns).astype(np.int64)


#: Tag, which no other message has, and bytes of control messages: questions to a black hole.
CONTROL_TAG, _CONTROL_BYTES = 1 << 30, 32

#: Columns of events that say what a process does.
_READ = ("code", "peer", "tag", "bytes", "work_ns", "arg", "comm", "slot", "first", "number")
#: What a step is executed as, persistent operations as nonblocking ones; of steps with one code the
#: first is what the code does.
CODES = (
    (Op.SEND, Code.SEND),
    (Op.SSEND, Code.SSEND),
    (Op.BSEND, Code.BUFFERED),
    (Op.ISEND, Code.ISEND),
    (Op.ISSEND, Code.ISSEND),
    (Op.START_SEND, Code.ISEND),
    (Op.START_SSEND, Code.ISSEND),
    (Op.RECV, Code.RECV),
    (Op.IRECV, Code.IRECV),
    (Op.START_RECV, Code.IRECV),
    (Op.SENDRECV, Code.SENDRECV),
    (Op.WAIT, Code.WAIT),
    (Op.WAITANY, Code.WAITANY),
    (Op.WAITSOME, Code.WAITSOME),
    (Op.COLLECTIVE, Code.COLLECTIVE),
    (Op.ICOLLECTIVE, Code.COLLECTIVE_START),
    (Op.REST, Code.NOTHING),
)
_OPS = {code: op for op, code in reversed(CODES)}
#: Columns of Steps that are written step by step.
_ROW = ("op", "peer", "tag", "comm", "bytes", "peer2", "tag2", "bytes2", "number")


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
        if code in WAITING:
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


#: The call that stands for each MPI call; v-variants only where all counts are the same.
_NUMBERS = {
    "MPI_Barrier": Collective.BARRIER,
    "MPI_Bcast": Collective.BCAST,
    "MPI_Reduce": Collective.REDUCE,
    "MPI_Allreduce": Collective.ALLREDUCE,
    "MPI_Gather": Collective.GATHER,
    "MPI_Gatherv": Collective.GATHER,
    "MPI_Scatter": Collective.SCATTER,
    "MPI_Scatterv": Collective.SCATTER,
    "MPI_Allgather": Collective.ALLGATHER,
    "MPI_Allgatherv": Collective.ALLGATHER,
    "MPI_Alltoall": Collective.ALLTOALL,
    "MPI_Reduce_scatter_block": Collective.REDUCE_SCATTER_BLOCK,
    "MPI_Scan": Collective.SCAN,
    "MPI_Exscan": Collective.EXSCAN,
}

#: Counts of bytes are MPI's int.
MAX_COLLECTIVE_BYTES = (1 << 31) - 1


def collective_numbers(calls: tuple[str, ...]) -> Ints:
    """Return the Collective of each MPI call, -1 where there is none."""
    numbers = [int(_NUMBERS.get(blocking_of(name), -1)) for name in calls]
    return np.asarray(numbers, dtype=np.int64)


def fits(steps: Steps, loaded: Ints) -> Bools:
    """Return which steps are collectives that can be executed as such by the ranks ``loaded``.

    The call has to be known to the inner loop, all members have to be loaded and to make it, with
    the same bytes (at most MAX_COLLECTIVE_BYTES), root and call. ``steps`` may hold other ranks.
    """
    result = np.zeros(len(steps), dtype=bool)
    found = instances(steps)
    where, call = found.call_step, found.call_instance
    if len(where) == 0:
        return result
    comms = np.unique(steps.comm[where])
    inside = np.array(
        [
            int(c) in steps.members
            and len(steps.members[int(c)]) > 0
            and bool(np.isin(steps.members[int(c)], loaded).all())
            for c in comms
        ]
    )
    sizes = np.array([len(steps.members.get(int(c), ())) for c in comms])
    place = np.searchsorted(comms, steps.comm[where])
    numbers = collective_numbers(steps.calls)[steps.call[where]]
    good = inside[place] & (numbers >= 0) & (steps.bytes[where] <= MAX_COLLECTIVE_BYTES)
    rooted = np.array([blocking_of(name) in ROOTED for name in steps.calls])[steps.call[where]]
    good &= ~rooted | (steps.peer[where] >= 0)
    number = int(call.max()) + 1
    same = np.bincount(call, minlength=number)[call] == sizes[place]
    for column in (
        numbers,
        steps.bytes[where],
        np.where(rooted, steps.peer[where], -1),
        steps.op[where],
    ):
        low = np.full(number, np.iinfo(np.int64).max)
        high = np.full(number, np.iinfo(np.int64).min)
        np.minimum.at(low, call, column)
        np.maximum.at(high, call, column)
        same &= (low == high)[call]
    result[where] = good & same
    return result
