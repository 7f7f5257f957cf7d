"""Writes docs/mpi-calls.md: what becomes of every MPI call, from the table of wrappers.

python docs/make/calls_page.py docs/mpi-calls.md
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path

from untouched_calls import UNTOUCHED

from p3s.base import ops
from p3s.program.order.calls import op_of
from p3s.signature_runner.tracer.table import CALLS, POSIX, Wrapper

REPLAYED = "modelled, replayed"
MODELLED = "modelled"
TIMED = "modelled, timed by the file system"
RECORDED = "recorded only"
COUNTED = "counted"
LOOKED_AT = "looked at"
UNTOUCHED_MARK = "passed through"

_HEAD = """# Every MPI call

This page is generated: `python docs/make/calls_page.py docs/mpi-calls.md`. Fates of a call:

- **modelled, replayed**: recorded, described by equations, its cost measured in a replay
- **modelled**: the same, but its cost is not measured
- **modelled, timed by the file system**: the same, with times of a file system ([io.md](io.md))
- **recorded only**: bytes and partner, no equations. Reports list it as "seen, not modelled", with
  its share of events and time
- **counted**: polls that found nothing are counted, not recorded
- **looked at**: no event; the tracer learns that a request or datatype is gone
- **passed through**: not recorded, like calls in its callbacks; its time counts as computation

Rules for all calls:

- `MPI_X_c` is recorded as `MPI_X`. A call that returns an error is no event. Ranks are world ranks.
- An event on a window or file has the communicator on which that was made, even if freed since.
- MPI_Sendrecv and MPI_Isendrecv are two events; the receive half is `MPI_Sendrecv_recv` or
  `MPI_Isendrecv_recv`.
- A persistent operation (`_init`) is an event at each MPI_Start, under the name of the call that
  made it. Nonblocking and persistent collectives are modelled and replayed as their blocking twins.
- A neighbourhood collective is one event, as are MPI_Start and MPI_Pready of a partitioned message.
  In signatures, equations, replays and predictions they are messages such as
  `MPI_Neighbor_alltoall_send` ([neighbours.md](neighbours.md)).

Limits:

- With MPICH (4.0 to 5.0) an MPI_Isendrecv from MPI_ANY_SOURCE keeps MPI_ANY_SOURCE as its partner.
- Processes started by MPI_Comm_spawn are not recorded; their world rank is -1. Calls on a
  communicator with them are recorded only (`MPI_Send_outside`).
- With sessions alone, MPI_COMM_WORLD is the process set `mpi://WORLD`, and one communicator at a
  time that has all its processes in order. Nothing is recorded after the last session.
- Waiting at window locks is not predicted; loads and stores in shared windows are not seen
  ([one-sided.md](one-sided.md)). Of a non-contiguous datatype only the mean contiguous bytes are
  known ([prediction.md](prediction.md#communicators)).
- Plugins loaded with RTLD_DEEPBIND are not seen; static programs need [an extra step](static.md).
- No events: mmap, io_uring, aio, fscanf, fgets; threads without MPI calls, parallel regions, signal
  handlers; descriptors 0 to 2, pipes, sockets, /dev, /proc, /sys; reading of code (.py, .pyc, .so).
- The position of a shared file pointer is unknown, and so are the bytes it reads or writes.
"""

_COLLECTIVE_BYTES = {
    "Barrier": "0",
    "Gather": "contributed by this rank",
    "Gatherv": "contributed by this rank",
    "Allgather": "contributed by this rank",
    "Allgatherv": "contributed by this rank",
    "Scatter": "received by this rank",
    "Scatterv": "received by this rank",
    "Alltoall": "sent by this rank to all together",
    "Alltoallv": "sent by this rank to all together",
    "Alltoallw": "sent by this rank to all together",
    "Reduce_scatter": "sum of recvcounts x type size",
    "Reduce_scatter_block": "recvcount x members x type size",
}

#: Title, and which calls (name without MPI_, kind) belong there; the first that fits counts.
_SECTIONS = (
    "Start and end",
    "Point-to-point",
    "Partitioned messages",
    "Probes and completion",
    "Collectives",
    "Neighbourhood collectives",
    "Communicators",
    "Other worlds",
    "One-sided communication",
    "Files",
    "Files of the C library",
)
_SECTION_OF_KIND = {
    ops.SEND: "Point-to-point",
    ops.RECV: "Point-to-point",
    ops.PARTITIONED: "Partitioned messages",
    ops.COMPLETION: "Probes and completion",
    ops.COLLECTIVE: "Collectives",
    ops.NEIGHBOR: "Neighbourhood collectives",
    ops.COMM: "Communicators",
    ops.PROCESS: "Other worlds",
    ops.RMA: "One-sided communication",
    ops.IO: "Files",
}

_STARTING = (
    ("Init", "event, the first of a rank", "0", MODELLED),
    ("Init_thread", "event `MPI_Init`", "0", MODELLED),
    ("Session_init", "event `MPI_Init`, if nothing began before; else none", "0", MODELLED),
    ("Finalize", "event, the last of a rank", "0", MODELLED),
    (
        "Session_finalize",
        "event `MPI_Finalize`, if it ends the last session and MPI_Init was not called; else none",
        "0",
        MODELLED,
    ),
    ("Abort", "its code, in the header of the capture", "", LOOKED_AT),
    ("Pcontrol", "switches the recording off (0) and on", "", LOOKED_AT),
)


#: Calls that are read as messages (p3s.capture.rewrite), and as which.
_AS_MESSAGES = {
    ops.RMA: " as messages",
    ops.NEIGHBOR: " as messages between neighbours",
    ops.PARTITIONED: " as messages of its partitions",
}

#: What a request or a datatype is gone by; listed after the calls that make an event.
_LAST = ("Cancel", "Request_free", "Type_free")


def _bytes(name: str, kind: str, row: Wrapper) -> str:
    """Return how many bytes an event says."""
    blocking = ops.blocking_of("MPI_" + name).removeprefix("MPI_")
    if kind in (ops.SEND, ops.RECV):
        return "count x type size" + (", of each half" if "sendrecv" in name.lower() else "")
    if kind == ops.COLLECTIVE:
        return _COLLECTIVE_BYTES.get(blocking, "count x type size")
    if kind == ops.NEIGHBOR:
        return "sent by this rank to all neighbours together"
    if kind == ops.PARTITIONED:
        ready = "count x type size of the ready partitions"
        return "partitions x count x type size" if name.endswith("_init") else ready
    if kind == ops.COMPLETION:
        if "buffer" in name.lower():
            return "0"
        return "1" if "probe" in name.lower() else "number of requests completed"
    if "p3s_file_moved" in row.after:
        return "count x type size"
    moved = re.search(r"p3s_on\(&h, \w+, P3S_HANDLE\(\w+\), \w+, (\w+), (\w+)\)", row.after)
    if moved is None or moved[1] == "0":
        return "0"
    count = "" if moved[1] == "1" else moved[1].replace("_", " ") + " x "
    return f"{count}{moved[2].replace('_', ' ')} size"


def _recorded(name: str, kind: str, row: Wrapper) -> str:
    """Return what an event of a call names."""
    if name in ("Start", "Startall"):
        return "an event per started request"
    if not row.traced:
        return "no event"
    if not row.after.replace("p3s_poll", "").count("p3s_"):
        return "no event"
    parts = "two events" if "sendrecv" in name.lower() else "event"
    if kind in (ops.SEND, ops.RECV, ops.PARTITIONED):
        parts += ", partner, tag"
    elif kind == ops.COMPLETION and "probe" in name.lower():
        parts += ", partner and tag of the message"
    elif kind == ops.COLLECTIVE and "MPI_" + name in ops.ROOTED:
        parts += ", root"
    elif kind == ops.RMA and ", target, " in row.after:
        parts += ", target"
    elif kind == ops.RMA and "group" in row.args.split():
        parts += ", ranks of the group"
    elif name.startswith("Comm_idup"):
        parts += ", new communicator at its first use"
    elif kind in (ops.COMM, ops.PROCESS) and "made" in row.args.split():
        parts += ", new communicator"
    return parts + (", completed requests" if name.startswith(("Wait", "Test")) else "")


def _fate(name: str, kind: str, row: Wrapper) -> str:
    """Return what becomes of a call."""
    op = "MPI_" + name
    polls = "p3s_poll" in row.after
    if name in ("Start", "Startall"):
        return "as what it starts"
    if _recorded(name, kind, row) == "no event":
        return COUNTED if polls else LOOKED_AT
    if kind in _AS_MESSAGES:
        fate = REPLAYED + _AS_MESSAGES[kind]
    elif kind not in ops.MODELLED:
        fate = RECORDED
    elif kind == ops.IO:
        fate = TIMED
    elif kind == ops.COLLECTIVE or op_of(op) is not None:
        fate = REPLAYED
    else:
        fate = MODELLED
    return fate + (f"; {COUNTED} when it finds nothing" if polls else "")


def _section(name: str, kind: str) -> str:
    if name.startswith("Win_"):
        return _SECTION_OF_KIND[ops.RMA]
    if kind in _SECTION_OF_KIND:
        return _SECTION_OF_KIND[kind]
    if name in ("Start", "Startall"):
        return "Point-to-point"
    if name == "Parrived":
        return "Partitioned messages"
    return "Probes and completion"


def _table(rows: Iterable[tuple[str, ...]]) -> list[str]:
    """Return a Markdown table; calls recorded alike share a row, and a fate of all stands above."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for call, *rest in rows:
        alike.setdefault(tuple(rest), []).append(call)
    fates = {rest[-1] for rest in alike}
    above = [f"All: {fates.pop()}.", ""] if len(fates) == 1 else []
    width = 3 if above else 4
    heads = ("calls", "recorded as", "bytes", "fate")
    table = [heads, ("---",) * 4, *((", ".join(calls), *rest) for rest, calls in alike.items())]
    return above + ["| " + " | ".join(row[:width]) + " |" for row in table]


def _posix_bytes(name: str) -> str:
    """Return how many bytes an event of a call of the C library says."""
    return "returned by the calls" if "read" in name or "write" in name or "print" in name else "0"


def page() -> str:
    """Return the page as Markdown."""
    found: dict[str, list[tuple[str, ...]]] = {title: [] for title in _SECTIONS}
    found[_SECTIONS[0]] = [("MPI_" + name, *rest) for name, *rest in _STARTING]
    for name, row in CALLS.items():
        if name in _LAST:
            continue
        kind = ops.kind_of("MPI_" + name)
        recorded = _recorded(name, kind, row)
        size = "" if recorded == "no event" else _bytes(name, kind, row)
        if name in ("Start", "Startall"):
            size = "as when it was made"
        found[_section(name, kind)].append(("MPI_" + name, recorded, size, _fate(name, kind, row)))
    found["Probes and completion"] += [("MPI_" + name, "no event", "", LOOKED_AT) for name in _LAST]
    found["Files of the C library"] = [
        ("POSIX_" + name, "one event for adjacent calls", _posix_bytes(name), TIMED)
        for name in POSIX
    ]
    lines = [_HEAD]
    for title, rows in found.items():
        lines += [f"## {title}", "", *_table(rows), ""]
    lines += ["## Passed through", ""]
    for title, calls in UNTOUCHED.items():
        left = [name for name in calls if name not in CALLS and name not in _LAST]
        lines.append(f"- {title}: " + ", ".join("MPI_" + name for name in left))
    lines += ["", "Functions that return a handle or a number, as MPI_Comm_f2c, too."]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(page(), encoding="utf-8")
    else:
        sys.stdout.write(page())
