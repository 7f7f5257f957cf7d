"""Levels of a network: which switch, rack or group each node is in; speeds and times as written."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from p3s.base.arrays import Ints

_SPEED = re.compile(r"([0-9]*\.?[0-9]+)([kmgt]?)(bit/s|bit|bps|b/s|byte/s)", re.IGNORECASE)
_PREFIX = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}
_TIME = re.compile(r"([0-9]*\.?[0-9]+)(ns|us|ms|s)")
_NS = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}


def speed_of(text: str) -> float | None:
    """Return bytes per ns of a text like 200Gbit/s or 12.5GB/s; None where it is none."""
    found = _SPEED.fullmatch(text.strip())
    if found is None or not float(found[1]) > 0:
        return None
    in_bytes = found[3] == "B/s" or found[3].lower() == "byte/s"
    return float(found[1]) * _PREFIX[found[2].lower()] * (1.0 if in_bytes else 0.125) * 1e-9


def ns_of(text: str) -> float | None:
    """Return ns of a text like 300ns or 2us; None where it is no time."""
    found = _TIME.fullmatch(text.strip())
    return None if found is None else float(found[1]) * _NS[found[2]]


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
