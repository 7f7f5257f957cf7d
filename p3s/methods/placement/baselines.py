"""What messages cost without learning: latency and bandwidth, distance, and what is shared.

The time of a phase is that of the rank that needs the longest for what it sends: alpha for each of
its messages, beta for each byte (Hockney), gamma for each further switch. Penalties after the
ideas of Gahvari et al. (2011), whose formulas the source of the comparison (Papadopoulou 2017) does
not print: ranks of a node that send at the same time share its latency, messages on a link share
its bandwidth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from p3s.base.arrays import Floats
from p3s.base.errors import P3SError
from p3s.machine.topology.fabric import Fabric
from p3s.methods.placement.lines import fit_nonnegative
from p3s.methods.placement.links import Paths, paths
from p3s.methods.placement.phases import Traffic, sums
from p3s.methods.placement.ranking import agreement
from p3s.program.mapping import RankMap


@dataclass(frozen=True)
class Hockney:
    """Seconds of a message, of a byte, and of each switch after the first.

    ``shared_latency``: alpha and gamma times the ranks of the node that send out of it.
    ``shared_links``: a rank's bytes take as long as all bytes on the busiest link that they pass.
    """

    alpha: float
    beta: float
    gamma: float = 0.0
    shared_latency: bool = False
    shared_links: bool = False

    @property
    def name(self) -> str:
        """How the source writes it: p for what has a penalty."""
        first = "alpha_p" if self.shared_latency else "alpha"
        second = "beta_p" if self.shared_links else "beta"
        return "-".join([first, second, *(["gamma"] if self.gamma else [])])


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
    found = paths(traffic, placed, fabric)
    apart = found.source != found.dest
    sharers = _senders(traffic, placed) if model.shared_latency else np.ones(placed.nodes)
    each = np.where(apart[found.row], sharers[placed.node_of[traffic.source]], 1.0)
    further = np.maximum(fabric.distances(found.source, found.dest) - 1, 0)[found.row]
    latency = traffic.messages * each * (model.alpha + model.gamma * further)
    data = sums(traffic.source, traffic.volume, traffic.ranks)
    if model.shared_links and len(traffic):
        np.maximum.at(data, traffic.source, _busiest(found, fabric)[found.row])
    whole = sums(traffic.source, latency, traffic.ranks) + model.beta * data
    return float(whole.max(initial=0.0))


def variants(model: Hockney) -> list[Hockney]:
    """Return the model and its forms with penalties, with and without distance where it has one."""
    found = [
        replace(model, shared_latency=latency, shared_links=links)
        for latency in (False, True)
        for links in (False, True)
    ]
    return found + ([replace(each, gamma=0.0) for each in found] if model.gamma else [])


def best_variant(
    model: Hockney, phases: Sequence[tuple[Traffic, RankMap]], seconds: Floats, fabric: Fabric
) -> Hockney:
    """Return the form of a model whose mean relative error on measured phases is the smallest."""
    return min(
        variants(model),
        key=lambda each: (
            agreement(seconds, np.array([seconds_of(each, *p, fabric) for p in phases])).mmre
        ),
    )


def _senders(traffic: Traffic, placed: RankMap) -> Floats:
    """Return how many ranks of each node send out of it."""
    out = placed.node_of[traffic.source] != placed.node_of[traffic.dest]
    return np.bincount(
        placed.node_of[np.unique(traffic.source[out])], minlength=placed.nodes
    ).astype(np.float64)


def _busiest(found: Paths, fabric: Fabric) -> Floats:
    """Return the bytes on the busiest link of each two nodes' way, nodes' links included.

    A link that is twice as fast as nodes' links counts half.
    """
    loads = fabric.loads(found.source, found.dest, found.nbytes)
    own = np.repeat(fabric.rate, 2)
    node = own[: 2 * fabric.nodes]
    usual = float(node[np.isfinite(node)].min()) if np.isfinite(node).any() else np.nan
    loads = loads * np.nan_to_num(usual / own, nan=1.0)
    routes = fabric.routes(found.source, found.dest)
    busiest = np.zeros(len(found.source))
    np.maximum.at(busiest, routes.message, loads[routes.link])
    return busiest
