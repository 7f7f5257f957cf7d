"""Where the time of the steps of a program belongs: its ranks and phases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from p3s.base.arrays import Floats, Ints
from p3s.base.ops import INIT_OPS
from p3s.program.scaled import ScaledTrace
from p3s.simulate.steps import Section, Steps, narrow


@dataclass(frozen=True)
class Places:
    """Where the times of fully expanded steps go: cell of (ranks, phases), weight; per section."""

    phases: tuple[int, ...]
    n: int
    cell: tuple[Ints, ...]
    weight: tuple[Floats, ...]

    def total(self, per_step: Sequence[Floats]) -> Floats:
        """Sum weight x value of the steps of all sections; shape (ranks, phases)."""
        shape = (self.n, len(self.phases))
        whole = np.zeros(shape[0] * shape[1])
        for cell, weight, value in zip(self.cell, self.weight, per_step, strict=True):
            whole += np.bincount(cell, weights=weight * value, minlength=len(whole))
        return np.asarray(whole.reshape(shape), dtype=np.float64)


def places(
    n: int,
    phases: Sequence[int],
    sections: Sequence[Section],
    full: Sequence[Steps],
    origin: Sequence[Ints],
    phase_of_row: Ints,
) -> Places:
    """Return where the time of every fully expanded step belongs.

    The time of the messages of a collective belongs to the call, with its weight.
    ``phases``: ascending. ``phase_of_row``: phase of every row of the scaled trace. Steps without
    a row belong to the first phase of their section.
    """
    number = np.asarray(phases, dtype=np.int64)
    column_of_row = np.searchsorted(number, phase_of_row)
    cells, weights = [], []
    for section, steps, where in zip(sections, full, origin, strict=True):
        of = _origins(where)
        row = section.steps.row[of]
        first = int(np.searchsorted(number, section.phases[0])) if section.phases else 0
        cell = np.repeat(
            (steps.ranks * len(phases)).astype(narrow(n * len(phases))), np.diff(steps.start)
        )
        in_table = row >= 0
        cell[in_table] += column_of_row[row[in_table]].astype(cell.dtype)
        cell[~in_table] += first
        cells.append(cell)
        weights.append(np.asarray(section.steps.weight[of], dtype=np.float64))
    return Places(tuple(phases), n, tuple(cells), tuple(weights))


def _origins(origin: Ints) -> Ints:
    """Return the section's step of every full step; those without one take the one before."""
    of = np.asarray(origin)
    if not (of < 0).any():
        return of
    at = np.where(of >= 0, np.arange(len(of)), -1)
    return np.asarray(np.maximum(of[np.maximum(np.maximum.accumulate(at), 0)], 0))


def row_cells(trace: ScaledTrace, phases: Sequence[int], rows: Ints) -> Ints:
    """Return the cell of (ranks, phases) of some rows of a trace; ``phases``: in any order."""
    number = np.asarray(phases, dtype=np.int64)
    order = np.argsort(number)
    column = order[np.searchsorted(number[order], trace.phase[rows])]
    return np.asarray(trace.rank[rows] * len(phases) + column)


def row_times(trace: ScaledTrace, phases: Sequence[int], rows: Ints, ns: Floats) -> Floats:
    """Return the sum of the times of some rows: (ranks, phases), in the unit of ``ns``."""
    cell = row_cells(trace, phases, rows)
    total = np.bincount(cell, weights=ns, minlength=trace.n * len(phases))
    return np.asarray(total.reshape(trace.n, len(phases)), dtype=np.float64)


def work_of(trace: ScaledTrace, phases: Sequence[int]) -> Floats:
    """Return the computation of the whole run after MPI_Init, (ranks, phases) in ns.

    From the rows, not the steps: at the edges of a loop's iterations that are executed, computation
    stands in two steps.
    """
    ns = trace.work * trace.repeat * ~trace.is_op(*INIT_OPS)
    return row_times(trace, phases, np.arange(trace.rows), ns)
