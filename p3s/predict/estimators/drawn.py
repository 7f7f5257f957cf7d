"""Simulations of a loop with computation as it is or drawn anew, from how it varied when traced."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np

from p3s.base import workers
from p3s.base.arrays import Bools, Floats, Ints
from p3s.base.artefacts import LastRead, files_in
from p3s.base.records import Traces
from p3s.capture import read_run
from p3s.costs.spread import EVEN, Distribution, Spread
from p3s.costs.types import load, own_cores
from p3s.predict.estimated import Draws
from p3s.predict.estimators.settings import SimulationInput
from p3s.signature.clock import TIMES
from p3s.simulate.folded import AddUp, SectionTimes, folded_totals
from p3s.simulate.network import Network
from p3s.simulate.packed import Tally
from p3s.simulate.simulate import totals
from p3s.simulate.steps import Steps
from p3s.simulate.totals import PARTS, Room, StepDraws, Totals

#: Capture files of a run that is read for it, in bytes, at most, where there is a smaller one.
_MOST_BYTES = 64 << 20
#: Stretches between two calls that occur less often on a rank tell nothing about single turns.
_LEAST_OCCURRENCES = 10
#: Steps whose computation is drawn at once: what that takes stays in the cache of a core.
_AT_ONCE = 1 << 14


@dataclass(frozen=True)
class Variation:
    """Variability of each phase, in the order of the columns of the cells (rank x phases).

    ``own``: deviation of single iterations (standard, of the ratio to the mean) that ranks do not
    have in common; what is drawn deviates by no more."""

    spreads: tuple[Spread, ...]
    own: float = math.inf

    @cached_property
    def shares(self) -> tuple[float, ...]:
        """What is drawn of the deviations of the iterations of each phase, 0 to 1."""
        deviations = (one.turns.deviation for one in self.spreads)
        return tuple(min(self.own / each, 1.0) if each > 0 else 0.0 for each in deviations)

    @property
    def varies(self) -> bool:
        """Whether there is any."""
        return any(one.ranks != EVEN for one in self.spreads) or any(self.shares)

    def ranks(self, n: int, rng: np.random.Generator) -> Floats:
        """Return the lasting factor of every cell, mean 1; drawn by rank and phase."""
        columns = [
            np.ones(n) if one.ranks == EVEN else one.ranks.sample(rng, n) for one in self.spreads
        ]
        return np.stack(columns, axis=1).reshape(-1)

    def varying(self, work_ns: Floats, cell: Ints, lasting: Floats | None) -> Varying:
        """Return the computation before some steps, to be drawn many times.

        ``cell``: of each step. ``lasting``: of :meth:`ranks`.
        """
        work, phase = np.array(work_ns, dtype=np.float64), cell % len(self.spreads)
        there = np.zeros(len(self.spreads), dtype=bool)
        for first in range(0, len(work), _AT_ONCE):
            some = slice(first, first + _AT_ONCE)
            there[phase[some]] = True
            if lasting is not None:
                work[some] *= lasting[cell[some]]
        parts = []
        for k in (k for k in np.flatnonzero(there).tolist() if self.shares[k] > 0):
            mine = phase == k
            mine &= work > 0
            where = None if mine.all() else np.flatnonzero(mine)
            parts.append((self.spreads[k].turns, self.shares[k], where))
        return Varying(work, tuple(parts))


@dataclass(frozen=True, eq=False)
class Varying:
    """Computation before steps, and what of it varies: how, how much of that, and where.

    The place None: everywhere."""

    work_ns: Floats
    parts: tuple[tuple[Distribution, float, Ints | None], ...]

    def drawn(self, rng: np.random.Generator) -> Floats:
        """Return the computation before each step, drawn anew."""
        drawn = self.work_ns.copy()
        for turns, share, where in self.parts:
            number = len(drawn) if where is None else len(where)
            for first in range(0, number, _AT_ONCE):
                last = min(first + _AT_ONCE, number)
                factor = turns.sample(rng, last - first)
                factor -= 1.0
                factor *= share
                factor += 1.0
                drawn[slice(first, last) if where is None else where[first:last]] *= factor
        return drawn


def variation_of(traces: Traces, phases: Sequence[int]) -> Variation | None:
    """Return the variability in compute.json of these phases; None where there is none.

    Raises P3SError when it is damaged.
    """
    found = load(traces.root)
    if found is None or not found.phases:
        return None
    known = {phase.phase: phase.spread for phase in found.phases}
    quiet = own_cores(found.runs)
    return Variation(
        tuple(known.get(phase, Spread()) for phase in phases), _measure_deviation(traces, quiet)
    )


def _measure_deviation(traces: Traces, quiet: Collection[int]) -> float:
    """Return ``own_deviation`` of the largest traced run that is not too large; inf: none tells.

    ``quiet``: counts whose ranks had cores of their own; where there are any, it is one of these.
    """
    runs = [
        run
        for run in traces.timed or traces.runs
        if run.status == "complete" and run.np > 1 and run.np not in traces.unused
    ]
    runs = [run for run in runs if run.np in quiet] or runs
    files = {run.path: files_in(run.path) for run in runs}
    sizes = {path: sum(size for _, size, *_ in some) for path, some in files.items()}
    small = [run for run in runs if sizes[run.path] <= _MOST_BYTES]
    chosen = max(small, key=lambda run: (run.np, -run.rep), default=None) or min(
        runs, key=lambda run: sizes[run.path], default=None
    )
    return math.inf if chosen is None else _last_deviation(chosen.path)


def own_deviation(run: Any) -> float:
    """Return by how much single iterations deviate on each rank for itself.

    ``run``: a RunTrace. An iteration is the k-th time that a rank computes between the same two
    places; its deviation is its time over the rank's mean of these, less one. What ranks with as
    many of them have in common is the mean of their k-th deviations. The result is the root of the
    mean square about that, weighted by time; inf where no two ranks can be compared or work is no
    time."""
    if run.work_unit not in TIMES:
        return math.inf
    # Calls of one place in the program, to whatever partner.
    number_of: dict[tuple[str, int], int] = {}
    place_of = np.array(
        [number_of.setdefault((call.op, call.site), len(number_of)) for call in run.calls],
        dtype=np.int64,
    )
    parts: dict[tuple[int, int], list[Floats]] = {}
    for rank in run.ranks:
        if len(rank.call) < _LEAST_OCCURRENCES:
            continue
        place, work = place_of[rank.call], np.asarray(rank.work, dtype=np.float64)
        stretch = place[:-1] * len(number_of) + place[1:]
        order = np.argsort(stretch, kind="stable")
        values, first, count = np.unique(stretch[order], return_index=True, return_counts=True)
        for which, begin, number in zip(
            values.tolist(), first.tolist(), count.tolist(), strict=True
        ):
            times = work[1:][order[begin : begin + number]]
            if number >= _LEAST_OCCURRENCES and times.mean() > 0:
                parts.setdefault((which, number), []).append(times)
    whole = own = 0.0
    for rows in parts.values():
        if len(rows) > 1:
            table = np.stack(rows)
            mean = table.mean(axis=1, keepdims=True)
            off = table / mean - 1.0
            weight = mean * len(rows) / (len(rows) - 1)  # the common part is a mean of the same
            own += float((weight * (off - off.mean(axis=0)) ** 2).sum())
            whole += float(table.sum())
    return float(np.sqrt(own / whole)) if whole > 0 else math.inf


#: A prediction simulates its counts many times over.
_last_deviation = LastRead(lambda run: own_deviation(read_run(run)), files=8, mark=files_in)


#: Simulations with drawn computation: as many as so many steps allow, in these bounds.
_STEPS = 4_000_000
_REPEATS = (3, 12)
#: Windows of a loop with drawn computation or other costs: at least so many, and this multiple of
#: those that the loop needs to settle where nothing varies.
_FEWEST_WINDOWS, _LONGER = 4, 2
#: Steps from which a drawn simulation is worth a thread: of fewer, Python takes the longer part of
#: the time, and threads wait for each other's. Steps above which the memory of another one is not.
_WORTH_A_THREAD, _TOO_LARGE = 100_000, 1_000_000
_NS_PER_S = 1e9


@dataclass(frozen=True)
class Alteration:
    """What is done to the costs of messages and to how computation varies before simulating."""

    network: Callable[[Network], Network] | None = None
    variation: Callable[[Variation], Variation] | None = None
    draws: Draws | None = None


def runner(
    ready: SimulationInput,
    network: Network,
    notes: list[str],
    room: Room,
    factor: float = 1.0,
    *,
    variation: Variation | None = None,
    seed: int = 0,
    cut: list[int] | None = None,
) -> AddUp:
    """Return what simulates steps; with a variation, computation is drawn anew each time.

    ``notes``, ``cut``: what had to be changed so that ranks end, and how many calls, are added.

    Messages that take ``factor`` as long are computation that takes less, in another unit of time.
    With a variation a further row of sums says how much longer the cells compute than without.
    """
    rng = np.random.default_rng(seed)
    lasting = variation.ranks(ready.trace.n, rng) if variation is not None else None
    computing: dict[tuple[int, bool], tuple[Ints, Varying]] = {}

    def run(steps: Steps, only: Bools | None, tally: Tally, first: Floats) -> Totals:
        drawn = longer = None
        if variation is not None:
            at, varying = _computing(computing, variation, steps, only, tally.cell, lasting)
            drawn = StepDraws(at, varying.drawn(rng))
            more = tally.weight[at] * (drawn.ns - steps.work_ns[at])
            longer = np.bincount(tally.cell[at], more, tally.cells)
        found = totals(
            steps,
            ready.node_of,
            network,
            tally,
            distance=ready.distance,
            first_ns=first,
            slower=factor,
            only=only,
            drawn=drawn,
            room=room,
        )
        notes.extend(found.notes)
        if cut is not None:
            cut.append(found.cut)
        return found if longer is None else replace(found, sums=np.vstack([found.sums, longer]))

    return run


def _computing(
    known: dict[tuple[int, bool], tuple[Ints, Varying]],
    variation: Variation,
    steps: Steps,
    only: Bools | None,
    cell: Ints,
    lasting: Floats | None,
) -> tuple[Ints, Varying]:
    """Return the steps before which there is computation, of those that are made, and that.

    The windows of a loop have the same steps: what varies of them is looked up once, and those of
    the loop before are forgotten, which never come again.
    """
    key = id(steps), only is not None
    if key not in known:
        known.clear()
        busy = steps.work_ns > 0
        at = np.flatnonzero(busy if only is None else busy & only)
        known[key] = at, variation.varying(steps.work_ns[at], cell[at], lasting)
    return known[key]


def windows_of(even: SectionTimes) -> int:
    """Return of how many windows the mean is enough, from a simulation in which nothing varies."""
    return max(_LONGER * even.windows, _FEWEST_WINDOWS)


def simulate_variation(
    ready: SimulationInput,
    number: int,
    network: Network,
    variation: Variation,
    even: SectionTimes,
    overlap: bool,
    draws: Draws | None = None,
    room: Room | None = None,
) -> Floats:
    """Return means of some simulations of a loop in which computation varies, (PARTS + 1, cells).

    The last row is how much longer cells compute than without variation (less than 0: shorter).
    ``room``: of simulations before, whose results nobody needs any more.
    """
    loop = ready.loops[number]
    windows = windows_of(even) if loop.chained else 0
    size = len(loop.full) + windows * loop.window
    repeats = int(np.clip(_STEPS // max(size, 1), *_REPEATS))
    if draws is not None:
        windows, repeats = draws.planned(number, windows, repeats)
    total = np.zeros((PARTS + 1, loop.cells))
    rooms: SimpleQueue[Room] = SimpleQueue()
    if room is not None:
        rooms.put(room)

    def drawn(repeat: int) -> Floats:
        try:
            mine = rooms.get_nowait()
        except Empty:  # the first of a thread
            mine = Room(loop.packs)
        run = runner(ready, network, [], mine, variation=variation, seed=repeat)
        found = folded_totals(loop, run, windows=windows, overlap=overlap).sums
        rooms.put(mine)
        return found

    many = size >= _WORTH_A_THREAD and len(loop.full) <= _TOO_LARGE
    together = workers.in_threads if many else map
    for found in together(drawn, range(repeats)):
        total += found / repeats
    return total
