"""The plan of a replay as it is kept: what is loaded, who plays whom, what is measured."""

from __future__ import annotations

from dataclasses import dataclass

from p3s.machine.topology.switches import Topology
from p3s.program.collectives.expand import Used
from p3s.program.mapping import RankMap
from p3s.replay.plan.choose import Pair
from p3s.replay.plan.classes import CallClass, MessageClass, Whole
from p3s.replay.plan.estimate import Estimate
from p3s.replay.plan.places import Placement
from p3s.replay.plan.program import Program
from p3s.replay.plan.world import World
from p3s.replay.settings import NOISES, ReplaySettings
from p3s.simulate.steps import Ints, LeftOut, Section, Steps

#: A bound on the work of one replay, reached by traces with many irregular sizes only.
MOST_PAIRS = 24
#: Whole iterations that are measured, in all sections together.
MOST_TIMED = 48
#: Classes of messages that are measured by programs of their own.
MOST_CLASSES = 32
AUTO, ON, OFF = NOISES


@dataclass(frozen=True)
class Iteration:
    """Two loaded ranges (the same one twice if there is only one) in one section.

    ``pair``: nodes of the full mapping; ``programs``: numbers among the plan's programs;
    ``adds``: call classes that are measured here first; ``placement``: which hosts;
    ``noise_wanted``: messages on the way in the full run beside those of the pair.
    """

    pair: Pair
    section: int
    programs: tuple[int, ...]
    adds: tuple[int, ...] = ()
    placement: int = 0
    noise_wanted: float = 0.0


@dataclass(frozen=True)
class ReplayPlan:
    """Everything a replay does, decided before it is launched.

    ``wholes``: each section with collectives expanded and the classes of its steps.
    ``programs``: trace programs in the order of ``iterations``, then those of classes of messages
    and links; ``placement_of`` says on which hosts each runs. ``timed``: pairs and sections of
    whole iterations, without programs (timed_programs). ``composed``: call classes with partners
    on three nodes or more, put together from message classes; ``uncovered``: not measured.
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
    uncovered: tuple[int, ...]
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
