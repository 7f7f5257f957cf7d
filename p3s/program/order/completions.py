"""How many requests, and of which kind, a completion completes on a rank.

A scaled trace tells how many requests one call completes *on average*. Where ranks differ (at the
border of a grid, say) that is wrong for most of them. What is certain is how many requests a rank
leaves behind, and that MPI_Wait and its like complete one. So where the averages do not use up
exactly what was left behind, MPI_Waitall completes all that later calls of MPI_Wait do not need.

Whether a call that completes a part of what is outstanding completes sends or receives is seen on
the ranks whose numbers of sends and receives differ. Where they nowhere do, it is taken to complete
what the other calls of its name do in this program.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from p3s.program.order.links import first_in_first_out
from p3s.program.scaled import Ints

ANY, SENDS, RECEIVES = 0, 1, 2
#: So many kinds of ranks, and events of each, are looked at.
_KINDS, EVENTS = 48, 4000


def wanted(posts: Ints, wants: Ints, many: Ints) -> Ints:
    """Return how many requests each event of a rank completes.

    posts, wants: requests left behind, and completed on average; many: 1 where a call may complete
    several. All of the whole run.
    """
    begin, end = first_in_first_out(posts, wants)
    if not many.any() or (((end - begin) == wants).all() and end[-1:].sum() == posts.sum()):
        return wants
    single = np.where(many > 0, 0, wants)
    # What later single completions need of what is outstanding after an event.
    sums = np.cumsum(single - posts)
    need = np.maximum.accumulate(sums[::-1])[::-1] - sums
    posted = np.cumsum(posts) - posts
    at = np.flatnonzero(many)
    after = np.maximum(posted[at] - need[at], 0)  # completed after each such call
    singles = np.cumsum(single)
    # Those with nothing else between them share, as the averages say.
    group = np.cumsum((posts > 0) | (single > 0))[at]
    first = np.flatnonzero(np.diff(group, prepend=-1))
    size = np.diff([*first.tolist(), len(at)])
    found = wants.copy()
    done, before = 0, 0
    for a, k in zip(first.tolist(), size.tolist(), strict=True):
        done += int(singles[at[a]]) - before
        before = int(singles[at[a]])
        free = max(int(after[a]) - done, 0)
        hints = np.cumsum(wants[at[a : a + k]])
        ends = np.rint(free * hints / hints[-1]).astype(np.int64)
        found[at[a : a + k]] = np.diff(ends, prepend=0)
        done += free
    return found


#: Kinds of requests posted, how many are completed then, by which rule.
_Batch = tuple[Sequence[int], int, int]


@dataclass(frozen=True)
class Sample:
    """The beginning of one kind's run: per event requests left behind (1: a send, 2: a receive,
    3: a collective, 0: none), how many are completed, by which rule (slot), by which MPI call."""

    posted: Ints
    wants: Ints
    slot: Ints
    call: Ints


def preferences(samples: Iterable[Sample]) -> dict[int, int]:
    """Return SENDS or RECEIVES for each rule of completions that completes only those.

    Rules that complete the oldest requests anyway are left out.
    """
    votes: dict[int, list[bool]] = defaultdict(lambda: [True, True, True])
    batches: list[list[_Batch]] = []
    call: dict[int, int] = {}
    for _, sample in zip(range(_KINDS), samples, strict=False):
        batches.append(_batches(sample))
        _vote(batches[-1], votes)
        call |= dict(zip(sample.slot.tolist(), sample.call.tolist(), strict=True))
    found = {
        slot: SENDS if sends else RECEIVES
        for slot, (sends, receives, all_) in votes.items()
        if sends != receives and not all_
    }
    alike: dict[int, set[int]] = defaultdict(set)
    for slot, what in found.items():
        alike[call[slot]].add(what)
    for slot, (sends, receives, all_) in votes.items():
        if sends and receives and not all_ and len(alike[call[slot]]) == 1:
            found[slot] = min(alike[call[slot]])
    return found if any(_differs(them, found) for them in batches) else {}


def _batches(sample: Sample) -> list[_Batch]:
    """Return (kinds of requests posted, how many are completed then, rule), in order."""
    out: list[_Batch] = []
    posted: list[int] = []
    for kind, many, slot in zip(
        sample.posted.tolist(), sample.wants.tolist(), sample.slot.tolist(), strict=True
    ):
        if kind:
            posted.append(kind)
        elif many and out and not posted and out[-1][2] == slot:
            out[-1] = out[-1][0], out[-1][1] + many, slot
        elif many:
            out.append((posted, many, slot))
            posted = []
    return out


def _vote(batches: list[_Batch], votes: dict[int, list[bool]]) -> None:
    """Strike out what is against a rule completing all sends, all receives, or everything."""
    open_ = {1: 0, 2: 0, 3: 0}
    clear = True
    for posted, many, slot in batches:
        for kind in posted:
            open_[kind] += 1
        total, sends, receives = sum(open_.values()), open_[1], open_[2]
        if clear:
            mine = votes[slot]
            mine[0] &= many == sends
            mine[1] &= many == receives
            mine[2] &= many == total
        if many >= total:
            open_ = {1: 0, 2: 0, 3: 0}
            clear = True
        elif many == sends != receives:
            open_[1] = 0
        elif many == receives != sends:
            open_[2] = 0
        else:  # either: what is left is not known until nothing is
            clear = False
            for kind in (1, 2, 3):
                less = min(many, open_[kind])
                open_[kind] -= less
                many -= less


def _differs(batches: list[_Batch], found: dict[int, int]) -> bool:
    """Tell whether the rules found complete others than the oldest requests."""
    queue: list[int] = []
    for posted, many, slot in batches:
        queue += posted
        kind = found.get(slot, ANY)
        oldest = queue[:many]
        if kind == ANY:
            del queue[:many]
            continue
        if any(one != kind for one in oldest) and kind in queue:
            return True
        del queue[:many]
    return False
