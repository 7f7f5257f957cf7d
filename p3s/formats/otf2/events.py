"""The events of an archive as the calls of its ranks."""

from __future__ import annotations

import hashlib
from array import array
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from p3s.base import ops
from p3s.base.ops import kind_of
from p3s.capture.records import RawComm, RawSite
from p3s.capture.types import ANY_SOURCE, NO_RANK, PROC_NULL, Call
from p3s.formats.otf2.definitions import SELF, Archive, Communicator, Region, frame
from p3s.formats.otf2.sizes import from_sizes

#: Kinds of calls of which an archive does not tell what P3S must know.
NOT_READ = (ops.RMA, ops.NEIGHBOR, ops.PARTITIONED, ops.PROCESS)
_COMPLETIONS = ("MpiIsendComplete", "MpiIrecv", "MpiRequestCancelled", "MpiImrecv")
_PERSISTENT = {ops.SEND: "MPI_Send_init", ops.RECV: "MPI_Recv_init"}
_STARTS = ("MPI_Start", "MPI_Startall")
#: Roots that are no ranks, on intercommunicators: MPI_ROOT, MPI_PROC_NULL.
_ROOT_SELF, _ROOT_THIS_GROUP = 0xFFFFFFFE, 0xFFFFFFFD
#: Frames that a cycle of recursion has at most.
_LONGEST_CYCLE = 8


@dataclass(frozen=True)
class CallArguments:
    """What a call does, as in p3s.capture.types.Call."""

    comm: int = NO_RANK
    peer: int = NO_RANK
    nbytes: int = 0
    tag: int = -1
    root: int = NO_RANK

    def call(self, op: str, site: int, depth: int = 0) -> Call:
        """Return the call of this kind at a place of the program."""
        fields = (self.comm, self.peer, self.nbytes, 1, self.tag, self.root)
        return Call(op, site, *fields, 0, depth)


@dataclass
class Rank:
    """What one rank did: a row per event, in the order of their return.

    ``call`` numbers ``table``, distinct calls with their threads; ``comms``: by number, but for the
    world; ``done``: (completing row, posting row, cancelled); ``posted``: request -> row;
    ``probed``: by the number of a message. Times are ticks of the archive's clock.
    """

    number: int
    calls: dict[tuple[Call, int], int] = field(default_factory=dict)
    table: list[tuple[Call, int]] = field(default_factory=list)
    sites: dict[RawSite, int] = field(default_factory=dict)
    comms: dict[int, RawComm] = field(default_factory=dict)
    call: array[int] = field(default_factory=lambda: array("q"))
    start: array[int] = field(default_factory=lambda: array("q"))
    end: array[int] = field(default_factory=lambda: array("q"))
    work: array[int] = field(default_factory=lambda: array("q"))
    done: list[tuple[int, int, bool]] = field(default_factory=list)
    posted: dict[int, int] = field(default_factory=dict)
    probed: dict[int, Any] = field(default_factory=dict)
    failed_polls: int = 0
    failed_poll_ticks: int = 0
    finalized: bool = False

    def add(self, call: Call, thread: int, start: int, end: int, work: int) -> int:
        """Add an event; return its row."""
        self.call.append(self._number(call, thread))
        self.start.append(start)
        self.end.append(end)
        self.work.append(work)
        return len(self.call) - 1

    def change(self, row: int, call: Call) -> None:
        """Say what the event of a row was, when it turns out."""
        self.call[row] = self._number(call, self.table[self.call[row]][1])

    def _number(self, call: Call, thread: int) -> int:
        number = self.calls.setdefault((call, thread), len(self.calls))
        if number == len(self.table):
            self.table.append((call, thread))
        return number


@dataclass
class _Thread:
    """One location while its events are read."""

    rank: Rank
    number: int
    stack: list[tuple[Region, str]] = field(default_factory=list)
    inside: int = 0
    began: int = 0
    clock: int = 0
    last: int | None = None
    flushed: int = 0
    records: list[Any] = field(default_factory=list)


class Reading:
    """Reads the events of an archive, in the order of their times.

    ``left_out``: MPI call -> how many are not in the capture; ``notes``: what else to say.
    """

    def __init__(self, archive: Archive) -> None:
        self.of = archive
        self.ranks = [Rank(number) for number in range(archive.size)]
        self.left_out: Counter[str] = Counter()
        self.notes: Counter[str] = Counter()
        self.program: list[str] = []
        self._by_number = {comm.number: comm for comm in archive.comms.values()}
        self._threads = {
            ref: _Thread(self.ranks[rank], thread)
            for ref, (rank, thread) in archive.rank_of.items()
        }
        self._frames: dict[Any, str] = {}

    def take(self, events: Iterable[tuple[Any, Any]]) -> None:
        """Take all (location, event)."""
        do = {
            "Enter": lambda thread, event: self._enter(thread, event, event.region, None),
            "Leave": self._leave,
            "CallingContextEnter": lambda thread, event: self._enter(
                thread, event, event.calling_context.region, event.calling_context
            ),
            "CallingContextLeave": self._leave,
            "BufferFlush": self._flush,
            "MeasurementOnOff": self._note_switch,
            "ProgramBegin": self._program,
        }
        for location, event in events:
            thread = self._threads.get(location._ref)
            if thread is None:
                continue
            handle = do.get(type(event).__name__)
            if handle is not None:
                handle(thread, event)
            elif thread.inside:
                thread.records.append(event)

    # ---- regions
    def _enter(self, thread: _Thread, event: Any, region: Any, context: Any) -> None:
        self._check(thread, event)
        if thread.last is None:
            thread.last = event.time
        known_region = self.of.regions[region._ref]
        text = "" if known_region.op else self._frame(known_region, context)
        if known_region.op and not thread.inside:
            thread.inside, thread.began, thread.records = len(thread.stack) + 1, event.time, []
            if context is not None and (at := context.source_code_location) is not None:
                known_region = Region(known_region.op, "", at.file, at.line_number)
        thread.stack.append((known_region, text))
        if known_region.op in ("MPI_Finalize", "MPI_Session_finalize"):
            thread.rank.finalized = True

    def _check(self, thread: _Thread, event: Any) -> None:
        """Raise ValueError for a time that is outside of the run, or before the last one."""
        if not max(self.of.offset, thread.clock) <= event.time <= self.of.end:
            raise ValueError(f"a time of {event.time}")
        thread.clock = event.time

    def _frame(self, region: Region, context: Any) -> str:
        at = context.source_code_location if context is not None else None
        if at is not None:
            return frame(region.name, at.file, at.line_number)
        return frame(region.name, region.file, region.line)

    def _leave(self, thread: _Thread, event: Any) -> None:
        self._check(thread, event)
        if not thread.stack:
            self.notes["regions are left that were not entered"] += 1
            return
        region, _ = thread.stack.pop()
        if thread.inside == len(thread.stack) + 1:
            thread.inside = 0
            self._call(thread, region, event.time)

    def _flush(self, thread: _Thread, event: Any) -> None:
        if not thread.inside:
            thread.flushed += max(event.stop_time - event.time, 0)
        self.notes["the tracer wrote its buffers during the run; that time is in no work"] += 1

    def _note_switch(self, thread: _Thread, event: Any) -> None:
        if event.measurement_mode.name == "OFF":
            self.left_out["calls while recording was switched off"] += 1

    def _program(self, thread: _Thread, event: Any) -> None:
        if not self.program:
            name = event.program_name
            words = [name, *event.program_arguments]
            self.program = [str(getattr(word, "string", word)) for word in words]

    # ---- calls
    def _call(self, thread: _Thread, region: Region, end: int) -> None:
        """Take an MPI call that has returned."""
        op, kind, rank = region.op, kind_of(region.op), thread.rank
        new = _Event(self, thread, region, end)
        if op in _STARTS:
            new.started()
        elif op.endswith("_init") and kind in (ops.SEND, ops.RECV, ops.COLLECTIVE):
            return  # makes a persistent request, which is no event
        elif kind in (ops.SEND, ops.RECV):
            new.message(kind)
        elif kind == ops.COLLECTIVE:
            new.collective()
        elif kind == ops.COMPLETION:
            new.completion()
        elif kind == ops.COMM:
            new.communicator()
        elif op in (*ops.INIT_OPS, "MPI_Finalize"):
            new.row("MPI_Init" if op in ops.INIT_OPS else op, CallArguments(0))
        elif kind in NOT_READ or kind == ops.IO:
            self.left_out[op] += 1
            thread.last = end
        else:
            return  # as MPI_Comm_rank: no event, its time is that of the program
        if op == "MPI_Finalize":
            rank.end[-1] = rank.start[-1]

    def comm(self, record: Any) -> Communicator:
        """Return the communicator of a record."""
        return self.of.comms[record.communicator._ref]

    def known(self, rank: Rank, comm: Communicator) -> int:
        """Return the number of a communicator; the rank's capture defines it from now on."""
        if comm.number and comm.number not in rank.comms:
            if comm.parent >= 0 and comm.parent in self._by_number:
                self.known(rank, self._by_number[comm.parent])
            usual = SELF if comm.own else "MPI_Cart_create" if comm.dims else "MPI_Comm_create"
            rank.comms[comm.number] = comm.raw(rank.number, usual)
        return comm.number


@dataclass
class _Event:
    """One call, with the records that were made inside of it."""

    reading: Reading
    thread: _Thread
    region: Region
    end: int

    @property
    def records(self) -> list[Any]:
        return self.thread.records

    def row(self, op: str, arguments: CallArguments, again: bool = False) -> int:
        """Add an event; ``again``: a further one of this call, which takes no time."""
        thread = self.thread
        began = self.end if again else thread.began
        last = thread.last if thread.last is not None else began
        if not thread.rank.call and op != "MPI_Init":  # a capture begins with it
            thread.rank.add(self.call("MPI_Init", CallArguments(0)), thread.number, last, last, 0)
            self.reading.notes["ranks begin without MPI_Init, where their first region is"] += 1
        work = max(began - last - thread.flushed, 0)
        call = self.call(op, arguments)
        thread.last, thread.flushed = self.end, 0
        return thread.rank.add(call, thread.number, began, self.end, work)

    def call(self, op: str, arguments: CallArguments) -> Call:
        """Return the call from this place of the program."""
        site, depth = self._site(op)
        return arguments.call(op, site, depth)

    def _site(self, op: str) -> tuple[int, int]:
        stack = [text for region, text in self.thread.stack if not region.op]
        frames: list[str] = []
        depth = 0
        for text in stack:
            frames.append(text)
            for cycle in range(1, _LONGEST_CYCLE + 1):
                if len(frames) >= 2 * cycle and frames[-cycle:] == frames[-2 * cycle : -cycle]:
                    del frames[-cycle:]
                    depth += 1
                    break
        frames.reverse()
        if self.region.line:  # the archive says where the call is
            inner = self.thread.stack[-1][0].name if self.thread.stack else "?"
            frames[:1] = [frame(inner, self.region.file, self.region.line)]
        key_text = "\0".join([ops.place_of(op), *frames]).encode()
        key = int.from_bytes(hashlib.blake2b(key_text, digest_size=8).digest(), "little")
        sites = self.thread.rank.sites
        return sites.setdefault(RawSite(key, tuple(frames)), len(sites)), depth

    # ---- kinds of calls
    def message(self, kind: str) -> None:
        """Add a message; of MPI_Sendrecv both."""
        op, halves = self.region.op, self.region.op in ("MPI_Sendrecv", "MPI_Sendrecv_replace")
        records_of = {ops.SEND: None, ops.RECV: None}
        for record in self.records:
            name = type(record).__name__
            if name in ("MpiSend", "MpiIsend"):
                records_of[ops.SEND] = record
            elif name in ("MpiRecv", "MpiIrecvRequest", "MpiImrecvRequest", "MpiMrecv"):
                records_of[ops.RECV] = record
        self._message(op, records_of[kind], again=False)
        if halves:
            self._message(ops.SENDRECV_RECV, records_of[ops.RECV], again=True)

    def _message(self, op: str, record: Any, again: bool) -> None:
        name = type(record).__name__
        rank = self.thread.rank
        if record is None:  # a message to or from MPI_PROC_NULL leaves no record
            self.row(op, CallArguments(0, PROC_NULL), again)
            return
        if name in ("MpiIrecvRequest", "MpiImrecvRequest"):
            row = self.row(op, CallArguments(0, ANY_SOURCE), again)
        elif name == "MpiMrecv":
            probe = rank.probed.get(record.message_id)
            row = self.row(op, self._receive_arguments(probe, record.msg_length), again)
        elif name in ("MpiSend", "MpiIsend"):
            row = self.row(op, self._send_arguments(record), again)
        else:
            row = self.row(op, self._receive_arguments(record, record.msg_length), again)
        request = getattr(record, "request_id", None)
        if request is not None:
            rank.posted[request] = row

    def _send_arguments(self, record: Any) -> CallArguments:
        comm = self.reading.comm(record)
        rank = self.thread.rank
        members = comm.group(rank.number, other=True)
        comm_number = self.reading.known(rank, comm)
        return CallArguments(
            comm_number, members[record.receiver], record.msg_length, _tag(record.msg_tag)
        )

    def _receive_arguments(self, record: Any, nbytes: int) -> CallArguments:
        if record is None:
            return CallArguments(0, ANY_SOURCE, nbytes)
        comm = self.reading.comm(record)
        rank = self.thread.rank
        members = comm.group(rank.number, other=True)
        tag = record.tag if hasattr(record, "tag") else record.msg_tag
        return CallArguments(
            self.reading.known(rank, comm), members[record.sender], nbytes, _tag(tag)
        )

    def started(self) -> None:
        """Add an event for each persistent request that is started."""
        rank, again = self.thread.rank, False
        for record in self.records:
            name = type(record).__name__
            if name == "MpiIsend":
                row = self.row(_PERSISTENT[ops.SEND], self._send_arguments(record), again)
            elif name == "MpiIrecvRequest":
                row = self.row(_PERSISTENT[ops.RECV], CallArguments(0, ANY_SOURCE), again)
            elif name == "NonBlockingCollectiveRequest":
                row = self.row("MPI_Barrier_init", CallArguments(0), again)
            else:
                continue
            rank.posted[record.request_id] = row
            again = True

    def collective(self) -> None:
        """Add a collective; of a nonblocking one, what it is turns out at its completion."""
        op, rank = self.region.op, self.thread.rank
        for record in self.records:
            name = type(record).__name__
            if name == "NonBlockingCollectiveRequest":
                rank.posted[record.request_id] = self.row(op, CallArguments(0))
                return
            if name == "MpiCollectiveEnd":
                self.row(op, self._together(op, record))
                return
        self.reading.left_out[op] += 1
        self.thread.last = self.end

    def _together(self, op: str, record: Any) -> CallArguments:
        reading, rank = self.reading, self.thread.rank
        comm = reading.comm(record)
        mine = comm.group(rank.number, other=False)
        other = comm.group(rank.number, other=True)
        root = _root(record.root, mine, other, rank.number, bool(comm.sides))
        place = mine.index(rank.number)
        size = len(other)
        sizes = (record.size_sent, record.size_received)
        return CallArguments(
            reading.known(rank, comm),
            nbytes=from_sizes(op, *sizes, size, place),
            root=root if op in ops.ROOTED else NO_RANK,
        )

    def completion(self) -> None:
        """Add a completion, unless it is a poll that found nothing."""
        op, rank = self.region.op, self.thread.rank
        if "probe" in op.lower():
            self._probe()
            return
        ended = [
            record
            for record in self.records
            if type(record).__name__ in (*_COMPLETIONS, "NonBlockingCollectiveComplete")
        ]
        if op.startswith("MPI_Test") and not ended:
            self._count_failed_poll()
            return
        row = self.row(op, CallArguments(nbytes=len(ended)))
        for record in ended:
            name = type(record).__name__
            posted = rank.posted.pop(record.request_id, None)
            if posted is None:
                self.reading.notes["requests end that were not posted"] += 1
                continue
            rank.done.append((row, posted, name == "MpiRequestCancelled"))
            self._resolve(posted, record, name)

    def _resolve(self, row: int, record: Any, name: str) -> None:
        """Say what a request was, now that it has ended."""
        if name not in ("MpiIrecv", "NonBlockingCollectiveComplete"):
            return
        rank = self.thread.rank
        call, _ = rank.table[rank.call[row]]
        op = call.op
        if name == "MpiIrecv":
            arguments = self._receive_arguments(record, record.msg_length)
        else:
            if op == "MPI_Barrier_init":
                title = record.collective_op.name
                op = f"MPI_{title[0]}{title[1:].lower()}_init"
            arguments = self._together(op, record)
        rank.change(row, arguments.call(op, call.site, call.depth))

    def _count_failed_poll(self) -> None:
        """Count a poll that found nothing; its time is in no work."""
        rank, took = self.thread.rank, self.end - self.thread.began
        rank.failed_polls += 1
        rank.failed_poll_ticks += took
        self.thread.flushed += took

    def _probe(self) -> None:
        op, rank = self.region.op, self.thread.rank
        record = next((r for r in self.records if type(r).__name__ == "MpiProbe"), None)
        if record is not None:
            rank.probed[record.message_id] = record
            self.row(op, self._receive_arguments(record, 1))
        elif op.startswith(("MPI_I",)):
            self._count_failed_poll()
        else:
            self.row(op, CallArguments(0, ANY_SOURCE, 1))

    def communicator(self) -> None:
        """Add a call that makes or frees a communicator, if the archive says on which one."""
        op, rank, reading = self.region.op, self.thread.rank, self.reading
        created = parent = None
        for record in self.records:
            name = type(record).__name__
            if name == "CommCreate":
                created = reading.comm(record)
                comm_number = reading.known(rank, created)
                rank.comms[comm_number] = created.raw(rank.number, op)
            elif name in ("MpiCollectiveEnd", "CommDestroy"):
                parent = reading.comm(record)
        if parent is None or (created is not None and parent.number == created.number):
            number = created.parent if created is not None else -1
            parent = reading._by_number.get(number)
        if parent is None:
            reading.notes[f"{op} is left out: the archive does not say of which communicator"] += 1
            self.thread.last = self.end
            return
        self.row(op, CallArguments(reading.known(rank, parent)))


def _tag(tag: int) -> int:
    return tag if 0 <= tag < 1 << 31 else -1


def _root(root: Any, mine: tuple[int, ...], other: tuple[int, ...], rank: int, inter: bool) -> int:
    """Return the root as a world rank; of the group that has it, itself or MPI_PROC_NULL."""
    number = int(getattr(root, "value", root))
    if number in (_ROOT_SELF, _ROOT_THIS_GROUP):
        return rank if number == _ROOT_SELF else PROC_NULL
    group = other if inter else mine
    return group[number] if 0 <= number < len(group) else NO_RANK
