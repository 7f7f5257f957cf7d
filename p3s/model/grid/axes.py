"""Axes: the line of ranks along which a relation leads, all ranks, a dimension, a communicator.

An axis is None (all ranks), a dimension of the grid, or a communicator law: the ranks
of each instance in a line. Every rank has a place on its line and the line a length.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from p3s.model.grid.at import GridAt, low_power
from p3s.model.partners.communicator_laws import CommunicatorLaw, instances

Axis = int | CommunicatorLaw | None


@dataclass(frozen=True)
class Line:
    """The line of every rank: place c and length p per rank, rank at a place of a rank's line.

    n: how many ranks; member: those that are on a line at all; longest: greatest length. Where
    ``grid`` is given, lines are those along its ``axis``; else ``table`` holds them.
    """

    n: int
    c: np.ndarray
    p: np.ndarray
    member: np.ndarray
    table: np.ndarray
    which: np.ndarray
    grid: GridAt | None = None
    axis: int = 0
    most: int | None = None

    @property
    def longest(self) -> int:
        """The greatest length."""
        return int(self.p.max(initial=0)) if self.most is None else self.most

    def ranks(self, place: np.ndarray, there: np.ndarray | None = None) -> np.ndarray:
        """Return the rank at ``place`` on every rank's line, -1 outside or where not ``there``."""
        inside = self.member & (place >= 0) & (place < self.p)
        if there is not None:
            inside = inside & there
        out = np.full(self.n, -1, dtype=np.int64)
        if self.grid is not None:
            coords = self.grid.coords[:, inside]
            coords[self.axis] = place[inside]
            out[inside] = self.grid.rank_at(coords)
            return out
        out[inside] = self.table[self.which[inside], place[inside]]
        return out


_LINES: dict[Any, Line] = {}


def line(axis: Axis, g: GridAt) -> Line:
    """Return the lines of an axis at one count."""
    if g.ranks is not None:
        return _some(axis, g)
    key = (axis, g.key)
    found = _LINES.get(key)
    if found is None:
        found = _line(axis, g)
        if len(_LINES) > 512 or g.n > 4096:
            _LINES.clear()
        _LINES[key] = found
    return found


def _some(axis: Axis, g: GridAt) -> Line:
    """Return the lines of some ranks: of a dimension without a table of all."""
    if isinstance(axis, int):
        none = np.zeros((1, 1), dtype=np.int64)
        return Line(
            g.size,
            g.coords[axis],
            np.full(g.size, g.dims[axis]),
            g.inside,
            none,
            np.zeros(g.size, dtype=np.int64),
            g,
            axis,
            g.dims[axis],
        )
    assert g.whole is not None
    of = line(axis, g.whole)
    return Line(
        g.size,
        of.c[g.ranks],
        of.p[g.ranks],
        of.member[g.ranks],
        of.table,
        of.which[g.ranks],
        most=of.longest,
    )


def _line(axis: Axis, g: GridAt) -> Line:
    ranks = np.arange(g.n)
    if axis is None:
        return Line(
            g.n,
            ranks,
            np.full(g.n, g.n),
            np.ones(g.n, dtype=bool),
            ranks[None, :],
            np.zeros(g.n, dtype=np.int64),
        )
    if isinstance(axis, int):
        p = g.dims[axis]
        label = np.zeros(g.n, dtype=np.int64)
        for d, extent in enumerate(g.dims):
            if d != axis:
                label = label * extent + g.coords[d]
        on = g.inside
        table = np.empty((int(np.prod(g.dims)) // p, p), dtype=np.int64)
        table[label[on], g.coords[axis][on]] = ranks[on]
        return Line(g.n, g.coords[axis], np.full(g.n, p), on, table, label)
    number, members = instances(axis, g)
    length = max((len(m) for m in members), default=0)
    table = np.full((max(len(members), 1), max(length, 1)), -1, dtype=np.int64)
    place, size = np.full(g.n, -1, dtype=np.int64), np.zeros(g.n, dtype=np.int64)
    for i, m in enumerate(members):
        table[i, : len(m)] = m
        place[list(m)] = np.arange(len(m))
        size[list(m)] = len(m)
    return Line(g.n, place, size, number >= 0, table, np.maximum(number, 0))


def low_powers(p: np.ndarray) -> np.ndarray:
    """Return for each length the largest power of two that is at most the length (1 for 0)."""
    known = {int(v): low_power(max(int(v), 1)) for v in np.unique(p)}
    return np.array([known[int(v)] for v in p], dtype=np.int64)
