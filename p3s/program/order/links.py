"""Which completion completes which requests, where only their number is known.

Requests are completed in the order in which they were posted. MPI_Waitany and MPI_Waitsome
complete some of a *pool*: all receives that are outstanding (all requests if there are none); it
is known how many of a pool are left, not which.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from p3s.simulate.steps import Ints, Op

#: Of a pool that never gets empty, so many more are listed than can be outstanding.
_SPARE = 64


def first_in_first_out(posts: Ints, wants: Ints) -> tuple[Ints, Ints]:
    """Return [begin, end) of the requests that each step of one rank completes.

    posts: how many requests a step leaves behind, wants: how many it completes if so many are
    outstanding. Requests are numbered from 0 in the order of their steps.
    """
    posted = np.cumsum(posts) - posts  # before the step
    wanted = np.cumsum(wants)
    # end = min(end before + wants, posted) from step to step, all at once.
    slack = np.minimum.accumulate(posted - wanted) if len(posts) else posted
    end = wanted + np.minimum(slack, 0)
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
            return self._some(op, number)
        oldest = list(self.free)
        if prefer is not None:
            oldest.sort(key=lambda request: (request in self.receives) != prefer)
        oldest = oldest[:number]
        found = [step for request in oldest for step in self._pop(request)]
        rest = number - len(oldest)
        if rest == 0 or self.pool is None:
            return op, len(found), found
        pool, self.pool.left = self.pool, self.pool.left - rest
        found += pool.members
        if pool.left == 0:
            self.pool = None
            return op, len(found), found
        return Op.WAITSOME, number, found

    def _pop(self, request: int) -> tuple[int, ...]:
        self.receives.discard(request)
        return self.free.pop(request)

    def _some(self, op: Op, number: int) -> tuple[Op, int, list[int]]:
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
        found = list(pool.members)
        pool.left -= number
        if pool.left == 0:
            self.pool = None
            if number == len(found):
                return Op.WAIT, number, found
        return op, number, found
