"""The ranks of a run, decoded as they are asked for, and the tables that they share."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from p3s.base import ops
from p3s.base.arrays import Bools, Ints
from p3s.base.errors import P3SError
from p3s.capture.capture import Capture, event_blocks, read_capture
from p3s.capture.counted import with_counted
from p3s.capture.events import Events, no_events
from p3s.capture.records import NO_WINDOW, FileName, Neighbours, RawSite
from p3s.capture.types import ANY_SOURCE, Call, Comm, Ranks, RankTrace, Site, Window

#: Columns of the matrix in which calls of all ranks are compared: the fields of a Call.
_FIELDS = tuple(each.name for each in fields(Call))
_WINDOW_KINDS = {1: "window", 2: "file", 3: "posix file"}


@dataclass
class Tables:
    """What is shared by all ranks, filled rank by rank.

    A rank's calls are numbered by ``local_calls``; those numbers become numbers of ``calls`` when
    all ranks are there, since only calls that have events are kept.
    """

    size: int
    ops: dict[str, int] = field(default_factory=dict)
    sites: dict[int, int] = field(default_factory=dict)
    site_list: list[Site] = field(default_factory=list)
    comms: dict[tuple[tuple[int, ...], int], int] = field(default_factory=dict)
    comm_list: list[Comm] = field(default_factory=list)
    windows: dict[Window, int] = field(default_factory=dict)
    rows: dict[bytes, int] = field(default_factory=dict)
    numbers: dict[tuple[int, ...], int] = field(default_factory=lambda: {(): 0})

    def __post_init__(self) -> None:
        world = tuple(range(self.size))
        self.comms[(world, 0)] = 0
        self.comm_list.append(Comm(world, "MPI_COMM_WORLD", -1, None, None, 0))

    def add(self, capture: Capture) -> tuple[Ints, Ints]:
        """Take one rank's definitions.

        Returns (number of each of its calls in ``rows``, the same for what its wildcard
        receives, in the order of capture.resolved, turned out to be).
        """
        matrix = self._matrix(capture)
        numbers = self._numbers(matrix)
        if not len(capture.resolved):
            return numbers, np.empty(0, dtype=np.int64)
        return numbers, self._resolved_calls(capture, matrix)

    def _resolved_calls(self, capture: Capture, matrix: Ints) -> Ints:
        """Return the number of the call that each wildcard receive turned out to be."""
        at, _ = capture.events.index_of(capture.resolved[:, 0])
        call = capture.events.call[at]
        # Few of them differ: numbers first of what is told apart, then of what stands in rows.
        keys = np.stack([call, *capture.resolved[:, 1:3].T], axis=1, dtype=np.int64)
        distinct_keys, where = distinct_rows(keys)
        actual = matrix[distinct_keys[:, 0]]
        actual[:, [_FIELDS.index("peer"), _FIELDS.index("tag")]] = distinct_keys[:, 1:]
        distinct, inverse = np.unique(actual, axis=0, return_inverse=True)
        return self._numbers(distinct)[inverse.reshape(-1)][where]

    def files(self, capture: Capture) -> dict[int, FileName]:
        """Return what one rank knows of files, by the number of their windows; after add."""
        window_of = self._merge_windows(capture, self._merge_comms(capture))
        return {
            window_of[raw]: name for raw, name in capture.defs.files.items() if raw in window_of
        }

    def neighbours(self, capture: Capture) -> dict[int, Neighbours]:
        """Return the neighbours of one rank by the number of their communicator."""
        comm_of = self._merge_comms(capture) if capture.defs.neighbours else {}
        neighbours_of = capture.defs.neighbours.items()
        return {comm_of[comm]: around for comm, around in neighbours_of if comm in comm_of}

    def _numbers(self, matrix: Ints) -> Ints:
        rows, width = self.rows, 8 * matrix.shape[1]
        raw = np.ascontiguousarray(matrix).tobytes()
        return np.array(
            [rows.setdefault(raw[at : at + width], len(rows)) for at in range(0, len(raw), width)],
            dtype=np.int64,
        )

    def calls(self, used: Bools) -> tuple[Call, ...]:
        """Return the calls of the rows that have events, in the order of their numbers."""
        table = np.frombuffer(b"".join(self.rows), dtype=np.int64).reshape(-1, len(_FIELDS))
        names, numbers = list(self.ops), list(self.numbers)
        return tuple(
            Call(*(names[op], *row, numbers[listed]))
            for op, *row, listed in table[used[: len(table)]].tolist()
        )

    def _matrix(self, capture: Capture) -> Ints:
        """Return this rank's calls as rows of numbers that mean the same on every rank."""
        comm_of = self._merge_comms(capture)
        window_of = self._merge_windows(capture, comm_of)
        site_to = np.array([self._site(raw) for raw in capture.defs.sites] + [0], dtype=np.int64)
        op_of = {
            number: self.ops.setdefault(name, len(self.ops))
            for number, name in capture.defs.opnames.items()
        }
        calls = capture.calls
        list_of = {
            number: self.numbers.setdefault(values, len(self.numbers))
            for number, values in capture.defs.numbers.items()
        }
        named = {
            "op": _map_values(calls["op"], op_of),
            "site": site_to[np.minimum(calls["site"], len(site_to) - 1).astype(np.int64)],
            "comm": _map_values(calls["comm"], comm_of),
            "window": _map_values(calls["window"], window_of),
            "numbers": _map_values(calls["numbers"], {0: 0, **list_of}),
        }
        columns = [named[name] if name in named else calls[name] for name in _FIELDS]
        return np.stack(columns, axis=1, dtype=np.int64)

    def _site(self, raw: RawSite | None) -> int:
        if raw is None:
            return 0  # lost; no event that is kept refers to it
        if raw.key not in self.sites:
            self.sites[raw.key] = len(self.site_list)
            self.site_list.append(Site(f"{raw.key:016x}", raw.frames))
        return self.sites[raw.key]

    def _merge_comms(self, capture: Capture) -> dict[int, int]:
        """Return this rank's communicator ids -> indices of the merged communicators."""
        ordinals: dict[tuple[int, ...], int] = {}
        index: dict[int, int] = {-1: -1}
        for raw in capture.defs.comms:
            ordinal = ordinals.get(raw.members, 0)
            ordinals[raw.members] = ordinal + 1
            key = (raw.members, ordinal)
            if key not in self.comms:
                parent = index.get(raw.parent, -1)
                self.comms[key] = len(self.comm_list)
                self.comm_list.append(
                    Comm(raw.members, raw.op, parent, raw.dims, raw.periods, ordinal, raw.inter)
                )
            index[raw.id] = self.comms[key]
        return index

    def _merge_windows(self, capture: Capture, comm_of: dict[int, int]) -> dict[int, int]:
        """Return this rank's window ids -> indices of the merged windows."""
        ordinals: dict[tuple[int, int, str], int] = {}
        index: dict[int, int] = {NO_WINDOW: NO_WINDOW}
        for raw in capture.defs.windows:
            key = (comm_of.get(raw.comm, -1), raw.kind, raw.op)
            ordinal = ordinals.get(key, 0)
            ordinals[key] = ordinal + 1
            window = Window(key[0], _WINDOW_KINDS.get(raw.kind, str(raw.kind)), raw.op, ordinal)
            index[raw.id] = self.windows.setdefault(window, len(self.windows))
        return index


def distinct_rows(table: Ints) -> tuple[Ints, Ints]:
    """Return the distinct rows of a table, in no order that means something, and each row's."""
    where = np.zeros(len(table), dtype=np.int64)
    for column in table.T:
        _, number = np.unique(column, return_inverse=True)
        _, where = np.unique(where * (int(number.max(initial=0)) + 1) + number, return_inverse=True)
    _, first = np.unique(where, return_index=True)
    return table[first], where


def _map_values(values: NDArray[np.generic], table: dict[int, int]) -> Ints:
    """Return table[value] of each value; -1 for one that is not in it."""
    if not table or not len(values):
        return np.full(len(values), -1, dtype=np.int64)
    keys = np.array(sorted(table), dtype=np.int64)
    to = np.array([table[key] for key in keys.tolist()], dtype=np.int64)
    at = np.minimum(np.searchsorted(keys, values.astype(np.int64)), len(keys) - 1)
    return np.where(keys[at] == values, to[at], -1)


@dataclass(frozen=True)
class CallsInBlocks:
    """The row number of each event's call, wildcard receives as what they received.

    at: events that are wildcard receives, ascending; became: the row number of each.
    """

    calls: Ints
    at: Ints
    became: Ints

    def renumbered(self, final: Ints) -> CallsInBlocks:
        """Return it with other numbers of the run's calls; final: of each, -1 of the last."""
        return replace(self, calls=final[self.calls], became=final[self.became])

    @staticmethod
    def of(capture: Capture, calls: Ints, resolved: Ints) -> CallsInBlocks:
        """Return those of a rank; calls, resolved: see Tables.add."""
        at, _ = capture.events.index_of(capture.resolved[:, 0])
        order = np.argsort(at, kind="stable")
        return CallsInBlocks(calls, at[order], resolved[order])

    def of_block(self, first: int, call: NDArray[np.unsignedinteger]) -> Ints:
        """Return the row numbers of the events from number ``first`` on, with these calls."""
        rows: Ints = self.calls[call]
        low, high = np.searchsorted(self.at, [first, first + len(call)])
        rows[self.at[low:high] - first] = self.became[low:high]
        return rows


#: Events that are read at a time, at least.
BLOCK_EVENTS = 1 << 20
#: Files from this size on are not kept as a whole by those who can do without.
LONG_BYTES = 64 << 20


@dataclass(frozen=True)
class Source:
    """What it takes to decode a rank: its file and the run's number of each of its calls.

    head: the rank without its events, of one that can be read in blocks; threads: of its calls.
    """

    path: Path
    calls: CallsInBlocks
    problem: str
    files: dict[int, FileName]
    neighbours: Mapping[int, Neighbours]
    head: RankTrace | None = None
    threads: NDArray[np.int32] | None = None
    events: int = 0

    def trace(self, capture: Capture) -> RankTrace:
        """Return the rank as its capture has it."""
        events, header, calls = capture.events, capture.header, self.calls.calls
        completing, present = events.index_of(capture.done[:, 0])
        posting, posted = events.index_of(capture.done[:, 1])
        both, thread = present & posted, capture.calls["thread"]
        return RankTrace(
            header.rank,
            not self.problem,
            self.calls.of_block(0, events.call).astype(np.int32),
            events.start_ns,
            events.elapsed_ns,
            events.work,
            header.failed_polls,
            header.failed_poll_ns,
            self.problem,
            np.stack([completing, posting], axis=1)[both],
            capture.cancelled[both],
            events.counters,
            _sum_counted(capture, calls),
            header.paused_calls,
            capture.counted_events,
            events.ordinal,
            thread[events.call].astype(np.int32) if thread.any() else None,
            header.tracer_ns,
            events.gap,
            capture.phases,
            header.resident_bytes,
            header.preempted,
            capture.threads,
            capture.defs.runtime,
            tuple(sorted(capture.defs.threads, key=lambda thread: thread.number & 0xFFFFFFFF)),
            self.files,
            capture.accesses,
            self.neighbours,
            _from_anybody(capture),
            capture.restored,
        )

    def in_blocks(self, capture: Capture) -> Source:
        """Return what it takes to decode the rank some events at a time."""
        none = no_events(len(capture.header.counter_names))
        no_rows = np.zeros((0, 4), dtype=np.int64)
        threads = capture.calls["thread"].astype(np.int32)
        empty = replace(
            capture,
            events=none,
            resolved=no_rows,
            done=no_rows[:, :2],
            cancelled=capture.cancelled[:0],
        )
        return replace(
            self,
            head=replace(self.trace(empty), files={}, neighbours={}),
            threads=threads if threads.any() else None,
            events=len(capture.events),
        )

    def changed(self) -> P3SError:
        """Return the error of a file that is not as it was at first."""
        return P3SError(f"{self.path} has changed while it was read; read it again")

    def pieces(self) -> Iterator[RankTrace]:
        """Yield the rank some events at a time: their calls, times, counters and threads."""
        head, at = self.head, 0
        assert head is not None
        for events in event_blocks(self.path, BLOCK_EVENTS):
            if events.call.max(initial=0) >= len(self.calls.calls):
                raise self.changed()
            yield replace(
                head,
                call=self.calls.of_block(at, events.call).astype("int32"),
                start_ns=events.start_ns,
                elapsed_ns=events.elapsed_ns,
                work=events.work,
                counters=events.counters,
                thread=None if self.threads is None else self.threads[events.call],
            )
            at += len(events)
        if at != self.events:
            raise self.changed()


class LazyRanks(Ranks):
    """The ranks of a run: read once for the tables that they share, decoded as they are asked for.

    ``most_kept``: bytes of columns that are kept from the first time on; without ``completions``
    RankTrace.done has only cancelled requests; ``whole``: with the events that were only counted.
    """

    def __init__(
        self, size: int, most_kept: float, completions: bool = True, whole: bool = False
    ) -> None:
        self._size, self._most_kept, self._completions = size, most_kept, completions
        self._whole = whole
        self.tables = Tables(size)
        self.used = np.zeros(0, dtype=np.int64)  # events of each row
        self.problems: dict[int, str] = {}
        self.counted_events = 0
        self._sources: dict[int, Source] = {}
        self._captures: dict[int, Capture] = {}
        self._kept: dict[int, RankTrace] = {}
        self._aborted: list[int] = []
        self._outside: list[int] = []  # unfinished, and not inside of a call

    def take(self, rank: int, path: Path) -> None:
        """Read one rank for the first time; it is kept if the run is small."""
        long = path.stat().st_size >= LONG_BYTES
        capture = self._read(path, self._completions, len if long else None)
        if capture.problem:
            self.problems[rank] = f"{path} {capture.problem}"
        if capture.end is None and capture.header.aborting:
            self._aborted.append(rank)
        elif capture.end is None and not capture.header.in_call:
            self._outside.append(rank)
        calls = CallsInBlocks.of(capture, *self.tables.add(capture))
        files = self.tables.files(capture) if capture.defs.files else {}
        around = self.tables.neighbours(capture)
        self.counted_events += capture.counted_events
        source = Source(path, calls, self.problems.get(rank, ""), files, around)
        self._use(capture, calls)
        self._sources[rank] = source.in_blocks(capture) if long and in_order(capture) else source
        size = capture.size
        if not long and size <= self._most_kept:
            self._most_kept -= size
            self._captures[rank] = capture

    def _read(
        self, path: Path, completions: bool = True, each: Callable[[Events], object] | None = None
    ) -> Capture:
        capture = read_capture(path, completions, each)
        return with_counted(capture) if self._whole else capture

    def _use(self, capture: Capture, calls: CallsInBlocks) -> None:
        """Count the events of each row."""
        used = np.zeros(len(self.tables.rows), dtype=np.int64)
        used[: len(self.used)] = self.used
        for at in range(0, len(capture.events), BLOCK_EVENTS):
            call = calls.of_block(at, capture.events.call[at : at + BLOCK_EVENTS])
            used += np.bincount(call, minlength=len(used))
        for number in capture.counted:  # counted after the limit: the call must have its name
            if number < len(calls.calls):
                used[calls.calls[number]] += capture.counted[number][0]
        self.used = used

    @property
    def blamed(self) -> int | None:
        """The rank that ended the run, if that shows: the others were ended inside of calls."""
        if self._aborted:
            return self._aborted[0]
        return self._outside[0] if len(self._outside) == 1 else None

    def finish(self, missing: dict[int, str]) -> Ints:
        """Give the calls their final numbers; return the events of each."""
        keep = np.flatnonzero(self.used)
        final = np.full(len(self.used) + 1, -1, dtype=np.int64)
        final[keep] = np.arange(len(keep))
        for rank, source in self._sources.items():
            self._sources[rank] = replace(source, calls=source.calls.renumbered(final))
        self.problems |= missing
        return self.used[keep]

    def __len__(self) -> int:
        return self._size

    def rank(self, number: int) -> RankTrace:
        """Return the columns of one rank."""
        if number in self._kept:
            return self._kept[number]
        source = self._sources.get(number)
        if source is None:
            none = np.empty(0, dtype=np.int64)
            problem = self.problems.get(number, "")
            return RankTrace(number, False, none.astype("int32"), none, none, none, problem=problem)
        if number in self._captures:
            self._kept[number] = source.trace(self._captures.pop(number))
            return self._kept[number]
        capture = self._read(source.path)
        sizes = len(capture.calls), len(capture.resolved)
        if sizes != (len(source.calls.calls), len(source.calls.became)):
            raise source.changed()
        trace = source.trace(capture)
        if self._most_kept == math.inf:
            self._kept[number] = trace
        return trace

    def pieces(self, rank: int) -> Iterator[RankTrace] | None:
        """Yield a rank some events at a time; None where it is short, or needed as a whole.

        A piece has the rank's totals, and of its events calls, times, counters and threads.
        """
        source = self._sources.get(rank)
        if source is None or source.head is None or rank in self._kept:
            return None
        return source.pieces()

    @property
    def present(self) -> list[int]:
        """The ranks that have a readable file."""
        return sorted(self._sources)


def _from_anybody(capture: Capture) -> Ints:
    """Return which events of a rank are receives or probes from MPI_ANY_SOURCE."""
    at, present = capture.events.index_of(capture.resolved[:, 0])
    peer = capture.calls["peer"][capture.events.call[at]]
    events: Ints = at[present & (peer == ANY_SOURCE)]
    return events


def in_order(capture: Capture) -> bool:
    """Tell whether a rank can be read in blocks, one event after the other.

    Not where events are lost or only counted, or other tables say more of them: threads, places in
    files, requests that were cancelled, receives from anybody that are completed later.
    """
    events, more = capture.events, (capture.threads, capture.accesses, capture.events.gap)
    if capture.damages or events.ordinal is not None or any(each is not None for each in more):
        return False
    if capture.counted or capture.phases is not None or capture.cancelled.any():
        return False
    waiting = [number for number, name in capture.defs.opnames.items() if name in ops.POSTED]
    calls = capture.calls[capture.events.call[_from_anybody(capture)]]
    return not any((calls["op"] == number).any() for number in waiting)


def _sum_counted(capture: Capture, calls: Ints) -> dict[int, tuple[int, int, int]]:
    sums: dict[int, tuple[int, int, int]] = {}
    for number, row in capture.counted.items():
        if number < len(calls) and calls[number] >= 0:
            call = int(calls[number])
            before = sums.get(call, (0, 0, 0))
            sums[call] = (before[0] + row[0], before[1] + row[1], before[2] + row[2])
    return sums
