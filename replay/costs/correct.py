"""Curves without queueing: the executed programs are simulated, too, and what that adds taken off.

The simulation of the whole run has a queue at each link, and so must not be fed with costs that
hold queueing, or the other half of a call that sends and receives at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from p3s.base.errors import P3SError
from p3s.replay.costs.messages import Key, MessageCost, Observed, typical
from p3s.replay.costs.trunks import Fabric
from p3s.replay.plan.classes import MessageClass
from p3s.replay.plan.executed import Executed, executed
from p3s.replay.plan.program import Program
from p3s.replay.plan.world import NODES, World
from p3s.replay.stats import Estimate
from p3s.simulate.network import Network
from p3s.simulate.simulate import simulate_anyway
from p3s.simulate.steps import Floats, Ints

#: Rounds of correction; it converges in two or three.
ROUNDS = 4
#: No corrected cost is below this share of the measured one.
FLOOR = 0.02
#: A message that takes at most this much of its time on an idle network is in no queue.
_FREE = 1.2
#: Programs that are simulated to correct one point.
_MOST_PROGRAMS = 6


class Executions:
    """Programs that were executed, and what a simulation says of them."""

    def __init__(
        self,
        classes: Sequence[MessageClass],
        programs: Sequence[Program],
        world: World,
        work_scale: float = 1.0,
        fabric: Fabric | None = None,
    ) -> None:
        self.classes, self.programs, self.world = classes, programs, world
        self.work_scale, self.fabric = work_scale, fabric
        self._done: dict[int, Executed] = {}

    def done(self, number: int) -> Executed:
        """Return a program as steps."""
        if number not in self._done:
            self._done[number] = executed(
                self.programs[number], self.world, work_scale=self.work_scale
            )
        return self._done[number]

    def place(self, number: int, network: Network) -> Network:
        """Return the network as it is between the nodes that a program ran on."""
        return network if self.fabric is None else self.fabric.place(number, network)

    def compare(
        self, samples: Sequence[Observed], network: Network
    ) -> Iterator[tuple[Observed, Floats]]:
        """Yield samples and the simulated transfers of their messages, NaN where nobody waits.

        Of each size and distance, only samples of a few programs are looked at.
        """
        for number, wanted in _by_program(samples).items():
            times = simulated_transfers(
                self.programs[number], self.done(number), self.place(number, network), self.classes
            )
            if times is not None:
                for observed in wanted:
                    yield observed, times[observed.message]


def corrected(
    executions: Executions,
    use: Sequence[Observed],
    points: Mapping[Key, Estimate],
    build: Callable[[Mapping[Key, float]], Network],
) -> dict[Key, float]:
    """Return the shifts in ns of all points that let the simulation give what was measured.

    ``use``: the samples. ``build``: the network for some shifts.
    """
    shift: dict[Key, float] = dict.fromkeys(points, 0.0)
    for _ in range(ROUNDS):
        errors: dict[Key, list[tuple[float, int]]] = {}
        for observed, simulated in executions.compare(use, build(shift)):
            rest = typical(observed.ns) - simulated
            rest = rest[~np.isnan(rest)]
            if len(rest):
                errors.setdefault(observed.key, []).append((float(np.median(rest)), len(rest)))
        for key, pairs in errors.items():
            values, weight = np.array(pairs, dtype=np.float64).T
            least = (FLOOR - 1.0) * points[key].cost_ns
            shift[key] = max(shift[key] + float((values * weight).sum() / weight.sum()), least)
    return shift


def checked(executions: Executions, costs: Sequence[MessageCost], network: Network) -> Floats:
    """Return per class measured minus simulated transfer over the measured one; NaN: no sample."""
    found: dict[int, list[tuple[float, float]]] = {}
    samples = [observed for cost in costs for observed in cost.observed]
    for observed, simulated in executions.compare(samples, network):
        measured = typical(observed.ns)
        both = ~np.isnan(measured) & ~np.isnan(simulated)
        if both.any():
            found.setdefault(observed.cls, []).append(
                (float((measured - simulated)[both].mean()), float(measured[both].mean()))
            )
    off = np.full(len(costs), np.nan)
    for cls, pairs in found.items():
        off[cls] = sum(e for e, _ in pairs) / max(sum(m for _, m in pairs), 1.0)
    return off


def deviations(
    executions: Executions, samples: Sequence[Observed], network: Network
) -> dict[Key, Floats]:
    """Return samples minus simulated transfers, per point.

    Only of messages that find the link free, and have it for themselves or pass at once: of those
    that meet there, the simulation lets one pass after the other, a real link all side by side.
    Not of programs with noise: what waits for that is not late by chance.
    """
    found: dict[Key, list[Floats]] = {}
    quiet = [o for o in samples if not executions.programs[o.program].noise]
    for observed, simulated in executions.compare(quiet, network):
        load = executions.classes[observed.cls].load if observed.cls >= 0 else 1
        if load > 1 and load * observed.key[1] > network.burst and math.isfinite(network.rate):
            continue
        idle = float(network.path(observed.key[0]).transfer.at(observed.key[1]))
        rest = (observed.ns - simulated[None, :])[:, simulated <= _FREE * idle].reshape(-1)
        found.setdefault(observed.key, []).append(rest[~np.isnan(rest)])
    return {key: np.concatenate(parts) for key, parts in found.items()}


def _by_program(samples: Sequence[Observed]) -> dict[int, list[Observed]]:
    """Return the samples by program, of each point those of a few programs."""
    taken: dict[Key, set[int]] = {}
    found: dict[int, list[Observed]] = {}
    for observed in samples:
        programs = taken.setdefault(observed.key, set())
        programs.add(observed.program)
        if len(programs) <= _MOST_PROGRAMS:
            found.setdefault(observed.program, []).append(observed)
    return found


def simulated_transfers(
    program: Program, done: Executed, network: Network, classes: Sequence[MessageClass]
) -> Floats | None:
    """Return the transfer of every message of the program's pairing; NaN where nobody waits.

    None where the program cannot be simulated: its black holes do what is not known here.
    """
    pairing = program.pairing
    assert pairing is not None
    distance = node_distance(program, classes)
    try:
        result, _ = simulate_anyway(done.steps, done.node_of, network, distance=distance)
    except P3SError:
        return None
    sender, receiver = program.start[pairing.sender], program.start[pairing.receiver]
    posted = done.first[receiver + pairing.posted]
    received = done.last[receiver + pairing.received]
    sent = done.first[sender + pairing.sent]
    begin, end = np.asarray(result.begin_ns), np.asarray(result.end_ns)
    later = np.maximum(begin[sent], begin[posted])
    transfer = np.asarray(end[received] - later, dtype=np.float64)
    # As in the measurement: not where the message was there when somebody asked for it.
    here = np.asarray(result.arrival_ns)[sent]
    return np.where(here > begin[received] + network.post, transfer, np.nan)


def node_distance(program: Program, classes: Sequence[MessageClass]) -> Ints:
    """Return hops between the four nodes: of the pairing between the measured ones, else 1."""
    hops = np.ones((NODES, NODES), dtype=np.int64)
    np.fill_diagonal(hops, 0)
    if program.pairing is not None and len(program.pairing.cls):
        used = [classes[c].distance for c in np.unique(program.pairing.cls).tolist() if c >= 0]
        hops[0, 1] = hops[1, 0] = max([d for d in used if d > 0], default=1)
    return hops
