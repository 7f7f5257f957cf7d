"""Iterations of a loop in the steps of a section: which are alike, and steps of some iterations
alone."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from p3s.simulate.collectives import instances
from p3s.simulate.steps import PLAIN, Bools, Floats, Ints, Section, Steps, narrow, taken

_EACH = (*PLAIN, "to", "source", "done")
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
    rank = np.repeat(_mixed(steps.ranks), np.diff(steps.start))
    code = _mixed(_mixed(rank + steps.row.astype(np.uint64)) + weight.astype(np.uint64))
    rows = steps.row >= 0  # computation after the last call is in the last iteration alone
    np.add.at(like, steps.turn[rows], code[rows])
    used = np.flatnonzero(np.bincount(steps.turn[rows], minlength=number))
    if not len(used):
        return None
    _, which = np.unique(like[used], return_inverse=True)
    calls = np.bincount(steps.turn[rows], weights=steps.weight[rows], minlength=number)[used]
    turns = used[which.reshape(-1) == np.argmax(np.bincount(which.reshape(-1), weights=calls))]
    mine = rows & np.isin(steps.turn, turns)
    stands = float(np.median(steps.weight[mine])) * len(turns) / section.entries
    return Alike(turns, stands, section.entries)


def _mixed(x: Any) -> np.ndarray:
    """Return numbers with their bits mixed (splitmix64)."""
    z = np.asarray(x).astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def closed(steps: Steps, kept: Bools) -> bool:
    """Tell whether no message and no request joins a kept step to one that is not kept."""
    for link in (steps.to, steps.source):
        has = link >= 0
        if (kept[link[has]] != kept[has]).any():
            return False
    waits = np.repeat(kept, np.diff(steps.done_start))
    return not (kept[steps.done] != waits).any()


def whole(steps: Steps, kept: Bools) -> bool:
    """Tell whether of each collective call all steps are kept or none."""
    calls = instances(steps)
    mine = kept[calls.call_step].astype(np.int64)
    number = np.bincount(calls.call_instance, minlength=len(calls.kind))
    made = np.bincount(calls.call_instance, weights=mine, minlength=len(calls.kind))
    return bool(((made == 0) | (made == number)).all())


def part(steps: Steps, kept: Bools) -> Steps:
    """Return the kept steps of the same ranks; links to others are cut."""
    new = np.cumsum(kept, dtype=narrow(len(steps)))
    new -= 1
    new[~kept] = -1
    columns: dict[str, Any] = {name: taken(getattr(steps, name), kept) for name in PLAIN}
    for name in ("to", "source"):
        link = getattr(steps, name)[kept]
        columns[name] = np.where(link >= 0, new[np.maximum(link, 0)], new.dtype.type(-1))
    done = new[steps.done]
    told = np.repeat(kept, np.diff(steps.done_start)) & (done >= 0)
    waits = np.repeat(np.arange(len(steps)), np.diff(steps.done_start))[told]
    counts = np.bincount(waits, minlength=len(steps))[kept]
    before = np.concatenate(([0], np.cumsum(kept, dtype=narrow(len(steps)))))
    return replace(
        steps,
        start=before[steps.start].astype(np.int64),
        done=done[told],
        done_start=np.concatenate(([0], np.cumsum(counts))).astype(np.int64),
        **columns,
    )


def none_of(steps: Steps) -> Steps:
    """Return no steps, of the same ranks."""
    columns: dict[str, Any] = {name: getattr(steps, name)[:0].copy() for name in _EACH}
    start, done_start = np.zeros_like(steps.start), np.zeros(1, dtype=np.int64)
    return replace(steps, start=start, done_start=done_start, **columns)


def by_rank(steps: Steps, values: Floats) -> Floats:
    """Return the sum over the steps of each of ``steps.ranks``."""
    sums = np.concatenate(([0.0], np.cumsum(values)))
    return np.asarray(sums[steps.start[1:]] - sums[steps.start[:-1]])


def last_of(steps: Steps, kept: Bools) -> Ints:
    """Return the last kept step of each of ``steps.ranks``, -1 where it has none."""
    places = np.concatenate(([-1], np.flatnonzero(kept)))
    number = np.concatenate(([0], np.cumsum(kept)))
    found = places[number[steps.start[1:]]]
    return np.where(number[steps.start[1:]] > number[steps.start[:-1]], found, -1)
