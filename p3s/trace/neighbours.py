"""Neighbourhood collectives as the messages between neighbours that they are.

All receives are posted, then all sends, in the order of the neighbours; a blocking call then waits
for all of them. What is beyond the edge of a grid is MPI_PROC_NULL. In a grid a tag tells along
which dimension, and in which direction, a message goes: two processes may be neighbours in several
ways. In a graph messages between two processes meet in the order of the neighbours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from p3s.trace import ops
from p3s.trace.parts import CallBook, Parts
from p3s.trace.types import PROC_NULL, Call, Comm, Neighbours, RankTrace, RunTrace

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Int64s = NDArray[np.int64]

#: Tags of messages of neighbourhood collectives, which no program has: of graphs, and of the first
#: neighbour on a grid.
GRAPH_TAG = 1 << 20
FIRST_TAG = GRAPH_TAG + 1
#: No grid has more dimensions.
_MOST_DIMENSIONS = 64
#: Whether all sizes are the same to, and from, every neighbour: of (destinations, sources).
_ALIKE = {
    "MPI_Neighbor_allgather": (True, True),
    "MPI_Neighbor_alltoall": (True, True),
    "MPI_Neighbor_allgatherv": (True, False),
}


def takes(op: str) -> bool:
    """Tell whether calls of a name are neighbourhood collectives."""
    return ops.kind_of(op) == ops.NEIGHBOR


def parts(run: RunTrace, rt: RankTrace, book: CallBook) -> Parts:
    """Return what stands in place of a rank's neighbourhood collectives.

    Calls stay as they are where the capture, of a version before 2.4, does not tell their sizes.
    """
    used = np.unique(rt.call)
    made: dict[int, list[int]] = {}
    for number in used.tolist():
        call = run.calls[number]
        around = rt.neighbours.get(call.comm)
        sizes = _sizes(call, around) if takes(call.op) and around is not None else None
        if around is not None and sizes is not None:
            made[number] = _calls(call, _exchange(around, sizes, run.comms[call.comm]), book)
    size = np.zeros(len(run.calls), dtype=np.int64)
    for number, calls in made.items():
        size[number] = len(calls)
    return _laid_out(np.asarray(rt.call, dtype=np.int64), size, made, book)


_Bytes = tuple[Sequence[int], Sequence[int]]
#: Part of the call (recv, send), partner, bytes, tag.
_Message = tuple[str, int, int, int]


def _exchange(around: Neighbours, sizes: _Bytes, comm: Comm) -> list[_Message]:
    """Return the receives, then the sends of a rank.

    The order that MPI_Dist_graph_create gives neighbours is the library's and differs from run to
    run: there they are in the order of ranks.
    """
    sent, received = sizes
    grid = comm.dims is not None
    into = [
        ("recv", rank, size, _tag(slot ^ 1, grid))
        for slot, (rank, size) in enumerate(zip(around.sources, received, strict=True))
    ]
    out = [
        ("send", rank, size, _tag(slot, grid))
        for slot, (rank, size) in enumerate(zip(around.destinations, sent, strict=True))
    ]
    if comm.op == "MPI_Dist_graph_create":
        into.sort(key=_rank_of)
        out.sort(key=_rank_of)
    return into + out


def _rank_of(message: _Message) -> int:
    return message[1]


def _calls(call: Call, exchange: Sequence[_Message], book: CallBook) -> list[int]:
    """Return the numbers of the calls in place of one: the messages, the wait of a blocking one."""
    messages = [_message(call, *message) for message in exchange]
    if not messages:  # a rank without neighbours: the call has its place and its time
        messages = [_message(call, "send", PROC_NULL, 0, GRAPH_TAG)]
    found = [book.number(message) for message in messages]
    if not ops.leaves_request(call.op):
        wait = replace(
            call, op=f"{call.op}_wait", comm=-1, bytes=len(found), count=len(found), elem_bytes=1
        )
        found.append(book.number(replace(wait, numbers=(), block=0, memory=0)))
    return found


def _tag(slot: int, grid: bool) -> int:
    """Return the tag of what goes to a neighbour: from a grid's other side it comes with its."""
    return FIRST_TAG + slot if grid else GRAPH_TAG


def side_of(op: str, tag: int) -> int | None:
    """Return in which direction along a dimension of a grid the partner of a message is.

    1 up, -1 down; None where the message is no part of a neighbourhood collective on a grid.
    """
    slot = tag - FIRST_TAG
    if ops.kind_of(ops.called(op)) != ops.NEIGHBOR or not 0 <= slot < 2 * _MOST_DIMENSIONS:
        return None
    up = bool(slot % 2) == (ops.kind_of(op) == ops.SEND)
    return 1 if up else -1


def _message(call: Call, part: str, rank: int, size: int, tag: int) -> Call:
    count = call.count * size // call.bytes if call.bytes else 0
    return replace(
        call, op=f"{call.op}_{part}", peer=rank, bytes=size, tag=tag, count=count, numbers=()
    )


def _sizes(call: Call, around: Neighbours) -> _Bytes | None:
    """Return the bytes to each destination, and from each source; None if they are not known."""
    alike = _ALIKE.get(ops.blocking_of(call.op), (False, False))
    out, into = len(around.destinations), len(around.sources)
    to = 1 if alike[0] else out
    if len(call.numbers) != to + (1 if alike[1] else into):
        return None
    sent, received = call.numbers[:to], call.numbers[to:]
    return sent * out if alike[0] else sent, received * into if alike[1] else received


def _laid_out(call: Int64s, size: Int64s, made: dict[int, list[int]], book: CallBook) -> Parts:
    events = np.flatnonzero(size[call])
    number = size[call[events]]
    event = np.repeat(events, number)
    begin = np.cumsum(number) - number
    out = np.zeros(len(event), dtype=np.int64)
    for raw, calls in made.items():
        at = begin[call[events] == raw]
        out[(at[:, None] + np.arange(len(calls))).ravel()] = np.tile(calls, len(at))
    waits = np.array([ops.kind_of(c.op) == ops.COMPLETION for c in book.calls], dtype=bool)[out]
    last = np.repeat(begin + number - 1, number)
    own = waits[last] & ~waits
    part = np.arange(len(event))
    blocking = np.stack([last[own], part[own]], axis=1)
    open_ = ~waits[last] if len(last) else own
    return Parts(event, out, blocking, np.stack([event[open_], part[open_]], axis=1))
