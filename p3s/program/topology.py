"""Where the nodes of the full run are in a network of switches."""

from __future__ import annotations

import numpy as np

from p3s.base.errors import P3SError
from p3s.machine.topology.switches import FLAT_HOPS, Topology
from p3s.machine.topology.units import Ints
from p3s.program.mapping import RankMap


def node_hosts(mapping: RankMap, topology: Topology) -> tuple[str, ...]:
    """Return the host of each node of the full run: as named, else in the order of the file.

    Errors: P3SError when the file has fewer hosts than the run needs.
    """
    if topology.flat:
        return mapping.names
    names = []
    for node, name in enumerate(mapping.names):
        if name and not name.startswith("+n"):
            names.append(name)
            continue
        number = int(name[2:]) if name else node
        if number >= len(topology.hosts):
            raise P3SError(
                f"{topology.source}: names {len(topology.hosts)} nodes, but the run "
                f"needs {max(mapping.nodes, number + 1)}; add nodes or leave it out"
            )
        names.append(topology.hosts[number])
    return tuple(names)


def distances(mapping: RankMap, topology: Topology) -> Ints:
    """Return the hops between the nodes of the full run, nodes x nodes; 0 on the diagonal."""
    if topology.flat:
        return np.where(np.eye(mapping.nodes, dtype=bool), 0, FLAT_HOPS).astype(np.int64)
    switch = topology.switches_of(node_hosts(mapping, topology))
    found = topology.hops(switch, switch)
    np.fill_diagonal(found, 0)
    return found
