"""Communicator laws: which ranks form the communicator that a rank uses, at any count.

A law colours the ranks; those of one colour are a communicator, in the order of their ranks or as
``order`` says. A kind is a class: how it colours, how it reads, which laws of it are tried, at what
cost. Kinds are tried in the order of this file, which decides among equally cheap ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import combinations
from math import gcd
from typing import ClassVar

import numpy as np

from p3s.model.grid.at import GridAt, GridRule, Guard
from p3s.model.grid.grids import BalancedGrid, BalancedUp, Cube, Greedy, GreedyUp, Power2
from p3s.model.memory import Memory
from p3s.model.partners.pairs import Pairs
from p3s.model.registry import Rule, left_out

#: How the ranks that are left over by k equal parts are dealt, with its text.
CUTS = {
    "floor": "parts, r*k//n",
    "tail": "parts, the last takes the rest",
    "first": "parts, the first take the rest",
    "ceil": "parts of ceil(n/k)",
    "short": "or more parts of n//k",
}
_MAX_K = 64
_ORDERS = {"reverse": ", last rank first", "grid": ", in grid order"}
#: Second grids on which rows and columns are looked for when the program's own has none.
_OTHER_GRIDS = (
    *(kind(2) for kind in (Cube, BalancedGrid, BalancedUp, Greedy, GreedyUp)),
    *(Power2(2, order) for order in ((0, 1), (1, 0))),
)


@dataclass(frozen=True)
class CommunicatorSet:
    """Communicators that a law is sought for: the count and the members of each."""

    ndims: int
    counts: Sequence[int]
    members: Sequence[tuple[int, ...]]


Tried = Iterator[tuple[float, "CommunicatorLaw"]]


@dataclass(frozen=True, kw_only=True)
class CommunicatorLaw(Rule, what="communicator law"):
    """A law; order: "" (by rank), "reverse" or "grid" (places on the process grid, row-major).

    ordinal: of communicators with these members, which in the order of their making. A kind says
    whether relations may lead along the communicators (``leads``), where the grid is no axis;
    words: how it reads, with the values of its fields.
    """

    words: ClassVar[str] = ""
    kinds: ClassVar[dict[str, type[CommunicatorLaw]]]
    order: str = left_out("", last=True)
    ordinal: int | None = left_out(None, last=True)

    @classmethod
    def proposed(cls, seen: CommunicatorSet) -> Tried:
        """Yield the laws that are tried for communicators, each with its cost."""
        yield from ()

    @classmethod
    def in_grid_order(cls, seen: CommunicatorSet) -> Tried:
        """Yield those that are tried in the order of the grid, where it is not that of ranks."""
        yield from ()

    @classmethod
    def closed(cls, pairs: Sequence[Pairs]) -> Tried:
        """Yield laws whose communicators no message leaves, with an order to try them in."""
        yield from ()

    @property
    def leads(self) -> bool:
        """Whether relations may lead along the communicators."""
        return True

    def series(self) -> tuple[object, int] | None:
        """Return the recursion that the law is a stage of, and its depth there."""
        return None

    def at_depth(self, depth: int) -> CommunicatorLaw:
        """Return the law of another stage of the same recursion."""
        return self

    def colours(self, g: GridAt) -> np.ndarray:
        """Return the colour of every rank, int64, -1 for ranks that are in no communicator."""
        return np.asarray(self.colour(np.arange(g.n, dtype=np.int64), g.n))

    def colour(self, ranks: np.ndarray, n: int) -> np.ndarray:
        """Return the same for a law that asks for nothing but the rank and the count."""
        raise NotImplementedError

    def members_text(self) -> str:
        """Return the members for people, not in which order."""
        return self.words.format(**vars(self))

    def text(self) -> str:
        """Return the law for people."""
        return self.members_text() + _ORDERS.get(self.order, "")


@dataclass(frozen=True, kw_only=True)
class World(CommunicatorLaw, kind="world"):
    """All ranks."""

    words = "all ranks"
    leads = False

    @classmethod
    def proposed(cls, seen: CommunicatorSet) -> Tried:
        yield 0.0, cls()

    @classmethod
    def in_grid_order(cls, seen: CommunicatorSet) -> Tried:
        yield 0.1, cls(order="grid")

    def colour(self, ranks: np.ndarray, n: int) -> np.ndarray:
        return np.zeros(n, dtype=np.int64)


@dataclass(frozen=True, kw_only=True)
class Alone(CommunicatorLaw, kind="self"):
    """The rank alone."""

    words = "the rank alone"
    leads = False

    @classmethod
    def proposed(cls, seen: CommunicatorSet) -> Tried:
        yield 0.1, cls()

    def colour(self, ranks: np.ndarray, n: int) -> np.ndarray:
        return ranks


@dataclass(frozen=True, kw_only=True)
class Axes(CommunicatorLaw, kind="axes"):
    """Ranks that agree in the coordinates of all other dimensions, of another grid if one is given.

    A single dimension of the program's own grid is an axis anyway.
    """

    axes: tuple[int, ...]
    grid: GridRule | None = left_out(None, read=GridRule.from_json)

    @classmethod
    def proposed(cls, seen: CommunicatorSet) -> Tried:
        for size in range(1, seen.ndims):
            for axes in combinations(range(seen.ndims), size):
                yield 0.1 * size, cls(axes=axes)
        for grid in _OTHER_GRIDS:
            if all(grid.dims(n) is not None for n in seen.counts):
                yield from ((1.0, cls(axes=(a,), grid=grid)) for a in (0, 1))

    @classmethod
    def in_grid_order(cls, seen: CommunicatorSet) -> Tried:
        for size in range(1, seen.ndims):
            for axes in combinations(range(seen.ndims), size):
                yield 0.2, cls(axes=axes, order="grid")

    @property
    def leads(self) -> bool:
        return self.grid is not None or len(self.axes) != 1

    def colours(self, g: GridAt) -> np.ndarray:
        on = g if self.grid is None else self.grid.at(g.n)
        if on is None:
            return np.full(g.n, -1, dtype=np.int64)
        label = np.zeros(g.n, dtype=np.int64)
        for d, p in enumerate(on.dims):
            if d not in self.axes:
                label = label * p + on.coords[d]
        return np.where(on.inside, label, -1)

    def members_text(self) -> str:
        of = f" of {self.grid.text()}" if self.grid is not None else ""
        return f"ranks along dimension {','.join(map(str, self.axes))}{of}"


@dataclass(frozen=True, kw_only=True)
class Modulo(CommunicatorLaw, kind="modulo"):
    """Ranks with the same r mod k."""

    words = "ranks with equal r mod {k}"
    k: int

    @classmethod
    def proposed(cls, seen: CommunicatorSet) -> Tried:
        gaps = {b - a for m in seen.members for a, b in zip(m, m[1:], strict=False)}
        yield from ((0.6, cls(k=k)) for k in sorted(gaps) if 1 < k <= _MAX_K)

    @classmethod
    def closed(cls, pairs: Sequence[Pairs]) -> Tried:
        step = reduce(gcd, (int(d) for p in pairs for d in np.unique(np.abs(p.peer - p.rank))), 0)
        if 1 < step <= _MAX_K and max(p.grid.n for p in pairs) > step:
            yield 3, cls(k=step, ordinal=0)

    def colour(self, ranks: np.ndarray, n: int) -> np.ndarray:
        return np.asarray(ranks % self.k)


@dataclass(frozen=True, kw_only=True)
class Nodes(CommunicatorLaw, kind="nodes"):
    """``size`` ranks in a row."""

    words = "{size} ranks in a row"
    size: int

    @classmethod
    def proposed(cls, seen: CommunicatorSet) -> Tried:
        sizes = {len(m) for m in seen.members}
        yield from ((0.6, cls(size=k)) for k in sorted(sizes) if 1 < k <= _MAX_K)

    @classmethod
    def closed(cls, pairs: Sequence[Pairs]) -> Tried:
        for k in range(2, min(max(p.grid.n for p in pairs) // 2, _MAX_K) + 1):
            if all((p.rank // k == p.peer // k).all() for p in pairs):
                yield 1, cls(size=k, ordinal=0)
                return

    def colour(self, ranks: np.ndarray, n: int) -> np.ndarray:
        return np.asarray(ranks // self.size)


@dataclass(frozen=True, kw_only=True)
class Parts(CommunicatorLaw, kind="parts"):
    """One of k parts of all ranks; cut: None where n is divisible, else how it is dealt (CUTS)."""

    k: int
    cut: str | None = left_out(None)

    @classmethod
    def proposed(cls, seen: CommunicatorSet) -> Tried:
        for k in (2, 3, 4, 8):
            if all(n % k == 0 for n in seen.counts):
                yield 0.5 + k / 20, cls(k=k)
            else:
                for i, cut in enumerate(CUTS):
                    yield 0.5 + k / 20 + i / 100, cls(k=k, cut=cut)

    @classmethod
    def closed(cls, pairs: Sequence[Pairs]) -> Tried:
        for k in (8, 4, 3, 2):
            if all(
                p.grid.n % k == 0 and (p.rank * k // p.grid.n == p.peer * k // p.grid.n).all()
                for p in pairs
            ):
                yield 2, cls(k=k, ordinal=0)
                return

    def colour(self, ranks: np.ndarray, n: int) -> np.ndarray:
        k, size, more = self.k, n // self.k, n % self.k
        if self.cut == "floor":
            return np.asarray(ranks * k // n)
        if self.cut == "ceil":
            return np.asarray(ranks // -(-n // k))
        if self.cut == "first":
            rest = more + (ranks - more * (size + 1)) // max(size, 1)
            return np.asarray(np.where(ranks < more * (size + 1), ranks // (size + 1), rest))
        equal = ranks // max(size, 1)
        return np.asarray(np.minimum(equal, k - 1) if self.cut == "tail" else equal)

    def members_text(self) -> str:
        return f"one of {self.k} {'equal parts' if self.cut is None else CUTS[self.cut]}"


@dataclass(frozen=True, kw_only=True)
class HalvedRanks(CommunicatorLaw, kind="halved"):
    """All ranks cut in two ``depth`` times, where at least ``least`` are left; ceil: of an odd
    number the lower half is the longer one. One rank is not cut. A program has one at each depth.
    """

    depth: int
    least: int
    ceil: bool = left_out(False)

    @classmethod
    def proposed(cls, seen: CommunicatorSet) -> Tried:
        least = min((len(m) for m in seen.members), default=0)
        top = max(seen.counts)
        for ceil in (False, True) if least else ():
            for depth in range(1, top.bit_length() + 1):
                yield 0.9 + depth / 50 + ceil / 100, cls(depth=depth, least=least, ceil=ceil)

    def series(self) -> tuple[object, int]:
        return replace(self, depth=0, ordinal=None), self.depth

    def at_depth(self, depth: int) -> CommunicatorLaw:
        return replace(self, depth=depth)

    def colour(self, ranks: np.ndarray, n: int) -> np.ndarray:
        lo, size = np.zeros(n, dtype=np.int64), np.full(n, n, dtype=np.int64)
        for _ in range(self.depth):
            size = np.where(size > 1, size, 0)
            half = (size + self.ceil) // 2
            upper = ranks >= lo + half
            lo, size = np.where(upper, lo + half, lo), np.where(upper, size - half, half)
        return np.where(size >= self.least, lo, -1)

    def members_text(self) -> str:
        cut = "ceil" if self.ceil else "floor"
        times = {1: "once", 2: "twice"}.get(self.depth, f"{self.depth} times")
        return f"all ranks halved {times} ({cut}), down to {self.least} of them"


@dataclass(frozen=True, kw_only=True)
class Inside(CommunicatorLaw, kind="inside"):
    """Each communicator of ``outer`` split as ``inner`` splits as many ranks: pairs of a row."""

    outer: CommunicatorLaw = field(metadata={"read": CommunicatorLaw.from_json})
    inner: CommunicatorLaw = field(metadata={"read": CommunicatorLaw.from_json})

    @classmethod
    def proposed(cls, seen: CommunicatorSet) -> Tried:
        sizes = sorted({len(m) for m in seen.members} - {1})
        inner = [
            *((0.6, Nodes(size=k)) for k in sizes if k <= _MAX_K),
            *((0.6, Modulo(k=k)) for k in (2, 3, 4)),
            *((0.7, Parts(k=2, cut=cut)) for cut in ("floor", "first")),
            *HalvedRanks.proposed(seen),
        ]
        for axis in range(seen.ndims if seen.ndims > 1 else 0):
            outer = Axes(axes=(axis,))
            yield from ((0.1 + cost / 2, cls(outer=outer, inner=law)) for cost, law in inner)

    def series(self) -> tuple[object, int] | None:
        found = self.inner.series()
        return found and (replace(self, inner=self.inner.at_depth(0), ordinal=None), found[1])

    def at_depth(self, depth: int) -> CommunicatorLaw:
        return replace(self, inner=self.inner.at_depth(depth))

    def colours(self, g: GridAt) -> np.ndarray:
        out = np.full(g.n, -1, dtype=np.int64)
        _, members, starts = number_instances(self.outer, g)
        for size in np.unique(np.diff(starts)).tolist():
            colour = self.inner.colour(np.arange(size, dtype=np.int64), size)
            some = np.flatnonzero(np.diff(starts) == size)
            ranks = members[starts[some][:, None] + np.arange(size)]
            out[ranks] = np.where(colour < 0, -1, some[:, None] * g.n + colour)
        return out

    def members_text(self) -> str:
        return f"{self.inner.members_text()}, among {self.outer.members_text()}"


@dataclass(frozen=True, kw_only=True)
class GuardedRanks(CommunicatorLaw, kind="where"):
    """The ranks for which a guard holds; both: and those for which it does not, for themselves."""

    guard: Guard = field(metadata={"read": Guard.from_json})
    both: bool = left_out(False)

    def colours(self, g: GridAt) -> np.ndarray:
        other = 0 if self.both else -1
        return np.where(self.guard.holds(g), 1, other).astype(np.int64)

    def members_text(self) -> str:
        return f"ranks with {self.guard.text()}{' and the others' if self.both else ''}"


@dataclass(frozen=True, kw_only=True)
class UnknownMembers(CommunicatorLaw, kind="odd"):
    """No law found."""

    words = "unknown members"
    leads = False

    def colour(self, ranks: np.ndarray, n: int) -> np.ndarray:
        return np.full(n, -1, dtype=np.int64)


def number_instances(law: CommunicatorLaw, g: GridAt) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the instances of a communicator law, none of them listed apart.

    Instance number per rank (-1 for non-members), members of all instances one after the other,
    and where each begins (and the last ends), int64.
    """
    label = law.colours(g)
    sequence = np.arange(g.n, dtype=np.int64)
    if law.order == "reverse":
        sequence = sequence[::-1]
    elif law.order == "grid":
        on = np.flatnonzero(g.inside)
        place = np.ravel_multi_index(tuple(g.coords[:, on]), g.dims)
        sequence = on[np.argsort(place, kind="stable")]
    sequence = sequence[label[sequence] >= 0]
    names, number_of = np.unique(label[sequence], return_inverse=True)
    number = np.full(g.n, -1, dtype=np.int64)
    number[sequence] = number_of
    starts = np.append(0, np.cumsum(np.bincount(number_of, minlength=len(names))))
    return number, sequence[np.argsort(number_of, kind="stable")], starts.astype(np.int64)


_MEMBERS: Memory[frozenset[tuple[int, ...]]] = Memory(1 << 12)


def gives(law: CommunicatorLaw, g: GridAt, members: tuple[int, ...]) -> bool:
    """Return whether a communicator with these members is one of the law's."""
    return members in _MEMBERS.of((law, g.key), lambda: frozenset(instances(law, g)[1]))


def instances(law: CommunicatorLaw, g: GridAt) -> tuple[np.ndarray, list[tuple[int, ...]]]:
    """Return (instance number per rank, -1 for non-members; members per instance)."""
    number, members, starts = number_instances(law, g)
    return number, [tuple(part.tolist()) for part in np.split(members, starts[1:-1])] if len(
        starts
    ) > 1 else []
