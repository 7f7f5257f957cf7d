"""Times of steps added up, cell by cell, without those of the single steps."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from p3s.simulate.packed import Packed, Packs, Tally
from p3s.simulate.steps import Floats, Ints, Steps

__all__ = ["PARTS", "Drawn", "Room", "Tally", "Totals", "added_up"]

#: Times of steps: whole, waiting, transfer, software.
PARTS = 4


@dataclass(frozen=True, eq=False)
class Totals:
    """Times added up in ns: ``sums`` (PARTS, cells), ``long`` (groups, ranks).

    ``ends_ns``: when each step ends, where ``place`` says, None: in the order of the steps.
    ``cut``: as in Simulated; ``notes``: what was changed.
    """

    sums: Floats
    long: Floats
    ends_ns: Floats
    place: np.ndarray | None = None
    cut: int = 0
    notes: tuple[str, ...] = ()

    def ends_of(self, steps: Ints) -> Floats:
        """Return when these steps end."""
        return np.asarray(self.ends_ns[steps if self.place is None else self.place[steps]])


@dataclass(frozen=True, eq=False)
class Drawn:
    """What some steps compute instead: ``ns`` before the steps ``at``."""

    at: Ints
    ns: Floats


@dataclass(eq=False)
class Room:
    """Memory for simulations, one after the other: each ends what the one before has returned.

    ``packs``: the steps that were simulated last; rooms of several threads may share them.
    """

    packs: Packs = field(default_factory=Packs)
    _columns: dict[str, np.ndarray] = field(default_factory=dict)
    _work: tuple[Any, ...] = (None, None, None)

    def column(self, name: str, size: int, dtype: Any) -> np.ndarray:
        """Return a column of so many entries, whatever was in it."""
        found = self._columns.get(name)
        if found is None or len(found) < size:
            self._columns.pop(name, None)
            found = self._columns[name] = np.empty(size, dtype=dtype)
        return found[:size]

    def work(self, steps: Steps, packed: Packed, drawn: Drawn | None) -> Floats:
        """Return the computation before each step in the order that they are packed in."""
        if drawn is None and packed.order is None:
            return np.ascontiguousarray(steps.work_ns, dtype=np.float64)
        at = None if drawn is None else drawn.at
        work = self.column("work", len(packed), np.float64)
        mine, its, changed = self._work
        if mine is not packed or its is not steps.work_ns or not (changed is None or changed is at):
            usual = np.asarray(steps.work_ns, dtype=np.float64)
            if packed.order is None:
                work[:] = usual
            else:  # straight to its place: places are known to be inside
                np.take(usual, packed.order, out=work, mode="clip")
        if drawn is not None:
            work[packed.place_of(drawn.at)] = drawn.ns
        self._work = packed, steps.work_ns, at
        return work


def added_up(result: Any, start: Ints, tally: Tally) -> Totals:
    """Return the totals of what a simulator says of every step; ``start``: as in Steps."""
    end = np.asarray(result.end_ns)
    long = end - np.asarray(result.begin_ns)
    columns = (long, result.waiting_ns, result.transfer_ns, result.software_ns)
    sums = [
        np.bincount(tally.cell, tally.weight * np.asarray(column), tally.cells)
        for column in columns
    ]
    rank = np.repeat(np.arange(len(start) - 1), np.diff(start))
    longs = [
        np.bincount(rank, np.where(tally.group == group, long, 0.0), len(start) - 1)
        for group in range(1, tally.groups + 1)
    ]
    each = np.array(longs, dtype=np.float64).reshape(-1, len(start) - 1)
    return Totals(np.stack(sums), each, end)
