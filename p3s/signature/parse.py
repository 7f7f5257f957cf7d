"""The events of every rank as labels, and where in the loop nest each of them is."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from p3s.base.arrays import Bools, Ints
from p3s.capture.parts import CallBook, Parts, replace_events
from p3s.capture.types import present_ranks
from p3s.signature.fold import Loop

if TYPE_CHECKING:
    from p3s.capture import Call, RankTrace, RunTrace


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
class ParsedEvents:
    """One rank's events in a nest; columns of one entry per event.

    common: level of the innermost loop that holds this event and the one before it; turned:
    whether that loop begins an iteration here. Numbers of levels have a byte each where they can.
    """

    nest: Nest
    node: Ints
    common: NDArray[np.integer]
    turned: Bools

    def begins(self, level: int) -> Bools:
        """Tell which events begin an iteration of their loop at a level (1: outermost loops)."""
        deep = (self.nest.depth >= level)[self.node]
        closes = (self.common < level) | ((self.common == level) & self.turned)
        return np.asarray(deep & closes)

    def enters(self, level: int) -> Bools:
        """Tell which events enter their loop at a level from outside."""
        return np.asarray((self.nest.depth >= level)[self.node] & (self.common < level))


def parse(nest: Nest, node: Sequence[int] | Ints) -> ParsedEvents:
    """Return where the events of one rank, given as node numbers in program order, are."""
    seq = np.asarray(node, dtype=np.int64)
    if not len(seq):
        return ParsedEvents(nest, seq, seq, np.zeros(0, dtype=bool))
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
    return ParsedEvents(nest, seq, common, begins)


def loop_indices(parsed: ParsedEvents) -> Ints:
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


def trips(parsed: ParsedEvents) -> dict[int, Ints]:
    """Return loop number -> iterations of each entry, in program order, of the loops entered."""
    iterations: dict[int, Ints] = {}
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
            iterations[int(each)] = number[loop == each]
    return iterations


def turns_with(parsed: ParsedEvents, nodes: Ints) -> dict[int, tuple[Ints, Ints]]:
    """Return node -> (iteration in its entry, iterations of that entry) of each of its events.

    Only of these nodes, and of those only such as are inside loops; the iteration counts from 0.
    """
    out: dict[int, tuple[Ints, Ints]] = {}
    is_wanted = np.zeros(len(parsed.nest.depth), dtype=bool)
    is_wanted[nodes] = True
    for level in range(1, parsed.nest.levels + 1):
        events = np.flatnonzero((is_wanted & (parsed.nest.depth == level))[parsed.node])
        if not len(events):
            continue
        number, enters = np.cumsum(parsed.begins(level)), parsed.enters(level)
        first = number[enters]
        last = np.append(first[1:] - 1, number[-1])
        entry = np.cumsum(enters)[events] - 1
        turn: Ints = number[events] - first[entry]
        total = (last - first + 1)[entry]
        node = parsed.node[events]
        events_of_node = np.bincount(node)
        # numbers of two bytes are sorted by counting
        order = np.argsort(node.astype(np.min_scalar_type(len(events_of_node))), kind="stable")
        for each, rows in enumerate(np.split(order, np.cumsum(events_of_node)[:-1])):
            if len(rows):
                out[each] = (turn[rows], total[rows])
    return out


#: Events kept of one process count, of ranks that differ; of longer runs there are only samples.
MAX_EVENTS = 1 << 26


class Sequences:
    """Keeps the codes of all ranks, or of none where they are too many."""

    def __init__(self, most: int = MAX_EVENTS) -> None:
        self.kept: dict[int, np.ndarray] = {}
        self._known: dict[bytes, np.ndarray] = {}
        self._left = most

    def offer(self, rank: int, codes: np.ndarray | None) -> None:
        """Keep a rank's codes, unless there is no room (None: too many): then nothing is kept."""
        if codes is None:
            self.drop()
        if self._left < 0 or codes is None:
            return
        small = compact(codes)
        key = small.dtype.char.encode() + hashlib.blake2b(small.data).digest()
        if key not in self._known:
            self._left -= len(small)
            if self._left < 0:
                self.drop()
                return
            self._known[key] = small
        self.kept[rank] = self._known[key]

    def drop(self) -> None:
        """Keep nothing: some rank's codes are not known."""
        self.kept, self._known, self._left = {}, {}, -1


def compact(codes: np.ndarray) -> np.ndarray:
    """Return codes in two bytes each where they fit, else in four."""
    bound = np.iinfo(np.int16)
    small = not len(codes) or bool(codes.min() >= bound.min and codes.max() <= bound.max)
    return codes.astype(np.int16 if small else np.int32, copy=False)


class Codes:
    """The codes of one rank, given block by block; of too many events there are none."""

    def __init__(self) -> None:
        self._blocks: list[np.ndarray] = []
        self.events = 0

    def take(self, node: np.ndarray, keep: np.ndarray, row: np.ndarray) -> None:
        """Take the next events: the node of each, and the row of the call of those in ``keep``."""
        self.events += len(node)
        if self.events > MAX_EVENTS:
            self._blocks = []
            return
        codes = -1 - np.asarray(node, dtype=np.int64)
        codes[keep] = row
        self._blocks.append(compact(codes))

    def finish(self, rows: np.ndarray) -> np.ndarray | None:
        """Return the codes, None of too many events; rows: those the rank uses, ascending."""
        if self.events > MAX_EVENTS:
            return None
        local = np.zeros(int(rows[-1]) + 1 if len(rows) else 1, dtype=np.int64)
        local[rows] = np.arange(len(rows))
        moved = [np.where(b >= 0, local[np.maximum(b, 0)], b) for b in self._blocks]
        return np.concatenate([compact(block) for block in moved])


def renumber_nulls(codes: np.ndarray, node_to: np.ndarray) -> np.ndarray:
    """Return codes with the nodes of null events under other numbers."""
    null = codes < 0
    if not null.any():
        return codes
    out = codes.astype(np.int64)
    out[null] = -1 - node_to[-1 - out[null]]
    return out


def distinct(sequences: dict[int, np.ndarray]) -> list[tuple[list[int], np.ndarray]]:
    """Return (ranks that share it, codes) of every kept sequence, in the order of first ranks."""
    ranks_sharing: dict[int, tuple[list[int], np.ndarray]] = {}
    for rank, codes in sequences.items():
        ranks_sharing.setdefault(id(codes), ([], codes))[0].append(rank)
    return list(ranks_sharing.values())


def nodes_of(codes: np.ndarray, first: int, of_row: Ints) -> Ints:
    """Return the node of each event (codes of a rank whose rows begin at ``first``)."""
    wide = codes.astype(np.int64)
    null = wide < 0
    out: Ints = of_row[np.where(null, 0, wide + first)] if len(of_row) else -1 - wide
    out[null] = -1 - wide[null]
    return out


#: The waits that successful tests replace.
WAITS = {"MPI_Test": "MPI_Wait", "MPI_Testall": "MPI_Waitall"}
#: Calls that complete as many requests as happen to be done.
SOME = ("MPI_Testsome", "MPI_Waitsome")


@dataclass(frozen=True)
class Completions:
    """A run with its calls so named; site: of each call; tests: calls that replace a wait.

    sums: of a call that completes some requests, the calls that complete so many at once.
    """

    run: RunTrace
    site: list[str]
    tests: np.ndarray
    sums: dict[tuple[int, int], int]

    @staticmethod
    def of(run: RunTrace, site: list[str], replaces_wait: Callable[[str], bool]) -> Completions:
        """Return the completions of a run; replaces_wait: of the keys of sites of the capture."""
        tests = [c.site >= 0 and replaces_wait(run.sites[c.site].key) for c in run.calls]
        if any(tests):
            run = replace(run, calls=tuple(map(_as_wait, run.calls, tests)))
        completions = Completions(run, site, np.array(tests, dtype=bool), {})
        return completions._with_sums() if any(c.op in SOME for c in run.calls) else completions

    @property
    def changes(self) -> bool:
        """Whether a rank may have other events than it recorded."""
        return bool(self.tests.any() or self.sums)

    def _with_sums(self) -> Completions:
        """Return it with a call for every sum of requests that some rank completes in one go."""
        calls, site, sums = list(self.run.calls), list(self.site), dict(self.sums)
        for rank in present_ranks(self.run):
            first, total, _ = self._goes(np.asarray(self.run.ranks[rank].call))
            for number, requests in zip(first.tolist(), total.tolist(), strict=True):
                if requests != calls[number].bytes and (number, requests) not in sums:
                    sums[(number, requests)] = len(calls)
                    calls.append(replace(calls[number], bytes=requests))
                    site.append(site[number])
        tests = np.append(self.tests, np.zeros(len(calls) - len(self.tests), dtype=bool))
        return Completions(replace(self.run, calls=tuple(calls)), site, tests, sums)

    def _goes(self, call: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return of calls that complete some, in a row at one site: the first, all requests, and
        which events begin a row or are none of these."""
        is_some = np.array([c.op in SOME for c in self.run.calls], dtype=bool)[call]
        at = self._places()[call]
        begins = np.ones(len(call), dtype=bool)
        begins[1:] = ~(is_some[1:] & is_some[:-1] & (at[1:] == at[:-1]))
        if not is_some.any():
            return call[:0], call[:0], begins
        size = np.array([c.bytes for c in self.run.calls], dtype=np.int64)[call]
        starts = np.flatnonzero(begins)
        rows = is_some[starts]
        return call[starts][rows], np.add.reduceat(size, starts)[rows], begins

    def _places(self) -> np.ndarray:
        number = {name: k for k, name in enumerate(dict.fromkeys(self.site))}
        return np.array([number[name] for name in self.site], dtype=np.int64)

    def once(self, rt: RankTrace) -> RankTrace:
        """Return a rank with one event per completion."""
        call = np.asarray(rt.call)
        if not len(call) or not self.changes:
            return rt
        first, total, begins = self._goes(call)
        at, calls = self._places()[call], self.run.calls
        empty = np.array([c.bytes == 0 and c.op in WAITS.values() for c in calls])[call]
        again = self.tests[call[:-1]] & empty[1:] & (at[1:] == at[:-1]) & ~self.tests[call[1:]]
        begins[1:] &= ~again
        first_of_row = np.flatnonzero(
            begins & np.array([c.op in SOME for c in calls], dtype=bool)[call]
        )
        call = call.copy()
        call[first_of_row] = [
            self.sums.get(key, key[0]) for key in zip(first.tolist(), total.tolist(), strict=True)
        ]
        removed = Parts(gone=np.flatnonzero(~begins), single=True)
        return replace_events(replace(rt, call=call), removed, CallBook(list(calls)))


def _as_wait(call: Call, replaces: bool) -> Call:
    return replace(call, op=WAITS.get(call.op, call.op)) if replaces else call
