"""Steps in logical order, and programs of the replay as steps, to be proven and simulated."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from p3s.base.arrays import Bools, Ints, starts
from p3s.base.ops import ROOTED, blocking_of
from p3s.program.order.pairs import pair
from p3s.replay.plan.program import NOISE, WAITING, Code, Collective, Program, World, among
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
    completer = np.full(len(steps), -1, dtype=np.int64)
    completer[steps.done] = np.repeat(np.arange(len(steps)), np.diff(steps.done_start))
    return completer


def logical_time(steps: Steps) -> tuple[Ints, Ints]:
    """Return the ticks at which every step begins and ends, from the start of the section.

    A step comes after the one before it on its rank and takes a tick, a completion one for each
    message that it receives; a message is there a tick after its send at the earliest (thesis
    A.4.2 counts receives a tick earlier). It is a simulation in which everything costs one and
    computation nothing; calls of ranks that wait for each other for ever do not wait.
    """
    one = line(1.0)
    unit = Network({0: Path(one, one, one, math.inf, False)}, post=1.0, source="logical order")
    timeline = simulate(
        replace(steps, work_ns=np.zeros(len(steps))),
        np.zeros(steps.n, dtype=np.int64),
        unit,
        collective_ns=np.ones(len(steps)),
        anyway=True,
    )
    return np.rint(timeline.begin_ns).astype(np.int64), np.rint(timeline.end_ns).astype(np.int64)


#: Tag, which no other message has, and bytes of control messages: questions to a black hole.
CONTROL_TAG, _CONTROL_BYTES = 1 << 30, 32

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
#: The step that an event is, or begins with, by its code.
_OP_OF = np.zeros(max(Code) + 1, dtype=np.int64)
_OP_OF[[int(code) for _, code in reversed(CODES)]] = [int(op) for op, _ in reversed(CODES)]
_OP_OF[[Code.ASK, Code.ANSWER, Code.LINK_SEND, Code.LINK_RECV, Code.END]] = [
    *(Op.BSEND, Op.RECV, Op.SEND, Op.RECV, Op.WAIT)
]
#: Events whose steps wait, or compute: they have no partner and no bytes.
_ALONE = (*WAITING, Code.END, Code.NOTHING)
_CALLED = (Code.COLLECTIVE, Code.COLLECTIVE_START)


@dataclass(frozen=True)
class ProgramSteps:
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
        events = np.flatnonzero(self.first >= 0)
        return np.repeat(events, self.last[events] - self.first[events] + 1)


def expand_program(
    program: Program, world: World | None = None, *, work_scale: float = 1.0
) -> ProgramSteps:
    """Return what the processes of a program do as steps; schedules of black holes are ignored.

    With a ``world`` processes are on its nodes, and the noise pair, which does everything by its
    schedule, does nothing. ``work_scale``: factor on emulated computation.
    """
    events, size = program.events, len(program.start) - 1
    code, work = events["code"], events["work_ns"] * work_scale
    process = np.repeat(np.arange(size), np.diff(program.start))
    still = np.zeros(size, dtype=bool)
    if world is not None and program.noise:
        still = np.array([each.role == NOISE for each in world.processes])
    waiting, request = _requests(program, process, ~still[process])
    listed = np.bincount(waiting, minlength=len(events))
    count = (_OP_OF[code] > 0).astype(np.int64)
    count[code == Code.ANSWER] = 2
    for selected, steps_of in (
        (among(code, Code.LINK_SEND, Code.LINK_RECV), events["number"]),
        (code == Code.END, listed > 0),
        (code == Code.NOTHING, work > 0),
    ):
        count[selected] = steps_of[selected]
    count[still[process]] = 0
    total = starts(count)
    first = np.where(count > 0, total[:-1], -1)
    event = np.repeat(np.arange(len(events)), count)
    begins = np.arange(len(event)) == first[event]
    rows, kind = events[event], code[event]
    alone, called, answer = among(kind, *_ALONE), among(kind, *_CALLED), kind == Code.ANSWER
    control = (kind == Code.ASK) | (answer & begins)
    number: Ints = np.where(alone, listed[event], 0).astype(np.int64)
    for one, at_most in ((Code.WAITANY, np.ones_like(number)), (Code.WAITSOME, rows["arg"])):
        number = np.where(kind == one, np.minimum(number, at_most), number)
    half = events[np.minimum(event + 1, len(events) - 1)]
    double = kind == Code.SENDRECV
    none = np.full(len(event), -1, dtype=np.int64)
    members = [np.arange(size), *(np.asarray(ranks, dtype=np.int64) for ranks in program.comms)]
    steps = Steps(
        n=size,
        ranks=np.arange(size),
        start=total[program.start],
        op=np.where(answer & ~begins, int(Op.BSEND), _OP_OF[kind]),
        peer=np.where(alone, -1, rows["peer"]),
        tag=np.where(alone | called, -1, np.where(control, CONTROL_TAG, rows["tag"])),
        comm=np.where(called, rows["comm"] + 1, 0),
        bytes=np.where(alone, 0, np.where(control, _CONTROL_BYTES, rows["bytes"])),
        peer2=np.where(double, half["peer"], -1),
        tag2=np.where(double, half["tag"], -1),
        bytes2=np.where(double, half["bytes"], 0),
        call=np.zeros(len(event), dtype=np.int64),
        work_ns=np.where(begins & ~answer, work[event], 0.0),
        number=number,
        row=none,
        weight=np.ones(len(event)),
        turn=np.zeros(len(event), dtype=np.int64),
        done_start=starts(np.bincount(first[waiting], minlength=len(event))),
        done=first[request],
        to=none,
        source=none,
        calls=("",),
        members=dict(enumerate(members)),
    )
    to, source = pair(steps)
    steps = replace(steps, to=to.astype(np.int64), source=source.astype(np.int64))
    node_of = np.array([p.node for p in world.processes] if world else [0] * size, dtype=np.int64)
    return ProgramSteps(steps, node_of, first, np.where(count > 0, total[1:] - 1, -1))


def _requests(program: Program, process: Ints, acts: Bools) -> tuple[Ints, Ints]:
    """Return events that wait, in their order, and those that left the requests they wait for.

    What one WAIT has completed is no request any more; what none has is waited for at the END.
    ``process``: of every event, ``acts``: those that do something.
    """
    events, code = program.events, program.events["code"]
    base = starts(program.slots)
    leaves = np.flatnonzero(
        acts & among(code, Code.ISEND, Code.ISSEND, Code.IRECV, Code.COLLECTIVE_START)
    )
    left_by = np.full(int(base[-1]), -1, dtype=np.int64)  # by process and slot
    left_by[base[process[leaves]] + events["slot"][leaves]] = leaves
    waits = np.flatnonzero(acts & among(code, *WAITING))
    number = events["number"][waits]
    waiting = np.repeat(waits, number)
    slot = program.lists[
        expand_ranges(program.list_start[process[waits]] + events["first"][waits], number)
    ]
    request = left_by[base[process[waiting]] + slot]
    matched = (request >= 0) & (request < waiting)
    waiting, request = waiting[matched], request[matched]
    freed = np.full(len(events), len(events), dtype=np.int64)
    whole = code[waiting] == Code.WAIT
    np.minimum.at(freed, request[whole], waiting[whole])
    matched = waiting <= freed[request]
    rest = leaves[freed[leaves] == len(events)]
    waiting = np.concatenate((waiting[matched], program.start[process[rest] + 1] - 1))
    order = np.argsort(waiting, kind="stable")
    return waiting[order], np.concatenate((request[matched], rest))[order]


def expand_ranges(begin: Ints, number: Ints) -> Ints:
    """Return begin[i], begin[i] + 1, ... (number[i] of them) for all i, one after the other."""
    total = starts(number)
    return np.repeat(begin - total[:-1], number) + np.arange(int(total[-1]))


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
    calls_found = instances(steps)
    where, call = calls_found.call_step, calls_found.call_instance
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
