"""A traced or simulated run as an OTF2 archive: what Vampir and Score-P's tools read.

Every MPI call is a region of its rank, inside of the functions that call it, with the records of
its messages, requests and collectives, as Score-P writes them.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from p3s.base import ops
from p3s.base.errors import P3SError
from p3s.base.ops import kind_of, leaves_request
from p3s.base.text import quote_word
from p3s.formats.exported import ExportResult, new_export
from p3s.formats.otf2.library import errors, library
from p3s.formats.otf2.sizes import to_sizes
from p3s.formats.otf2.written import Definitions
from p3s.formats.run import Run, Visit, threads_of, visits

if TYPE_CHECKING:
    from p3s.capture import RankTrace

#: Nanoseconds are the clock's ticks.
_TICKS = 10**9
#: Bytes of events that OTF2 keeps of each rank before it writes them: the least it allows.
_CHUNK = 256 * 1024
_NO_REQUEST = frozenset(
    {
        "MPI_Send",
        "MPI_Ssend",
        "MPI_Bsend",
        "MPI_Rsend",
        "MPI_Recv",
        "MPI_Mrecv",
        "MPI_Sendrecv",
        "MPI_Sendrecv_replace",
        ops.SENDRECV_RECV,
    }
)


def to_otf2(run: Run, result: ExportResult) -> None:
    """Write a run as an archive into a new directory."""
    otf2 = library()
    result.notes += run.notes
    with new_export(result) as directory:
        try:
            write_archive(otf2, run, directory, result)
        except errors(otf2) as err:
            why = " ".join(str(err).split())[:160]
            raise P3SError(f"{result.path}: OTF2 cannot write the archive: {why}") from err
    result.command = f"otf2-print {quote_word(result.path / 'traces.otf2')}"


def write_archive(otf2: Any, run: Run, directory: Path, result: ExportResult) -> None:
    """Write traces.otf2 and what belongs to it into a directory; one rank after the other."""
    with otf2.writer.open(
        str(directory), archive_name="traces", timer_resolution=_TICKS, chunk_size_events=_CHUNK
    ) as out:
        out.creator = "P3S"
        definitions = Definitions.of(otf2, out, run)
        for rank in run.trace.ranks:
            _Rank(otf2, out, definitions, run, rank).write(result)
    if run.trace.unmodelled:
        result.notes.append(
            "one-sided calls, files and neighbourhood collectives are regions without records"
        )
    result.notes += [
        "functions are entered at the end of the call before their first one: what they compute "
        "without a call is told of the function that calls next",
        "left out: counters between calls",
    ]
    if any(comm.inter for comm in run.trace.comms):
        result.notes.append("intercommunicators have the ranks of both sides, sorted")


class _Rank:
    """Writes the events of one rank."""

    def __init__(
        self, otf2: Any, out: Any, definitions: Definitions, run: Run, rank: RankTrace
    ) -> None:
        self.made, self.run, self.rank = definitions, run, rank
        self.writers = {
            thread: out.event_writer_from_location(definitions.location[rank.rank, thread])
            for thread in {0, *threads_of(rank)}
        }
        self.last = dict.fromkeys(self.writers, 0)
        self.stacks: dict[int, list[Any]] = {thread: [] for thread in self.writers}
        self.begun: set[int] = set()
        self.records = _Records(otf2, definitions, run, rank)

    def write(self, result: ExportResult) -> None:
        """Write all of them, and take down what is not in the archive."""
        rank = self.rank
        for visit in visits(self.run, rank):
            if visit.call.op not in ops.HALVES:  # written with the call before
                self._call(visit)
        for thread, writer in self.writers.items():
            self._go(writer, thread, [])
            if thread == 0 and 0 in self.begun and self.run.program:
                writer.program_end(self.last[thread], 0)
        result.events += len(rank.call)
        result.records += len(rank.call)
        for (missing, why), number in self.records.left_out.items():
            result.lacks(missing, why, number)
        if rank.counted_events:
            result.lacks("MPI calls", "the capture only counted them", float(rank.counted_events))
        if rank.failed_polls:
            why = "polls that found nothing are only counted"
            result.lacks("MPI_Test", why, float(rank.failed_polls))
        if rank.problem:
            result.notes.append(f"rank {rank.rank}: {rank.problem}")

    def _call(self, visit: Visit) -> None:
        i, call, thread, begin, end = visit
        writer = self.writers[thread]
        if thread not in self.begun:
            self.begun.add(thread)
            self.last[thread] = begin
            if thread == 0 and self.run.program:
                name, *words = self.run.program
                writer.program_begin(begin, name, words)
        self._go(writer, thread, self.made.stacks[call.site])
        self.last[thread] = end
        region = self.made.regions[call]
        writer.enter(begin, region)
        self.records.write(writer, i, begin, end)
        writer.leave(end, region)

    def _go(self, writer: Any, thread: int, regions: list[Any]) -> None:
        """Leave functions and enter others until the stack is that of the call."""
        entered, when = self.stacks[thread], self.last[thread]
        same = 0
        while same < min(len(entered), len(regions)) and entered[same] is regions[same]:
            same += 1
        for region in reversed(entered[same:]):
            writer.leave(when, region)
        for region in regions[same:]:
            writer.enter(when, region)
        self.stacks[thread] = regions


class _Records:
    """Writes the records inside of the regions of one rank."""

    def __init__(self, otf2: Any, definitions: Definitions, run: Run, rank: RankTrace) -> None:
        self.made, self.run, self.me = definitions, run.trace, rank.rank
        self.calls = [run.trace.calls[number] for number in rank.call.tolist()]
        self.enums = otf2.enums
        self.no_root = otf2.enums.CollectiveRoot.NONE
        self.completes: dict[int, list[tuple[int, bool]]] = {}
        for (completing, posting), cancelled in zip(
            rank.done.tolist(), rank.cancelled.tolist(), strict=True
        ):
            self.completes.setdefault(completing, []).append((posting, cancelled))
        self.left_out: dict[tuple[str, str], float] = {}
        self.open: set[int] = set()
        self.to_make: dict[tuple[int, str], list[int]] = {}
        for number in range(len(self.run.comms) - 1, 0, -1):
            comm = self.run.comms[number]
            if self.me in comm.members:
                self.to_make.setdefault((comm.parent, comm.op), []).append(number)

    def write(self, writer: Any, i: int, begin: int, end: int) -> None:
        """Write what event ``i`` does: its start at ``begin``, what it completes at ``end``."""
        call = self.calls[i]
        kind = kind_of(call.op)
        if kind in (ops.SEND, ops.RECV):
            self._message(writer, i, begin, end)
            following = self.calls[i + 1] if i + 1 < len(self.calls) else None
            if following is not None and following.op in ops.HALVES:
                self._message(writer, i + 1, begin, end)
        elif kind == ops.COLLECTIVE and call.comm >= 0:
            self._collective(writer, i, begin, end)
        elif kind == ops.COMM and call.comm >= 0:
            self._communicator(writer, i, begin, end)
        elif "probe" in call.op and hasattr(writer, "mpi_probe"):  # since 3.1
            self._probe(writer, i, end)
        for posting, cancelled in self.completes.get(i, ()):
            self._complete(writer, posting, cancelled, end)

    def _partner(self, i: int) -> tuple[Any, int] | None:
        """Return communicator and rank in it, None where there is no message."""
        call = self.calls[i]
        place = self.made.place[call.comm].get(call.peer) if call.comm >= 0 else None
        if place is None:
            if call.peer == -2:
                key = (call.op, "whom it received from is not known")
                self.left_out[key] = self.left_out.get(key, 0.0) + 1
            return None
        return self.made.comm[call.comm], place

    def _message(self, writer: Any, i: int, begin: int, end: int) -> None:
        call = self.calls[i]
        partner = self._partner(i)
        if partner is None:
            return
        comm, place = partner
        tag = max(call.tag, 0)
        if kind_of(call.op) == ops.SEND:
            if call.op in _NO_REQUEST or call.op in ops.HALF_OF_ONE:
                writer.mpi_send(begin, place, comm, tag, call.bytes)
            else:
                writer.mpi_isend(begin, place, comm, tag, call.bytes, i)
                self.open.add(i)
        elif call.op in _NO_REQUEST:
            writer.mpi_recv(end, place, comm, tag, call.bytes)
        else:
            writer.mpi_irecv_request(begin, i)
            self.open.add(i)

    def _probe(self, writer: Any, i: int, end: int) -> None:
        partner = self._partner(i)
        if partner is not None:
            tag = max(self.calls[i].tag, 0)
            writer.mpi_probe(end, partner[1], partner[0], tag, i)

    def _collective(self, writer: Any, i: int, begin: int, end: int) -> None:
        call = self.calls[i]
        if leaves_request(call.op):
            writer.non_blocking_collective_request(begin, i)
            self.open.add(i)
            return
        writer.mpi_collective_begin(begin)
        operation, comm = self.made.operation[call.op], self.made.comm[call.comm]
        writer.mpi_collective_end(end, operation, comm, self._root(i), *self._sizes(i))

    def _communicator(self, writer: Any, i: int, begin: int, end: int) -> None:
        """Write that a communicator is made or ends, by its members together."""
        call = self.calls[i]
        comm, operation = self.made.comm[call.comm], self.enums.CollectiveOp
        writer.mpi_collective_begin(begin)
        if call.op in ops.MAKES_COMM:
            operation_kind = operation.CREATE_HANDLE
            if comms := self.to_make.get((call.comm, call.op)):
                writer.comm_create(end, self.made.comm[comms.pop()])
        else:
            operation_kind = operation.DESTROY_HANDLE
            writer.comm_destroy(begin, comm)
        writer.mpi_collective_end(end, operation_kind, comm, self.no_root, 0, 0)

    def _root(self, i: int) -> Any:
        call = self.calls[i]
        return (
            self.made.place[call.comm].get(call.root, self.no_root)
            if call.root >= 0
            else self.no_root
        )

    def _sizes(self, i: int) -> tuple[int, int]:
        call = self.calls[i]
        members = self.made.place[call.comm]
        my_place = members.get(self.me, 0)
        return to_sizes(call.op, call.bytes, len(members), my_place, call.root == self.me)

    def _complete(self, writer: Any, posting: int, cancelled: bool, end: int) -> None:
        if posting not in self.open:
            return
        self.open.discard(posting)
        call = self.calls[posting]
        if cancelled:
            writer.mpi_request_cancelled(end, posting)
        elif kind_of(call.op) == ops.SEND:
            writer.mpi_isend_complete(end, posting)
        elif kind_of(call.op) == ops.COLLECTIVE:
            writer.non_blocking_collective_complete(
                end,
                self.made.operation[call.op],
                self.made.comm[call.comm],
                self._root(posting),
                *self._sizes(posting),
                posting,
            )
        else:
            place = self._partner(posting)
            if place is not None:
                writer.mpi_irecv(end, place[1], place[0], max(call.tag, 0), call.bytes, posting)
