"""One process count simulated as it is and with changes: every rank, or smaller grids instead.

Both draw the same computation, so that what is left between two simulations is what changes do.
"""

from __future__ import annotations

import math
import pathlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from p3s.base.arrays import Bools, Floats, Ints
from p3s.base.errors import P3SError, UsageError
from p3s.base.records import Traces, scaled_dir
from p3s.base.text import processes
from p3s.costs.spread import EVEN
from p3s.predict.estimated import TYPICAL, Communication, Draws, silent
from p3s.predict.estimates import Kept
from p3s.predict.estimators import Setting, estimate
from p3s.predict.estimators.drawn import Alteration, Variation
from p3s.predict.estimators.fewer import EVERY_RANK, Ways, smaller, taken_to
from p3s.predict.estimators.grids import Grid, Grids
from p3s.predict.estimators.machine import grids_of, simulate_input
from p3s.predict.estimators.messages import Messages, messages_of, published_messages
from p3s.predict.estimators.settings import Program, SimulationInput, on_nodes_of, read_program
from p3s.predict.times import (
    END,
    REST,
    START,
    PhaseTimes,
    RootParts,
    computation,
    computed_in,
    root_parts_of,
    with_communication,
)
from p3s.predict.what_if.changes import (
    BALANCED,
    COMPUTE,
    COSTS,
    HIGH,
    IDEAL,
    LOW,
    NETWORK,
    NOT_ASKED,
    PHASE,
    PLACEMENT,
    THREADS,
    VALUE,
    Changes,
    MoreThreads,
)
from p3s.program.mapping import BLOCK, CYCLIC
from p3s.program.types import MOST_RANKS
from p3s.simulate.folded import Loop
from p3s.simulate.network import NEVER, Curve, Network

#: Draws of computation where only a ratio is asked for, whose two times draw the same.
_FEW_DRAWS = 2
#: Nothing is changed.
NOTHING = Changes("", ())
#: What is changed of the computation of ranks.
_OF_WORK = (COMPUTE, PHASE, BALANCED)


@dataclass(frozen=True, eq=False)
class Scenario:
    """What is simulated: costs of messages, where ranks are, and changes to costs and work.

    ``why``: why the costs are not those of the prediction's estimator, "" where they are.
    ``found``: what the prediction has simulated with these costs already.
    """

    messages: Messages
    setting: Setting
    changes: Changes = NOTHING
    why: str = ""
    found: Kept = field(default_factory=dict)

    def sends_as(self, other: Scenario) -> bool:
        """Tell whether the same messages are sent, between the same nodes."""
        mine, its = (
            (one.messages.library, one.messages.cores, replace(one.setting, vary=True, network=""))
            for one in (self, other)
        )
        return mine == its


def costs_of(traces: Traces, estimator: str, machine: Path | None, setting: Setting) -> Scenario:
    """Return the costs with which changes to the times of an estimator are simulated.

    What was measured by a replay, or simulated outside of P3S, has no costs that could be changed:
    those between two ranks stand for it, or else published ones.
    """
    messages = messages_of(traces, estimator, machine, setting)
    if estimator == messages.name:
        return Scenario(messages, setting)
    measured = "costs measured between two ranks"
    where = f"those of {messages.machine}" if messages.name == TYPICAL else measured
    why = (
        f"the prediction rests on {estimator}, whose costs of messages cannot be changed; "
        f"the dependency simulation answers, with {where}"
    )
    return Scenario(messages, setting, why=why)


def check_answerable(
    traces: Traces, asked: Sequence[Changes], counts: Sequence[int], costs: Scenario
) -> None:
    """Raise UsageError where changes cannot be simulated at a count.

    Where ranks are is a matter of all of them: smaller grids do not tell. Nor does a trace of some
    ranks tell what the ranks compute that are simulated.
    """
    most = max(counts, default=0)
    for changes in asked:
        if changes.of(*_OF_WORK) and most > MOST_RANKS:
            raise UsageError(
                f"--what-if {changes.text}: computation is changed on all ranks, and the trace of "
                f"{processes(most)} has some; ask at {MOST_RANKS:,} at most"
            )
    moved = next((one for one in asked if one.moves), None)
    for n in counts:
        if moved and smaller(traces, n, costs.messages.cores, costs.setting) is not None:
            raise UsageError(
                f"--what-if {moved.text}: where ranks are is simulated with every "
                f"rank, and {processes(n)} are many; ask at {EVERY_RANK:,} at most, or add "
                "--every-rank"
            )


@dataclass(frozen=True, eq=False)
class SimulatedTimes:
    """Times of all ranks, and the draws of each grid, one where all are simulated.

    ways: how times change with the grid, None where all ranks are simulated. ends: the times where
    what changes do is not known exactly, at the ends of the 90 % interval of that alone; None where
    it is.
    """

    times: PhaseTimes
    draws: tuple[Draws, ...]
    ways: Ways | None = None
    ends: tuple[PhaseTimes, PhaseTimes] | None = None


@dataclass(frozen=True, eq=False)
class Simulation:
    """The program at one count, simulated as it is and with changes.

    ``as_is``: the program without changes. ``threads``: what other numbers of threads do, or why
    that is not known. ``moved``: changes put ranks elsewhere, which smaller grids do not tell.
    """

    traces: Traces
    n: int
    as_is: Scenario
    threads: MoreThreads | str = NOT_ASKED
    moved: bool = False
    _steps: dict[int, StepColumns] = field(default_factory=dict, init=False)

    @cached_property
    def times(self) -> PhaseTimes:
        """Computation of all ranks, without any communication."""
        return computation(scaled_dir(self.traces.root, self.n))

    @cached_property
    def grids(self) -> Grids | None:
        """The smaller grids that stand for so many ranks; None: all ranks are simulated."""
        messages, setting = self.as_is.messages, self.as_is.setting
        few = smaller(self.traces, self.n, messages.cores, setting, changed=not self.moved)
        if few is None:
            return None
        return replace(grids_of(messages, self.traces, few, setting, silent), keep=True)

    @property
    def all_ranks(self) -> bool:
        """Whether all ranks are simulated, not smaller grids."""
        return self.grids is None

    @cached_property
    def ready(self) -> tuple[SimulationInput, ...]:
        """Each grid, or all ranks alone, on nodes as the prediction has them; smallest first."""
        if self.grids is not None:
            return tuple(grid.ready for grid in self.grids.prepared)
        messages = self.as_is.messages
        return (on_nodes_of(self._program, messages.library, self.as_is.setting, messages.cores),)

    @cached_property
    def _program(self) -> Program:
        """What of the scaled trace is simulated, wherever its ranks are."""
        directory = scaled_dir(self.traces.root, self.n)
        return read_program(directory, queues=self.as_is.messages.queues)

    def _on_nodes(self, changed: Scenario) -> tuple[SimulationInput, ...]:
        """Return each grid, or all ranks alone, on nodes as changes have them."""
        if changed.sends_as(self.as_is):
            return self.ready
        messages, setting = changed.messages, changed.setting
        if self.grids is None:
            return (on_nodes_of(self._program, messages.library, setting, messages.cores),)
        return tuple(grid.on(messages, setting).ready for grid in self.grids.prepared)

    def steps(self, changed: Scenario) -> int:
        """Return how many steps there are in the iterations that are simulated first."""
        if self.n == 1:
            return 0
        return sum(len(loop.full) for ready in self._on_nodes(changed) for loop in ready.loops)

    @property
    def size(self) -> int:
        """The same without changes."""
        return self.steps(self.as_is)

    def simulated(
        self, changed: Scenario, base: SimulatedTimes | None, *, ends: bool = True, draws: int = 0
    ) -> SimulatedTimes:
        """Return the times with changes; ``base``: without them, None where this is that.

        Both draw the same, ``draws`` times at most (0: as often as a prediction does). Times change
        with the grid as without changes, unless other messages are sent. One process communicates
        with nobody.
        """
        changes, messages = changed.changes, changed.messages
        if self.n == 1:
            work = altered_work(changes, self.times, np.zeros_like(self.times.compute))
            times = self.times if work is None else work.of_times(self.times)
            made = estimate(messages.name, self.traces, 1)
            return SimulatedTimes(with_communication(times, made), (Draws(),))
        ready, times = self._with_work(changed)
        each = [Draws(most=draws) for _ in ready]
        if base is not None:
            each = [one.again() for one in base.draws]
        network = altered_network(changes)
        variation = altered_variation(changes, ready[0].phases)

        def on(k: int, how: Setting, with_ends: bool) -> Communication:
            altered = Alteration(network, variation, each[k])
            more = ends and with_ends
            return simulate_input(
                messages, self.traces, ready[k], how, silent, ends=more, altered=altered
            )

        if self.grids is None:
            found = on(0, changed.setting, True)
            return SimulatedTimes(with_communication(times, found), tuple(each))

        def place(grid: Grid, how: Setting, with_ends: bool) -> Communication:
            return on(grid.number, how, with_ends)

        like = base.ways if base is not None and changed.sends_as(self.as_is) else None
        few, some = self.grids.few, self.grids.simulated(place, changed.setting)
        found, ways = taken_to(few, self.grids.ranks, some, like)
        if times is not self.times:
            beside = [computed_in(times, number)[few.stands_for] for number in found.phases]
            found = replace(found, beside=np.stack(beside, axis=1)[few.stood_for_by])
        return SimulatedTimes(with_communication(times, found), tuple(each), ways)

    def _with_work(self, changed: Scenario) -> tuple[list[SimulationInput], PhaseTimes]:
        """Return what is simulated and the times of all ranks, both with changed computation."""
        ready, times, grids = list(self._on_nodes(changed)), self.times, self.grids
        if not changed.changes.of(*_OF_WORK) or (grids is not None and grids.ranks is not None):
            return ready, times
        for k, one in enumerate(ready):
            few = None if grids is None else grids.all[k]
            where = self._where(k, one)
            weight = where.weight if few is None else where.weight[few.standing_for(None)]
            work = altered_work(changed.changes, self.times, weight)
            if work is not None:
                times = work.of_times(self.times) if k == 0 else times
                own = work if few is None else work.of_ranks(few.stands_for)
                ready[k] = own.of_steps(one, where)
        return ready, times

    def _where(self, k: int, ready: SimulationInput) -> StepColumns:
        """Return where the steps of what is prepared are; those as predicted are looked up once."""
        if ready is self.ready[k] and k in self._steps:
            return self._steps[k]
        found = step_columns(ready, self.times, scaled_dir(self.traces.root, self.n))
        if ready is self.ready[k]:
            self._steps[k] = found
        return found

    @cached_property
    def base(self) -> SimulatedTimes:
        """The program as it is."""
        return self._predicted or self.simulated(self.as_is, None)

    @cached_property
    def _predicted(self) -> SimulatedTimes | None:
        """The same as the prediction has simulated it; None where it has not."""
        found = self.as_is.found.get((self.as_is.messages.name, self.n))
        if found is None or found.draws is None or not self.all_ranks:
            return None
        return SimulatedTimes(with_communication(self.times, found), (found.draws,))

    @cached_property
    def _plain(self) -> SimulatedTimes:
        """The program as it is, without the ends of its interval: on smaller grids of few draws."""
        draws = 0 if self.all_ranks else _FEW_DRAWS
        as_is = self._predicted  # only its ends are more
        return as_is or self.simulated(self.as_is, None, ends=False, draws=draws)

    def share(self, changes: Changes) -> float:
        """Return the run time with changes over that without, of usual costs of messages."""
        ends = "base" in self.__dict__
        one = self.base if ends else self._plain
        return self.changed(changes, ends=ends).times.run_s / one.times.run_s

    def changed(self, changes: Changes, *, ends: bool = True) -> SimulatedTimes:
        """Return the program with changes, drawn as the program as it is.

        Without ``ends`` the interval has no width. Errors: P3SError where nothing is known of what
        they do.
        """
        base = self.base if ends else self._plain

        def at(end: int) -> SimulatedTimes:
            return self.simulated(self.scenario(changes, end), base, ends=ends)

        if not changes.of(THREADS):
            return at(VALUE)
        made, low, high = map(at, (VALUE, LOW, HIGH))
        return replace(made, ends=(low.times, high.times))

    def even(self, changes: Changes, most: int) -> PhaseTimes | None:
        """Return the times with changes where nothing varies and messages cost what is usual.

        Takes a fraction of the time of ``changed``: for sorting many changes. None where there
        would be more than ``most`` steps.
        """
        changed = self.scenario(changes)
        changed = replace(changed, setting=replace(changed.setting, vary=False))
        if self.steps(changed) > most:
            return None
        return self.simulated(changed, None, ends=False).times

    def scenario(self, changes: Changes, end: int = VALUE) -> Scenario:
        """Return the costs of messages and where ranks are, as changes have them.

        end: of what threads do to computation, as of MoreThreads.
        """
        messages, setting = self.as_is.messages, self.as_is.setting
        network, how = changes.value(NETWORK), changes.value(PLACEMENT)
        if network not in (None, IDEAL):
            setting = replace(setting, network=network)
            library = messages.library
            messages = replace(published_messages(self.traces, setting), library=library)
        if how is not None:
            setting = placed_as(setting, how)
        if changes.of(THREADS):
            count, known = changes.value(THREADS), self._known_threads(changes)
            setting = replace(setting, ranks_per_node=known.per_node(count))
            parts = known.as_scaled(count, self.times.numbers, self.n, end)
            rest = (part for part in changes.parts if part.what != THREADS)
            changes = Changes(changes.text, (*rest, *parts))
        if changes.rules:
            library = messages.library
            library = replace(library, rules=(*changes.rules, *library.rules))
            messages = replace(messages, library=library)
        return Scenario(messages, setting, changes)

    def _known_threads(self, changes: Changes) -> MoreThreads:
        """Return what is known of threads; raises P3SError where that does not tell changes."""
        if isinstance(self.threads, str):
            raise P3SError(f"--what-if {changes.text}: {self.threads}")
        if self.as_is.setting.listed_at(self.n):
            raise P3SError(
                f"--what-if {changes.text}: a file says where ranks are, and not where they are "
                "with other threads; leave --placement out"
            )
        self.threads.check(changes.value(THREADS))
        return self.threads


def placed_as(setting: Setting, how: str) -> Setting:
    """Return a setting whose ranks are on nodes in another way: block, cyclic or as a file says."""
    if how in (BLOCK, CYCLIC):
        return replace(setting, mapping=how, rank_file=None, rank_file_n=0)
    if not Path(how).is_file():
        raise P3SError(f"--what-if placement={how}: is no file; give block, cyclic or a rank file")
    return replace(setting, rank_file=Path(how), rank_file_n=0)


# ---- what changes make of costs of messages and of computation ----------------------------------
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

    ``of``: column of each step, one array per loop; ``calls``: which steps are calls of the
    program, as ``of``; ``weight``: calls of the run per rank and column, (ranks, columns): who
    takes part in a phase.
    """

    of: tuple[Ints, ...]
    calls: tuple[Bools, ...]
    weight: Floats


def step_columns(
    ready: SimulationInput, times: PhaseTimes, scaled_dir: pathlib.Path
) -> StepColumns:
    """Return where the steps of all loops are; those of phase 0 in start, rest or end."""
    ends = root_parts_of(scaled_dir, [phase for phase in times.phases if phase["phase"] >= REST])
    column = {number: i for i, number in enumerate(times.numbers)}
    by_cell = np.array([column[number] for number in ready.phases], dtype=np.int64)
    weight = np.zeros((ready.trace.n, len(column)))
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
    return StepColumns(tuple(columns), tuple(calls), weight)


def _place(loop: Loop, ends: RootParts, slot: Ints) -> Ints:
    """Return 0, 1 or 2 per step of a loop, as RootParts.place.

    A step without a row is where the one before is.
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

    def of_ranks(self, ranks: Ints) -> Work:
        """Return that of some ranks."""
        return Work(self.factor[ranks], self.more[ranks])

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


def altered_work(changes: Changes, times: PhaseTimes, weight: Floats) -> Work | None:
    """Return what changes make of computation; None where they leave it alone.

    ``weight``: calls per rank and column, as of StepColumns.
    """
    parts = changes.of(*_OF_WORK)
    if not parts:
        return None
    factor, more = np.ones_like(times.compute), np.zeros_like(times.compute)
    for part in parts:
        columns = [i for i, each in enumerate(times.numbers) if part.phase in (None, each)]
        if part.what != BALANCED:
            factor[:, columns] *= max(part.value, _NOTHING)
            more[:, columns] *= part.value
            continue
        for column in columns:  # all ranks that take part compute as much as they do in the mean
            compute = times.compute[:, column]
            now = compute * factor[:, column] + more[:, column]
            there, busy = (weight[:, column] > 0) | (now > 0), compute > 0
            if there.any():
                mean = float(now.sum()) / int(there.sum())
                factor[busy, column] = mean / compute[busy]
                more[:, column] = np.where(there & ~busy, mean, 0.0)
    return Work(factor, more)


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
