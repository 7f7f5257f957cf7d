"""Traffic of the phases of a scaled trace: messages as columns, those of collectives included."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from p3s.base.arrays import Floats, Ints
from p3s.base.errors import P3SError
from p3s.base.ops import blocking_of, leaves_request
from p3s.program.collectives.choose import Library, schedule
from p3s.program.collectives.registry import COLLECTIVES
from p3s.program.scaled import COLLECTIVE, SEND, ScaledTrace
from p3s.simulate.steps import SENDS

#: What columns may be given as.
Column = Sequence[int] | npt.NDArray[np.integer]


@dataclass(frozen=True, eq=False)
class Traffic:
    """Who sends how much to whom in one phase; nothing says when.

    Each row is ``messages`` messages of ``nbytes`` bytes each, from rank ``source`` to rank
    ``dest``. Several rows may have the same two ranks. ``ranks``: how many there are.
    """

    ranks: int
    source: Ints
    dest: Ints
    messages: Ints
    nbytes: Ints

    def __len__(self) -> int:
        return len(self.source)

    @property
    def volume(self) -> Ints:
        """Bytes of each row."""
        return self.messages * self.nbytes

    @property
    def number(self) -> int:
        """Number of messages."""
        return int(self.messages.sum())

    def scaled(self, times: int) -> Traffic:
        """Return what so many repetitions of the phase send."""
        return Traffic(self.ranks, self.source, self.dest, self.messages * times, self.nbytes)

    def merged(self) -> Traffic:
        """Return the same with one row for each source, destination and size, in this order."""
        key = np.stack([self.source, self.dest, self.nbytes])
        rows, place = np.unique(key, axis=1, return_inverse=True)
        number = np.bincount(place.ravel(), weights=self.messages, minlength=rows.shape[1])
        source, dest, nbytes = rows
        return Traffic(self.ranks, source, dest, number.astype(np.int64), nbytes)


def traffic(
    ranks: int, source: Column, dest: Column, nbytes: Column | int, messages: Column | int = 1
) -> Traffic:
    """Return the traffic of columns; a number stands for a column of it.

    Errors: P3SError, in one line, where columns differ in length, a rank is not there, or a size
    or a number of messages is less than 0. Rows without a message are left out.
    """
    first, second = _column(source, 0), _column(dest, 0)
    size, number = _column(nbytes, len(first)), _column(messages, len(first))
    lengths = {len(first), len(second), len(size), len(number)}
    if len(lengths) != 1:
        raise P3SError(f"traffic: columns have {sorted(lengths)} rows; give each as many")
    for name, ends in (("source", first), ("destination", second)):
        outside = np.flatnonzero((ends < 0) | (ends >= ranks))
        if len(outside):
            row = int(outside[0])
            raise P3SError(
                f"traffic, row {row}: {name} {int(ends[row])} is no rank of {ranks}; "
                f"ranks are 0 to {ranks - 1}"
            )
    for name, column in (("bytes", size), ("messages", number)):
        if len(column) and int(column.min()) < 0:
            raise P3SError(f"traffic, row {int(column.argmin())}: {name} are less than 0")
    kept = number > 0
    return Traffic(ranks, first[kept], second[kept], number[kept], size[kept])


def together(parts: Sequence[Traffic]) -> Traffic:
    """Return all messages of several phases as one. Errors: P3SError where ranks differ."""
    counts = {part.ranks for part in parts}
    if len(counts) != 1:
        raise P3SError(f"traffic of {sorted(counts)} ranks cannot be put together")
    return Traffic(
        counts.pop(),
        np.concatenate([part.source for part in parts]),
        np.concatenate([part.dest for part in parts]),
        np.concatenate([part.messages for part in parts]),
        np.concatenate([part.nbytes for part in parts]),
    )


def sums(key: Ints, column: Ints | Floats, number: int) -> Floats:
    """Return the sum of a column for each of the keys 0 to ``number`` - 1."""
    found = np.bincount(key, weights=column, minlength=number)
    return np.asarray(found, dtype=np.float64)


def _column(values: Column | int, rows: int) -> Ints:
    if isinstance(values, int | np.integer):
        return np.full(rows, values, dtype=np.int64)
    return np.asarray(values, dtype=np.int64)


#: Messages of collectives that are worked out again and again are kept for so many calls.
_MOST_KEPT = 256


@dataclass(frozen=True, eq=False)
class PhaseTraffic:
    """What a phase sends in the whole run.

    ``iterations``: how often it is run through. ``left_out``: calls whose messages are not known,
    by MPI call: no law for them, not called by all members, or no table of their algorithms.
    """

    phase: int
    name: str
    iterations: float
    traffic: Traffic
    left_out: dict[str, int]


@dataclass(frozen=True, eq=False)
class _Call:
    """One collective call: its rows in the trace, one for each member in their order."""

    comm: int
    rows: Ints


class _Messages:
    """Messages of collectives of a library between members, each kind of call worked out once."""

    def __init__(self, library: Library, node_of: Ints | None) -> None:
        self.library, self.node_of = library, node_of
        self._kept: dict[tuple[object, ...], tuple[Ints, Ints, Ints]] = {}

    def of(
        self, call: str, sizes: Ints, root: int, members: Ints, blocking: bool
    ) -> tuple[Ints, Ints, Ints]:
        """Return sender, receiver (as world ranks) and bytes of each message."""
        node = None if self.node_of is None else self.node_of[members]
        if node is not None:
            node = np.unique(node, return_inverse=True)[1].ravel()
        key = (call, sizes.tobytes(), root, None if node is None else node.tobytes(), blocking)
        if key not in self._kept:
            if len(self._kept) >= _MOST_KEPT:
                self._kept.clear()
            made = schedule(self.library, call, sizes, root, node=node, blocking=blocking)
            member = np.repeat(np.arange(made.members), np.diff(made.start))
            sends = np.isin(made.op, [int(op) for op in SENDS])
            self._kept[key] = member[sends], made.peer[sends], made.bytes[sends]
        member, peer, nbytes = self._kept[key]
        return members[member], members[peer], nbytes


def phase_traffic(
    trace: ScaledTrace, library: Library, node_of: Ints | None = None
) -> list[PhaseTraffic]:
    """Return the traffic of each phase, those without a message left out.

    ``library``: whose algorithms collectives take. ``node_of``: node of every rank, for libraries
    whose algorithms depend on it; without it they are those that know of no nodes.
    """
    messages = _Messages(library, node_of)
    found = []
    for phase in np.unique(trace.phase).tolist():
        rows = np.flatnonzero((trace.phase == phase) & (trace.repeat > 0))
        left_out: dict[str, int] = {}
        parts = [_sent(trace, rows, left_out), *_collectives(trace, rows, messages, left_out)]
        whole = together(parts).merged()
        if len(whole) or left_out:
            name, iterations = trace.names.get(phase, ""), trace.weights.get(phase, 1.0)
            found.append(PhaseTraffic(phase, name, iterations, whole, left_out))
    return found


def _sent(trace: ScaledTrace, rows: Ints, left_out: dict[str, int]) -> Traffic:
    """Return the messages that ranks send each other themselves."""
    rows = rows[trace.is_kind(SEND)[rows]]
    known = trace.known[rows] & (trace.peer[rows] >= 0)
    for row in rows[~trace.known[rows]].tolist():
        _leave(trace, row, int(trace.repeat[row]), left_out)
    rows = rows[known]
    return traffic(
        trace.n, trace.rank[rows], trace.peer[rows], trace.bytes[rows], trace.repeat[rows]
    )


def _collectives(
    trace: ScaledTrace, rows: Ints, messages: _Messages, left_out: dict[str, int]
) -> Iterator[Traffic]:
    rows = rows[trace.is_kind(COLLECTIVE)[rows]]
    for call in _calls(trace, rows):
        name = trace.ops[int(trace.op[call.rows[0]])]
        key = blocking_of(name).removeprefix("MPI_").lower()
        members = trace.members.get(call.comm, np.zeros(0, dtype=np.int64))
        times = int(trace.repeat[call.rows].min())
        if key not in COLLECTIVES or not _complete(trace, call.rows, members):
            _leave(trace, int(call.rows[0]), int(trace.repeat[call.rows].max()), left_out)
            continue
        root = np.flatnonzero(members == int(trace.root[call.rows[0]]))
        sizes = trace.bytes[call.rows][np.argsort(trace.rank[call.rows])]
        sizes = sizes[np.argsort(np.argsort(members))]
        source, dest, nbytes = messages.of(
            key, sizes, int(root[0]) if len(root) else 0, members, not leaves_request(name)
        )
        yield traffic(trace.n, source, dest, nbytes, times)


def _calls(trace: ScaledTrace, rows: Ints) -> Iterator[_Call]:
    """Yield the calls: the k-th row of a call on a communicator is one with everybody's k-th."""
    order = rows[np.lexsort((rows, trace.rank[rows], trace.op[rows], trace.comm[rows]))]
    keys = np.stack([trace.comm[order], trace.op[order], trace.rank[order]])
    first = np.ones(len(order), dtype=bool)
    first[1:] = (keys[:, 1:] != keys[:, :-1]).any(axis=0)
    place = np.arange(len(order))
    number = place - np.maximum.accumulate(np.where(first, place, 0))
    again = np.lexsort((number, keys[1], keys[0]))
    order, keys, number = order[again], keys[:, again], number[again]
    ends = np.flatnonzero((np.diff(keys[:2]) != 0).any(axis=0) | (np.diff(number) != 0)) + 1
    for part in np.split(order, ends) if len(order) else ():
        yield _Call(int(trace.comm[part[0]]), part)


def _complete(trace: ScaledTrace, rows: Ints, members: Ints) -> bool:
    """Return whether every member makes the call, by a law that is known."""
    same = np.array_equal(np.sort(trace.rank[rows]), np.sort(members))
    return same and bool(trace.known[rows].all()) and len(members) > 0


def _leave(trace: ScaledTrace, row: int, times: int, left_out: dict[str, int]) -> None:
    name = trace.ops[int(trace.op[row])]
    left_out[name] = left_out.get(name, 0) + times


def all_traffic(phases: Sequence[PhaseTraffic], ranks: int) -> Traffic:
    """Return what all phases send together."""
    none = traffic(ranks, [], [], [])
    return together([none, *(phase.traffic for phase in phases)]).merged()
