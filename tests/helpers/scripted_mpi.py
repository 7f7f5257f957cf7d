"""MPI in one process, for programs of the replay: the scheduler is free to be as nasty as MPI lets.

``execute(program, rng)`` runs the events of all processes one at a time. Who comes next, whether
a send is buffered or waits for its receiver, when a message that both sides have posted is
complete, and what WAITANY and WAITSOME choose is up to the generator of random numbers and the
temper. It shares no code with replay/plan: messages are matched by queues, not by counting.
"""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass, field

from p3s.replay.plan.program import Code, Program

#: How the next process is chosen: any; the same as long as it can; the lowest; the highest.
TEMPERS = ("random", "stubborn", "lowest", "highest")
#: Which sends are buffered.
BUFFERING = ("none", "all", "random", "small")
SMALL_BYTES = 1024


class ScriptError(AssertionError):
    """The program does what MPI does not allow, or never ends."""


@dataclass
class Request:
    """One end of a message, or a member's part of a nonblocking collective."""

    process: int
    event: int
    step: int
    peer: int
    tag: int
    bytes: int
    sends: bool
    done: bool = False
    taken: bool = False
    other: Request | None = None


@dataclass
class Outcome:
    """What happened: which events were executed how often, and which ends met (as steps)."""

    executed: list[list[int]]
    met: list[tuple[Request, Request]] = field(default_factory=list)
    collectives: int = 0
    steps: int = 0


class World:
    """State of all processes."""

    def __init__(self, program: Program, rng: random.Random, temper: str, buffering: str) -> None:
        self.program, self.rng, self.temper, self.buffering = program, rng, temper, buffering
        self.processes = len(program.start) - 1
        names = program.events.dtype.names
        self.events = [
            [dict(zip(names, event, strict=True)) for event in program.of(p).tolist()]
            for p in range(self.processes)
        ]
        self.steps = [
            program.step[a:b].tolist()
            for a, b in zip(program.start[:-1], program.start[1:], strict=True)
        ]
        self.lists = [
            program.lists[a:b].tolist()
            for a, b in zip(program.list_start[:-1], program.list_start[1:], strict=True)
        ]
        self.at = [0] * self.processes
        self.pending: list[list[Request] | None] = [None] * self.processes
        self.slots: list[dict[int, Request]] = [{} for _ in range(self.processes)]
        self.some = [0] * self.processes
        #: Sends without a receive and receives without a send, per receiver, in order.
        self.unexpected: list[list[tuple[bool, Request]]] = [[] for _ in range(self.processes)]
        self.posted: list[list[tuple[bool, Request]]] = [[] for _ in range(self.processes)]
        self.moving: list[tuple[Request, Request]] = []
        self.calls: dict[tuple[int, int], list[tuple[int, tuple[int, ...], Request]]] = defaultdict(
            list
        )
        self.ordinal: dict[tuple[int, int], int] = defaultdict(int)
        self.asleep: set[int] = set()
        self.outcome = Outcome([[0] * len(e) for e in self.events])

    # ---- messages ----------------------------------------------------------------------
    def request(self, process: int, at: int, e: dict[str, int], sends: bool) -> Request:
        return Request(process, at, self.steps[process][at], e["peer"], e["tag"], e["bytes"], sends)

    def buffers(self, e: dict[str, int], synchronous: bool) -> bool:
        if synchronous or self.buffering == "none":
            return False
        if self.buffering == "small":
            return e["bytes"] <= SMALL_BYTES
        return self.buffering == "all" or self.rng.random() < 0.5

    def post(
        self,
        process: int,
        at: int,
        e: dict[str, int],
        *,
        sends: bool,
        synchronous: bool = False,
        control: bool = False,
    ) -> Request:
        """Post one end of a message; it meets the first other end that fits."""
        mine = self.request(process, at, e, sends)
        if not 0 <= mine.peer < self.processes:
            raise ScriptError(f"process {process} event {at}: peer {mine.peer}")
        if sends and self.buffers(e, synchronous):
            mine.done = True
        if not sends and not control and e["offset"] < 0:
            raise ScriptError(f"process {process} event {at}: receives before its buffer")
        target = mine.peer if sends else process
        queue = self.posted[target] if sends else self.unexpected[target]
        for k, (other_control, other) in enumerate(queue):
            if (
                other_control == control
                and other.peer == process
                and other.process == mine.peer
                and (control or other.tag == mine.tag)
            ):
                del queue[k]
                self.meet(mine, other, control)
                return mine
        (self.unexpected if sends else self.posted)[target].append((control, mine))
        return mine

    def meet(self, mine: Request, other: Request, control: bool) -> None:
        send, receive = (mine, other) if mine.sends else (other, mine)
        if control and (send.bytes, send.tag) != (receive.bytes, receive.tag):
            raise ScriptError(
                f"black hole {receive.process} event {receive.event} is asked for "
                f"{send.bytes} B tag {send.tag} by event {send.event}, expects "
                f"{receive.bytes} B tag {receive.tag}"
            )
        if send.bytes > receive.bytes:
            raise ScriptError(
                f"message of {send.bytes} B from {send.process} event {send.event} "
                f"is truncated at {receive.process} event {receive.event}"
            )
        send.other, receive.other = receive, send
        self.moving.append((send, receive))
        if not control:
            self.outcome.met.append((send, receive))

    def deliver(self) -> None:
        """Complete one of the messages on the way."""
        k = self.rng.randrange(len(self.moving))
        for end in self.moving.pop(k):
            end.done = True
            self.asleep.discard(end.process)

    # ---- events ------------------------------------------------------------------------
    def begin(self, process: int, at: int) -> list[Request]:
        """Do what an event does first; return the requests that it waits for."""
        e = self.events[process][at]
        code = e["code"]
        self.outcome.executed[process][at] += 1
        if code in (Code.SEND, Code.SSEND):
            return [self.post(process, at, e, sends=True, synchronous=code == Code.SSEND)]
        if code == Code.RECV:
            return [self.post(process, at, e, sends=False)]
        if code in (Code.ISEND, Code.ISSEND, Code.IRECV, Code.BUFFERED):
            self.keep(
                process,
                e["slot"],
                self.post(
                    process, at, e, sends=code != Code.IRECV, synchronous=code == Code.ISSEND
                ),
            )
        elif code == Code.SENDRECV:
            second = self.events[process][at + 1]
            return [
                self.post(process, at, e, sends=True),
                self.post(process, at + 1, second, sends=False),
            ]
        elif code == Code.ASK:
            return [self.post(process, at, e, sends=True, control=True)]
        elif code == Code.ANSWER:
            return [self.post(process, at, e, sends=False, control=True)]
        elif code in (Code.COLLECTIVE, Code.COLLECTIVE_START):
            mine = self.collective(process, at, e)
            if code == Code.COLLECTIVE:
                return [mine]
            self.keep(process, e["slot"], mine)
        elif code == Code.WAIT:
            return self.listed(process, e)
        elif code in (Code.LINK_SEND, Code.LINK_RECV):
            return [
                self.post(process, at, e, sends=code == Code.LINK_SEND) for _ in range(e["number"])
            ]
        elif code == Code.END:
            return list(self.slots[process].values())
        elif code in (Code.WAITANY, Code.WAITSOME):
            self.some[process] = 1 if code == Code.WAITANY else e["arg"]
            if e["number"] < 1 or self.some[process] < 1:
                raise ScriptError(f"process {process} event {at}: waits for nothing")
        elif code not in (Code.SECOND, Code.NOTHING):
            raise ScriptError(f"process {process} event {at}: unknown code {code}")
        return []

    def keep(self, process: int, slot: int, mine: Request) -> None:
        old = self.slots[process].get(slot)
        if not 0 <= slot < self.program.slots[process] or (old is not None and not old.taken):
            raise ScriptError(f"process {process} event {mine.event}: slot {slot} is in use")
        self.slots[process][slot] = mine

    def listed(self, process: int, e: dict[str, int]) -> list[Request]:
        entries = self.lists[process][e["first"] : e["first"] + e["number"]]
        if len(entries) != e["number"] or len(set(entries)) != len(entries):
            raise ScriptError(f"process {process}: damaged request list")
        try:
            return [self.slots[process][slot] for slot in entries]
        except KeyError:
            raise ScriptError(f"process {process}: waits for an empty slot") from None

    def collective(self, process: int, at: int, e: dict[str, int]) -> Request:
        comm = e["comm"]
        members = self.program.comms[comm]
        if process not in members:
            raise ScriptError(f"process {process} event {at}: no member of communicator {comm}")
        call = comm, self.ordinal[comm, process]
        self.ordinal[comm, process] += 1
        mine = self.request(process, at, e, sends=False)
        what = tuple(e[name] for name in ("code", "arg", "bytes", "peer"))
        self.calls[call].append((process, what, mine))
        arrived = self.calls[call]
        if len({entry[1] for entry in arrived}) != 1:
            raise ScriptError(f"process {process} event {at}: members make different calls")
        if len(arrived) == len(members):
            self.outcome.collectives += 1
            for member, _, request in arrived:
                request.done = True
                self.asleep.discard(member)
        return mine

    def take(self, request: Request) -> None:
        request.taken = True

    def choose(self, process: int, e: dict[str, int]) -> bool:
        """WAITANY and WAITSOME: take what is complete; tell whether they return."""
        left = [r for r in self.listed(process, e) if not r.taken]
        ready = [r for r in left if r.done]
        if not left:
            return True
        if not ready:
            return False
        number = (
            1
            if e["code"] == Code.WAITANY
            else self.rng.randint(1, min(len(ready), self.some[process]))
        )
        for request in self.rng.sample(ready, number):
            self.take(request)
        self.some[process] -= number
        return self.some[process] <= 0 or len(left) == number

    def advance(self, process: int) -> bool:
        """Execute one event, or see whether the one that waits can go on; False: it cannot."""
        at = self.at[process]
        waits_for = self.pending[process]
        if waits_for is None:
            self.pending[process] = self.begin(process, at)
            return True
        e = self.events[process][at]
        if e["code"] in (Code.WAITANY, Code.WAITSOME):
            before = self.some[process]
            if not self.choose(process, e):
                return self.some[process] < before
        elif not all(r.done for r in waits_for):
            return False
        elif e["code"] in (Code.WAIT, Code.END):
            for request in waits_for:
                self.take(request)
        elif e["code"] == Code.ANSWER:
            self.keep(process, e["slot"], self.post(process, at, e, sends=True))
        self.pending[process] = None
        self.at[process] = at + 1
        return True

    # ---- the scheduler -----------------------------------------------------------------
    def run(self) -> Outcome:
        """Run to the end."""
        alive = [p for p in range(self.processes) if self.events[p]]
        last = alive[0] if alive else 0
        while alive:
            self.outcome.steps += 1
            awake = [p for p in alive if p not in self.asleep]
            if self.moving and (not awake or self.rng.random() < 0.3):
                self.deliver()
                continue
            if not awake:
                raise ScriptError(
                    "deadlock: "
                    + "; ".join(
                        f"process {p} event {self.at[p]} "
                        f"{Code(self.events[p][self.at[p]]['code']).name}"
                        for p in alive
                    )
                )
            if self.temper == "stubborn" and last in awake:
                process = last
            elif self.temper in ("lowest", "highest"):
                process = awake[0 if self.temper == "lowest" else -1]
            else:
                process = self.rng.choice(awake)
            last = process
            if not self.advance(process):
                self.asleep.add(process)
            elif self.at[process] == len(self.events[process]):
                alive.remove(process)
        self.settle()
        return self.outcome

    def settle(self) -> None:
        """Refuse what is left over."""
        for process in range(self.processes):
            for _, end in self.unexpected[process]:
                raise ScriptError(f"never received: event {end.event} of process {end.process}")
            for _, end in self.posted[process]:
                raise ScriptError(f"never sent: event {end.event} of process {end.process}")
            if set(self.outcome.executed[process]) - {1}:
                raise ScriptError(f"process {process}: an event was not executed once")
        if self.moving:
            raise ScriptError("a message was never complete")


def execute(
    program: Program, seed: int, temper: str = "random", buffering: str = "random"
) -> Outcome:
    """Execute a program; raise ScriptError when it does not end as it should."""
    return World(program, random.Random(seed), temper, buffering).run()
