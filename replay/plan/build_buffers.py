"""Where in its buffer a measured rank receives what."""

from __future__ import annotations

import numpy as np

from p3s.replay.plan.build_traffic import Traffic
from p3s.replay.plan.loaded import Loaded
from p3s.simulate.steps import Bools, Ints, Op

ALIGNMENT = 64
#: Receives of one process share room beyond this size; nobody looks at what they receive.
BUFFER_LIMIT_BYTES = 256 << 20


def aligned(nbytes: Ints) -> Ints:
    """Return sizes rounded up to the alignment of buffers."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def wrapped(offset: Ints, nbytes: Ints, limit: int) -> Ints:
    """Return offsets at which messages end before ``limit`` (or begin at 0)."""
    room = np.maximum(limit - nbytes, 0) // ALIGNMENT * ALIGNMENT + ALIGNMENT
    return np.where(offset + nbytes > limit, offset % room, offset)


def receive_offsets(loaded: Loaded, traffic: Traffic, counts: Ints) -> Ints:
    """Return the offset of what each step receives; the receive half of a SENDRECV is at 0.

    Blocking receives and collectives share the beginning; requests come after it, from the start
    again whenever none is outstanding.
    """
    steps = loaded.steps
    size = np.where(traffic.receive, aligned(loaded.arrives), 0)
    size = np.where(traffic.direct, aligned(steps.bytes), size)
    request = (traffic.receive & steps.is_op(Op.IRECV, Op.START_RECV)) | (
        traffic.direct & (steps.op == Op.ICOLLECTIVE)
    )
    rank = np.repeat(np.arange(len(steps.ranks)), np.diff(steps.start))
    first = np.zeros(len(steps.ranks), dtype=np.int64)
    np.maximum.at(first, rank[~request], size[~request])
    offset = np.zeros(len(steps), dtype=np.int64)
    offset[request] = (
        first[rank[request]] + _epochs(loaded, request, size, traffic, counts)[request]
    )
    return wrapped(offset, np.maximum(size, 0), BUFFER_LIMIT_BYTES)


def _epochs(loaded: Loaded, request: Bools, size: Ints, traffic: Traffic, counts: Ints) -> Ints:
    """Return offsets that count from 0 wherever no request of the rank is outstanding."""
    steps = loaded.steps
    leaves = (traffic.send | traffic.receive | traffic.direct) & steps.is_op(
        Op.ISEND, Op.ISSEND, Op.START_SEND, Op.START_SSEND, Op.IRECV, Op.START_RECV, Op.ICOLLECTIVE
    )
    some = steps.is_op(Op.WAITANY, Op.WAITSOME)
    change = leaves.astype(np.int64) - np.where(
        some, np.minimum(np.maximum(steps.number, 1), counts), counts
    )
    total = np.concatenate(([0], np.cumsum(change)))[:-1]
    base = (
        np.repeat(total[np.minimum(steps.start[:-1], max(len(total) - 1, 0))], np.diff(steps.start))
        if len(total)
        else total
    )
    fresh = total - base <= 0
    fresh[steps.start[:-1][np.diff(steps.start) > 0]] = True
    bytes_before = np.cumsum(np.where(request, size, 0)) - np.where(request, size, 0)
    return bytes_before - np.maximum.accumulate(np.where(fresh, bytes_before, 0))
