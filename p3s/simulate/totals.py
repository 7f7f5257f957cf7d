"""Times of steps added up, cell by cell, without those of the single steps."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from p3s.errors import P3SError
from p3s.simulate.packed import Packed, Packs
from p3s.simulate.steps import Bools, Floats, Ints, Steps

#: Times of steps: whole, waiting, transfer, software.
PARTS = 4


@dataclass(frozen=True, eq=False)
class Tally:
    """What times of steps are added up to.

    ``cell``: of each step one of ``cells``, to which its times are added as often as its ``weight``
    says. ``group``: of each step the sum of whole times of its rank that it is in, 1 to ``groups``,
    0: none; None: there are no such sums.
    """

    cell: Ints
    weight: Floats
    cells: int
    group: np.ndarray | None = None
    groups: int = 0


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
    _weighed: tuple[Any, ...] = (None, None, None)
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
        at = None if drawn is None else drawn.at
        work = self.column("work", len(packed), np.float64)
        mine, its, changed = self._work
        if mine is not packed or its is not steps.work_ns or not (changed is None or changed is at):
            work[:] = packed.moved(steps.work_ns)
        if drawn is not None:
            work[packed.place_of(drawn.at)] = drawn.ns
        self._work = packed, steps.work_ns, at
        return work

    def weighed(
        self, packed: Packed, tally: Tally, only: Bools | None, apart: int
    ) -> tuple[Floats, np.ndarray | None]:
        """Return weights and groups in the order that steps are packed in.

        ``apart``: the group of steps that are not among ``only``.
        """
        key = packed, tally, only
        if any(mine is not its for mine, its in zip(self._weighed, key, strict=True)):
            _check(tally)
            self.column("weight", len(packed), np.float64)[:] = packed.moved(tally.weight)
            if tally.group is not None or only is not None:
                group = np.zeros(len(packed), np.uint8) if tally.group is None else tally.group
                if only is not None:
                    group = np.where(only, group, apart)
                self.column("group", len(packed), np.uint8)[:] = packed.moved(group)
            self._weighed = key
        has = tally.group is not None or only is not None
        return (
            self.column("weight", len(packed), np.float64),
            self.column("group", len(packed), np.uint8) if has else None,
        )


def _check(tally: Tally) -> None:
    """Raise P3SError where a step belongs to a sum that there is not."""
    cell = tally.cell
    if len(cell) and not 0 <= cell.min() <= cell.max() < tally.cells:
        raise P3SError(f"simulation: cells {cell.min()} to {cell.max()} of {tally.cells}")


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
