"""Times of steps added up, how far messages were followed, and iterations that are alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from p3s.base.arrays import Bools, Floats, Ints, mix_bits
from p3s.simulate.packed import PackedSteps, Packs, Tally
from p3s.simulate.steps import Section, Steps, instances

#: Times of steps: whole, waiting, transfer, software.
PARTS = 4


@dataclass(frozen=True, eq=False)
class Totals:
    """Times added up in ns: ``sums`` (PARTS, cells), ``long`` (groups, ranks).

    ``ends_ns``: when each step ends, where ``place`` says, None: in the order of the steps.
    ``cut``: as in Simulated; ``notes``: what was changed.
    """

    sums: Floats
    long: Floats
    ends_ns: Floats
    place: np.ndarray | None = None
    cut: int = 0
    notes: tuple[str, ...] = ()

    def ends_of(self, steps: Ints) -> Floats:
        """Return when these steps end."""
        return np.asarray(self.ends_ns[steps if self.place is None else self.place[steps]])


@dataclass(frozen=True, eq=False)
class StepDraws:
    """What some steps compute instead: ``ns`` before the steps ``at``."""

    at: Ints
    ns: Floats


@dataclass(eq=False)
class Room:
    """Memory for simulations, one after the other: each ends what the one before has returned.

    ``packs``: the steps that were simulated last; rooms of several threads may share them.
    """

    packs: Packs = field(default_factory=Packs)
    _columns: dict[str, np.ndarray] = field(default_factory=dict)
    _work: tuple[Any, ...] = (None, None, None)

    def column(self, name: str, size: int, dtype: Any) -> np.ndarray:
        """Return a column of so many entries, whatever was in it."""
        array = self._columns.get(name)
        if array is None or len(array) < size:
            self._columns.pop(name, None)
            array = self._columns[name] = np.empty(size, dtype=dtype)
        return array[:size]

    def work(self, steps: Steps, packed: PackedSteps, drawn: StepDraws | None) -> Floats:
        """Return the computation before each step in the order that they are packed in."""
        if drawn is None and packed.order is None:
            return np.ascontiguousarray(steps.work_ns, dtype=np.float64)
        at = None if drawn is None else drawn.at
        work = self.column("work", len(packed), np.float64)
        mine, its, changed = self._work
        if mine is not packed or its is not steps.work_ns or not (changed is None or changed is at):
            usual = np.asarray(steps.work_ns, dtype=np.float64)
            if packed.order is None:
                work[:] = usual
            else:  # straight to its place: places are known to be inside
                np.take(usual, packed.order, out=work, mode="clip")
        if drawn is not None:
            work[packed.place_of(drawn.at)] = drawn.ns
        self._work = packed, steps.work_ns, at
        return work


def added_up(result: Any, start: Ints, tally: Tally) -> Totals:
    """Return the totals of what a simulator says of every step; ``start``: as in Steps."""
    end = np.asarray(result.end_ns)
    long = end - np.asarray(result.begin_ns)
    columns = (long, result.waiting_ns, result.transfer_ns, result.software_ns)
    sums = [
        np.bincount(tally.cell, tally.weight * np.asarray(column), tally.cells)
        for column in columns
    ]
    rank = np.repeat(np.arange(len(start) - 1), np.diff(start))
    longs = [
        np.bincount(rank, np.where(tally.group == group, long, 0.0), len(start) - 1)
        for group in range(1, tally.groups + 1)
    ]
    each = np.array(longs, dtype=np.float64).reshape(-1, len(start) - 1)
    return Totals(np.stack(sums), each, end)


@dataclass(frozen=True)
class SimulationGaps:
    """How far a simulation could follow the messages and loops of the model.

    unmatched: messages that no call of the partner meets, out of ``messages`` of the kind (sends,
    or receives) of which most are; calls: the MPI calls that send or receive them. unsettled: share
    of the time in calls that rests on loops whose iterations went on changing; change: by how
    much they did, largest share of their time. reordered: calls that had to be made earlier, or
    taken as not waiting, so that all ranks come to their end.
    """

    unmatched: float = 0.0
    messages: float = 0.0
    calls: tuple[str, ...] = ()
    unsettled: float = 0.0
    change: float = 0.0
    reordered: int = 0

    @property
    def lost(self) -> float:
        """Which share of the messages was left out."""
        return self.unmatched / self.messages if self.messages > 0 else 0.0

    def with_unmatched(self, counts: Mapping[str, Any]) -> SimulationGaps:
        """Return it with what ``p3s.program.order.calls.count_unmatched`` says."""
        return replace(
            self,
            unmatched=float(counts.get("events") or 0.0),
            messages=float(counts.get("of") or 0.0),
            calls=tuple(str(call) for call in counts.get("calls") or ()),
        )


@dataclass(frozen=True)
class StandIns:
    """Smaller process grids that were simulated instead of all ranks.

    grids: how many, ranks: of the largest; changes_with: what times change with, of log (of the
    ranks), sides and ranks; missed: by how much the smaller of them miss the communication of the
    largest, as a share. checked_n: the count at which every rank was simulated as well,
    checked_missed: how much more communication smaller grids say there than that (less than 0:
    less), as a share, and checked_slowest: the same of the rank that takes longest, by how much
    longer the run takes; null where there is no such count. most_missed: the most of these, of
    what phases miss there, weighted by their communication, and of what the largest of the smaller
    grids takes longer than the others say, as a share.
    """

    grids: int
    ranks: int
    changes_with: tuple[str, ...]
    missed: float
    most_missed: float
    checked_n: int | None = None
    checked_missed: float | None = None
    checked_slowest: float | None = None


#: Weights that differ by less than this share are equal.
_EQUAL = 1e-9


@dataclass(frozen=True)
class Alike:
    """Iterations of a section in which the same is done, and for how many they stand.

    ``turns``: ascending. ``stands_for``: iterations of one entry of the loop (a mean over the
    entries, not always a whole number). ``entries``: how often the loop is entered."""

    turns: Ints
    stands_for: float
    entries: float

    @property
    def folded(self) -> bool:
        """Whether they stand for more iterations than they are."""
        return self.stands_for > len(self.turns) * (1.0 + 1e-6)


def alike(section: Section, *, repeated: bool = False) -> Alike | None:
    """Return the sort of iterations that stands for most calls; None where there are no turns.

    ``repeated``: the section is an iteration of a loop that makes as many iterations as it has
    entries."""
    steps = section.steps
    if not len(steps) or not section.entries > 0:
        return None
    if repeated and section.turns < 2:
        return Alike(np.zeros(1, dtype=np.int64), section.entries, 1.0)
    if section.turns < 2:
        return None
    number = int(steps.turn.max()) + 1
    # What an iteration is: the rows of the trace that are its calls, and what they stand for.
    like = np.zeros(number, dtype=np.uint64)
    weight = np.round(np.log(np.maximum(steps.weight, 1e-300)) / _EQUAL / 10).astype(np.int64)
    rank = np.repeat(mix_bits(steps.ranks), np.diff(steps.start))
    code = mix_bits(mix_bits(rank + steps.row.astype(np.uint64)) + weight.astype(np.uint64))
    rows = steps.row >= 0  # computation after the last call is in the last iteration alone
    np.add.at(like, steps.turn[rows], code[rows])
    used = np.flatnonzero(np.bincount(steps.turn[rows], minlength=number))
    if not len(used):
        return None
    _, kind = np.unique(like[used], return_inverse=True)
    calls = np.bincount(steps.turn[rows], weights=steps.weight[rows], minlength=number)[used]
    turns = used[kind.reshape(-1) == np.argmax(np.bincount(kind.reshape(-1), weights=calls))]
    mine = rows & np.isin(steps.turn, turns)
    stands = float(np.median(steps.weight[mine])) * len(turns) / section.entries
    return Alike(turns, stands, section.entries)


def is_self_contained(steps: Steps, is_kept: Bools) -> bool:
    """Tell whether no message and no request joins a kept step to one that is not kept."""
    for link in (steps.to, steps.source):
        has = link >= 0
        if (is_kept[link[has]] != is_kept[has]).any():
            return False
    waits = np.repeat(is_kept, np.diff(steps.done_start))
    return not (is_kept[steps.done] != waits).any()


def whole(steps: Steps, is_kept: Bools) -> bool:
    """Tell whether of each collective call all steps are kept or none."""
    calls = instances(steps)
    mine = is_kept[calls.call_step].astype(np.int64)
    number = np.bincount(calls.call_instance, minlength=len(calls.kind))
    members_kept = np.bincount(calls.call_instance, weights=mine, minlength=len(calls.kind))
    return bool(((members_kept == 0) | (members_kept == number)).all())


def by_rank(steps: Steps, values: Floats) -> Floats:
    """Return the sum over the steps of each of ``steps.ranks``."""
    sums = np.concatenate(([0.0], np.cumsum(values)))
    return np.asarray(sums[steps.start[1:]] - sums[steps.start[:-1]])


def last_of(steps: Steps, is_kept: Bools) -> Ints:
    """Return the last kept step of each of ``steps.ranks``, -1 where it has none."""
    places = np.concatenate(([-1], np.flatnonzero(is_kept)))
    number = np.concatenate(([0], np.cumsum(is_kept)))
    last_kept = places[number[steps.start[1:]]]
    return np.where(number[steps.start[1:]] > number[steps.start[:-1]], last_kept, -1)
