"""What a collective has to do, and trees and halvings of those who do it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from p3s.base.arrays import Ints
from p3s.program.collectives.writer import ADD, STORE, Pieces, Writer

#: A pipelined message is cut into at most this many segments; they grow beyond that.
MOST_SEGMENTS = 1024


@dataclass(frozen=True)
class Job:
    """One collective on members 0 to p - 1.

    The virtual vector has ``at[-1]`` bytes and is divided at ``at`` (p + 1 entries): the block of
    each member in a gather, scatter or all-gather, the results of a reduce-scatter; what each
    member sends in an all-to-all. ``element``: bytes of one element of a reduction. ``segment``:
    bytes of a segment, 0 if the messages are not cut; ``pieces``: or cut into so many, all but
    the last of the same size.
    ``perform(writer, call, at, root)`` writes another collective with the algorithm that the
    library would choose for it ("iallreduce": for its nonblocking twin).
    """

    p: int
    root: int
    at: Ints
    element: int
    segment: int
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


Tree = tuple[Ints, Ints]


def _width(p: int) -> int:
    return max((p - 1).bit_length(), 1)


@cache
def binary(p: int) -> Tree:
    """Every member of level l has children 2^l and 2^(l+1) further on."""
    v = np.arange(p)
    level = np.floor(np.log2(v + 1)).astype(np.int64)
    kids = v[:, None] + (1 << level)[:, None] * np.array([1, 2])
    return _parents(p, np.where(kids < p, kids, -1))


@cache
def binomial(p: int) -> Tree:
    """Children are the members with one higher bit set, the nearest first."""
    v = np.arange(p)
    above = np.where(v > 0, 1 << np.floor(np.log2(np.maximum(v, 1)) + 1).astype(np.int64), 1)
    kids = np.full((p, _width(p)), -1, dtype=np.int64)
    for i in range(_width(p)):
        bit = above << i
        kids[:, i] = np.where((bit < p) & (v + bit < p), v + bit, -1)
    return _parents(p, kids)


@cache
def knomial(p: int, radix: int) -> Tree:
    """As binomial in base ``radix``, the biggest subtree first."""
    v = np.arange(p)
    masks = [1]
    while masks[-1] * radix < p:
        masks.append(masks[-1] * radix)
    columns = []
    for mask in reversed(masks):
        for times in range(1, radix):
            kid = v + mask * times
            columns.append(np.where((v % (radix * mask) == 0) & (kid < p), kid, -1))
    return _parents(p, np.stack(columns, axis=1))


@cache
def in_order(p: int) -> Tree:
    """Children are the members with one of the trailing zero bits set, the nearest first."""
    parent, kids = knomial(p, 2)
    return parent, kids[:, ::-1]


@cache
def chain(p: int) -> Tree:
    """Every member has the next one as its child."""
    kids = np.append(np.arange(1, p), -1)[:, None]
    return _parents(p, kids)


@cache
def in_order_binary(p: int) -> Tree:
    """Binary tree whose left and right subtrees are runs of members, root p - 1, by member."""
    kids = np.full((p, 2), -1, dtype=np.int64)
    todo = [(0, p)]
    while todo:
        first, size = todo.pop()
        parent, right = first + size - 1, size >> 1
        left = size - right - 1
        if size > 1:
            kids[parent, 0] = parent - 1
        if left > 0:
            todo.append((first + right, left))
        if size > 2:
            kids[parent, 1] = first + right - 1
            todo.append((first, right))
    return _parents(p, kids)


def _parents(p: int, kids: Ints) -> Tree:
    parent = np.full(p, -1, dtype=np.int64)
    for column in range(kids.shape[1]):
        has = kids[:, column] >= 0
        parent[kids[has, column]] = np.flatnonzero(has)
    return parent, kids


def from_root(w: Writer, job: Job) -> tuple[Writer, Job]:
    """Return writer and job in which member v is the one v further on than the root."""
    return w.among((job.everyone + job.root) % job.p), replace(job, root=0)


def binomial_moves(
    w: Writer,
    p: int,
    n: Ints,
    first: Ints | int = 0,
    how: int = STORE,
    *,
    up: bool,
    empty: bool = True,
    pieces: Callable[[], Pieces] | None = None,
) -> None:
    """Move along a binomial tree that keeps the order of members, to member 0 or from it.

    first, n: first byte and bytes of what each member sends up, or receives, by member; ``empty``:
    nothing is sent, too. The nearest children send first; the biggest subtree receives first.
    """
    first = np.broadcast_to(first, n.shape)
    for mask in masks(p) if up else reversed(masks(p)):
        kid = np.arange(mask, p, 2 * mask)
        kid = kid if empty else kid[n[kid] > 0]
        ends = (kid, kid - mask) if up else (kid - mask, kid)
        w.move(*ends, first[kid], n[kid], how, pieces=pieces)


def around(w: Writer, job: Job, first: Ints, n: Ints, ahead: int = 0) -> None:
    """Send every block around a ring; member r begins with block r + ``ahead``."""
    p, r = job.p, job.everyone
    for i in range(p - 1):
        mine = (r + ahead - i) % p
        w.trade(r, (r + 1) % p, first[mine], n[mine])


def masks(p: int) -> list[int]:
    """Return the powers of two below ``p``."""
    return [1 << i for i in range((p - 1).bit_length())]


def subtrees(p: int, mask: int) -> tuple[Ints, Ints, Ints]:
    """Return the member ``mask`` away from each, and the first of its own subtree and of that."""
    r = np.arange(p)
    return r ^ mask, r & ~(mask - 1), (r ^ mask) & ~(mask - 1)


def without_partner(p: int, mask: int) -> Iterator[tuple[Ints, Ints]]:
    """Yield (who sends, to whom) of the steps after one of recursive doubling.

    Members whose partner ``mask`` away is not there (its subtree ends beyond ``p``) get what others
    of their own subtree have received.
    """
    r = np.arange(p)
    _, tree, far = subtrees(p, mask)
    complete = p - tree - mask
    for half in reversed(masks(mask)):
        other, bottom = r ^ half, r & ~(2 * half - 1)
        short = (far + mask > p) & (r < other) & (other < p)
        has = short & (r < bottom + complete) & (other >= bottom + complete)
        yield r[has], other[has]


@dataclass(frozen=True)
class PowerOfTwo:
    """The power of two of members that go on: ``real[v]`` is the member with new number v.

    Of the first 2 * ``rest`` members every second one has given its vector to its neighbour;
    ``out`` are those, ``keeper`` their neighbours.
    """

    rest: int
    real: Ints
    out: Ints
    keeper: Ints

    @staticmethod
    def numbers(p: int, keep_odd: bool) -> PowerOfTwo:
        """Return who goes on, without any message."""
        rest = p - power_below(p)
        pairs = 2 * np.arange(rest)
        keeper, out = pairs + keep_odd, pairs + (not keep_odd)
        return PowerOfTwo(rest, np.concatenate((keeper, np.arange(2 * rest, p))), out, keeper)

    @staticmethod
    def whole(w: Writer, job: Job, *, keep_odd: bool) -> PowerOfTwo:
        """Every second member sends its vector to the next one, or to the one before."""
        folded = PowerOfTwo.numbers(job.p, keep_odd)
        w.move(folded.out, folded.keeper, 0, job.nbytes, ADD)
        return folded

    @staticmethod
    def by_halves(w: Writer, job: Job) -> PowerOfTwo:
        """Both add one half of the vector; the odd member then hands over its half."""
        folded = PowerOfTwo.numbers(job.p, False)
        upper_half = job.count // 2 * job.element
        out, keeper = folded.out, folded.keeper
        both, others = np.concatenate((out, keeper)), np.concatenate((keeper, out))
        leaves = np.arange(len(both)) < len(out)
        size = np.where(leaves, upper_half, job.nbytes - upper_half)
        w.trade(both, others, np.where(leaves, 0, upper_half), size, ADD)
        w.move(out, keeper, upper_half, job.nbytes - upper_half)
        return folded

    def give_back(self, w: Writer, job: Job) -> None:
        """Send the whole result to those that have dropped out."""
        w.move(self.keeper, self.out, 0, job.nbytes)


#: Units of a vector that are halved: their number, and the byte at which each begins.
Units = tuple[int, Callable[[Ints], Ints]]
#: What each member that goes on has kept in a step of halving: mask, first bytes, bytes.
Kept = tuple[int, Ints, Ints]


def elements_of(job: Job) -> Units:
    """Return elements as units."""
    return job.count, lambda unit: unit * job.element


def blocks_of(job: Job, folded: PowerOfTwo, *, even: bool) -> Units:
    """Return a block for each member that goes on: as ``even`` as can be, or members' own ones.

    Those of a folded pair are together.
    """
    power = len(folded.real)
    edges = np.concatenate((2 * np.arange(folded.rest), np.arange(2 * folded.rest, job.p), [job.p]))
    at = shares(power, job.nbytes, job.element) if even else job.at[edges]
    return power, lambda unit: at[unit]


def halve(
    w: Writer, folded: PowerOfTwo, units: Units, *, far_first: bool = False, empty: bool = True
) -> list[Kept]:
    """Exchange halves until every member that goes on has one share of the reduced vector.

    Near partners first (the vector's halves by the lowest bit) or far ones (by the highest);
    ``empty``: nothing is sent, too.
    """
    number, byte = units
    v = np.arange(len(folded.real))
    low, high = np.zeros_like(v), np.full_like(v, number)
    halves = []
    for mask in masks(len(v))[:: -1 if far_first else 1]:
        lower, middle = v & mask == 0, (low + high) // 2
        first, last = byte(np.where(lower, middle, low)), byte(np.where(lower, high, middle))
        low, high = np.where(lower, low, middle), np.where(lower, middle, high)
        w.trade(folded.real, folded.real[v ^ mask], first, last - first, ADD, empty=empty)
        halves.append((mask, byte(low), byte(high) - byte(low)))
    return halves


def double_back(w: Writer, folded: PowerOfTwo, halves: list[Kept]) -> None:
    """Exchange the reduced shares in the opposite order until all have the whole vector."""
    v = np.arange(len(folded.real))
    for mask, first, n in reversed(halves):
        w.trade(folded.real, folded.real[v ^ mask], first, n)


def gather_back(w: Writer, job: Job, folded: PowerOfTwo, halves: list[Kept]) -> None:
    """Send the reduced shares towards the root; it may have dropped out when folding."""
    real, root, rest = folded.real.copy(), job.root, folded.rest
    goal = root // 2 if root < 2 * rest else root - rest
    if root in folded.out.tolist():
        _, first, n = halves[-1]
        w.move(real[0], root, first[0], n[0])
        real[0], goal = root, 0
    v = np.arange(len(real))
    going = np.ones(len(real), dtype=bool)
    for i, (mask, first, n) in reversed(list(enumerate(halves))):
        sends = going & ((v ^ mask) >> i == goal >> i)
        w.move(real[sends], real[v[sends] ^ mask], first[sends], n[sends])
        going &= ~sends
