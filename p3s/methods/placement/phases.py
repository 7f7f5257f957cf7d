"""Traffic of the phases of a scaled trace: messages as columns, those of collectives included."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from p3s.base.arrays import Floats, Ints
from p3s.base.errors import P3SError
from p3s.program.collectives.choose import Library
from p3s.program.collectives.expand import expand
from p3s.program.mapping import RankMap
from p3s.program.order.calls import REASON_TEXT, Reason
from p3s.program.scaled import COLLECTIVE, SEND, ScaledTrace
from p3s.simulate.steps import SENDS, Op, Section

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

    def merged(self) -> Traffic:
        """Return the same with one row for each source, destination and size, in this order."""
        key = np.stack([self.source, self.dest, self.nbytes])
        rows, place = np.unique(key, axis=1, return_inverse=True)
        number = np.rint(sums(place.ravel(), self.messages, rows.shape[1])).astype(np.int64)
        source, dest, nbytes = rows[:, number > 0]
        return Traffic(self.ranks, source, dest, number[number > 0], nbytes)


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
    nonempty = number > 0
    return Traffic(ranks, first[nonempty], second[nonempty], number[nonempty], size[nonempty])


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
    totals = np.bincount(key, weights=column, minlength=number)
    return np.asarray(totals, dtype=np.float64)


@dataclass(frozen=True, eq=False)
class NodeTraffic:
    """Traffic between nodes: a row for each two, also for a node and itself.

    ``nbytes``, ``messages``: all of them together. ``row``: row here of each of the traffic's.
    """

    source: Ints
    dest: Ints
    nbytes: Floats
    messages: Floats
    row: Ints


def between_nodes(traffic: Traffic, placed: RankMap, number: Ints | None = None) -> NodeTraffic:
    """Return traffic between nodes; ``number``: what each node is called, by default its place.

    Errors: P3SError where a placement is not one of the ranks of the traffic.
    """
    if placed.n != traffic.ranks:
        raise P3SError(f"the placement is of {placed.n} ranks, the traffic of {traffic.ranks}")
    at = placed.node_of if number is None else number[placed.node_of]
    size = int(at.max()) + 1
    pairs, row = np.unique(at[traffic.source] * size + at[traffic.dest], return_inverse=True)
    row = row.ravel()
    nbytes, messages = (sums(row, x, len(pairs)) for x in (traffic.volume, traffic.messages))
    return NodeTraffic(pairs // size, pairs % size, nbytes, messages, row)


def _column(values: Column | int, rows: int) -> Ints:
    if isinstance(values, int | np.integer):
        return np.full(rows, values, dtype=np.int64)
    return np.asarray(values, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class PhaseTraffic:
    """What a phase sends in the whole run. ``iterations``: how often it is run through."""

    phase: int
    name: str
    iterations: float
    traffic: Traffic


def phase_traffic(
    trace: ScaledTrace, sections: Sequence[Section], library: Library
) -> tuple[list[PhaseTraffic], float]:
    """Return the traffic of each phase, and the share of calls whose messages are not known.

    ``sections``: of the trace. ``library``: whose algorithms collectives take that know of no
    nodes. Phases without a message are left out. The share is of calls that send and of
    collectives.
    """
    talks = trace.is_kind(SEND) | trace.is_kind(COLLECTIVE)
    columns: list[tuple[np.ndarray, ...]] = []
    lost_calls = 0.0
    for section in sections:
        steps = expand(section.steps, library).steps
        sends = np.flatnonzero(steps.is_op(*SENDS) & (steps.peer >= 0))
        ends = (steps.rank[sends], steps.peer[sends], steps.bytes[sends])
        columns.append((trace.phase[steps.row[sends]], *ends, steps.weight[sends]))
        alone = np.array([c for c, them in steps.members.items() if len(them) < 2], dtype=np.int64)
        whole = steps.is_op(Op.COLLECTIVE, Op.ICOLLECTIVE) & ~np.isin(steps.comm, alone)
        lost_calls += float(steps.weight[whole].sum())
        for entry in section.left_out:
            if entry.why != REASON_TEXT[Reason.NO_PEER]:
                lost_calls += float(trace.repeat[entry.rows[talks[entry.rows]]].sum())
    phase, source, dest, nbytes, times = (
        np.concatenate(parts) if columns else np.zeros(0, dtype=np.int64)
        for parts in (zip(*columns, strict=True) if columns else ((),) * 5)
    )
    phases_found = []
    for number in np.unique(phase).tolist():
        mine = phase == number
        name, iterations = trace.names.get(number, ""), trace.weights.get(number, 1.0)
        sent = Traffic(trace.n, source[mine], dest[mine], times[mine], nbytes[mine]).merged()
        phases_found.append(PhaseTraffic(number, name, iterations, sent))
    calls = float(trace.repeat[talks].sum())
    return phases_found, lost_calls / calls if calls else 0.0


def all_traffic(phases: Sequence[PhaseTraffic], ranks: int) -> Traffic:
    """Return what all phases send together."""
    none = traffic(ranks, [], [], [])
    return together([none, *(phase.traffic for phase in phases)]).merged()
