"""The plan of a replay: what is loaded where, who plays whom, what is measured, what it takes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np

from p3s.base.arrays import Ints
from p3s.machine.topology.fabric import Fabric
from p3s.machine.topology.switches import apart
from p3s.program.collectives.expand import AlgorithmUse
from p3s.program.mapping import RankMap
from p3s.replay.plan.classes import CallClass, MessageClass, Whole
from p3s.replay.plan.pairs import Pair
from p3s.replay.plan.program import NODES, SENDING, Code, Program, World, among
from p3s.replay.settings import ReplaySettings
from p3s.simulate.network import Network
from p3s.simulate.steps import LeftOut, Section, Steps

#: Passes of a program that are thrown away (connections, caches), and those that usually make a
#: class narrow enough.
WARM_UP = 2
EXPECTED_PASSES = 16
FEWEST_PASSES = 8
#: Starting the processes: seconds for the launcher and per process, and per program to hand out.
START_S = 1.5
START_PER_PROCESS_S = 0.03
PER_PROGRAM_S = 0.05
#: An event of the inner loop and a synchronisation before each pass.
EVENT_NS = 1_000.0
PASS_NS = 200_000.0
#: Part of the budget that emulated computation may take.
WORK_SHARE = 0.5


@dataclass(frozen=True)
class Estimate:
    """What is expected of a replay; seconds unless it says otherwise.

    ``program_s``: each program with EXPECTED_PASSES, the timed ones last; ``launch_s``: starting it
    all; ``total_s``: both, never more than the budget allows; ``needed_s``: what it would take
    without a budget; ``least_s``: with FEWEST_PASSES of each. ``run_s``: the run that is predicted,
    one simulation with a rough network. ``work_scale``: factor on emulated computation that lets
    all programs fit the budget. ``section_ns``: length of a pass of each section.
    """

    program_s: tuple[float, ...]
    launch_s: float
    total_s: float
    needed_s: float
    least_s: float
    budget_s: float
    run_s: float
    work_scale: float
    section_ns: tuple[float, ...]

    @property
    def share_of_time(self) -> float | None:
        """Time of the replay over that of the run, None if that is not known."""
        return self.total_s / self.run_s if self.run_s > 0 else None


def pass_ns(program: Program, network: Network, work_scale: float = 1.0) -> float:
    """Return how long a pass of a program takes its slowest process, without waiting for others.

    ``work_scale``: factor on emulated computation.
    """
    events = program.events
    nbytes = np.where(among(events["code"], *SENDING), events["bytes"], 0).astype(np.float64)
    nbytes *= np.where(events["code"] == Code.LINK_SEND, np.maximum(events["number"], 1), 1)
    transfer = np.where(nbytes > 0, network.path(max(network.paths)).transfer.at(nbytes), 0.0)
    return _slowest(program, work_scale * events["work_ns"] + EVENT_NS + transfer)


def _slowest(program: Program, each: np.ndarray) -> float:
    """Return the largest sum of a value per event over the events of a process."""
    total = np.concatenate(([0], np.cumsum(each)))
    return float(np.diff(total[program.start]).max(initial=0.0))


def estimate(
    sections: Sequence[Section],
    section_ns: Sequence[float],
    programs: Sequence[Program],
    network: Network,
    *,
    timed: Sequence[int],
    processes: int,
    placements: int,
    budget_s: float,
) -> Estimate:
    """Return what to expect.

    ``section_ns``: length of each section's pass. ``timed``: section of each timed program that
    will be made; ``placements``: how often the processes are started anew on other nodes.
    """
    passes, least = WARM_UP + EXPECTED_PASSES, WARM_UP + FEWEST_PASSES
    trace = [program for program in programs if program.what == "trace"]
    per_pass = [
        max(pass_ns(p, network), section_ns[p.section] if p.what == "trace" else 0.0)
        for p in programs
    ]
    per_pass += [section_ns[section] for section in timed]
    program_s = tuple(passes * (ns + PASS_NS) * 1e-9 + PER_PROGRAM_S for ns in per_pass)
    # Sections as often as they are entered, all their turns.
    times = [s.entries * max(s.run_turns, s.turns, 1) / max(s.turns, 1) for s in sections]
    launch_s = placements * (START_S + START_PER_PROCESS_S * processes)
    needed = sum(program_s)
    work_ns = sum(_slowest(program, program.events["work_ns"]) for program in trace)
    work_s = (FEWEST_PASSES + 1) * 1e-9 * work_ns
    return Estimate(
        program_s=program_s,
        launch_s=launch_s,
        total_s=launch_s + min(needed, budget_s),
        needed_s=launch_s + needed,
        least_s=launch_s + needed * least / passes,
        budget_s=budget_s,
        run_s=1e-9 * float(np.dot(section_ns, times)),
        work_scale=min(1.0, WORK_SHARE * budget_s / work_s) if work_s > 0 else 1.0,
        section_ns=tuple(section_ns),
    )


#: What a lack of neighbours counts where hosts are equally good otherwise.
_LONELY = 0.25


@dataclass(frozen=True)
class Placement:
    """Hosts of nodes 0 to 3, empty: all are this machine; ``hops`` between nodes 0 and 1.

    ``wanted``: distances of loaded ranges that are measured with it.
    """

    hosts: tuple[str, ...]
    hops: int
    wanted: tuple[int, ...]


def place(
    hosts: Sequence[str], topology: Fabric | None, distances_needed: Iterable[int]
) -> tuple[tuple[Placement, ...], tuple[str, ...]]:
    """Return one placement for each distance that the hosts can show, and what they cannot.

    ``distances_needed``: of the pairs to load (0 is any). Errors: P3SError for a host that the
    topology does not name.
    """
    distances = sorted({max(int(hops), 1) for hops in distances_needed} or {1})
    if not hosts:
        far = ", ".join(map(str, distances))
        note = f"distances of {far} switches cannot be shown: no hosts are given"
        return (Placement((), 1, tuple(distances)),), () if topology is None else (note,)
    names = list(dict.fromkeys(hosts))
    hops = apart(topology, names)
    if len(names) == 1:
        four = tuple(names * NODES)
        return (Placement(four, 0, tuple(distances)),), ()
    placement_of: dict[tuple[str, ...], Placement] = {}
    notes = []
    for distance in distances:
        quad = _best(names, hops, distance)
        real = int(hops[quad[0], quad[1]])
        key = tuple(names[i] for i in quad)
        before = placement_of.get(key)
        placement_of[key] = Placement(key, real, (*(before.wanted if before else ()), distance))
        if topology is not None and real != distance:
            notes.append(
                f"ranges {distance} switches apart are measured on {key[0]} and {key[1]}, "
                f"{real} apart: no two of the hosts are {distance} apart"
            )
    return tuple(placement_of.values()), tuple(notes)


def _best(names: Sequence[str], hops: Ints, distance: int) -> tuple[int, int, int, int]:
    """Return which hosts are nodes 0 to 3.

    Nodes 2 and 3 (black holes, noise) are as far apart as the measured ones if they can be, and
    node 2, with the black holes of node 1, is away from it: what shares a link in the full run
    does so here. If possible they hang on the switches of the measured ones.
    """
    number = len(names)
    near = hops <= 1
    off = np.abs(hops - distance).astype(np.float64)
    off += _LONELY * (np.minimum.outer(near.sum(axis=1), near.sum(axis=1)) < 2)
    np.fill_diagonal(off, np.inf)
    first, second = np.unravel_index(int(np.argmin(off)), off.shape)
    a, b = int(min(first, second)), int(max(first, second))
    rest = [i for i in range(number) if i not in (a, b)]
    if len(rest) < 2:  # two or three hosts: they play more than one node
        return (a, b, rest[0], rest[0]) if rest else (a, b, a, b)

    def score(third: int, fourth: int) -> float:
        beside = (near[a, third] and near[b, fourth]) or (near[a, fourth] and near[b, third])
        return (
            2.0 * abs(int(hops[third, fourth]) - int(hops[a, b]))
            + int(hops[a, third] > hops[a, b])
            + int(hops[b, fourth] > hops[a, b])
            + (0.0 if beside else _LONELY)
        )

    third, fourth = min(permutations(rest[:64], 2), key=lambda two: score(*two))
    return a, b, third, fourth


def placement_of(placements: Sequence[Placement], distance: int) -> int:
    """Return the number of the placement with which ranges this far apart are measured."""
    for number, entry in enumerate(placements):
        if max(distance, 1) in entry.wanted:
            return number
    return 0


#: A bound on the work of one replay, reached by traces with many irregular sizes only.
MOST_PAIRS = 24
#: Whole iterations that are measured, in all sections together.
MOST_TIMED = 48
#: Classes of messages that are measured by programs of their own.
MOST_CLASSES = 32


@dataclass(frozen=True)
class Iteration:
    """Two loaded ranges (the same one twice if there is only one) in one section.

    ``pair``: nodes of the full mapping; ``placement``: which hosts; ``noise_wanted``: messages on
    the way in the full run beside those of the pair.
    """

    pair: Pair
    section: int
    placement: int
    noise_wanted: float


@dataclass(frozen=True)
class ReplayPlan:
    """Everything a replay does, decided before it is launched.

    ``wholes``: each section with collectives expanded and the classes of its steps.
    ``programs``: trace programs in the order of ``iterations``, then those of classes of messages
    and links; ``placement_of`` says on which hosts each runs. ``timed``: pairs and sections of
    whole iterations, without programs (timed_programs). ``composed``: call classes that no pair
    shows (partners on three nodes or more, or too many classes), put together from messages.
    ``collectives``: which algorithms their messages are those of.
    """

    sections: tuple[Section, ...]
    mapping: RankMap
    topology: Fabric | None
    distance: Ints
    wholes: tuple[Whole, ...]
    messages: tuple[MessageClass, ...]
    calls: tuple[CallClass, ...]
    iterations: tuple[Iteration, ...]
    programs: tuple[Program, ...]
    placement_of: tuple[int, ...]
    placements: tuple[Placement, ...]
    timed: tuple[Iteration, ...]
    world: World
    estimate: Estimate
    composed: tuple[int, ...]
    left_out: tuple[LeftOut, ...]
    collectives: tuple[AlgorithmUse, ...]
    notes: tuple[str, ...]
    settings: ReplaySettings

    @property
    def n(self) -> int:
        """Ranks of the full run."""
        return self.mapping.n

    @property
    def full(self) -> tuple[Steps, ...]:
        """Steps of each section with collectives expanded."""
        return tuple(whole.full for whole in self.wholes)

    def saved(self) -> str:
        """Say how many iterations the classes save."""
        loaded_pairs = len({iteration.pair for iteration in self.iterations})
        every = max(self.mapping.nodes * (self.mapping.nodes - 1) // 2, 1)
        return (
            f"{loaded_pairs} pair{'s' if loaded_pairs != 1 else ''} of ranges loaded instead of"
            f" {every} (all pairs of {self.mapping.nodes} nodes)"
        )
