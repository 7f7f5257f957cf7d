"""The ranks of a run, decoded as they are asked for: as a whole, or some events at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from p3s.base import ops
from p3s.base.errors import P3SError
from p3s.capture.capture import Capture, event_blocks, read_capture
from p3s.capture.events import no_events
from p3s.capture.files import FileName
from p3s.capture.merge import CallsInBlocks, event_calls
from p3s.capture.types import ANY_SOURCE, Neighbours, Ranks, RankTrace

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Int64s = NDArray[np.int64]

#: Events that are read at a time, at least.
BLOCK_EVENTS = 1 << 20


@dataclass(frozen=True)
class Source:
    """What it takes to decode a rank: its file and the run's number of each of its calls.

    head: the rank without its events, of one that can be read in blocks; calls_of: its calls.
    """

    path: Path
    calls: Int64s
    resolved: Int64s
    problem: str
    files: dict[int, FileName]
    neighbours: Mapping[int, Neighbours]
    head: RankTrace | None = None
    calls_of: CallsInBlocks | None = None
    threads: NDArray[np.int32] | None = None
    events: int = 0

    def renumbered(self, final: Int64s) -> Source:
        """Return it with other numbers of the run's calls; final: of each, -1 of the last."""
        in_blocks = self.calls_of
        if in_blocks is not None:
            became = final[in_blocks.became]
            in_blocks = replace(in_blocks, calls=final[in_blocks.calls], became=became)
        return replace(
            self, calls=final[self.calls], resolved=final[self.resolved], calls_of=in_blocks
        )

    def pieces(self) -> Iterator[RankTrace]:
        """Yield the rank some events at a time: their calls, times, counters and threads."""
        head, in_blocks = self.head, self.calls_of
        assert head is not None and in_blocks is not None
        at = 0
        for events in event_blocks(self.path, BLOCK_EVENTS):
            if events.call.max(initial=0) >= len(self.calls):
                raise P3SError(f"{self.path} has changed while it was read; read it again")
            yield replace(
                head,
                call=in_blocks.of_block(at, events.call).astype("int32"),
                start_ns=events.start_ns,
                elapsed_ns=events.elapsed_ns,
                work=events.work,
                counters=events.counters,
                thread=None if self.threads is None else self.threads[events.call],
            )
            at += len(events)
        if at != self.events:
            raise P3SError(f"{self.path} has changed while it was read; read it again")


class LazyRanks(Ranks):
    """The ranks of a run, decoded one at a time as they are asked for."""

    def __init__(self, run_dir: Path, size: int, keep_all: bool = False) -> None:
        self._run_dir = run_dir
        self._size = size
        self._keep_all = keep_all
        self._sources: dict[int, Source] = {}
        self._kept: dict[int, RankTrace] = {}
        self._problems: dict[int, str] = {}

    def __len__(self) -> int:
        return self._size

    def rank(self, number: int) -> RankTrace:
        """Return the columns of one rank."""
        if number in self._kept:
            return self._kept[number]
        source = self._sources.get(number)
        if source is None:
            return _nothing(number, self._problems.get(number, ""))
        capture = read_capture(source.path)
        if len(capture.calls) != len(source.calls) or len(capture.resolved) != len(source.resolved):
            raise P3SError(f"{source.path} has changed while it was read; read it again")
        call = event_calls(capture, source.calls, source.resolved)
        trace = rank_trace(capture, call, source.calls, source.problem, source.files)
        trace = replace(trace, neighbours=source.neighbours)
        if self._keep_all:
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


def _nothing(rank: int, problem: str) -> RankTrace:
    import numpy as np

    none = np.empty(0, dtype=np.int64)
    return RankTrace(rank, False, none.astype(np.int32), none, none, none, problem=problem)


def rank_trace(
    capture: Capture, call: Int64s, calls: Int64s, problem: str, files: dict[int, FileName]
) -> RankTrace:
    import numpy as np

    events, header = capture.events, capture.header
    completing, there = events.index_of(capture.done[:, 0])
    posting, posted = events.index_of(capture.done[:, 1])
    both = there & posted
    return RankTrace(
        header.rank,
        not problem,
        call.astype(np.int32),
        events.start_ns,
        events.elapsed_ns,
        events.work,
        header.failed_polls,
        header.failed_poll_ns,
        problem,
        np.stack([completing, posting], axis=1)[both],
        capture.cancelled[both],
        events.counters,
        _counted(capture, calls),
        header.paused_calls,
        capture.counted_events,
        events.ordinal,
        _threads(capture),
        header.tracer_ns,
        events.gap,
        capture.phases,
        header.resident_bytes,
        header.preempted,
        capture.threads,
        capture.runtime,
        capture.team_threads,
        files,
        capture.accesses,
        anybody=_from_anybody(capture),
    )


def _from_anybody(capture: Capture) -> Int64s:
    """Return which events of a rank are receives or probes from MPI_ANY_SOURCE."""
    at, there = capture.events.index_of(capture.resolved[:, 0])
    peer = capture.calls["peer"][capture.events.call[at]]
    found: Int64s = at[there & (peer == ANY_SOURCE)]
    return found


def in_order(capture: Capture) -> bool:
    """Tell whether a rank can be read in blocks, one event after the other.

    Not where events are lost or only counted, or other tables say more of them: threads, places in
    files, requests that were cancelled, receives from anybody that are completed later.
    """
    events, more = capture.events, (capture.threads, capture.accesses, capture.events.gap)
    if capture.damages or events.ordinal is not None or any(each is not None for each in more):
        return False
    if capture.counted or capture.cancelled.any():
        return False
    waiting = [number for number, name in capture.opnames.items() if name in ops.POSTED]
    calls = capture.calls[capture.events.call[_from_anybody(capture)]]
    return not any((calls["op"] == number).any() for number in waiting)


def head_of(capture: Capture, calls: Int64s) -> RankTrace:
    """Return a rank without its events."""
    import numpy as np

    none = no_events(len(capture.header.counter_names))
    nothing = np.zeros((0, 4), dtype=np.int64)
    empty = replace(
        capture, events=none, resolved=nothing, done=nothing[:, :2], cancelled=capture.cancelled[:0]
    )
    problem = f"{capture.path} {capture.problem}" if capture.problem else ""
    return rank_trace(empty, nothing[:, 0], calls, problem, {})


def _threads(capture: Capture) -> NDArray[np.int32] | None:
    import numpy as np

    threads = capture.calls["thread"]
    return threads[capture.events.call].astype(np.int32) if threads.any() else None


def _counted(capture: Capture, calls: Int64s) -> dict[int, tuple[int, int, int]]:
    found: dict[int, tuple[int, int, int]] = {}
    for number, row in capture.counted.items():
        if number < len(calls) and calls[number] >= 0:
            call = int(calls[number])
            before = found.get(call, (0, 0, 0))
            found[call] = (before[0] + row[0], before[1] + row[1], before[2] + row[2])
    return found
