"""Ways of messages over directed links, and what they carry."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from p3s.machine.topology.units import Floats, Ints


@dataclass(frozen=True)
class Routes:
    """The links that messages pass, in order.

    The k-th message passes ``link[start[k]:start[k + 1]]``.
    """

    start: Ints
    link: Ints

    def __len__(self) -> int:
        return len(self.start) - 1

    def of(self, message: int) -> list[int]:
        """Return the links of one message."""
        return [int(x) for x in self.link[self.start[message] : self.start[message + 1]]]

    @property
    def message(self) -> Ints:
        """The number of the message of each entry of ``link``."""
        return np.repeat(np.arange(len(self), dtype=np.int64), np.diff(self.start))


def compress(hops: Sequence[Ints], messages: int) -> Routes:
    """Return routes from columns, one for each hop that a message may make; -1: it makes none."""
    table = np.empty((messages, len(hops)), dtype=np.int32)
    for k, column in enumerate(hops):
        table[:, k] = column
    passed = table >= 0
    start = np.zeros(messages + 1, dtype=np.int64)
    np.cumsum(passed.sum(axis=1), out=start[1:])
    return Routes(start, table[passed].astype(np.int64))


def joined(parts: Sequence[Routes]) -> Routes:
    """Return the routes of the messages of all parts, one after the other."""
    counts = [np.diff(part.start) for part in parts]
    start = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(np.concatenate(counts))])
    return Routes(start, np.concatenate([part.link for part in parts]))


def loads(routes: Routes, nbytes: Floats | Ints, links: int) -> Floats:
    """Return the bytes that each of ``links`` links carries; ``nbytes``: of each message."""
    each = np.repeat(np.asarray(nbytes, dtype=np.float64), np.diff(routes.start))
    found = np.bincount(routes.link, weights=each, minlength=links)
    return np.asarray(found, dtype=np.float64)
