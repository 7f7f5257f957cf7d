"""The plan of a replay: what is loaded where, who plays whom, what is measured."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np

from p3s.base.arrays import Ints
from p3s.machine.topology.switches import Topology
from p3s.program.collectives.expand import Used
from p3s.program.mapping import RankMap
from p3s.replay.plan.classes import CallClass, MessageClass, Whole
from p3s.replay.plan.estimate import Estimate
from p3s.replay.plan.pairs import Pair
from p3s.replay.plan.program import Program
from p3s.replay.plan.world import NODES, World
from p3s.replay.settings import ReplaySettings
from p3s.simulate.steps import LeftOut, Section, Steps

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
    hosts: Sequence[str], topology: Topology, wanted: Iterable[int]
) -> tuple[tuple[Placement, ...], tuple[str, ...]]:
    """Return one placement for each distance that the hosts can show, and what they cannot.

    ``wanted``: distances of the pairs to load (0 is any). Errors: P3SError for a host that the
    topology does not name.
    """
    distances = sorted({max(int(hops), 1) for hops in wanted} or {1})
    if not hosts:
        return (Placement((), 1, tuple(distances)),), _alone(topology, distances)
    names = list(dict.fromkeys(hosts))
    hops = topology.between(names, names)
    if len(names) == 1:
        four = tuple(names * NODES)
        return (Placement(four, 0, tuple(distances)),), ()
    found: dict[tuple[str, ...], Placement] = {}
    notes = []
    for distance in distances:
        quad = _best(names, hops, distance)
        real = int(hops[quad[0], quad[1]])
        key = tuple(names[i] for i in quad)
        before = found.get(key)
        found[key] = Placement(key, real, (*(before.wanted if before else ()), distance))
        if not topology.flat and real != distance:
            notes.append(
                f"ranges {distance} switches apart are measured on {key[0]} and {key[1]}, "
                f"{real} apart: no two of the hosts are {distance} apart"
            )
    return tuple(found.values()), tuple(notes)


def _alone(topology: Topology, distances: list[int]) -> tuple[str, ...]:
    if topology.flat:
        return ()
    return (
        f"distances of {', '.join(map(str, distances))} switches cannot be shown: no hosts "
        "are given",
    )


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
    topology: Topology
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
    collectives: tuple[Used, ...]
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
        made = len({iteration.pair for iteration in self.iterations})
        every = self.estimate.all_pairs
        return (
            f"{made} pair{'s' if made != 1 else ''} of ranges loaded instead of {every} "
            f"(all pairs of {self.mapping.nodes} nodes)"
        )
