"""Events of a rank with others in their place: what is called once, as the messages it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from p3s.base import ops
from p3s.base.arrays import Bools, Ints
from p3s.capture.types import (
    PROC_NULL,
    Call,
    RankTrace,
    RunTrace,
    Site,
    no_events,
    no_flags,
    no_pairs,
)

#: A completion of one request, where what it completes is several messages.
OF_MANY = {
    "MPI_Wait": "MPI_Waitall",
    "MPI_Test": "MPI_Testall",
    "MPI_Waitany": "MPI_Waitsome",
    "MPI_Testany": "MPI_Testsome",
}


@dataclass
class CallBook:
    """The calls and sites of a run, which grow by those that are put in the place of others."""

    calls: list[Call]
    sites: list[Site] = field(default_factory=list)
    _number: dict[Call, int] = field(default_factory=dict)
    _site: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._number = {call: number for number, call in enumerate(self.calls)}
        self._site = {site.key: number for number, site in enumerate(self.sites)}

    def site(self, site: Site) -> int:
        """Return the number of a place in the program, a new one if the run has none like it."""
        if site.key not in self._site:
            self._site[site.key] = len(self.sites)
            self.sites.append(site)
        return self._site[site.key]

    def number(self, call: Call) -> int:
        """Return the number of a call, a new one if there is none like it."""
        if call not in self._number:
            self._number[call] = len(self.calls)
            self.calls.append(call)
        return self._number[call]


@dataclass(frozen=True)
class Parts:
    """What stands in place of some events of a rank; parts are numbered from 0.

    ``event``: of each part the index of the event that it stands for, ascending; an event without
    parts stays as it is, one with parts has these instead. ``call``: their numbers in the book.
    ``done``: rows (part that completes, part that posted). ``stands``: rows (event, part): where a
    later event completes the request that the event left, it completes that part; a request of
    an event that has parts, but no such row, is none any more. ``late``: parts behind the event's
    own, which take nothing of its time; none where it is empty. ``single``: a request is one part
    at most, so that what completes it stays what it is. ``gone``: events, without parts, that are
    left out.
    """

    event: Ints = field(default_factory=no_events)
    call: Ints = field(default_factory=no_events)
    done: Ints = field(default_factory=no_pairs)
    stands: Ints = field(default_factory=no_pairs)
    late: Bools = field(default_factory=no_flags)
    single: bool = False
    gone: Ints = field(default_factory=no_events)


class Family:
    """A kind of calls that are read as messages, and what all ranks tell of them."""

    def takes(self, op: str) -> bool:
        """Tell whether calls of a name are replaced."""
        raise NotImplementedError

    def asks(self, run: RunTrace, call: Call) -> bool:
        """Tell whether a call can be replaced only when it is known what all ranks did."""
        raise NotImplementedError

    def learn(self, run: RunTrace) -> None:
        """Add what the ranks of a run tell."""
        raise NotImplementedError

    def parts(self, run: RunTrace, rt: RankTrace, book: CallBook) -> Parts:
        """Return what stands in place of a rank's events; calls that it needs go into the book."""
        raise NotImplementedError


@dataclass
class Laying:
    """Parts that are put one behind the other, those of an event behind those of events before it.

    done, stands, late: as in Parts.
    """

    book: CallBook
    event: list[int] = field(default_factory=list)
    call: list[int] = field(default_factory=list)
    late: list[bool] = field(default_factory=list)
    done: list[tuple[int, int]] = field(default_factory=list)
    stands: list[tuple[int, int]] = field(default_factory=list)

    def add(self, event: int, call: Call, late: bool = False) -> int:
        """Put a part; return its number."""
        self.event.append(event)
        self.call.append(self.book.number(call))
        self.late.append(late)
        return len(self.event) - 1

    def parts(self, single: bool = False) -> Parts:
        """Return all parts; single: as in Parts."""
        completions, stands = (
            np.array(rows, dtype=np.int64).reshape(-1, 2) for rows in (self.done, self.stands)
        )
        event, call = (np.array(each, dtype=np.int64) for each in (self.event, self.call))
        return Parts(event, call, completions, stands, np.array(self.late, dtype=bool), single)


def replace_events(rt: RankTrace, parts: Parts, book: CallBook) -> RankTrace:
    """Return a rank with parts in place of events, and without those that are gone.

    Of several parts the first has the work and the counters before the event, the last that is a
    message or a completion (none to MPI_PROC_NULL) has its time. A completion of requests that
    are several messages now completes all of these. What lies before an event that is gone lies
    before the next; its time adds to that of the one before.
    """
    if not len(parts.event) and not len(parts.gone):
        return rt
    place = _Places.of(len(rt.call), parts)
    call = np.asarray(rt.call, dtype=np.int64)[place.source]
    call[place.part] = parts.call
    completions, cancelled, touched = _requests(rt, parts, place)
    if not parts.single:
        _completions(call, completions, touched, rt, place, book)
    late = place.part[np.flatnonzero(parts.late)]
    start, elapsed = _times(rt, place, call, book, late)
    ordinal = rt.ordinal
    if ordinal is not None:
        ordinal = (ordinal - np.cumsum(place.size == 0))[place.source]
    threads = rt.threads
    if threads is not None:
        threads = replace(threads, event=place.first[threads.event])
    return replace(
        rt,
        call=call.astype(np.int32),
        start_ns=start,
        elapsed_ns=elapsed,
        work=place.at_first(rt.work),
        counters=place.at_first(rt.counters) if len(rt.counters) else rt.counters,
        gap=None if rt.gap is None else place.at_first(rt.gap),
        ordinal=ordinal,
        thread=None if rt.thread is None else rt.thread[place.source],
        threads=threads,
        done=completions,
        cancelled=cancelled,
        accesses=_accesses(rt, place),
        anybody=place.first[rt.anybody[place.size[rt.anybody] > 0]],
    )


def sum_before_kept(values: Ints, keep: Ints) -> Ints:
    """Return the sums of what lies before events that are kept and those left out before them."""
    if len(keep) == len(values):
        return np.array(values, dtype=np.int64)
    total = np.cumsum(np.asarray(values, dtype=np.int64), axis=0)[keep]
    return np.diff(total, axis=0, prepend=np.zeros_like(total[:1]))


def _accesses(rt: RankTrace, place: _Places) -> Ints | None:
    """Return the accesses to files by the new numbers, or ordinals, of their events."""
    if rt.accesses is None or not len(rt.accesses):
        return rt.accesses
    accesses = rt.accesses.copy()
    if rt.ordinal is None:
        accesses[:, 0] = place.first[accesses[:, 0]]
    else:
        accesses[:, 0] -= np.searchsorted(rt.ordinal[place.size == 0], accesses[:, 0])
    return accesses


@dataclass(frozen=True)
class _Places:
    """Where events go: ``size``: places of each event, ``first`` and ``last`` of them (of one that
    is gone: those of the next and of the event before), ``source``: event of each place, ``part``:
    place of each part, ``has``: which events have parts."""

    size: Ints
    first: Ints
    last: Ints
    source: Ints
    part: Ints
    has: Bools

    @staticmethod
    def of(events: int, parts: Parts) -> _Places:
        of_part = parts.event
        count = np.bincount(of_part, minlength=events)
        size = np.maximum(count, 1)
        size[parts.gone] = 0
        first = np.cumsum(size) - size
        begins = np.cumsum(count) - count
        part = first[of_part] + np.arange(len(of_part)) - begins[of_part]
        source = np.repeat(np.arange(events), size)
        return _Places(size, first, first + size - 1, source, part, count > 0)

    @cached_property
    def kept(self) -> Ints:
        """The events that are not gone."""
        return np.flatnonzero(self.size)

    def at_first(self, values: Ints) -> Ints:
        out = np.zeros((len(self.source), *values.shape[1:]), dtype=np.int64)
        out[self.first[self.kept]] = sum_before_kept(values, self.kept)
        return out


def _requests(rt: RankTrace, parts: Parts, place: _Places) -> tuple[Ints, Bools, Ints]:
    """Return completions and which are cancelled, and the events that complete parts of others."""
    added = place.part[parts.done] if len(parts.done) else no_pairs()
    remaining = (place.size[rt.done] > 0).all(axis=1)
    rows, flags = rt.done[remaining], rt.cancelled[remaining]
    posting = rows[:, 1]
    changed = place.has[posting]
    order = np.argsort(parts.stands[:, 0], kind="stable")
    of, part = parts.stands[order].T
    low, high = np.searchsorted(of, posting), np.searchsorted(of, posting, side="right")
    number = np.where(changed, high - low, 1)
    row = np.repeat(np.arange(len(posting)), number)
    turn = np.arange(len(row)) - np.repeat(np.cumsum(number) - number, number)
    at = place.first[posting[row]]
    several = changed[row]
    at[several] = place.part[part[(low[row] + turn)[several]]]
    pairs = np.stack([place.last[rows[row, 0]], at], axis=1)
    touched = np.unique(rows[changed, 0])
    cancelled = np.concatenate([np.zeros(len(added), dtype=bool), flags[row]])
    return np.concatenate([added, pairs]), cancelled, touched


def _completions(
    call: Ints, completions: Ints, touched: Ints, rt: RankTrace, place: _Places, book: CallBook
) -> None:
    """Give completions of parts the name and the number of requests that they have now."""
    if not len(touched):
        return
    before = np.bincount(rt.done[:, 0], minlength=len(rt.call))
    now = np.bincount(completions[:, 0], minlength=len(call))
    at = place.last[touched]
    more = now[at] - before[touched]
    keys, inverse = np.unique(np.stack([call[at], more], axis=1), axis=0, return_inverse=True)
    numbers = [book.number(_of_many(book.calls[int(number)], int(k))) for number, k in keys]
    call[at] = np.array(numbers, dtype=np.int64)[inverse.reshape(-1)]


def _of_many(call: Call, more: int) -> Call:
    number = call.bytes + more
    return replace(call, op=OF_MANY.get(call.op, call.op), bytes=number, count=number)


def _times(
    rt: RankTrace, place: _Places, call: Ints, book: CallBook, late: Ints
) -> tuple[Ints, Ints]:
    """Return when the parts begin and how long they take."""
    remaining = place.kept
    if not len(remaining):
        return remaining, remaining
    null = nulls(book.calls)[call]
    null[late] = True
    place_of = np.where(null, -1, np.arange(len(call)))
    carrier = np.maximum.reduceat(place_of, place.first[remaining])
    carrier = np.where(carrier >= 0, carrier, place.last[remaining])
    took = np.asarray(rt.elapsed_ns, dtype=np.int64)
    elapsed = np.zeros(len(call), dtype=np.int64)
    elapsed[carrier] = np.add.reduceat(took, remaining)
    start = np.asarray(rt.start_ns, dtype=np.int64)[place.source]
    behind = np.arange(len(call)) > np.repeat(carrier, place.size[remaining])
    start[behind] += took[place.source[behind]]
    return start, elapsed


def nulls(calls: Sequence[Call]) -> Bools:
    """Return which calls are messages to or from MPI_PROC_NULL."""
    messages = (ops.SEND, ops.RECV)
    return np.array(
        [call.peer == PROC_NULL and ops.kind_of(call.op) in messages for call in calls], dtype=bool
    )
