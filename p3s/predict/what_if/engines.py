"""A count simulated as it is and with changes: every rank, or smaller grids in their place.

Both draw the same computation, so that what is left between two simulations is what changes do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from p3s.predict.estimators import estimate
from p3s.predict.estimators.drawn import Altered, Draws
from p3s.predict.estimators.fewer import Ways, taken_to
from p3s.predict.estimators.machine import placed
from p3s.predict.estimators.prepared import on_nodes_of, read_program
from p3s.predict.estimators.settings import silent
from p3s.predict.times import PhaseTimes, computed_in, with_communication
from p3s.predict.what_if.costs import altered_network
from p3s.predict.what_if.work import Where, Work, altered_variation, altered_work, nowhere, where_of

if TYPE_CHECKING:
    from p3s.base.study import Study
    from p3s.predict.estimated import Communication
    from p3s.predict.estimators.grids import Grid, Grids
    from p3s.predict.estimators.messages import Messages
    from p3s.predict.estimators.prepared import Prepared, Program
    from p3s.predict.estimators.settings import Setting
    from p3s.predict.what_if.changes import Change


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

    @property
    def drawn(self) -> int:
        """The number of the largest grid on which computation was drawn."""
        return max((number for number, each in enumerate(self.draws) if each.plan), default=0)


@dataclass(eq=False)
class AllRanks:
    """Every rank of a count. ``times``: their computation, without any communication."""

    study: Study
    as_is: Changed
    times: PhaseTimes

    @cached_property
    def program(self) -> Program:
        """What of the scaled trace is simulated, wherever its ranks are."""
        directory = self.study.scaled_dir(self.times.n)
        return read_program(directory, queues=self.as_is.messages.queues)

    @cached_property
    def ready(self) -> Prepared:
        """The program with its ranks on nodes, as the prediction has them."""
        return self._on_nodes(self.as_is)

    @cached_property
    def _where(self) -> Where:
        return where_of(self.ready, self.times, self.study.scaled_dir(self.times.n))

    def size(self, changed: Changed) -> int:
        """Return how many steps there are in the iterations that are simulated first."""
        if self.times.n == 1:
            return 0
        return sum(len(loop.full) for loop in self._ready(changed).loops)

    def simulated(
        self, changed: Changed, base: Made | None, *, ends: bool = True, draws: int = 0
    ) -> Made:
        """Return the times with changes; ``base``: without them, None where this is that.

        Both draw the same, ``draws`` times at most (0: as often as a prediction does). One process
        communicates with nobody.
        """
        times, messages = self.times, changed.messages
        if times.n == 1:
            work = altered_work(changed.parts, times, nowhere(times))
            times = times if work is None else work.of_times(times)
            made = estimate(messages.name, self.study, 1)
            return Made(with_communication(times, made), (Draws(),))
        ready = self._ready(changed)
        if changed.parts:
            directory = self.study.scaled_dir(times.n)
            where = self._where if ready is self.ready else where_of(ready, times, directory)
            work = altered_work(changed.parts, times, where)
            if work is not None:
                times, ready = work.of_times(times), work.of_steps(ready, where)
        each = Draws(most=draws) if base is None else base.draws[0].again()
        altered = _altered(changed, ready, each)
        found = placed(
            messages, self.study, ready, changed.setting, silent, ends=ends, altered=altered
        )
        return Made(with_communication(times, found), (each,))

    def _ready(self, changed: Changed) -> Prepared:
        return self.ready if changed.sends_as(self.as_is) else self._on_nodes(changed)

    def _on_nodes(self, changed: Changed) -> Prepared:
        messages = changed.messages
        return on_nodes_of(self.program, messages.library, changed.setting, messages.cores)


def _altered(changed: Changed, ready: Prepared, draws: Draws) -> Altered:
    variation = altered_variation(changed.parts, ready.phases)
    return Altered(altered_network(changed.parts), variation, draws)


@dataclass(eq=False)
class OnGrids:
    """Smaller grids. ``times``: computation of all ranks that they stand for."""

    study: Study
    as_is: Changed
    times: PhaseTimes
    grids: Grids
    _where: dict[int, Where] = field(default_factory=dict)

    @property
    def ready(self) -> Prepared:
        """The smallest grid with its ranks on nodes, as the prediction has them."""
        return self.grids.prepared[0].ready

    def simulated(
        self, changed: Changed, base: Made | None, *, ends: bool = True, draws: int = 0
    ) -> Made:
        """Return the times with changes, as :meth:`AllRanks.simulated`.

        They change with the grid as without changes, unless other messages are sent.
        """
        each = [Draws(most=draws) for _ in self.grids.all]
        if base is not None:
            each = [one.again() for one in base.draws]
        ready = {grid.number: self._ready(grid, changed) for grid in self.grids.prepared}

        def place(grid: Grid, how: Setting, with_ends: bool) -> Communication:
            mine = ready[grid.number]
            altered = _altered(changed, self.ready, each[grid.number])
            more = ends and with_ends
            return placed(
                changed.messages, self.study, mine, how, silent, ends=more, altered=altered
            )

        like = base.ways if base is not None and changed.sends_as(self.as_is) else None
        made = self.grids.simulated(place, changed.setting)
        found, ways = taken_to(self.grids.few, self.grids.ranks, made, like)
        times, smallest = self.times, self.grids.prepared[0]
        work = self._work(smallest, changed)
        if work is not None:
            times, few = work.of_times(times), smallest.few
            beside = [computed_in(times, number)[few.stands_for] for number in found.phases]
            found = replace(found, beside=np.stack(beside, axis=1)[few.stood_for_by])
        return Made(with_communication(times, found), tuple(each), ways)

    def size(self, changed: Changed) -> int:
        """Return how many steps there are in the iterations that are simulated first."""
        return sum(self._on(grid, changed).size for grid in self.grids.prepared)

    def _on(self, grid: Grid, changed: Changed) -> Grid:
        if changed.sends_as(self.as_is):
            return grid
        return grid.on(changed.messages, changed.setting)

    def _ready(self, grid: Grid, changed: Changed) -> Prepared:
        """Return what of a grid is simulated, with what its ranks compute."""
        there = self._on(grid, changed)
        work = self._work(grid, changed)
        if work is None:
            return there.ready
        own = Work(work.factor[grid.few.stands_for], work.more[grid.few.stands_for])
        return own.of_steps(there.ready, self._where_of(grid, there.ready))

    def _work(self, grid: Grid, changed: Changed) -> Work | None:
        """Return what changes make of the computation of all ranks; None: nothing."""
        if self.grids.ranks is not None:
            return None
        where = self._where_of(grid, grid.ready)
        each = replace(where, weight=where.weight[grid.few.standing_for(self.grids.ranks)])
        return altered_work(changed.parts, self.times, each)

    def _where_of(self, grid: Grid, ready: Prepared) -> Where:
        few = grid.few
        if ready is grid.ready and grid.number in self._where:
            return self._where[grid.number]
        own = replace(self.times, n=few.n, compute=self.times.compute[few.stands_for])
        found = where_of(ready, own, self.study.scaled_dir(self.times.n))
        if ready is grid.ready:
            self._where[grid.number] = found
        return found
