"""Captures sketched in a few words: ranks as lists of events, written to files and read back."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from capture_writer import Writer

from p3s.capture import RunTrace, read_run

NAMES = (
    "MPI_Init",
    "MPI_Finalize",
    "MPI_Send",
    "MPI_Recv",
    "MPI_Isend",
    "MPI_Irecv",
    "MPI_Wait",
    "MPI_Waitall",
    "MPI_Sendrecv",
    "MPI_Sendrecv_recv",
    "MPI_Mprobe",
    "MPI_Mrecv",
    "MPI_Allreduce",
    "MPI_Iallreduce",
    "MPI_Barrier",
    "MPI_Bcast",
    "MPI_Send_init",
    "MPI_Recv_init",
    "MPI_Comm_create_group",
    "MPI_Ibarrier",
)
#: Communicators beside the world: id -> members.
Comms = dict[int, list[int]]


def rank_file(
    rank: int,
    size: int,
    events: Sequence[tuple[Any, ...]],
    comms: Comms | None = None,
    **settings: Any,
) -> Writer:
    """Return the capture of one rank.

    An event is (name without MPI_, settings as a dict); settings are those of Writer.call, and
    ``ends``: indices of the events whose requests it completes, ``cancels``: the same of
    cancelled ones, ``found``: (source, tag) of a wildcard, ``start``, ``work``. "cut" alone begins
    new chunks. An event's index counts the events of the list.
    """
    w = Writer(rank, size, **settings)
    for number, name in enumerate(NAMES):
        w.opname(number, name)
    w.comm(0, list(range(size)) if size < 1000 else [0], "MPI_COMM_WORLD")
    for number, members in (comms or {}).items():
        w.comm(number, members, "MPI_Comm_split", 0)
    w.site(0xABC, "app+0x10")
    for name, *more in events:
        if name == "cut":
            w.cut()
            continue
        told = dict(more[0]) if more else {}
        ends, cancels = told.pop("ends", ()), told.pop("cancels", ())
        found, start, work = told.pop("found", None), told.pop("start", None), told.pop("work", 5)
        number = w.event(w.call(NAMES.index("MPI_" + name), **told), start=start, work=work)
        for posted in ends:
            w.done(number, posted)
        for posted in cancels:
            w.done(number, posted, 1)
        if found:
            w.resolved(number, found[0], found[1], 8)
    return w


def sketched(
    folder: Path,
    *ranks: Sequence[tuple[Any, ...]] | None,
    comms: Comms | None = None,
    ends: bool = True,
) -> RunTrace:
    """Write a run and read it back; None is a rank without a file.

    Events are in ``folder``; MPI_Init is not added, MPI_Finalize and the end of the capture are.
    """
    for rank, events in enumerate(ranks):
        if events is None:
            continue
        mine = {k: v for k, v in (comms or {}).items() if rank in v}
        w = rank_file(rank, len(ranks), [*events, *([("Finalize",)] * ends)], mine)
        if ends:
            w.end()
        w.save(folder)
    return read_run(folder)


def send(to: int, tag: int = 0, **more: Any) -> tuple[Any, ...]:
    """A blocking send."""
    return "Send", {"peer": to, "tag": tag, "nbytes": 8, **more}


def recv(source: int, tag: int = 0, **more: Any) -> tuple[Any, ...]:
    """A blocking receive."""
    return "Recv", {"peer": source, "tag": tag, "nbytes": 8, **more}


def isend(to: int, tag: int = 0, **more: Any) -> tuple[Any, ...]:
    """A nonblocking send."""
    return "Isend", {"peer": to, "tag": tag, "nbytes": 8, **more}


def irecv(source: int, tag: int = 0, **more: Any) -> tuple[Any, ...]:
    """A nonblocking receive."""
    return "Irecv", {"peer": source, "tag": tag, "nbytes": 8, **more}


def wait(*ends: int, **more: Any) -> tuple[Any, ...]:
    """A completion of the requests posted by events."""
    return "Waitall", {"comm": -1, "nbytes": len(ends), "ends": ends, **more}
