"""What messages cost: without learning, and measured as the simulation takes it.

Without learning a phase takes as long as the rank that needs the longest for what it sends: alpha
for each of its messages, beta for each byte (Hockney), gamma for each further switch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from p3s.base.arrays import Floats, Ints
from p3s.base.errors import P3SError
from p3s.machine.topology.fabric import Fabric
from p3s.methods.placement.lines import fit_nonnegative
from p3s.methods.placement.links import paths
from p3s.methods.placement.phases import Traffic, sums, traffic
from p3s.program.mapping import RankMap
from p3s.simulate.network import Curve, Network, Path, line


@dataclass(frozen=True)
class Hockney:
    """Seconds of a message, of a byte, and of each switch after the first."""

    alpha: float
    beta: float
    gamma: float = 0.0


def fit_ping_pong(nbytes: Floats, seconds: Floats) -> Hockney:
    """Return latency and time of a byte from times of single messages, relative errors small.

    Neither is below 0. Errors: P3SError with fewer than two sizes.
    """
    if len(np.unique(nbytes)) < 2:
        raise P3SError("times of messages of one size tell no bandwidth; measure several sizes")
    sizes = {"nbytes": np.asarray(nbytes, dtype=np.float64)}
    alpha, beta = fit_nonnegative([(), ("nbytes",)], sizes, seconds).coefficients
    return Hockney(alpha, beta)


def seconds_of(model: Hockney, traffic: Traffic, placed: RankMap, fabric: Fabric) -> float:
    """Return the time of a phase. Errors: P3SError for nodes that the network does not have."""
    routes = paths(traffic, placed, fabric)
    further = np.maximum(fabric.distances(routes.source, routes.dest) - 1, 0)[routes.row]
    each = traffic.messages * (model.alpha + model.gamma * further) + model.beta * traffic.volume
    return float(sums(traffic.source, each, traffic.ranks).max(initial=0.0))


#: Messages that follow each other in a stream.
STREAM = 17
#: A message keeps a link longer than its bytes do if it is by this much.
_KEEPS = 1.02
#: Messages to other nodes at the same time, which tell what a node's link carries.
_FAN, _FAN_SIZES = 8, 2


#: Stands for the distance of messages from one node to several others.
FAN = -1


@dataclass(frozen=True)
class Probe:
    """Messages between two ranks: ``number`` of ``nbytes`` bytes, one after the other.

    ``distance``: switches between them, 0 inside a node; FAN: from one node to as many others.
    """

    distance: int
    nbytes: int
    number: int


@dataclass(frozen=True)
class Pair:
    """A node of a network and others (the same one: two ranks of it), and how far they are."""

    first: int
    others: tuple[int, ...]
    distance: int


def pairs_of(nodes: Ints, fabric: Fabric, slots: int) -> list[Pair]:
    """Return two of some nodes of a network for each distance that there is, the nearest first.

    Inside a node only where it has two slots.
    """
    far = fabric.distances(np.full(len(nodes), nodes[0]), nodes)
    first = int(nodes[0])
    pairs = [Pair(first, (first,), 0)] if slots > 1 else []
    for distance in np.unique(far[1:]).tolist():
        pairs.append(Pair(first, (int(nodes[far == distance][-1]),), int(distance)))
    nearest = nodes[1:][np.argsort(far[1:], kind="stable")][:_FAN]
    return [*pairs, Pair(first, tuple(nearest.tolist()), FAN)] if len(nearest) > 1 else pairs


def probes(pairs: Sequence[Pair], sizes: Sequence[int]) -> list[Probe]:
    """Return single messages for all pairs, and streams for the nearest of both kinds."""
    single = [pair for pair in pairs if pair.distance != FAN]
    probes_made = [Probe(pair.distance, size, 1) for pair in single for size in sizes]
    near = [pair for pair in single if pair.distance == 0]
    near += [pair for pair in single if pair.distance > 0][:1]
    probes_made += [Probe(pair.distance, size, STREAM) for pair in near for size in sizes]
    fans = [pair for pair in pairs if pair.distance == FAN]
    large = sizes[-_FAN_SIZES:]
    return probes_made + [Probe(FAN, size, len(pair.others)) for pair in fans for size in large]


def traffic_of(probe: Probe, pair: Pair, nodes: Ints, slots: int) -> Traffic:
    """Return the traffic of a probe between ranks that fill these nodes one after the other."""
    source = int(np.searchsorted(nodes, pair.first)) * slots
    dest = np.searchsorted(nodes, np.array(pair.others)) * slots
    dest[dest == source] += 1
    each = probe.number if len(dest) == 1 else 1
    return traffic(slots * len(nodes), np.full(len(dest), source), dest, probe.nbytes, each)


def network_of(times: Mapping[Probe, float], source: str) -> Network:
    """Return what messages cost, from what probes took in seconds."""
    distances = sorted({probe.distance for probe in times} - {FAN})
    links = [distance for distance in distances if distance > 0]
    near = links[0] if links else 0
    sizes, alone = _curve(times, near, 1)
    gap = (_curve(times, near, STREAM)[1] - alone) / (STREAM - 1)
    call = max(float(gap[0]), 0.0) / 2
    single = float(sizes[-1] / gap[-1]) if gap[-1] > 0 else np.inf
    rate = max(single, _fan_rate(times))
    keeps = np.where(gap > _KEEPS * sizes / single, gap * single / rate, 0.0)
    busy = Curve(tuple(sizes), tuple(np.maximum(keeps, 0.0)))
    paths = {}
    for distance in distances or [0]:
        nbytes, ns = _curve(times, distance, 1)
        transfer = Curve(tuple(nbytes), tuple(np.maximum.accumulate(np.maximum(ns - call, 0.0))))
        call_curve = line(call)
        paths[distance] = Path(transfer, call_curve, call_curve, np.inf, distance > 0, busy)
    if 0 not in paths:
        paths[0] = Path(paths[near].transfer, line(call), line(call), np.inf, False)
    return Network(paths, rate=rate, source=source)


def _fan_rate(times: Mapping[Probe, float]) -> float:
    """Return bytes per ns that leave a node for several others, 0 where that was not measured."""
    fans = sorted((p.nbytes * p.number, ns * 1e9) for p, ns in times.items() if p.distance == FAN)
    if len(fans) < _FAN_SIZES:
        return 0.0
    (less, early), (more, late) = fans[0], fans[-1]
    return (more - less) / (late - early) if late > early else 0.0


def hockney_of(times: Mapping[Probe, float], network: Network) -> Hockney:
    """Return latency and bandwidth of single messages between the nearest nodes, and per switch.

    gamma: what the smallest message takes longer for each further switch.
    """
    distances = sorted({probe.distance for probe in times if probe.distance > 0})
    if not distances:
        distances = [0]
    sizes, ns = _curve(times, distances[0], 1)
    fitted = fit_ping_pong(sizes, ns * 1e-9)
    gamma = 0.0
    if len(distances) > 1:
        last = _curve(times, distances[-1], 1)[1]
        gamma = max(float(last[0] - ns[0]), 0.0) / (distances[-1] - distances[0]) * 1e-9
    return Hockney(fitted.alpha, fitted.beta, gamma)


def _curve(times: Mapping[Probe, float], distance: int, number: int) -> tuple[Floats, Floats]:
    """Return sizes and ns of probes."""
    points = sorted(
        (probe.nbytes, seconds * 1e9)
        for probe, seconds in times.items()
        if probe.distance == distance and probe.number == number
    )
    table = np.array(points, dtype=np.float64).reshape(-1, 2)
    return table[:, 0], table[:, 1]
