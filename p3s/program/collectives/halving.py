"""Folding to a power of two, recursive halving of a vector, and the ways back.

Used by Rabenseifner's algorithm and by reduce-scatter; in Open MPI 4.1.4 (unchanged in 5.0.9) in
ompi/mca/coll/base/coll_base_{allreduce,reduce,reduce_scatter,reduce_scatter_block}.c, in MPICH
5.0.1 in src/mpi/coll/{allreduce,reduce}/*_intra_reduce_scatter_*.c and
src/mpi/coll/reduce_scatter*/*_recursive_halving.c.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from p3s.program.collectives.job import Job, power_below, shares
from p3s.program.collectives.writer import ADD, Writer
from p3s.simulate.steps import Ints


@dataclass(frozen=True)
class Folded:
    """The power of two of members that go on: ``real[v]`` is the member with new number v.

    Of the first 2 * ``rest`` members every second one has given its vector to its neighbour;
    ``out`` are those, ``keeper`` their neighbours.
    """

    rest: int
    real: Ints
    out: Ints
    keeper: Ints

    @staticmethod
    def numbers(p: int, keep_odd: bool) -> Folded:
        """Return who goes on, without any message."""
        power = power_below(p)
        rest = p - power
        pairs = 2 * np.arange(rest)
        keeper = pairs + 1 if keep_odd else pairs
        real = np.concatenate((keeper, np.arange(2 * rest, p)))
        return Folded(rest, real, pairs if keep_odd else pairs + 1, keeper)

    @staticmethod
    def into_odd(w: Writer, job: Job) -> Folded:
        """Even members send their vector to the next one."""
        return Folded.numbers(job.p, True)._give(w, job)

    @staticmethod
    def into_even(w: Writer, job: Job) -> Folded:
        """Odd members send their vector to the one before."""
        return Folded.numbers(job.p, False)._give(w, job)

    def _give(self, w: Writer, job: Job) -> Folded:
        w.send(self.out, self.keeper, 0, job.nbytes)
        w.recv(self.keeper, self.out, job.nbytes, ADD)
        return self

    @staticmethod
    def by_halves(w: Writer, job: Job) -> Folded:
        """Both add one half of the vector; the odd member then hands over its half."""
        folded = Folded.numbers(job.p, False)
        left = job.count // 2 * job.element
        right = job.nbytes - left
        out, keeper = folded.out, folded.keeper
        w.exchange(out, keeper, 0, left, keeper, right, ADD)
        w.exchange(keeper, out, left, right, out, left, ADD)
        w.send(out, keeper, left, right)
        w.recv(keeper, out, right)
        return folded

    def give_back(self, w: Writer, job: Job) -> None:
        """Send the whole result to those that have dropped out."""
        w.send(self.keeper, self.out, 0, job.nbytes)
        w.recv(self.out, self.keeper, job.nbytes)


@dataclass(frozen=True)
class Windows:
    """Units of the vector that are halved: unit u begins at byte ``at[u]`` (or u * ``scale``)."""

    units: int
    at: Ints | None
    scale: int

    def byte(self, unit: Ints) -> Ints:
        """Return where units begin."""
        return unit * self.scale if self.at is None else self.at[unit]


@dataclass(frozen=True)
class Halved:
    """For every halving step: mask, and per new number what was sent and what was kept."""

    masks: tuple[int, ...]
    sent: tuple[tuple[Ints, Ints], ...]
    kept: tuple[tuple[Ints, Ints], ...]


def windows_of(job: Job, power: int, *, blocks: bool) -> Windows:
    """Return elements, or ``power`` blocks that are as even as possible, as units."""
    if not blocks:
        return Windows(job.count, None, job.element)
    return Windows(power, shares(power, job.nbytes, job.element), 0)


def merged_blocks(job: Job, folded: Folded) -> Windows:
    """Return the members' own blocks as units, those of a folded pair together."""
    power = len(folded.real)
    first = np.concatenate((2 * np.arange(folded.rest), np.arange(2 * folded.rest, job.p), [job.p]))
    return Windows(power, job.at[first], 0)


def halve(
    w: Writer,
    job: Job,
    folded: Folded,
    windows: Windows,
    *,
    far_first: bool = False,
    skip_empty: bool = False,
) -> Halved:
    """Exchange halves until every member that goes on has one share of the reduced vector.

    Near partners first (the vector's halves by the lowest bit) or far ones (by the highest).
    """
    power = len(folded.real)
    v = np.arange(power)
    masks = [1 << i for i in range((power - 1).bit_length())]
    if far_first:
        masks.reverse()
    low, high = np.zeros(power, dtype=np.int64), np.full(power, windows.units)
    sent, kept = [], []
    for mask in masks:
        lower = v & mask == 0
        middle = (low + high) // 2
        gone = (np.where(lower, middle, low), np.where(lower, high, middle))
        low, high = np.where(lower, low, middle), np.where(lower, middle, high)
        sent.append(gone)
        kept.append((low, high))
        first = windows.byte(gone[0])
        n, n2 = windows.byte(gone[1]) - first, windows.byte(high) - windows.byte(low)
        partner = folded.real[v ^ mask]
        both = (n > 0) & (n2 > 0) if skip_empty else np.ones(power, dtype=bool)
        w.exchange(
            folded.real[both], partner[both], first[both], n[both], partner[both], n2[both], ADD
        )
        w.send(
            folded.real[~both & (n > 0)],
            partner[~both & (n > 0)],
            first[~both & (n > 0)],
            n[~both & (n > 0)],
        )
        w.recv(folded.real[~both & (n2 > 0)], partner[~both & (n2 > 0)], n2[~both & (n2 > 0)], ADD)
    return _in_bytes(windows, masks, sent, kept)


def _in_bytes(
    windows: Windows, masks: list[int], sent: list[tuple[Ints, Ints]], kept: list[tuple[Ints, Ints]]
) -> Halved:
    def sizes(pieces: list[tuple[Ints, Ints]]) -> tuple[tuple[Ints, Ints], ...]:
        return tuple((windows.byte(a), windows.byte(b) - windows.byte(a)) for a, b in pieces)

    return Halved(tuple(masks), sizes(sent), sizes(kept))


def double_back(w: Writer, folded: Folded, halved: Halved) -> None:
    """Exchange the reduced shares in the opposite order until all have the whole vector."""
    v = np.arange(len(folded.real))
    for i in reversed(range(len(halved.masks))):
        partner = folded.real[v ^ halved.masks[i]]
        first, n = halved.kept[i]
        w.exchange(folded.real, partner, first, n, partner, halved.sent[i][1])


def gather_back(w: Writer, job: Job, folded: Folded, halved: Halved) -> None:
    """Send the reduced shares towards the root; it may have dropped out when folding."""
    real, root, rest = folded.real.copy(), job.root, folded.rest
    if root in folded.out.tolist():
        n = halved.kept[-1][1][0]
        w.send([real[0]], root, halved.kept[-1][0][0], n)
        w.recv([root], real[0], n)
        real[0], goal = root, 0
    else:
        goal = root // 2 if root < 2 * rest else root - rest
    v = np.arange(len(real))
    going = np.ones(len(real), dtype=bool)
    for i in reversed(range(len(halved.masks))):
        partner = v ^ halved.masks[i]
        sends = going & (partner >> i == goal >> i)
        takes = going & ~sends
        first, n = halved.kept[i]
        w.send(real[sends], real[partner[sends]], first[sends], n[sends])
        w.recv(real[takes], real[partner[takes]], halved.sent[i][1][takes])
        going = takes
