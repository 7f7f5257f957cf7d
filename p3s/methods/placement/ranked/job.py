"""A program on a network: what its phases send, and its time with its ranks on given nodes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from p3s.base.arrays import Floats
from p3s.base.records import Traces, scaled_dir
from p3s.machine.topology.fabric import Fabric
from p3s.methods.placement.allocation import Allocation
from p3s.methods.placement.links import paths
from p3s.methods.placement.phases import PhaseTraffic, Traffic, all_traffic, phase_traffic
from p3s.predict.estimators import settings
from p3s.predict.estimators.machine import simulate_input
from p3s.predict.estimators.messages import Messages
from p3s.predict.estimators.settings import Program, Setting, on_nodes, read_program
from p3s.predict.times import PhaseTimes, computation, with_communication
from p3s.program.mapping import RankMap, block
from p3s.simulate.network import Network


@dataclass(frozen=True, eq=False)
class Job:
    """``n`` processes of a traced program on the nodes of an allocation.

    ``fabric``: the network between all nodes; ``known``: whether anybody has said it, else messages
    cost what ``messages`` says of nodes in a row. ``notes``: what is said before it is simulated.
    """

    traces: Traces
    n: int
    where: Allocation
    fabric: Fabric
    known: bool
    messages: Messages
    notes: tuple[str, ...] = ()
    say: Callable[[str], None] = lambda _: None

    @cached_property
    def program(self) -> Program:
        """What is simulated."""
        return read_program(scaled_dir(self.traces.root, self.n), queues=self.messages.queues)

    @cached_property
    def alone(self) -> PhaseTimes:
        """Times without communication."""
        return computation(scaled_dir(self.traces.root, self.n))

    @cached_property
    def network(self) -> Network:
        """What messages cost on the links of the network."""
        usual = self.messages.on(self.where.nodes)[0]
        every = block(self.where.nodes, 1).named(self.where.hosts)
        return settings.on_wires(usual, settings.wired_on(self.fabric, every), self.messages.hosts)

    @cached_property
    def sent(self) -> tuple[list[PhaseTraffic], float]:
        """What each phase sends, and the share of calls whose messages are not known."""
        program = self.program
        return phase_traffic(program.trace, program.sections, self.messages.library)

    @property
    def phases(self) -> list[PhaseTraffic]:
        """What each phase sends."""
        return self.sent[0]

    @cached_property
    def whole(self) -> Traffic:
        """What all phases send together."""
        return all_traffic(self.phases, self.n)

    def times(self, where: RankMap) -> PhaseTimes:
        """Return times with ranks on nodes, by the simulation; computation does not vary."""
        used, node_of = np.unique(where.node_of, return_inverse=True)
        names = tuple(self.where.hosts[k] or f"+n{k}" for k in used.tolist())
        placement = RankMap(where.kind, node_of.ravel(), where.slot_of, names)
        wires = settings.wired_on(self.fabric, placement) if self.known else None
        ready = on_nodes(self.program, self.messages.library, placement, wires)
        setting = Setting(vary=False)
        if wires is None:
            apart = self.messages.distance(self.where.nodes)
            ready = replace(ready, distance=None if apart is None else apart[np.ix_(used, used)])
        communication = simulate_input(
            self.messages, self.traces, ready, setting, self.say, ends=False
        )
        return with_communication(self.alone, communication)

    def loads(self, sent: Traffic, where: RankMap) -> Floats:
        """Return the bytes on each directed link of the network."""
        routes = paths(sent, where, self.fabric)
        return self.fabric.loads(routes.source, routes.dest, routes.nbytes)
