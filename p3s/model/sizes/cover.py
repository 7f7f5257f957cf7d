"""A weighted set cover solved exactly: one option per group, constants paid once for all.

What cannot be in the cheapest cover is left out first: constants that one group alone may use
belong to the costs of its options, and an option is out where another of its group costs no more
and needs no other constants. Little is left for the solver then.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

C = TypeVar("C", bound=Hashable)

#: Branches of our own search for the cheapest cover, of which small programs take some dozens. What
#: takes more is for a solver, whose import alone takes as long.
MOST_BRANCHES = 5_000
#: How far from the cheapest a cover of the solver may be, relative; its branches, of which the best
#: found by then is taken.
GAP, MOST_NODES = 0.002, 20_000
#: Bits that make no difference.
_SAME = 1e-9


@dataclass(frozen=True)
class _Option:
    """An option: its number in the group, its cost, the constants that it needs as bits."""

    number: int
    cost: float
    needs: int


class Cover(Generic[C]):
    """Groups of options, of which each is to have one; options need constants."""

    def __init__(
        self,
        groups: Sequence[Sequence[tuple[float, Collection[C]]]],
        constants: Sequence[C],
        bits: Sequence[float],
    ) -> None:
        """groups: cost and constants of every option; bits: what each constant costs once."""
        self.bits = [float(b) for b in bits]
        self._number = {c: i for i, c in enumerate(constants)}
        self._dear = sum(1 << i for i, b in enumerate(self.bits) if b)  # all but what is free
        self._groups = [
            [_Option(k, cost, self._mask(needs)) for k, (cost, needs) in enumerate(some)]
            for some in groups
        ]

    def solve(self, without: Collection[C] = ()) -> tuple[float, list[int]] | None:
        """Return what the cheapest cover costs and the number of each group's option in it.

        without: constants that no option may need; None where a group has no option left.
        """
        gone = self._mask(without)
        groups = [[o for o in some if not o.needs & gone] for some in self._groups]
        if not all(groups):
            return None
        groups = self._reduced(groups)
        taken = self._taken(groups)
        if taken is None:
            return None
        chosen = [
            min((o for o in some if not o.needs & ~taken), key=lambda o: (o.cost, o.number))
            for some in groups
        ]
        used = 0
        for o in chosen:
            used |= o.needs
        return sum(o.cost for o in chosen) + self._cost(used), [o.number for o in chosen]

    def _mask(self, constants: Collection[C]) -> int:
        out = 0
        for c in constants:
            out |= 1 << self._number[c]
        return out

    def _cost(self, constants: int) -> float:
        return sum(self.bits[i] for i in _ones(constants))

    def _reduced(self, groups: list[list[_Option]]) -> list[list[_Option]]:
        """Return the options that the cheapest cover may have, with constants of groups of them."""
        before = -1
        while before != (before := sum(map(len, groups))):
            shared = _find_shared(groups) & self._dear
            groups = [_drop_dominated([self._folded(o, shared) for o in some]) for some in groups]
        return groups

    def _folded(self, o: _Option, shared: int) -> _Option:
        own = o.needs & ~shared
        return _Option(o.number, o.cost + self._cost(own), o.needs & shared) if own else o

    def _taken(self, groups: Sequence[Sequence[_Option]]) -> int | None:
        """Return the constants of the cheapest cover."""
        users: dict[int, list[int]] = {}
        column = 0
        for some in groups:
            for o in some:
                for i in _ones(o.needs):
                    users.setdefault(i, []).append(column)
                column += 1
        together: dict[tuple[int, ...], int] = {}  # constants that are needed by the same options
        for i, who in users.items():
            together[tuple(who)] = together.get(tuple(who), 0) | 1 << i
        if not together:
            return 0
        constants = list(together.values())
        found = _find_cheapest(groups, list(together), [self._cost(c) for c in constants])
        if found is None:
            return None
        taken = 0
        for c, there in zip(constants, found, strict=True):
            taken |= c if there else 0
        return taken


def _ones(mask: int) -> Iterator[int]:
    """Yield the numbers of the bits that are set."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def _find_shared(groups: Sequence[Sequence[_Option]]) -> int:
    """Return the constants that options of at least two groups need."""
    once = twice = 0
    for some in groups:
        every = 0
        for o in some:
            every |= o.needs
        twice |= once & every
        once |= every
    return twice


def _drop_dominated(some: Sequence[_Option]) -> list[_Option]:
    """Return the options but those that another one is as good as, whatever else is chosen."""
    kept: list[_Option] = []
    for o in sorted(some, key=lambda o: (o.cost, o.number)):
        if all(other.needs & ~o.needs for other in kept):
            kept.append(o)
    return kept


def _find_cheapest(
    groups: Sequence[Sequence[_Option]], users: Sequence[Sequence[int]], bits: Sequence[float]
) -> list[bool] | None:
    """Return which constants the cheapest cover has.

    users: per constant the options that need it, numbered through all groups; bits: what each
    costs.
    """
    found = _Branches(groups, users, bits).least()
    return _solve_program(groups, users, bits) if found is None else found.tolist()


class _Branches:
    """Branch and bound: group by group one of its options, the most promising first.

    No cover is cheaper than if every group paid for the constants of its option only the share that
    falls on it where all groups that may need them did.
    """

    def __init__(
        self,
        groups: Sequence[Sequence[_Option]],
        users: Sequence[Sequence[int]],
        bits: Sequence[float],
    ) -> None:
        self._first = np.cumsum([0, *map(len, groups)])
        self._own = np.array([o.cost for some in groups for o in some])
        self._bits = np.array(bits)
        self._needs = np.zeros((len(self._own), len(users)), dtype=bool)
        for c, who in enumerate(users):
            self._needs[list(who), c] = True
        self._used = np.logical_or.reduceat(self._needs, self._first[:-1], axis=0)

    def least(self) -> np.ndarray | None:
        """Return which constants are taken, (constants,); None where that takes too long."""
        start = np.arange(len(self._used)), np.zeros(len(self._bits), dtype=bool), 0.0
        stack, least = [(0.0, *start)], np.inf
        best: np.ndarray | None = None
        for _ in range(MOST_BRANCHES):
            while stack and stack[-1][0] >= least - _SAME:
                stack.pop()
            if not stack:
                return best
            _, left, taken, paid = stack.pop()
            if len(left):
                stack += self._next(left, taken, paid)
            else:
                least, best = paid, taken
        return None

    def _next(self, left: np.ndarray, taken: np.ndarray, paid: float) -> list[_Branch]:
        """Return what comes of the options of one of the groups that are left, cheapest last."""
        open_bits = np.where(taken, 0.0, self._bits)
        share = open_bits / np.maximum(self._used[left].sum(axis=0), 1)
        at_least, alone = (self._own + self._needs @ each for each in (share, open_bits))
        low, high = (np.minimum.reduceat(x, self._first[:-1])[left] for x in (at_least, alone))
        k = int(np.argmax(high - low))  # the group that the bound is most wrong about
        some = range(*self._first[left[k] : left[k] + 2])
        rest, bound = np.delete(left, k), paid + float(low.sum() - low[k])
        return [
            (bound + float(at_least[o]), rest, taken | self._needs[o], paid + float(alone[o]))
            for o in sorted(some, key=lambda o: (-at_least[o], -o))
        ]


#: A least cost, the groups that are left, the constants taken, what was paid so far.
_Branch = tuple[float, np.ndarray, np.ndarray, float]


def _solve_program(
    groups: Sequence[Sequence[_Option]], users: Sequence[Sequence[int]], bits: Sequence[float]
) -> list[bool] | None:
    """Return what ``_least`` does, by an integer program: constants are 0 or 1, options are shares
    of one."""
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import csr_array

    m = len(users)
    of_group = np.repeat(np.arange(len(groups)), [len(some) for some in groups])
    entries = [(g, m + k) for k, g in enumerate(of_group.tolist())]
    data = [1.0] * len(entries)
    row = len(groups)
    for c, who in enumerate(users):
        for g in np.unique(of_group[list(who)]).tolist():
            mine = [k for k in who if of_group[k] == g]
            entries += [*((row, m + k) for k in mine), (row, c)]
            data += [*([1.0] * len(mine)), -1.0]
            row += 1
    # As 32 bits: scipy 1.11 hands indices to HiGHS as they are, which takes no others.
    rows, columns = np.array(entries, np.int32).T
    many = m + len(of_group)
    cost = np.array([*bits, *(o.cost for some in groups for o in some)])
    low, high = np.full(row, -np.inf), np.zeros(row)
    low[: len(groups)] = high[: len(groups)] = 1.0
    found = milp(
        cost,
        integrality=np.append(np.ones(m), np.zeros(many - m)),
        bounds=Bounds(0.0, 1.0),
        constraints=LinearConstraint(
            csr_array((data, (rows, columns)), shape=(row, many)), low, high
        ),
        options={"mip_rel_gap": GAP, "node_limit": MOST_NODES},
    )
    return None if found.x is None else [bool(x > 0.5) for x in found.x[:m]]
