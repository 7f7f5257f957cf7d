"""One process count simulated as it is and with changes: every rank, or smaller grids instead.

Both draw the same computation, so that what is left between two simulations is what changes do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from p3s.base.errors import P3SError, UsageError
from p3s.base.records import Traces, scaled_dir
from p3s.base.text import processes
from p3s.predict.estimated import TYPICAL, Communication, Draws, silent
from p3s.predict.estimates import Kept
from p3s.predict.estimators import Setting, estimate
from p3s.predict.estimators.drawn import Alteration
from p3s.predict.estimators.fewer import EVERY_RANK, Ways, smaller, taken_to
from p3s.predict.estimators.grids import Grid, Grids
from p3s.predict.estimators.machine import grids_of, simulate_input
from p3s.predict.estimators.messages import Messages, messages_of, published_messages
from p3s.predict.estimators.settings import Program, SimulationInput, on_nodes_of, read_program
from p3s.predict.times import PhaseTimes, computation, computed_in, with_communication
from p3s.predict.what_if.altered import (
    StepColumns,
    Work,
    altered_network,
    altered_variation,
    altered_work,
    nowhere,
    where_of,
)
from p3s.predict.what_if.changes import (
    BALANCED,
    COMPUTE,
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

#: Draws of computation where only a ratio is asked for, whose two times draw the same.
_FEW_DRAWS = 2
#: Nothing is changed.
NOTHING = Changes("", ())


@dataclass(frozen=True)
class Costs:
    """Whose costs of messages a simulation takes: ``name`` of the estimator.

    ``why``: why it is not the estimator of the prediction, "" where it is. ``found``: what the
    prediction has simulated with these costs already.
    """

    name: str
    messages: Messages
    setting: Setting
    why: str = ""
    found: Kept = field(default_factory=dict)


def costs_of(traces: Traces, estimator: str, machine: Path | None, setting: Setting) -> Costs:
    """Return the costs with which changes to the times of an estimator are simulated.

    What was measured by a replay, or simulated outside of P3S, has no costs that could be changed:
    those between two ranks stand for it, or else published ones.
    """
    messages = messages_of(traces, estimator, machine, setting)
    if estimator == messages.name:
        return Costs(estimator, messages, setting)
    measured = "costs measured between two ranks"
    where = f"those of {messages.machine}" if messages.name == TYPICAL else measured
    why = (
        f"the prediction rests on {estimator}, whose costs of messages cannot be changed; "
        f"the dependency simulation answers, with {where}"
    )
    return Costs(messages.name, messages, setting, why)


def check_answerable(
    traces: Traces, asked: Sequence[Changes], counts: Sequence[int], costs: Costs
) -> None:
    """Raise UsageError where changes cannot be simulated at a count.

    Where ranks are is a matter of all of them: smaller grids do not tell. Nor does a trace of some
    ranks tell what the ranks compute that are simulated.
    """
    most = max(counts, default=0)
    for changes in asked:
        if changes.of(COMPUTE, PHASE, BALANCED) and most > MOST_RANKS:
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
class Scenario:
    """What is simulated: costs of messages, where ranks are, and changes to costs and work."""

    messages: Messages
    setting: Setting
    changes: Changes = NOTHING

    def sends_as(self, other: Scenario) -> bool:
        """Tell whether the same messages are sent, between the same nodes."""
        mine, its = (
            (one.messages.library, one.messages.cores, replace(one.setting, vary=True, network=""))
            for one in (self, other)
        )
        return mine == its


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

    ``threads``: what other numbers of threads do, or why that is not known. ``moved``: changes
    put ranks elsewhere, which smaller grids do not tell.
    """

    traces: Traces
    n: int
    costs: Costs
    threads: MoreThreads | str = NOT_ASKED
    moved: bool = False
    _places: dict[int, StepColumns] = field(default_factory=dict, init=False)

    @cached_property
    def times(self) -> PhaseTimes:
        """Computation of all ranks, without any communication."""
        return computation(scaled_dir(self.traces.root, self.n))

    @cached_property
    def as_is(self) -> Scenario:
        """The program without changes."""
        return Scenario(self.costs.messages, self.costs.setting)

    @cached_property
    def grids(self) -> Grids | None:
        """The smaller grids that stand for so many ranks; None: all ranks are simulated."""
        messages, setting = self.costs.messages, self.costs.setting
        few = smaller(self.traces, self.n, messages.cores, setting, changed=not self.moved)
        if few is None:
            return None
        return replace(grids_of(messages, self.traces, few, setting, silent), keep=True)

    @property
    def all_ranks(self) -> bool:
        """Whether all ranks are simulated, not smaller grids."""
        return self.grids is None

    @cached_property
    def _program(self) -> Program:
        """What of the scaled trace is simulated, wherever its ranks are."""
        directory = scaled_dir(self.traces.root, self.n)
        return read_program(directory, queues=self.costs.messages.queues)

    @cached_property
    def ready(self) -> tuple[SimulationInput, ...]:
        """Each grid, or all ranks alone, on nodes as the prediction has them; smallest first."""
        if self.grids is not None:
            return tuple(grid.ready for grid in self.grids.prepared)
        messages = self.costs.messages
        return (on_nodes_of(self._program, messages.library, self.costs.setting, messages.cores),)

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
        changes = changed.changes
        if self.n == 1:
            alone = altered_work(changes, self.times, nowhere(self.times))
            times = self.times if alone is None else alone.of_times(self.times)
            made = estimate(changed.messages.name, self.traces, 1)
            return SimulatedTimes(with_communication(times, made), (Draws(),))
        ready = list(self._on_nodes(changed))
        each = [Draws(most=draws) for _ in ready]
        if base is not None:
            each = [one.again() for one in base.draws]
        network = altered_network(changes)
        variation = altered_variation(changes, ready[0].phases)
        works = [self._work(k, one, changes) for k, one in enumerate(ready)]
        for k, work in enumerate(works):
            if work is not None:
                ready[k] = self._computing(k, ready[k], work)

        def on(k: int, how: Setting, with_ends: bool) -> Communication:
            altered = Alteration(network, variation, each[k])
            messages, more = changed.messages, ends and with_ends
            return simulate_input(
                messages, self.traces, ready[k], how, silent, ends=more, altered=altered
            )

        times = self.times if works[0] is None else works[0].of_times(self.times)
        if self.grids is None:
            found = on(0, changed.setting, True)
            return SimulatedTimes(with_communication(times, found), tuple(each))

        def place(grid: Grid, how: Setting, with_ends: bool) -> Communication:
            return on(grid.number, how, with_ends)

        like = base.ways if base is not None and changed.sends_as(self.as_is) else None
        few, some = self.grids.few, self.grids.simulated(place, changed.setting)
        found, ways = taken_to(few, self.grids.ranks, some, like)
        if works[0] is not None:
            beside = [computed_in(times, number)[few.stands_for] for number in found.phases]
            found = replace(found, beside=np.stack(beside, axis=1)[few.stood_for_by])
        return SimulatedTimes(with_communication(times, found), tuple(each), ways)

    def _work(self, k: int, ready: SimulationInput, changes: Changes) -> Work | None:
        """Return what changes make of the computation of all ranks; None: nothing.

        ``k``: number of the grid that tells where they compute.
        """
        if not changes.parts or (self.grids is not None and self.grids.ranks is not None):
            return None
        where = self._where(k, ready)
        if self.grids is not None:
            stood = self.grids.all[k].standing_for(self.grids.ranks)
            where = replace(where, weight=where.weight[stood])
        return altered_work(changes, self.times, where)

    def _computing(self, k: int, ready: SimulationInput, work: Work) -> SimulationInput:
        """Return what is simulated with what its ranks compute."""
        if self.grids is not None:
            ranks = self.grids.all[k].stands_for
            work = Work(work.factor[ranks], work.more[ranks])
        return work.of_steps(ready, self._where(k, ready))

    def _where(self, k: int, ready: SimulationInput) -> StepColumns:
        """Return where the steps of what is prepared are; those as predicted are looked up once."""
        usual = ready is self.ready[k]
        if usual and k in self._places:
            return self._places[k]
        times = self.times
        if self.grids is not None:
            few = self.grids.all[k]
            times = replace(times, n=few.n, compute=times.compute[few.stands_for])
        found = where_of(ready, times, scaled_dir(self.traces.root, self.n))
        if usual:
            self._places[k] = found
        return found

    @cached_property
    def base(self) -> SimulatedTimes:
        """The program as it is."""
        return self._predicted or self.simulated(self.as_is, None)

    @cached_property
    def _predicted(self) -> SimulatedTimes | None:
        """The same as the prediction has simulated it; None where it has not."""
        found = self.costs.found.get((self.costs.name, self.n))
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
            return self.simulated(self._costs(changes, end), base, ends=ends)

        if not changes.of(THREADS):
            return at(VALUE)
        made, low, high = map(at, (VALUE, LOW, HIGH))
        return replace(made, ends=(low.times, high.times))

    def even(self, changes: Changes, most: int) -> PhaseTimes | None:
        """Return the times with changes where nothing varies and messages cost what is usual.

        Takes a fraction of the time of ``changed``: for sorting many changes. None where there
        would be more than ``most`` steps.
        """
        changed = self._costs(changes, VALUE)
        changed = replace(changed, setting=replace(changed.setting, vary=False))
        if self.steps(changed) > most:
            return None
        return self.simulated(changed, None, ends=False).times

    def _costs(self, changes: Changes, end: int) -> Scenario:
        """Return the costs of messages and where ranks are, as changes have them.

        end: of what threads do to computation, as of MoreThreads.
        """
        messages, setting = self.costs.messages, self.costs.setting
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
        if self.costs.setting.listed_at(self.n):
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
