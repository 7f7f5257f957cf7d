"""Which send meets which receive."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from p3s.base.arrays import Bools, Ints, place_in_run
from p3s.simulate.steps import RECEIVES, SENDS, Steps, narrow

if TYPE_CHECKING:
    from p3s.program.scaled import ScaledTrace

#: Tags of messages whose tag is not known: from here to twice this.
_MADE_TAG = 1 << 18


def pair(steps: Steps) -> tuple[Ints, Ints]:
    """Return ``to`` and ``source`` of every step, -1 where there is no partner.

    The k-th send meets the k-th receive of the same source, target, communicator and tag, in
    program order. Nothing is paired where the tag is -1 (not known).
    """
    rank = steps.rank
    both = steps.peer2 >= 0
    source = np.where(both, steps.peer2, steps.peer)
    tag = np.where(both, steps.tag2, steps.tag)
    sends = np.isin(steps.op, [int(op) for op in SENDS]) & (steps.peer >= 0) & (steps.tag >= 0)
    receives = np.isin(steps.op, [int(op) for op in RECEIVES]) & (source >= 0) & (tag >= 0)
    out, into = channels_of(rank, steps.peer, steps.comm, steps.tag, sends, source, tag, receives)
    return pair_channels(out, into)


def channels_of(
    rank: Ints,
    target: Ints,
    comm: Ints,
    tag: Ints,
    sends: Bools,
    source: Ints,
    tag2: Ints,
    receives: Bools,
) -> tuple[Ints, Ints]:
    """Number the channels (source, target, communicator, tag): where each entry sends, receives.

    An entry may do both; -1 where it does not. tag2: the tag of what is received from source.
    """
    s, r = np.flatnonzero(sends), np.flatnonzero(receives)
    code = codes_of(
        (
            np.concatenate((rank[s], source[r])),
            np.concatenate((target[s], rank[r])),
            np.concatenate((comm[s], comm[r])),
            np.concatenate((tag[s], tag2[r])),
        )
    )
    out, into = (np.full(len(rank), -1, dtype=np.int64) for _ in range(2))
    out[s], into[r] = code[: len(s)], code[len(s) :]
    return out, into


def row_channels(trace: ScaledTrace, sends: Bools, receives: Bools) -> tuple[Ints, Ints, Ints]:
    """Return the channels that rows send into and receive from, and the tags of all rows.

    A tag that is not known, or known on one side of a pair of ranks only, tells nothing: messages
    of that kind meet by their size instead. Those of a pair whose sizes do not meet either, one
    for one, meet in the order in which they are sent and received. Both get a tag that the pair
    does not use.
    """
    out, into = channels_of(
        trace.rank, trace.peer, trace.comm, trace.tag, sends, trace.peer, trace.tag, receives
    )
    number = int(max(out.max(initial=-1), into.max(initial=-1))) + 1
    used, met = np.zeros(number + 1, dtype=bool), np.zeros(number + 1, dtype=bool)
    used[out], met[into] = True, True
    tags_tell = (used & met)[np.maximum(out, into)] & (trace.tag >= 0)
    blind = (sends | receives) & ~tags_tell
    if not blind.any():
        return out, into, trace.tag

    def by(code: Ints) -> tuple[Ints, Ints]:
        return channels_of(
            trace.rank, trace.peer, trace.comm, code, sends, trace.peer, code, receives
        )

    code = np.where(blind, -2 - trace.bytes, trace.tag)
    out, into = by(code)
    by_order = _unequal(trace, out, into)
    if by_order.any():
        first, second = by(np.zeros_like(code))  # one channel for each pair
        pair = np.maximum(first, second)
        by_order &= np.isin(pair, pair[by_order & blind])
        out, into = by(np.where(by_order, -1, code))
    made_tag = _MADE_TAG + np.maximum(out, into) % _MADE_TAG
    return out, into, np.where(blind | by_order, made_tag, trace.tag)


def _unequal(trace: ScaledTrace, out: Ints, into: Ints) -> Bools:
    """Tell which rows are in channels into which more, or fewer, are sent than are received."""
    channel = np.maximum(out, into)
    balance = np.zeros(int(channel.max(initial=-1)) + 1)
    for sign, side in ((1.0, out), (-1.0, into)):
        has = np.flatnonzero(side >= 0)
        np.add.at(balance, side[has], sign * trace.repeat[has])
    unequal: Bools = (channel >= 0) & (balance[np.maximum(channel, 0)] != 0)
    return unequal


def codes_of(keys: Sequence[Ints]) -> Ints:
    """Number the distinct combinations of some columns from 0."""
    code = np.zeros(len(keys[0]), dtype=np.int64)
    if not len(code):
        return code
    for key in keys:
        if int(key.max()) - int(key.min()) > 1 << 24:  # tags can be anything
            key = np.unique(key, return_inverse=True)[1].reshape(-1)
        low, span = int(key.min()), int(key.max()) - int(key.min()) + 1
        if int(code.max()) > (1 << 61) // span:
            code = np.unique(code, return_inverse=True)[1].reshape(-1)
        code = code * span + (key - low)
    return np.unique(code, return_inverse=True)[1].reshape(-1)


def pair_channels(
    out: Ints,
    into: Ints,
    chunk: Ints | None = None,
    sent: Ints | None = None,
    received: Ints | None = None,
) -> tuple[Ints, Ints]:
    """Return the partners of steps that send into a channel and receive from one (-1: neither).

    chunk: steps of a rank that follow each other in the run have one number; sent, received: how
    many messages the rank sent into (received from) the step's channel before its chunk began.
    A channel in which the numbers of both sides never meet is paired from its first step on.
    """
    to, source = (np.full(len(out), -1, dtype=narrow(len(out))) for _ in range(2))
    a, b = np.flatnonzero(out >= 0), np.flatnonzero(into >= 0)
    if not len(a) or not len(b):
        return to, source
    if chunk is not None and sent is not None and received is not None:
        x, j = _places(out[a], chunk[a], sent[a])
        y, k = _places(into[b], chunk[b], received[b])
        _meet(to, source, a[x], out[a[x]], j, b[y], into[b[y]], k)
        met = np.zeros(int(max(out.max(), into.max())) + 1, dtype=bool)
        met[out[to >= 0]] = True
        a, b = a[~met[out[a]]], b[~met[into[b]]]
        if not len(a) or not len(b):
            return to, source
    x, j = _places(out[a])
    y, k = _places(into[b])
    _meet(to, source, a[x], out[a[x]], j, b[y], into[b[y]], k)
    return to, source


def _places(
    channel: Ints, chunk: Ints | None = None, before: Ints | None = None
) -> tuple[Ints, Ints]:
    """Return steps sorted by channel, and each one's place in its channel."""
    order = np.argsort(channel, kind="stable")
    keys = [channel[order]] if chunk is None else [channel[order], chunk[order]]
    place = place_in_run(*keys).astype(narrow(len(order)))
    return order, place if before is None else place + before[order]


def _meet(
    to: Ints, source: Ints, send: Ints, out: Ints, j: Ints, receive: Ints, into: Ints, k: Ints
) -> None:
    """Link sends and receives, sorted by channel and place, where both are equal."""
    width = int(max(j.max(), k.max())) + 1
    mine, theirs = out.astype(np.int64) * width + j, into.astype(np.int64) * width + k
    at = np.searchsorted(theirs, mine)
    meet = theirs[np.minimum(at, len(theirs) - 1)] == mine
    x, y = send[meet], receive[at[meet]]
    to[x], source[y] = y, x
