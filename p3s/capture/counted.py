"""Events that a capture only counted, put back: copies of those that they repeat.

A call of a well-known phase is only counted where it is the one that followed before
(p3s_phase.c), so what is recorded tells the order of all calls. Work and time in calls are those of
the events repeated, in proportion to what was counted of each call.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING

import numpy as np

from p3s.base.arrays import Bools, Floats, Ints
from p3s.capture.events import Events
from p3s.capture.threads import Threads

if TYPE_CHECKING:
    from p3s.capture.capture import Capture

#: Events that the tracer remembers.
_REMEMBERED = 1 << 18


def with_counted(capture: Capture) -> Capture:
    """Return a capture with the events that were only counted; as it is where they are unknown.

    Of a program that was ended, those after the last recorded event are there, too.
    """
    events, number = capture.events, sum(row[0] for row in capture.counted.values())
    if capture.phases is None or not number or events.ordinal is not None:
        return capture
    gap = np.zeros(len(events), dtype=np.int64) if events.gap is None else events.gap
    source, copied = _sources(events.call, np.append(gap, number - int(gap.sum())))
    repeats = np.bincount(events.call[source[copied]], minlength=len(capture.calls))
    if {int(call): int(repeats[call]) for call in np.flatnonzero(repeats)} != {
        call: row[0] for call, row in capture.counted.items()
    }:
        return capture
    row, completing = _repeat_rows(capture.done[:, 0], source)
    posting = _latest(capture.done[row, 1], completing, source)
    received, resolved = _repeat_rows(capture.resolved[:, 0], source)
    accesses = capture.accesses
    if accesses is not None:  # of none that was only counted
        accesses = accesses.copy()
        accesses[:, 0] = np.flatnonzero(~copied)[accesses[:, 0]]
    return replace(
        capture,
        events=_events(events, source, copied, capture.counted),
        resolved=np.column_stack([resolved, capture.resolved[received, 1:]]),
        done=np.column_stack([completing, posting]),
        cancelled=capture.cancelled[row],
        counted={},
        restored=number,
        event_count=len(source),
        threads=capture.threads and threads_again(capture.threads, source),
        accesses=accesses,
    )


def _sources(call: np.ndarray, gap: Ints) -> tuple[Ints, Bools]:
    """Return the recorded event that each event is or repeats, and which ones only repeat.

    gap: events that were only counted before each recorded event, and after the last.
    """
    size = len(call) + int(gap.sum())
    calls, source = np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64)
    copied = np.zeros(size, dtype=bool)
    last: dict[int, int] = {}
    now = following = 0
    for event, left_out in enumerate(gap.tolist()):
        if left_out:
            end, back = now + left_out, now - following
            for column in (calls, source) if back else ():
                column[now:end] = np.resize(column[following:now], left_out)
            copied[now:end] = True
            new = calls[max(now, end - back) : end].tolist()
            last.update(zip(new, range(end - len(new), end), strict=True))
            now, following = end, following + left_out
        if event == len(call):
            break
        number = int(call[event])
        before = last.get(number)
        again = following < now and calls[following] == number
        if not again and before is not None and now - before < _REMEMBERED:
            following = before + 1
        else:
            following += 1
        calls[now], source[now], last[number] = number, event, now
        now += 1
    return source, copied


def _repeat_rows(event: Ints, source: Ints) -> tuple[Ints, Ints]:
    """Return rows by their recorded events, again for every repetition: row and event of each."""
    order = np.argsort(source, kind="stable")
    number = np.bincount(source, minlength=int(event.max(initial=0)) + 1)
    times = number[event]
    row = np.repeat(np.arange(len(event)), times)
    turn = np.arange(len(row)) - np.repeat(np.cumsum(times) - times, times)
    new = order[(np.cumsum(number) - number)[event[row]] + turn]
    ascending = np.argsort(new, kind="stable")
    return row[ascending], new[ascending]


def _latest(recorded: Ints, until: Ints, source: Ints) -> Ints:
    """Return the last event up to another that is or repeats a recorded one."""
    order = np.argsort(source, kind="stable")
    size = len(source) + 1
    at = np.searchsorted(source[order] * size + order, recorded * size + until, side="right")
    events: Ints = order[at - 1]
    return events


def threads_again(threads: Threads, source: Ints) -> Threads:
    """Return what threads did before events; source: of each event, the one that it repeats."""
    row, event = _repeat_rows(threads.event, source)
    columns = {each.name: threads[each.name][row] for each in fields(Threads)}
    return Threads(**{**columns, "event": event})


def _events(
    events: Events, source: Ints, copied: Bools, counted: dict[int, tuple[int, int, int]]
) -> Events:
    """Return all events; of those that were only counted, times add up to what was counted."""
    call = events.call[source]
    if not len(events.work):  # bare
        return Events(call, events.start_ns, events.elapsed_ns, events.work, events.counters)
    columns = {}
    for name, column in (("elapsed_ns", 1), ("work", 2)):
        values = events[name][source].astype(np.int64)
        total = {number: row[column] for number, row in counted.items()}
        values[copied] = _adding_up(values[copied], call[copied].astype(np.int64), total)
        columns[name] = values
    start, elapsed = _starts(events, source, copied, columns["elapsed_ns"], columns["work"])
    return Events(call, start, elapsed, columns["work"], events.counters[source])


def _adding_up(values: Ints, call: Ints, total: dict[int, int]) -> Ints:
    """Return values in proportion, so that those of each call add up to its total."""
    size = int(call.max()) + 1
    totals = np.array([total.get(number, 0) for number in range(size)], dtype=np.float64)
    sums = np.bincount(call, weights=values, minlength=size)
    weight = np.where(sums[call] > 0, values, 1)
    sums = np.bincount(call, weights=weight, minlength=size)
    return _round_sums(
        weight * (totals / np.maximum(sums, 1))[call], np.argsort(call, kind="stable")
    )


def _round_sums(values: Floats, order: Ints) -> Ints:
    """Return whole numbers whose sums are nearest to those of values, in an order."""
    out = np.zeros(len(values), dtype=np.int64)
    out[order] = np.diff(np.rint(np.cumsum(values[order])), prepend=0)
    return out


def _starts(
    events: Events, source: Ints, copied: Bools, elapsed: Ints, work: Ints
) -> tuple[Ints, Ints]:
    """Return when events begin, and their times: no longer than from one recorded to the next."""
    gap, size = (np.cumsum(~copied) - 1)[copied], len(events)  # by the recorded event before it
    ends = events.start_ns + events.elapsed_ns
    weights = np.bincount(gap, weights=work[copied] + 1, minlength=size)
    took = np.bincount(gap, weights=elapsed[copied], minlength=size)
    room = np.append(events.start_ns[1:], ends[-1] + int(weights[-1] + took[-1])) - ends
    shorter = np.minimum(1.0, room / np.maximum(took, 1))
    elapsed, start = elapsed.copy(), events.start_ns[source].astype(np.int64)
    elapsed[copied] = elapsed[copied] * shorter[gap]
    took = np.bincount(gap, weights=elapsed[copied], minlength=size)
    before = (work[copied] + 1) * ((room - took) / np.maximum(weights, 1))[gap]
    after = np.cumsum(before + elapsed[copied])
    each = np.bincount(gap, weights=before + elapsed[copied], minlength=size)
    start[copied] = ends[gap] + after - (np.cumsum(each) - each)[gap] - elapsed[copied]
    return start, elapsed
