"""Who belongs to whom: messages by channel, collectives by communicator, each by its number.

A *channel* is (source, destination, communicator, tag): messages on it do not overtake each other
(MPI 4.1, 3.5), so its k-th send belongs to its k-th receive in the order of posting. Where
events are lost, numbers hold from the start up to the first loss, and from the end back to the
last one.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Index = NDArray[np.int32]
    Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Reach:
    """How far the numbers of a rank's events can be trusted.

    Those before ``first_loss`` count from the start; those from ``after_loss`` on count from the
    end if the rank ``ends``, that is, was recorded up to MPI_Finalize. Without loss both are
    trusted for all ``events``. ``even``: nothing is lost but what was called while recording was
    switched off (MPI_Pcontrol), and nobody knows where that was; programs do so on all ranks at
    the same place, so that equal numbers are trusted.
    """

    events: int
    first_loss: int
    after_loss: int
    ends: bool
    even: bool = False

    @property
    def whole(self) -> bool:
        """Whether every event of the rank is there."""
        return self.ends and not self.gap

    @property
    def gap(self) -> bool:
        """Whether events are lost before the last one."""
        return self.first_loss < self.events


@dataclass(frozen=True)
class Queue:
    """Events of a rank sorted by channel (or communicator), in order of posting within each.

    ``key``: the distinct ways (or communicators) that occur; ``count``, ``front`` (before the
    first loss) and ``back`` (after the last one): events of each; ``index``: the events.
    """

    key: Ints
    count: Ints
    front: Ints
    back: Ints
    index: Index


def queue(events: Ints, key: Index, order: Ints | None, reach: Reach) -> Queue:
    """Sort ``events`` (indices, ascending) with their ``key`` of the same length."""
    if order is not None:
        turn = np.argsort(order[events], kind="stable")
        events, key = events[turn], key[turn]
    highest = int(key.max()) + 1 if len(key) else 0
    if highest <= 4 * len(key) + 4096:
        there = np.zeros(highest, dtype=bool)
        there[key] = True
        distinct = np.flatnonzero(there)
        local = (np.cumsum(there) - 1)[key] if len(distinct) < highest else key
    else:
        distinct, local = np.unique(key, return_inverse=True)
    # numpy sorts 16-bit numbers by radix, several times faster than larger ones.
    small = local.astype(np.uint16 if len(distinct) <= 1 << 16 else np.int32)
    turn = np.argsort(small, kind="stable")
    count = np.bincount(local, minlength=len(distinct))
    front = back = count
    if reach.gap:
        front = np.bincount(local[events < reach.first_loss], minlength=len(distinct))
        back = np.bincount(local[events >= reach.after_loss], minlength=len(distinct))
    if not reach.ends:
        back = np.zeros_like(count)
    return Queue(distinct.astype(np.int64), count, front, back, events[turn].astype(np.int32))


@dataclass(frozen=True)
class Rows:
    """One row per rank and channel of one side; ``start`` is its place among all its events."""

    src: Ints
    dst: Ints
    label: Ints
    count: Ints
    front: Ints
    back: Ints
    start: Ints


@dataclass(frozen=True)
class Spans:
    """Runs of messages that belong together: ``length`` from each place on both sides on.

    ``sent`` and ``received`` are places among all sends and all receives of the run.
    """

    src: Index
    dst: Index
    sent: Ints
    received: Ints
    length: Ints

    def pick(self, rows: NDArray[np.generic] | slice) -> Spans:
        """Return the chosen rows."""
        return Spans(
            self.src[rows], self.dst[rows], self.sent[rows], self.received[rows], self.length[rows]
        )


@dataclass(frozen=True)
class Ranks:
    """What of Reach matters for messages, as a column each by rank.

    ``there``: has a capture; ``ends``, ``even``, ``whole`` as in Reach; ``lost``: has a gap;
    ``vague``: has receives of which nobody knows what they received, and which may have taken
    any message.
    """

    there: Bools
    ends: Bools
    even: Bools
    lost: Bools
    vague: Bools

    @property
    def lost_sends(self) -> Bools:
        """Whether some of the sends are missing."""
        return self.lost

    @property
    def lost_receives(self) -> Bools:
        """Whether some of the receives are missing."""
        return self.lost | self.vague

    @property
    def whole(self) -> Bools:
        """Whether every event of the rank is there."""
        return self.there & self.ends & ~self.lost


def ranks_of(reach: Mapping[int, Reach], vague: Set[int], size: int) -> Ranks:
    """Return the columns of a run of ``size`` ranks; those not in ``reach`` have no capture."""
    columns = [np.zeros(size, dtype=bool) for _ in range(5)]
    for rank, each in reach.items():
        values = (True, each.ends, each.even, each.gap, rank in vague)
        for column, value in zip(columns, values, strict=True):
            column[rank] = value
    return Ranks(*columns)


@dataclass(frozen=True)
class Joined:
    """What joining both sides gave: ``spans``, and per row of each side how many are matched."""

    spans: Spans
    sent: Ints
    received: Ints


def join(sent: Rows, received: Rows, ranks: Ranks) -> Joined:
    """Match the k-th send of each channel with its k-th receive.

    Where the numbers of both sides differ, they hold as far as Reach says.
    """
    size, ends = len(ranks.ends), ranks.ends
    pair = np.concatenate([sent.src * size + sent.dst, received.src * size + received.dst])
    _, pair = np.unique(pair, return_inverse=True)
    label = np.concatenate([sent.label, received.label])
    key = pair * (int(label.max()) + 1 if len(label) else 1) + label
    _, a, b = np.intersect1d(
        key[: len(sent.src)], key[len(sent.src) :], assume_unique=True, return_indices=True
    )
    src, dst = sent.src[a], sent.dst[a]
    fewer = np.minimum(sent.count[a], received.count[b])
    lacking, missing = ranks.lost_sends[src], ranks.lost_receives[dst]
    even = ranks.even[src] & ranks.even[dst] & ~ranks.vague[dst]
    # As many as on a side that has them all: nothing of this channel is lost.
    sure = (ends[src] & ~lacking) | (ends[dst] & ~missing) | ~(lacking | missing) | even
    equal = (sent.count[a] == received.count[b]) & sure
    head = np.where(equal, fewer, np.minimum(sent.front[a], received.front[b]))
    tail = np.where(equal | ~(lacking | missing), 0, np.minimum(sent.back[a], received.back[b]))
    tail = np.minimum(tail, fewer - head)
    heads = Spans(
        src.astype(np.int32), dst.astype(np.int32), sent.start[a], received.start[b], head
    )
    tails = Spans(
        heads.src,
        heads.dst,
        sent.start[a] + sent.count[a] - tail,
        received.start[b] + received.count[b] - tail,
        tail,
    )
    used_h, used_t = np.flatnonzero(head), np.flatnonzero(tail)
    parts = heads.pick(used_h), tails.pick(used_t)
    spans = Spans(
        *(
            np.concatenate([getattr(part, name) for part in parts])
            for name in ("src", "dst", "sent", "received", "length")
        )
    )
    matched_s, matched_r = np.zeros_like(sent.count), np.zeros_like(received.count)
    matched_s[a], matched_r[b] = head + tail, head + tail
    return Joined(spans, matched_s, matched_r)


def runs(starts: Ints, lengths: Ints) -> Ints:
    """Return the numbers start, start + 1, ... of each run, one run after the other."""
    total = int(lengths.sum())
    shift = starts - (np.cumsum(lengths) - lengths)
    result: Ints = np.arange(total, dtype=np.int64) + np.repeat(shift, lengths)
    return result


def number(own: Queue, expected: Ints, reach: Reach) -> Ints:
    """Return the number of each collective on its communicator, -1 where it is not known.

    ``own`` is one rank's queue by communicator; ``expected`` how many there were on each, -1
    where no rank has recorded all of them.
    """
    turn = runs(np.zeros_like(own.count), own.count)
    if not reach.gap:
        return turn
    doubtful = own.count != expected
    count, front = np.repeat(own.count, own.count), np.repeat(own.front, own.count)
    after = np.repeat(own.count - own.back, own.count)
    missing = np.repeat(expected - own.count, own.count)
    from_end = np.where((turn >= after) & (missing > 0), turn + missing, -1)
    trusted = np.where((turn < front) & (turn < count), turn, from_end)
    return np.where(np.repeat(doubtful, own.count), trusted, turn)
