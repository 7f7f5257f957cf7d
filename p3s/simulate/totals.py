"""Times of steps added up, cell by cell, without those of the single steps."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from p3s.simulate.collectives import Instances
from p3s.simulate.steps import Floats, Ints, Steps

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

    ``end_ns``: when each step ends. ``cut``: as in Simulated; ``notes``: what was changed.
    """

    sums: Floats
    long: Floats
    end_ns: Floats
    cut: int = 0
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Known:
    """Columns of steps that were found to fit together, and which collective calls they are."""

    columns: tuple[Any, ...]
    calls: Instances

    def are(self, steps: Steps) -> bool:
        """Tell whether steps have these very columns."""
        return all(mine is its for mine, its in zip(self.columns, columns_of(steps), strict=True))


def columns_of(steps: Steps) -> tuple[Any, ...]:
    """Return all that steps are but for how long they compute."""
    return tuple(getattr(steps, each.name) for each in fields(steps) if each.name != "work_ns")


@dataclass(eq=False)
class Room:
    """Memory for simulations, one after the other: each ends what the one before has returned.

    ``known``: what was found out of the steps that were simulated last.
    """

    known: Known | None = None
    _columns: dict[str, np.ndarray] = field(default_factory=dict)

    def column(self, name: str, size: int, dtype: Any) -> np.ndarray:
        """Return a column of so many entries, whatever was in it."""
        found = self._columns.get(name)
        if found is None or len(found) < size:
            self._columns.pop(name, None)
            found = self._columns[name] = np.empty(size, dtype=dtype)
        return found[:size]


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
