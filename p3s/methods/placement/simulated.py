"""Times of phases by the dependency simulation: messages that share the links they pass.

Every rank posts its receives and sends in the order of the traffic, and waits for all of them.
"""

from __future__ import annotations

import numpy as np

from p3s.base.arrays import Ints
from p3s.machine.topology.fabric import Fabric
from p3s.methods.placement.features import check_ranks
from p3s.methods.placement.phases import Traffic
from p3s.predict.estimators.settings import on_wires, wired_on
from p3s.program.mapping import RankMap
from p3s.simulate.network import Network
from p3s.simulate.simulate import simulate
from p3s.simulate.steps import Op, Steps


def simulated_seconds(traffic: Traffic, placed: RankMap, fabric: Fabric, network: Network) -> float:
    """Return how long a phase takes on a network, until its last rank is done.

    ``network``: what messages cost. Errors: P3SError for nodes that the network does not have.
    """
    check_ranks(traffic, placed)
    if not len(traffic):
        return 0.0
    there = wired_on(fabric, placed)
    times = simulate(
        steps_of(traffic), placed.node_of, on_wires(network, there), distance=there.distance
    )
    return float(times.end_ns.max()) * 1e-9


def steps_of(traffic: Traffic) -> Steps:
    """Return what the ranks of a phase do."""
    row = np.repeat(np.arange(len(traffic)), traffic.messages)
    source, dest, nbytes = (x[row] for x in (traffic.source, traffic.dest, traffic.nbytes))
    number, ranks = len(row), traffic.ranks
    message = np.arange(number)
    # Of each rank its receives and sends in the order of messages, then the wait for all.
    rank = np.concatenate([dest, source, np.arange(ranks)])
    place = np.concatenate([2 * message, 2 * message + 1, np.full(ranks, 2 * number)])
    order = np.lexsort((place, rank))
    at = np.empty(len(order), dtype=np.int64)
    at[order] = np.arange(len(order))
    receive, send, wait = at[:number], at[number : 2 * number], at[2 * number :]
    total = len(order)

    def column(default: int, *given: tuple[Ints, Ints | int]) -> Ints:
        values = np.full(total, default, dtype=np.int64)
        for where, what in given:
            values[where] = what
        return values

    requests = np.bincount(rank[: 2 * number], minlength=ranks)
    done_count = column(0, (wait, requests))
    is_request = np.ones(total, dtype=bool)
    is_request[wait] = False
    nothing, zeros = column(-1), column(0)
    return Steps(
        n=ranks,
        ranks=np.arange(ranks),
        start=np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(requests + 1)]),
        op=column(int(Op.WAIT), (receive, int(Op.IRECV)), (send, int(Op.ISEND))),
        peer=column(-1, (receive, source), (send, dest)),
        tag=column(-1, (receive, 0), (send, 0)),
        comm=zeros,
        bytes=column(0, (receive, nbytes), (send, nbytes)),
        peer2=nothing,
        tag2=nothing,
        bytes2=zeros,
        call=column(2, (receive, 0), (send, 1)),
        work_ns=np.zeros(total),
        number=done_count,
        row=nothing,
        weight=np.ones(total),
        turn=zeros,
        done_start=np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(done_count)]),
        done=np.flatnonzero(is_request),
        to=column(-1, (send, receive)),
        source=column(-1, (receive, send)),
        calls=("MPI_Irecv", "MPI_Isend", "MPI_Waitall"),
        members={0: np.arange(ranks)},
    )
