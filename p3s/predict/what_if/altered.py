"""What changes make of the costs of messages, and of computation in times and simulated steps."""

from __future__ import annotations

import math
import pathlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from p3s.base.arrays import Bools, Floats, Ints
from p3s.costs.spread import EVEN
from p3s.predict.estimators.drawn import Variation
from p3s.predict.estimators.settings import SimulationInput
from p3s.predict.times import END, REST, START, Ends, PhaseTimes, ends_of
from p3s.predict.what_if.changes import BALANCED, COMPUTE, COSTS, IDEAL, NETWORK, PHASE, Changes
from p3s.simulate.folded import Loop
from p3s.simulate.network import NEVER, Curve, Network


def altered_network(changes: Changes) -> Callable[[Network], Network] | None:
    """Return what changes make of costs of messages; None where they leave them alone."""
    if changes.value(NETWORK) == IDEAL:
        return ideal
    factors = {part.what: part.value for part in changes.of(*COSTS)}
    return (lambda network: scale_network(network, **factors)) if factors else None


def ideal(network: Network) -> Network:
    """Return a network on which messages take no time, neither on their way nor in calls.

    Large messages still wait for their receive: who waits for whom stays as it is.
    """
    paths = {
        distance: replace(path, transfer=NEVER, send=NEVER, receive=NEVER, busy=NEVER)
        for distance, path in network.paths.items()
    }
    return replace(
        network,
        paths=paths,
        rate=math.inf,
        burst=0.0,
        post=0.0,
        sender_buffer=0.0,
        trunks=None,
        wires=None,
    )


def scale_network(
    network: Network, latency: float = 1.0, bandwidth: float = 1.0, software: float = 1.0
) -> Network:
    """Return a network with so many times the latency, bandwidth and time of calls for themselves.

    Latency is what an empty message between nodes takes: as much is taken off messages of any size,
    and nothing takes less than 0. What more bytes take beyond that is divided by ``bandwidth``, on
    all links. Calls take longer for themselves inside of nodes, too.
    """

    def of(curve: Curve, change: Callable[[float], float]) -> Curve:
        return Curve(curve.nbytes, tuple(map(change, curve.ns)))

    def sloped(curve: Curve) -> Curve:
        first = float(curve.at(0.0))
        return of(curve, lambda ns: first + (ns - first) / bandwidth)

    paths = {}
    for distance, path in network.paths.items():
        if distance and latency != 1.0:
            less = (1.0 - latency) * float(path.transfer.at(0.0))
            shorter = tuple(max(ns - less, 0.0) for ns in path.transfer.ns)
            path = replace(path, transfer=replace(path.transfer, ns=shorter))
        if distance and bandwidth != 1.0:
            path = replace(path, transfer=sloped(path.transfer), busy=sloped(path.busy))
        if software != 1.0:
            send, receive = (
                of(each, lambda ns: ns * software) for each in (path.send, path.receive)
            )
            path = replace(path, send=send, receive=receive)
        paths[distance] = path
    rate, post = network.rate * bandwidth, network.post * software
    made = replace(network, paths=paths, rate=rate, post=post)
    for name in ("trunks", "wires"):
        links = getattr(made, name)
        if links is not None:
            rates = tuple(rate * bandwidth for rate in links.rate)
            made = replace(made, **{name: replace(links, rate=rates)})
    return made


_NS_PER_S = 1e9
#: Work that is taken away altogether leaves so much, so that the same is drawn for it.
_NOTHING = 1e-12


@dataclass(frozen=True)
class StepColumns:
    """Which column of the times each simulated step belongs to.

    ``numbers``: phases of the columns; ``of``: column of each step, one array per loop; ``calls``:
    which steps are calls of the program, as ``of``; ``weight``: calls of the run per rank and
    column, (ranks, columns): who takes part in a phase.
    """

    numbers: tuple[int, ...]
    of: tuple[Ints, ...]
    calls: tuple[Bools, ...]
    weight: Floats


def where_of(ready: SimulationInput, times: PhaseTimes, scaled_dir: pathlib.Path) -> StepColumns:
    """Return where the steps of all loops are; those of phase 0 in start, rest or end."""
    numbers = times.numbers
    ends = ends_of(scaled_dir, [phase for phase in times.phases if phase["phase"] >= REST])
    column = {number: i for i, number in enumerate(numbers)}
    by_cell = np.array([column[number] for number in ready.phases], dtype=np.int64)
    weight = np.zeros((times.n, len(numbers)))
    columns, calls = [], []
    for loop in ready.loops:
        of = by_cell[loop.cell % len(ready.phases)]
        if ends is not None and START in column:
            parts = np.array([column[number] for number in (REST, START, END)])
            root = of == column[REST]
            of = np.where(root, parts[_place(loop, ends, ready.trace.slot)], of)
        calls.append(_calls(loop))
        np.add.at(weight, (loop.full.rank, of), np.where(calls[-1], loop.weight, 0.0))
        columns.append(of)
    return StepColumns(numbers, tuple(columns), tuple(calls), weight)


def nowhere(times: PhaseTimes) -> StepColumns:
    """Return the columns of times of which nothing is simulated."""
    return StepColumns(times.numbers, (), (), np.zeros_like(times.compute))


def _place(loop: Loop, ends: Ends, slot: Ints) -> Ints:
    """Return 0, 1 or 2 per step of a loop, as Ends.place; a step without a row: as the one before.

    Those in front of the first row are where that is.
    """
    row = loop.full.row
    known = np.flatnonzero(row >= 0)
    if not len(known) or not len(slot):
        return np.zeros(len(row), dtype=np.int64)
    before = np.searchsorted(known, np.arange(len(row)), side="right") - 1
    return ends.place(slot[row[known[np.maximum(before, 0)]]])


def _calls(loop: Loop) -> Bools:
    """Return which steps are calls of the program: of a collective the first of its messages.

    In another turn the same row is another call.
    """
    row, rank, turn = loop.full.row, loop.full.rank, loop.full.turn
    first = np.ones(len(row), dtype=bool)
    first[1:] = (row[1:] != row[:-1]) | (rank[1:] != rank[:-1]) | (turn[1:] != turn[:-1])
    return first & (row >= 0)


@dataclass(frozen=True)
class Work:
    """What is made of computation, per rank and column: times ``factor``, and ``more`` seconds.

    More only where there was none.
    """

    factor: Floats
    more: Floats

    def of_times(self, times: PhaseTimes) -> PhaseTimes:
        """Return times with this computation."""
        return replace(times, compute=times.compute * self.factor + self.more)

    def of_steps(self, ready: SimulationInput, where: StepColumns) -> SimulationInput:
        """Return what is simulated with this computation."""
        each = self.more * _NS_PER_S / np.maximum(where.weight, 1e-300)
        each[where.weight <= 0] = 0.0
        loops = []
        for loop, of, calls in zip(ready.loops, where.of, where.calls, strict=True):
            rank = loop.full.rank
            work = loop.full.work_ns * self.factor[rank, of] + each[rank, of] * calls
            loops.append(replace(loop, full=replace(loop.full, work_ns=work)))
        return replace(ready, loops=tuple(loops))


def altered_work(changes: Changes, times: PhaseTimes, where: StepColumns) -> Work | None:
    """Return what changes make of computation; None where they leave it alone."""
    factor, more = np.ones_like(times.compute), np.zeros_like(times.compute)
    parts = changes.of(COMPUTE, PHASE, BALANCED)
    for part in parts:
        columns = [i for i, each in enumerate(where.numbers) if part.phase in (None, each)]
        if part.what == BALANCED:
            for column in columns:
                _balance(column, times.compute, where.weight, factor, more)
        else:
            factor[:, columns] *= max(part.value, _NOTHING)
            more[:, columns] *= part.value
    return Work(factor, more) if parts else None


def _balance(column: int, compute: Floats, weight: Floats, factor: Floats, more: Floats) -> None:
    """Let all ranks that take part in a phase compute as much as they do in the mean."""
    now = compute[:, column] * factor[:, column] + more[:, column]
    there = (weight[:, column] > 0) | (now > 0)
    if not there.any():
        return
    mean = float(now.sum()) / int(there.sum())
    busy = compute[:, column] > 0
    factor[busy, column] = mean / compute[busy, column]
    more[:, column] = np.where(there & ~busy, mean, 0.0)


def altered_variation(
    changes: Changes, phases: Sequence[int]
) -> Callable[[Variation], Variation] | None:
    """Return what changes make of how computation varies; None where they leave it alone.

    Ranks that are balanced don't differ for long; from iteration to iteration they still do.
    """
    balanced = [part.phase for part in changes.of(BALANCED)]
    if not balanced:
        return None

    def evened(variation: Variation) -> Variation:
        pairs = zip(variation.spreads, phases, strict=True)
        each = (
            replace(one, ranks=EVEN) if None in balanced or phase in balanced else one
            for one, phase in pairs
        )
        return replace(variation, spreads=tuple(each))

    return evened
