"""SimGrid's time-independent traces: what `smpirun -replay` reads, one text file per rank.

One flop is one ns of computation, so hosts have a speed of 1 Gf. SimGrid knows no communicators:
tags tell apart what is sent on different ones, and collectives are calls only where all ranks are
in them; all others are written as the messages that they consist of.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from p3s.base.arrays import Floats, Ints
from p3s.base.ops import blocking_of
from p3s.base.study import Study
from p3s.formats.calls import SENDING, RankProgram, Table
from p3s.formats.exported import Exported, Options, Say, new_export
from p3s.formats.scaled import network_of, nodes_of, programs_of
from p3s.formats.simgrid.platform import HOSTS, PLATFORM, lacks, write_platform
from p3s.simulate.steps import Op

#: List of the files of the ranks.
INDEX = "trace.txt"

#: Collectives that stay calls when all ranks are in them. Vector variants are not among them: the
#: trace tells how much a rank sends in all, not to whom how much.
_KEPT = frozenset(
    "barrier bcast reduce allreduce alltoall gather scatter allgather scan exscan".split()
)


def to_simgrid(study: Study, n: int, target: Path, options: Options, say: Say) -> Exported:
    """Write SimGrid's time-independent trace, a platform and its hosts into a new directory."""
    done = Exported("simgrid", n, target)
    network, notes = network_of(study, options.machine)

    def stays(call: str, world: bool) -> bool:
        return keep(call, world) and not options.messages

    with new_export(done) as directory:
        for part, programs in programs_of(study, n, options, stays, done, say):
            (directory / part).mkdir(exist_ok=True)
            write_trace(programs, done, directory / part)
        there, up = (target, "") if options.turns is None else (target / "section-000", "../")
        done.command = f"cd {shlex.quote(str(there))} && smpirun {arguments(n, up)}"
        write_platform(directory, network, nodes_of(n, options.ranks_per_node), done.sizes)
        if not options.messages:
            done.notes.append(
                "collectives of all ranks are calls: SimGrid picks their algorithms "
                "(--cfg=smpi/coll-selector:ompi, mpich, ...)"
            )
        done.notes += [
            *notes,
            *(f"not in the platform: {text}" for text in lacks(network)),
            "one flop is one ns of computation: hosts have 1 Gf",
        ]
    return done


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
    done: Exported,
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
        _write_rank(program, directory / file_of(program.rank), done, first, post_ns)
    (directory / INDEX).write_text("".join(f"{file_of(rank)}\n" for rank in range(done.n)))


def acts(program: RankProgram) -> Ints:
    """Return how many actions of SimGrid's each event of a program is, computation left out.

    Only for programs whose collectives are messages, or calls that SimGrid has.
    """
    op = program.table.op[program.at]
    one = np.isin(op, [int(o) for o in (*_ACTIONS, Op.COLLECTIVE)])
    return np.where(one, 1, np.diff(program.done_start))


def _write_rank(
    program: RankProgram, path: Path, done: Exported, first: float, post_ns: float
) -> None:
    table, rank = program.table, program.rank
    texts, lost = _texts(table, rank, done.n, post_ns)
    used = np.bincount(program.at, minlength=len(table))
    _account(table, used, lost, done)
    lines = np.array(texts, dtype=object)[program.at]
    wait_of = _waits(table, rank)
    known: dict[tuple[int, ...], str] = {}
    begin, requests = program.done_start.tolist(), program.at[program.done].tolist()
    for event in np.flatnonzero(np.diff(program.done_start)).tolist():
        key = (int(program.at[event]), *requests[begin[event] : begin[event + 1]])
        text = known.get(key)
        if text is None:
            text = known[key] = texts[key[0]] + "".join(wait_of[k] for k in key[1:])
        lines[event] = text
    done.records += (
        int(used @ np.array([text.count("\n") for text in texts])) + len(program.done) + 2
    )
    with open(path, "w", encoding="ascii", buffering=1 << 20) as file:
        file.write(f"{rank} init\n")
        if first > 0:
            file.write(f"{rank} compute {flops(first)}\n")
        file.write("".join(lines.tolist()))
        file.write(f"{rank} finalize\n")


def _texts(table: Table, rank: int, n: int, post_ns: float) -> tuple[list[str], list[str]]:
    """Return the lines of every entry, and why its call is not among them ("": it is)."""
    texts, lost = [], []
    names = [_name(name) for name in table.names] + [""]
    columns = zip(
        table.op.tolist(),
        table.peer.tolist(),
        table.tag.tolist(),
        table.bytes.tolist(),
        table.call.tolist(),
        table.work_ns.tolist(),
        strict=True,
    )
    for op, peer, tag, nbytes, call, own in columns:
        work = own + post_ns if op == Op.IRECV else own
        text = f"{rank} compute {flops(work)}\n" if work > 0 else ""
        why = ""
        if op in _ACTIONS:
            text += f"{rank} {_ACTIONS[op]} {peer} {tag} {max(nbytes, 1)}\n"
        elif op == Op.COLLECTIVE:
            action = _collective(names[call], nbytes, peer, n)
            why = "" if action else "SimGrid has no call for it, and it is too many messages"
            text += f"{rank} {action}\n" if action else ""
        texts.append(text)
        lost.append(why)
    return texts, lost


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


def _waits(table: Table, rank: int) -> list[str]:
    """Return the line that waits for the request of every entry."""
    return [
        f"{rank} wait {peer} {rank} {tag}\n"
        if op == Op.IRECV
        else f"{rank} wait {rank} {peer} {tag}\n"
        for op, peer, tag in zip(
            table.op.tolist(), table.peer.tolist(), table.tag.tolist(), strict=True
        )
    ]


def _account(table: Table, used: np.ndarray, lost: list[str], done: Exported) -> None:
    """Add what a rank's events lose to the sums."""
    sent = np.flatnonzero((used > 0) & np.isin(table.op, list(SENDING)))
    done.sizes.update(np.unique(table.bytes[sent]).tolist())
    for entry in np.flatnonzero(used).tolist():
        op, number = int(table.op[entry]), float(used[entry])
        name = table.names[int(table.call[entry])] if table.call[entry] >= 0 else "MPI"
        if lost[entry]:
            done.lacks(name, lost[entry], number)
        if op in SENDING and table.bytes[entry] == 0:
            done.changes("messages without bytes carry one byte", number)
        if op in (Op.SSEND, Op.ISSEND):
            done.changes("synchronous sends are plain sends", number)
        if op == Op.COLLECTIVE and _name(name) == "alltoallv":
            done.changes("MPI_Alltoallv is MPI_Alltoall with blocks of one size", number)
