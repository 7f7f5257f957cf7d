"""Which pairs of ranges to load, so that every class of events is measured somewhere."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from replay.scaled import Bools, Ints
from replay.thesis.classes import Classified


@dataclass(frozen=True)
class Choice:
    """Pairs of ranges in the order of what they add, and the classes that each adds.

    ``partial`` marks the classes whose events need three or more ranges at once: they are
    measured with some of their partners played by black holes. ``uncovered`` classes are left
    for interpolation because the number of iterations is bounded.
    """

    pairs: tuple[tuple[int, int], ...]
    adds: tuple[tuple[int, ...], ...]
    partial: Bools
    uncovered: tuple[int, ...]


@dataclass(frozen=True)
class _Members:
    """Which classes a range measures alone, and which a pair of ranges measures."""

    alone_class: Ints
    alone_range: Ints
    pair_class: Ints
    pair_index: Ints
    pairs: Ints  # 2 x pairs


def choose(classified: Classified, executed: Bools, ranges: int, limit: int) -> Choice:
    """Choose at most ``limit`` pairs, each time the one that adds the most classes."""
    number = len(classified.classes)
    rows = np.flatnonzero(executed & (classified.of_row >= 0))
    need = classified.others()
    classes = classified.of_row[rows]
    whole = np.zeros(number, dtype=bool)
    whole[classes[need[rows] <= 1]] = True
    wanted = np.zeros(number, dtype=bool)
    wanted[classes] = True
    members = _members(classified, rows, need, whole, ranges)

    covered = ~wanted
    chosen: list[tuple[int, int]] = []
    adds: list[tuple[int, ...]] = []
    while not covered.all() and len(chosen) < limit:
        pair = _best(members, covered, ranges)
        if pair is None:
            break
        new = _measured_by(members, pair)
        new = new[~covered[new]]
        covered[new] = True
        chosen.append(pair)
        adds.append(tuple(new.tolist()))
    return Choice(tuple(chosen), tuple(adds), wanted & ~whole,
                  tuple(np.flatnonzero(~covered).tolist()))


def _members(
    classified: Classified, rows: Ints, need: Ints, whole: Bools, ranges: int
) -> _Members:
    """Collect the distinct (class, range) and (class, pair of ranges)."""
    alone = rows[need[rows] == 0]
    alone_key = np.unique(classified.of_row[alone] * ranges + classified.range_of_row[alone])
    row = classified.other_row
    cls = classified.of_row[row]
    # Only rows with a class of their own count; events that need three ranges only count for
    # classes that have no event that needs fewer.
    use = (cls >= 0) & ((need[row] == 1) | ~whole[np.maximum(cls, 0)])
    own, other, cls = classified.range_of_row[row[use]], classified.other_range[use], cls[use]
    pair = np.minimum(own, other) * ranges + np.maximum(own, other)
    unique_pairs, index = np.unique(pair, return_inverse=True)
    key = np.unique(cls * max(len(unique_pairs), 1) + index.reshape(-1))
    count = max(len(unique_pairs), 1)
    return _Members(
        alone_key // ranges, alone_key % ranges, key // count, key % count,
        np.stack((unique_pairs // ranges, unique_pairs % ranges)),
    )


def _best(members: _Members, covered: Bools, ranges: int) -> tuple[int, int] | None:
    """Return the pair that adds the most classes, or None when none adds any."""
    alone_open = ~covered[members.alone_class]
    alone_gain = np.bincount(members.alone_range[alone_open], minlength=ranges)
    pair_open = ~covered[members.pair_class]
    if pair_open.any():
        gain = np.bincount(members.pair_index[pair_open], minlength=members.pairs.shape[1])
        gain = np.where(
            gain > 0, gain + alone_gain[members.pairs[0]] + alone_gain[members.pairs[1]], 0)
        best = int(np.argmax(gain))
        return int(members.pairs[0, best]), int(members.pairs[1, best])
    if not alone_gain.any():
        return None
    first = int(np.argmax(alone_gain))
    alone_gain[first] = -1
    second = int(np.argmax(alone_gain)) if ranges > 1 else first
    return min(first, second), max(first, second)


def _measured_by(members: _Members, pair: tuple[int, int]) -> Ints:
    """Return the classes that a pair of ranges measures."""
    alone = members.alone_class[np.isin(members.alone_range, pair)]
    here = (members.pairs[0] == pair[0]) & (members.pairs[1] == pair[1])
    together = members.pair_class[np.isin(members.pair_index, np.flatnonzero(here))]
    return np.unique(np.concatenate((alone, together)))


def timed_rows(
    classified: Classified, executed: Bools, partial: Bools, pair: tuple[int, int]
) -> Bools:
    """Return which rows give a sample of their class while these two ranges are loaded."""
    need = classified.others()
    inside = np.isin(classified.other_range, pair)
    have = np.bincount(classified.other_row[inside], minlength=len(need))
    mine = executed & (classified.of_row >= 0) & np.isin(classified.range_of_row, pair)
    is_partial = np.zeros(len(need), dtype=bool)
    if len(partial):
        is_partial = partial[np.maximum(classified.of_row, 0)]
    return mine & ((have == need) | (is_partial & (have > 0)))
