"""What the ranks of a run did to files at each place of the program, summed over the run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy
import numpy as np

from p3s.base.ops import IO, OPEN, POSIX, file_work, kind_of
from p3s.signature.segments import AtPlaces, none

if TYPE_CHECKING:
    from collections.abc import Sequence

    from p3s.capture import Call, RankTrace

#: calls: of the C library there are several in an event. placed: events whose place in the file is
#: known; dense: of these without holes; follows: those that begin where the one before ended;
#: truncates: those that open a file and drop what is in it; stride: bytes between the beginnings of
#: two in a row, -1 where it varies; first: first byte of the first. file: hash of the first file's
#: name; files: how many there are. aggregated: MPI's hint, 1: a collective call goes through some
#: ranks, 0: it does not, -1: not said.
SUMS = ("events", "calls", "bytes", "elapsed_ns", "placed", "dense", "follows", "truncates")
COLUMNS = ("rank", "node", *SUMS, "first", "stride", "file", "files", "aggregated")
_AGGREGATED = ("romio_cb_write", "romio_cb_read", "collective_buffering")


@dataclass(frozen=True)
class FileUse(AtPlaces):
    """What was done to files at each place; values: columns from the third."""

    def column(self, name: str) -> numpy.ndarray:
        """Return a column by its name."""
        values: numpy.ndarray = self.values[:, COLUMNS.index(name) - 2]
        return values


def has_file_calls(calls: Sequence[Call]) -> bool:
    """Tell whether some of a run's calls are of files."""
    return any(kind_of(c.op) == IO for c in calls)


def uses_of(rt: RankTrace, nodes: numpy.ndarray, calls: Sequence[Call]) -> numpy.ndarray:
    """Return the rows of a rank, columns COLUMNS; nodes: of all its events."""
    call = np.asarray(rt.call)
    of_files = np.array([kind_of(c.op) == IO for c in calls] or [False], dtype=bool)
    at = np.flatnonzero(of_files[call])
    if not len(at):
        return none(COLUMNS)
    number = np.array([c.count if c.op.startswith(POSIX) else 1 for c in calls], dtype=np.int64)
    size = np.array([c.bytes for c in calls], dtype=np.int64)
    window = np.array([c.window for c in calls], dtype=np.int64)
    truncates = np.array([_truncates(c) for c in calls], dtype=bool)
    begin, span = _places(rt, at)
    distinct_nodes, where = np.unique(nodes[at], return_inverse=True)
    out = np.zeros((len(distinct_nodes), len(COLUMNS)), dtype=np.int64)
    out[:, 0], out[:, 1] = rt.rank, distinct_nodes
    place_known = begin >= 0
    follows = _follows(window[call[at]], begin, span)
    for k, values in enumerate(
        (
            np.ones(len(at), dtype=np.int64),
            np.maximum(number[call[at]], 1),
            size[call[at]],
            np.asarray(rt.elapsed_ns)[at],
            place_known,
            place_known & (span == size[call[at]]),
            follows,
            truncates[call[at]],
        ),
        start=2,
    ):
        np.add.at(out[:, k], where, values)
    for i in range(len(distinct_nodes)):
        mine = where == i
        out[i, 2 + len(SUMS) :] = _of_place(rt, window[call[at]][mine], begin[mine & place_known])
    return out


def _truncates(call: Call) -> bool:
    """Tell whether it opens a file and drops what is in it (docs/capture-format.md, tag)."""
    return call.op.startswith(POSIX) and file_work(call.op) == OPEN and call.tag == 1


def _places(rt: RankTrace, at: numpy.ndarray) -> tuple[numpy.ndarray, numpy.ndarray]:
    """Return first byte (-1: not known) and span of the events number ``at``."""
    begin = np.full(len(at), -1, dtype=np.int64)
    span = np.zeros(len(at), dtype=np.int64)
    rows = getattr(rt, "accesses", None)
    if rows is None or not len(rows):
        return begin, span
    ordinal = at if rt.ordinal is None else rt.ordinal[at]
    where = np.minimum(np.searchsorted(rows[:, 0], ordinal), len(rows) - 1)
    recorded = rows[where, 0] == ordinal
    begin[recorded], span[recorded] = rows[where[recorded], 1], rows[where[recorded], 2]
    return begin, span


def _follows(window: numpy.ndarray, begin: numpy.ndarray, span: numpy.ndarray) -> numpy.ndarray:
    """Return which accesses begin where the one before them in the same file ended."""
    out = np.zeros(len(window), dtype=bool)
    order = np.lexsort((np.arange(len(window)), window))
    order = order[begin[order] >= 0]
    one, two = order[:-1], order[1:]
    out[two] = (window[one] == window[two]) & (begin[one] + span[one] == begin[two])
    return out


def _of_place(rt: RankTrace, window: numpy.ndarray, begin: numpy.ndarray) -> list[int]:
    """Return first, stride, file, files and aggregated of the events at a place."""
    names = [rt.files[w] for w in dict.fromkeys(window.tolist()) if w in rt.files]
    steps = np.unique(np.diff(begin))
    hints = [names[0].hints[key] for key in _AGGREGATED if key in names[0].hints] if names else []
    aggregated = {"enable": 1, "true": 1, "disable": 0, "false": 0}.get(
        hints[0] if hints else "", -1
    )
    return [
        int(begin[0]) if len(begin) else -1,
        int(steps[0]) if len(steps) == 1 and steps[0] >= 0 else -1,
        names[0].key >> 1 if names else 0,
        len({name.key for name in names}),
        aggregated,
    ]
