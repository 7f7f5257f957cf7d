"""Times of a loop of any number of iterations, from as many simulated iterations as it needs to
settle.

The iterations of a section that are alike are simulated one window after the other: each rank goes
on when it has ended the window before. Once windows repeat, all that are left are multiplied. What
comes before - the fill of a pipeline, a delay that spreads from rank to rank - counts once for each
entry of the loop. The cost does not grow with the number of turns.

The links of nodes are idle when a window begins and no rank goes on when it ends. Where links
matter, windows therefore overlap: the first third of the iterations, which fills the links, and the
last two, which nobody disturbs that is ahead, are counted in the windows before and after. Queues
need not repeat exactly; there it is enough that means of several windows do.

Where messages cross the border between two iterations (requests that are completed an iteration
later), windows cannot be strung together, and the iterations of the one window are weighed anew:
its last ones stand for all that are left."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from p3s.base.arrays import Bools, Floats, Ints
from p3s.base.text import figures
from p3s.simulate.packed import Packs, Tally
from p3s.simulate.steps import Section, Steps, select_steps
from p3s.simulate.totals import (
    Alike,
    SimulationGaps,
    Totals,
    added_up,
    alike,
    by_rank,
    is_self_contained,
    last_of,
    whole,
)

#: Windows repeat when no rank's time in calls changes by more than this share of a window's time.
TOLERANCE = 1e-3
#: Windows after which the same may come again.
PERIODS = (1, 2, 3, 4, 6)
#: Change of windows from which on a loop's time is not known.
SETTLED = 0.1
#: With queues at links: numbers of windows whose mean may be that of as many before, and the
#: share by which it may differ.
MEANS, MEAN_TOLERANCE = (2, 4, 8), 5e-3
#: Simulated steps of one loop, at most, beyond the first windows.
MOST_STEPS = 10_000_000
_FEWEST_WINDOWS = 4
#: Windows of fewer iterations overlap by one only.
_FEW = 6

#: (steps, cell of each, when each rank starts) -> what p3s.simulate.simulate says of them.
Run = Callable[[Steps, Ints, Floats], Any]
#: (steps, which of them are made, None: all, what is added up, when each rank starts) -> that; it
#: counts until the next one is made.
AddUp = Callable[[Steps, Bools | None, Tally, Floats], Totals]


@dataclass(frozen=True)
class SectionTimes:
    """Weighted sums of the times of a section's steps.

    ``sums``: shape (PARTS, cells), in ns over the whole run. ``windows``: how many were simulated,
    ``settled``: whether they repeat (or all iterations there are were simulated). ``change``:
    largest change of a rank from the last window to the one before, as a share of its time."""

    sums: Floats
    windows: int = 1
    settled: bool = True
    change: float = 0.0


@dataclass
class Settling:
    """How much of the time in calls rests on loops whose iterations went on changing.

    ``of``: time in calls of all loops in ns over the run; ``unsettled``: of those whose iterations
    changed by more than SETTLED in the end, ``change``: by how much, the largest.
    """

    of: float = 0.0
    unsettled: float = 0.0
    change: float = 0.0

    def add(self, loop: Loop, times: SectionTimes, notes: list[str]) -> None:
        """Take in a loop; a note says so where it has not settled."""
        time = float(times.sums[0].sum())
        self.of += time
        if times.settled:
            return
        part = (
            f"{figures(100 * times.change)} %" if np.isfinite(times.change) else "an unknown part"
        )
        notes.append(
            f"{loop.section.name}: the time of an iteration still changes by {part} at "
            "the end of what was simulated; the last ones stand for the rest"
        )
        if times.change > SETTLED:
            self.unsettled += time
            self.change = max(self.change, times.change)

    def into(self, followed: SimulationGaps) -> SimulationGaps:
        """Return ``followed`` with the share of the time that has not settled."""
        return replace(
            followed,
            unsettled=self.unsettled / self.of if self.of > 0 else 0.0,
            change=float(min(self.change, 1e6)),
        )


@dataclass(frozen=True, eq=False)
class Windows:
    """How windows are cut out of a loop, by number of its alike iterations.

    In the first simulation all before ``end`` count; in windows those from ``head`` on and before
    ``end``. ``first``, ``tally``: what is added up then, and in windows. ``work``: computation of
    each rank in what counts of a window; ``at``: its last step before the next window begins.
    ``last``: what is added up in a last window, by how many of its iterations count.
    """

    head: int
    end: int
    first: Tally
    tally: Tally
    work: Floats
    at: Ints
    last: dict[float, Tally] = field(default_factory=dict)

    @property
    def turns(self) -> int:
        """How many iterations count in a window."""
        return self.end - self.head


@dataclass
class Loop:
    """A section ready to be simulated: expanded steps, their cells and weights.

    ``full``: steps whose ``turn`` is that of the section, whose own are not kept. ``cell``,
    ``weight``: of each step. ``repeated``: as in ``alike``. ``kept``: the steps of the iterations
    that are alike; a window, if ``chained``. ``packs``: what simulations have made of ``full``.
    """

    section: Section
    full: Steps
    cell: Ints
    weight: Floats
    cells: int
    repeated: bool = False
    group: Alike | None = None
    looked: bool = False
    chained: bool = False
    kept: Bools = field(default_factory=lambda: np.zeros(0, dtype=bool))
    packs: Packs = field(default_factory=Packs)
    cut: dict[bool, Windows] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        """Find the iterations that are alike and whether windows of them can be strung together."""
        if self.looked:
            return
        group = alike(self.section, repeated=self.repeated)
        self.group = group if group is not None and group.folded else None
        none = np.zeros(0, dtype=np.int64)
        self.section = replace(self.section, steps=select_steps(self.section.steps, none))
        self.looked = True
        if self.group is not None:
            self._look()
        self.full = replace(self.full, weight=self.weight)  # in memory once

    def _look(self) -> None:
        assert self.group is not None
        self.kept = np.isin(self.full.turn, self.group.turns)
        if not self.repeated:  # computation behind the last call of all iterations: no turn's
            self.kept[self.full.row < 0] = False
        self.chained = (
            is_self_contained(self.full, self.kept)
            and whole(self.full, self.kept)
            and bool(self.kept.any())
        )

    @property
    def window(self) -> int:
        """How many steps a window has."""
        return int(np.count_nonzero(self.kept)) if self.chained else 0

    @cached_property
    def whole(self) -> Tally:
        """That times of ``full`` are added up as often as they stand for."""
        return self.tally(self.weight)

    def tally(self, weight: Floats) -> Tally:
        """Return that times of ``full`` are added up with these weights."""
        return Tally(self.cell, weight, self.cells)

    def place(self) -> Ints:
        """Return which of the alike iterations each step is in; of others it means nothing."""
        assert self.group is not None
        number = int(self.full.turn.max(initial=-1)) + 1
        return np.searchsorted(self.group.turns, np.arange(number))[self.full.turn]

    def ready(self, overlap: bool) -> Windows:
        """Return how windows are cut out; ``overlap``: as in ``folded``."""
        if overlap in self.cut:
            return self.cut[overlap]
        assert self.group is not None
        place, turns = self.place(), len(self.group.turns)
        head, tail = _margins(turns) if overlap else (0, 0)
        end = turns - tail
        once = self.once()
        counted = self.kept & (place >= head) & (place < end)
        weight = np.where(counted, once, 0.0)
        once[self.kept & (place >= end)] = 0.0
        self.cut[overlap] = Windows(
            head,
            end,
            self.tally(once),
            Tally(self.cell, weight, self.cells, counted.astype(np.uint8), 1),
            by_rank(self.full, np.where(counted, self.full.work_ns, 0.0)),
            last_of(self.full, self.kept & (place < end - head)),
        )
        return self.cut[overlap]

    def last(self, ready: Windows, remaining: float) -> Tally:
        """Return what is added up in a window of which the first ``remaining`` iterations count.

        One and the same each time: simulators know it again.
        """
        tally = ready.last.get(remaining)
        if tally is None:
            share = np.clip(remaining - (self.place() - ready.head), 0.0, 1.0)
            tally = replace(ready.tally, weight=ready.tally.weight * share)
            ready.last.clear()  # one is as large as the rest
            ready.last[remaining] = tally
        return tally

    def once(self) -> Floats:
        """Return the weights with which every iteration counts once for each entry of the loop."""
        assert self.group is not None
        share = len(self.group.turns) / self.group.stands_for
        return np.where(self.kept, self.weight * share, self.weight)


def fold_times(loop: Loop, run: Run, *, windows: int = 0, overlap: bool = False) -> SectionTimes:
    """Return the times of a section over the whole run.

    ``windows``: so many are simulated, and the second half of them stands for the rest (for
    costs that are drawn anew each time, so that nothing repeats exactly); 0: until they repeat.
    ``overlap``: windows overlap, so that the links of nodes are as busy as they would be.
    """

    window = select_steps(loop.full, loop.kept) if loop.chained else loop.full

    def add_up(steps: Steps, only: Bools | None, tally: Tally, first_ns: Floats) -> Totals:
        if only is None:
            return added_up(run(steps, tally.cell, first_ns), steps.start, tally)
        group = None if tally.group is None else tally.group[only]
        mine = Tally(tally.cell[only], tally.weight[only], tally.cells, group, tally.groups)
        totals = added_up(run(window, mine.cell, first_ns), window.start, mine)
        return replace(totals, place=np.cumsum(only) - 1)

    return folded_totals(loop, add_up, windows=windows, overlap=overlap)


def folded_totals(
    loop: Loop, add_up: AddUp, *, windows: int = 0, most: int = 0, overlap: bool = False
) -> SectionTimes:
    """Return the same from a simulator that adds up times itself, with less memory.

    ``most``: windows that are simulated at most, where their mean is enough; 0: MOST_STEPS.
    """
    full = loop.full
    idle = np.zeros(len(full.ranks))
    if loop.group is None:
        return SectionTimes(add_up(full, None, loop.whole, idle).sums)
    if not loop.chained:
        return _weighed_anew(loop, add_up, idle)
    return _strung(loop, add_up, idle, windows, most, overlap)


def _strung(
    loop: Loop, add_up: AddUp, idle: Floats, windows: int, most: int, overlap: bool
) -> SectionTimes:
    group, full, is_kept = loop.group, loop.full, loop.kept
    assert group is not None
    ready = loop.ready(overlap)
    turns, tally, work, at = ready.turns, ready.tally, ready.work, ready.at
    first = add_up(full, None, ready.first, idle)
    total = first.sums
    remaining = group.stands_for - ready.end  # iterations of an entry that are not counted yet
    clock = _find_ends(at, first, idle)
    del first
    results = strung(lambda first_ns: add_up(full, is_kept, tally, first_ns), clock, at)
    most = windows or most or max(_FEWEST_WINDOWS, MOST_STEPS // max(loop.window, 1))
    history: list[_Window] = []
    period, number, change = 0, 0, 0.0
    while remaining > 0 and number < most and not period:
        if remaining < turns:  # the loop ends within this window
            tally = loop.last(ready, remaining)
        result = next(results)
        number += 1
        window = _Window(result.sums, result.long[0])
        if remaining < turns:
            total += window.sums
            remaining = 0.0
            break
        history.append(window)
        if windows and number > windows // 2:
            continue  # stands for what is left
        total += window.sums
        remaining -= turns
        if not windows:
            change = _change(history, 1, work)
            period = _period(history, work, loop) or (_means(history, work, loop) if overlap else 0)
            history = history[-2 * max(*PERIODS, *MEANS) :]
    if remaining > 0:
        last = (
            history[number // 2 :]
            if windows
            else history[-period:]
            if period
            else history[-max(len(history) // 2, 1) :]
        )
        total = total + np.mean([one.sums for one in last], axis=0) * (remaining / turns)
    return SectionTimes(total, number + 1, bool(period or windows) or remaining <= 0, change)


def strung(run: Callable[[Floats], Any], clock: Floats, at: Ints) -> Iterator[Any]:
    """Simulate a window without end, each rank going on when it has ended the one before.

    ``run``: simulates it from when each rank starts; ``clock``: that of the first. ``at``: the last
    step of each rank before the next window begins, -1: none. Each window's times begin with the
    first rank. Where no links have queues and no message crosses from one window into the next
    they are, but for rounding, those of all windows in one simulation.
    """
    while True:
        clock = clock - clock.min()
        result = run(clock)
        clock = _find_ends(at, result, clock)
        yield result
        del result  # before the next one is made


def _margins(turns: int) -> tuple[int, int]:
    """Return how many iterations of a window are counted in the one before, and in the one
    after."""
    if turns < _FEW:
        return (1, 0) if turns > 1 else (0, 0)
    return turns // 3, 2


def _find_ends(last: Ints, result: Any, before: Floats) -> Floats:
    """Return when the last step of each rank ends; ``before`` where it has none."""
    last, has_last = np.maximum(last, 0), last >= 0
    ends = result.ends_of(last) if isinstance(result, Totals) else np.asarray(result.end_ns)[last]
    return np.where(has_last, ends, before)


@dataclass(frozen=True)
class _Window:
    """Sums of a window with every iteration counted once, and time in calls per rank."""

    sums: Floats
    long: Floats


def _change(history: list[_Window], period: int, work: Floats) -> float:
    """Return how much windows change over a period: largest rank, share of a window's time."""
    if len(history) <= period:
        return np.inf
    time = float(np.mean(history[-1].long + work))
    if not time > 0:
        return 0.0
    return float(np.abs(history[-1].long - history[-1 - period].long).max()) / time


def _period(history: list[_Window], work: Floats, loop: Loop) -> int:
    """Return after how many windows all is the same again, 0: it is not yet.

    Ranks whose iterations take longer must not send to such as have shorter ones: these would have
    to wait for them as soon as what they are ahead is used up."""
    for period in PERIODS:
        if len(history) < 2 * period:
            return 0
        same = all(
            _change(history[: len(history) - back], period, work) <= TOLERANCE
            for back in range(period)
        )
        if same and _lasts(history[-period:], work, loop):
            return period
    return 0


def _means(history: list[_Window], work: Floats, loop: Loop) -> int:
    """Return of how many windows the mean is that of as many before, 0: of none yet."""
    for number in MEANS:
        if len(history) < 2 * number:
            return 0
        last, before = (
            np.mean([one.long for one in part], axis=0)
            for part in (history[-number:], history[-2 * number : -number])
        )
        time = float(np.mean(last + work))
        if np.abs(last - before).max() <= MEAN_TOLERANCE * time and _lasts(
            history[-number:], work, loop, MEAN_TOLERANCE
        ):
            return number
    return 0


def _lasts(windows: list[_Window], work: Floats, loop: Loop, tolerance: float = TOLERANCE) -> bool:
    """Tell whether no rank takes longer for a window than one that it sends to."""
    time = np.mean([one.long for one in windows], axis=0) + work
    if not time.size or np.ptp(time) <= tolerance * time.mean():
        return True
    steps = loop.full
    owner = np.repeat(np.arange(len(steps.ranks)), np.diff(steps.start))
    sends = np.flatnonzero((steps.to >= 0) & loop.kept)
    ahead = time[owner[sends]] - time[owner[steps.to[sends]]]
    return not (ahead > tolerance * time.mean()).any()


def _weighed_anew(loop: Loop, add_up: AddUp, idle: Floats) -> SectionTimes:
    """Return the sums with the alike iterations but their last quarter counted once for each entry.

    The last quarter, where what is in the way of the first iterations should be over, stands for
    the rest; it is settled if it took the ranks as long as the quarter before."""
    group = loop.group
    assert group is not None
    turns, quarter = len(group.turns), max(len(group.turns) // 4, 1)
    each = turns / group.stands_for
    rest = (group.stands_for - (turns - quarter)) / quarter * each
    factor = np.ones(int(loop.full.turn.max()) + 1)
    factor[group.turns[:-quarter]], factor[group.turns[-quarter:]] = each, rest
    weight = np.where(loop.kept, loop.weight * factor[loop.full.turn], loop.weight)
    quarters = np.zeros(len(factor), dtype=np.uint8)
    quarters[group.turns[-2 * quarter : -quarter]], quarters[group.turns[-quarter:]] = 1, 2
    part_of = np.where(loop.kept, quarters[loop.full.turn], np.uint8(0))
    tally = replace(loop.tally(weight), group=part_of, groups=2)
    sums = add_up(loop.full, None, tally, idle)
    no_sums = np.zeros((0, 0))
    parts = [_Window(no_sums, long) for long in sums.long]
    work = by_rank(loop.full, np.where(part_of == 2, loop.full.work_ns, 0.0))
    change = _change(parts, 1, work)
    return SectionTimes(
        sums.sums, 1, change <= TOLERANCE and _lasts(parts[-1:], work, loop), change
    )
