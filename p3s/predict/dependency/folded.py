"""Times of a loop of any number of turns, from as many simulated turns as it needs to settle.

The turns of a section that are alike are simulated one window after the other: each rank goes on
when it has ended the window before. Once windows repeat, all that are left are multiplied. What
comes before - the fill of a pipeline, a delay that spreads from rank to rank - counts once for
each entry of the loop. The cost does not grow with the number of turns.

The links of nodes are idle when a window begins, so that queues of one window do not reach into
the next; where messages cross the border between two turns (requests that are completed a turn
later), windows cannot be strung together, and the turns of the one window are weighed anew: its
last turns stand for all that are left.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from p3s.predict.dependency.turns import Alike, alike, by_rank, closed, ends, part
from replay.steps import Bools, Floats, Ints, Section, Steps

#: Times of steps: whole, waiting, transfer, software.
PARTS = 4
#: Windows repeat when no rank's time in calls changes by more than this share of a window's time.
TOLERANCE = 1e-3
#: Windows after which the same may come again.
PERIODS = (1, 2, 3, 4, 6)
#: Simulated steps of one loop, at most, beyond the first windows.
MOST_STEPS = 10_000_000
_FEWEST_WINDOWS = 4

#: (steps, cell of each, when each rank starts) -> what dependency.simulate says of them.
Run = Callable[[Steps, Ints, Floats], Any]


@dataclass(frozen=True)
class Folded:
    """Weighted sums of the times of a section's steps.

    ``sums``: shape (PARTS, cells), in ns over the whole run. ``windows``: how many were simulated,
    ``settled``: whether they repeat (or all turns there are were simulated). ``change``: largest
    change of a rank from the last window to the one before, as a share of its time.
    """

    sums: Floats
    windows: int = 1
    settled: bool = True
    change: float = 0.0


@dataclass
class Loop:
    """A section ready to be simulated: expanded steps, their cells and weights.

    ``full``: steps whose ``turn`` is that of the section. ``cell``, ``weight``: of each step.
    """

    section: Section
    full: Steps
    cell: Ints
    weight: Floats
    cells: int
    group: Alike | None = None
    chained: bool = False
    window: Steps | None = None
    kept: Bools = field(default_factory=lambda: np.zeros(0, dtype=bool))

    def __post_init__(self) -> None:
        """Find the turns that are alike and whether windows of them can be strung together."""
        self.group = alike(self.section)
        if self.group is None or not self.group.folded:
            self.group = None
            return
        self.kept = np.isin(self.full.turn, self.group.turns)
        last = np.flatnonzero(self.full.row < 0)  # computation behind the last call: no turn's
        self.kept[last] = False
        self.chained = closed(self.full, self.kept) and bool(self.kept.any())
        if self.chained:
            self.window = part(self.full, self.kept)

    def sums(self, result: Any, weight: Floats) -> Floats:
        """Return the weighted sums of a simulation of ``full`` over the cells."""
        return _sums(self.cell, weight, result, self.cells)

    def once(self) -> Floats:
        """Return the weights with which every turn counts once for each entry of the loop."""
        assert self.group is not None
        share = len(self.group.turns) / self.group.stands_for
        return np.where(self.kept, self.weight * share, self.weight)


def _sums(cell: Ints, weight: Floats, result: Any, cells: int) -> Floats:
    long = np.asarray(result.end_ns) - np.asarray(result.begin_ns)
    columns = (long, result.waiting_ns, result.transfer_ns, result.software_ns)
    return np.stack([np.bincount(cell, weights=weight * np.asarray(column), minlength=cells)
                     for column in columns])


def folded(loop: Loop, run: Run, *, windows: int = 0) -> Folded:
    """Return the times of a section over the whole run.

    ``windows``: so many are simulated, and the second half of them stands for the rest (for
    costs that are drawn anew each time, so that nothing repeats exactly); 0: until they repeat.
    """
    full = loop.full
    idle = np.zeros(len(full.ranks))
    first = run(full, loop.cell, idle)
    if loop.group is None:
        return Folded(loop.sums(first, loop.weight))
    if not loop.chained:
        return _weighed_anew(loop, first)
    return _strung(loop, run, first, windows)


def _strung(loop: Loop, run: Run, first: Any, windows: int) -> Folded:
    group, window = loop.group, loop.window
    assert group is not None and window is not None
    turns = len(group.turns)
    total = loop.sums(first, loop.once())
    left = group.stands_for - turns  # turns of an entry that are not counted yet
    cell, weight = loop.cell[loop.kept], loop.once()[loop.kept]
    clock = ends(window, np.asarray(first.end_ns)[loop.kept], np.zeros(len(loop.full.ranks)))
    history: list[_Window] = []
    most = windows or max(_FEWEST_WINDOWS, MOST_STEPS // max(len(window), 1))
    period, number, change = 0, 0, 0.0
    work = by_rank(window, window.work_ns)
    while left > 0 and number < most and not period:
        result = run(window, cell, clock - clock.min())
        number += 1
        long = by_rank(window, np.asarray(result.end_ns) - np.asarray(result.begin_ns))
        history.append(_Window(_sums(cell, weight, result, loop.cells), long))
        clock = ends(window, np.asarray(result.end_ns), clock - clock.min())
        if not windows:
            total += min(left / turns, 1.0) * history[-1].sums
            left -= turns
            change = _change(history, 1, work)
            period = _period(history, work, window)
            history = history[-2 * max(PERIODS):]
    if windows:
        return Folded(total + _halves(history, left / turns), number + 1)
    if left > 0:  # settled, or given up
        last = history[-max(period, 1):] if period else history[-max(len(history) // 2, 1):]
        mean = np.mean([one.sums for one in last], axis=0)
        total = total + mean * (left / turns)
    return Folded(total, number + 1, bool(period) or left <= 0, change)


@dataclass(frozen=True)
class _Window:
    """Sums of a window with every turn counted once, and time in calls per rank."""

    sums: Floats
    long: Floats


def _halves(history: list[_Window], number: float) -> Floats:
    """Return the sums of ``number`` windows of which only some were simulated, none repeating."""
    if number <= len(history):
        parts = np.clip(number - np.arange(len(history)), 0.0, 1.0)
        return np.asarray(sum(share * one.sums for share, one in zip(parts, history, strict=True)))
    half = len(history) // 2
    before = sum((one.sums for one in history[:half]), np.zeros_like(history[0].sums))
    after = np.mean([one.sums for one in history[half:]], axis=0)
    return np.asarray(before + (number - half) * after)


def _change(history: list[_Window], period: int, work: Floats) -> float:
    """Return how much windows change over a period: largest rank, share of a window's time."""
    if len(history) <= period:
        return np.inf
    time = float(np.mean(history[-1].long + work))
    if not time > 0:
        return 0.0
    return float(np.abs(history[-1].long - history[-1 - period].long).max()) / time


def _period(history: list[_Window], work: Floats, window: Steps) -> int:
    """Return after how many windows all is the same again, 0: it is not yet.

    Ranks whose turns take longer must not send to such as have shorter ones: these would have to
    wait for them as soon as what they are ahead is used up.
    """
    for period in PERIODS:
        if len(history) < 2 * period:
            return 0
        same = all(_change(history[:len(history) - back], period, work) <= TOLERANCE
                   for back in range(period))
        if same and _lasts(history[-period:], work, window):
            return period
    return 0


def _lasts(windows: list[_Window], work: Floats, window: Steps) -> bool:
    time = np.mean([one.long for one in windows], axis=0) + work
    if not time.size or np.ptp(time) <= TOLERANCE * time.mean():
        return True
    owner = np.repeat(np.arange(len(window.ranks)), np.diff(window.start))
    sends = np.flatnonzero(window.to >= 0)
    ahead = time[owner[sends]] - time[owner[window.to[sends]]]
    return not (ahead > TOLERANCE * time.mean()).any()


def _weighed_anew(loop: Loop, first: Any) -> Folded:
    """Return the sums with the first half of the alike turns counted once for each entry.

    The second half, where what is in the way of the first turns is over, stands for the rest.
    """
    group = loop.group
    assert group is not None
    turns, half = len(group.turns), len(group.turns) // 2
    each = turns / group.stands_for
    rest = (group.stands_for - half) / (turns - half) * each
    factor = np.ones(int(loop.full.turn.max()) + 1)
    factor[group.turns[:half]], factor[group.turns[half:]] = each, rest
    weight = np.where(loop.kept, loop.weight * factor[loop.full.turn], loop.weight)
    long = np.asarray(first.end_ns) - np.asarray(first.begin_ns)
    by_turn = [float(long[loop.kept & (loop.full.turn == turn)].sum())
               for turn in group.turns[-2:].tolist()]
    change = abs(by_turn[-1] - by_turn[0]) / max(by_turn[-1], 1e-300) if len(by_turn) > 1 else 0.0
    return Folded(loop.sums(first, weight), 1, change <= TOLERANCE, change)
