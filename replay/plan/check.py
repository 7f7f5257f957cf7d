"""Proof, before anything is launched, that a program of the replay comes to its end.

Every process executes its steps in order. A message is complete only when both its send and its
receive have been posted, as if nothing was ever buffered, and a collective when all members have
called it; so whatever ends here ends with any amount of buffering. There are no wildcards, so one
schedule decides for all of them; of WAITANY and WAITSOME the worst choice is assumed. What stands
in the way is buffered, left out, or refused.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from p3s.base.arrays import Ints
from p3s.base.errors import P3SError
from p3s.replay.plan.build import build_program
from p3s.replay.plan.build_holes import Noise
from p3s.replay.plan.build_traffic import MAX_MESSAGE_BYTES, WHY_TEXT, SkipReason, Traffic
from p3s.replay.plan.executed import CONTROL_TAG, ProgramSteps, expand_program
from p3s.replay.plan.loaded import Loaded
from p3s.replay.plan.program import (
    MEASURED,
    RECEIVING,
    SENDING,
    SLOT_CODES,
    TAG_NOISE,
    Code,
    Program,
    World,
    among,
)
from p3s.simulate.steps import RECEIVES, SENDS, WAITS, LeftOut, Op, Steps, instances

_MOST_NAMED = 64
#: Steps that end as soon as they have begun; what they leave behind is waited for.
_NONBLOCKING = (Op.ISEND, Op.ISSEND, Op.IRECV, Op.ICOLLECTIVE)


@dataclass(frozen=True)
class Missing:
    """A message that somebody waits for: processes, tag, bytes.

    ``step``: number of the section's step that sends it, as in Program, -1 if none.
    """

    source: int
    target: int
    tag: int
    bytes: int
    step: int


@dataclass(frozen=True)
class Stuck:
    """A process that waits for ever: in which event of which step, and for what."""

    process: int
    step: int
    code: Code
    waits_for: tuple[Missing, ...]


@dataclass(frozen=True)
class Verdict:
    """Outcome of a check.

    ``stuck``: processes that wait for ever. ``uneven``: ends of messages without the other end.
    ``faults``: events that cannot be, sizes and calls that do not agree, each in words.
    """

    stuck: tuple[Stuck, ...] = ()
    uneven: tuple[Missing, ...] = ()
    faults: tuple[str, ...] = ()

    @property
    def ends(self) -> bool:
        """True when every process ends, every send has its receive and all agree."""
        return not self.stuck and not self.uneven and not self.faults


def check(program: Program) -> Verdict:
    """Execute a program on paper; see Verdict.ends."""
    faults = _faults(program)
    if faults:
        return Verdict(faults=faults)
    executed = expand_program(program)
    uneven, faults = _missing_messages(program, executed), _disagree(program, executed)
    if uneven or faults:
        return Verdict(uneven=uneven, faults=faults)
    return Verdict(_Execution(program, executed).stuck())


def _faults(program: Program) -> tuple[str, ...]:
    """Return what is wrong with single events, beyond what prepare.h refuses when it takes them."""
    events = program.events
    processes = len(program.start) - 1
    code = events["code"].astype(np.int64)
    ends = np.flatnonzero(code == Code.END)
    if (np.diff(program.start) < 1).any() or not np.array_equal(ends, program.start[1:] - 1):
        return ("a process has no END, or more than one",)
    process = np.repeat(np.arange(processes), np.diff(program.start))
    slot, peer = events["slot"], events["peer"]
    messages = among(code, *SENDING, *RECEIVING, Code.ANSWER, Code.ASK, Code.LINK_RECV)
    requests = among(code, *SLOT_CODES)
    problems: list[str] = []
    for bad, why in (
        (requests & ((slot < 0) | (slot >= program.slots[process])), "its slot does not exist"),
        (messages & ((peer < 0) | (peer >= processes)), "no such process"),
    ):
        problems += [
            f"{_event(program, at)}: {why}" for at in np.flatnonzero(bad)[:_MOST_NAMED].tolist()
        ]
    return tuple(problems)


def _disagree(program: Program, executed: ProgramSteps) -> tuple[str, ...]:
    """Return where the two ends of a message do not agree."""
    steps, event, events = executed.steps, executed.event, program.events
    send = np.flatnonzero(steps.to >= 0)
    receive = steps.to[send]
    room = np.where(steps.op[receive] == Op.SENDRECV, steps.bytes2[receive], steps.bytes[receive])
    differ = steps.bytes[send] > room
    one, other = events[event[send]], events[event[receive]]
    differ |= (steps.tag[send] == CONTROL_TAG) & (
        (one["bytes"] != other["bytes"]) | (one["tag"] != other["tag"])
    )
    disagreements = [
        f"{_event(program, int(event[send[k]]))} meets {_event(program, int(event[receive[k]]))}"
        for k in np.flatnonzero(differ)[:_MOST_NAMED].tolist()
    ]
    return tuple(disagreements)


def _calls(steps: Steps) -> list[Ints]:
    """Return the steps of each call of a collective."""
    calls_found = instances(steps)
    return np.split(calls_found.call_step[calls_found.member], calls_found.member_start[1:-1])


def _missing_messages(program: Program, executed: ProgramSteps) -> tuple[Missing, ...]:
    steps = executed.steps
    send = np.flatnonzero(steps.is_op(*SENDS) & (steps.to < 0))
    receive = np.flatnonzero(steps.is_op(*RECEIVES) & (steps.source < 0))
    rank = steps.rank
    missing = [_message(program, executed, int(i)) for i in send[:_MOST_NAMED]]
    for i in receive[:_MOST_NAMED].tolist():
        columns = (
            (steps.peer2, steps.tag2, steps.bytes2)
            if steps.op[i] == Op.SENDRECV
            else (steps.peer, steps.tag, steps.bytes)
        )
        peer, tag, nbytes = (int(column[i]) for column in columns)
        missing.append(Missing(peer, int(rank[i]), tag, nbytes, -1))
    return tuple(missing)


def _message(program: Program, executed: ProgramSteps, i: int) -> Missing:
    """Return the message that step ``i`` sends."""
    steps = executed.steps
    source = int(np.searchsorted(steps.start, i, side="right")) - 1
    peer, tag, nbytes = (int(column[i]) for column in (steps.peer, steps.tag, steps.bytes))
    return Missing(source, peer, tag, nbytes, int(program.step[executed.event[i]]))


# ---- whether it ends -----------------------------------------------------------------------
class _Execution:
    """Executes steps as far as they go; a step that begins lets its partners look again."""

    def __init__(self, program: Program, executed: ProgramSteps) -> None:
        self.program, self.done = program, executed
        steps = executed.steps
        self.op, self.to, self.source = steps.op.tolist(), steps.to.tolist(), steps.source.tolist()
        self.rank = steps.rank.tolist()
        # What a process asks for its black hole has to take, as if nothing was buffered.
        question = program.events["code"][executed.event] == Code.ASK
        self.buffered = ((steps.op == Op.BSEND) & ~question).tolist()
        self.calls = [members.tolist() for members in _calls(steps)]
        self.call = {i: k for k, members in enumerate(self.calls) for i in members}
        self.absent = [len(members) for members in self.calls]
        self.begun = [False] * len(steps)
        listed, start = steps.done.tolist(), steps.done_start.tolist()
        self.lists = {
            i: listed[start[i] : start[i + 1]] for i in np.flatnonzero(steps.is_op(*WAITS)).tolist()
        }
        self.enough = self._enough(steps)

    def _enough(self, steps: Steps) -> dict[int, int]:
        """Return how many requests must be complete before each wait returns in any case.

        Those that a WAITANY or WAITSOME before it may have taken do not count: it has as many as
        it wants only when there are that many more, or when all that it lists are complete.
        """
        needed_requests = {}
        earlier: dict[int, list[int]] = {}
        for i, requests in self.lists.items():
            if self.op[i] == Op.WAIT:
                needed_requests[i] = len(requests)
                continue
            before = {e for request in requests for e in earlier.get(request, ())}
            shared = sum(request in earlier for request in requests)
            already_taken = min(shared, sum(int(steps.number[e]) for e in before))
            needed_requests[i] = min(len(requests), int(steps.number[i]) + already_taken)
            for request in requests:
                earlier.setdefault(request, []).append(i)
        return needed_requests

    def _ready(self, i: int) -> bool:
        """Return whether what step ``i`` does is complete once it has begun."""
        to, source = self.to[i], self.source[i]
        return (
            (to < 0 or self.buffered[i] or self.begun[to])
            and (source < 0 or self.begun[source])
            and (i not in self.call or not self.absent[self.call[i]])
        )

    def _ends(self, i: int) -> bool:
        if self.op[i] in _NONBLOCKING:
            return True
        if i in self.lists:
            return sum(map(self._ready, self.lists[i])) >= self.enough[i]
        return self._ready(i)

    def _begin(self, i: int) -> list[int]:
        """Begin a step; return the processes that may go on for it."""
        self.begun[i] = True
        partners = [k for k in (self.to[i], self.source[i]) if k >= 0]
        if i in self.call:
            self.absent[self.call[i]] -= 1
            if not self.absent[self.call[i]]:
                partners += self.calls[self.call[i]]
        return [self.rank[k] for k in partners]

    def stuck(self) -> tuple[Stuck, ...]:
        """Execute all that can be; return who is left."""
        bounds = self.done.steps.start.tolist()
        at = bounds[:-1]
        look = deque(range(len(at)))
        while look:
            process = look.popleft()
            while (i := at[process]) < bounds[process + 1]:
                if not self.begun[i]:
                    look += self._begin(i)
                if not self._ends(i):
                    break
                at[process] += 1
        return tuple(
            self._stuck_process(process, i)
            for process, i in enumerate(at)
            if i < bounds[process + 1]
        )

    def _stuck_process(self, process: int, i: int) -> Stuck:
        program, event = self.program, int(self.done.event[i])
        missing: list[int] = []  # sends of messages whose other end has not begun
        for k in self.lists.get(i, [i]):
            to, source = self.to[k], self.source[k]
            missing += [k] * (to >= 0 and not self.buffered[k] and not self.begun[to])
            missing += [source] * (source >= 0 and not self.begun[source])
        return Stuck(
            process,
            int(program.step[event]),
            Code(int(program.events["code"][event])),
            tuple(_message(program, self.done, send) for send in missing),
        )


# ---- in words ------------------------------------------------------------------------------
def _event(program: Program, event: int) -> str:
    process = int(np.searchsorted(program.start, event, side="right")) - 1
    row = program.events[event]
    return (
        f"process {process} event {event - int(program.start[process])} "
        f"{Code(int(row['code'])).name} peer {row['peer']} tag {row['tag']} {row['bytes']} B"
    )


def _place(missing: Missing) -> str:
    names = {TAG_NOISE: "noise", CONTROL_TAG: "question"}
    message_text = names.get(missing.tag, f"tag {missing.tag}, {missing.bytes} B")
    return f"{missing.source}->{missing.target} ({message_text})"


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


#: Blocking sends of up to this many bytes are taken to be buffered by every MPI library.
EAGER_BYTES = 4096
#: Messages left out at most, one after the other.
_MOST_REPAIRS = 40


@dataclass(frozen=True)
class ProvenProgram:
    """A proven program, the calls it leaves out, and what it takes for granted, in words."""

    program: Program
    left_out: tuple[LeftOut, ...]
    notes: tuple[str, ...]


def prove_program(
    loaded: Loaded, world: World, *, kind: str = "trace", noise: Noise | None = None
) -> ProvenProgram:
    """Return the program of two loaded ranges, proven to end.

    Executed as if nothing was buffered it should end. If not, blocking sends of up to
    EAGER_BYTES return at once, then all of them (many programs only end because the library
    buffers; ``notes`` say so). If that does not help either, calls are left out (``left_out``).
    Errors: P3SError names the events where that does not help.
    """
    every = (-1, EAGER_BYTES, MAX_MESSAGE_BYTES)
    excluded = (np.zeros(len(loaded.steps), dtype=bool), np.zeros(len(loaded.steps), dtype=bool))
    for _ in range(_MOST_REPAIRS):
        for nbytes in every:
            program, traffic = build_program(
                loaded, world, kind=kind, noise=noise, buffered_bytes=nbytes, excluded=excluded
            )
            verdict = check(program)
            if verdict.ends:
                return ProvenProgram(program, _left_out(loaded, traffic), _notes(loaded, nbytes))
        sends = _culprits(loaded, world, verdict)
        if not sends or verdict.uneven or verdict.faults:
            break
        excluded[0][sends] = True
    raise P3SError(
        f"{_title(loaded)} cannot be replayed: {describe(verdict)} would wait for ever; the model "
        "has the order of calls wrong"
    )


def _title(loaded: Loaded) -> str:
    return f"section {loaded.section} on nodes {loaded.pair[0]} and {loaded.pair[1]}"


def _notes(loaded: Loaded, nbytes: int) -> tuple[str, ...]:
    if nbytes < 0:
        return ()
    size = f"of up to {nbytes} B" if nbytes < MAX_MESSAGE_BYTES else "of any size"
    return (f"{_title(loaded)}: relies on the library to buffer blocking sends {size}",)


def _culprits(loaded: Loaded, world: World, verdict: Verdict) -> list[int]:
    """Return the send to leave out: that of the first message that is waited for; none: no such.

    A black hole never waits for anything but its own measured rank, so it is never to blame.
    """
    measured = [process.role == MEASURED for process in world.processes]
    for entry in verdict.stuck:
        for missing in entry.waits_for:
            local = np.flatnonzero(loaded.step == missing.step)
            if len(local) and measured[missing.source] and measured[missing.target]:
                return [int(local[0])]
    return []


def _left_out(loaded: Loaded, traffic: Traffic) -> tuple[LeftOut, ...]:
    """Return the calls that do not run, by call and reason."""
    steps = loaded.steps
    why = traffic.why
    left_out = []
    for reason in SkipReason:
        skipped = (
            np.flatnonzero(why == reason) if reason != SkipReason.RUNS else np.zeros(0, dtype=int)
        )
        for call in np.unique(steps.call[skipped]).tolist():
            mine = skipped[steps.call[skipped] == call]
            rows: Ints = np.unique(steps.row[mine])
            left_out.append(
                LeftOut(
                    steps.calls[call],
                    WHY_TEXT[reason],
                    float(steps.weight[mine].sum()),
                    rows[rows >= 0],
                )
            )
    return tuple(left_out)


def refuse_unproven(program: Program, subject: str) -> None:
    """Raise P3SError when a program that needs no repair would not end."""
    verdict = check(program)
    if not verdict.ends:
        raise P3SError(
            f"the program of {subject} would never end: {describe(verdict)}; this is a "
            "fault of the plan"
        )
