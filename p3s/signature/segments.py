"""Segments: the computation from one call of a rank to its next, summed over the run.

A segment is the code between two places in the program (thesis section 5.3, the compute segments
between primitives). Calls that move nothing (partner MPI_PROC_NULL) are no ends of segments, as
their computation counts with the next call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

#: Columns of a table of segments, int64. from_node is -1 at the start of the run.
COLUMNS = ("rank", "from_node", "to_node", "count", "work")
_START = -1


def none(columns: Sequence[str] = COLUMNS) -> np.ndarray:
    """Return a table without rows, int64."""
    return np.zeros((0, len(columns)), dtype=np.int64)


class Pairs:
    """Places of a rank that follow each other, counted block by block; int64 columns.

    code: (place before + 1) * places + place, ascending, -1 before the first; count: how often;
    first: number of the first event at the end of such a pair; total: sum of what came with them.
    """

    def __init__(self, places: int) -> None:
        self.places = places
        self.last, self.taken = _START, 0
        none = np.zeros(0, dtype=np.int64)
        self.code, self.count, self.first, self.total = none, none, none, none

    def take(self, nodes: np.ndarray, values: np.ndarray | None = None) -> np.ndarray:
        """Count the next events, given as numbers of places; return the code of each."""
        before = np.concatenate([[self.last], nodes[:-1]]).astype(np.int64)
        codes: np.ndarray = (before + 1) * self.places + nodes
        if not len(codes):
            return codes
        pair, index, count = _occurring(codes, (self.places + 1) * self.places)
        first = np.zeros(len(pair), dtype=np.int64)
        at = np.arange(self.taken, self.taken + len(codes))
        first[index[::-1]] = at[::-1]  # the last one written is the first
        total = np.zeros(len(pair), dtype=np.int64)
        if values is not None:
            np.add.at(total, index, values)  # whole numbers: floats would lose digits of long runs
        self._merge(pair, count, first, total)
        self.last, self.taken = int(nodes[-1]), self.taken + len(codes)
        return codes

    def _merge(
        self, pair: np.ndarray, count: np.ndarray, first: np.ndarray, total: np.ndarray
    ) -> None:
        earlier = len(self.code)
        self.code, where = np.unique(np.concatenate([self.code, pair]), return_inverse=True)
        old, new = where[:earlier], where[earlier:]
        for name, values in (("count", count), ("total", total)):
            column = np.zeros(len(self.code), dtype=np.int64)
            column[old] = getattr(self, name)
            column[new] += values
            setattr(self, name, column)
        column = np.zeros(len(self.code), dtype=np.int64)
        column[new] = first
        column[old] = self.first  # what was there before came first
        self.first = column

    def rows(self, rank: int, *columns: np.ndarray) -> np.ndarray:
        """Return a row per pair: rank, place before, place, and these columns."""
        number = np.full(len(self.code), rank, dtype=np.int64)
        before, after = self.code // max(self.places, 1) - 1, self.code % max(self.places, 1)
        return np.stack([number, before, after, *columns], axis=1)


def _occurring(codes: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the codes that occur, ascending, an index of the first per event, how often each.

    Codes are below ``size``.
    """
    if size > max(4 * len(codes), 1 << 16):
        return np.unique(codes, return_inverse=True, return_counts=True)
    count = np.bincount(codes, minlength=size)
    pair = np.flatnonzero(count)
    return pair, index_in(pair, codes), count[pair].astype(np.int64)


def index_in(pair: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Return where each code is in ``pair``, which is ascending and has them all."""
    size = int(pair[-1]) + 1 if len(pair) else 0
    if size > max(4 * len(codes), 1 << 16):
        return np.searchsorted(pair, codes)
    index = np.zeros(size, dtype=np.int32)
    index[pair] = np.arange(len(pair), dtype=np.int32)
    indices: np.ndarray = index[codes]
    return indices


@dataclass(frozen=True)
class AtPlaces:
    """Sums over a run at one process count: a row per rank and place.

    places: (site, operation); rank, place: of each row, place a number of ``places``; values: int64
    (rows, columns); inside: share of the events that threads made in parallel regions.
    """

    places: tuple[tuple[str, str], ...]
    rank: np.ndarray
    place: np.ndarray
    values: np.ndarray
    inside: float = 0.0


def renumber_nodes(
    table: np.ndarray, node_to: np.ndarray, columns: Sequence[int] = (1, 2)
) -> np.ndarray:
    """Return rows with the nodes in some columns renumbered; of segments node_to[-1] must be -1."""
    out = table.copy()
    for k in columns:
        out[:, k] = node_to[table[:, k]]
    return out


def keep_least_work(tables: Sequence[tuple[np.ndarray, Sequence[tuple[str, str]]]]) -> np.ndarray:
    """Return the segments of the first of several runs, with the least work over all of them.

    tables: (segments, nodes) of each run; a segment counts where it occurs equally often.
    """
    first, nodes = tables[0]
    out = first.copy()
    number = {node: k for k, node in enumerate(nodes)}
    for other, names in tables[1:]:
        to = np.array([*(number.get(node, -2) for node in names), _START], dtype=np.int64)
        work_of = {(r, a, b): (k, w) for r, a, b, k, w in renumber_nodes(other, to).tolist()}
        for i, (r, a, b, k, w) in enumerate(out.tolist()):
            count, work = work_of.get((r, a, b), (0, w))
            if count == k:
                out[i, 4] = min(w, work)
    return out
