"""What messages cost, from trace programs and pair programs, without what queueing adds."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from p3s.base.arrays import Floats, Ints
from p3s.base.errors import P3SError
from p3s.machine.topology import fabric
from p3s.machine.topology.trees import Tree
from p3s.replay.engine.results import Estimate, ProgramResult, median_interval, pass_medians
from p3s.replay.plan.classes import MessageClass
from p3s.replay.plan.executed import ProgramSteps, expand_program
from p3s.replay.plan.program import NODES, Code, Program, World
from p3s.simulate.network import Network
from p3s.simulate.simulate import simulate
from p3s.simulate.switch_links import Trunks

if TYPE_CHECKING:
    from p3s.replay.plan.types import ReplayPlan


@dataclass(frozen=True)
class Fabric:
    """Where nodes hang in a tree of switches.

    ``nodes``: switch of every node of the run. ``programs``: per program, switches of the four
    nodes of the replay; none where they are not known.
    """

    topology: Tree
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
        trunks = network.trunks.on(switches.tolist()) if len(switches) else None
        return replace(network, trunks=trunks)


def fabric_of(plan: ReplayPlan) -> Fabric | None:
    """Return where the nodes of a plan hang; None where no tree of switches is known."""
    topology = plan.topology
    if not isinstance(topology, Tree):
        return None
    placed = [_switches(topology, placement.hosts) for placement in plan.placements]
    programs = tuple(placed[number] for number in plan.placement_of)
    return Fabric(topology, _switches(topology, plan.mapping.names), programs)


def _switches(topology: Tree, names: Sequence[str]) -> Ints:
    """Return the switch that each of some nodes hangs on."""
    return topology.switch_of[topology.numbers(names)]


def not_simulated(topology: fabric.Fabric | None, names: Sequence[str]) -> tuple[str, ...]:
    """Say which links between switches could be a limit of the run without anybody knowing.

    ``names``: of the nodes of the run.
    """
    if topology is None:
        return ()
    if not isinstance(topology, Tree):
        return (
            f"{topology.about.source}: the switches are no tree, which links a message passes is "
            "not known: no limit between switches is simulated",
        )
    chain = topology.chain[_switches(topology, names)]
    below = np.bincount(chain[chain >= 0], minlength=topology.switches)
    below_root = (topology.up >= 0) & (topology.up < len(topology.names))  # not above several roots
    shared = (np.minimum(below, len(names) - below) > 1) & below_root
    unknown = np.flatnonzero(shared & np.isnan(topology.speed))
    if not len(unknown):
        return ()
    more = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
    return (
        f"no limit of the link above switch {topology.names[unknown[0]]}{more} is simulated, "
        "which several nodes share: state it in the topology file (LinkSpeed=100Gbit/s)",
    )


TRACE = "measured in the trace"
TRACE_BOTH = "measured in the trace, both ways at once"
PAIR = "measured in a pair"
NEAREST = "from the nearest sizes"
USUAL = "not measured: usual costs"
NONE = "none"

#: Best origin first: in a pair the link has come to rest before each message, in the trace it may
#: still have to send what a rank sent to others.
_PREFERRED = (PAIR, TRACE, TRACE_BOTH)

#: Messages that are waited for in fewer passes than this share are no good samples: something
#: unusual made somebody wait.
_OFTEN = 0.2

Key = tuple[int, int]


@dataclass(frozen=True)
class MessageSamples:
    """Samples of messages of one size over one distance in one program.

    ``key``: (distance, bytes). ``cls``: message class, -1: a size that no message of the run has.
    ``message``: positions in the program's pairing; ``ns``: (passes, messages), NaN: none.
    """

    key: Key
    cls: int
    how: str
    program: int
    message: Ints
    ns: Floats

    @property
    def number(self) -> int:
        """Number of samples."""
        return int((~np.isnan(self.ns)).sum())


@dataclass(frozen=True)
class MessageCost:
    """Transfer of a class as it was measured, queueing included; where it comes from."""

    estimate: Estimate
    how: str
    observed: tuple[MessageSamples, ...] = ()


def message_costs(
    classes: Sequence[MessageClass], observed: Sequence[MessageSamples]
) -> tuple[MessageCost, ...]:
    """Return the measured transfer of every class; NONE where no program has a sample of it."""
    samples_of: dict[int, dict[str, list[MessageSamples]]] = {}
    for one in observed:
        samples_of.setdefault(one.cls, {}).setdefault(one.how, []).append(one)
    costs = []
    for cls in range(len(classes)):
        origins = samples_of.get(cls, {})
        how = min(origins, key=_PREFERRED.index, default=NONE)
        samples = tuple(origins.get(how, ()))
        costs.append(MessageCost(level(samples), how, samples))
    return tuple(costs)


def level(observed: Sequence[MessageSamples]) -> Estimate:
    """Return the cost: median of the class's messages in a pass, median over passes, programs.

    Waiting for a core now and then makes single transfers very long: that is in the spread.
    """
    middles = [pass_medians(o.ns) for o in observed]
    return median_interval(
        np.concatenate(middles) if middles else [], sum(o.number for o in observed)
    )


def typical(ns: Floats) -> Floats:
    """Return the median over the passes of every message; NaN where nobody ever waited."""
    medians = np.full(ns.shape[1], np.nan)
    has = (~np.isnan(ns)).any(axis=0)
    if has.any():
        medians[has] = np.nanmedian(ns[:, has], axis=0)
    return medians


def observations(
    classes: Sequence[MessageClass],
    programs: Sequence[Program],
    results: Mapping[int, ProgramResult],
    world: World,
) -> list[MessageSamples]:
    """Return all usable samples of trace and pair programs.

    Of messages that complete alone, and of calls that send and receive at once; what the own
    send adds there is known to the simulation. Not of completions of several messages.
    """
    samples = []
    nodes = np.array([process.node for process in world.processes])
    for number, result in sorted(results.items()):
        program = programs[number]
        pairing = program.pairing
        if pairing is None or program.what not in ("trace", "pair") or not result.passes:
            continue
        if result.transfer_ns.shape[1:] != pairing.cls.shape:
            continue
        received_event = program.start[pairing.receiver] + pairing.received
        transfer = result.transfer_ns
        has = (~np.isnan(transfer)).mean(axis=0) >= _OFTEN
        alone = pairing.alone.astype(bool)
        both = ~alone & (program.events["code"][received_event] == Code.SENDRECV)
        away = nodes[pairing.sender] != nodes[pairing.receiver]
        hops = max(
            (classes[c].distance for c in np.unique(pairing.cls).tolist() if c >= 0), default=1
        )
        nbytes = program.events["bytes"][program.start[pairing.sender] + pairing.sent]
        origins = {TRACE: alone, TRACE_BOTH: both} if program.what == "trace" else {PAIR: alone}
        for how, mask in origins.items():
            keys = np.stack([pairing.cls, np.where(away, max(hops, 1), 0), nbytes])
            usable = mask & has
            for cls, distance, size in np.unique(keys[:, usable], axis=1).T.tolist():
                same = (keys == np.array([[cls], [distance], [size]])).all(axis=0)
                message = np.flatnonzero(usable & same)
                key = (classes[cls].distance, classes[cls].bytes) if cls >= 0 else (distance, size)
                samples.append(MessageSamples(key, cls, how, number, message, transfer[:, message]))
    return samples


def choose_samples(
    classes: Sequence[MessageClass],
    costs: Sequence[MessageCost],
    observed: Sequence[MessageSamples],
) -> list[MessageSamples]:
    """Return the samples that curves rest on, of each size and distance the best there are.

    Those of messages with nothing beside them on the link; else those of the classes.
    """
    alone = [
        o
        for o in observed
        if o.how == PAIR and (o.cls < 0 or o.key[0] == 0 or classes[o.cls].load <= 1)
    ]
    keys = {o.key for o in alone}
    return [*alone, *(o for cost in costs for o in cost.observed if o.key not in keys)]


def in_trace(observed: Sequence[MessageSamples]) -> list[MessageSamples]:
    """Return the samples of messages among all others that the ranks exchange."""
    return [o for o in observed if o.cls >= 0 and o.how in (TRACE, TRACE_BOTH)]


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
        self._done: dict[int, ProgramSteps] = {}

    def done(self, number: int) -> ProgramSteps:
        """Return a program as steps."""
        if number not in self._done:
            self._done[number] = expand_program(
                self.programs[number], self.world, work_scale=self.work_scale
            )
        return self._done[number]

    def place(self, number: int, network: Network) -> Network:
        """Return the network as it is between the nodes that a program ran on."""
        return network if self.fabric is None else self.fabric.place(number, network)

    def compare(
        self, samples: Sequence[MessageSamples], network: Network
    ) -> Iterator[tuple[MessageSamples, Floats]]:
        """Yield samples and the simulated transfers of their messages, NaN where nobody waits.

        Of each size and distance, only samples of a few programs are looked at.
        """
        for number, samples_of_program in _by_program(samples).items():
            times = simulated_transfers(
                self.programs[number], self.done(number), self.place(number, network), self.classes
            )
            if times is not None:
                for observed in samples_of_program:
                    yield observed, times[observed.message]


def correct_shifts(
    executions: Executions,
    use: Sequence[MessageSamples],
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


def check_classes(executions: Executions, costs: Sequence[MessageCost], network: Network) -> Floats:
    """Return per class measured minus simulated transfer over the measured one; NaN: no sample."""
    deviations_of: dict[int, list[tuple[float, float]]] = {}
    samples = [observed for cost in costs for observed in cost.observed]
    for observed, simulated in executions.compare(samples, network):
        measured = typical(observed.ns)
        both = ~np.isnan(measured) & ~np.isnan(simulated)
        if both.any():
            deviations_of.setdefault(observed.cls, []).append(
                (float((measured - simulated)[both].mean()), float(measured[both].mean()))
            )
    off = np.full(len(costs), np.nan)
    for cls, pairs in deviations_of.items():
        off[cls] = sum(e for e, _ in pairs) / max(sum(m for _, m in pairs), 1.0)
    return off


def deviations(
    executions: Executions, samples: Sequence[MessageSamples], network: Network
) -> dict[Key, Floats]:
    """Return samples minus simulated transfers, per point.

    Only of messages that find the link free, and have it for themselves or pass at once: of those
    that meet there, the simulation lets one pass after the other, a real link all side by side.
    Not of programs with noise: what waits for that is not late by chance.
    """
    differences: dict[Key, list[Floats]] = {}
    quiet = [o for o in samples if not executions.programs[o.program].noise]
    for observed, simulated in executions.compare(quiet, network):
        load = executions.classes[observed.cls].load if observed.cls >= 0 else 1
        if load > 1 and load * observed.key[1] > network.burst and math.isfinite(network.rate):
            continue
        idle = float(network.path(observed.key[0]).transfer.at(observed.key[1]))
        rest = (observed.ns - simulated[None, :])[:, simulated <= _FREE * idle].reshape(-1)
        differences.setdefault(observed.key, []).append(rest[~np.isnan(rest)])
    return {key: np.concatenate(parts) for key, parts in differences.items()}


def _by_program(samples: Sequence[MessageSamples]) -> dict[int, list[MessageSamples]]:
    """Return the samples by program, of each point those of a few programs."""
    programs_of: dict[Key, set[int]] = {}
    samples_of: dict[int, list[MessageSamples]] = {}
    for observed in samples:
        programs = programs_of.setdefault(observed.key, set())
        programs.add(observed.program)
        if len(programs) <= _MOST_PROGRAMS:
            samples_of.setdefault(observed.program, []).append(observed)
    return samples_of


def simulated_transfers(
    program: Program, executed: ProgramSteps, network: Network, classes: Sequence[MessageClass]
) -> Floats | None:
    """Return the transfer of every message of the program's pairing; NaN where nobody waits.

    None where the program cannot be simulated: its black holes do what is not known here.
    """
    pairing = program.pairing
    assert pairing is not None
    distance = node_distance(program, classes)
    try:
        result = simulate(executed.steps, executed.node_of, network, distance=distance, anyway=True)
    except P3SError:
        return None
    sender, receiver = program.start[pairing.sender], program.start[pairing.receiver]
    posted = executed.first[receiver + pairing.posted]
    received = executed.last[receiver + pairing.received]
    sent = executed.first[sender + pairing.sent]
    begin, end = np.asarray(result.begin_ns), np.asarray(result.end_ns)
    later = np.maximum(begin[sent], begin[posted])
    transfer = np.asarray(end[received] - later, dtype=np.float64)
    # As in the measurement: not where the message was there when somebody asked for it.
    arrival = np.asarray(result.arrival_ns)[sent]
    return np.where(arrival > begin[received] + network.post, transfer, np.nan)


def node_distance(program: Program, classes: Sequence[MessageClass]) -> Ints:
    """Return hops between the four nodes: of the pairing between the measured ones, else 1."""
    hops = np.ones((NODES, NODES), dtype=np.int64)
    np.fill_diagonal(hops, 0)
    if program.pairing is not None and len(program.pairing.cls):
        used = [classes[c].distance for c in np.unique(program.pairing.cls).tolist() if c >= 0]
        hops[0, 1] = hops[1, 0] = max([d for d in used if d > 0], default=1)
    return hops
