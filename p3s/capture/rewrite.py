"""Runs with messages in place of the calls that act like messages.

A family (p3s.capture.parts) says which of a rank's events are replaced by which parts. What a part
is called, and what it acts like, stands in p3s.base.ops. The capture keeps the calls as the program
makes them; runs are read this way for characterizing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from p3s.base import ops
from p3s.capture import requests
from p3s.capture.neighbours import Graphs
from p3s.capture.one_sided import OneSidedCalls
from p3s.capture.partitions import Partitions
from p3s.capture.parts import CallBook, Family, Parts, replace_events
from p3s.capture.types import (
    Ranks,
    RankTrace,
    RunTrace,
    named_outside,
    present_ranks,
    unmodelled_events,
)

#: What stands in place of the events of a rank.
Replacing = Callable[[RunTrace, RankTrace, CallBook], Parts]


@dataclass
class FamilySet:
    """The families, with what the ranks tell together.

    Communicators and windows of different captures have different numbers: families name them by
    members and ordinals.
    """

    graphs: Graphs = field(default_factory=Graphs)
    partitions: Partitions = field(default_factory=Partitions)
    accesses: OneSidedCalls = field(default_factory=OneSidedCalls)

    def families(self, run: RunTrace) -> list[Family]:
        """Return the families of a run's calls."""
        every: tuple[Family, ...] = (self.graphs, self.partitions, self.accesses)
        return [each for each in every if any(each.takes(call.op) for call in run.calls)]

    def asks(self, run: RunTrace) -> bool:
        """Tell whether one of them must know what all ranks did."""
        return any(each.asks(run, call) for each in self.families(run) for call in run.calls)

    def learn(self, run: RunTrace) -> None:
        """Add what the ranks of a run tell."""
        for each in self.families(run):
            each.learn(run)


class Messages:
    """Reads the ranks of a run, one file at a time, with messages in place of calls.

    All files are read once more where a rank makes calls of which it does not know enough itself.
    """

    def __init__(self, paths: Iterable[Path]) -> None:
        self._paths = tuple(paths)
        self._known: FamilySet | None = None

    def read(self, path: Path) -> RunTrace:
        """Return the run of one rank (p3s.capture.read_file), whole; RankTrace.done only where
        needed."""
        from p3s.capture.reader import read_file

        run = named_outside(read_file(path, completions=False, whole=True))
        families = FamilySet().families(run)
        if _in_blocks(run) and not families:
            return run
        some_cancelled = requests.some_cancelled(run)
        from_anybody = requests.some_from_anybody(run)
        replaced_ops = {
            call.op for call in run.calls if any(each.takes(call.op) for each in families)
        }
        if from_anybody or any(map(_leaves_request, replaced_ops)):
            run = named_outside(read_file(path, whole=True))
        if some_cancelled:
            run = _rewrite(run, requests.without_cancelled)
        if from_anybody:
            run = _rewrite(run, requests.in_order_of_ranks)
        return as_messages(run, self._gather(run)) if replaced_ops else run

    def _gather(self, run: RunTrace) -> FamilySet:
        """Return what all ranks tell, nothing if the calls of this one don't ask for it."""
        from p3s.capture.reader import read_file

        if not FamilySet().asks(run):
            return FamilySet()
        if self._known is None:
            families = FamilySet()
            for path in self._paths:
                families.learn(named_outside(read_file(path, whole=True)))
            self._known = families
        return self._known


def _in_blocks(run: RunTrace) -> bool:
    """Tell whether all ranks of a run are long and can be read in blocks."""
    pieces = getattr(run.ranks, "pieces", None)
    present = getattr(run.ranks, "present", ())
    return pieces is not None and all(pieces(rank) is not None for rank in present)


def as_messages(run: RunTrace, families: FamilySet) -> RunTrace:
    """Return a run with messages in place of calls; the same run where it has no such calls.

    families: what all ranks tell, see Messages.
    """
    for family in families.families(run):
        run = _rewrite(run, family.parts)
    return run


def whole_as_messages(run: RunTrace) -> RunTrace:
    """Return a run that was read as a whole (read_run) with messages in place of calls."""
    families, run = FamilySet(), named_outside(run)
    if families.asks(run):
        families.learn(run)
    return as_messages(run, families)


def _leaves_request(op: str) -> bool:
    partitioned = ops.kind_of(op) == ops.PARTITIONED
    return ops.leaves_request(op) or partitioned or op in ops.REQUEST_BASED


def _rewrite(run: RunTrace, replacing: Replacing) -> RunTrace:
    book = CallBook(list(run.calls), list(run.sites))
    ranks: dict[int, RankTrace] = {}
    for rank in present_ranks(run):
        rt = run.ranks[rank]
        ranks[rank] = replace_events(rt, replacing(run, rt, book), book)
    used = np.zeros(len(book.calls), dtype=np.int64)
    for rt in ranks.values():
        used += rt.made(len(used))
    keep = np.flatnonzero(used)
    to = np.cumsum(used > 0) - 1
    for rank, rt in ranks.items():
        counted = {int(to[call]): row for call, row in rt.counted.items()}
        ranks[rank] = replace(rt, call=to[rt.call].astype(np.int32), counted=counted)
    calls = tuple(book.calls[number] for number in keep.tolist())
    unmodelled = unmodelled_events(calls, run.comms, used[keep].tolist())
    lazy = _Rewritten(run.ranks, ranks)
    return replace(run, calls=calls, ranks=lazy, unmodelled=unmodelled, sites=tuple(book.sites))


class _Rewritten(Ranks):
    """The ranks of a run, those that have events rewritten."""

    def __init__(self, ranks: Sequence[RankTrace], rewritten: dict[int, RankTrace]) -> None:
        self._ranks, self._rewrite = ranks, rewritten
        self.present = sorted(rewritten)

    def __len__(self) -> int:
        return len(self._ranks)

    def rank(self, number: int) -> RankTrace:
        """Return the columns of one rank."""
        return self._rewrite[number] if number in self._rewrite else self._ranks[number]
