"""What black holes execute."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from p3s.base.arrays import Floats, Ints
from p3s.program.order.pairs import codes_of
from p3s.replay.plan.build_blocks import Blocks, offsets
from p3s.replay.plan.build_traffic import Traffic
from p3s.replay.plan.loaded import Loaded
from p3s.replay.plan.program import Code

#: How many sends of its measured rank an immediate black hole is ahead with its receives.
AHEAD = 64


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
    blocks.add(
        traffic.send_to[send],
        send_key,
        send,
        code=Code.IRECV,
        peer=traffic.process[send],
        tag=traffic.send_tag[send],
        bytes=loaded.steps.bytes[send],
        offset=offsets(traffic.send_to[send], traffic.send_tag[send], loaded.steps.bytes[send]),
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
        offset=np.where(takes, offsets(hole, tag, np.where(takes, nbytes, 0)), 0),
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
