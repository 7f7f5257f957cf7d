"""How many requests a completion completes on a rank, and which."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from p3s.base.arrays import Ints
from p3s.simulate.steps import Op

#: Of a pool that never gets empty, so many more are listed than can be outstanding.
_SPARE = 64


def first_in_first_out(posts: Ints, wants: Ints) -> tuple[Ints, Ints]:
    """Return [begin, end) of the requests that each step of one rank completes.

    posts: how many requests a step leaves behind, wants: how many it completes if so many are
    outstanding. Requests are numbered from 0 in the order of their steps.
    """
    posted = np.cumsum(posts) - posts  # before the step
    completions = np.cumsum(wants)
    # end = min(end before + wants, posted) from step to step, all at once.
    slack = np.minimum.accumulate(posted - completions) if len(posts) else posted
    end = completions + np.minimum(slack, 0)
    begin = np.concatenate(([0], end[:-1])) if len(end) else end
    return begin, end


@dataclass
class _Pool:
    members: list[int]
    left: int


@dataclass
class Outstanding:
    """Requests of one rank that nobody has completed yet, oldest first.

    ``free`` maps the step that left a request to the steps whose messages it stands for.
    """

    free: dict[int, tuple[int, ...]] = field(default_factory=dict)
    receives: set[int] = field(default_factory=set)
    pool: _Pool | None = None

    def post(self, step: int, stands_for: Sequence[int], receive: bool) -> None:
        """Add a request."""
        self.free[step] = tuple(stands_for)
        if receive:
            self.receives.add(step)

    def number(self) -> int:
        """Return how many are outstanding."""
        return len(self.free) + (self.pool.left if self.pool else 0)

    def complete(
        self, op: Op, number: int, prefer: bool | None = None
    ) -> tuple[Op, int, list[int]]:
        """Return the operation, number and steps of a completion of at most ``number`` requests.

        prefer: receives first (True), or sends first (False).
        """
        number = min(number, self.number())
        if number == 0:
            return op, 0, []
        if op != Op.WAIT:
            return self._complete_some(op, number)
        oldest = list(self.free)
        if prefer is not None:
            oldest.sort(key=lambda request: (request in self.receives) != prefer)
        oldest = oldest[:number]
        completed = [step for request in oldest for step in self._pop(request)]
        rest = number - len(oldest)
        if rest == 0 or self.pool is None:
            return op, len(completed), completed
        pool, self.pool.left = self.pool, self.pool.left - rest
        completed += pool.members
        if pool.left == 0:
            self.pool = None
            return op, len(completed), completed
        return Op.WAITSOME, number, completed

    def _pop(self, request: int) -> tuple[int, ...]:
        self.receives.discard(request)
        return self.free.pop(request)

    def _complete_some(self, op: Op, number: int) -> tuple[Op, int, list[int]]:
        if self.receives or self.pool is None or number > self.pool.left:
            pool = self.pool or _Pool([], 0)
            mine = [r for r in self.free if r in self.receives]
            if pool.left + len(mine) < number:
                mine = list(self.free)
            for request in mine:
                pool.members += self._pop(request)[-1:]  # of MPI_Isendrecv the receive
                pool.left += 1
            del pool.members[: max(len(pool.members) - pool.left - _SPARE, 0)]
            self.pool = pool
        pool = self.pool
        assert pool is not None
        completed = list(pool.members)
        pool.left -= number
        if pool.left == 0:
            self.pool = None
            if number == len(completed):
                return Op.WAIT, number, completed
        return op, number, completed


ANY, SENDS, RECEIVES = 0, 1, 2
#: So many kinds of ranks, and events of each, are looked at.
_KINDS, EVENTS = 48, 4000


def count_completions(posts: Ints, wants: Ints, several: Ints) -> Ints:
    """Return how many requests each event of a rank completes.

    posts, wants: requests left behind, and completed on average; completes_many: 1 where a call may
    complete several. All of the whole run.
    """
    begin, end = first_in_first_out(posts, wants)
    if not several.any() or (((end - begin) == wants).all() and end[-1:].sum() == posts.sum()):
        return wants
    single = np.where(several > 0, 0, wants)
    # What later single completions need of what is outstanding after an event.
    sums = np.cumsum(single - posts)
    need = np.maximum.accumulate(sums[::-1])[::-1] - sums
    posted = np.cumsum(posts) - posts
    at = np.flatnonzero(several)
    after = np.maximum(posted[at] - need[at], 0)  # completed after each such call
    singles = np.cumsum(single)
    # Those with nothing else between them share, as the averages say.
    group = np.cumsum((posts > 0) | (single > 0))[at]
    first = np.flatnonzero(np.diff(group, prepend=-1))
    size = np.diff([*first.tolist(), len(at)])
    out = wants.copy()
    completed, before = 0, 0
    for a, k in zip(first.tolist(), size.tolist(), strict=True):
        completed += int(singles[at[a]]) - before
        before = int(singles[at[a]])
        free = max(int(after[a]) - completed, 0)
        hints = np.cumsum(wants[at[a : a + k]])
        ends = np.rint(free * hints / hints[-1]).astype(np.int64)
        out[at[a : a + k]] = np.diff(ends, prepend=0)
        completed += free
    return out


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
    preferred = {
        slot: SENDS if sends else RECEIVES
        for slot, (sends, receives, all_) in votes.items()
        if sends != receives and not all_
    }
    alike: dict[int, set[int]] = defaultdict(set)
    for slot, preference in preferred.items():
        alike[call[slot]].add(preference)
    for slot, (sends, receives, all_) in votes.items():
        if sends and receives and not all_ and len(alike[call[slot]]) == 1:
            preferred[slot] = min(alike[call[slot]])
    return preferred if any(_differs(them, preferred) for them in batches) else {}


def _batches(sample: Sample) -> list[_Batch]:
    """Return (kinds of requests posted, how many are completed then, rule), in order."""
    out: list[_Batch] = []
    posted: list[int] = []
    for kind, number, slot in zip(
        sample.posted.tolist(), sample.wants.tolist(), sample.slot.tolist(), strict=True
    ):
        if kind:
            posted.append(kind)
        elif number and out and not posted and out[-1][2] == slot:
            out[-1] = out[-1][0], out[-1][1] + number, slot
        elif number:
            out.append((posted, number, slot))
            posted = []
    return out


def _vote(batches: list[_Batch], votes: dict[int, list[bool]]) -> None:
    """Strike out what is against a rule completing all sends, all receives, or everything."""
    open_ = {1: 0, 2: 0, 3: 0}
    clear = True
    for posted, number, slot in batches:
        for kind in posted:
            open_[kind] += 1
        total, sends, receives = sum(open_.values()), open_[1], open_[2]
        if clear:
            mine = votes[slot]
            mine[0] &= number == sends
            mine[1] &= number == receives
            mine[2] &= number == total
        if number >= total:
            open_ = {1: 0, 2: 0, 3: 0}
            clear = True
        elif number == sends != receives:
            open_[1] = 0
        elif number == receives != sends:
            open_[2] = 0
        else:  # either: what is left is not known until nothing is
            clear = False
            for kind in (1, 2, 3):
                less = min(number, open_[kind])
                open_[kind] -= less
                number -= less


def _differs(batches: list[_Batch], preferred: dict[int, int]) -> bool:
    """Tell whether the rules found complete others than the oldest requests."""
    queue: list[int] = []
    for posted, number, slot in batches:
        queue += posted
        kind = preferred.get(slot, ANY)
        oldest = queue[:number]
        if kind == ANY:
            del queue[:number]
            continue
        if any(one != kind for one in oldest) and kind in queue:
            return True
        del queue[:number]
    return False
