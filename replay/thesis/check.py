"""Proof, before anything is launched, that a program of the replay comes to its end.

Every process executes its events in order. A message is complete only when both its send and its
receive have been posted (as if nothing was ever buffered), so whatever ends here ends with any
amount of buffering. There are no wildcards, so one schedule decides for all of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from replay.thesis.calls import Code
from replay.thesis.program import FIELDS, TAG_GO, Program

#: (source, target, tag); control messages have a channel of their own, with tag -1.
Channel = tuple[int, int, int]
_CONTROL = -1

_CODE, _PEER, _TAG, _BYTES, _ARG = (
    FIELDS.index(name) for name in ("code", "peer", "tag", "bytes", "arg")
)


@dataclass(frozen=True)
class Stuck:
    """A process that waits for ever: its event and the channels that it waits for."""

    process: int
    event: int
    row: int
    code: Code
    waits_for: tuple[Channel, ...]
    rows: tuple[int, ...]


@dataclass(frozen=True)
class Verdict:
    """Outcome of a check: processes that wait for ever and channels that do not come out even."""

    stuck: tuple[Stuck, ...]
    uneven: tuple[tuple[Channel, int, int], ...]

    @property
    def ends(self) -> bool:
        """True when every process ends and every send has its receive."""
        return not self.stuck and not self.uneven


@dataclass(frozen=True)
class _Request:
    channel: Channel
    is_send: bool
    ordinal: int
    row: int


class _Run:
    """One in-order execution of all processes."""

    def __init__(self, program: Program) -> None:
        self.lists = [program.of(p).tolist() for p in range(len(program.start) - 1)]
        self.rows = program.rows
        self.start = program.start
        self.at = [0] * len(self.lists)
        self.posted: dict[Channel, list[int]] = defaultdict(lambda: [0, 0])
        self.outstanding: list[list[_Request]] = [[] for _ in self.lists]
        self.hidden: list[list[_Request]] = [[] for _ in self.lists]
        self.blocked: dict[int, list[_Request]] = {}
        self.sleepers: dict[Channel, set[int]] = defaultdict(set)
        self.contents: dict[Channel, list[tuple[int, int]]] = defaultdict(list)
        self.ready = list(range(len(self.lists)))

    def post(self, process: int, channel: Channel, is_send: bool, row: int) -> _Request:
        """Post one end of a message and wake who waits for it."""
        counts = self.posted[channel]
        side = 0 if is_send else 1
        request = _Request(channel, is_send, counts[side], row)
        counts[side] += 1
        for sleeper in sorted(self.sleepers.pop(channel, ())):
            if sleeper != process:
                self.ready.append(sleeper)
        return request

    def met(self, request: _Request) -> bool:
        """Tell whether the other end has been posted."""
        return self.posted[request.channel][1 if request.is_send else 0] > request.ordinal

    def start_event(self, process: int, index: int) -> list[_Request]:
        """Post what an event posts; return the requests that it waits for."""
        event = self.lists[process][index]
        code, peer, tag, arg = event[_CODE], event[_PEER], event[_TAG], event[_ARG]
        row = int(self.rows[self.start[process] + index])
        out, back = (process, peer, tag), (peer, process, tag)
        waiting = self.outstanding[process]
        if code in (Code.SEND, Code.SSEND):
            return [self.post(process, out, True, row)]
        if code in (Code.ISEND, Code.ISSEND):
            waiting.append(self.post(process, out, True, row))
        elif code == Code.BUFFERED:
            self.hidden[process].append(self.post(process, out, True, row))
        elif code == Code.RECV:
            return [self.post(process, back, False, row)]
        elif code == Code.IRECV:
            waiting.append(self.post(process, back, False, row))
        elif code == Code.SENDRECV:
            second = self.lists[process][index + 1]
            source = (second[_PEER], process, second[_TAG])
            second_row = int(self.rows[self.start[process] + index + 1])
            return [self.post(process, out, True, row),
                    self.post(process, source, False, second_row)]
        elif code == Code.NOTHING:
            waiting.append(_Request((process, process, _CONTROL), True, -1, row))
        elif code == Code.WAIT:
            taken, self.outstanding[process] = waiting[:arg], waiting[arg:]
            return taken
        elif code == Code.ASK:
            channel = (process, peer, _CONTROL)
            self.contents[channel].append((event[_BYTES], tag))
            return [self.post(process, channel, True, row)]
        elif code == Code.ANSWER:
            return [self.post(process, (peer, process, _CONTROL), False, row)]
        elif code == Code.END:
            taken = waiting + self.hidden[process]
            self.outstanding[process], self.hidden[process] = [], []
            return taken
        return []

    def finish_event(self, process: int, index: int) -> None:
        """Do what an event does after its wait: a black hole sends its answer."""
        event = self.lists[process][index]
        if event[_CODE] == Code.ANSWER:
            request = self.blocked[process][0]
            asked = self.contents[request.channel][request.ordinal]
            if asked != (event[_BYTES], event[_TAG]):
                raise AssertionError(f"black hole {process} is asked for {asked}, plans {event}")
            row = int(self.rows[self.start[process] + index])
            self.hidden[process].append(
                self.post(process, (process, event[_PEER], event[_TAG]), True, row))

    def advance(self, process: int) -> None:
        """Execute a process until it waits for something or ends."""
        events = self.lists[process]
        while self.at[process] < len(events):
            index = self.at[process]
            if process not in self.blocked:
                self.blocked[process] = self.start_event(process, index)
            missing = [r for r in self.blocked[process] if not self.met(r)]
            if missing:
                for request in missing:
                    self.sleepers[request.channel].add(process)
                return
            self.finish_event(process, index)
            del self.blocked[process]
            self.at[process] = index + 1

    def result(self) -> Verdict:
        """Run to the end and say who is left."""
        while self.ready:
            self.advance(self.ready.pop())
        stuck = []
        for process, requests in sorted(self.blocked.items()):
            index = self.at[process]
            missing = [r for r in requests if not self.met(r)]
            stuck.append(Stuck(
                process, index, int(self.rows[self.start[process] + index]),
                Code(self.lists[process][index][_CODE]),
                tuple(r.channel for r in missing), tuple(r.row for r in missing)))
        uneven = tuple(
            (channel, sends, receives)
            for channel, (sends, receives) in sorted(self.posted.items()) if sends != receives
        )
        return Verdict(tuple(stuck), uneven)


def check(program: Program) -> Verdict:
    """Execute a program on paper; see Verdict.ends."""
    return _Run(program).result()


def describe(stuck: Sequence[Stuck], limit: int = 4) -> str:
    """Return the first few waiting processes as text."""
    words = []
    for entry in stuck[:limit]:
        places = ", ".join(
            f"{source}->{target} " + ("control" if tag == _CONTROL else
                                      "go" if tag == TAG_GO else f"tag {tag}")
            for source, target, tag in entry.waits_for[:3]
        )
        words.append(f"process {entry.process} in {entry.code.name} (row {entry.row}) for {places}")
    more = f" and {len(stuck) - limit} more" if len(stuck) > limit else ""
    return "; ".join(words) + more
