"""What links between switches carry, where the topology file states it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from p3s.base.arrays import Ints
from p3s.machine.topology.switches import Topology
from p3s.simulate.network import Network
from p3s.simulate.switch_links import Trunks

if TYPE_CHECKING:
    from p3s.replay.plan.types import ReplayPlan


@dataclass(frozen=True)
class Fabric:
    """Where nodes hang in a tree of switches.

    ``nodes``: switch of every node of the run. ``programs``: per program, switches of the four
    nodes of the replay; none where they are not known.
    """

    topology: Topology
    nodes: Ints
    programs: tuple[Ints, ...]

    def trunks(self, burst: float) -> Trunks | None:
        """Return the links between switches, None where none is a limit.

        ``burst``: bytes that pass a link at once after a pause, as a node's link was measured.
        """
        speed = self.topology.speed
        if not np.isfinite(speed).any():
            return None
        return Trunks(
            tuple(self.nodes.tolist()),
            tuple(self.topology.up.tolist()),
            tuple(np.where(np.isnan(speed), np.inf, speed).tolist()),
            tuple(np.where(np.isnan(speed), 0.0, burst).tolist()),
        )

    def place(self, program: int, network: Network) -> Network:
        """Return the network with the nodes that a program ran on."""
        if network.trunks is None:
            return network
        switches = self.programs[program]
        here = network.trunks.on(switches.tolist()) if len(switches) else None
        return replace(network, trunks=here)


def fabric_of(plan: ReplayPlan) -> Fabric | None:
    """Return where the nodes of a plan hang; None where no tree of switches is known."""
    topology = plan.topology
    if topology.flat or not len(topology.up):
        return None
    placed = [
        topology.switches_of(placement.hosts) if placement.hosts else np.zeros(0, dtype=np.int64)
        for placement in plan.placements
    ]
    programs = tuple(placed[number] for number in plan.placement_of)
    return Fabric(topology, topology.switches_of(plan.mapping.names), programs)


def not_simulated(topology: Topology, names: Sequence[str]) -> tuple[str, ...]:
    """Say which links between switches could be a limit of the run without anybody knowing.

    ``names``: of the nodes of the run.
    """
    if topology.flat:
        return ()
    if not len(topology.up):
        return (
            f"{topology.source}: the switches are no tree, which links a message passes is not "
            "known: no limit between switches is simulated",
        )
    chain = topology.chain[topology.switches_of(names)]
    below = np.bincount(chain[chain >= 0], minlength=len(topology.up))
    shared = (np.minimum(below, len(names) - below) > 1) & (topology.up >= 0)
    unknown = np.flatnonzero(shared & ~np.isfinite(np.append(topology.speed, np.nan))[:-1])
    if not len(unknown):
        return ()
    more = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
    return (
        f"no limit of the link above switch {topology.switches[unknown[0]]}{more} is simulated, "
        "which several nodes share: state it in the topology file (LinkSpeed=100Gbit/s)",
    )
