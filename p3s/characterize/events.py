"""The sequence of events of every rank as row numbers of its tables, null events included.

A *code* is the number of the event's row among the rows of its rank (0: the first), or, for an
event that moves nothing and has no row, -1 - the number of its node. Ranks that do the same have
equal codes: those are kept once.
"""

from __future__ import annotations

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

    def offer(self, rank: int, codes: np.ndarray) -> None:
        """Keep a rank's codes, unless there is no room: then nothing is kept."""
        if self._left < 0:
            return
        small = compact(codes)
        key = small.dtype.char.encode() + small.tobytes()
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
    return codes.astype(np.int16 if small else np.int32)


def codes_of(row: np.ndarray, keep: np.ndarray, node: np.ndarray, rows: int) -> np.ndarray:
    """Return the codes of a rank's events.

    row: number of the call's row for the events number ``keep``, of ``rows`` in the run; node:
    of all events. The rank's rows are those it uses, in ascending order.
    """
    local = np.zeros(rows, dtype=np.int64)
    local[row] = 1
    local = np.cumsum(local) - 1
    codes = -1 - np.asarray(node, dtype=np.int64)
    codes[keep] = local[row]
    return codes


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
