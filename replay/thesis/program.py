"""What each process of a replay does in one phase of one iteration, as lists of events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from p3s.trace.ops import leaves_request
from replay.scaled import ScaledTrace
from replay.thesis.calls import RECV_CODES, SEND_CODES, Code
from replay.thesis.classes import Classified
from replay.thesis.match import Matches, Reason
from replay.thesis.world import BLACK_HOLE, MEASURED, NOISE, World

#: Layout of struct event in inner.c: eight 64-bit integers.
FIELDS = ("code", "peer", "tag", "bytes", "offset", "work_ns", "arg", "sample")
EVENT = np.dtype([(name, "<i8") for name in FIELDS])

TAG_GO = 1
TAG_NOISE = 2
FIRST_TAG = 16
ALIGNMENT = 64
#: Receive buffers of one process start again from 0 beyond this size.
BUFFER_LIMIT_BYTES = 256 << 20
UNTIMED = -1


@dataclass(frozen=True)
class Event:
    """One step of a process; ``row`` is the trace's row it comes from, -1 if none."""

    code: Code
    peer: int = -1
    tag: int = 0
    bytes: int = 0
    offset: int = 0
    work_ns: int = 0
    arg: int = 0
    sample: int = UNTIMED
    row: int = -1


@dataclass
class Script:
    """The steps of one process, under construction."""

    events: list[Event] = field(default_factory=list)
    in_bytes: int = 0
    out_bytes: int = 0

    def place(self, nbytes: int) -> int:
        """Return where in the receive buffer the next message goes."""
        offset = self.in_bytes
        if offset + nbytes > BUFFER_LIMIT_BYTES:
            offset = 0
        self.in_bytes = max(self.in_bytes, offset + -(-nbytes // ALIGNMENT) * ALIGNMENT)
        return offset


@dataclass(frozen=True)
class Program:
    """What every process does in one phase: events as EVENT records, process after process."""

    phase: int
    events: npt.NDArray[np.void]
    rows: npt.NDArray[np.int64]
    start: npt.NDArray[np.int64]
    out_bytes: int
    in_bytes: npt.NDArray[np.int64]

    def of(self, process: int) -> npt.NDArray[np.void]:
        """Return the events of one process."""
        return self.events[self.start[process]:self.start[process + 1]]

    def samples(self) -> list[int]:
        """Return the classes that get samples."""
        found = np.unique(self.events["sample"])
        return [int(sample) for sample in found if sample != UNTIMED]


def pack(phase: int, scripts: Sequence[Script]) -> Program:
    """Put the scripts of all processes of a world, in rank order, into one program."""
    table = [
        (int(e.code), e.peer, e.tag, e.bytes, e.offset, e.work_ns, e.arg, e.sample)
        for script in scripts for e in script.events
    ]
    rows = [e.row for script in scripts for e in script.events]
    lengths = [len(script.events) for script in scripts]
    return Program(
        phase,
        np.array(table, dtype=EVENT),
        np.asarray(rows, dtype=np.int64),
        np.concatenate(([0], np.cumsum(lengths))).astype(np.int64),
        max((script.out_bytes for script in scripts), default=0),
        np.asarray([script.in_bytes for script in scripts], dtype=np.int64),
    )


class PhaseBuilder:
    """Builds the program of one phase for two loaded ranges.

    ``timed`` says which rows give a sample. ``buffered`` turns blocking sends into sends that
    return at once, for programs that rely on the library's buffers; ``excluded`` rows are left
    out. A measured rank keeps its program order; its black hole posts the receives of all its
    external sends first and then answers its control messages in their order.
    """

    def __init__(
        self, trace: ScaledTrace, matches: Matches, classified: Classified, world: World,
        ranges: tuple[int, int], cores_per_node: int, *, timed: npt.NDArray[np.bool_],
        buffered: bool = False, excluded: frozenset[int] = frozenset(),
    ) -> None:
        self.trace, self.matches, self.classified, self.world = trace, matches, classified, world
        self.timed, self.buffered, self.excluded = timed, buffered, excluded
        self.rank_of: dict[int, tuple[int, int]] = {}
        for side, index in enumerate(ranges if ranges[0] != ranges[1] else ranges[:1]):
            first = index * cores_per_node
            for slot in range(min(cores_per_node, trace.n - first)):
                self.rank_of[first + slot] = (side, slot)
        self.measured = world.rank_of(MEASURED)
        self.black_holes = world.rank_of(BLACK_HOLE)
        self.scripts = [Script() for _ in world.processes]
        self.tags: dict[tuple[int, ...], int] = {}

    def build(self, phase: int, rows_of: Mapping[int, tuple[int, int]],
              noise: Sequence[int] = (), noise_bytes: int = 0) -> Program:
        """Return the program; ``rows_of`` gives (begin, end) of each loaded rank's rows."""
        for rank, (begin, end) in rows_of.items():
            self._measured(rank, begin, end)
        self._noise(noise, noise_bytes)
        for script in self.scripts:
            script.events.append(Event(Code.END))
        return pack(phase, self.scripts)

    # ---- measured ranks ----------------------------------------------------------------
    def _runs(self, row: int) -> bool:
        return self.matches.reason[row] == Reason.EXECUTED and row not in self.excluded

    def _measured(self, rank: int, begin: int, end: int) -> None:
        """Write the script of one loaded rank and that of its black hole."""
        script = self.scripts[self.measured[self.rank_of[rank]]]
        hole: list[Event] = []
        late: list[Event] = []
        trace = self.trace
        work_ns = 0
        row = begin
        while row < end:
            work_ns += int(trace.work[row])
            op = trace.ops[trace.op[row]]
            code = SEND_CODES.get(op) or RECV_CODES.get(op)
            step = 1
            if code is None:
                events = self._collective(row) or self._completion(row)
                if events and self.matches.taken[self.matches.taken_start[row]] > row:
                    late += events
                    events = []
            elif code in (Code.SENDRECV, Code.SECOND):
                linked = code == Code.SENDRECV and self.matches.half[row] == row + 1
                step = 2 if linked else 1
                events = self._sendrecv(rank, row, script, hole)
            elif not self._runs(row):
                keeps_place = code in (Code.ISEND, Code.ISSEND, Code.IRECV)
                events = [Event(Code.NOTHING)] if keeps_place and trace.repeat[row] > 0 else []
            elif op in SEND_CODES:
                events = [self._send(rank, row, code, script, hole)]
            else:
                events = self._receive(rank, row, code, script, hole)
            if events:
                events[0] = _with_work(events[0], work_ns)
                work_ns = 0
                script.events += events
            row += step
        script.events += late
        if work_ns > 0:
            script.events.append(Event(Code.REST, work_ns=work_ns))
        self._black_hole(rank, hole)

    def _sample(self, row: int) -> int:
        return int(self.classified.of_row[row]) if self.timed[row] else UNTIMED

    def _collective(self, row: int) -> list[Event]:
        """Keep the place of the request of a nonblocking or persistent collective."""
        leaves = leaves_request(self.trace.ops[self.trace.op[row]])
        return [Event(Code.NOTHING)] if leaves and self.trace.repeat[row] > 0 else []

    def _completion(self, row: int) -> list[Event]:
        start = self.matches.taken_start
        number = int(start[row + 1] - start[row])
        if number == 0:
            return []
        sample = self._sample(row) if self._runs(row) else UNTIMED
        return [Event(Code.WAIT, arg=number, sample=sample, row=row)]

    def _tag(self, *key: int) -> int:
        return self.tags.setdefault(key, FIRST_TAG + len(self.tags))

    def _bytes(self, row: int) -> int:
        """Bytes that travel: what the sending row says."""
        is_send = self.trace.ops[self.trace.op[row]] in SEND_CODES
        return int(self.trace.bytes[row if is_send else self.matches.partner[row]])

    def _address(self, rank: int, row: int) -> tuple[int, int, bool]:
        """Return (replay rank, tag, loaded) of the other end of a row."""
        trace = self.trace
        peer, comm, tag = int(trace.peer[row]), int(trace.comm[row]), int(trace.tag[row])
        if peer in self.rank_of:
            return self.measured[self.rank_of[peer]], self._tag(comm, tag), True
        return self.black_holes[self.rank_of[rank]], self._tag(comm, tag, peer), False

    def _send(self, rank: int, row: int, code: Code, script: Script, hole: list[Event]) -> Event:
        peer, tag, loaded = self._address(rank, row)
        nbytes = self._bytes(row)
        script.out_bytes = max(script.out_bytes, nbytes)
        if not loaded:
            me = self.measured[self.rank_of[rank]]
            hole.append(Event(Code.IRECV, me, tag, nbytes, row=row))
        if self.buffered and code == Code.SEND:
            code = Code.BUFFERED
        sample = self._sample(row) if loaded else UNTIMED
        return Event(code, peer, tag, nbytes, sample=sample, row=row)

    def _receive(self, rank: int, row: int, code: Code, script: Script,
                 hole: list[Event]) -> list[Event]:
        """Return the receive, with the control message that makes the black hole answer."""
        peer, tag, loaded = self._address(rank, row)
        nbytes = self._bytes(row)
        sample = self._sample(row) if loaded else UNTIMED
        receive = Event(code, peer, tag, nbytes, script.place(nbytes), sample=sample, row=row)
        if loaded:
            return [receive]
        hole.append(Event(Code.ANSWER, self.measured[self.rank_of[rank]], tag, nbytes, row=row))
        ask = Event(Code.ASK, peer, tag, nbytes, arg=int(self.trace.op[row]), row=row)
        # A blocking receive would never get to the question, a non-blocking one is posted first.
        return [receive, ask] if code == Code.IRECV else [ask, receive]

    def _sendrecv(self, rank: int, row: int, script: Script, hole: list[Event]) -> list[Event]:
        """Return the call of one MPI_Sendrecv, or of the half of it that is left."""
        if self.trace.ops[self.trace.op[row]] not in SEND_CODES:  # the receive half alone
            return self._receive(rank, row, Code.RECV, script, hole) if self._runs(row) else []
        second = row + 1 if self.matches.half[row] == row + 1 and self._runs(row + 1) else -1
        if not self._runs(row):
            return [] if second < 0 else self._receive(rank, second, Code.RECV, script, hole)
        send = self._send(rank, row, Code.SEND if second < 0 else Code.SENDRECV, script, hole)
        sample = self._sample(row)
        if second < 0:
            return [_sampled(send, sample)]
        receive = self._receive(rank, second, Code.SECOND, script, hole)
        return [*receive[:-1], _sampled(send, sample), _sampled(receive[-1], UNTIMED)]

    # ---- black holes and noise ---------------------------------------------------------
    def _black_hole(self, rank: int, hole: Sequence[Event]) -> None:
        if not hole:
            return
        script = self.scripts[self.black_holes[self.rank_of[rank]]]
        receives = [event for event in hole if event.code == Code.IRECV]
        answers = [event for event in hole if event.code == Code.ANSWER]
        for event in receives:
            offset = script.place(event.bytes)
            script.events.append(_moved(event, offset))
        script.events += answers
        script.out_bytes = max([script.out_bytes, *(event.bytes for event in answers)])

    def _noise(self, ticks: Sequence[int], nbytes: int) -> None:
        """Let the noise pair exchange ``ticks[t]`` messages at a time, once somebody starts it.

        The first message that reaches a black hole starts it, as in the thesis (ch. 7).
        """
        pair = self.world.rank_of(NOISE)
        starter = next((r for r in self.black_holes.values() if self.scripts[r].events), None)
        if not pair or starter is None or not any(ticks):
            return
        first, second = pair[(0, 0)], pair[(1, 0)]
        hole = self.scripts[starter].events
        answers = [i for i, event in enumerate(hole) if event.code == Code.ANSWER]
        go = Event(Code.BUFFERED, first, TAG_GO)
        if answers:
            hole.insert(answers[0] + 1, go)
        else:
            hole += [Event(Code.WAIT, arg=1), go]
        self.scripts[first].events += [
            Event(Code.RECV, starter, TAG_GO), Event(Code.BUFFERED, second, TAG_GO)]
        self.scripts[second].events.append(Event(Code.RECV, first, TAG_GO))
        for me, other, rounding in ((first, second, 1), (second, first, 0)):
            script = self.scripts[me]
            script.out_bytes = max(script.out_bytes, nbytes)
            for number in ticks:
                out = (number + rounding) // 2
                offsets = [script.place(nbytes) for _ in range(number - out)]
                script.events += [Event(Code.IRECV, other, TAG_NOISE, nbytes, at) for at in offsets]
                script.events += [Event(Code.ISEND, other, TAG_NOISE, nbytes)] * out
                script.events.append(Event(Code.WAIT, arg=number))


def _with_work(event: Event, work_ns: int) -> Event:
    return event if work_ns == 0 else Event(**{**vars(event), "work_ns": work_ns})


def _sampled(event: Event, sample: int) -> Event:
    return Event(**{**vars(event), "sample": sample})


def _moved(event: Event, offset: int) -> Event:
    return Event(**{**vars(event), "offset": offset})
