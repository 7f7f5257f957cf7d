"""The thesis's phases, as a view: repeated segments of the tick table (A.4.3, A.5).

The loops of the program are the phases of P3S. This module finds phases in the way of the thesis
instead, by comparing what happens: it is there to compare with, and for programs whose call sites
do not tell one place from another.

- The run is a table of events by rank and tick (logical time). An event carries the computation
  *after* it, up to the next one of its rank: a phase begins with communication.
- A segment ends before a tick that looks like one that it already has: the same operations, with
  the same partners and tags, on all ranks. What hangs on the first and the last iteration of a loop
  is cut off where the next or the last segment tells how long an iteration is.
- A segment is compared with the phases known so far, in their order: the same number of ticks,
  and enough events that agree in operation, volume and computation. It is another occurrence of
  the first one that it is similar to, else a new phase.
- Correction (A.5): see :func:`correct_phases`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from p3s.base.arrays import Bools, Ints, mix_bits
from p3s.base.errors import P3SError
from p3s.capture.types import present_ranks
from p3s.methods.pas2p.logical import logical_time
from p3s.methods.pas2p.match import turns

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from p3s.capture import RunTrace


_ENDS = ("MPI_Init", "MPI_Init_thread", "MPI_Finalize")
#: Segments that are compared at a time, in events.
_BLOCK = 1 << 20


@dataclass(frozen=True)
class Similarity:
    """When two segments are the same phase; shares between 0 and 1, the thesis's by default.

    ``volume``: bytes may differ by this share of the larger; ``compute``: the smaller computation
    must be at least this share of the larger one; ``events``: so many of the events must agree;
    ``relevance``: least share of the time of a relevant phase. Not of the thesis: computation that
    differs by no more than ``compute_floor`` (ns or instructions) counts as equal, since
    the clock does not tell so little apart; after ``most_phases`` the rest is put together;
    larger runs than ``most_events`` are refused, as the whole table is held.
    """

    volume: float = 0.05
    compute: float = 0.90
    events: float = 0.80
    relevance: float = 0.01
    compute_floor: int = 10_000
    most_phases: int = 200
    most_events: int = 20_000_000


@dataclass(frozen=True)
class ThesisPhase:
    """A phase: a segment of the tick table and how often it occurred.

    ``ticks`` and ``events`` (of all ranks) of one occurrence, the first of which begins at
    ``first_tick``; ``occurrences``: the tick at which each begins. ``time`` is the communication
    and computation of all occurrences summed over ranks (ns; instructions alone where work is
    counted in these), ``share`` its part of the run's. ``work``: computation of one occurrence,
    summed over ranks, mean. ``sites``: keys; ``operations``: call -> events of one occurrence.
    ``joins`` is the phase whose computation was taken off this one by the correction (A.5), or -1;
    ``weight`` and ``work`` are corrected, ``found_weight`` and ``found_work`` as they were found.
    ``similar`` is False for what was put together unlike as it is.
    """

    number: int
    first_tick: int
    ticks: int
    events: int
    weight: int
    time: int
    share: float
    relevant: bool
    work: float
    sites: frozenset[str]
    operations: dict[str, int]
    occurrences: Ints = field(repr=False)
    found_weight: int = 0
    found_work: float = 0.0
    joins: int = -1
    similar: bool = True


@dataclass
class _Table:
    """All events between MPI_Init and MPI_Finalize, by tick, rank and program order.

    ``turn``: events of the same rank and tick before it; ``after``: computation after it;
    ``total_time``: of the run, with what lies before the first of these events.
    """

    tick: Ints
    rank: Ints
    turn: Ints
    call: Ints
    after: Ints
    elapsed: Ints
    total_time: int


def thesis_phases(
    run: RunTrace, settings: Similarity = Similarity(), ticks: Sequence[Ints] | None = None
) -> list[ThesisPhase]:
    """Return the phases of a run in the order of their first occurrence (thesis A.4.3, A.5).

    Takes some 100 bytes per event; raises P3SError for a run larger than
    ``settings.most_events``. A run without communication has no phases.
    """
    ticks = logical_time(run) if ticks is None else ticks
    table = _table(run, ticks, settings)
    if not len(table.tick):
        return []
    ops: dict[str, int] = {}
    op_of = np.array([ops.setdefault(call.op, len(ops)) for call in run.calls], dtype=np.int64)
    bytes_of = np.array([call.bytes for call in run.calls], dtype=np.int64)
    starts = _segments(table, _keys_of_calls(run))
    segments = _Segments(table, starts, op_of[table.call], bytes_of[table.call])
    groups = _group_segments(segments, settings)
    phases = [
        _phase(number, members, similar, segments, run, settings)
        for number, (members, similar) in enumerate(groups)
    ]
    return correct_phases(phases, segments.sequence(groups), segments, settings)


def loop_of(phase: ThesisPhase, loops: Mapping[int, Set[str]]) -> int | None:
    """Return the loop that a phase is: the smallest one with all its call sites, None if none has.

    ``loops``: number of a loop -> keys of the sites in it, at any depth. Of equal ones the
    highest number, which is the innermost where numbers grow inwards.
    """
    around = [(len(sites), -number) for number, sites in loops.items() if phase.sites <= sites]
    return -min(around)[1] if around else None


def _table(run: RunTrace, ticks: Sequence[Ints], settings: Similarity) -> _Table:
    ends = np.array([call.op in _ENDS for call in run.calls] or [False])
    parts = [np.zeros((6, 0), dtype=np.int64)]
    events_read = total = 0
    for rank in present_ranks(run):
        trace = run.ranks[rank]
        events = len(trace.call)
        events_read += events
        if events_read > settings.most_events:
            raise P3SError(
                f"thesis phases: {run.path} has more than {settings.most_events:,} events, and"
                " this view holds all of them; trace fewer steps, or use the loops"
            )
        if not events:
            continue
        after = np.append(trace.work[1:], 0)
        elapsed = np.asarray(trace.elapsed_ns) * (run.work_unit != "instructions")
        start = ends[trace.call]
        total += int(after.sum()) + int(elapsed[~start].sum())
        keep = np.flatnonzero(~start)
        tick = ticks[rank][keep]
        rows = (np.full(len(keep), rank), turns(tick), trace.call[keep], after[keep], elapsed[keep])
        parts.append(np.stack([tick, *rows]).astype(np.int64))
    whole = np.concatenate(parts, axis=1)
    order = np.argsort(whole[0], kind="stable")  # ranks and program order are in order already
    tick, rank_of, turn, call, after, elapsed = (column[order] for column in whole)
    return _Table(tick, rank_of, turn, call, after, elapsed, total)


def _hash_rows(*columns: Ints) -> NDArray[np.uint64]:
    """Return a 64-bit hash of each row."""
    out = np.zeros(len(columns[0]), dtype=np.uint64)
    for column in columns:
        out = mix_bits(out ^ column.astype(np.uint64))
    return out


def _keys_of_calls(run: RunTrace) -> Ints:
    """Return for each call what tells one tick from another: operation, partner, tag, root."""
    looks: dict[tuple[str, int, int, int], int] = {}
    return np.array(
        [looks.setdefault((c.op, c.peer, c.tag, c.root), len(looks)) for c in run.calls],
        dtype=np.int64,
    )


def _segments(table: _Table, look_of: Ints) -> Ints:
    """Return the tick at which each segment begins, and the end of the last one."""
    first = np.flatnonzero(np.diff(table.tick, prepend=table.tick[0] - 1))
    looks = np.add.reduceat(_hash_rows(table.rank, table.turn, look_of[table.call]), first)
    _, label = np.unique(looks, return_inverse=True)
    starts = _cut_loop_ends(label.tolist(), _cut_at_repeats(label.tolist()))
    ticks = table.tick[first]
    return np.append(ticks[starts], ticks[-1] + 1)


def _cut_at_repeats(labels: list[int]) -> list[int]:
    """Return where segments begin: each before the first label that it has already."""
    last_at: dict[int, int] = {}
    starts = [0]
    for i, each in enumerate(labels):
        if last_at.get(each, -1) >= starts[-1]:
            starts.append(i)
        last_at[each] = i
    return starts


def _cut_loop_ends(labels: list[int], starts: list[int]) -> list[int]:
    """Cut the first and the last iteration of a loop off what is before and after the loop.

    They hang on it, as nothing repeats there: a segment that begins with all of the segment
    before it is cut behind that, one that ends with all of the next one before that; not if it
    is itself an iteration that is repeated.
    """
    bounds = [*starts, len(labels)]
    parts = [labels[a:b] for a, b in zip(bounds, bounds[1:], strict=False)]
    again = [one == other for one, other in zip(parts, parts[1:], strict=False)]
    repeated = [a or b for a, b in zip([*again, False], [False, *again], strict=True)]
    cuts = set()
    for k, (one, other) in enumerate(zip(parts, parts[1:], strict=False)):
        boundary = bounds[k + 1]
        if len(other) > len(one) and not repeated[k + 1] and other[: len(one)] == one:
            cuts.add(boundary + len(one))
        if len(one) > len(other) and not repeated[k] and one[-len(other) :] == other:
            cuts.add(boundary - len(other))
    return sorted({*starts, *cuts})


class _Segments:
    """The segments of a run and their events; segments of equal shape are compared at once."""

    def __init__(self, table: _Table, starts: Ints, op: Ints, nbytes: Ints) -> None:
        self.table, self.op, self.nbytes = table, op, nbytes
        self.first_tick, self.ticks = starts[:-1], np.diff(starts)
        self.first = np.searchsorted(table.tick, starts[:-1])
        self.count = np.diff(np.append(self.first, len(table.tick)))
        number = np.repeat(np.arange(len(self.first)), self.count)
        offset = table.tick - self.first_tick[number]
        # One number for a place in a segment: ranks and iterations are far below these limits.
        self.place = _hash_rows(offset, table.rank, table.turn, op)
        looks = np.add.reduceat(self.place, self.first)
        shapes = np.stack([self.ticks.astype(np.uint64), self.count.astype(np.uint64), looks])
        _, self.shape = np.unique(shapes, axis=1, return_inverse=True)
        self.shape = self.shape.reshape(-1)

    def __len__(self) -> int:
        return len(self.first)

    def events(self, segment: int) -> slice:
        """Return where a segment's events are."""
        return slice(int(self.first[segment]), int(self.first[segment] + self.count[segment]))

    def similar(
        self, one: int, others: Ints, settings: Similarity, *, compute: bool = True
    ) -> Bools:
        """Tell which of ``others``, of equal shape and as many ticks, are similar to ``one``."""
        mine, theirs = self._common_events(one, int(others[0]))
        most = max(int(self.count[one]), int(self.count[others[0]]))
        is_similar = np.zeros(len(others), dtype=bool)
        if len(mine) < settings.events * most:
            return is_similar
        step = max(_BLOCK // max(len(mine), 1), 1)
        volume, work = self.nbytes[mine], self.table.after[mine]
        for begin in range(0, len(others), step):
            rows = self.first[others[begin : begin + step], None] + theirs
            agree = _close(self.nbytes[rows], volume, 1 - settings.volume, 0)
            if compute:
                agree &= _close(
                    self.table.after[rows], work, settings.compute, settings.compute_floor
                )
            is_similar[begin : begin + step] = agree.sum(axis=1) >= settings.events * most
        return is_similar

    def _common_events(self, one: int, other: int) -> tuple[Ints, Ints]:
        """Return (events of one, distances from the first of the other) at the same places."""
        if self.shape[one] == self.shape[other]:
            a, b = self.place[self.events(one)], self.place[self.events(other)]
            if np.array_equal(a, b):
                near = np.arange(len(a))
                return self.first[one] + near, near
        _, mine, theirs = np.intersect1d(
            self.place[self.events(one)], self.place[self.events(other)], return_indices=True
        )
        return self.first[one] + mine, theirs

    def sequence(self, groups: Sequence[tuple[Ints, bool]]) -> Ints:
        """Return the phase of each segment."""
        phase = np.empty(len(self), dtype=np.int64)
        for number, (members, _) in enumerate(groups):
            phase[members] = number
        return phase


def _close(a: Ints, b: Ints, share: float, floor: int) -> Bools:
    low, high = np.minimum(a, b), np.maximum(a, b)
    close: Bools = (low >= share * high) | (high - low <= floor)
    return close


def _group_segments(segments: _Segments, settings: Similarity) -> list[tuple[Ints, bool]]:
    """Return the segments of each phase, and whether they are similar.

    Comparing each segment with the first occurrence of the known phases, in order, is the same
    as letting each phase in turn take what is left and similar to its first occurrence.
    """
    by_shape = np.argsort(segments.shape, kind="stable")
    bounds = np.flatnonzero(np.diff(segments.shape[by_shape], prepend=-1))
    ungrouped = [rows for rows in np.split(by_shape, bounds[1:]) if len(rows)]
    groups: list[tuple[Ints, bool]] = []
    while ungrouped:
        if len(groups) >= settings.most_phases:
            groups.append((np.sort(np.concatenate(ungrouped)), False))
            break
        leader = min(int(rows[0]) for rows in ungrouped)
        members, rest = [], []
        for rows in ungrouped:
            same = np.zeros(len(rows), dtype=bool)
            if segments.ticks[rows[0]] == segments.ticks[leader]:
                same = segments.similar(leader, rows, settings)
            same[rows == leader] = True
            members.append(rows[same])
            if not same.all():
                rest.append(rows[~same])
        ungrouped = rest
        groups.append((np.sort(np.concatenate(members)), True))
    return groups


def _phase(
    number: int,
    members: Ints,
    similar: bool,
    segments: _Segments,
    run: RunTrace,
    settings: Similarity,
) -> ThesisPhase:
    table, first = segments.table, int(members[0])
    work = int(np.add.reduceat(table.after, segments.first)[members].sum())
    time = work + int(np.add.reduceat(table.elapsed, segments.first)[members].sum())
    calls = Counter(table.call[segments.events(first)].tolist())
    operations: Counter[str] = Counter()
    for call, events in calls.items():
        operations[run.calls[call].op] += events
    share = time / table.total_time if table.total_time else 0.0
    return ThesisPhase(
        number,
        int(segments.first_tick[first]),
        int(segments.ticks[first]),
        int(segments.count[first]),
        len(members),
        time,
        share,
        share >= settings.relevance,
        work / len(members),
        frozenset(run.sites[run.calls[call].site].key for call in calls),
        dict(sorted(operations.items())),
        segments.first_tick[members],
        len(members),
        work / len(members),
        similar=similar,
    )


def correct_phases(
    phases: Sequence[ThesisPhase], sequence: Ints, segments: _Segments, settings: Similarity
) -> list[ThesisPhase]:
    """Return the phases after the correction pass (thesis A.5, Eq. A.2).

    Where a phase begins with computation, its first computation hangs on the last communication
    of the phase before it: of A A A B B B the segments are A, A, A + B's beginning, B, B. So a
    relevant phase whose communication (operations and volume) equals that of the phase before
    it, but with more computation, is the union of both: the computation of the phase before is
    taken off it, and its weight is added to that of the phase before.
    """
    out = list(phases)
    for number, phase in enumerate(phases):
        first_segment = int(np.flatnonzero(sequence == number)[0])
        if not phase.relevant or not phase.similar or first_segment == 0:
            continue
        before = int(sequence[first_segment - 1])
        other = int(np.flatnonzero(sequence == before)[0])
        if before == number or phases[before].ticks != phase.ticks:
            continue
        same = segments.similar(other, np.array([first_segment]), settings, compute=False)[0]
        if not same or phase.found_work <= phases[before].found_work:
            continue
        work = phase.found_work - phases[before].found_work
        out[number] = replace(out[number], work=work, joins=before)
        out[before] = replace(out[before], weight=out[before].weight + phase.found_weight)
    return out
