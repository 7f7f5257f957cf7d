"""Time of every rank in every phase, from the dependency simulation fed with measured costs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from p3s.predict.network import Network
from replay.steps import Floats, Ints, Section, Steps

Simulate = Callable[..., Any]


@dataclass(frozen=True)
class PhaseTimes:
    """Communication of the whole run per rank and phase in ns; arrays (ranks, phases).

    ``comm``: all time in calls, waiting included; ``waiting``, ``transfer``, ``software``: its
    parts; ``work``: computation of the steps; ``low`` and ``high``: ``comm`` with the costs at
    the ends of their 95 % intervals.
    """

    phases: tuple[int, ...]
    comm: Floats
    low: Floats
    high: Floats
    waiting: Floats
    transfer: Floats
    software: Floats
    work: Floats


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
    n: int, phases: Sequence[int], sections: Sequence[Section], full: Sequence[Steps],
    origin: Sequence[Ints], phase_of_row: Ints,
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
        column = np.full(len(row), first, dtype=np.int64)
        known = row >= 0
        column[known] = column_of_row[row[known]]
        cells.append(steps.rank * len(phases) + column)
        weights.append(np.asarray(section.steps.weight[of], dtype=np.float64))
    return Places(tuple(phases), n, tuple(cells), tuple(weights))


def _origins(origin: Ints) -> Ints:
    """Return the section's step of every full step; those without one take the one before."""
    of = np.asarray(origin, dtype=np.int64)
    if not (of < 0).any():
        return of
    at = np.where(of >= 0, np.arange(len(of)), -1)
    return np.asarray(np.maximum(of[np.maximum(np.maximum.accumulate(at), 0)], 0))


def phase_times(
    where: Places, full: Sequence[Steps], node_of: Ints, distance: Ints | None,
    networks: tuple[Network, Network, Network], simulate: Simulate,
) -> tuple[PhaseTimes, tuple[Floats, ...]]:
    """Simulate all sections; ``networks``: the costs, their low ends, their high ends.

    Returns the times and, per section, when each step begins (the schedule of timed black holes).
    """
    comm, waiting, transfer, software, begin = [], [], [], [], []
    bounds: list[list[Floats]] = [[], []]
    for steps in full:
        result = simulate(steps, node_of, networks[0], distance=distance)
        comm.append(_length(result))
        waiting.append(np.asarray(result.waiting_ns))
        transfer.append(np.asarray(result.transfer_ns))
        software.append(np.asarray(result.software_ns))
        begin.append(np.asarray(result.begin_ns))
        for bound, network in zip(bounds, networks[1:], strict=True):
            bound.append(_length(simulate(steps, node_of, network, distance=distance)))
    value = where.total(comm)
    low, high = (where.total(bound) for bound in bounds)
    times = PhaseTimes(
        where.phases, value, np.minimum(low, value), np.maximum(high, value),
        where.total(waiting), where.total(transfer), where.total(software),
        where.total([steps.work_ns for steps in full]))
    return times, tuple(begin)


def _length(result: Any) -> Floats:
    return np.asarray(np.maximum(np.asarray(result.end_ns) - np.asarray(result.begin_ns), 0.0))
