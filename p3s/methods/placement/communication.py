"""From traffic, placement and network to seconds: what a communication model needs of a phase."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np

from p3s.machine.topology.direct import Dragonfly
from p3s.machine.topology.fabric import Fabric
from p3s.machine.topology.read import node_numbers
from p3s.methods.placement.features import Hierarchy, class_a, class_b, class_c
from p3s.methods.placement.learned import Learned, Predicted
from p3s.methods.placement.links import link_features
from p3s.methods.placement.simulated import simulated_seconds
from p3s.methods.placement.traffic import Traffic
from p3s.program.mapping import RankMap
from p3s.simulate.network import Network

#: A phase, and where its ranks are.
Phase = tuple[Traffic, RankMap]
#: The feature that is a time: what the dependency simulation says, in seconds.
SIMULATED = "simulated"


def row_of(phase: Phase, fabric: Fabric, network: Network | None = None) -> dict[str, float]:
    """Return the features of a phase: classes A, B and C, links, and with ``network`` its time.

    Errors: P3SError for nodes that the network does not have.
    """
    traffic, placed = phase
    found = class_a(traffic, placed) | class_b(traffic, placed)
    found |= class_c(traffic, placed, hierarchy_of(fabric, placed))
    found |= link_features(traffic, placed, fabric)
    if network is not None:
        found[SIMULATED] = simulated_seconds(traffic, placed, fabric, network)
    return found


def hierarchy_of(fabric: Fabric, placed: RankMap) -> Hierarchy:
    """Return the levels of a network that a placement's nodes are in."""
    node = node_numbers(fabric, placed.names)
    levels = tuple(level.at(node) for level in fabric.levels())
    return Hierarchy(levels, pairs=isinstance(fabric, Dragonfly) and bool(levels))


def predict(model: Learned, phases: Sequence[Phase], fabric: Fabric) -> Predicted:
    """Return the times of phases on the network that a model is of.

    A phase that sends nothing takes no time. Errors: P3SError for a model of another network.
    """
    model.check("", network_id(fabric))
    found = model.predict([row_of(phase, fabric, model.network) for phase in phases])
    sends = np.array([len(traffic) > 0 for traffic, _ in phases], dtype=bool)
    seconds, low, high = (np.where(sends, x, 0.0) for x in (found.seconds, found.low, found.high))
    return Predicted(seconds, low, high, found.outside)


def network_id(fabric: Fabric) -> str:
    """Return what tells networks apart: form, and a number made of their cables' speeds.

    Of forms that are cut to a run's nodes, as fat trees may be, the number of nodes says nothing.
    """
    speed = getattr(fabric, "speed", None)
    parts = [speed] if speed is not None else [fabric.cables().ravel(), fabric.rate]
    crc = 0
    for part in parts:
        crc = zlib.crc32(np.round(np.asarray(part, dtype="<f8"), 9).tobytes(), crc)
    return f"{fabric.text} ({crc:08x})"
