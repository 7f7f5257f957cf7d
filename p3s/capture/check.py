"""Checks captures: what is there, what is wrong, whether sends and receives agree."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from p3s.base import ops
from p3s.base.arrays import Ints
from p3s.base.artefacts import reason
from p3s.base.errors import P3SError
from p3s.base.records import count_of, was_ended
from p3s.base.text import plural, processes
from p3s.capture import layout
from p3s.capture.capture import Capture, intact_chunks, rank_of, read_capture
from p3s.capture.chunks import Header
from p3s.capture.layout import NAME
from p3s.capture.order import Forward, backwards
from p3s.capture.reader import no_capture, of_another_run
from p3s.capture.recover import Place
from p3s.capture.types import ANY_SOURCE

COMPLETE, PARTIAL, DAMAGED, MISSING, UNREADABLE = (
    "complete",
    "partial",
    "damaged",
    "missing",
    "unreadable",
)
#: Events that are looked at at a time.
_BLOCK_EVENTS = 1 << 20
#: Pairs of ranks named when their messages do not match.
_NAMED_PAIRS = 3

Pairs = Counter[tuple[int, int]]


@dataclass
class _Messages:
    """Messages of a run by (sender, receiver), as the two sides recorded them.

    ``unclear``: ranks with receives of which it is not known what they received.
    """

    sent: Pairs = field(default_factory=Counter)
    received: Pairs = field(default_factory=Counter)
    unclear: set[int] = field(default_factory=set)


@dataclass(frozen=True)
class RankCheck:
    """What one rank's file is worth.

    ``status``: complete, partial (intact, but not to the end), damaged, unreadable (its header
    is), missing. ``chunks`` are intact ones; ``usable`` tells whether anything can be read or
    recovered.
    """

    rank: int
    path: Path
    status: str
    events: int = 0
    bytes: int = 0
    chunks: int = 0
    lost_events: int = 0
    counted_events: int = 0
    paused_calls: int = 0
    in_handlers: int = 0
    problem: str = ""

    @property
    def usable(self) -> bool:
        """Whether the file holds at least one intact chunk."""
        return self.chunks > 0


@dataclass(frozen=True)
class RunCheck:
    """What one run is worth: its ranks, and what is wrong with or to be said of the whole."""

    path: Path
    np: int
    status: str
    ranks: tuple[RankCheck, ...]
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def usable(self) -> bool:
        """Whether anything of the run can be read or recovered."""
        return any(rank.usable for rank in self.ranks)


def check(place: Place) -> RunCheck:
    """Check one run or one capture file; nothing in it raises, everything is in the result."""
    if place.file:
        one, capture = _check_file(place.path, 0)
        size = capture.header.size if capture is not None else 0
        return RunCheck(place.path, size, one.status, (one,), notes=_notes([one]))
    try:
        return _check_run(place.path)
    except OSError as error:  # of another user, or the disk fails: no reason to skip other runs
        return RunCheck(place.path, 0, UNREADABLE, (), (f"cannot be read: {reason(error)}",))


def _read(path: Path) -> tuple[Capture, str]:
    """Return a capture with bare events, and where its time goes backwards, if anywhere."""
    forward = Forward()
    capture = read_capture(
        path, completions=False, each=lambda e: forward.take(e.start_ns, e.elapsed_ns)
    )
    if not capture.calls["thread"].any():
        return capture, forward.backwards()
    events = read_capture(path, completions=False).events  # each thread has a time of its own
    threads = capture.calls["thread"][events.call]
    return capture, backwards(events.start_ns, events.elapsed_ns, threads)


def _check_file(path: Path, rank: int) -> tuple[RankCheck, Capture | None]:
    try:
        capture, turned = _read(path)
    except P3SError as error:
        return _unreadable(path, rank, str(error)), None
    problem = capture.problem or turned
    damaged = capture.damages or turned
    status = DAMAGED if damaged else PARTIAL if problem else COMPLETE
    rank_check = RankCheck(
        capture.header.rank,
        path,
        status,
        capture.event_count,
        capture.bytes,
        capture.chunks,
        capture.lost_events,
        capture.counted_events,
        capture.header.paused_calls,
        capture.header.in_handlers,
        problem,
    )
    return rank_check, capture


def _unreadable(path: Path, rank: int, why: str) -> RankCheck:
    """Return what a file without a readable header still holds."""
    chunks = events = 0
    try:
        size = path.stat().st_size
        for chunk, _ in intact_chunks(path, None):
            chunks += 1
            rank = chunk.rank
            events += chunk.count if chunk.kind == layout.EVENTS else 0
    except OSError:
        size = 0
    problem = why.removeprefix(f"{path} ").removeprefix(f"{path}: ").partition("; ")[0]
    if chunks:
        problem += f"; {chunks} intact chunks can be recovered"
    return RankCheck(rank, path, UNREADABLE, events, size, chunks, problem=problem)


def _check_run(run_dir: Path) -> RunCheck:
    ranks: dict[int, RankCheck] = {}
    headers: dict[str, Header] = {}
    problems: list[str] = []
    messages = _Messages()
    os.listdir(run_dir)  # glob finds nothing where it may not look
    for path in sorted(run_dir.glob("rank-*.p3t")):
        named = rank_of(path)
        if named is None:
            problems.append(f"{path.name} is not the name of a rank's file")
            continue
        one, capture = _check_file(path, named)
        if one.rank in ranks or path.name != NAME.format(one.rank):
            problems.append(f"{path.name} is the file of rank {one.rank}; it was renamed")
            continue
        ranks[one.rank] = one
        if capture is not None:
            headers[path.name] = capture.header
            _count_messages(capture, messages)
    info, wrong = _info_of(run_dir)
    problems += wrong
    if not ranks:
        problems.append(f"there is no capture: {no_capture(run_dir)}")
    if other := of_another_run(headers):
        problems.append(f"runs are mixed: {other}")
    sizes = [header.size for header in headers.values()]
    size = max(sizes, default=max(ranks, default=-1) + 1)
    if sizes and size != (expected_size := count_of(run_dir) or size):
        problems.append(f"it is a run of {processes(size)}, not {expected_size}")
    for rank in range(size):
        if rank not in ranks:
            path = run_dir / NAME.format(rank)
            ranks[rank] = RankCheck(rank, path, MISSING, problem="is missing")
    listed = tuple(ranks[rank] for rank in sorted(ranks))
    notes = list(_notes(listed))
    if was_ended(info):
        notes.append("the program was ended once its phases were known (--stop)")
        listed = tuple(
            replace(rank, status=COMPLETE) if rank.status == PARTIAL else rank for rank in listed
        )
    complete = bool(listed) and not problems and all(rank.status == COMPLETE for rank in listed)
    if complete and not any(rank.events + rank.counted_events for rank in listed):
        notes.append("there is not one event: nothing can be characterized")
    if complete and not notes:  # all messages of the run were recorded
        notes += _note_unmatched(messages)
    return RunCheck(
        run_dir,
        size,
        COMPLETE if complete else _worst(listed),
        listed,
        tuple(problems),
        tuple(notes),
    )


def _info_of(run_dir: Path) -> tuple[dict[str, Any], list[str]]:
    """Return run.json, {} where there is none, or what is wrong with it: such a run is not used."""
    from p3s.base.records import read_run

    if not os.path.lexists(run_dir / "run.json"):
        return {}, []
    try:
        return read_run(run_dir), []
    except P3SError as err:
        why = str(err).removeprefix(f"{run_dir / 'run.json'}: ")
        return {}, [f"run.json cannot be used, and so the run is not: {why}"]


def _worst(ranks: tuple[RankCheck, ...]) -> str:
    if not any(rank.usable for rank in ranks):
        return UNREADABLE
    bad = {rank.status for rank in ranks}
    return DAMAGED if bad & {DAMAGED, UNREADABLE} else PARTIAL


def _count_messages(capture: Capture, messages: _Messages) -> None:
    """Add this rank's messages by (sender, receiver); cancelled ones moved nothing."""
    calls, me = capture.calls, capture.header.rank
    kinds = {number: ops.kind_of(name) for number, name in capture.defs.opnames.items()}
    calls_of = {
        kind: np.isin(calls["op"], [number for number, k in kinds.items() if k == kind])
        for kind in (ops.SEND, ops.RECV)
    }
    for call, peer in _peers(capture):
        for kind, pairs in ((ops.SEND, messages.sent), (ops.RECV, messages.received)):
            chosen = peer[calls_of[kind][call]]
            if (chosen == ANY_SOURCE).any():
                messages.unclear.add(me)
            ranks, counts = np.unique(chosen[chosen >= 0], return_counts=True)
            for other, count in zip(ranks.tolist(), counts.tolist(), strict=True):
                pairs[(me, other) if kind == ops.SEND else (other, me)] += count


def _peers(capture: Capture) -> Iterator[tuple[NDArray[np.unsignedinteger], Ints]]:
    """Yield the calls of events and whom they send to or received from, some at a time.

    -1 of what was cancelled.
    """
    events = capture.events
    at, present = events.index_of(capture.resolved[:, 0])
    order = np.argsort(at[present], kind="stable")
    received, sources = at[present][order], capture.resolved[present, 1][order]
    at, present = events.index_of(capture.done[:, 1])
    cancelled = np.sort(at[present & capture.cancelled])
    for first in range(0, len(events), _BLOCK_EVENTS):
        call = events.call[first : first + _BLOCK_EVENTS]
        peer = capture.calls["peer"][call].astype(np.int64)
        for where, peers in ((received, sources), (cancelled, np.full(len(cancelled), -1))):
            low, high = np.searchsorted(where, [first, first + len(call)])
            peer[where[low:high] - first] = peers[low:high]
        yield call, peer


def _note_unmatched(messages: _Messages) -> list[str]:
    """Return a note when what was sent is not what was received."""
    sent, received = messages.sent, messages.received
    pairs = [
        pair
        for pair in sorted(sent | received)
        if sent[pair] != received[pair] and pair[1] not in messages.unclear
    ]
    if not pairs:
        return []
    mismatches = "; ".join(
        f"rank {a} sent {sent[(a, b)]} to rank {b}, which received {received[(a, b)]}"
        for a, b in pairs[:_NAMED_PAIRS]
    )
    more = f"; and {len(pairs) - _NAMED_PAIRS} more pairs" if len(pairs) > _NAMED_PAIRS else ""
    return [f"messages do not match: {mismatches}{more}"]


def _notes(ranks: tuple[RankCheck, ...] | list[RankCheck]) -> tuple[str, ...]:
    notes = []
    counted = sum(rank.counted_events for rank in ranks)
    paused = sum(rank.paused_calls for rank in ranks)
    if counted:
        notes.append(
            f"{plural(counted, 'event was', 'events were')} only counted (after the limit, or of "
            "phases seen often enough)"
        )
    if paused:
        calls = plural(paused, "call was", "calls were")
        notes.append(f"{calls} made while MPI_Pcontrol had switched recording off")
    if handlers := sum(rank.in_handlers for rank in ranks):
        notes.append(f"{plural(handlers, 'call', 'calls')} in signal handlers: not recorded")
    return tuple(notes)
