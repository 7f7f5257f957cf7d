"""Which send meets which receive."""

from __future__ import annotations

import numpy as np

from replay.steps import RECEIVES, SENDS, Bools, Ints, Steps


def pair(steps: Steps) -> tuple[Ints, Ints]:
    """Return ``to`` and ``source`` of every step, -1 where there is no partner.

    The k-th send meets the k-th receive of the same source, target, communicator and tag, in
    program order. Nothing is paired where the tag is -1 (not known).
    """
    nothing = np.zeros(0, dtype=np.int64)
    return pair_columns(
        steps.rank, steps.op, steps.peer, steps.tag, steps.comm, steps.peer2, steps.tag2,
        nothing, nothing)


def pair_columns(rank: Ints, op: Ints, peer: Ints, tag: Ints, comm: Ints, peer2: Ints,
                 tag2: Ints, sent: Ints, received: Ints) -> tuple[Ints, Ints]:
    """Pair steps given as columns; the receive half of SENDRECV is in peer2 and tag2.

    sent, received: per step how many messages of its channel were sent and received before the
    first of these steps; empty: none were.
    """
    sends = np.flatnonzero(np.isin(op, [int(o) for o in SENDS]) & (peer >= 0) & (tag >= 0))
    both = peer2 >= 0
    source, got = np.where(both, peer2, peer), np.where(both, tag2, tag)
    recvs = np.flatnonzero(np.isin(op, [int(o) for o in RECEIVES]) & (source >= 0) & (got >= 0))
    to = np.full(len(op), -1, dtype=np.int64)
    came = np.full(len(op), -1, dtype=np.int64)
    if not len(sends) or not len(recvs):
        return to, came
    channel = channels(
        (np.concatenate((rank[sends], source[recvs])), np.concatenate((peer[sends], rank[recvs])),
         np.concatenate((comm[sends], comm[recvs])), np.concatenate((tag[sends], got[recvs]))))
    out, into = channel[:len(sends)], channel[len(sends):]
    a, k = _ordinals(out, sent[sends] if len(sent) else None)
    b, j = _ordinals(into, received[recvs] if len(received) else None)
    # One number for channel and place in it; both sides are sorted by it.
    width = int(max(k.max(), j.max())) + 1
    mine, theirs = out[a] * width + k, into[b] * width + j
    at = np.searchsorted(theirs, mine)
    meet = theirs[np.minimum(at, len(theirs) - 1)] == mine
    x, y = sends[a[meet]], recvs[b[at[meet]]]
    to[x], came[y] = y, x
    return to, came


def channels(keys: tuple[Ints, ...]) -> Ints:
    """Number the distinct combinations of some columns; equal ones get equal numbers."""
    code = np.zeros(len(keys[0]), dtype=np.int64)
    for key in keys:
        low = int(key.min()) if len(key) else 0
        span = int(key.max()) - low + 1 if len(key) else 1
        if span > 1 << 24:  # tags can be anything
            _, key = np.unique(key, return_inverse=True)
            low, span = 0, int(key.max()) + 1
        if int(code.max(initial=0)) > (1 << 61) // span:
            _, code = np.unique(code, return_inverse=True)
        code = code * span + (key - low)
    _, code = np.unique(code, return_inverse=True)
    return code


def _ordinals(channel: Ints, before: Ints | None) -> tuple[Ints, Ints]:
    """Return steps sorted by channel, and each one's place in its channel."""
    order = np.argsort(channel, kind="stable")
    sorted_ = channel[order]
    new = np.ones(len(order), dtype=bool)
    new[1:] = sorted_[1:] != sorted_[:-1]
    begin = np.maximum.accumulate(np.where(new, np.arange(len(order)), 0))
    place = np.arange(len(order)) - begin
    return order, place if before is None else place + before[order]


def mutual(to: Ints, source: Ints, kept: Bools) -> tuple[Ints, Ints]:
    """Renumber links between steps when only some of them are kept."""
    number = np.cumsum(kept) - 1
    number[~kept] = -1
    out = [np.where(link >= 0, number[link], -1)[kept] for link in (to, source)]
    return out[0], out[1]
