"""What the dependency simulation says of phases: their times, and packets that wait at links.

Every rank posts its receives and sends in the order of the traffic, and waits for all of them.
"""

from __future__ import annotations

import numpy as np

from p3s.base.arrays import Floats, Ints
from p3s.machine.topology.fabric import Fabric, loads
from p3s.methods.placement.links import mean_of, network_links, outliers
from p3s.methods.placement.phases import Traffic, sums
from p3s.predict.estimators.settings import on_wires, wired_on
from p3s.program.mapping import RankMap
from p3s.simulate.network import Network
from p3s.simulate.simulate import simulate
from p3s.simulate.steps import Op, Steps

#: The feature that is a time, in seconds.
SIMULATED = "simulated"
#: Bytes of a packet (SC13, section 3.1).
_PACKET = 512


def simulated_features(
    traffic: Traffic, placed: RankMap, fabric: Fabric, network: Network
) -> dict[str, float]:
    """Return how long a phase takes until its last rank is done, and what waits at links.

    ``network``: what messages cost. Links: packets in their buffers (avg buffer), and these as a
    share of those that they receive (avg delay), over the links that other features are of.
    Errors: P3SError for nodes that the network does not have.
    """
    wired = wired_on(fabric, placed)
    costs = on_wires(network, wired)
    steps = steps_of(traffic)
    times = simulate(steps, placed.node_of, costs, distance=wired.distance)
    sends = np.flatnonzero(steps.is_op(Op.ISEND))
    first, second = placed.node_of[steps.rank[sends]], placed.node_of[steps.peer[sends]]
    far = wired.distance[first, second]
    latency = np.zeros(len(far))
    for distance in np.unique(far).tolist():
        latency[far == distance] = costs.path(distance).transfer.at(0.0)
    begin = times.began_ns[sends]
    end = np.maximum(times.arrival_ns[sends] - latency, begin)
    ends = wired.node[first], wired.node[second]
    received, buffered = link_counters(fabric, *ends, steps.bytes[sends], begin, end)
    trunk_links = network_links(fabric)
    buffer, delay = buffered[trunk_links], (buffered / np.maximum(received, 1.0))[trunk_links]
    seconds = float(times.end_ns.max()) * 1e-9 if len(traffic) else 0.0
    features = {SIMULATED: seconds, "avg buffer": mean_of(buffer, buffer >= 0)}
    return features | outliers("avg buffer", buffer) | outliers("avg delay", delay)


def link_counters(
    fabric: Fabric, first: Ints, second: Ints, nbytes: Ints, begin: Floats, end: Floats
) -> tuple[Floats, Floats]:
    """Return the packets that each directed link receives, and those that wait in its buffers.

    ``first``, ``second``: nodes of messages, ``begin``, ``end``: when each is on all of its way.
    Packets wait behind a link while the next one of their way also has messages by other links.
    """
    ways = fabric.routes(first, second)
    packets = np.maximum(-(-nbytes // _PACKET), 1)
    received = loads(ways, packets, fabric.links)
    message = ways.message
    hop = np.flatnonzero(message[:-1] == message[1:])
    link, following, message = ways.link[hop], ways.link[hop + 1], message[hop]
    size, lasts = len(hop), (end - begin)[message]
    time = np.concatenate([begin[message], end[message]])
    step = np.repeat([1, -1], size)
    # When links begin and end to have messages for the one that follows.
    pair = np.tile(following * fabric.links + link, 2)
    order, active = _sort_events(pair, time, step)
    edge = order[(active == 0) | ((active == 1) & (step[order] > 0))]
    owner = np.concatenate([pair[edge] // fabric.links, np.tile(following, 2)])
    at = np.concatenate([time[edge], time])
    order, active = _sort_events(owner, at, np.append(step[edge], np.zeros_like(step)))
    clock = np.empty(len(at))  # how long links have had messages by several, until each event
    clock[order] = np.cumsum(np.diff(at[order], prepend=0.0) * (np.roll(active, 1) > 1))
    waits = clock[len(at) - size :] - clock[len(edge) : len(at) - size]
    share = np.divide(waits, lasts, out=np.zeros(size), where=lasts > 0)
    return received, sums(link, packets[message] * share, fabric.links)


def _sort_events(owner: Ints, time: Floats, step: Ints) -> tuple[Ints, Ints]:
    """Return the order of events by owner and time, and how many spans go on after each."""
    order = np.lexsort((-step, time, owner))
    return order, np.cumsum(step[order])


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

    def column(default: int, *assignments: tuple[Ints, Ints | int]) -> Ints:
        values = np.full(total, default, dtype=np.int64)
        for where, value in assignments:
            values[where] = value
        return values

    requests = np.bincount(rank[: 2 * number], minlength=ranks)
    done_count = column(0, (wait, requests))
    is_request = np.ones(total, dtype=bool)
    is_request[wait] = False
    absent, zeros = column(-1), column(0)
    return Steps(
        n=ranks,
        ranks=np.arange(ranks),
        start=np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(requests + 1)]),
        op=column(int(Op.WAIT), (receive, int(Op.IRECV)), (send, int(Op.ISEND))),
        peer=column(-1, (receive, source), (send, dest)),
        tag=column(-1, (receive, 0), (send, 0)),
        comm=zeros,
        bytes=column(0, (receive, nbytes), (send, nbytes)),
        peer2=absent,
        tag2=absent,
        bytes2=zeros,
        call=column(2, (receive, 0), (send, 1)),
        work_ns=np.zeros(total),
        number=done_count,
        row=absent,
        weight=np.ones(total),
        turn=zeros,
        done_start=np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(done_count)]),
        done=np.flatnonzero(is_request),
        to=column(-1, (send, receive)),
        source=column(-1, (receive, send)),
        calls=("MPI_Irecv", "MPI_Isend", "MPI_Waitall"),
        members={0: np.arange(ranks)},
    )
