"""What black holes execute, and the noise pair: messages that share the network (Eq. 7.1)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from p3s.base.arrays import Bools, Floats, Ints
from p3s.machine.topology.fabric import Fabric
from p3s.program.mapping import RankMap
from p3s.program.order.pairs import codes_of
from p3s.replay.plan.build_traffic import Blocks, Traffic, offsets
from p3s.replay.plan.executed import Transit
from p3s.replay.plan.loaded import Loaded
from p3s.replay.plan.program import NOISE, TAG_NOISE, Code, World
from p3s.replay.settings import NOISES

#: How many sends of its measured rank an immediate black hole is ahead with its receives.
AHEAD = 64


def add_holes(blocks: Blocks, loaded: Loaded, traffic: Traffic, *, timed: bool) -> None:
    """Add what black holes do: post receives of what is sent to them, and send what is received.

    ``timed``: they do so when the absent partners would and never wait before the END, so they
    always come to their end; messages of one partner, communicator and tag keep their order
    whatever the schedule says. Else they answer questions at once: see _answering.
    """
    sends, receives = np.flatnonzero(traffic.send.away), np.flatnonzero(traffic.receive.away)
    local = np.concatenate((sends, receives))
    if len(local) == 0:
        return
    takes = np.arange(len(local)) < len(sends)
    hole, tag = (
        np.concatenate((of_send[sends], of_receive[receives]))
        for of_send, of_receive in (
            (traffic.send.process, traffic.receive.process),
            (traffic.send.tag, traffic.receive.tag),
        )
    )
    nbytes = np.where(takes, loaded.steps.bytes[local], loaded.arrives[local])
    if timed:
        when = np.concatenate((loaded.takes_mine_ns[sends], loaded.sends_to_me_ns[receives]))
        at = _in_order(codes_of((hole, takes.astype(np.int64), tag)), local, when)
        key = np.empty(len(local), dtype=np.int64)
        key[np.lexsort((~takes, local, at, hole))] = np.arange(len(local))
    else:
        at, key = np.full(len(local), -1), _answering(hole, takes, local)
    blocks.add(
        hole,
        key,
        local,
        code=np.where(takes, Code.IRECV, Code.BUFFERED if timed else Code.ANSWER),
        peer=traffic.process[local],
        tag=tag,
        bytes=nbytes,
        at_ns=at,
        offset=np.where(takes, offsets(hole, tag, np.where(takes, nbytes, 0)), 0),
    )


def _answering(hole: Ints, takes: Bools, local: Ints) -> Ints:
    """Return the order in which black holes take messages and answer questions.

    A black hole takes the questions of its rank in their order; the receives of the sends
    between them are posted well before, so that a question never waits behind a message.
    """
    key = np.zeros(len(local), dtype=np.int64)
    order = np.argsort(hole, kind="stable")
    for mine in np.split(order, np.flatnonzero(np.diff(hole[order])) + 1):
        sent, questions = mine[takes[mine]], mine[~takes[mine]]
        before = np.searchsorted(local[sent], local[questions], side="right")
        number = np.arange(len(sent))
        gap = np.searchsorted(before, number - AHEAD, side="right")
        wide = 8 * (len(sent) + 1)
        key[sent] = gap * wide + 4 * number
        key[questions] = np.arange(len(questions)) * wide + wide - 4
    return key


def _in_order(channel: Ints, local: Ints, at: Floats) -> Ints:
    """Return times that do not fall along the messages of a channel; unknown ones are 0."""
    times = np.rint(np.maximum(np.nan_to_num(at, nan=0.0), 0.0)).astype(np.int64)
    order = np.lexsort((local, channel))
    step = np.int64(int(times.max()) + 1)
    rising = np.maximum.accumulate(times[order] + channel[order] * step) - channel[order] * step
    result = np.empty_like(times)
    result[order] = rising
    return result


#: Ticks in one program; a section with more is thinned out evenly.
MAX_TICKS = 32
#: Messages at once that one pair of noise processes can stand for.
NOISE_LIMIT = 16
#: Where the shared link is known, fewer messages than in the full run are made longer, up to this.
MAX_NOISE_BYTES = 4 << 20

AUTO, _, OFF = NOISES


@dataclass(frozen=True)
class Noise:
    """Messages that the noise pair has on the way in each tick of ``tick_ns`` (Eq. 7.1).

    ``wanted``: mean number that the full run has, before it was bounded.
    """

    counts: Ints
    nbytes: int
    tick_ns: float
    wanted: float


def noise_of(
    transit: Transit, pair: tuple[int, int], shares: Bools | None, length_ns: float
) -> Noise | None:
    """Return what the noise pair does while these two nodes are loaded, None: nothing.

    noise = messages in transit in the full run - those that the loaded ranks send or receive
    themselves. ``shares``: nodes x nodes, which messages have a link between switches in common
    with those of the pair; None: not known, all count. ``length_ns``: of the section. Two processes
    cannot stand in for thousands: NOISE_LIMIT bounds the number at one tick.
    """
    others = ~(np.isin(transit.source, pair) | np.isin(transit.target, pair))
    if shares is not None:
        others &= shares[transit.source, transit.target]
    if not others.any():
        return None
    change = np.zeros(transit.ticks + 1, dtype=np.int64)
    np.add.at(change, np.minimum(transit.sent[others], transit.ticks), 1)
    np.add.at(change, np.minimum(transit.taken[others], transit.ticks), -1)
    series = np.cumsum(change[:-1])
    mean = float(series.mean())
    if len(series) > MAX_TICKS:
        # Means of equal stretches: a peak between two samples is not lost.
        edges = np.linspace(0, len(series), MAX_TICKS + 1).astype(np.int64)
        sums = np.concatenate(([0], np.cumsum(series)))
        series = np.rint(np.diff(sums[edges]) / np.diff(edges)).astype(np.int64)
    counts = np.minimum(series, NOISE_LIMIT)
    if not counts.any():
        return None
    nbytes = float(transit.bytes[others].mean())
    if shares is not None:
        nbytes = min(
            nbytes * float(series.sum()) / float(counts.sum()), max(MAX_NOISE_BYTES, nbytes)
        )
    return Noise(
        counts=counts, nbytes=int(round(nbytes)), tick_ns=length_ns / len(counts), wanted=mean
    )


def noise_beside(
    mapping: RankMap,
    topology: Fabric | None,
    transit: Transit,
    pair: tuple[int, int],
    length_ns: float,
    mode: str,
) -> Noise | None:
    """Return the noise beside a pair: of messages that share a link between switches, if known.

    ``mode``: one of NOISES.
    """
    shares = None
    if mode == OFF or (mode == AUTO and topology is None):
        return None
    if topology is not None:
        node = topology.numbers(mapping.names)
        shares = topology.sharing(int(node[pair[0]]), int(node[pair[1]]), node)
    return noise_of(transit, pair, shares, length_ns)


def add_noise(blocks: Blocks, world: World, noise: Noise | None) -> bool:
    """Let the noise pair exchange messages, tick by tick from the start of the pass on.

    Each tick has ``counts`` messages on the way, half of them in each direction. Returns whether
    there is noise in the program.
    """
    pair = world.rank_of(NOISE)
    if not pair or noise is None or not np.any(noise.counts):
        return False
    first, second = pair[(0, 0)], pair[(1, 0)]
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
                tick * (2 * most + 1) + late,
                np.full(len(tick), -1),
                code=code,
                peer=other,
                tag=TAG_NOISE,
                bytes=noise.nbytes,
                at_ns=tick_ns[tick],
                offset=place * noise.nbytes if code == Code.IRECV else 0,
            )
        ticks = np.arange(len(counts))
        blocks.add(
            np.full(len(ticks), me),
            ticks * (2 * most + 1) + 2 * most,
            np.full(len(ticks), -1),
            code=Code.WAIT,
            number=counts,
        )
    return True
