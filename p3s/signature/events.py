"""The sequence of events of every rank as row numbers of its tables, null events included.

A *code* is the number of the event's row among the rows of its rank (0: the first), or, for an
event that moves nothing and has no row, -1 - the number of its node. Ranks that do the same have
equal codes: those are kept once.
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
#: Events kept of one process count, of ranks that differ; of longer runs there are only samples.
MAX_EVENTS = 1 << 26


class Sequences:
    """Keeps the codes of all ranks, or of none where they are too many."""

    def __init__(self, most: int = MAX_EVENTS) -> None:
        self.kept: dict[int, np.ndarray] = {}
        self._known: dict[bytes, np.ndarray] = {}
        self._left = most

    def offer(self, rank: int, codes: np.ndarray | None) -> None:
        """Keep a rank's codes, unless there is no room (None: too many): then nothing is kept."""
        if codes is None:
            self.drop()
        if self._left < 0 or codes is None:
            return
        small = compact(codes)
        key = small.dtype.char.encode() + hashlib.blake2b(small.data).digest()
        if key not in self._known:
            self._left -= len(small)
            if self._left < 0:
                self.drop()
                return
            self._known[key] = small
        self.kept[rank] = self._known[key]

    def drop(self) -> None:
        """Keep nothing: some rank's codes are not known."""
        self.kept, self._known, self._left = {}, {}, -1


def compact(codes: np.ndarray) -> np.ndarray:
    """Return codes in two bytes each where they fit, else in four."""
    bound = np.iinfo(np.int16)
    small = not len(codes) or bool(codes.min() >= bound.min and codes.max() <= bound.max)
    return codes.astype(np.int16 if small else np.int32, copy=False)


class Codes:
    """The codes of one rank, given block by block; of too many events there are none."""

    def __init__(self) -> None:
        self._blocks: list[np.ndarray] = []
        self.events = 0

    def take(self, node: np.ndarray, keep: np.ndarray, row: np.ndarray) -> None:
        """Take the next events: the node of each, and the row of the call of those in ``keep``."""
        self.events += len(node)
        if self.events > MAX_EVENTS:
            self._blocks = []
            return
        codes = -1 - np.asarray(node, dtype=np.int64)
        codes[keep] = row
        self._blocks.append(compact(codes))

    def finish(self, rows: np.ndarray) -> np.ndarray | None:
        """Return the codes, None of too many events; rows: those the rank uses, ascending."""
        if self.events > MAX_EVENTS:
            return None
        local = np.zeros(int(rows[-1]) + 1 if len(rows) else 1, dtype=np.int64)
        local[rows] = np.arange(len(rows))
        moved = [np.where(b >= 0, local[np.maximum(b, 0)], b) for b in self._blocks]
        return np.concatenate([compact(block) for block in moved])


def renumbered(codes: np.ndarray, node_to: np.ndarray) -> np.ndarray:
    """Return codes with the nodes of null events under other numbers."""
    null = codes < 0
    if not null.any():
        return codes
    out = codes.astype(np.int64)
    out[null] = -1 - node_to[-1 - out[null]]
    return out


def distinct(sequences: dict[int, np.ndarray]) -> list[tuple[list[int], np.ndarray]]:
    """Return (ranks that share it, codes) of every kept sequence, in the order of first ranks."""
    found: dict[int, tuple[list[int], np.ndarray]] = {}
    for rank, codes in sequences.items():
        found.setdefault(id(codes), ([], codes))[0].append(rank)
    return list(found.values())


def nodes_of(codes: np.ndarray, first: int, of_row: Ints) -> Ints:
    """Return the node of each event (codes of a rank whose rows begin at ``first``)."""
    wide = codes.astype(np.int64)
    null = wide < 0
    out: Ints = of_row[np.where(null, 0, wide + first)] if len(of_row) else -1 - wide
    out[null] = -1 - wide[null]
    return out
