"""What a collective has to do: sizes, root, and how its vector is divided."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from p3s.program.collectives.writer import Writer
from p3s.simulate.steps import Ints

#: A pipelined message is cut into at most this many segments; they grow beyond that.
MOST_SEGMENTS = 1024


@dataclass(frozen=True)
class Job:
    """One collective on members 0 to p - 1.

    The virtual vector has ``at[-1]`` bytes and is divided at ``at`` (p + 1 entries): the block of
    each member in a gather, scatter or all-gather, the results of a reduce-scatter; what each
    member sends in an all-to-all. ``element``: bytes of one element of a reduction. ``segment``:
    bytes of a segment, 0 if the messages are not cut; ``pieces``: or cut into so many, all but
    the last of the same size. ``radix``: of a k-nomial tree.
    ``perform(writer, call, at, root)`` writes another collective with the algorithm that the
    library would choose for it ("iallreduce": for its nonblocking twin).
    """

    p: int
    root: int
    at: Ints
    element: int
    segment: int
    radix: int
    perform: Callable[[Writer, str, Ints, int], None]
    pieces: int = 1

    @property
    def nbytes(self) -> int:
        """Bytes of the whole vector."""
        return int(self.at[-1])

    @property
    def count(self) -> int:
        """Elements of the whole vector."""
        return self.nbytes // self.element

    @property
    def everyone(self) -> Ints:
        """All members."""
        return np.arange(self.p)

    @property
    def others(self) -> Ints:
        """All members but the root, in their order."""
        return np.delete(np.arange(self.p), self.root)

    def blocks(self, first: Ints, number: Ints | int) -> tuple[Ints, Ints]:
        """Return (first byte, bytes) of ``number`` blocks from block ``first`` on, with wrap."""
        twice = np.concatenate((self.at, self.nbytes + self.at[1:]))
        first = np.asarray(first) % self.p
        return self.at[first], twice[first + number] - twice[first]

    def cut(self) -> list[tuple[int, int]]:
        """Return (first byte, bytes) of each segment; one piece if there is no segment size."""
        total = self.nbytes
        if self.pieces > 1 and self.count >= self.pieces:
            even = self.count // self.pieces * self.element
            last = (self.pieces - 1) * even
            return [(i * even, even) for i in range(self.pieces - 1)] + [(last, total - last)]
        if not 0 < self.segment < total:
            return [(0, total)]
        step = max(self.segment // self.element, 1) * self.element
        if total > step * MOST_SEGMENTS:
            step = -(-total // (MOST_SEGMENTS * self.element)) * self.element
        return [(lo, min(step, total - lo)) for lo in range(0, total, step)]


def whole(p: int, nbytes: int) -> Ints:
    """Return the division of a vector that is not divided: everything in the last block."""
    at = np.zeros(p + 1, dtype=np.int64)
    at[p] = nbytes
    return at


def shares(p: int, nbytes: int, element: int) -> Ints:
    """Return the division into p blocks of elements, the first ones one element longer."""
    count = nbytes // element
    i = np.arange(p + 1)
    at = (i * (count // p) + np.minimum(i, count % p)) * element
    at[p] = nbytes
    return at


def power_below(p: int) -> int:
    """Return the largest power of two that is not above p."""
    return 1 << (p.bit_length() - 1)
