"""The programs of a plan: those of loaded ranges, and those that measure classes of messages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from p3s.replay.plan.build_holes import Noise
from p3s.replay.plan.classes import Classified
from p3s.replay.plan.loaded import Loaded
from p3s.replay.plan.micro import link_programs, pair_programs, trunk_programs
from p3s.replay.plan.places import Placement, placement_of
from p3s.replay.plan.program import Program
from p3s.replay.plan.settle import Settled, refuse_unproven, settled
from p3s.replay.plan.world import World
from p3s.simulate.steps import Ints

#: Nodes with measured ranks.
_SIDES = (0, 1)


def trace(loaded: Loaded, world: World, noise: Noise | None) -> Settled:
    """Return the program of two loaded ranges whose black holes answer at once."""
    return settled(loaded, world, what="trace", noise=noise, name=_name(loaded))


def timed(loaded: Loaded, world: World, noise: Noise | None) -> Settled:
    """Return the program of two loaded ranges whose black holes act by the schedule."""
    return settled(loaded, world, what="timed", noise=noise, name=_name(loaded))


def _name(loaded: Loaded) -> str:
    first, second = loaded.pair
    return f"section {loaded.section}, nodes {first}" + (
        f" and {second}" if second != first else ""
    )


def classes(
    classified: Classified, world: World, placements: Sequence[Placement], measured: Ints
) -> Iterator[tuple[int, Program]]:
    """Return (number of the placement, program) for what messages and links cost.

    ``measured``: numbers of the message classes to measure. Messages inside a node are measured in
    the first placement, the others in the one that shows their distance, or comes nearest to it.
    """
    number_of = np.array(
        [
            0 if cls.distance == 0 else placement_of(placements, cls.distance)
            for cls in classified.messages
        ],
        dtype=np.int64,
    )
    both = all(world.on_node(side) for side in _SIDES)
    for number in range(len(placements)):
        which = measured[number_of[measured] == number]
        programs = list(pair_programs(classified.messages, world, which))
        if both and number == 0 and any(cls.distance for cls in classified.messages):
            programs += link_programs(world)
        if both and (number or len(placements[number].flows) > 1):
            programs += trunk_programs(world, placements[number].flows)
        for program in programs:
            refuse_unproven(program, program.name)
            yield number, program
