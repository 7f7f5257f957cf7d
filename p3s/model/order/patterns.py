"""Patterns: in which turns of the loops around it a call is made, as data.

A pattern is a list whose first element names it; x is the index of an iteration (0-based, counted
in each entry of the loop), T the number of iterations of that entry, s the stage and t the
iteration of the row:

    ["all"]  ["is", k]: x == k  ["from end", k]: x == T - 1 - k  ["not", k]  ["not from end", k]
    ["every", k, f]: x mod k == f  ["stage", a]: x == s + a  ["turn", a]: x == t + a ["back"]:
    x == T - 1 - s  ["before", a]: x < s + a  ["upto", a]: x < t + a ["walk"]: x, modulo the number
    of keys, is the place of the row's key among those of its rank (p3s.model.order.fit) ["runs",
    [[first, number], ...]]: iterations listed, where T is the same at every count ["turns",
    [[index of each loop around..., first, number], ...]]: the same for iterations of all loops
    together (innermost loop only)
    ["block", d, a]: x is in block c + a (modulo p) of T cut into p blocks, longer ones first, of
    coordinate c and extent p of the process grid's dimension d (-1: of the rank and n) ["dealt", d,
    a]: x mod p == c + a (modulo p) ["not block", d, a] ["not dealt", d, a]
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from p3s.base.arrays import Bools, Ints
from p3s.base.errors import P3SError
from p3s.model.grid.covers import cheapest_covers

if TYPE_CHECKING:
    from p3s.model.law_types import Walk

Pattern = list[Any]
#: An item, its slot, its stage, its turn: what is evaluated by itself.
Cell = tuple[int, int, int, int]
#: Longest list of iterations that is kept, as runs.
_MOST_RUNS = 256
#: Iterations in which a call is made that a pattern is compared with before all others.
_LOOKED_AT_FIRST = 256
#: Patterns that depend on where the rank is in the process grid.
OF_PLACE = ("block", "dealt", "not block", "not dealt")
_NOWHERE = np.zeros((0, 0), dtype=np.int64)


@dataclass(frozen=True)
class Turns:
    """Iterations of a loop of one rank, one entry each, with those of the loops around it.

    index, trips: shape (iterations, levels), outermost first; stage, turn: of the row; walk, keys:
    shape (iterations, levels), the place of the row's key at each level, and of how many. coords,
    extents: shape (iterations, dimensions + 1), of the rank and its grid, last the rank and n; of
    no width where they are not known. All but index and trips may have one row that holds for all.
    """

    index: Ints
    trips: Ints
    stage: Ints
    turn: Ints
    walk: Ints
    keys: Ints
    coords: Ints = field(default_factory=lambda: _NOWHERE)
    extents: Ints = field(default_factory=lambda: _NOWHERE)

    @classmethod
    def joined(cls, parts: Sequence[Turns]) -> Turns:
        """Return the iterations of several ranks after each other."""
        if len({p.coords.shape[1] for p in parts}) > 1:
            parts = [replace(p, coords=_NOWHERE, extents=_NOWHERE) for p in parts]
        return cls(
            *(np.concatenate([getattr(p, f) for p in parts]) for f in cls.__dataclass_fields__)
        )

    def some(self, entries: Ints) -> Turns:
        """Return these iterations alone."""
        size = len(self.index)
        columns = (getattr(self, f) for f in self.__dataclass_fields__)
        return Turns(*(c[entries] if np.ndim(c) and len(c) == size else c for c in columns))


@dataclass(frozen=True)
class LoopTurns:
    """The iterations of one loop of one rank; index and trips: shape (iterations, levels).

    within: for each iteration, the number of the iteration of the loop around.
    """

    index: Ints
    trips: Ints
    within: Ints


def turn_of(table: Any) -> Ints:
    """Return the column ``turn`` of a table or of evaluated rows, zeros where there is
    none."""
    turn: Ints | None = getattr(table, "turn", None)
    return np.zeros(len(table.rank), dtype=np.int64) if turn is None else turn


def locate_rank(grid: Any, rank: int, iterations: int) -> tuple[Ints, Ints]:
    """Return coordinates and extents of a rank for so many iterations (see Turns).

    grid: n, dims and coords of all ranks, None where these are not known.
    """
    grid = getattr(grid, "whole", None) or grid
    if grid.coords is None:
        return (np.zeros((iterations, 0), dtype=np.int64),) * 2
    coords = np.array([*grid.coords[:, rank], rank], dtype=np.int64)
    extents = np.array([*grid.dims, grid.n], dtype=np.int64)
    shape = (iterations, len(coords))
    return np.broadcast_to(coords, shape), np.broadcast_to(extents, shape)


def plain_turns(turns: LoopTurns, coords: Ints, extents: Ints) -> Turns:
    """Return the iterations of a loop for rules that depend on no row; see ``where``."""
    none = np.zeros(len(turns.index), dtype=np.int64)
    return Turns(
        turns.index,
        turns.trips,
        none,
        none,
        np.full_like(turns.index, -1),
        np.ones_like(turns.index),
        coords,
        extents,
    )


def one_row(turns: LoopTurns, coords: Ints, extents: Ints) -> Turns:
    """Return the same as ``plain_turns``, one row for all iterations; it may be written to."""
    levels = turns.index.shape[1]
    none = np.zeros(1, dtype=np.int64)
    walk = np.full((1, levels), -1, dtype=np.int64)
    keys = np.ones((1, levels), dtype=np.int64)
    return Turns(turns.index, turns.trips, none, none, walk, keys, coords, extents)


def positions(walk: Walk, cells: Iterable[tuple[Cell, int]]) -> dict[Cell, int]:
    """Return at which iteration of a walk each of a rank's cells is; cells: with their partners."""
    place = {i: x for x, mine in enumerate(walk.order) for i in mine}
    key: dict[str, Callable[[Cell, int], tuple[int, ...]]] = {
        "stage": lambda cell, _: (cell[2],),
        "turn": lambda cell, _: (cell[3],),
        "peer": lambda _, peer: (walk.sign * peer,),
        "rules": lambda cell, _: (
            place.get(cell[0], len(place)),
            cell[2] if walk.then == "stage" else 0,
        ),
    }
    keys = {cell: key[walk.by](cell, peer) for cell, peer in cells}
    number = {key: x for x, key in enumerate(sorted(set(keys.values())))}
    return {cell: number[key] for cell, key in keys.items()}


def holds(pattern: Pattern, at: Turns, level: int) -> Bools:
    """Return at which turns a pattern of one level (0: outermost loop) holds."""
    x, trips = at.index[:, level], at.trips[:, level]
    op = pattern[0]
    if op == "all":
        return np.ones(len(x), dtype=bool)
    if op in ("is", "not"):
        hit = x == pattern[1]
        return np.asarray(hit if op == "is" else ~hit)
    if op in ("from end", "not from end"):
        hit = x == trips - 1 - pattern[1]
        return np.asarray(hit if op == "from end" else ~hit)
    if op == "every":
        return np.asarray(x % pattern[1] == pattern[2])
    if op in ("stage", "turn"):
        return np.asarray(x == (at.stage if op == "stage" else at.turn) + pattern[1])
    if op == "back":
        return np.asarray(x == trips - 1 - at.stage)
    if op in ("before", "upto"):
        return np.asarray(x < (at.stage if op == "before" else at.turn) + pattern[1])
    if op == "walk":
        return np.asarray(x % at.keys[:, level] == at.walk[:, level])
    if op in OF_PLACE:
        return _match_owner(pattern, at, level)
    if op == "runs":
        hit = np.zeros(len(x), dtype=bool)
        for first, number in pattern[1]:
            hit |= (x >= first) & (x < first + number)
        return hit
    if op == "turns":
        hit = np.zeros(len(x), dtype=bool)
        for *around, first, number in pattern[1]:
            same = np.all(at.index[:, :level] == np.array(around, dtype=np.int64), axis=1)
            hit |= same & (x >= first) & (x < first + number)
        return hit
    raise P3SError(
        f"model: unknown pattern of iterations {op!r}; the file was made by another version"
    )


def _match_owner(pattern: Pattern, at: Turns, level: int) -> Bools:
    """Return which iterations belong to a place in the process grid, or do not."""
    op, d, a = pattern
    x, trips = at.index[:, level], at.trips[:, level]
    if not -1 <= d < at.coords.shape[1] - 1:
        return np.zeros(len(x), dtype=bool)
    p = np.maximum(at.extents[:, d], 1)
    if op.endswith("block"):
        size, longer = np.divmod(trips, p)
        first = longer * (size + 1)
        rest = longer + (x - first) // np.maximum(size, 1)
        owner = np.where(x < first, x // (size + 1), rest)
    else:
        owner = x % p
    hit = owner == (at.coords[:, d] + a) % p
    return np.asarray(~hit if op.startswith("not") else hit)


def dimensions_of(when: Iterable[Pattern]) -> set[int]:
    """Return the dimensions of the process grid that patterns ask for."""
    return {pattern[1] for pattern in when if pattern[0] in OF_PLACE}


def all_hold(when: Sequence[Pattern], at: Turns) -> Bools:
    """Return at which turns the patterns of all levels hold."""
    out = np.ones(len(at.index), dtype=bool)
    for level, pattern in enumerate(when):
        if pattern[0] != "all":
            out &= holds(pattern, at, level)
    return out


def fit_when(at: Turns, made: Bools) -> list[Pattern] | None:
    """Return the simplest patterns, one per level, that hold exactly where ``made``; or None.

    at: iterations of all ranks and counts after each other.
    """
    levels = at.index.shape[1]
    everywhere: list[Pattern] = [["all"] for _ in range(levels)]
    if made.all():
        return everywhere
    if not made.any() or not levels:
        return None
    usable: list[tuple[float, int, Pattern, Bools]] = []
    calls = np.flatnonzero(made)
    few = at.some(calls[:: len(calls) // _LOOKED_AT_FIRST + 1])
    for level in range(levels):
        for cost, pattern in _candidates(at, made, level):
            if not holds(pattern, few, level).all():
                continue  # most, and found with few iterations
            mask = holds(pattern, at, level)
            if not np.any(made & ~mask):
                usable.append((cost + 0.1 * (levels - 1 - level), level, pattern, mask))
    usable.sort(key=lambda u: u[0])
    left_out = ~np.array([mask[~made] for *_, mask in usable], dtype=bool)
    costs = [cost for cost, *_ in usable]
    for _, some in cheapest_covers(costs, left_out, len(usable), enough=math.inf):
        when = dict(usable[i][1:3] for i in some)
        if len(when) == len(some):  # a loop has one pattern
            return [when.get(level, ["all"]) for level in range(levels)]
    listed = _list_iterations(at.index[made])
    if listed is not None and np.array_equal(holds(listed, at, levels - 1), made):
        return [*everywhere[:-1], listed]
    return None


def _list_iterations(index: Ints) -> Pattern | None:
    """Return the pattern that lists iterations, None if there are too many."""
    turns = np.unique(index, axis=0)
    new = np.any(turns[1:, :-1] != turns[:-1, :-1], axis=1) | (np.diff(turns[:, -1]) > 1)
    parts = np.split(turns, np.flatnonzero(new) + 1)
    if len(parts) > _MOST_RUNS:
        return None
    return ["turns", [[*part[0].tolist(), len(part)] for part in parts]]


def _candidates(at: Turns, made: Bools, level: int) -> Iterator[tuple[float, Pattern]]:
    yield 1.2, ["walk"]
    yield 1.0, ["is", 0]
    yield 1.0, ["from end", 0]
    yield 1.0, ["not", 0]
    yield 1.0, ["not from end", 0]
    if at.turn.any():
        for a in (0, 1, -1):
            yield 1.1 + abs(a) / 2, ["turn", a]
    if at.stage.any():
        for a in (0, 1, -1):
            yield 1.1 + abs(a) / 2, ["stage", a]
        yield 1.5, ["back"]
    x = at.index[made, level]
    low = int(x.min())
    gaps = np.unique(x - low)
    k = int(np.gcd.reduce(gaps)) if len(gaps) > 1 else 0
    if k > 1:
        yield 1.6, ["every", k, low % k]
    for a in (1, 2):
        yield 1.8, ["is", a]
        yield 1.8, ["from end", a]
    dimensions = at.coords.shape[1] - 1
    for d in (*range(dimensions), *([-1] if dimensions > 1 else [])):
        for op in OF_PLACE:
            for a in (0, 1, -1):
                yield 2.2 + abs(a) / 10, [op, d, a]
    for name, there in (("upto", at.turn.any()), ("before", at.stage.any())):
        for a in (0, 1) if there else ():
            yield 1.9, [name, a]
    if len(np.unique(at.trips[:, level])) == 1:
        turns = np.unique(x)
        breaks = np.flatnonzero(np.diff(turns) > 1) + 1
        runs = [[int(part[0]), len(part)] for part in np.split(turns, breaks)]
        if len(runs) <= _MOST_RUNS:
            yield 2.5 + len(runs) / 4, ["runs", runs]


def check(when: Any) -> list[Pattern]:
    """Return patterns if they are well formed; raise ValueError otherwise."""
    lengths: Mapping[str, int] = {
        "all": 1,
        "is": 2,
        "from end": 2,
        "not": 2,
        "not from end": 2,
        "every": 3,
        "stage": 2,
        "turn": 2,
        "back": 1,
        "before": 2,
        "upto": 2,
        "walk": 1,
        "runs": 2,
        "turns": 2,
        **dict.fromkeys(OF_PLACE, 3),
    }
    for pattern in when:
        if lengths.get(pattern[0]) != len(pattern):
            raise ValueError(f"the pattern of iterations {pattern[0]!r} is malformed")
        if pattern[0] in OF_PLACE and not all(type(x) is int for x in pattern[1:]):
            raise ValueError(f"the pattern of iterations {pattern[0]!r} is malformed")
        if pattern[0] == "every" and pattern[1] < 1:
            raise ValueError("a pattern repeats after no iteration")
    return list(when)


_OWNED = {
    "block": "of block",
    "dealt": "dealt to",
    "not block": "but those of block",
    "not dealt": "but those dealt to",
}


def text(pattern: Pattern) -> str:
    """Return a pattern for people."""
    op, args = pattern[0], pattern[1:]
    if op == "turns":
        return f"{sum(run[-1] for run in args[0])} iterations, listed"
    if op == "runs":
        return "turns " + ", ".join(str(a) if k == 1 else f"{a}-{a + k - 1}" for a, k in args[0])
    names = {
        ("is", 0): "first iteration",
        ("from end", 0): "last iteration",
        ("not", 0): "not first iteration",
        ("not from end", 0): "not last iteration",
        ("stage", 0): "its stage",
        ("turn", 0): "its turn",
    }
    if op == "every":
        return f"every {args[0]} iterations from {args[1]}"
    if op in OF_PLACE:
        return f"iterations {_OWNED[op]} {'r' if args[0] < 0 else f'c{args[0]}'}{args[1]:+d}"
    return names.get((op, *args), " ".join([op, *(f"{a:+d}" for a in args)]))
