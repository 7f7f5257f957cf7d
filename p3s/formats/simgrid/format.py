"""SimGrid's time-independent traces: what `smpirun -replay` reads, one text file per rank.

One flop is one ns of computation, so hosts have a speed of 1 Gf. SimGrid knows no communicators:
tags tell apart what is sent on different ones, and collectives are calls only where all ranks are
in them; all others are written as the messages that they consist of.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from p3s.base.arrays import Floats, Ints
from p3s.base.ops import blocking_of
from p3s.formats.calls import SENDING, RankProgram
from p3s.formats.exported import ExportResult, new_export
from p3s.formats.scaled import ScaledSource, programs_of
from p3s.formats.simgrid.platform import HOSTS, PLATFORM, lacks, write_platform
from p3s.simulate.steps import Op

#: List of the files of the ranks.
INDEX = "trace.txt"

#: Collectives that stay calls when all ranks are in them. Vector variants are not among them: the
#: trace tells how much a rank sends in all, not to whom how much.
_KEPT = frozenset(
    "barrier bcast reduce allreduce alltoall gather scatter allgather scan exscan".split()
)


def to_simgrid(scaled: ScaledSource, result: ExportResult) -> None:
    """Write SimGrid's time-independent trace, a platform and its hosts into a new directory."""
    n, target, options = result.n, result.path, result.options
    network, notes = scaled.network()

    def stays(call: str, world: bool) -> bool:
        return keep(call, world) and not options.messages

    with new_export(result) as directory:
        for part, programs in programs_of(scaled, stays, result):
            (directory / part).mkdir(exist_ok=True)
            write_trace(programs, result, directory / part)
        start_dir, up = (target, "") if options.turns is None else (target / "section-000", "../")
        result.command = f"cd {shlex.quote(str(start_dir))} && smpirun {arguments(n, up)}"
        write_platform(directory, network, options.nodes_of(n), result.sizes)
        if not options.messages:
            result.notes.append(
                "collectives of all ranks are calls: SimGrid picks their algorithms "
                "(--cfg=smpi/coll-selector:ompi, mpich, ...)"
            )
        result.notes += [
            *notes,
            *(f"not in the platform: {text}" for text in lacks(network)),
            "one flop is one ns of computation: hosts have 1 Gf",
        ]


def arguments(n: int, up: str = "") -> str:
    """Return smpirun's arguments that replay a trace; ``up``: where its platform is, "" beside."""
    return f"-np {n} -platform {up}{PLATFORM} -hostfile {up}{HOSTS} -replay {INDEX}"


def keep(call: str, world: bool) -> bool:
    """Tell whether a collective is written as a call: SimGrid picks its algorithm then."""
    return world and _name(call) in _KEPT


def _name(call: str) -> str:
    return blocking_of(call).removeprefix("MPI_").lower()


def file_of(rank: int) -> str:
    """Return the name of a rank's file."""
    return f"rank-{rank:06d}.txt"


def write_trace(
    programs: Iterable[RankProgram],
    result: ExportResult,
    directory: Path,
    first_ns: Floats | None = None,
    post_ns: float = 0.0,
) -> None:
    """Write the files of all ranks and their list into a directory; takes down what they lack.

    ``first_ns``: computation ahead of all, of each program. ``post_ns``: computation before each
    nonblocking receive, for what its call takes, which SimGrid does not know.
    """
    for k, program in enumerate(programs):
        first = 0.0 if first_ns is None else float(first_ns[k])
        _write_rank(program, directory / file_of(program.rank), result, first, post_ns)
    (directory / INDEX).write_text("".join(f"{file_of(rank)}\n" for rank in range(result.n)))


def acts(program: RankProgram) -> Ints:
    """Return how many actions of SimGrid's each event of a program is, computation left out.

    Only for programs whose collectives are messages, or calls that SimGrid has.
    """
    one = np.isin(program.op, [int(o) for o in (*_ACTIONS, Op.COLLECTIVE)])
    return np.where(one, 1, np.diff(program.done_start))


class _Event(NamedTuple):
    """What an event is, whatever it completes: columns of RankProgram."""

    op: int
    peer: int
    tag: int
    nbytes: int
    call: int
    work_ns: float


def _write_rank(
    program: RankProgram, path: Path, result: ExportResult, first: float, post_ns: float
) -> None:
    rank, requests = program.rank, program.done.tolist()
    columns = (program.op, program.peer, program.tag, program.bytes, program.call, program.work_ns)
    events = [_Event(*row) for row in zip(*(column.tolist() for column in columns), strict=True)]
    begin = program.done_start.tolist()
    texts: dict[_Event, str] = {}
    used = Counter(events)
    for event in used:
        texts[event], why = _text(event, program, result.n, post_ns)
        _account(event, program, float(used[event]), why, result)
    with open(path, "w", encoding="ascii", buffering=1 << 20) as file:
        file.write(f"{rank} init\n")
        if first > 0:
            file.write(f"{rank} compute {flops(first)}\n")
        for event, a, b in zip(events, begin, begin[1:], strict=False):
            file.write(texts[event])
            for request in requests[a:b]:
                file.write(_wait(events[request], rank))
        file.write(f"{rank} finalize\n")
    lines = sum(texts[event].count("\n") * number for event, number in used.items())
    result.records += lines + len(requests) + 2


def _text(event: _Event, program: RankProgram, n: int, post_ns: float) -> tuple[str, str]:
    """Return the lines of an event, and why its call is not among them ("": it is)."""
    rank = program.rank
    work = event.work_ns + post_ns if event.op == Op.IRECV else event.work_ns
    text = f"{rank} compute {flops(work)}\n" if work > 0 else ""
    if event.op in _ACTIONS:
        where = f"{event.peer} {event.tag} {max(event.nbytes, 1)}"
        return f"{text}{rank} {_ACTIONS[Op(event.op)]} {where}\n", ""
    if event.op != Op.COLLECTIVE:
        return text, ""
    action = _collective(_name(program.names[event.call]), event.nbytes, event.peer, n)
    if not action:
        return text, "SimGrid has no call for it, and it is too many messages"
    return f"{text}{rank} {action}\n", ""


def _wait(request: _Event, rank: int) -> str:
    """Return the line that waits for a request."""
    ends = (request.peer, rank) if request.op == Op.IRECV else (rank, request.peer)
    return f"{rank} wait {ends[0]} {ends[1]} {request.tag}\n"


def _account(
    event: _Event, program: RankProgram, number: float, why: str, result: ExportResult
) -> None:
    """Add what so many of an event lose to the sums."""
    name = program.names[event.call] if event.call >= 0 else "MPI"
    if why:
        result.lacks(name, why, number)
    if event.op in SENDING:
        result.sizes.add(event.nbytes)
    if event.op in SENDING and event.nbytes == 0:
        result.changes("messages without bytes carry one byte", number)
    if event.op in (Op.SSEND, Op.ISSEND):
        result.changes("synchronous sends are plain sends", number)
    if event.op == Op.COLLECTIVE and _name(name) == "alltoallv":
        result.changes("MPI_Alltoallv is MPI_Alltoall with blocks of one size", number)


#: A synchronous send is a plain one; a buffered one leaves a request that nobody waits for.
_ACTIONS = {
    Op.SEND: "send",
    Op.SSEND: "send",
    Op.BSEND: "isend",
    Op.ISEND: "isend",
    Op.ISSEND: "isend",
    Op.RECV: "recv",
    Op.IRECV: "irecv",
}


def flops(work_ns: float) -> str:
    """Return computation as SimGrid reads it, to a tenth of a ns."""
    return f"{work_ns:.1f}".removesuffix(".0")


def _collective(name: str, nbytes: int, root: int, n: int) -> str:
    """Return the action of a collective of all ranks, "" if there is none.

    Sizes are those of one block where SimGrid multiplies by the number of ranks itself.
    """
    each = -(-nbytes // n)
    root = max(root, 0)
    return {
        "barrier": "barrier",
        "bcast": f"bcast {nbytes} {root}",
        "reduce": f"reduce {nbytes} 0 {root}",
        "allreduce": f"allreduce {nbytes} 0",
        "alltoall": f"alltoall {each} {each}",
        "alltoallv": f"alltoall {each} {each}",
        "gather": f"gather {nbytes} {nbytes} {root}",
        "scatter": f"scatter {nbytes} {nbytes} {root}",
        "allgather": f"allgather {nbytes} {nbytes}",
        "scan": f"scan {nbytes} 0",
        "exscan": f"exscan {nbytes} 0",
    }.get(name, "")
