"""What one rank adds to the tables of its run, added up block by block."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from p3s.base.ops import RECV, SEND, kind_of
from p3s.capture.order import Forward
from p3s.capture.parts import sum_before_kept
from p3s.capture.types import PROC_NULL
from p3s.signature.clock import Clock, Load, SegmentTimes
from p3s.signature.parse import Codes
from p3s.signature.segments import Pairs

if TYPE_CHECKING:
    from p3s.capture import RunTrace
    from p3s.signature.clock import Block


class Group(NamedTuple):
    """A distinct (site, operation, communicator, partner, tag, root) of one process count."""

    site: str
    op: str
    comm: int
    peer: int
    tag: int
    root: int

    @property
    def kind(self) -> str:
        """The kind of the operation (p3s.base.ops)."""
        return kind_of(self.op)


class Calls:
    """Numbers of a run's calls: of group, node and row (calls the table does not tell apart)."""

    def __init__(self, run: RunTrace, site: list[str]) -> None:
        calls = run.calls
        groups: dict[tuple[str, str, int, int, int, int], int] = {}
        group = np.empty(len(calls), dtype=np.int64)
        self.null = np.zeros(len(calls), dtype=bool)
        for i, c in enumerate(calls):
            self.null[i] = c.peer == PROC_NULL and kind_of(c.op) in (SEND, RECV)
            key = (site[i], c.op, c.comm, c.peer, c.tag, c.root)
            group[i] = -1 if self.null[i] else groups.setdefault(key, len(groups))
        self.inside = np.array([getattr(c, "team", 0) > 1 for c in calls], dtype=bool)
        self.starts = np.array([c.op.startswith("MPI_Init") for c in calls], dtype=bool)
        nodes: dict[tuple[str, str], int] = {}
        self.node = np.array(
            [nodes.setdefault((site[i], c.op), len(nodes)) for i, c in enumerate(calls)],
            dtype=np.int32,
        )
        distinct: dict[tuple[int, int, int], int] = {}
        self.row = np.array(
            [
                distinct.setdefault((int(group[i]), c.bytes, max(c.elem_bytes, 1)), len(distinct))
                for i, c in enumerate(calls)
            ],
            dtype=np.int64,
        )
        self.rows = np.array(list(distinct), dtype=np.int64).reshape(-1, 3)
        self.groups = [Group(*k) for k in groups]
        self.nodes = list(nodes)


END = -2
#: Columns of the table of calls, one row per rank, group and size.
COLUMNS = ("rank", "group", "nbytes", "elem_bytes", "count", "work", "elapsed_ns", "first")
INSTRUCTIONS = "instructions"


class RankRecord:
    """What a rank recorded, before its completions are taken as the program means them.

    times: how often it makes each call of the run; last_start_ns: when its last call began.
    """

    def __init__(self, calls: int) -> None:
        self.events = self.last_start_ns = 0
        self.times = np.zeros(calls, dtype=np.int64)
        self._forward = Forward()

    def take(self, block: Block) -> None:
        """Add the next events."""
        self.events += len(block.call)
        self.times += np.bincount(block.call, minlength=len(self.times))
        self.last_start_ns = int(block.start_ns[-1])
        self._forward.take(block.start_ns, block.elapsed_ns, block.thread)

    def backwards(self) -> str:
        """Say where its time goes backwards; empty if nowhere."""
        return self._forward.backwards()


class _Before:
    """What lies before each event that is taken; what is before one that is not is the next's."""

    def __init__(self) -> None:
        self._left = 0

    def take(self, values: np.ndarray, keep: np.ndarray) -> np.ndarray:
        """Return what lies before the events ``keep`` of the next block."""
        out = sum_before_kept(values, keep)
        if len(keep):
            out[0] += self._left
            self._left = 0
        rest = values[int(keep[-1]) + 1 :] if len(keep) else values
        self._left += int(np.asarray(rest).sum())
        return out


class RankSums:
    """Sums over the events of a rank: its rows, transitions, segments, times and codes.

    sample: the first events as numbers of nodes, at most ``sampled``.
    """

    def __init__(self, run: RunTrace, calls: Calls, sampled: int) -> None:
        self._calls, self._sampled = calls, sampled
        self._instructions = run.work_unit == INSTRUCTIONS
        self._clock, self.load, self.times = Clock(run), Load(), SegmentTimes()
        self.edges, self.segments = Pairs(len(calls.nodes)), Pairs(len(calls.nodes))
        names = getattr(run, "counter_names", ())
        self._counters = [(_Before(), Pairs(len(calls.nodes))) for _ in names]
        self.codes = Codes()
        self.events = self.inside = self.kept = 0
        self._sample: list[np.ndarray] = []
        self._work, self._took = _Before(), _Before()
        rows = len(calls.rows)
        self._count, self._first, self._work_sum, self._elapsed_sum = (
            np.zeros(rows, dtype=np.int64) for _ in range(4)
        )

    def take(self, block: Block) -> None:
        """Add the next events."""
        calls, call = self._calls, block.call
        sequence = calls.node[call]
        if self.events < self._sampled:
            self._sample.append(sequence[: self._sampled - self.events].astype(np.int32))
        self.edges.take(sequence)
        keep = np.flatnonzero(~calls.null[call])
        self.events += len(call)
        self.inside += int(calls.inside[call].sum())
        kept_calls = call[keep]
        self.codes.take(sequence, keep, calls.row[kept_calls])
        work = self._rows(block, kept_calls, keep)
        segments = self.segments.take(sequence[keep], work)
        for (before, pairs), values in zip(self._counters, block.counters.T, strict=False):
            counted = before.take(np.array(values, dtype=np.int64), keep)
            counted[calls.starts[kept_calls]] = 0
            pairs.take(sequence[keep], counted)
        ns = self._clock.before_ns(block)
        if ns is not None:
            self.load.take(block, ~calls.starts[call], ns)
            took = self._took.take(ns, keep)
            took[calls.starts[kept_calls]] = 0
            self.times.take(segments, took)
        self.kept += len(keep)

    def _rows(self, block: Block, call: np.ndarray, keep: np.ndarray) -> np.ndarray:
        """Add the events ``keep`` to their rows; return the work before each."""
        work = self._work.take(block.work, keep)
        elapsed = np.array(block.elapsed_ns, dtype=np.int64)[keep]
        # The run is timed from the return of MPI_Init: what lies before is the launcher's.
        before = self._calls.starts[call]
        work[before] = 0
        elapsed[before] = 0
        row = self._calls.row[call]
        first = np.full(len(self._count), -1, dtype=np.int64)
        first[row[::-1]] = np.arange(self.kept + len(row) - 1, self.kept - 1, -1)  # the last wins
        new = (self._count == 0) & (first >= 0)
        self._first[new] = first[new]
        self._count += np.bincount(row, minlength=len(self._count))
        np.add.at(self._work_sum, row, work)  # whole numbers: floats would lose digits
        if not self._instructions:
            np.add.at(self._elapsed_sum, row, elapsed)
        return work

    def counted(self) -> np.ndarray:
        """Return what counters counted in its segments, (segments, counters)."""
        totals = [pairs.total for _, pairs in self._counters]
        return np.stack(totals, axis=1) if totals else np.zeros((len(self.segments.code), 0))

    @property
    def used(self) -> np.ndarray:
        """The rows that it has, ascending."""
        return np.flatnonzero(self._count)

    def columns(self, rank: int) -> dict[str, np.ndarray]:
        """Return its rows of the table of calls, COLUMNS."""
        used = self.used
        group, nbytes, elem = self._calls.rows[used].T
        values = (
            np.full(len(used), rank, dtype=np.int64),
            group,
            nbytes,
            elem,
            self._count[used],
            self._work_sum[used],
            self._elapsed_sum[used],
            self._first[used],
        )
        return dict(zip(COLUMNS, values, strict=True))

    def transitions(self, rank: int) -> np.ndarray:
        """Return its rows of PointTable.edges, from the first START to END."""
        rows = self.edges.rows(rank, self.edges.count, self.edges.first)
        end = np.array([[rank, self.edges.last, END, 1, self.edges.taken]], dtype=np.int64)
        return np.concatenate([rows, end])

    def sample(self) -> np.ndarray:
        """Return its first events as numbers of nodes."""
        return np.concatenate(self._sample)
