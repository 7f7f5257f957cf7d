"""Levels of a network: which switch, rack or group each node is in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from p3s.machine.topology.units import Ints


@dataclass(frozen=True, eq=False)
class Level:
    """Components of a network of one kind, each made of nodes or of components of the level below.

    ``name``: what one of them is called, also in names of columns that count them (sw, r).
    ``letter``: begins the names of columns with their traffic (S, R). ``of``: component of each
    node.
    """

    name: str
    letter: str
    of: Ints

    @property
    def number(self) -> int:
        """How many components the nodes are in."""
        return len(np.unique(self.of))

    def at(self, nodes: Ints) -> Level:
        """Return the level of some nodes, in their order."""
        return Level(self.name, self.letter, self.of[nodes])


def several(levels: Sequence[Level]) -> tuple[Level, ...]:
    """Return the levels that tell nodes apart: not those where all are in one component."""
    return tuple(level for level in levels if level.number > 1)
