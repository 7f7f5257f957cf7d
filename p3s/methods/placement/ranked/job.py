"""A program on a network: what its phases send, and its time with its ranks on given nodes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from p3s.base.arrays import Floats, Ints
from p3s.base.records import Traces, scaled_dir
from p3s.machine.topology.fabric import Fabric
from p3s.methods.placement.allocation import Allocation
from p3s.methods.placement.links import paths
from p3s.methods.placement.phases import PhaseTraffic, Traffic, phase_traffic
from p3s.predict.estimators import settings
from p3s.predict.estimators.machine import simulate_input
from p3s.predict.estimators.messages import Messages
from p3s.predict.estimators.settings import Program, Setting, on_nodes, read_program
from p3s.predict.times import PhaseTimes, computation, with_communication
from p3s.program.mapping import RankMap, block
from p3s.simulate.network import Network


def _nothing(_: str) -> None:
    """Say nothing."""


@dataclass(frozen=True, eq=False)
class Job:
    """``n`` processes of a traced program on the nodes of an allocation.

    ``fabric``: the network between all nodes; ``known``: whether anybody has said it, else messages
    cost what ``messages`` says of nodes in a row. ``program``: what is simulated. ``alone``: times
    without communication.
    """

    traces: Traces
    n: int
    where: Allocation
    fabric: Fabric
    known: bool
    messages: Messages
    program: Program
    alone: PhaseTimes
    say: Callable[[str], None] = _nothing

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

    def times(self, where: RankMap) -> PhaseTimes:
        """Return times with ranks on nodes, by the simulation; computation does not vary."""
        used, node_of = np.unique(where.node_of, return_inverse=True)
        names = _network_names(self, used)
        there = RankMap(where.kind, node_of.ravel(), where.slot_of, names)
        wires = settings.wired_on(self.fabric, there) if self.known else None
        ready = on_nodes(self.program, self.messages.library, there, wires)
        setting = Setting(vary=False)
        if wires is None:
            apart = self.messages.distance(self.where.nodes)
            ready = replace(ready, distance=None if apart is None else apart[np.ix_(used, used)])
        found = simulate_input(self.messages, self.traces, ready, setting, self.say, ends=False)
        return with_communication(self.alone, found)

    def loads(self, sent: Traffic, where: RankMap) -> Floats:
        """Return the bytes on each directed link of the network."""
        found = paths(sent, where, self.fabric)
        apart = found.source != found.dest
        return self.fabric.loads(found.source[apart], found.dest[apart], found.nbytes[apart])


def _network_names(job: Job, used: Ints) -> tuple[str, ...]:
    """Return the names of the nodes that are used, by number where they have none."""
    return tuple(job.where.hosts[k] or f"+n{k}" for k in used.tolist())


def job_of(
    traces: Traces,
    n: int,
    where: Allocation,
    fabric: Fabric,
    messages: Messages,
    *,
    known: bool = True,
    say: Callable[[str], None] = _nothing,
) -> Job:
    """Return the processes of a scaled trace on nodes. Errors: P3SError, UsageError."""
    where.check(n)
    program = read_program(scaled_dir(traces.root, n), queues=messages.queues)
    times = computation(scaled_dir(traces.root, n))
    return Job(traces, n, where, fabric, known, messages, program, times, say)
