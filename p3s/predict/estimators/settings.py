"""What an estimator may be told beyond the study, the count and the machine file."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from p3s.base.arrays import Ints
from p3s.base.artefacts import LastRead, files_in
from p3s.base.errors import P3SError
from p3s.base.text import figures, plural
from p3s.machine.topology.fabric import Fabric
from p3s.model.law_types import TraceOrder
from p3s.program.collectives.choose import Library
from p3s.program.collectives.expand import ExpandedSteps, expand
from p3s.program.mapping import RankMap, mapping_of
from p3s.program.order.calls import SETUP_REASONS, count_unmatched
from p3s.program.order.sections import sections_of
from p3s.program.phase_cells import places
from p3s.program.scaled import ScaledTrace, read_order, read_scaled
from p3s.simulate.folded import Loop
from p3s.simulate.network import Curve, Network
from p3s.simulate.network import Path as Link
from p3s.simulate.steps import Section
from p3s.simulate.switch_links import ANSWERS, LEAST_PAYLOAD, Wires
from p3s.simulate.totals import SimulationGaps, alike, is_self_contained


@dataclass(frozen=True)
class Setting:
    """Cluster and MPI library of the full run; the defaults are those of ``p3s predict``.

    ``collectives``: algorithms instead of the library's, as in ``p3s replay --collectives``.
    ``ranks_per_node``: default the cores of the measured machine.
    ``mapping``, ``rank_file``: how ranks are dealt to nodes; ``topology``: file or short
    description of the network between nodes (p3s.machine.topology). ``rank_file_n``: the count that
    the rank file is for, others are dealt by ``mapping`` (0: it is for all). ``hosts``: names of
    the network's nodes, in order, where it has none itself. ``vary``: computation varies as in the
    traced runs. ``network``: name of a typical cluster, or a file (p3s.machine.cluster), that the
    estimator ``typical`` takes. ``every_rank``: all ranks are simulated, however many.
    """

    collectives: str = ""
    ranks_per_node: int | None = None
    mapping: str = "block"
    rank_file: Path | None = None
    topology: str = ""
    vary: bool = True
    network: str = ""
    rank_file_n: int = 0
    hosts: tuple[str, ...] = ()
    every_rank: bool = False

    def mapping_at(self, n: int, cores: int) -> RankMap:
        """Return where ``n`` ranks are; ``cores``: of a node, where nobody says it."""
        each = min(self.ranks_per_node or max(cores, 1), n)
        return mapping_of(self.mapping, n, each, self._file_at(n))

    def listed_at(self, n: int) -> bool:
        """Tell whether a file says where each of ``n`` ranks is."""
        return self._file_at(n) is not None

    def said_of(self, n: int) -> list[str]:
        """Return what a prediction of ``n`` processes says of where its ranks are."""
        file = self._file_at(n) if self.rank_file_n else None
        return [] if file is None else [f"ranks are on nodes as {file.name} says"]

    def _file_at(self, n: int) -> Path | None:
        return self.rank_file if self.rank_file_n in (0, n) else None


#: The defaults.
USUAL = Setting()

#: Iterations of a loop that are put into one window, at least and at most.
TURNS, MANY_TURNS = 6, 24
#: Steps of all ranks in a window, as far as the rows of the trace tell: where links have no queues,
#: where they have, and where turns differ or messages reach from one to the next.
FEW_STEPS, QUEUED_STEPS, MANY_STEPS = 100_000, 300_000, 1_000_000
_NAMED = 4


@dataclass(frozen=True, eq=False)
class Program:
    """What of a scaled trace is simulated, wherever its ranks are.

    ``phases``: columns of the cells, ascending. ``repeated``: each section is a phase, its steps
    those of one iteration. ``followed``: what of the messages is in it.
    """

    trace: ScaledTrace
    sections: tuple[Section, ...]
    phases: tuple[int, ...]
    repeated: bool
    followed: SimulationGaps


@dataclass(frozen=True)
class SimulationInput:
    """What is simulated: loops with expanded steps, where ranks are, and what was approximated.

    ``phases``: columns of the cells, ascending. ``followed``: what of the messages is in them.
    ``wired``: the network between the nodes, None where nobody has said it. ``of``: how many
    processes these stand for, 0: for themselves; ``among``: which of the nodes of all of them,
    ``of_nodes`` in number, each of their nodes is.
    """

    trace: ScaledTrace
    phases: tuple[int, ...]
    loops: tuple[Loop, ...]
    node_of: Ints
    distance: Ints | None
    notes: tuple[str, ...]
    followed: SimulationGaps = SimulationGaps()
    wired: Wiring | None = None
    of: int = 0
    of_nodes: int = 0
    among: Ints | None = None

    @property
    def count(self) -> int:
        """The number of processes whose times are asked for."""
        return self.of or self.trace.n

    @property
    def nodes(self) -> int:
        """The number of nodes of these."""
        return self.of_nodes or int(self.node_of.max()) + 1


def on_nodes_of(
    program: Program, library: Library, setting: Setting, cores: int
) -> SimulationInput:
    """Return a program with its ranks on the nodes of a setting.

    ``cores``: of a node, where nobody says it.
    """
    mapping = setting.mapping_at(program.trace.n, cores)
    there = wire_nodes(setting.topology, mapping, setting.hosts) if setting.topology else None
    return on_nodes(program, library, mapping, there)


def read_program(directory: Path, *, queues: bool = False) -> Program:
    """Return what of the scaled trace in a directory is simulated.

    ``queues``: links of nodes have queues, which need several turns to fill.
    """
    return _last_programs[queues](directory)


def _read_program(directory: Path, *, queues: bool) -> Program:
    path = directory / "order.json"
    return program_of(
        read_scaled(directory), read_order(directory) if path.exists() else None, queues=queues
    )


def _few(program: Program) -> bool:
    return sum(len(section.steps) for section in program.sections) <= _FEW


#: Programs of few steps are remembered: a prediction and what changes save simulate the same.
_FEW, _COUNTS = 50_000, 8
_last_programs = {
    queues: LastRead(partial(_read_program, queues=queues), _COUNTS, files_in, _few)
    for queues in (False, True)
}


def program_of(
    trace: ScaledTrace, order: TraceOrder | None, *, queues: bool = False, most: int = MANY_TURNS
) -> Program:
    """Return what of a scaled trace is simulated; ``queues`` as in read_program.

    ``most``: iterations of a loop, at most, that are simulated at once.
    """
    rows, least = max(trace.rows, 1), min(TURNS, most)
    many = int(np.clip(MANY_STEPS // rows, least, most))
    turns = int(np.clip((QUEUED_STEPS if queues else FEW_STEPS) // rows, least, many))
    sections = sections_of(trace, order, turns=turns)
    if turns < many and any(_hangs(section) for section in sections):
        sections = sections_of(trace, order, turns=many)
    return Program(
        trace,
        tuple(sections),
        tuple(sorted(set(trace.weights) | set(np.unique(trace.phase).tolist()))),
        order is None or order.loops is None,
        SimulationGaps(reordered=sum(section.moved for section in sections)).with_unmatched(
            count_unmatched(trace, [one for s in sections for one in s.left_out])
        ),
    )


def on_nodes(
    program: Program, library: Library | None, mapping: RankMap, there: Wiring | None
) -> SimulationInput:
    """Return a program with its ranks on nodes, collectives as the library's algorithms there.

    Without a library each collective stays one call.
    """
    trace, sections, phases = program.trace, program.sections, program.phases
    expanded = [
        ExpandedSteps(section.steps, np.arange(len(section.steps)))
        if library is None
        else expand(section.steps, library, node_of=mapping.node_of)
        for section in sections
    ]
    full = [one.steps for one in expanded]
    origins = [one.origin for one in expanded]
    where = places(trace.n, phases, sections, full, origins, trace.phase)
    loops = tuple(
        Loop(section, steps, cell, weight, trace.n * len(phases), program.repeated)
        for section, steps, cell, weight in zip(
            sections, full, where.cell, where.weight, strict=True
        )
    )
    notes = [note for section in sections for note in section.notes]
    notes += [note for one in expanded for note in one.notes]
    notes += _left_out(sections)
    return SimulationInput(
        trace,
        phases,
        loops,
        mapping.node_of,
        None if there is None else there.distance,
        tuple(dict.fromkeys(notes)),
        program.followed,
        there,
    )


def _hangs(section: Section) -> bool:
    """Tell whether a window needs many iterations.

    That is so where more than the first and the last one are unlike the others, and where messages
    or requests reach from one iteration of a folded loop into another.
    """
    group = alike(section)
    if group is None or not group.folded:
        return False
    kept = np.isin(section.steps.turn, group.turns)
    others = np.unique(section.steps.turn[~kept & (section.steps.row >= 0)])
    return len(others) > 2 or not is_self_contained(section.steps, kept)


def _left_out(sections: Sequence[Section]) -> list[str]:
    """Say which calls with communication are not simulated."""
    events: dict[tuple[str, str], float] = {}
    for section in sections:
        for left in section.left_out:
            if left.why not in SETUP_REASONS:
                key = left.call, left.why
                events[key] = events.get(key, 0.0) + left.events
    return [
        f"{plural(round(number), 'call')} of {call} not simulated: {why}"
        for (call, why), number in sorted(events.items(), key=lambda pair: -pair[1])[:_NAMED]
    ]


# ---- a network whose form is known --------------------------------------------------------------
_BITS = 8.0


@dataclass(frozen=True)
class Wiring:
    """A network, and which of its nodes each node of a run is; ``distance``: nodes x nodes."""

    fabric: Fabric
    node: Ints
    distance: Ints


def wire_nodes(told: str, mapping: RankMap, hosts: Sequence[str] = ()) -> Wiring:
    """Return the network of a file or a short description, with the nodes of a run on it.

    ``hosts``: names of its nodes, in order, where it has none.
    """
    from p3s.machine.topology.read import name_nodes, read_fabric

    fabric = read_fabric(told, max(mapping.nodes, len(hosts)))
    return wired_on(name_nodes(fabric, hosts), mapping)


def wired_on(fabric: Fabric, mapping: RankMap) -> Wiring:
    """Return a network with the nodes of a run on it. Errors: P3SError for hosts it has not."""

    told, node = fabric.about.source, fabric.numbers(mapping.names)
    if len(set(node.tolist())) < len(node):
        raise P3SError(f"{told}: two nodes of the run are one of the network; correct the hosts")
    size = len(node)
    far = fabric.distances(np.repeat(node, size), np.tile(node, size)).reshape(size, size)
    return Wiring(fabric, node, far)


def on_wires(network: Network, there: Wiring, hosts: Collection[str] = ()) -> Network:
    """Return costs of messages with the distances and the shared links of a network.

    ``hosts``: where the costs were measured, if that was between two; else at the least distance.
    """
    about = there.fabric.about
    stated = there.fabric.rate * _payload(network, there)
    rate = np.where(np.isnan(stated), network.rate, stated)
    wires = Wires(there.fabric, tuple(there.node.tolist()), tuple(rate.tolist()))
    paths = network.paths
    if about.extra.known:
        paths = _by_distance(network, there, _measured_at(there, hosts))
    back = ANSWERS if about.fair else 0.0
    return replace(network, paths=paths, trunks=None, wires=wires, fair=about.fair, back=back)


def _payload(network: Network, there: Wiring) -> float:
    """Return which share of a cable's stated speed is left for messages.

    What a node's link was measured to carry, over what is stated for it: headers take the rest.
    Far less than stated means that something else is the limit, and says nothing of headers.
    """
    stated = float(there.fabric.rate[: there.fabric.nodes].max(initial=0.0))
    share = network.rate / stated if stated > 0 else 1.0
    return share if LEAST_PAYLOAD <= share < 1 else 1.0


def _measured_at(there: Wiring, hosts: Collection[str]) -> int:
    """Return how far two hosts are apart; the least distance where the network has them not."""

    known = set(there.fabric.about.hosts)
    pair = sorted(set(hosts))
    if len(pair) > 1 and known.issuperset(pair):
        numbers = there.fabric.numbers(pair[:2])
        return int(there.fabric.distances(numbers[:1], numbers[1:2])[0])
    return _find_nearest(there)


def _find_nearest(there: Wiring) -> int:
    """Return how far the nearest nodes of the network are apart, whichever of them the run has."""
    every = np.arange(there.fabric.nodes)
    far = there.fabric.distances(np.full(len(every), there.node[0]), every)
    return int(far[far > 0].min()) if (far > 0).any() else 1


def _by_distance(network: Network, there: Wiring, measured: int) -> dict[int, Link]:
    """Return the path for each distance: the measured one, and time for further switches."""
    base, extra = network.path(1), there.fabric.about.extra
    longer = Curve(extra.nbytes, extra.ns)
    paths = {0: network.path(0)}
    for distance in np.unique(there.distance[there.distance > 0]).tolist():
        sizes = tuple(sorted({*base.transfer.nbytes, *longer.nbytes}))
        more = (distance - measured) * longer.at(sizes)
        ns = np.maximum(base.transfer.at(sizes) + more, 0.0)
        paths[distance] = replace(base, transfer=Curve(sizes, tuple(ns.tolist())))
    return paths


def said_of(there: Wiring, network: Network) -> list[str]:
    """Return what a prediction says of the network it is for, a line each."""
    fabric, about = there.fabric, there.fabric.about
    stated = fabric.rate[fabric.nodes :]
    between = np.where(np.isnan(stated), network.rate, stated)
    speeds = sorted({float(rate) for rate in between if math.isfinite(rate)})
    what = "share its rate" if about.fair else "pass one after the other"
    found = [
        f"links between switches: {fabric.text}, {_speed(speeds)}; messages on one link {what}"
    ]
    if np.isnan(fabric.rate[fabric.nodes :]).any():
        found.append(
            f"{about.source} does not say what links between switches carry: taken to be "
            f"{_speed([network.rate])}, what the link of a node does"
        )
    if not about.extra.known and int(there.distance.max()) > _nearest(there):
        found.append(
            f"{about.source} does not say how much longer messages take for each further switch: "
            "taken to be nothing"
        )
    return [*found, *about.notes]


def _nearest(there: Wiring) -> int:
    apart = there.distance[there.distance > 0]
    return int(apart.min()) if len(apart) else 0


def _speed(rates: Sequence[float]) -> str:
    if not rates or not math.isfinite(rates[-1]):
        return "no limit"
    ends = dict.fromkeys(figures(_BITS * rate) for rate in (rates[0], rates[-1]))
    return f"{' to '.join(ends)} Gbit/s each way"
