"""Smaller process grids that stand for a large one, ready to be simulated, and their times.

Each is prepared once and simulated as often as somebody asks: for a prediction once, for what
changes save once more for each change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from p3s.base.arrays import Floats, Ints
from p3s.base.host.processes import give_back
from p3s.base.records import Traces
from p3s.base.text import processes
from p3s.costs.files import files_of_study
from p3s.costs.types import load as load_compute
from p3s.predict.estimated import COMM, SOFTWARE, Communication
from p3s.predict.estimators.messages import Messages
from p3s.predict.estimators.settings import Program, Setting, SimulationInput, on_nodes, program_of
from p3s.program.collectives.choose import Library
from p3s.program.phase_cells import work_of

if TYPE_CHECKING:
    from p3s.program.fewer import Fewer
    from p3s.program.parts import Laws

#: How many times as long grids are in one dimension, the longest where that is not too many steps.
TIMES, LONGEST, LONGEST_OF_MANY, MANY_STEPS = 2, 4, 3, 2_500_000
#: What variation adds is not followed where it is less than this share.
_MATTERS_NOT = 1e-3
_NS_PER_S = 1e9
#: Iterations of a loop that are simulated at once.
_TURNS = 4


@dataclass(frozen=True, eq=False)
class Grid:
    """A grid that can be simulated: ``ready`` with the collectives of the large one.

    ``number``: which of the grids of a count it is. ``plain``: mean communication in s where each
    collective is one call, by phase. ``make``: makes what is simulated, wherever its ranks are.
    """

    number: int
    few: Fewer
    make: Callable[[], Program]
    ready: SimulationInput
    plain: Floats

    @cached_property
    def program(self) -> Program:
        """What is simulated, wherever its ranks are: made anew, as it is large and few ask."""
        return self.make()

    @property
    def size(self) -> int:
        """How many steps there are in the iterations that are simulated first."""
        return sum(len(loop.full) for loop in self.ready.loops)

    @cached_property
    def steps(self) -> Floats:
        """Steps of the rank that has most in each phase of what is ready, over the run."""
        shape = self.few.n, len(self.ready.phases)
        calls = [np.bincount(one.cell, one.weight, one.cells) for one in self.ready.loops]
        most = np.sum([np.zeros(shape[0] * shape[1]), *calls], axis=0).reshape(shape).max(axis=0)
        return np.asarray(most, dtype=np.float64)

    def on(self, messages: Messages, setting: Setting) -> Grid:
        """Return the grid with another library, or other nodes."""
        return replace(self, ready=_on_nodes(messages, self.few, self.program, setting))


#: (grid, its setting, whether with the ends of the interval) -> its communication.
Place = Callable[[Grid, "Setting", bool], Communication]


@dataclass(frozen=True, eq=False)
class GridTimes:
    """A grid with its times in s: (columns, ranks, phases), without any variation.

    ``ends``: those of the mean communication of each phase, as multiples of it, (2, phases).
    ``more``: what variation adds to that; None where that was not simulated. ``steps``: of the rank
    that has most, ``plain``: mean communication where each collective is one call, by phase.
    """

    few: Fewer
    found: Communication
    times: Floats
    computed: Floats
    ends: Floats
    more: Floats | None
    steps: Floats
    plain: Floats

    @cached_property
    def mean(self) -> Floats:
        """Mean over the ranks of the large grid, (columns, phases)."""
        weight = self.few.weight / self.few.large.n
        return np.asarray(np.einsum("r,crp->cp", weight, self.times), dtype=np.float64)

    def on(self, smallest: Fewer) -> Floats:
        """Mean over the ranks that each rank of the smallest grid stands for, as ``times``."""
        place = smallest.standing_for_those_of(self.few)
        weight = self.few.weight.astype(np.float64)
        found = np.zeros((smallest.n, len(self.times), self.times.shape[2]))
        np.add.at(found, place, np.moveaxis(self.times * weight[:, None], 1, 0))
        stood = np.maximum(np.bincount(place, weight, smallest.n), 1.0)  # some stand for nobody
        return np.moveaxis(found / stood[:, None, None], 0, 1)


@dataclass(frozen=True, eq=False)
class Grids:
    """The grids that stand for a large count, the smallest first.

    ``place`` simulates what is prepared, as a prediction does: with a setting, and with the ends
    of the interval or not. ``keep``: they are simulated more than once. ``asked``: the count whose
    scaled trace says what phases there are, where it is not the large one's. ``ranks``: of the
    large grid those whose times are wanted, None: all.
    """

    messages: Messages
    traces: Traces
    few: Fewer
    setting: Setting
    say: Callable[[str], None]
    place: Callable[[SimulationInput, Setting, bool], Communication]
    keep: bool = False
    asked: int = 0
    ranks: Ints | None = None
    _made: dict[int, Grid] = field(default_factory=dict, init=False)

    @cached_property
    def _laws(self) -> tuple[Laws, Floats]:
        from p3s.program.fewer import means_of
        from p3s.program.parts import Laws

        files = files_of_study(self.traces.root, self.few.model)
        return Laws(self.few.model, load_compute(self.traces.root), files), means_of(self.few)

    @cached_property
    def all(self) -> tuple[Fewer, ...]:
        """All of them."""
        from p3s.program.fewer import longer

        size = self.grid(0, self.few).size
        long = LONGEST if LONGEST * size <= MANY_STEPS else LONGEST_OF_MANY
        sides = [d for d in range(len(self.few.dims)) if _room(self.few, d) > 1]
        whole = [longer(self.few, sides, TIMES)] if len(sides) > 1 else []
        fits = TIMES ** len(sides) * size <= MANY_STEPS
        return (self.few, *_longer(self.few, (TIMES, long)), *(whole if fits else ()))

    def grid(self, number: int, few: Fewer) -> Grid:
        """Return a grid, prepared."""
        if number not in self._made:
            self._made[number] = self._prepared(number, few)
        return self._made[number]

    @property
    def prepared(self) -> tuple[Grid, ...]:
        """All of them, prepared."""
        return tuple(self.grid(number, few) for number, few in enumerate(self.all))

    def _prepared(self, number: int, few: Fewer) -> Grid:
        from p3s.program.fewer import trace_of

        extents = " x ".join(map(str, few.dims))
        self.say(f"{processes(few.large.n)}: simulating a grid of {extents} places")
        messages, still = self.messages, replace(self.setting, vary=False)

        def make() -> Program:
            trace, order = trace_of(few, *self._laws)
            return program_of(trace, order, queues=messages.queues, most=_TURNS)

        program = make()
        asked = self.asked or few.large.n
        in_calls = _on_nodes(messages, few, program, self.setting, calls=True)
        plain = self.place(replace(in_calls, of=asked), still, False)
        del in_calls  # its columns are as large as those to come
        ready = replace(_on_nodes(messages, few, program, self.setting), of=asked)
        del program  # and so are those that it was made of
        give_back()
        weight = few.weight / few.large.n
        return Grid(number, few, make, ready, np.asarray(weight @ plain.comm))

    def as_predicted(self, grid: Grid, setting: Setting, ends: bool) -> Communication:
        """Return the communication of one of them: a Place."""
        return self.place(grid.ready, setting, ends)

    def alone(self, few: Fewer, setting: Setting) -> GridTimes:
        """Return the times of one grid, without the ends of the interval."""
        grid = self._prepared(-1, few)
        return _simulate_grid(grid, self.as_predicted, setting, False, setting.vary)

    def simulated(self, place: Place, setting: Setting, *, ends: bool = True) -> list[GridTimes]:
        """Return the times of all of them; the longest has no ends of the interval."""
        last = max(range(len(self.all)), key=lambda number: self.all[number].n)
        made: list[GridTimes] = []
        for number, few in enumerate(self.all):
            grid = self.grid(number, few)
            varies = number == 0 or (number == last and _matters(made[0]))
            told = ends and (number == 0 or number != last)
            made.append(_simulate_grid(grid, place, setting, told, varies and setting.vary))
            if not self.keep:
                del self._made[number], grid
        return made


def _matters(smallest: GridTimes) -> bool:
    more = smallest.more
    return more is not None and bool(more.sum() > _MATTERS_NOT * smallest.mean[COMM].sum())


def _longer(few: Fewer, longer_by: Sequence[int]) -> Iterator[Fewer]:
    """Yield the grids that are so many times as long in one dimension each."""
    from p3s.program.fewer import longer

    for times, dimension in product(longer_by, range(len(few.dims))):
        room = _room(few, dimension)
        if room > 1 and (times == min(longer_by) or room >= LONGEST_OF_MANY):
            yield longer(few, [dimension], min(times, room))


def _room(few: Fewer, dimension: int) -> int:
    """Return how many times as long a grid can be in a dimension, and is shorter than the large."""
    return (few.large.dims[dimension] - 1) // few.dims[dimension]


def _on_nodes(
    messages: Messages, few: Fewer, program: Program, setting: Setting, *, calls: bool = False
) -> SimulationInput:
    """Return a grid's program on nodes; ``calls``: each collective is one call."""
    library: Library | None = None
    if not calls:
        library = replace(messages.library, chosen_as=few.communicators())
    whole = setting.mapping_at(few.large.n, messages.cores)
    mapping = setting.mapping_at(few.n, messages.cores)
    ready = on_nodes(program, library, mapping, None)
    _, first = np.unique(mapping.node_of, return_index=True)
    among = whole.node_of[few.stands_for[first]]
    if len(np.unique(among)) < len(among):
        among = np.arange(mapping.nodes) * (whole.nodes // mapping.nodes)
    return replace(ready, of=few.large.n, of_nodes=whole.nodes, among=among)


def _simulate_grid(
    grid: Grid, place: Place, setting: Setting, ends: bool, varied: bool
) -> GridTimes:
    few, still = grid.few, replace(setting, vary=False)
    found = place(grid, still, ends)
    more = None
    if varied:
        drawn = place(grid, setting, False)
        more = np.maximum(drawn.comm.mean(axis=0) - found.comm.mean(axis=0), 0.0)
        found = replace(found, notes=drawn.notes)
    mean = found.comm.mean(axis=0)
    both = np.stack([found.low.mean(axis=0), found.high.mean(axis=0)])
    apart = np.divide(both, mean, out=np.ones_like(both), where=mean > 0)
    computed = work_of(grid.ready.trace, grid.ready.phases) / _NS_PER_S
    column = np.searchsorted(np.asarray(grid.ready.phases), np.asarray(found.phases))
    return GridTimes(
        few,
        found,
        found.seconds[: SOFTWARE + 1],
        computed[:, column],
        apart,
        more,
        grid.steps[column],
        grid.plain,
    )
