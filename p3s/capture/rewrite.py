"""Runs with messages in place of the calls that act like messages.

A *family* is a kind of such calls: it says which of a rank's events are replaced by which parts
(p3s.capture.parts). What a part is called, and what it acts like, stands in p3s.base.ops. The
capture keeps the calls as the program makes them; runs are read this way for characterizing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from p3s.base import ops
from p3s.base.arrays import Ints
from p3s.capture import anybody, cancelled, neighbours, one_sided, partitions
from p3s.capture.arrivals import Accesses
from p3s.capture.parts import CallBook, Parts, replaced
from p3s.capture.types import (
    Call,
    Ranks,
    RankTrace,
    RunTrace,
    named_outside,
    present_ranks,
    unmodelled_events,
)


@dataclass
class Known:
    """What the ranks tell together, for families in which one rank does not tell enough.

    A field for each such family, filled by its ``learn`` rank by rank. Communicators and windows
    of different captures have different numbers: fields name them by members and ordinals.
    ``partitions``: into how many parts messages of a way are cut by those that send them.
    ``accesses``: what the ranks do to each other's windows. ``graphs``: the ranks' neighbours.
    """

    partitions: dict[partitions.Way, set[int]] = field(default_factory=dict)
    accesses: Accesses = field(default_factory=Accesses)
    graphs: neighbours.Graphs = field(default_factory=neighbours.Graphs)


def _nothing(run: RunTrace, call: Call) -> bool:
    return False


def _no_lesson(run: RunTrace, known: Known) -> None:
    return None


@dataclass(frozen=True)
class Family:
    """Calls that are read as messages.

    takes: whether it replaces calls of a name; parts: what stands in place of a rank's events,
    calls that it needs put into the book; asks: whether a call can be replaced only when it is
    known what all ranks did; learn: adds what the run of one rank tells.
    """

    takes: Callable[[str], bool]
    parts: Callable[[RunTrace, RankTrace, CallBook, Known], Parts]
    asks: Callable[[RunTrace, Call], bool] = _nothing
    learn: Callable[[RunTrace, Known], None] = _no_lesson


FAMILIES = (
    Family(
        neighbours.takes,
        lambda run, rt, book, known: neighbours.parts(run, rt, book, known.graphs),
        neighbours.asks,
        lambda run, known: neighbours.learn(run, known.graphs),
    ),
    Family(
        partitions.takes,
        lambda run, rt, book, known: partitions.parts(run, rt, book, known.partitions),
        lambda run, call: partitions.asks(call.op),
        lambda run, known: partitions.learn(run, known.partitions),
    ),
    Family(
        one_sided.asks,
        lambda run, rt, book, known: one_sided.parts(run, rt, book, known.accesses),
        lambda run, call: one_sided.asks(call.op),
        lambda run, known: one_sided.learn(run, known.accesses),
    ),
)


#: Not of FAMILIES: what they take is there or not in a run whatever its calls are named.
_CANCELLED = Family(cancelled.takes, lambda run, rt, book, known: cancelled.parts(run, rt, book))
_ANYBODY = Family(anybody.takes, lambda run, rt, book, known: anybody.parts(run, rt, book))


class Messages:
    """Reads the ranks of a run, one file at a time, with messages in place of calls.

    All files are read once more where a rank makes calls of which it does not know enough itself.
    """

    def __init__(self, paths: Iterable[Path]) -> None:
        self._paths = tuple(paths)
        self._known: Known | None = None

    def read(self, path: Path) -> RunTrace:
        """Return the run of one rank (p3s.capture.read_file); RankTrace.done only where needed."""
        from p3s.capture.reader import read_file

        run = named_outside(read_file(path, completions=False))
        if _in_blocks(run) and not any(_taken(call.op) for call in run.calls):
            return run
        some_cancelled = cancelled.there(run)
        from_anybody = anybody.there(run)
        taken = any(_taken(call.op) for call in run.calls)
        if not (some_cancelled or from_anybody or taken):
            return run
        if from_anybody or any(_leaves_request(call.op) for call in run.calls if _taken(call.op)):
            run = named_outside(read_file(path))
        if some_cancelled:
            run = _rewritten(run, _CANCELLED, Known())
        if from_anybody:
            run = _rewritten(run, _ANYBODY, Known())
        return as_messages(run, self._gathered(run)) if taken else run

    def _gathered(self, run: RunTrace) -> Known:
        """Return what all ranks tell, nothing if the calls of this one don't ask for it."""
        if not any(family.asks(run, call) for family in FAMILIES for call in run.calls):
            return Known()
        if self._known is None:
            self._known = _learned(self._paths)
        return self._known


def _in_blocks(run: RunTrace) -> bool:
    """Tell whether all ranks of a run are long and can be read in blocks."""
    pieces = getattr(run.ranks, "pieces", None)
    present = getattr(run.ranks, "present", ())
    return pieces is not None and all(pieces(rank) is not None for rank in present)


def _learned(paths: Iterable[Path]) -> Known:
    from p3s.capture.reader import read_file

    known = Known()
    for path in paths:
        run = named_outside(read_file(path))
        for family in FAMILIES:
            family.learn(run, known)
    return known


def as_messages(run: RunTrace, known: Known) -> RunTrace:
    """Return a run with messages in place of calls; the same run where it has no such calls.

    known: what all ranks tell, see Messages.
    """
    for family in FAMILIES:
        if any(family.takes(call.op) for call in run.calls):
            run = _rewritten(run, family, known)
    return run


def whole_as_messages(run: RunTrace) -> RunTrace:
    """Return a run that was read as a whole (read_run) with messages in place of calls."""
    known, run = Known(), named_outside(run)
    for family in FAMILIES:
        if any(family.asks(run, call) for call in run.calls):
            family.learn(run, known)
    return as_messages(run, known)


def _leaves_request(op: str) -> bool:
    partitioned = ops.kind_of(op) == ops.PARTITIONED
    return ops.leaves_request(op) or partitioned or op in ops.REQUEST_BASED


def _taken(op: str) -> bool:
    return any(family.takes(op) for family in FAMILIES)


def _rewritten(run: RunTrace, family: Family, known: Known) -> RunTrace:
    book = CallBook(list(run.calls), list(run.sites))
    ranks = _Rewritten(run, family, known, book)
    used = ranks.used()
    keep = np.flatnonzero(used[: len(book.calls)])
    ranks.number = np.full(len(used) + 1, -1, dtype=np.int64)
    ranks.number[keep] = np.arange(len(keep))
    calls = tuple(book.calls[number] for number in keep.tolist())
    unmodelled = unmodelled_events(calls, run.comms, used[keep].tolist())
    sites = tuple(book.sites)
    return replace(run, calls=calls, ranks=ranks, unmodelled=unmodelled, sites=sites)


class _Rewritten(Ranks):
    """The ranks of a run, rewritten one at a time as they are asked for; a single one is kept."""

    def __init__(self, run: RunTrace, family: Family, known: Known, book: CallBook) -> None:
        self._run, self._family, self._known, self._book = run, family, known, book
        self._kept: dict[int, RankTrace] = {}
        self.present = present_ranks(run)
        self.number: Ints | None = None

    def used(self) -> Ints:
        """Return the number of events of each call of the book, with all ranks' calls in it."""
        used = np.zeros(0, dtype=np.int64)
        for rank in self.present:
            rt = self._rewrite(rank)
            if len(self.present) == 1:
                self._kept[rank] = rt
            mine = np.bincount(rt.call, minlength=max(len(self._book.calls), len(used)))
            for call, row in rt.counted.items():
                mine[call] += row[0]
            mine[: len(used)] += used
            used = mine.astype(np.int64)
        return used

    def _rewrite(self, rank: int) -> RankTrace:
        rt = self._run.ranks[rank]
        parts = self._family.parts(self._run, rt, self._book, self._known)
        return replaced(rt, parts, self._book)

    def __len__(self) -> int:
        return len(self._run.ranks)

    def rank(self, number: int) -> RankTrace:
        """Return the columns of one rank."""
        to = self.number
        assert to is not None  # after used()
        rt = self._kept[number] if number in self._kept else self._rewrite(number)
        counted = {int(to[call]): row for call, row in rt.counted.items()}
        return replace(rt, call=to[rt.call].astype(np.int32), counted=counted)
