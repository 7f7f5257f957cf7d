"""One rank's capture file (.p3t, see docs/capture-format.md): all of it that is intact."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from p3s.base import ops
from p3s.base.arrays import Bools, Ints
from p3s.base.errors import P3SError
from p3s.base.text import plural
from p3s.capture import layout
from p3s.capture.chunks import Chunk, Damage, Header, Scan, open_capture, parse_header, read_header
from p3s.capture.events import (
    EndRecord,
    Events,
    join_events,
    read_accesses,
    read_counts,
    read_done,
    read_end,
    read_events,
    read_phases,
    read_resolved,
)
from p3s.capture.layout import NAME
from p3s.capture.records import Definitions
from p3s.capture.threads import Threads, read_threads, threads_at


@dataclass
class Capture:
    """Everything one rank recorded that is intact.

    ``defs``: what events refer to; ``calls``: the table of CALL records (layout.CALL_FIELDS; lost
    ones are zero);
    ``resolved``: rows of event ordinal, source, tag, bytes; ``done``: rows of completing and
    posting ordinal with ``cancelled``; ``counted``: call -> (events, elapsed_ns, work) of events
    that were only counted; ``phases``: rows of layout.PHASE_FIELDS, None if the run had no plan
    of phases; ``restored``: events that were only counted, here among ``events``;
    ``threads``: what threads did before events, None if there was one only. ``header``
    has the totals of END, if that was reached.
    """

    path: Path
    header: Header
    defs: Definitions
    calls: NDArray[Any]
    events: Events
    resolved: Ints
    done: Ints
    cancelled: Bools
    counted: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    end: EndRecord | None = None
    chunks: int = 0
    bytes: int = 0
    damages: tuple[Damage, ...] = ()
    lost_events: int = 0  # known to have been recorded, and not there
    event_count: int = 0  # of the events that are intact
    phases: NDArray[np.void] | None = None
    threads: Threads | None = None
    accesses: Ints | None = None
    restored: int = 0

    @property
    def complete(self) -> bool:
        """Whether the rank reached MPI_Finalize and nothing it recorded is missing."""
        return not self.problem

    @property
    def size(self) -> int:
        """Bytes of its columns."""
        events = self.events
        columns = (events.call, events.start_ns, events.elapsed_ns, events.work, events.counters)
        return sum(column.nbytes for column in (*columns, self.done))

    @property
    def counted_events(self) -> int:
        """How many events were only counted: after the limit, or of phases seen often enough."""
        if self.end is not None and not self.restored:
            return self.end.counted_events
        return sum(row[0] for row in self.counted.values())

    @property
    def problem(self) -> str:
        """What is wrong with the file, as the end of a sentence; empty if it is complete."""
        if self.damages:
            first, more = self.damages[0], len(self.damages) - 1
            also = f" and at {more} more place{'s' * (more > 1)}" if more else ""
            lost_events = (
                plural(self.lost_events, "event is", "events are") + " lost"
                if self.lost_events
                else "no event is lost"
            )
            if self.end is None and not self.lost_events:
                lost_events = "it is not known how many events are lost"
            return f"is damaged at byte {first.offset} ({first.what}){also}: {lost_events}"
        if self.header.stopped_early:
            return "stopped recording early, because the file could not grow"
        if self.end is None:
            return f"ends before MPI_Finalize{self.where}"
        if self.header.separate:
            return (
                f"is one of {self.header.launched} separate programs of 1 rank: the program uses"
                " another MPI than its launcher"
            )
        return ""

    @property
    def where(self) -> str:
        """Where a rank that did not reach MPI_Finalize ended, as the end of a sentence."""
        header = self.header
        if header.aborting:
            return f": it called MPI_Abort({header.abort_code})"
        if header.in_call:
            return f", inside {self.op_name(header.in_call - 1)}"
        if len(self.events):
            return f", after {self.op_name(int(self.calls['op'][self.events.call[-1]]))}"
        return ""

    def op_name(self, number: int) -> str:
        """Return the name of the MPI call with this op id."""
        name = self.defs.opnames.get(number, "an MPI call")
        return "MPI_Sendrecv" if name == ops.SENDRECV_RECV else name


def rank_of(path: Path) -> int | None:
    """Return the rank that the name of a capture file says, None if it says none."""
    digits = path.name.removeprefix("rank-").removesuffix(".p3t")
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 9:
        return None
    rank = int(digits)
    return rank if rank < layout.MAX_RANKS and path.name == NAME.format(rank) else None


def read_capture(
    path: Path, completions: bool = True, each: Callable[[Events], object] | None = None
) -> Capture:
    """Read one rank's file: every chunk of it that is intact.

    Without ``completions`` the rows of ``done`` are checked one by one, but only those of cancelled
    requests are kept: what needs events alone stays small. ``each`` is given the events of every
    chunk; the result then has bare ones, a tenth as large.
    Raises P3SError as read_header does; damage after the header never raises, ``problem`` says
    what it is.
    """
    path = Path(path)
    try:
        handle = open_capture(path)
    except OSError as error:
        raise P3SError(f"{path}: {error.strerror}") from error
    try:
        raw = os.pread(handle, layout.HEADER_MIN_BYTES, 0)
        header = parse_header(raw, path)
        size = os.fstat(handle).st_size
        scan = Scan(handle, size, header.header_bytes, header.rank, header.file_key)
        return _Collector(path, header, size, completions, each).collect(scan)
    except OSError as error:
        raise P3SError(f"{path}: {error.strerror}") from error
    finally:
        os.close(handle)


def event_blocks(path: Path, least: int) -> Iterator[Events]:
    """Yield the events of an undamaged file of which none is lost, at least so many at a time.

    Raises P3SError as read_header does, and where the file is no such one any more.
    """
    header = read_header(path)
    counters, parts = len(header.counter_names), list[tuple[int, Events]]()
    events_read = 0
    try:
        for chunk, payload in intact_chunks(path, header):
            if chunk.kind == layout.EVENTS:
                parts.append(
                    (chunk.first, read_events(chunk, payload, header.work_source, counters))
                )
                events_read += len(parts[-1][1])
            if events_read >= least:
                yield join_events(parts, counters)[0]
                events_read = 0
    except (OSError, ValueError) as error:
        raise P3SError(f"{path} has changed while it was read; read it again") from error
    if parts:
        yield join_events(parts, counters)[0]


def intact_chunks(path: Path, header: Header | None) -> Iterator[tuple[Chunk, bytes]]:
    """Yield the chunks of a file whose checksums hold; ``header`` None if that is not readable."""
    handle = open_capture(path)
    try:
        size = os.fstat(handle).st_size
        if header is None:
            yield from Scan(handle, size, layout.PAGE_BYTES)
        else:
            yield from Scan(handle, size, header.header_bytes, header.rank, header.file_key)
    finally:
        os.close(handle)


#: What reads chunks of rows that begin with the ordinal of an event.
READERS: dict[int, Callable[[Chunk, bytes], Ints]] = {
    layout.RESOLVED: read_resolved,
    layout.THREADS: read_threads,
    layout.ACCESSES: read_accesses,
}
#: Chunks of events that are put together at a time.
_PACK = 256


class _Collector:
    """Puts the chunks of one file together."""

    def __init__(
        self,
        path: Path,
        header: Header,
        size: int,
        completions: bool,
        each: Callable[[Events], object] | None,
    ) -> None:
        self.path, self.header, self.bytes = path, header, size
        self.completions, self.each = completions, each
        self.done_rows = 0
        self.defs = Definitions(header.size, size)
        self.events: list[tuple[int, Events]] = []
        self.packed = 0  # so many of them are chunks put together
        self.expected = 0  # ordinal of the next event
        self.done: list[tuple[Ints, Bools]] = []
        self.rows: dict[int, list[Ints]] = {kind: [] for kind in READERS}
        self.counted: dict[int, tuple[int, int, int]] = {}
        self.end: EndRecord | None = None
        self.phases: NDArray[np.void] | None = None
        self.damages: list[Damage] = []
        self.places: list[tuple[int, int]] = []  # first ordinal, offset of every EVENTS chunk
        self.gap_at: int | None = None  # offset of the first chunk with events lost before it

    def collect(self, scan: Scan) -> Capture:
        """Return what the scan finds."""
        for chunk, payload in scan:
            if self.end is not None:
                self.damages.append(Damage(chunk.offset, "a chunk after the end"))
                break
            try:
                self._take(chunk, payload)
            except ValueError as error:
                name = layout.KIND_NAMES.get(chunk.kind, "unknown")
                self.damages.append(Damage(chunk.offset, f"a chunk of {name}: {error}"))
        self.damages = sorted([*scan.damages, *self.damages], key=lambda damage: damage.offset)
        return self._capture(scan.chunks)

    def _take(self, chunk: Chunk, payload: bytes) -> None:
        if chunk.kind == layout.DEFS:
            self.defs.add(chunk, payload)
        elif chunk.kind == layout.EVENTS:
            self._take_events(chunk, payload)
        elif chunk.kind == layout.DONE:
            completions, cancelled = read_done(chunk, payload)
            self.done_rows += len(completions)
            if self.completions:
                self.done.append((completions, cancelled))
            elif cancelled.any():
                self.done.append((completions[cancelled], cancelled[cancelled]))
        elif chunk.kind in READERS:
            self.rows[chunk.kind].append(READERS[chunk.kind](chunk, payload))
        elif chunk.kind == layout.COUNTS:
            self.counted |= read_counts(chunk, payload)
        elif chunk.kind == layout.PHASES:
            self.phases = read_phases(payload)
        elif chunk.kind == layout.END:
            self.end = read_end(payload)

    def _take_events(self, chunk: Chunk, payload: bytes) -> None:
        if chunk.first < self.expected:
            raise ValueError("its ordinals are taken")
        header = self.header
        events = read_events(chunk, payload, header.work_source, len(header.counter_names))
        if len(events):
            if self.each is not None:
                self.each(events)
                events = events.bare()
            self.events.append((chunk.first, events))
            self.places.append((chunk.first, chunk.offset))
            if chunk.first > self.expected and self.gap_at is None:
                self.gap_at = chunk.offset
            self.expected = chunk.first + len(events)
            self._pack()

    def _pack(self) -> None:
        """Put many chunks of events, with nothing lost between them, together.

        Small arrays that are freed stay with the process; large ones go back to the system.
        """
        if len(self.events) - self.packed < _PACK:
            return
        tail = self.events[self.packed :]
        first = tail[0][0]
        if sum(len(part) for _, part in tail) != self.expected - first:
            self.packed = len(self.events)  # these stay as they are
            return
        together, _ = join_events(
            [(at - first, part) for at, part in tail], len(self.header.counter_names)
        )
        self.events[self.packed :] = [(first, together)]
        self.packed = len(self.events)

    def _capture(self, chunks: int) -> Capture:
        calls, usable = self.defs.calls()
        events, lost_count = join_events(self.events, len(self.header.counter_names))
        self.events.clear()
        if self.gap_at is not None and not self.damages:
            self.damages.append(Damage(self.gap_at, "events before it are not there", False))
        if self.end is not None and self.end.events > self.expected:
            lost_count += self.end.events - self.expected
        events, dropped = self._with_known_calls(events, usable)
        resolved, completions, cancelled = self._tables()
        if dropped or lost_count:
            resolved = resolved[events.index_of(resolved[:, 0])[1]]
        counted = {
            call: row for call, row in self.counted.items() if call < len(usable) and usable[call]
        }
        capture = Capture(
            self.path,
            self._header(),
            self.defs,
            calls,
            events,
            resolved,
            completions,
            cancelled,
            counted,
            self.end,
            chunks,
            self.bytes,
            lost_events=lost_count + dropped,
            event_count=len(events),
            phases=self.phases,
            threads=self._threads(events),
            accesses=self._join_rows(layout.ACCESSES),
        )
        self._compare_with_end(capture)
        capture.damages = tuple(self.damages)
        return capture

    def _with_known_calls(self, events: Events, valid: Bools) -> tuple[Events, int]:
        """Drop the events whose call is lost or refers to what is not there."""
        if not len(events):
            return events, 0
        if valid.all() and int(events.call.max()) < len(valid):
            return events, 0
        usable = np.append(valid, False)[np.minimum(events.call, len(valid)).astype(np.int64)]
        dropped = len(events) - int(usable.sum())
        if not dropped:
            return events, 0
        if not self.damages:
            first = int(np.argmin(usable))
            ordinal = first if events.ordinal is None else int(events.ordinal[first])
            offset = [offset for start, offset in self.places if start <= ordinal][-1]
            self.damages.append(Damage(offset, "events of a call that is not there", False))
        return events.pick(usable), dropped

    def _tables(self) -> tuple[Ints, Ints, Bools]:
        none = np.empty((0, 4), dtype=np.int64)
        resolved = np.concatenate([none, *self.rows[layout.RESOLVED]])
        completions = np.concatenate([none[:, :2], *[rows for rows, _ in self.done]])
        cancelled = np.concatenate([np.empty(0, dtype=bool), *[flags for _, flags in self.done]])
        sources, tags = resolved[:, 1], resolved[:, 2]
        good = (sources >= -3) & (sources < self.header.size) & (resolved[:, 3] >= 0)
        good &= (tags >= -(1 << 31)) & (tags < 1 << 31) & (resolved[:, 0] < self.expected)
        inside = completions[:, 0] < self.expected
        # Of a rank that was killed, or of a lost chunk, the event can be the one that is missing.
        excused = bool(self.damages) or self.end is None
        if not excused and not (good.all() and inside.all()):
            where = self.header.header_bytes
            self.damages.append(Damage(where, "rows of events that are not there", False))
        return resolved[good], completions[inside], cancelled[inside]

    def _join_rows(self, kind: int) -> Ints | None:
        return np.concatenate(self.rows[kind]) if self.rows[kind] else None

    def _threads(self, events: Events) -> Threads | None:
        rows = self._join_rows(layout.THREADS)
        if rows is None:
            return None
        if self.end is not None and not self.damages and rows[:, 0].max() >= self.expected:
            where = self.header.header_bytes
            self.damages.append(Damage(where, "threads of events that are not there", False))
        return threads_at(rows, *events.index_of(rows[:, 0]))

    def _header(self) -> Header:
        """Return the header with the totals of END, which a checksum protects."""
        end = self.end
        if end is None:
            return self.header
        aborting = bool(end.flags & layout.ABORTING)
        header = self.header
        if end.memory is not None and header.minor >= layout.MEMORY_MINOR:
            init, peak, preempted = end.memory
            header = replace(header, resident_init=init, resident_peak=peak, preempted=preempted)
        return replace(
            header,
            failed_polls=end.failed_polls,
            failed_poll_ns=max(end.failed_poll_ns, 0),
            flags=end.flags,
            paused_calls=end.paused_calls,
            tracer_ns=max(end.tracer_ns, 0),
            in_call=0,
            paused=False,
            abort_code=header.abort_code if aborting else 0,
        )

    def _compare_with_end(self, capture: Capture) -> None:
        """Note where what is there is not what END says, unless a damage explains it."""
        end = capture.end
        if end is None or self.damages:
            return
        totals = {
            "events": (self.expected, end.events),
            "completions": (len(capture.done) if self.completions else self.done_rows, end.done),
            "resolved receives": (len(capture.resolved), end.resolved),
            "chunks": (capture.chunks, end.chunks),
            "definitions": (self.defs.records, end.defs_records),
            "calls": (len(capture.calls), end.calls),
            "sites": (len(self.defs.sites), end.sites),
        }
        for name, (count, written) in totals.items():
            if count != written:
                self.damages.append(
                    Damage(self.bytes, f"it has {count} of {written} {name}", False)
                )
                return
