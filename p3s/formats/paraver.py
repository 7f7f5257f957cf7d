"""A traced or simulated run for Paraver (https://tools.bsc.es/paraver): .prv, .pcf and .row.

States, events of MPI calls and of the lines that call them, and messages. Types and values of
events are those of Extrae, so that Paraver's own configurations work.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from p3s.base import ops
from p3s.base.artefacts import write_bytes
from p3s.base.ops import kind_of, leaves_request
from p3s.base.text import quote_word
from p3s.capture.callpath import stack
from p3s.formats.exported import ExportResult, new_export, new_file
from p3s.formats.run import Run, messages, name_call, plain, visits

if TYPE_CHECKING:
    from p3s.capture import Call, RankTrace

#: No run knows its date; the format wants one.
_DATE = "01/01/2000 at 00:00"
STATES = (
    (0, "Idle", (117, 195, 255)),
    (1, "Running", (0, 0, 255)),
    (2, "Not created", (255, 255, 255)),
    (3, "Waiting a message", (255, 0, 0)),
    (4, "Blocking Send", (255, 0, 174)),
    (5, "Synchronization", (179, 0, 0)),
    (6, "Test/Probe", (0, 255, 0)),
    (7, "Scheduling and Fork/Join", (255, 255, 0)),
    (8, "Wait/WaitAll", (235, 0, 0)),
    (9, "Blocked", (0, 162, 0)),
    (10, "Immediate Send", (255, 0, 255)),
    (11, "Immediate Receive", (100, 100, 177)),
    (12, "I/O", (172, 174, 41)),
    (13, "Group Communication", (255, 144, 26)),
    (14, "Tracing Disabled", (2, 255, 177)),
    (15, "Others", (192, 224, 0)),
    (16, "Send Receive", (66, 66, 66)),
)
_RUNNING, _OTHERS = 1, 15
_POINT, _COLLECTIVE, _OTHER, _ONE_SIDED, _FILES = range(50000001, 50000006)
_TYPES = {
    _POINT: "MPI Point-to-point",
    _COLLECTIVE: "MPI Collective Comm",
    _OTHER: "MPI Other",
    _ONE_SIDED: "MPI One-sided",
    _FILES: "MPI I/O",
}
_SENT, _ROOT, _COMM = 50100001, 50100003, 50100004
_CALLER, _LINE = 70000001, 80000001
#: Values of MPI calls, as Extrae has them; others are numbered from _FREE.
_VALUES = {
    "MPI_" + name: value
    for value, name in enumerate(
        "Send Recv Isend Irecv Wait Waitall Bcast Barrier Reduce Allreduce Alltoall Alltoallv"
        " Gather Gatherv Scatter Scatterv Allgather Allgatherv Comm_rank Comm_size Comm_create"
        " Comm_dup Comm_split Comm_group Comm_free Comm_remote_group Comm_remote_size"
        " Comm_test_inter Comm_compare Scan Init Finalize Bsend Ssend Rsend Ibsend Issend Irsend"
        " Test Cancel Sendrecv Sendrecv_replace Cart_create Cart_shift Cart_coords Cart_get"
        " Cart_map Cart_rank Cart_sub Cartdim_get Dims_create".split(),
        1,
    )
} | {
    "MPI_Waitany": 59,
    "MPI_Waitsome": 60,
    "MPI_Probe": 61,
    "MPI_Iprobe": 62,
    "MPI_Reduce_scatter": 80,
    "MPI_Start": 123,
    "MPI_Testall": 125,
    "MPI_Testany": 126,
    "MPI_Testsome": 128,
    "MPI_Ireduce": 154,
    "MPI_Iallreduce": 155,
    "MPI_Ibarrier": 156,
    "MPI_Ibcast": 157,
    "MPI_Ialltoall": 158,
    "MPI_Ialltoallv": 159,
    "MPI_Iallgather": 160,
    "MPI_Iallgatherv": 161,
    "MPI_Igather": 162,
    "MPI_Igatherv": 163,
    "MPI_Iscatter": 164,
    "MPI_Iscatterv": 165,
    "MPI_Ireduce_scatter": 166,
    "MPI_Iscan": 167,
}
_FREE = 1000


def to_paraver(run: Run, result: ExportResult) -> None:
    """Write a run for Paraver into a new directory."""
    result.notes += run.notes
    with new_export(result) as directory:
        write_trace(run, directory, result)
    result.command = f"wxparaver {quote_word(result.path / 'run.prv')}"


def write_trace(run: Run, directory: Path, result: ExportResult) -> None:
    """Write run.prv, run.pcf and run.row into a directory."""
    writer = _Trace.of(run)
    with new_file(directory / "run.prv") as file:
        file.write(writer.header())
        for _, text in sorted(writer.records(result), key=lambda record: record[0]):
            file.write(text + "\n")
            result.records += 1
    write_bytes(directory / "run.pcf", ("\n".join(writer.names()) + "\n").encode())
    write_bytes(directory / "run.row", ("\n".join(writer.rows()) + "\n").encode())
    if writer.unmatched:
        result.lacks("messages", "send or receive of the partner is not there", writer.unmatched)
    result.notes.append("left out: counters, messages inside of collectives")


@dataclass
class _Trace:
    """A run as Paraver counts it: nodes, processors, tasks and threads from 1 on.

    ``nodes``: their names; ``node_of``: of each rank; ``first_cpu``: the processor of its first
    thread; ``end`` of the run in ns; ``values`` of calls, ``callers``, ``lines``: text -> value;
    ``told``: the events of calls; ``unmatched`` ends of messages.
    """

    run: Run
    nodes: list[str]
    node_of: list[int]
    first_cpu: list[int]
    end: int
    values: dict[str, int] = field(default_factory=dict)
    callers: dict[str, int] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    told: dict[Call, str] = field(default_factory=dict)
    unmatched: int = 0

    @classmethod
    def of(cls, run: Run) -> _Trace:
        """Return it with the names of all calls and places."""
        ends = [
            int((rank.start_ns + rank.elapsed_ns).max()) + run.shift
            for rank in run.trace.ranks
            if len(rank.call)
        ]
        node_of, first_cpu, cpus = [0] * run.trace.np, [0] * run.trace.np, 1
        for node, ranks in enumerate(run.nodes.values()):
            for number in ranks:
                node_of[number], first_cpu[number] = node, cpus
                cpus += run.threads[number]
        trace = cls(run, list(run.nodes), node_of, first_cpu, max(ends, default=0))
        for call in run.trace.calls:
            trace._name(call)
        return trace

    def _name(self, call: Call) -> None:
        """Give a call and its place their values, and take down the events at its begin."""
        op = name_call(call.op)
        usual_value = _VALUES.get(op)
        value = self.values.setdefault(
            op, usual_value if usual_value is not None else _FREE + len(self.values)
        )
        caller, line = self.place(call)
        pairs = [(_type(call.op), value)]
        pairs += [(_CALLER, self.callers.setdefault(caller, len(self.callers) + 1))]
        pairs += [(_LINE, self.lines.setdefault(line, len(self.lines) + 1))]
        if kind_of(call.op) == ops.COLLECTIVE:
            root = call.root + 1 if call.root >= 0 else 0
            pairs += [(_SENT, call.bytes), (_ROOT, root), (_COMM, call.comm + 1)]
        self.told[call] = ":".join(f"{kind}:{number}" for kind, number in pairs)

    def place(self, call: Call) -> tuple[str, str]:
        """Return the function and the line that make a call, as text."""
        frames = stack(self.run.trace.sites[call.site].frames, self.run.places)
        if not frames:
            return "Unresolved", "Unresolved"
        at = frames[0]
        line = f"{at.line} ({Path(at.file).name})" if at.line else "Unresolved"
        return plain(at.function or at.frame), plain(line)

    def header(self) -> str:
        """Return the first line, and one for each communicator."""
        per_node = [0] * len(self.nodes)
        for rank, node in enumerate(self.node_of):
            per_node[node] += self.run.threads[rank]
        tasks = ",".join(
            f"{self.run.threads[rank]}:{node + 1}" for rank, node in enumerate(self.node_of)
        )
        comms = self.run.trace.comms
        text = (
            f"#Paraver ({_DATE}):{self.end}_ns:{len(self.nodes)}({','.join(map(str, per_node))}):1:"
            f"{self.run.trace.np}({tasks}),{len(comms)}\n"
        )
        for number, comm in enumerate(comms, 1):
            members = [member + 1 for member in comm.members if member >= 0]
            text += f"c:1:{number}:{len(members)}:{':'.join(map(str, members))}\n"
        return text

    # ---- records
    def records(self, result: ExportResult) -> Iterator[tuple[tuple[int, int], str]]:
        """Yield (time and kind to sort by, record) of all ranks."""
        for rank in self.run.trace.ranks:
            yield from self._of_rank(rank)
            result.events += len(rank.call)
        pairs, self.unmatched = messages(self.run)
        for send, receive, tag in pairs:
            sender, heard = (
                f"{self._location(end.rank, end.thread)}:{end.posted}:{end.ended}"
                for end in (send, receive)
            )
            yield (send.posted, 2), f"3:{sender}:{heard}:{send.nbytes}:{tag}"

    def _location(self, rank: int, thread: int) -> str:
        """Return processor, application, task and thread."""
        return f"{self.first_cpu[rank] + thread}:1:{rank + 1}:{thread + 1}"

    def _of_rank(self, rank: RankTrace) -> Iterator[tuple[tuple[int, int], str]]:
        """Yield the states and events of a rank."""
        where = [self._location(rank.rank, thread) for thread in range(self.run.threads[rank.rank])]
        last = [0] * len(where)
        for _, call, thread, begin, end in visits(self.run, rank):
            if call.op in ops.HALVES:
                continue  # part of the call before
            if begin > last[thread]:
                yield (last[thread], 0), _state(where[thread], last[thread], begin, _RUNNING)
            if end > begin:
                yield (begin, 0), _state(where[thread], begin, end, _state_of(call.op))
            yield (begin, 1), f"2:{where[thread]}:{begin}:{self.told[call]}"
            yield (end, 1), f"2:{where[thread]}:{end}:{_type(call.op)}:0:{_CALLER}:0:{_LINE}:0"
            last[thread] = end
        for thread, begin in enumerate(last):
            if begin < self.end:
                yield (begin, 0), _state(where[thread], begin, self.end, 0 if begin else 2)

    # ---- names
    def names(self) -> list[str]:
        """Return the lines of the .pcf: what states, types and values mean."""
        text = ["DEFAULT_OPTIONS", "", "LEVEL               THREAD", "UNITS               NANOSEC"]
        text += ["LOOK_BACK           100", "SPEED               1", "FLAG_ICONS          ENABLED"]
        text += ["NUM_OF_STATE_COLORS 1000", "YMAX_SCALE          37", "", ""]
        text += ["DEFAULT_SEMANTIC", "", "THREAD_FUNC          State As Is", "", "", "STATES"]
        text += [f"{number}    {name}" for number, name, _ in STATES]
        text += ["", "", "STATES_COLOR"]
        text += [f"{n}    {{{r},{g},{b}}}" for n, _, (r, g, b) in STATES]
        for kind, name in _TYPES.items():
            mine = {value: op for op, value in self.values.items() if _type(op) == kind}
            if mine:
                text += _type_lines(kind, name, {0: "Outside MPI", **mine})
        text += _type_lines(_CALLER, "Caller at level 1", _swap_keys(self.callers))
        text += _type_lines(_LINE, "Caller line at level 1", _swap_keys(self.lines))
        text += _type_lines(_SENT, "Send Size in MPI Global OP", {})
        text += _type_lines(_ROOT, "Root in MPI Global OP", {})
        text += _type_lines(_COMM, "Communicator in MPI Global OP", {})
        return text

    def rows(self) -> list[str]:
        """Return the lines of the .row: the names of processors, nodes and threads."""
        cpus = [
            f"{thread + 1}.{node}.{rank}"
            for node, ranks in self.run.nodes.items()
            for rank in ranks
            for thread in range(self.run.threads[rank])
        ]
        threads = [
            f"THREAD 1.{rank + 1}.{thread + 1}"
            for rank in range(self.run.trace.np)
            for thread in range(self.run.threads[rank])
        ]
        text: list[str] = []
        for level, names in (("CPU", cpus), ("NODE", self.nodes), ("THREAD", threads)):
            text += [f"LEVEL {level} SIZE {len(names)}", *map(plain, names), ""]
        return text


def _state(where: str, begin: int, end: int, state: int) -> str:
    return f"1:{where}:{begin}:{end}:{state}"


def _type(op: str) -> int:
    kind = kind_of(op)
    if kind in (ops.SEND, ops.RECV) or kind == ops.COMPLETION or op == "MPI_Start":
        return _POINT
    if kind in (ops.COLLECTIVE, ops.NEIGHBOR):
        return _COLLECTIVE
    return _ONE_SIDED if kind == ops.RMA else _FILES if kind == ops.IO else _OTHER


def _state_of(op: str) -> int:
    """Return the state of a rank inside of a call."""
    kind = kind_of(op)
    if op.startswith("MPI_Sendrecv"):
        return 16
    if kind in (ops.SEND, ops.RECV):
        blocking = op.removeprefix("MPI_")[0] != "I" and not op.endswith("_init")
        return (4 if blocking else 10) if kind == ops.SEND else (3 if blocking else 11)
    if kind == ops.COMPLETION:
        return 6 if "est" in op or "robe" in op else 8
    if kind in (ops.COLLECTIVE, ops.NEIGHBOR):
        return 5 if op == "MPI_Barrier" and not leaves_request(op) else 13
    return 12 if kind == ops.IO else _OTHERS


def _type_lines(kind: int, name: str, values: dict[int, str]) -> Sequence[str]:
    lines = ["", "", "EVENT_TYPE", f"0    {kind}    {name}"]
    return lines + (
        ["VALUES", *(f"{v}      {text}" for v, text in values.items())] if values else []
    )


def _swap_keys(numbers: dict[str, int]) -> dict[int, str]:
    return {0: "End", **{number: text for text, number in numbers.items()}}
