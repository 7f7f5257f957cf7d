"""The calls of a run as columns, and the order of things that follow each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from p3s.base import ops
from p3s.base.arrays import Bools, Ints
from p3s.capture.types import PROC_NULL

if TYPE_CHECKING:
    from collections.abc import Iterable

    from p3s.capture import Call, RankTrace

#: What an event is. A *posted* operation is completed by a later event.
LOCAL, SEND, RECV, POSTED_RECV, COLLECTIVE, POSTED_COLLECTIVE = range(6)

_POSTED_RECVS = frozenset({"MPI_Irecv", "MPI_Recv_init", "MPI_Imrecv", ops.ISENDRECV_RECV})
_MATCHED_RECVS = frozenset({"MPI_Mrecv", "MPI_Imrecv"})
_MATCHED_PROBES = frozenset({"MPI_Mprobe", "MPI_Improbe"})


def role_of(op: str) -> int:
    """Return what a call is: LOCAL, SEND, RECV, POSTED_RECV, COLLECTIVE or POSTED_COLLECTIVE.

    Calls that make or free a communicator are collectives on the one that they are made on.
    Partitioned and one-sided operations are LOCAL, and those on files that a process makes alone.
    """
    kind = ops.kind_of(op)
    if kind == ops.SEND:
        return SEND
    if kind == ops.RECV:
        return POSTED_RECV if ops.like(op) in _POSTED_RECVS else RECV
    if kind == ops.IO and ops.is_file_collective(op):
        return POSTED_COLLECTIVE if ops.leaves_file_request(op) else COLLECTIVE
    if kind in (ops.COLLECTIVE, ops.NEIGHBOR, ops.COMM) and op not in ops.NOT_BY_ALL:
        return POSTED_COLLECTIVE if ops.leaves_request(op) else COLLECTIVE
    return LOCAL


@dataclass(frozen=True)
class CallTable:
    """The calls of a run, one row per call (p3s.capture.Call), as columns.

    ``role`` (uint8) is role_of; ``op`` numbers ``names`` (a collective has the number of its
    blocking twin). ``way`` numbers the distinct (peer, communicator, tag) of messages, -1 where
    the peer is no rank; ``way_peer`` and ``way_label`` (a number for communicator and tag) belong
    to it. ``matched_probe`` and ``matched_recv`` mark MPI_Mprobe and MPI_Mrecv with their
    nonblocking twins. ``null`` and ``unknown`` mark messages with MPI_PROC_NULL, and those whose
    partner is no rank of the run or whose partner or tag was never known.
    """

    role: NDArray[np.uint8]
    op: NDArray[np.int32]
    names: tuple[str, ...]
    comm: NDArray[np.int32]
    way: NDArray[np.int32]
    way_peer: Ints
    way_label: Ints
    matched_probe: Bools
    matched_recv: Bools
    sendrecv_recv: Bools
    null: Bools
    unknown: Bools
    finalize: Bools


def call_table(calls: Iterable[Call], size: int) -> CallTable:
    """Return the columns of a run's calls; ``size`` is the number of its ranks."""
    calls = tuple(calls)
    number: dict[str, int] = {}
    op_of = _column((number.setdefault(call.op, len(number)) for call in calls), len(calls))
    names = list(number)

    def marked(chosen: frozenset[str]) -> Bools:
        return np.array([name in chosen for name in names] or [False])[op_of]

    role = np.array([role_of(name) for name in names] or [0], dtype=np.uint8)[op_of]
    blocking: dict[str, int] = {}
    twin = [blocking.setdefault(ops.blocking_of(name), len(blocking)) for name in names]
    peer = _column((call.peer for call in calls), len(calls))
    comm = _column((call.comm for call in calls), len(calls))
    tag = _column((call.tag for call in calls), len(calls))
    probes = marked(_MATCHED_PROBES)
    message = ((role >= SEND) & (role <= POSTED_RECV)) | probes
    receives = (role == RECV) | (role == POSTED_RECV)
    vague = receives & (tag < 0)  # MPI_ANY_TAG, and not known what it received
    partner_known = message & (peer >= 0) & (peer < size) & ~vague
    way = np.full(len(calls), -1, dtype=np.int32)
    rows = np.flatnonzero(partner_known)
    _, label = np.unique(comm[rows] << 32 | tag[rows] & 0xFFFFFFFF, return_inverse=True)
    distinct, inverse = np.unique(label * size + peer[rows], return_inverse=True)
    way[rows] = inverse
    return CallTable(
        role,
        np.array(twin or [0], dtype=np.int32)[op_of],
        tuple(blocking),
        comm.astype(np.int32),
        way,
        distinct % size,
        distinct // size,
        probes,
        marked(_MATCHED_RECVS),
        marked(frozenset({ops.SENDRECV_RECV})),
        message & (peer == PROC_NULL) & ~probes,
        message & ~partner_known & (peer != PROC_NULL) & ~probes,
        marked(frozenset({"MPI_Finalize"})),
    )


def _column(values: Iterable[int], length: int) -> Ints:
    return np.fromiter(values, dtype=np.int64, count=length)


def posting_order(trace: RankTrace, table: CallTable) -> Ints | None:
    """Return a number for each event by which posts are ordered, or None for program order.

    Events are numbered as calls return. A rank with several threads is therefore ordered by the
    beginning of its calls, and what MPI_Mprobe took out of the queue counts from then, not from
    the MPI_Mrecv that fetches it; the k-th fetches the k-th of the same peer, tag and communicator.
    """
    call, order = trace.call, None
    if trace.thread is not None:
        start = trace.start_ns.copy()
        halves = np.flatnonzero(table.sendrecv_recv[call])
        halves = halves[halves > 0]
        start[halves] = start[halves - 1]
        order = np.empty(len(call), dtype=np.int64)
        order[np.argsort(start, kind="stable")] = np.arange(len(call))
    fetched = table.matched_recv[call] if table.matched_recv.any() else None
    if fetched is None or not fetched.any():
        return order
    if order is None:
        order = np.arange(len(call), dtype=np.int64)
    sides = []
    for chosen in (fetched, table.matched_probe[call]):
        at = np.flatnonzero(chosen & (table.way[call] >= 0))
        at = at[np.lexsort((order[at], table.way[call[at]]))]
        way = table.way[call[at]]
        turn = np.arange(len(at)) - np.searchsorted(way, way)
        sides.append((at, way.astype(np.int64) << 32 | turn))
    (fetches, fetch_keys), (probes, probe_keys) = sides
    _, mine, theirs = np.intersect1d(
        fetch_keys, probe_keys, assume_unique=True, return_indices=True
    )
    order[fetches[mine]] = order[probes[theirs]]
    return order


def completions(trace: RankTrace) -> NDArray[np.int32]:
    """Return for each event of a rank the index of the event that completed its request, or -1.

    A blocking call completes itself; a cancelled request is completed, but nothing arrived.
    """
    completed_by = np.full(len(trace.call), -1, dtype=np.int32)
    completed_by[trace.done[:, 1]] = trace.done[:, 0]
    return completed_by


Edge = tuple[int, int]
#: Up to so many things the best order is found exactly.
_EXACT_ORDER = 10


def least_backward(nodes: Sequence[int], weight: Mapping[Edge, int]) -> list[int]:
    """Return an order of nodes in which few pairs (a, b) of weight have a behind b.

    Exact for few nodes; for more the best of several local searches, of which the given order
    is a start and decides ties.
    """
    start = list(nodes)
    if len(start) <= _EXACT_ORDER:
        return _exact_order(start, weight)
    net = dict.fromkeys(start, 0)
    for (a, b), k in weight.items():
        net[a] += k
        net[b] -= k
    tries = [
        _local_order(order, weight)
        for order in (start, start[::-1], sorted(start, key=lambda v: -net[v]))
    ]
    return min(tries, key=lambda t: t[0])[1]


def _exact_order(nodes: list[int], weight: Mapping[Edge, int]) -> list[int]:
    """Return the order with the least weight backward (dynamic programming over subsets)."""
    size = len(nodes)
    # cost[i][j]: weight of the transitions from j to i, backward when i is placed before j
    cost = [[weight.get((b, a), 0) for b in nodes] for a in nodes]
    best: list[tuple[int, int]] = [(0, -1)] * (1 << size)
    for chosen in range(1, 1 << size):
        options = []
        for i in range(size):
            if chosen >> i & 1:
                before = chosen & ~(1 << i)
                back = sum(cost[j][i] for j in range(size) if before >> j & 1)
                options.append((best[before][0] + back, -i))
        total, last = min(options)
        best[chosen] = (total, -last)
    order = []
    remaining = (1 << size) - 1
    while remaining:
        last = best[remaining][1]
        order.append(nodes[last])
        remaining &= ~(1 << last)
    return order[::-1]


def _local_order(order: list[int], weight: Mapping[Edge, int]) -> tuple[int, list[int]]:
    """Return an order that no move of a single node improves, with its backward weight."""
    into = dict.fromkeys(order, 0)
    # What it costs v more to stand behind u than before it; all others leave the cost as it is.
    behind: dict[int, dict[int, int]] = {v: {} for v in order}
    for (a, b), k in weight.items():
        if a != b:
            into[b] += k
            behind[a][b] = behind[a].get(b, 0) + k
            behind[b][a] = behind[b].get(a, 0) - k
    place = {v: k for k, v in enumerate(order)}
    for _ in range(len(order)):
        moved = False
        for v in list(order):
            at = place[v]
            # Cost of v at place 0: everything that leads to v comes from behind it.
            cost = best = current_cost = into[v]
            where = 0
            for k, change in sorted(
                (place[u] - (place[u] > at), change) for u, change in behind[v].items()
            ):
                cost += change
                if k < at:
                    current_cost = cost
                if cost < best:
                    best, where = cost, k + 1
            if best < current_cost:
                order = order[:at] + order[at + 1 :]
                order.insert(where, v)
                place = {v: k for k, v in enumerate(order)}
                moved = True
        if not moved:
            break
    return sum(k for (a, b), k in weight.items() if place[a] > place[b]), order
