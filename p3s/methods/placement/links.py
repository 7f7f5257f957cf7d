"""Features of the links that messages pass: how far they go, what links and queues hold.

Equations (1) to (6) and outliers of Jain et al., "Predicting application performance
using supervised learning on communication features", SC13. On a torus or mesh, links are those
between nodes, each direction its own, and a message inside a node goes 0 of them; on networks of
switches, links of nodes count, too.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from p3s.base.arrays import Bools, Floats, Ints
from p3s.machine.topology.direct import Torus
from p3s.machine.topology.fabric import Fabric
from p3s.methods.placement.phases import NodeTraffic, Traffic, between_nodes
from p3s.program.mapping import RankMap

#: Share of the largest value from which one is among the top ones.
_TOP = 0.95


def above_average(values: Floats, weights: Floats | Ints | None = None) -> Bools:
    """Return which values are above the mean (AO); ``weights``: how often each is there."""
    if not len(values) or not values.min() < values.max():
        return np.zeros(len(values), dtype=bool)  # a mean that is rounded tells equal ones apart
    return np.asarray(values > np.average(values, weights=weights), dtype=bool)


def near_largest(values: Floats) -> Bools:
    """Return which values are within 5 % of the largest (TO)."""
    if not len(values):
        return np.zeros(0, dtype=bool)
    return np.asarray(values >= _TOP * values.max(), dtype=bool)


def mean_of(values: Floats, chosen: Bools) -> float:
    """Return the mean of the chosen values, 0 where there are none."""
    return float(values[chosen].mean()) if chosen.any() else 0.0


@dataclass(frozen=True, eq=False)
class Paths(NodeTraffic):
    """Traffic between nodes of a network, by their numbers there; ``dilation``: links it passes."""

    dilation: Ints


def network_links(fabric: Fabric) -> Bools:
    """Return which directed links features are of."""
    return fabric.between_switches if isinstance(fabric, Torus) else fabric.used


def paths(traffic: Traffic, placed: RankMap, fabric: Fabric) -> Paths:
    """Return the messages between nodes, those inside nodes included.

    Nodes are those of the network that the placement names (in order where it names none). Errors:
    P3SError for a node that the network does not have, or a placement of other ranks.
    """
    messages = between_nodes(traffic, placed, fabric.numbers(placed.names))
    passed = fabric.distances(messages.source, messages.dest) + (
        -1 if isinstance(fabric, Torus) else 1
    )
    return Paths(**vars(messages), dilation=np.where(messages.source == messages.dest, 0, passed))


def link_bytes(routes: Paths, fabric: Fabric) -> Floats:
    """Return what each of the network's links carries, (6) before its maximum."""
    loads = fabric.loads(routes.source, routes.dest, routes.nbytes)
    return np.asarray(loads[network_links(fabric)], dtype=np.float64)


def prior_metrics(routes: Paths, fabric: Fabric) -> dict[str, float]:
    """Return equations (1) to (6): how far messages go, in links, and what links carry, in bytes.

    Averages over nothing are 0.
    """
    hop_bytes = float((routes.dilation * routes.nbytes).sum())
    number, volume = float(routes.messages.sum()), float(routes.nbytes.sum())
    loads = link_bytes(routes, fabric)
    return {
        "max dilation": float(routes.dilation.max(initial=0)),
        "avg dilation": float((routes.dilation * routes.messages).sum()) / (number or 1.0),
        "hop-bytes": hop_bytes,
        "hops per byte": hop_bytes / (volume or 1.0),
        "avg bytes": hop_bytes / (len(loads) or 1),
        "max bytes": float(loads.max(initial=0.0)),
    }


def queues(routes: Paths, fabric: Fabric) -> Ints:
    """Return in which of its node's injection queues the messages of each row wait, numbered.

    On a torus or mesh a node has one for each direction, chosen by the dimension in which a message
    has farthest to go, the first of several; elsewhere it has one.
    """
    if not isinstance(fabric, Torus):
        return routes.source
    steps = np.stack(
        [fabric.steps(d, routes.source, routes.dest) for d in range(len(fabric.dims))], axis=1
    )
    dimension = np.abs(steps).argmax(axis=1)
    down = np.take_along_axis(steps, dimension[:, None], axis=1)[:, 0] < 0
    queue = (routes.source * len(fabric.dims) + dimension) * 2 + down
    return np.asarray(queue, dtype=np.int64)


def longest_queue(routes: Paths, fabric: Fabric) -> float:
    """Return the most messages in one injection queue (max FIFO); none inside a node is in one."""
    out = routes.source != routes.dest
    if not out.any():
        return 0.0
    _, place = np.unique(queues(routes, fabric)[out], return_inverse=True)
    return float(np.bincount(place.ravel(), weights=routes.messages[out]).max())


def link_features(traffic: Traffic, placed: RankMap, fabric: Fabric) -> dict[str, float]:
    """Return all features of links, queues and distances.

    Errors: P3SError for a node that the network does not have.
    """
    routes = paths(traffic, placed, fabric)
    values = prior_metrics(routes, fabric)
    values |= outliers("avg bytes", link_bytes(routes, fabric)) | _distances(routes, fabric)
    values["max FIFO"] = longest_queue(routes, fabric)
    return values


def outliers(name: str, values: Floats) -> dict[str, float]:
    """Return the means of what is above the average, and near the largest."""
    return {
        f"{name} AO": mean_of(values, above_average(values)),
        f"{name} TO": mean_of(values, near_largest(values)),
    }


def _distances(routes: Paths, fabric: Fabric) -> dict[str, float]:
    """Return sums over the messages, and over the nodes, that are farther than the average.

    The source says "sum of dilations for messages in the average outlier set" in one place (sum
    dilation AO, sum hops AO), "sum of maximum dilation" in another (sum maxdil AO, of nodes).
    """
    far = routes.dilation.astype(np.float64)
    out = above_average(far, routes.messages)
    over = float((far * routes.messages)[out].sum())
    farthest = np.zeros(fabric.nodes)
    np.maximum.at(farthest, routes.source, far)
    nodes = farthest[above_average(farthest)]
    return {"sum dilation AO": over, "sum hops AO": over, "sum maxdil AO": float(nodes.sum())}
