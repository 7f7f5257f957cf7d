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
from p3s.base.study import Study
from p3s.base.text import processes
from p3s.predict.distribution import total
from p3s.predict.estimated import TYPICAL, Communication, Draws
from p3s.predict.estimates import Kept
from p3s.predict.estimators import Setting, estimate
from p3s.predict.estimators.drawn import Altered
from p3s.predict.estimators.fewer import EVERY_RANK, Ways, smaller, taken_to
from p3s.predict.estimators.grids import Grid, Grids
from p3s.predict.estimators.machine import grids_of, placed
from p3s.predict.estimators.messages import Messages, messages_of, published_messages
from p3s.predict.estimators.settings import Prepared, Program, on_nodes_of, read_program, silent
from p3s.predict.times import PhaseTimes, computation, computed_in, with_communication
from p3s.predict.what_if.altered import (
    Where,
    Work,
    altered_network,
    altered_variation,
    altered_work,
    nowhere,
    where_of,
)
from p3s.predict.what_if.changes import (
    COSTS,
    HIGH,
    IDEAL,
    LOW,
    NOT_ASKED,
    VALUE,
    Algorithm,
    Balanced,
    Change,
    Changes,
    MoreThreads,
    NotKnown,
    OnNetwork,
    Placed,
    Scaled,
    Threads,
)
from p3s.program.mapping import BLOCK, CYCLIC
from p3s.program.types import MOST_RANKS

#: Draws of computation where only a ratio is asked for, whose two times draw the same.
_FEW_DRAWS = 2


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


def costs_of(study: Study, estimator: str, machine: Path | None, setting: Setting) -> Costs:
    """Return the costs with which changes to the times of an estimator are simulated.

    What was measured by a replay, or simulated outside of P3S, has no costs that could be changed:
    those between two ranks stand for it, or else published ones.
    """
    messages = messages_of(study, estimator, machine, setting)
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
    study: Study, asked: Sequence[Changes], counts: Sequence[int], costs: Costs
) -> None:
    """Raise UsageError where changes cannot be simulated at a count.

    Where ranks are is a matter of all of them: smaller grids do not tell. Nor does a trace of some
    ranks tell what the ranks compute that are simulated.
    """
    for changes in asked:
        scaled = any(part.what not in COSTS for part in changes.of(Scaled))
        if (scaled or changes.of(Balanced)) and max(counts, default=0) > MOST_RANKS:
            raise UsageError(
                f"--what-if {changes.text}: computation is changed on all ranks, and the trace of "
                f"{processes(max(counts))} has some; ask at {MOST_RANKS:,} at most"
            )
    moved = moves(asked)
    for n in counts:
        if moved and smaller(study, n, costs.messages.cores, costs.setting) is not None:
            raise UsageError(
                f"--what-if {moved.text}: where ranks are is simulated with every "
                f"rank, and {processes(n)} are many; ask at {EVERY_RANK:,} at most, or add "
                "--every-rank"
            )


def moves(asked: Sequence[Changes]) -> Changes | None:
    """Return the first of changes that put ranks elsewhere, None where none does."""
    elsewhere = (Placed, Threads)
    return next((one for one in asked if any(isinstance(p, elsewhere) for p in one.parts)), None)


@dataclass(frozen=True, eq=False)
class Changed:
    """What is simulated: costs of messages, where ranks are, and changes to what they compute."""

    messages: Messages
    setting: Setting
    parts: Sequence[Change] = ()

    def sends_as(self, other: Changed) -> bool:
        """Tell whether the same messages are sent, between the same nodes."""
        mine = replace(self.setting, vary=True, network="")
        return (
            self.messages.library == other.messages.library
            and self.messages.cores == other.messages.cores
            and mine == replace(other.setting, vary=True, network="")
        )


@dataclass(frozen=True, eq=False)
class Made:
    """A simulation: times of all ranks, and the draws of each grid, one where all are simulated.

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

    study: Study
    n: int
    costs: Costs
    threads: MoreThreads | NotKnown = NOT_ASKED
    moved: bool = False

    @cached_property
    def times(self) -> PhaseTimes:
        """Computation of all ranks, without any communication."""
        return computation(self.study, self.n)

    @cached_property
    def as_is(self) -> Changed:
        """The program without changes."""
        return Changed(self.costs.messages, self.costs.setting)

    @cached_property
    def grids(self) -> Grids | None:
        """The smaller grids that stand for so many ranks; None: all ranks are simulated."""
        messages, setting = self.costs.messages, self.costs.setting
        few = smaller(self.study, self.n, messages.cores, setting, changed=not self.moved)
        if few is None:
            return None
        return replace(grids_of(messages, self.study, few, setting, silent), keep=True)

    @property
    def all_ranks(self) -> bool:
        """Whether all ranks are simulated, not smaller grids."""
        return self.grids is None

    @cached_property
    def _program(self) -> Program:
        """What of the scaled trace is simulated, wherever its ranks are."""
        return read_program(self.study.scaled_dir(self.n), queues=self.as_is.messages.queues)

    @cached_property
    def ready(self) -> tuple[Prepared, ...]:
        """Each grid, or all ranks alone, on nodes as the prediction has them; smallest first."""
        if self.grids is not None:
            return tuple(grid.ready for grid in self.grids.prepared)
        return (self._all_on_nodes(self.as_is),)

    def _all_on_nodes(self, changed: Changed) -> Prepared:
        messages = changed.messages
        return on_nodes_of(self._program, messages.library, changed.setting, messages.cores)

    def _on_nodes(self, changed: Changed) -> tuple[Prepared, ...]:
        """Return each grid, or all ranks alone, on nodes as changes have them."""
        if changed.sends_as(self.as_is):
            return self.ready
        if self.grids is None:
            return (self._all_on_nodes(changed),)
        some = (grid.on(changed.messages, changed.setting) for grid in self.grids.prepared)
        return tuple(grid.ready for grid in some)

    def steps(self, changed: Changed) -> int:
        """Return how many steps there are in the iterations that are simulated first."""
        if self.n == 1:
            return 0
        return sum(len(loop.full) for ready in self._on_nodes(changed) for loop in ready.loops)

    @property
    def size(self) -> int:
        """The same without changes."""
        return self.steps(self.as_is)

    def simulated(
        self, changed: Changed, base: Made | None, *, ends: bool = True, draws: int = 0
    ) -> Made:
        """Return the times with changes; ``base``: without them, None where this is that.

        Both draw the same, ``draws`` times at most (0: as often as a prediction does). Times change
        with the grid as without changes, unless other messages are sent. One process communicates
        with nobody.
        """
        if self.n == 1:
            alone = altered_work(changed.parts, self.times, nowhere(self.times))
            times = self.times if alone is None else alone.of_times(self.times)
            made = estimate(changed.messages.name, self.study, 1)
            return Made(with_communication(times, made), (Draws(),))
        on_nodes = self._on_nodes(changed)
        each = [Draws(most=draws) for _ in on_nodes]
        if base is not None:
            each = [one.again() for one in base.draws]
        works = [self._work(k, ready, changed) for k, ready in enumerate(on_nodes)]
        ready = [
            one if work is None else self._computing(k, one, work)
            for k, (one, work) in enumerate(zip(on_nodes, works, strict=True))
        ]
        network = altered_network(changed.parts)
        variation = altered_variation(changed.parts, on_nodes[0].phases)

        def on(k: int, how: Setting, with_ends: bool) -> Communication:
            altered = Altered(network, variation, each[k])
            messages, more = changed.messages, ends and with_ends
            return placed(messages, self.study, ready[k], how, silent, ends=more, altered=altered)

        times, work = self.times, works[0]
        if work is not None:
            times = work.of_times(times)
        if self.grids is None:
            return Made(with_communication(times, on(0, changed.setting, True)), tuple(each))

        def place(grid: Grid, how: Setting, with_ends: bool) -> Communication:
            return on(grid.number, how, with_ends)

        like = base.ways if base is not None and changed.sends_as(self.as_is) else None
        some = self.grids.simulated(place, changed.setting)
        found, ways = taken_to(self.grids.few, self.grids.ranks, some, like)
        if work is not None:
            few = self.grids.few
            beside = [computed_in(times, number)[few.stands_for] for number in found.phases]
            found = replace(found, beside=np.stack(beside, axis=1)[few.stood_for_by])
        return Made(with_communication(times, found), tuple(each), ways)

    def _work(self, k: int, ready: Prepared, changed: Changed) -> Work | None:
        """Return what changes make of the computation of all ranks; None: nothing.

        ``k``: number of the grid that tells where they compute.
        """
        if not changed.parts or (self.grids is not None and self.grids.ranks is not None):
            return None
        where = self._where(k, ready)
        if self.grids is not None:
            stood = self.grids.all[k].standing_for(self.grids.ranks)
            where = replace(where, weight=where.weight[stood])
        return altered_work(changed.parts, self.times, where)

    def _computing(self, k: int, ready: Prepared, work: Work) -> Prepared:
        """Return what is simulated with what its ranks compute."""
        if self.grids is not None:
            ranks = self.grids.all[k].stands_for
            work = Work(work.factor[ranks], work.more[ranks])
        return work.of_steps(ready, self._where(k, ready))

    def _where(self, k: int, ready: Prepared) -> Where:
        if ready is self.ready[k] and k in self._places:
            return self._places[k]
        times = self.times
        if self.grids is not None:
            few = self.grids.all[k]
            times = replace(times, n=few.n, compute=times.compute[few.stands_for])
        found = where_of(ready, times, self.study.scaled_dir(self.n))
        if ready is self.ready[k]:
            self._places[k] = found
        return found

    @cached_property
    def _places(self) -> dict[int, Where]:
        return {}

    @cached_property
    def base(self) -> Made:
        """The program as it is."""
        return self._predicted or self.simulated(self.as_is, None)

    @cached_property
    def _predicted(self) -> Made | None:
        """The same as the prediction has simulated it; None where it has not."""
        found = self.costs.found.get((self.costs.name, self.n))
        if found is None or found.draws is None or not self.all_ranks:
            return None
        return Made(with_communication(self.times, found), (found.draws,))

    @cached_property
    def _plain(self) -> Made:
        """The program as it is, without the ends of its interval: on smaller grids of few draws."""
        draws = 0 if self.all_ranks else _FEW_DRAWS
        as_is = self._predicted  # only its ends are more
        return as_is or self.simulated(self.as_is, None, ends=False, draws=draws)

    def share(self, changes: Changes) -> float:
        """Return the run time with changes over that without, of usual costs of messages."""
        ends = "base" in self.__dict__
        one = self.base if ends else self._plain
        return run_time(self.changed(changes, ends=ends).times) / run_time(one.times)

    def changed(self, changes: Changes, *, ends: bool = True) -> Made:
        """Return the program with changes, drawn as the program as it is.

        Without ``ends`` the interval has no width. Errors: P3SError where nothing is known of what
        they do.
        """
        if not changes.of(Threads):
            return self._with(changes, changes.parts, ends)
        made, low, high = (
            self._with(changes, self._spelt(changes, end), ends) for end in (VALUE, LOW, HIGH)
        )
        return replace(made, ends=(low.times, high.times))

    def _spelt(self, changes: Changes, end: int) -> tuple[Change, ...]:
        """Return changes with what threads do to each phase in the place of threads."""
        known, phases = self._known_threads(changes), [int(p["phase"]) for p in self.times.phases]
        rest = [part for part in changes.parts if not isinstance(part, Threads)]
        for part in changes.of(Threads):
            rest += known.as_scaled(part, phases, self.n, end)
        return tuple(rest)

    def _known_threads(self, changes: Changes) -> MoreThreads:
        """Return what is known of threads; raises P3SError where that does not tell changes."""
        if isinstance(self.threads, NotKnown):
            raise P3SError(f"--what-if {changes.text}: {self.threads.why}")
        if self.costs.setting.listed_at(self.n):
            raise P3SError(
                f"--what-if {changes.text}: a file says where ranks are, and not where they are "
                "with other threads; leave --placement out"
            )
        for part in changes.of(Threads):
            self.threads.check(part.count)
        return self.threads

    def _with(self, changes: Changes, parts: tuple[Change, ...], ends: bool) -> Made:
        """Return the program with changes; ``parts``: they, or what they do to computation."""
        base = self.base if ends else self._plain
        return self.simulated(Changed(*self._costs(changes), parts), base, ends=ends)

    def even(self, changes: Changes, most: int) -> PhaseTimes | None:
        """Return the times with changes where nothing varies and messages cost what is usual.

        Takes a fraction of the time of ``changed``: for sorting many changes. None where there
        would be more than ``most`` steps.
        """
        messages, setting = self._costs(changes)
        changed = Changed(messages, replace(setting, vary=False), changes.parts)
        if self.steps(changed) > most:
            return None
        return self.simulated(changed, None, ends=False).times

    def _costs(self, changes: Changes) -> tuple[Messages, Setting]:
        """Return the costs of messages and where ranks are, as changes have them."""
        messages, setting = self.costs.messages, self.costs.setting
        for part in changes.parts:
            if isinstance(part, OnNetwork) and part.name != IDEAL:
                setting = replace(setting, network=part.name)
                library = messages.library
                messages = replace(published_messages(self.study, setting), library=library)
        for part in changes.parts:
            if isinstance(part, Placed):
                setting = placed_as(setting, part.how)
            if isinstance(part, Threads):
                each = self._known_threads(changes).per_node(part.count)
                setting = replace(setting, ranks_per_node=each)
        rules = tuple(part.rule for part in changes.parts if isinstance(part, Algorithm))
        if rules:
            library = messages.library
            library = replace(library, rules=(*rules, *library.rules))
            messages = replace(messages, library=library)
        return messages, setting


def run_time(times: PhaseTimes) -> float:
    """Return the run time in s."""
    return total(times.own + times.comm, times.estimator)


def placed_as(setting: Setting, how: str) -> Setting:
    """Return a setting whose ranks are on nodes in another way: block, cyclic or as a file says."""
    if how in (BLOCK, CYCLIC):
        return replace(setting, mapping=how, rank_file=None, rank_file_n=0)
    if not Path(how).is_file():
        raise P3SError(f"--what-if placement={how}: is no file; give block, cyclic or a rank file")
    return replace(setting, rank_file=Path(how), rank_file_n=0)


def other_costs(changes: Changes) -> bool:
    """Tell whether changes take messages that the prediction has not: others in number or costs."""
    return any(
        isinstance(part, (Algorithm, Placed, Threads))
        or (isinstance(part, OnNetwork) and part.name != IDEAL)
        for part in changes.parts
    )
