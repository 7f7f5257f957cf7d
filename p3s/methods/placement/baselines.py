"""What messages cost without learning: latency, bandwidth, and distance.

The time of a phase is that of the rank that needs the longest for what it sends: alpha for each of
its messages, beta for each byte (Hockney), gamma for each further switch.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from p3s.base.arrays import Floats
from p3s.base.errors import P3SError
from p3s.machine.topology.fabric import Fabric
from p3s.methods.placement.lines import fit_nonnegative
from p3s.methods.placement.links import paths
from p3s.methods.placement.phases import Traffic, sums
from p3s.program.mapping import RankMap


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
    found = paths(traffic, placed, fabric)
    further = np.maximum(fabric.distances(found.source, found.dest) - 1, 0)[found.row]
    each = traffic.messages * (model.alpha + model.gamma * further) + model.beta * traffic.volume
    return float(sums(traffic.source, each, traffic.ranks).max(initial=0.0))
