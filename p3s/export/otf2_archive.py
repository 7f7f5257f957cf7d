"""A traced run as an OTF2 archive (https://www.vi-hps.org/projects/score-p): what Vampir reads.

Every MPI call is a region of its rank with the records of its messages, requests and collectives.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from p3s.artefacts import write_json
from p3s.errors import P3SError
from p3s.export.place import new_directory
from p3s.export.scaled import Exported
from p3s.text import processes
from p3s.trace import ops
from p3s.trace.ops import blocking_of, kind_of, leaves_request

if TYPE_CHECKING:
    from p3s.study import Study
    from p3s.trace import RankTrace, RunTrace

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
_COLLECTIVE = {"Reduce_scatter_block": "REDUCE_SCATTER_BLOCK"}


def library() -> Any:
    """Return the module otf2; P3SError says how to install it."""
    import importlib

    try:
        return importlib.import_module("otf2")
    except ImportError as err:
        raise P3SError(
            "the Python package otf2 is not installed; run: pip install 'p3s[otf2]'"
        ) from err


def _errors(otf2: Any) -> tuple[type[Exception], ...]:
    """Return what the library raises: its own errors, and those of the C library below it."""
    import importlib

    return otf2.error.Error, importlib.import_module("_otf2").ErrorCodes.Error


def to_otf2(study: Study, n: int, target: Path, say: Callable[[str], None]) -> Exported:
    """Write the first complete run at ``n`` processes as an archive in a new directory."""
    from p3s.trace import read_run

    otf2 = library()
    runs = [run for run in study.runs(n) if run.status == "complete"]
    if not runs:
        counts = ", ".join(map(str, study.counts())) or "none"
        raise P3SError(f"{study.root}: no complete run at {processes(n)}; traced: {counts}")
    done = Exported("otf2", n, target)
    say(f"{processes(n)}: {runs[0].path}")
    run = read_run(runs[0].path)
    with new_directory(target) as directory:
        try:
            write_archive(otf2, run, directory, done)
        except _errors(otf2) as err:
            why = " ".join(str(err).split())[:160]
            raise P3SError(f"{target}: OTF2 cannot write the archive: {why}") from err
        write_json(directory / "export.json", done.to_json())
    return done


def write_archive(otf2: Any, run: RunTrace, directory: Path, done: Exported) -> None:
    """Write traces.otf2 and what belongs to it into a directory; one rank after the other."""
    first = 0
    several = {}
    for rank in run.ranks:
        if len(rank.start_ns):
            first = min(first, int(rank.start_ns.min()))
        several[rank.rank] = int(rank.thread.max()) + 1 if rank.thread is not None else 1
    with otf2.writer.open(
        str(directory), archive_name="traces", timer_resolution=_TICKS, chunk_size_events=_CHUNK
    ) as out:
        out.creator = "P3S"
        made = _Definitions.of(otf2, out, run, several)
        for rank in run.ranks:
            _write_rank(otf2, out, made, run, rank, -first, done)
    if run.unmodelled:
        done.notes.append(
            "one-sided calls, files and neighbourhood collectives are regions without records"
        )
    done.notes += [
        "clocks of ranks begin when MPI_Init returns and are not synchronised: a "
        "message may arrive before it is sent",
        "left out: work and counters between calls, call stacks, bytes that collectives receive",
    ]
    if any(comm.inter for comm in run.comms):
        done.notes.append("intercommunicators have the ranks of both sides, sorted")


@dataclass
class _Definitions:
    """Definitions of an archive: locations by (rank, thread), regions, communicators."""

    location: dict[tuple[int, int], Any]
    region: dict[str, Any]
    comm: list[Any]
    place: list[dict[int, int]]
    operation: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, otf2: Any, out: Any, run: RunTrace, threads: dict[int, int]) -> _Definitions:
        defs, enums = out.definitions, otf2.enums
        node = defs.system_tree_node("machine", parent=None)
        location = {}
        for rank in range(run.np):
            group = defs.location_group(
                f"MPI Rank {rank}",
                location_group_type=enums.LocationGroupType.PROCESS,
                system_tree_parent=node,
            )
            for thread in range(threads.get(rank, 1)):
                name = "Master thread" if not thread else f"Thread {thread}"
                location[rank, thread] = defs.location(
                    name, type=enums.LocationType.CPU_THREAD, group=group
                )
        mpi = enums.Paradigm.MPI
        defs.group(
            "",
            group_type=enums.GroupType.COMM_LOCATIONS,
            paradigm=mpi,
            members=[location[rank, 0] for rank in range(run.np)],
        )
        comms: list[Any] = []
        for k, comm in enumerate(run.comms):
            name = "MPI_COMM_WORLD" if k == 0 else f"{comm.op} {k}"
            group = defs.group(
                f"group of {name}",
                group_type=enums.GroupType.COMM_GROUP,
                paradigm=mpi,
                members=[location[r, 0] for r in comm.members],
            )
            parent = comms[comm.parent] if 0 <= comm.parent < k else None
            comms.append(defs.comm(name, group=group, parent=parent))
        region = {
            name: defs.region(name, paradigm=mpi, region_role=_role(enums, name))
            for name in sorted({_shown(call.op) for call in run.calls})
        }
        place = [{rank: i for i, rank in enumerate(comm.members)} for comm in run.comms]
        return cls(
            location,
            region,
            comms,
            place,
            {
                call.op: _operation(enums, call.op)
                for call in run.calls
                if kind_of(call.op) == ops.COLLECTIVE
            },
        )


def _shown(op: str) -> str:
    """Return the name of the call that an event is part of."""
    return op.removesuffix("_recv") if op in (ops.SENDRECV_RECV, ops.ISENDRECV_RECV) else op


def _role(enums: Any, op: str) -> Any:
    roles = enums.RegionRole
    kind = kind_of(op)
    if kind in (ops.SEND, ops.RECV):
        return roles.POINT2POINT
    if op in ("MPI_Barrier", "MPI_Ibarrier"):
        return roles.BARRIER
    if kind == ops.COLLECTIVE:
        return roles.COLL_OTHER
    return roles.RMA if kind == ops.RMA else roles.FILE_IO if kind == ops.IO else roles.FUNCTION


def _operation(enums: Any, op: str) -> Any:
    name = blocking_of(op).removeprefix("MPI_")
    return getattr(enums.CollectiveOp, _COLLECTIVE.get(name, name.upper()))


def _write_rank(
    otf2: Any,
    out: Any,
    made: _Definitions,
    run: RunTrace,
    rank: RankTrace,
    shift: int,
    done: Exported,
) -> None:
    """Write the events of one rank."""
    writers = {
        thread: out.event_writer_from_location(made.location[rank.rank, thread])
        for thread in ({0} if rank.thread is None else set(rank.thread.tolist()))
    }
    last = dict.fromkeys(writers, 0)
    calls, starts, longs = rank.call.tolist(), rank.start_ns.tolist(), rank.elapsed_ns.tolist()
    threads = rank.thread.tolist() if rank.thread is not None else [0] * len(calls)
    records = _Records(otf2, made, run, rank, calls)
    for i, (call, start, long, thread) in enumerate(
        zip(calls, starts, longs, threads, strict=True)
    ):
        op = run.calls[call].op
        if op == ops.SENDRECV_RECV and i and run.calls[calls[i - 1]].op.startswith("MPI_Sendrecv"):
            continue  # written with its send half
        writer = writers[thread]
        # Times of a location never fall: what a cut-off clock says is moved up.
        begin = max(start + shift, last[thread])
        end = max(start + long + shift, begin)
        last[thread] = end
        region = made.region[_shown(op)]
        writer.enter(begin, region)
        records.write(writer, i, begin, end)
        writer.leave(end, region)
    done.events += len(calls)
    done.records += len(calls)
    for (call, why), number in records.left_out.items():
        done.lacks(call, why, number)
    if rank.counted_events:
        done.lacks("MPI calls", "the capture only counted them", float(rank.counted_events))
    if rank.failed_polls:
        done.lacks(
            "MPI_Test", "polls that found nothing are only counted", float(rank.failed_polls)
        )
    if rank.problem:
        done.notes.append(f"rank {rank.rank}: {rank.problem}")


class _Records:
    """Writes the records inside of the regions of one rank."""

    def __init__(
        self, otf2: Any, made: _Definitions, run: RunTrace, rank: RankTrace, calls: list[int]
    ) -> None:
        self.made, self.run, self.calls = made, run, calls
        self.no_root = otf2.enums.CollectiveRoot.NONE
        self.completes: dict[int, list[tuple[int, bool]]] = {}
        for (completing, posting), cancelled in zip(
            rank.done.tolist(), rank.cancelled.tolist(), strict=True
        ):
            self.completes.setdefault(completing, []).append((posting, cancelled))
        self.left_out: dict[tuple[str, str], float] = {}
        self.open: set[int] = set()

    def write(self, writer: Any, i: int, begin: int, end: int) -> None:
        """Write what event ``i`` does: its start at ``begin``, what it completes at ``end``."""
        call = self.run.calls[self.calls[i]]
        kind = kind_of(call.op)
        if kind in (ops.SEND, ops.RECV):
            self._message(writer, i, begin, end)
            following = self.run.calls[self.calls[i + 1]] if i + 1 < len(self.calls) else None
            if following is not None and following.op == ops.SENDRECV_RECV:
                self._message(writer, i + 1, begin, end)
        elif kind == ops.COLLECTIVE and call.comm >= 0:
            self._collective(writer, i, begin, end)
        for posting, cancelled in self.completes.get(i, ()):
            self._complete(writer, posting, cancelled, end)

    def _partner(self, i: int) -> tuple[Any, int] | None:
        """Return communicator and rank in it, None where there is no message."""
        call = self.run.calls[self.calls[i]]
        place = self.made.place[call.comm].get(call.peer) if call.comm >= 0 else None
        if place is None:
            if call.peer == -2:
                key = (call.op, "whom it received from is not known")
                self.left_out[key] = self.left_out.get(key, 0.0) + 1
            return None
        return self.made.comm[call.comm], place

    def _message(self, writer: Any, i: int, begin: int, end: int) -> None:
        call = self.run.calls[self.calls[i]]
        found = self._partner(i)
        if found is None:
            return
        comm, place = found
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

    def _collective(self, writer: Any, i: int, begin: int, end: int) -> None:
        call = self.run.calls[self.calls[i]]
        if leaves_request(call.op):
            writer.non_blocking_collective_request(begin, i)
            self.open.add(i)
            return
        writer.mpi_collective_begin(begin)
        writer.mpi_collective_end(
            end,
            self.made.operation[call.op],
            self.made.comm[call.comm],
            self._root(i),
            call.bytes,
            0,
        )

    def _root(self, i: int) -> Any:
        call = self.run.calls[self.calls[i]]
        return (
            self.made.place[call.comm].get(call.root, self.no_root)
            if call.root >= 0
            else self.no_root
        )

    def _complete(self, writer: Any, posting: int, cancelled: bool, end: int) -> None:
        if posting not in self.open:
            return
        self.open.discard(posting)
        call = self.run.calls[self.calls[posting]]
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
                call.bytes,
                0,
                posting,
            )
        else:
            found = self._partner(posting)
            if found is not None:
                writer.mpi_irecv(end, found[1], found[0], max(call.tag, 0), call.bytes, posting)
