"""Axes: the line of ranks along which a relation leads, all ranks, a dimension, a communicator.

An axis is None (all ranks), a dimension of the grid, or a communicator law: the ranks
of each instance in a line. Every rank has a place on its line and the line a length.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from p3s.model.grid.at import GridAt, low_power
from p3s.model.memory import Memory
from p3s.model.partners.communicator_laws import CommunicatorLaw, number_instances

Axis = int | CommunicatorLaw | None


#: The ranks at places of the lines of the ranks that a mask selects.
Lead = Callable[[np.ndarray, np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Line:
    """The line of every rank: place c and length p per rank, rank at a place of a rank's line.

    member: those that are on a line at all; longest: greatest length.
    """

    c: np.ndarray
    p: np.ndarray
    member: np.ndarray
    longest: int
    lead: Lead

    @property
    def n(self) -> int:
        """How many ranks there are."""
        return len(self.c)

    def ranks(self, place: np.ndarray, there: np.ndarray | None = None) -> np.ndarray:
        """Return the rank at ``place`` on every rank's line, -1 outside or where not ``there``."""
        inside = self.member & (place >= 0) & (place < self.p)
        if there is not None:
            inside = inside & there
        out = np.full(self.n, -1, dtype=np.int64)
        out[inside] = self.lead(inside, place[inside])
        return out


_NUMBERED: Memory[tuple[np.ndarray, ...]] = Memory(1 << 22, lambda found: 3 * found[0].size)


def line(axis: Axis, g: GridAt) -> Line:
    """Return the lines of an axis at one count."""
    if axis is None:
        everybody = np.ones(g.size, dtype=bool)
        return Line(g.r, np.full(g.size, g.n), everybody, g.n, lambda inside, place: place)
    if isinstance(axis, int):
        dim, extent = axis, g.dims[axis]

        def beside(inside: np.ndarray, place: np.ndarray) -> np.ndarray:
            coords = g.coords[:, inside]
            coords[dim] = place
            return g.rank_at(coords)

        return Line(g.coords[dim], np.full(g.size, extent), g.inside, extent, beside)
    place, number, members, starts = _NUMBERED.of((axis, g.key), lambda: _places(axis, g))
    sizes = np.append(np.diff(starts), 0)  # the last one is of those that are on no line
    of = number[g.r]
    return Line(
        place[g.r],
        sizes[of],
        of >= 0,
        int(sizes.max()),
        lambda inside, place: members[starts[of[inside]] + place],
    )


def _places(law: CommunicatorLaw, g: GridAt) -> tuple[np.ndarray, ...]:
    """Return the place of every rank in its communicator (-1: in none), and what numbers these."""
    number, members, starts = number_instances(law, g.whole or g)
    place = np.full(g.n, -1, dtype=np.int64)
    place[members] = np.arange(len(members)) - starts[number[members]]
    return place, number, members, starts


def low_powers(p: np.ndarray) -> np.ndarray:
    """Return for each length the largest power of two that is at most the length (1 for 0)."""
    known = {int(v): low_power(max(int(v), 1)) for v in np.unique(p)}
    return np.array([known[int(v)] for v in p], dtype=np.int64)
