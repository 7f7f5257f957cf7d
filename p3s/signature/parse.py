"""Where each event is in the loop nest: loop indices, trips per entry, which turns have a call.

The second pass over a rank's events. Every transition between two nodes says which loops begin an
iteration (fold.count_turns); everything here are sums over these marks, a few array operations per
level of the nest, nothing is searched for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from p3s.signature.fold import Loop

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Nest:
    """A tree as tables over nodes and loops, made once for all ranks.

    loops: all loops, outermost first, in program order; number 0 is the whole program.
    around: shape (nodes, depth), the loop around each node at every level, -1 below its own.
    depth: levels of loops around each node (0: outside loops). place: shape (nodes, depth + 1),
    position among its siblings at every level, -1 below.
    """

    loops: list[Loop]
    around: Ints
    depth: Ints
    place: Ints

    @property
    def levels(self) -> int:
        """The depth of the deepest node."""
        return int(self.around.shape[1]) - 1


def nest_of(root: Loop, nodes: int) -> Nest:
    """Return the tables of a tree over nodes numbered 0 to ``nodes`` - 1."""
    loops: list[Loop] = []
    paths: dict[int, tuple[list[int], list[int]]] = {}

    def walk(loop: Loop, around: list[int], places: list[int]) -> None:
        loops.append(loop)
        around = [*around, len(loops) - 1]
        for k, child in enumerate(loop.children):
            if isinstance(child, Loop):
                walk(child, around, [*places, k])
            else:
                paths[child] = (around, [*places, k])

    walk(root, [], [])
    width = max((len(a) for a, _ in paths.values()), default=1)
    around = np.full((nodes, width), -1, dtype=np.int64)
    place = np.full((nodes, width), -1, dtype=np.int64)
    depth = np.zeros(nodes, dtype=np.int64)
    for node, (loops_around, places) in paths.items():
        around[node, : len(loops_around)] = loops_around
        place[node, : len(places)] = places
        depth[node] = len(loops_around) - 1
    return Nest(loops, around, depth, place)


@dataclass(frozen=True)
class Parsed:
    """One rank's events in a nest; columns of one entry per event.

    common: level of the innermost loop that holds this event and the one before it; turned:
    whether that loop begins an iteration here. Numbers of levels have a byte each where they can.
    """

    nest: Nest
    node: Ints
    common: NDArray[np.integer]
    turned: NDArray[np.bool_]

    def begins(self, level: int) -> NDArray[np.bool_]:
        """Tell which events begin an iteration of their loop at a level (1: outermost loops)."""
        deep = (self.nest.depth >= level)[self.node]
        closes = (self.common < level) | ((self.common == level) & self.turned)
        return np.asarray(deep & closes)

    def enters(self, level: int) -> NDArray[np.bool_]:
        """Tell which events enter their loop at a level from outside."""
        return np.asarray((self.nest.depth >= level)[self.node] & (self.common < level))


def parse(nest: Nest, node: Sequence[int] | Ints) -> Parsed:
    """Return where the events of one rank, given as node numbers in program order, are."""
    seq = np.asarray(node, dtype=np.int64)
    if not len(seq):
        return Parsed(nest, seq, seq, np.zeros(0, dtype=bool))
    before, after = seq[:-1], seq[1:]
    size = len(nest.depth)
    codes = before * size
    codes += after
    if size * size <= max(4 * len(seq), 1 << 16):
        kinds, inverse = np.arange(size * size), codes
    else:
        kinds, inverse = np.unique(codes, return_inverse=True)
    u, v = kinds // size, kinds % size
    same = (nest.around[u] == nest.around[v]) & (nest.around[v] >= 0)
    level = np.cumprod(same, axis=1).sum(axis=1) - 1
    at = np.arange(len(kinds))
    turned = (nest.place[v][at, level] <= nest.place[u][at, level]) & (level > 0)
    narrow = level.astype(np.int8 if nest.around.shape[1] < 1 << 7 else np.int64)
    common, begins = np.zeros(len(seq), dtype=narrow.dtype), np.zeros(len(seq), dtype=bool)
    common[1:], begins[1:] = narrow[inverse], turned[inverse]
    return Parsed(nest, seq, common, begins)


def loop_indices(parsed: Parsed) -> Ints:
    """Return the iteration of every loop around each event, counted from 0 in each entry.

    Shape (events, levels), outermost loop first; -1 where an event is in fewer loops.
    """
    out = np.full((len(parsed.node), parsed.nest.levels), -1, dtype=np.int64)
    for level in range(1, parsed.nest.levels + 1):
        begins = np.cumsum(parsed.begins(level))
        first = np.where(parsed.enters(level), begins, 0)
        inside = parsed.nest.depth[parsed.node] >= level
        turn: Ints = begins - np.maximum.accumulate(first)
        out[inside, level - 1] = turn[inside]
    return out


def trips(parsed: Parsed) -> dict[int, Ints]:
    """Return loop number -> iterations of each entry, in program order, of the loops entered."""
    found: dict[int, Ints] = {}
    for level in range(1, parsed.nest.levels + 1):
        entered = np.flatnonzero(parsed.enters(level))
        if not len(entered):
            continue
        begun = np.flatnonzero(parsed.begins(level))
        # Iterations of other loops of this level lie between the entries of this one.
        upto = np.searchsorted(begun, entered)
        number = np.diff(np.append(upto, len(begun)))
        loop = parsed.nest.around[parsed.node[entered], level]
        for each in np.unique(loop):
            found[int(each)] = number[loop == each]
    return found


def turns_with(parsed: Parsed, nodes: Ints) -> dict[int, tuple[Ints, Ints]]:
    """Return node -> (iteration in its entry, iterations of that entry) of each of its events.

    Only of these nodes, and of those only such as are inside loops; the iteration counts from 0.
    """
    out: dict[int, tuple[Ints, Ints]] = {}
    wanted = np.zeros(len(parsed.nest.depth), dtype=bool)
    wanted[nodes] = True
    for level in range(1, parsed.nest.levels + 1):
        own = np.flatnonzero((wanted & (parsed.nest.depth == level))[parsed.node])
        if not len(own):
            continue
        number, enters = np.cumsum(parsed.begins(level)), parsed.enters(level)
        first = number[enters]
        last = np.append(first[1:] - 1, number[-1])
        entry = np.cumsum(enters)[own] - 1
        turn: Ints = number[own] - first[entry]
        total = (last - first + 1)[entry]
        node = parsed.node[own]
        made = np.bincount(node)
        # numbers of two bytes are sorted by counting
        order = np.argsort(node.astype(np.min_scalar_type(len(made))), kind="stable")
        for each, rows in enumerate(np.split(order, np.cumsum(made)[:-1])):
            if len(rows):
                out[each] = (turn[rows], total[rows])
    return out
