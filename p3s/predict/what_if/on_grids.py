"""A large count as it is and with changes, on the smaller grids that stand for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from p3s.predict.estimators.altered import Altered, Draws
from p3s.predict.estimators.fewer import Ways, estimated
from p3s.predict.estimators.machine import placed
from p3s.predict.times import PhaseTimes, computed_in, with_communication
from p3s.predict.what_if.costs import altered_network
from p3s.predict.what_if.work import Where, Work, altered_variation, altered_work, where_of

if TYPE_CHECKING:
    from p3s.predict.estimated import Communication
    from p3s.predict.estimators.grids import Grid, Grids
    from p3s.predict.estimators.messages import Messages
    from p3s.predict.estimators.prepared import Prepared
    from p3s.predict.estimators.settings import Setting
    from p3s.predict.what_if.changes import Change


@dataclass(frozen=True, eq=False)
class Found:
    """What the grids say: times of all ranks, the draws of each grid, and the way to all ranks."""

    times: PhaseTimes
    draws: tuple[Draws, ...]
    way: Ways


@dataclass(frozen=True, eq=False)
class Changed:
    """Changes to what the grids simulate: costs of messages, where ranks are, what they compute."""

    messages: Messages
    setting: Setting
    parts: Sequence[Change] = ()


@dataclass(eq=False)
class OnGrids:
    """Smaller grids, and the computation of the ranks that they stand for.

    ``times``: of all of these, without any communication.
    """

    grids: Grids
    times: PhaseTimes
    scaled_dir: Path
    _where: dict[int, Where] = field(default_factory=dict)

    def simulated(
        self, changed: Changed, base: Found | None, *, ends: bool = True, draws: int = 0
    ) -> Found:
        """Return the times with changes; ``base``: without them, None where this is that.

        Both draw the same, ``draws`` times at most (0: as often as a prediction does). Times
        change with the grid as without changes, unless other messages are sent.
        """
        each = [Draws(most=draws) for _ in self.grids.all]
        if base is not None:
            each = [one.again() for one in base.draws]
        variation = altered_variation(changed.parts, self.grids.prepared[0].ready.phases)
        network = altered_network(changed.parts)

        ready = {grid.number: self._ready(grid, changed) for grid in self.grids.prepared}

        def place(grid: Grid, how: Setting, with_ends: bool) -> Communication:
            altered = Altered(network, variation, each[grid.number])
            return placed(
                changed.messages,
                self.grids.study,
                ready[grid.number],
                how,
                _nothing,
                ends=ends and with_ends,
                altered=altered,
            )

        like = base.way if base is not None and self._same(changed) else None
        found, way = estimated(self.grids, place, changed.setting, like)
        times, smallest = self.times, self.grids.prepared[0]
        work = self._work(smallest, changed)
        if work is not None:
            times, few = work.of_times(times), smallest.few
            beside = [computed_in(times, number)[few.stands_for] for number in found.phases]
            found = replace(found, beside=np.stack(beside, axis=1)[few.stood_for_by])
        return Found(with_communication(times, found), tuple(each), way)

    def size(self, changed: Changed) -> int:
        """Return how many steps there are in the iterations that are simulated first."""
        if self._same(changed):
            return sum(grid.size for grid in self.grids.prepared)
        return sum(grid.on(changed.messages, changed.setting).size for grid in self.grids.prepared)

    def _same(self, changed: Changed) -> bool:
        """Tell whether the messages are those of the prediction, between the same nodes."""
        return (
            changed.messages.library == self.grids.messages.library
            and changed.messages.cores == self.grids.messages.cores
            and changed.setting.mapping == self.grids.setting.mapping
        )

    def _ready(self, grid: Grid, changed: Changed) -> Prepared:
        """Return what of a grid is simulated, with what its ranks compute."""
        there = grid if self._same(changed) else grid.on(changed.messages, changed.setting)
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
        found = where_of(ready, own, self.scaled_dir)
        if ready is grid.ready:
            self._where[grid.number] = found
        return found


def _nothing(_: str) -> None:
    """Say nothing."""
