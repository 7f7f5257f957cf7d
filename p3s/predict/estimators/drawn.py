"""Simulations of a loop whose totals are added up, with computation as it is or drawn anew.

Two of them, with other costs or computation, share their draws.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

import numpy as np

from p3s.base import workers
from p3s.simulate.folded import AddUp, Folded, folded_totals
from p3s.simulate.simulate import totals
from p3s.simulate.steps import Floats
from p3s.simulate.totals import PARTS, Drawn, Room, Tally, Totals

if TYPE_CHECKING:
    from p3s.predict.estimators.prepared import Prepared
    from p3s.predict.estimators.variation import Variation, Varying
    from p3s.simulate.network import Network
    from p3s.simulate.steps import Bools, Ints, Steps

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


@dataclass
class Draws:
    """How often computation is drawn, by loop, and what each draw has come to.

    ``plan``: windows and repeats of a loop that is simulated with drawn computation; a simulation
    that finds one here follows it, so that both draw the same. ``seconds``: time in calls of each
    repeat over the run, mean over the ranks. ``most``: repeats, at most; 0: as many as there are.
    """

    plan: dict[int, tuple[int, int]] = field(default_factory=dict)
    seconds: dict[int, Floats] = field(default_factory=dict)
    most: int = 0

    def planned(self, loop: int, windows: int, repeats: int) -> tuple[int, int]:
        """Return windows and repeats of a loop: those of its plan, else these, which are kept."""
        repeats = min(repeats, self.most or repeats)
        return self.plan.setdefault(loop, (windows, repeats))

    def again(self) -> Draws:
        """Return the same plan for another simulation."""
        return Draws(dict(self.plan), most=self.most)


def off_by_draws(one: Draws, other: Draws) -> float:
    """Return by how much the difference of two simulations may be off for the few draws, in s.

    The same draws differ by the same each time; what is left varies, and its mean over the repeats
    has this half width.
    """
    square, fewest = 0.0, 0
    for loop, (_, repeats) in one.plan.items():
        apart = _of(one.seconds, loop, repeats) - _of(other.seconds, loop, repeats)
        if repeats > 1 and apart.any():
            square += float(np.var(apart, ddof=1)) / repeats
            fewest = min(fewest or repeats, repeats)
    if not square > 0:
        return 0.0
    from scipy.special import stdtrit  # takes 0.1 s to import

    return float(stdtrit(fewest - 1, 0.95) * square**0.5)


def _of(found: Mapping[int, Floats], loop: int, repeats: int) -> Floats:
    """Return the draws of a loop; of one in which nothing varies all are alike."""
    return found.get(loop, np.zeros(repeats))


@dataclass(frozen=True)
class Altered:
    """What is done to the costs of messages and to how computation varies before simulating."""

    network: Callable[[Network], Network] | None = None
    variation: Callable[[Variation], Variation] | None = None
    draws: Draws | None = None


def runner(
    ready: Prepared,
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
    """
    rng = np.random.default_rng(seed)
    lasting = variation.ranks(ready.trace.n, rng) if variation is not None else None
    computing: dict[tuple[int, bool], tuple[Ints, Varying]] = {}

    def run(steps: Steps, only: Bools | None, tally: Tally, first: Floats) -> Totals:
        drawn = None
        if variation is not None:
            at, varying = _computing(computing, variation, steps, only, tally.cell, lasting)
            drawn = Drawn(at, varying.drawn(rng))
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
        return found

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


def windows_of(even: Folded) -> int:
    """Return of how many windows the mean is enough, from a simulation in which nothing varies."""
    return max(_LONGER * even.windows, _FEWEST_WINDOWS)


def varied(
    ready: Prepared,
    number: int,
    network: Network,
    variation: Variation,
    even: Folded,
    overlap: bool,
    draws: Draws | None = None,
    room: Room | None = None,
) -> Floats:
    """Return the mean of some simulations of a loop in which computation varies.

    ``room``: of simulations before, whose results nobody needs any more.
    """
    loop = ready.loops[number]
    windows = windows_of(even) if loop.chained else 0
    size = len(loop.full) + windows * loop.window
    repeats = int(np.clip(_STEPS // max(size, 1), *_REPEATS))
    if draws is not None:
        windows, repeats = draws.planned(number, windows, repeats)
    total, each = np.zeros((PARTS, loop.cells)), []
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
        each.append(float(found[0].sum()) / ready.trace.n / _NS_PER_S)
    if draws is not None:
        draws.seconds[number] = np.array(each)
    return total
