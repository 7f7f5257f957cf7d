"""Blocks: extents cut over grid dimensions, solved from the sizes that ranks were seen to have."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from p3s.laws.counts import Law
from p3s.laws.exact import roundness
from p3s.laws.expr import BLOCK_KINDS, Expr, block_size
from p3s.model.sizes.cells import Candidate, Votes


def distinct_columns(columns: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the distinct entries of columns, where each is first, and which one every row has.

    columns: whole numbers, of equal length; the entries are in ascending order, (columns, entries).
    """
    key, most = np.zeros(len(columns[0]), dtype=np.int64), 1
    for column in columns:
        low = int(column.min(initial=0))
        many = int(column.max(initial=0)) - low + 1
        if most * many > 1 << 62:
            key = np.unique(key, return_inverse=True)[1].ravel()
            most = len(key)
        key, most = key * many + (column - low), most * many
    _, first, which = np.unique(key, return_index=True, return_inverse=True)
    return np.stack([column[first] for column in columns]), first, which.ravel()


def cells_of(columns: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the same as :func:`distinct_columns`, remembered: many slots have equal rows."""
    return _cells_of(tuple(column.tobytes() for column in columns))


@lru_cache(maxsize=512)
def _cells_of(columns: tuple[bytes, ...]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    found = distinct_columns([np.frombuffer(column, dtype=np.int64) for column in columns])
    for part in found:
        part.setflags(write=False)
    return found


#: Shares rounded down or up whatever the block.
PADDED = ("low", "high")
#: Cuts that leave much of a remainder to one block: tried when nothing else fits.
RARE = ("tail", "ceil", "nearest")
#: Extents tried for one block.
MAX_EXTENTS = 1 << 13
#: Rivals of one law that are kept.
MAX_RIVALS = 12
#: Factors tried (fields, components, planes in one message), smallest first.
MAX_FACTORS = 64


#: Extents that :func:`solve_one` found; so many are kept.
_SOLVED: dict[tuple[str, bytes, bytes], list[int]] = {}
_MOST_SOLVED = 8192


def digest_of(values: np.ndarray) -> bytes:
    """Return what tells whole numbers from others."""
    return hashlib.blake2b(values.tobytes(), digest_size=16).digest()


@dataclass(frozen=True, eq=False)
class Axis:
    """A way of numbering blocks: how many there are and which one, as expressions and values.

    count, at: int64 arrays, one entry per row of the observations.
    """

    p: Expr
    c: Expr
    count: np.ndarray
    at: np.ndarray

    @property
    def name(self) -> str:
        """The symbol of the number of blocks; empty where it is none."""
        return str(self.p[1]) if self.p[0] == "sym" else ""

    @cached_property
    def digest(self) -> bytes:
        """What tells the values from others."""
        return digest_of(self.count) + digest_of(self.at)

    def varies(self) -> bool:
        """Tell whether the rows differ in the number of blocks or in the position."""
        return bool(np.any(self.count != self.count[0]) or np.any(self.at != self.at[0]))


@dataclass(frozen=True)
class FittedSize(Law):
    """A law of element counts.

    others: equations that fit as well and differ further on; voted: chosen among arrangements of
    a multi-partition's cells, so that what other slots say matters.
    """

    others: tuple[Expr, ...] = ()
    voted: bool = False

    def open(self) -> bool:
        """Tell whether what is found at other slots may lead to another law."""
        return bool(self.even or self.rivals or self.others or self.voted)


@dataclass
class Observations:
    """Element counts of one slot: row i was seen at count ``n[i]`` with these symbols.

    env: symbol -> int64 array (n, r, p0.., c0.., q0.., s, t); value: int64 array of elements;
    across: for a shift, the dimensions it does not move along (a halo's face), tried first;
    whole: whether every rank is there at every count, stage and iteration that is there at all.
    """

    env: dict[str, np.ndarray]
    value: np.ndarray
    ndims: int
    across: tuple[int, ...] = ()
    whole: bool = False

    def unique(self) -> Observations:
        """Return the same observations without repeated rows."""
        names = sorted(k for k in self.env if k != "r")
        return self.take(distinct_columns([*(self.env[k] for k in names), self.value])[1])

    def digest(self) -> bytes:
        """Return what tells these observations from others."""
        parts = [k.encode() + self.env[k].tobytes() for k in sorted(self.env)]
        return b"|".join([*parts, self.value.tobytes(), repr((self.across, self.whole)).encode()])

    def take(self, keep: np.ndarray) -> Observations:
        """Return the rows selected by a mask or index array."""
        return Observations(
            {k: v[keep] for k, v in self.env.items()},
            self.value[keep],
            self.ndims,
            self.across,
            self.whole,
        )

    def of(self, value: np.ndarray) -> Observations:
        """Return other values at the same rows."""
        return Observations(self.env, value, self.ndims, self.across, self.whole)


def kinds_of(expr: Expr) -> set[str]:
    """Return the ways in which an equation cuts extents."""
    mine = {expr[1]} if expr[0] == "block" else set()
    return mine.union(*(kinds_of(a) for a in expr[1:] if isinstance(a, list)))


@dataclass
class ExtentPool:
    """Extents and partition kinds already found in the program, most used first."""

    seen: dict[tuple[int, str], int] = field(default_factory=dict)
    #: Extents with the one way of cutting them that fits, from slots that leave no choice.
    certain: dict[tuple[int, str], int] = field(default_factory=dict)
    #: Numbers the user typed as the program's arguments: extents are often among them.
    typed: frozenset[int] = frozenset()
    #: Laws already fitted, by observations, with the state of the pool after that.
    known: dict[bytes, tuple[object, Any]] = field(default_factory=dict)

    #: The arrangement of cells of a multi-partition, and what was found to fit at each slot.
    cells: Votes = field(default_factory=Votes)
    found: dict[bytes, list[Candidate]] = field(default_factory=dict)

    def state(self) -> object:
        """Return what a law that is not certain depends on."""
        return (frozenset(self.certain), frozenset(e for e, _ in self.seen), len(self.cells.heard))

    def surprise(self, kind: str) -> float:
        """Return what a way of cutting costs: common ones are free, as is one that is known."""
        if any(k == kind for _, k in self.certain):
            return 0.0
        return {"first": 0.0, "floor": 0.25, "last": 0.5}.get(kind, 1.5)

    def settle(
        self, obs: Observations, candidates: Sequence[Candidate]
    ) -> tuple[Candidate, list[Expr]]:
        """Return the best of equations that fit a slot, and those that are as good."""
        slot = obs.digest()
        self.cells.hear(slot, candidates)
        uses: dict[int, int] = {}
        for (extent, _), k in self.certain.items():
            uses[extent] = uses.get(extent, 0) + k
        best, *rest = self.cells.best(candidates, uses)
        # an offset or a trim more makes it no less likely than that, several do
        return best, [c.expr for c in rest if c.cost <= best.cost + 3]

    def settled(self, best: Candidate, sure: bool) -> None:
        """Note the extents of an equation that was chosen."""
        for extent in dict.fromkeys(best.extents):
            self.note(extent, best.kind)
            if sure:
                key = (extent, best.kind)
                self.certain[key] = self.certain.get(key, 0) + 1

    def possible(self, expr: Expr, others: Sequence[Expr]) -> list[Expr]:
        """Return those of other equations that cut in ways which no other size rules out.

        A program cuts its extents in one way: where ``expr`` cuts as some sizes do that leave no
        choice, equations that cut otherwise are no rivals.
        """
        sure = {k for _, k in self.certain if k not in PADDED}
        mine = kinds_of(expr)
        return [e for e in others if not mine or not mine <= sure or kinds_of(e) <= sure]

    def note(self, extent: int, kind: str) -> None:
        """Count one more use of an extent."""
        self.seen[(extent, kind)] = self.seen.get((extent, kind), 0) + 1

    def extents(self) -> list[int]:
        """Return the extents, most used first."""
        best: dict[int, int] = {}
        for (extent, _), uses in self.seen.items():
            best[extent] = best.get(extent, 0) + uses
        return sorted(best, key=lambda e: (-best[e], -e))

    def kinds(self) -> list[str]:
        """Return all partition kinds, those the program uses for certain first."""
        uses: dict[str, int] = {}
        for (_, kind), k in self.certain.items():
            uses[kind] = uses.get(kind, 0) + k
        return sorted(BLOCK_KINDS, key=lambda k: (-uses.get(k, 0), BLOCK_KINDS.index(k)))


def extent_bounds(value: np.ndarray, p: np.ndarray, c: np.ndarray, kind: str) -> tuple[int, int]:
    """Return the smallest and the largest extent of which blocks ``c`` of ``p`` can have these
    sizes."""
    low, high = (value - 1) * p + 1, (value + 1) * p - 1
    if kind == "tail":  # the last block may be nearly twice as long as the others
        low = np.where(c == p - 1, (value - p + 1) * p, low)
    if kind == "nearest":  # the last block makes up for what rounding gave the others
        last = c == p - 1
        low = np.where(last, p * (2 * value - p) // 2, low)
        high = np.where(last, p * (2 * value + p) // 2, high)
    if kind == "ceil":  # a short or empty block says little: only the longest are full
        _, which = np.unique(p, return_inverse=True)
        longest = np.zeros(int(which.max()) + 1, dtype=np.int64)
        np.maximum.at(longest, which, value)
        high = np.where(value == longest[which], high, np.iinfo(np.int64).max)
    return max(1, int(low.max())), int(high.min())


def kinds_possible(value: np.ndarray, axis: Axis, kinds: Sequence[str]) -> list[str]:
    """Return the ways of cutting that are not ruled out by the sizes' range alone."""
    p = axis.count
    if int(((value - 1) * p).max()) + 1 <= int(((value + 1) * p).min()) - 1:
        return list(kinds)
    return [k for k in kinds if k in RARE]


def solve_one(value: np.ndarray, axis: Axis, kind: str) -> list[int]:
    """Return all extents whose blocks along ``axis`` equal ``value`` in every row.

    Remembered: steps and slots ask for the same blocks.
    """
    key = kind, axis.digest, digest_of(value)
    if key not in _SOLVED:
        if len(_SOLVED) >= _MOST_SOLVED:
            _SOLVED.clear()
        _SOLVED[key] = _solved(value, axis.count, axis.at, kind)
    return _SOLVED[key]


def _solved(value: np.ndarray, p: np.ndarray, c: np.ndarray, kind: str) -> list[int]:
    low, high = extent_bounds(value, p, c, kind)
    if low > high:
        return []
    if high - low > MAX_EXTENTS:
        high = low + MAX_EXTENTS
    extents = np.arange(high, low - 1, -1)
    for part in (slice(0, 4), slice(4, None)):  # most fail at once
        got = block_size(kind, extents[:, None], p[part], c[part])
        extents = extents[np.all(got == value[part], axis=1)]
        if not len(extents):
            return []
    return [int(e) for e in extents]


def best_extent(extents: list[int], pool: ExtentPool) -> int:
    """Return the extent to believe in of those that fit: typed by the user, or known."""
    for e in (*sorted(pool.typed, reverse=True), *pool.extents()):
        if e in extents:
            return e
    # several extents fit alike: a round one is what people type; else the middle of the range
    return max(extents, key=lambda e: (roundness(e), -abs(e - extents[len(extents) // 2])))


def divisors(v: int) -> list[int]:
    small = [d for d in range(1, math.isqrt(v) + 1) if v % d == 0]
    return sorted({*small, *(v // d for d in small)})


def rivals_of(
    extent: int, axis: Axis, kind: str, pool: ExtentPool
) -> tuple[tuple[str, str, int, str, int], ...]:
    """Return other ways to cut an extent that fit all sizes and differ further on.

    Each as (extent symbol, kind, extent, other kind, other extent). Of extents that one way of
    cutting leaves open, the one that the user typed is believed.
    """
    out = []
    sizes = block_size(kind, extent, axis.count, axis.at)
    place = _place(axis)
    for other in BLOCK_KINDS:
        if place == "any" and other in PADDED and kind not in PADDED:
            continue  # a cut that gives all ranks as much is no cut of the extent
        for e in solve_one(sizes, axis, other)[:6]:
            if (other, e) == (kind, extent) or (other == kind and extent in pool.typed):
                continue
            if any(
                differs(kind, extent, other, e, k, place)
                for k in range(2, 4 * int(axis.count.max()) + 1)
            ):
                out.append((axis.name or "n", kind, extent, other, e))
    return tuple(out[:MAX_RIVALS])


def _place(axis: Axis) -> str:
    """Return where the blocks seen lie: at the start, at the end, or anywhere."""
    if not np.any(axis.at):
        return "first"
    return "last" if np.all(axis.at == axis.count - 1) else "any"


def differs(
    kind: str, extent: int, other: str, other_extent: int, p: int, place: str = "any"
) -> bool:
    """Return whether two ways of cutting give different blocks at ``p`` parts.

    place: the first and last block may be all that is ever asked for.
    """
    c = {"first": np.zeros(1, dtype=np.int64), "last": np.array([p - 1])}.get(place, np.arange(p))
    return not np.array_equal(block_size(kind, extent, p, c), block_size(other, other_extent, p, c))
