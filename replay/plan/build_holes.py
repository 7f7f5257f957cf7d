"""What black holes and the noise pair execute."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from p3s.base.arrays import Bools, Floats, Ints
from p3s.program.order.pairs import codes_of
from p3s.replay.plan.build_blocks import Blocks
from p3s.replay.plan.build_traffic import Traffic
from p3s.replay.plan.loaded import Loaded
from p3s.replay.plan.program import TAG_GO, TAG_NOISE, Code
from p3s.replay.plan.world import NOISE, World
from p3s.simulate.steps import Op

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


#: How many sends of its measured rank an immediate black hole is ahead with its receives.
AHEAD = 64
#: A black hole receives everything into so much room; nobody looks at it.
ROOM_BYTES = 64 << 20


@dataclass(frozen=True)
class Noise:
    """Messages that the noise pair has on the way in each tick of ``tick_ns`` (Eq. 7.1).

    ``wanted``: mean number that the full run has, before it was bounded.
    """

    counts: Ints
    nbytes: int
    tick_ns: float
    wanted: float


@dataclass(frozen=True)
class Starter:
    """The black hole that starts the noise, and after which of its events."""

    process: int
    key: int
    at_ns: int
    waits: bool


def add_answers(blocks: Blocks, loaded: Loaded, traffic: Traffic) -> Starter | None:
    """Add black holes that answer questions at once.

    A black hole takes the questions of its rank in their order; the receives of the sends
    between them are posted well before, so that a question never waits behind a message.
    """
    send = np.flatnonzero(traffic.send & ~traffic.send_in)
    receive = np.flatnonzero(traffic.receive & ~traffic.receive_in)
    send = send[np.argsort(traffic.send_to[send], kind="stable")]
    receive = receive[np.argsort(traffic.receive_from[receive], kind="stable")]
    send_key = np.zeros(len(send), dtype=np.int64)
    receive_key = np.zeros(len(receive), dtype=np.int64)
    for hole in np.unique(np.concatenate((traffic.send_to[send], traffic.receive_from[receive]))):
        mine = slice(*np.searchsorted(traffic.send_to[send], (hole, hole + 1)))
        asked = slice(*np.searchsorted(traffic.receive_from[receive], (hole, hole + 1)))
        sent, questions = send[mine], receive[asked]
        before = np.searchsorted(sent, questions, side="right")
        number = np.arange(len(sent))
        gap = np.searchsorted(before, number - AHEAD, side="right")
        wide = 8 * (len(sent) + 1)
        send_key[mine] = gap * wide + 4 * number
        receive_key[asked] = np.arange(len(questions)) * wide + wide - 4
    size = aligned(loaded.steps.bytes[send])
    blocks.add(
        traffic.send_to[send],
        send_key,
        send,
        code=Code.IRECV,
        peer=traffic.process[send],
        tag=traffic.send_tag[send],
        bytes=loaded.steps.bytes[send],
        offset=_offsets(traffic.send_to[send], size),
    )
    blocks.add(
        traffic.receive_from[receive],
        receive_key,
        receive,
        code=Code.ANSWER,
        peer=traffic.process[receive],
        tag=traffic.receive_tag[receive],
        bytes=loaded.arrives[receive],
    )
    if len(receive) and (
        len(send) == 0 or traffic.receive_from[receive[0]] <= traffic.send_to[send[0]]
    ):
        return Starter(int(traffic.receive_from[receive[0]]), int(receive_key[0]) + 1, -1, False)
    if len(send):
        return Starter(int(traffic.send_to[send[0]]), int(send_key[0]) + 1, -1, True)
    return None


def _offsets(process: Ints, size: Ints) -> Ints:
    """Lay messages of each process (sorted by process) one after the other, in bounded room."""
    total = np.cumsum(size) - size
    first = np.searchsorted(process, process)
    return wrapped(total - total[first] if len(total) else total, size, ROOM_BYTES)


def add_timed(blocks: Blocks, loaded: Loaded, traffic: Traffic) -> Starter | None:
    """Add black holes that post receives and send when the absent partners would.

    They only post and never wait before the END, so they always come to their end. Messages of
    one partner, communicator and tag keep their order whatever the schedule says.
    """
    steps = loaded.steps
    send = np.flatnonzero(traffic.send & ~traffic.send_in)
    receive = np.flatnonzero(traffic.receive & ~traffic.receive_in)
    local = np.concatenate((send, receive))
    if len(local) == 0:
        return None
    hole = np.concatenate((traffic.send_to[send], traffic.receive_from[receive]))
    takes = np.arange(len(local)) < len(send)
    tag = np.concatenate((traffic.send_tag[send], traffic.receive_tag[receive]))
    at = _in_order(
        codes_of((hole, takes.astype(np.int64), tag)),
        local,
        np.concatenate((loaded.takes_mine_ns[send], loaded.sends_to_me_ns[receive])),
    )
    order = np.lexsort((~takes, local, at, hole))
    local, hole, tag, at = (x[order] for x in (local, hole, tag, at))
    takes = takes[order]
    nbytes = np.where(takes, steps.bytes[local], loaded.arrives[local])
    key = 4 * np.arange(len(local))
    blocks.add(
        hole,
        key,
        local,
        code=np.where(takes, Code.IRECV, Code.BUFFERED),
        peer=traffic.process[local],
        tag=tag,
        bytes=nbytes,
        at_ns=at,
        offset=np.where(takes, _offsets(hole, np.where(takes, aligned(nbytes), 0)), 0),
    )
    return Starter(int(hole[0]), 1, int(at[0]), False)


def _in_order(channel: Ints, local: Ints, at: Floats) -> Ints:
    """Return times that do not fall along the messages of a channel; unknown ones are 0."""
    known = np.rint(np.maximum(np.nan_to_num(at, nan=0.0), 0.0)).astype(np.int64)
    order = np.lexsort((local, channel))
    step = np.int64(int(known.max()) + 1)
    rising = np.maximum.accumulate(known[order] + channel[order] * step) - channel[order] * step
    result = np.empty_like(known)
    result[order] = rising
    return result


def add_noise(
    blocks: Blocks, world: World, noise: Noise | None, starter: Starter | None, *, timed: bool
) -> bool:
    """Let the noise pair exchange messages, tick by tick, once a black hole starts it.

    Each tick has ``counts`` messages on the way, half of them in each direction. Returns whether
    there is noise in the program.
    """
    pair = world.rank_of(NOISE)
    if not pair or starter is None or noise is None or not np.any(noise.counts):
        return False
    first, second = pair[(0, 0)], pair[(1, 0)]

    def one(process: int, key: int, **columns: int) -> None:
        blocks.add(np.array([process]), np.array([key]), np.array([-1]), main=False, **columns)

    if starter.waits:
        one(starter.process, starter.key, code=Code.WAIT, number=1)
    one(
        starter.process,
        starter.key + 1,
        code=Code.BUFFERED,
        peer=first,
        tag=TAG_GO,
        at_ns=starter.at_ns if timed else -1,
    )
    one(first, 0, code=Code.RECV, peer=starter.process, tag=TAG_GO)
    one(first, 1, code=Code.BUFFERED, peer=second, tag=TAG_GO)
    one(second, 0, code=Code.RECV, peer=first, tag=TAG_GO)
    counts = noise.counts[noise.counts > 0]
    tick_ns = np.rint(np.flatnonzero(noise.counts > 0) * noise.tick_ns).astype(np.int64)
    most = int(counts.max())
    for me, other, rounding in ((first, second, 1), (second, first, 0)):
        out = (counts + rounding) // 2
        for code, number in ((Code.IRECV, counts - out), (Code.ISEND, out)):
            tick = np.repeat(np.arange(len(counts)), number)
            place = np.arange(len(tick)) - np.repeat(np.cumsum(number) - number, number)
            late = place if code == Code.IRECV else place + most
            blocks.add(
                np.full(len(tick), me),
                2 + tick * (2 * most + 1) + late,
                np.full(len(tick), -1),
                code=code,
                peer=other,
                tag=TAG_NOISE,
                bytes=noise.nbytes,
                at_ns=tick_ns[tick],
                offset=place * int(aligned(np.array(noise.nbytes))) if code == Code.IRECV else 0,
            )
        ticks = np.arange(len(counts))
        blocks.add(
            np.full(len(ticks), me),
            2 + ticks * (2 * most + 1) + 2 * most,
            np.full(len(ticks), -1),
            code=Code.WAIT,
            number=counts,
        )
    return True
