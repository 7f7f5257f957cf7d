"""Neighbourhood collectives as the messages between neighbours that they are.

All receives are posted, then all sends, in the order of the neighbours; a blocking call then waits
for all of them. What is beyond the edge of a grid is MPI_PROC_NULL. In a grid a tag tells along
which dimension, and in which direction, a message goes: two processes may be neighbours in several
ways. In a graph messages between two processes meet in the order of the neighbours; a tag tells the
place of the receiver among the sender's neighbours where that means the same on all ranks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter

import numpy as np

from p3s.base import ops
from p3s.base.arrays import Ints
from p3s.capture.parts import CallBook, Family, Parts
from p3s.capture.records import Neighbours
from p3s.capture.types import PROC_NULL, Call, Comm, RankTrace, RunTrace, present_ranks

#: Tags of messages of neighbourhood collectives, which no program has: of graphs, and of the first
#: neighbour on a grid.
GRAPH_TAG = 1 << 20
FIRST_TAG = GRAPH_TAG + 1
#: Tags of messages to later neighbours than the first in a graph: from here on.
PLACE_TAG = 1 << 22
#: No grid has more dimensions.
_MOST_DIMENSIONS = 64
_DUPLICATES = ("MPI_Comm_dup", "MPI_Comm_idup", "MPI_Comm_dup_with_info", "MPI_Comm_idup_with_info")
#: Whether all sizes are the same to, and from, every neighbour: of (destinations, sources).
_ALIKE = {
    "MPI_Neighbor_allgather": (True, True),
    "MPI_Neighbor_alltoall": (True, True),
    "MPI_Neighbor_allgatherv": (True, False),
}


#: A graph by what is the same in all captures: its members, which communicator of them.
_Graph = tuple[tuple[int, ...], int]


@dataclass
class Graphs(Family):
    """Neighbourhood collectives: the neighbours of all ranks, in graphs in the program's order."""

    around: dict[_Graph, dict[int, Neighbours]] = field(default_factory=lambda: defaultdict(dict))
    _places: dict[_Graph, tuple[int, ...] | None] = field(default_factory=dict)

    def places(self, comm: Comm) -> tuple[int, ...] | None:
        """Return which place among its source's neighbours a rank has, for each of its sources.

        None unless that is the same on all ranks: then the k-th neighbour is one direction.
        """
        key = comm.members, comm.ordinal
        if key not in self._places:
            graph = self.around.get(key, {})
            self._places[key] = _places(graph) if len(graph) == len(comm.members) else None
        return self._places[key]

    def takes(self, op: str) -> bool:
        """Tell whether calls of a name are neighbourhood collectives."""
        return ops.kind_of(op) == ops.NEIGHBOR

    def asks(self, run: RunTrace, call: Call) -> bool:
        """Tell whether it takes other ranks to know what the places of a call's neighbours mean."""
        return self.takes(call.op) and call.comm >= 0 and _ordered_graph(run, call.comm)

    def learn(self, run: RunTrace) -> None:
        """Add the neighbours of the ranks of a run in graphs whose order is the program's."""
        for rank in present_ranks(run):
            for number, around in run.ranks[rank].neighbours.items():
                if _ordered_graph(run, number):
                    comm = run.comms[number]
                    self.around[comm.members, comm.ordinal][rank] = around

    def parts(self, run: RunTrace, rt: RankTrace, book: CallBook) -> Parts:
        """Return what stands in place of a rank's neighbourhood collectives.

        Calls stay as they are where the capture, of a version before 2.4, does not tell their
        sizes.
        """
        numbers_of: dict[int, list[int]] = {}
        for number in np.unique(rt.call).tolist():
            call = run.calls[number]
            around = rt.neighbours.get(call.comm)
            sizes = _sizes(call, around) if self.takes(call.op) and around is not None else None
            if around is not None and sizes is not None:
                tags = _tags(run.comms[call.comm], around, self)
                library = _order_of_library(run.comms, call.comm)
                numbers_of[number] = _calls(call, _exchange(around, sizes, tags, library), book)
        size = np.zeros(len(run.calls), dtype=np.int64)
        for number, calls in numbers_of.items():
            size[number] = len(calls)
        return _laid_out(np.asarray(rt.call, dtype=np.int64), size, numbers_of, book)


def _places(around: Mapping[int, Neighbours]) -> tuple[int, ...] | None:
    """Return the one answer of all ranks to Graphs.places, None if there are several.

    Of several edges from a process to another the first meets the first, as in MPI.
    """
    open_: dict[tuple[int, int], list[int]] = defaultdict(list)
    for rank, mine in around.items():
        for place, to in enumerate(mine.destinations):
            open_[rank, to].append(place)
    answers = {
        tuple(open_[source, rank].pop(0) if open_[source, rank] else -1 for source in mine.sources)
        for rank, mine in around.items()
    }
    degrees = {len(mine.destinations) for mine in around.values()}
    return answers.pop() if len(answers) == len(degrees) == 1 else None


def _ordered_graph(run: RunTrace, comm: int) -> bool:
    return run.comms[comm].dims is None and not _order_of_library(run.comms, comm)


def _order_of_library(comms: Sequence[Comm], number: int) -> bool:
    """Tell whether the neighbours of a communicator come in an order that differs between runs.

    A duplicate has those of the communicator that it was made from.
    """
    while comms[number].op in _DUPLICATES and comms[number].parent >= 0:
        number = comms[number].parent
    return comms[number].op == "MPI_Dist_graph_create"


_Bytes = tuple[Sequence[int], Sequence[int]]
_Tags = tuple[Sequence[int], Sequence[int]]
#: Part of the call (recv, send), partner, bytes, tag.
_Message = tuple[str, int, int, int]


def _exchange(around: Neighbours, sizes: _Bytes, tags: _Tags, library: bool) -> list[_Message]:
    """Return the receives, then the sends of a rank.

    library: the order of the neighbours is the library's and differs from run to run, as after
    MPI_Dist_graph_create: then they are in the order of ranks.
    """
    into = [("recv", *part) for part in zip(around.sources, sizes[1], tags[1], strict=True)]
    out = [("send", *part) for part in zip(around.destinations, sizes[0], tags[0], strict=True)]
    if library:
        into.sort(key=itemgetter(1))
        out.sort(key=itemgetter(1))
    return into + out


def _calls(call: Call, exchange: Sequence[_Message], book: CallBook) -> list[int]:
    """Return the numbers of the calls in place of one: the messages, the wait of a blocking one."""
    messages = [_message(call, *message) for message in exchange]
    if not messages:  # a rank without neighbours: the call has its place and its time
        messages = [_message(call, "send", PROC_NULL, 0, GRAPH_TAG)]
    calls = [book.number(message) for message in messages]
    if not ops.leaves_request(call.op):
        wait = replace(
            call, op=f"{call.op}_wait", comm=-1, bytes=len(calls), count=len(calls), elem_bytes=1
        )
        calls.append(book.number(replace(wait, numbers=(), block=0, memory=0)))
    return calls


def _tags(comm: Comm, around: Neighbours, graphs: Graphs) -> _Tags:
    """Return the tags of the messages to each destination, and from each source.

    What comes from a neighbour on a grid was sent to the other side.
    """
    out, into = len(around.destinations), len(around.sources)
    if comm.dims is not None:
        return [FIRST_TAG + k for k in range(out)], [FIRST_TAG + (k ^ 1) for k in range(into)]
    places = graphs.places(comm)
    if places is None or len(places) != into:
        return [GRAPH_TAG] * out, [GRAPH_TAG] * into
    return [_place_tag(k) for k in range(out)], [_place_tag(k) for k in places]


def _place_tag(place: int) -> int:
    """Return the tag of what goes to the neighbour in a place of a graph.

    That of the first is that of all where places mean nothing, as with one neighbour.
    """
    return PLACE_TAG + place if place else GRAPH_TAG


def side_of(op: str, tag: int) -> int | None:
    """Return in which direction along a dimension of a grid the partner of a message is.

    1 up, -1 down; None where the message is no part of a neighbourhood collective on a grid.
    """
    slot = tag - FIRST_TAG
    if (
        ops.kind_of(ops.resolve_function(op)) != ops.NEIGHBOR
        or not 0 <= slot < 2 * _MOST_DIMENSIONS
    ):
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


def _laid_out(call: Ints, size: Ints, numbers_of: dict[int, list[int]], book: CallBook) -> Parts:
    events = np.flatnonzero(size[call])
    number = size[call[events]]
    event = np.repeat(events, number)
    begin = np.cumsum(number) - number
    out = np.zeros(len(event), dtype=np.int64)
    for raw, calls in numbers_of.items():
        at = begin[call[events] == raw]
        out[(at[:, None] + np.arange(len(calls))).ravel()] = np.tile(calls, len(at))
    waits = np.array([ops.kind_of(c.op) == ops.COMPLETION for c in book.calls], dtype=bool)[out]
    last = np.repeat(begin + number - 1, number)
    completed = waits[last] & ~waits
    part = np.arange(len(event))
    blocking = np.stack([last[completed], part[completed]], axis=1)
    open_ = ~waits[last] if len(last) else completed
    return Parts(event, out, blocking, np.stack([event[open_], part[open_]], axis=1))
