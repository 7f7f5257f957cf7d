"""The costs of messages on a network whose form is known: distances, and links that are shared."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from p3s.base.arrays import Ints
from p3s.base.errors import P3SError
from p3s.base.text import figures
from p3s.machine.topology.fabric import Fabric
from p3s.program.mapping import RankMap
from p3s.simulate.network import Curve, Network, Path
from p3s.simulate.switch_links import ANSWERS, LEAST_PAYLOAD, Wires

_BITS = 8.0


@dataclass(frozen=True)
class Wired:
    """A network, and which of its nodes each node of a run is; ``distance``: nodes x nodes."""

    fabric: Fabric
    node: Ints
    distance: Ints


def wired(told: str, mapping: RankMap, hosts: Sequence[str] = ()) -> Wired:
    """Return the network of a file or a short description, with the nodes of a run on it.

    ``hosts``: names of its nodes, in order, where it has none.
    """
    from p3s.machine.topology.read import named, read_fabric

    fabric = read_fabric(told, max(mapping.nodes, len(hosts)))
    return wired_on(named(fabric, hosts), mapping)


def wired_on(fabric: Fabric, mapping: RankMap) -> Wired:
    """Return a network with the nodes of a run on it. Errors: P3SError for hosts it has not."""
    from p3s.machine.topology.read import node_numbers

    told, node = fabric.about.source, node_numbers(fabric, mapping.names)
    if len(set(node.tolist())) < len(node):
        raise P3SError(f"{told}: two nodes of the run are one of the network; correct the hosts")
    size = len(node)
    far = fabric.distances(np.repeat(node, size), np.tile(node, size)).reshape(size, size)
    return Wired(fabric, node, far)


def on_wires(network: Network, there: Wired, hosts: Collection[str] = ()) -> Network:
    """Return costs of messages with the distances and the shared links of a network.

    ``hosts``: where the costs were measured, if that was between two; else at the least distance.
    """
    about = there.fabric.about
    stated = there.fabric.rate * _payload(network, there)
    rate = np.where(np.isnan(stated), network.rate, stated)
    wires = Wires(there.fabric, tuple(there.node.tolist()), tuple(rate.tolist()))
    paths = network.paths
    if about.extra.known:
        paths = _by_distance(network, there, _measured_at(there, hosts))
    back = ANSWERS if about.fair else 0.0
    return replace(network, paths=paths, trunks=None, wires=wires, fair=about.fair, back=back)


def _payload(network: Network, there: Wired) -> float:
    """Return which share of a cable's stated speed is left for messages.

    What a node's link was measured to carry, over what is stated for it: headers take the rest.
    Far less than stated means that something else is the limit, and says nothing of headers.
    """
    stated = float(there.fabric.rate[: there.fabric.nodes].max(initial=0.0))
    share = network.rate / stated if stated > 0 else 1.0
    return share if LEAST_PAYLOAD <= share < 1 else 1.0


def _measured_at(there: Wired, hosts: Collection[str]) -> int:
    """Return how far two hosts are apart; the least distance where the network has them not."""
    from p3s.machine.topology.read import node_numbers

    known = set(there.fabric.about.hosts)
    pair = sorted(set(hosts))
    if len(pair) > 1 and known.issuperset(pair):
        numbers = node_numbers(there.fabric, pair[:2])
        return int(there.fabric.distances(numbers[:1], numbers[1:2])[0])
    return _least(there)


def _least(there: Wired) -> int:
    """Return how far the nearest nodes of the network are apart, whichever of them the run has."""
    every = np.arange(there.fabric.nodes)
    far = there.fabric.distances(np.full(len(every), there.node[0]), every)
    return int(far[far > 0].min()) if (far > 0).any() else 1


def _by_distance(network: Network, there: Wired, measured: int) -> dict[int, Path]:
    """Return the path for each distance: the measured one, and time for further switches."""
    base, extra = network.path(1), there.fabric.about.extra
    longer = Curve(extra.nbytes, extra.ns)
    paths = {0: network.path(0)}
    for distance in np.unique(there.distance[there.distance > 0]).tolist():
        sizes = tuple(sorted({*base.transfer.nbytes, *longer.nbytes}))
        more = (distance - measured) * longer.at(sizes)
        ns = np.maximum(base.transfer.at(sizes) + more, 0.0)
        paths[distance] = replace(base, transfer=Curve(sizes, tuple(ns.tolist())))
    return paths


def said_of(there: Wired, network: Network) -> list[str]:
    """Return what a prediction says of the network it is for, a line each."""
    fabric, about = there.fabric, there.fabric.about
    stated = fabric.rate[fabric.nodes :]
    between = np.where(np.isnan(stated), network.rate, stated)
    speeds = sorted({float(rate) for rate in between if math.isfinite(rate)})
    what = "share its rate" if about.fair else "pass one after the other"
    found = [
        f"links between switches: {fabric.text}, {_speed(speeds)}; messages on one link {what}"
    ]
    if np.isnan(fabric.rate[fabric.nodes :]).any():
        found.append(
            f"{about.source} does not say what links between switches carry: taken to be "
            f"{_speed([network.rate])}, what the link of a node does"
        )
    if not about.extra.known and int(there.distance.max()) > _nearest(there):
        found.append(
            f"{about.source} does not say how much longer messages take for each further switch: "
            "taken to be nothing"
        )
    return [*found, *about.notes]


def _nearest(there: Wired) -> int:
    apart = there.distance[there.distance > 0]
    return int(apart.min()) if len(apart) else 0


def _speed(rates: Sequence[float]) -> str:
    if not rates or not math.isfinite(rates[-1]):
        return "no limit"
    ends = dict.fromkeys(figures(_BITS * rate) for rate in (rates[0], rates[-1]))
    return f"{' to '.join(ends)} Gbit/s each way"
