"""Messages of the full run that share the network with those of the loaded ranks (Eq. 7.1)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from p3s.base.arrays import Bools, Ints
from p3s.machine.topology.switches import Topology
from p3s.program.mapping import RankMap
from p3s.replay.plan.build_blocks import Blocks
from p3s.replay.plan.build_holes import Starter
from p3s.replay.plan.logical import Transit
from p3s.replay.plan.program import TAG_GO, TAG_NOISE, Code
from p3s.replay.plan.world import NOISE, World
from p3s.replay.settings import NOISES

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
    transit: Transit,
    pair: tuple[int, int],
    shares: Bools | None,
    length_ns: float,
    limit: int = NOISE_LIMIT,
) -> Noise | None:
    """Return what the noise pair does while these two nodes are loaded, None: nothing.

    noise = messages in transit in the full run - those that the loaded ranks send or receive
    themselves. ``shares``: nodes x nodes, which messages have a link between switches in common
    with those of the pair; None: not known, all count. ``limit`` bounds the number at one tick:
    two processes cannot stand in for thousands. ``length_ns``: of the section.
    """
    if limit < 1:
        return None
    others = ~(np.isin(transit.source, pair) | np.isin(transit.target, pair))
    if shares is not None:
        others &= shares[transit.source, transit.target]
    if not others.any():
        return None
    change = np.zeros(transit.ticks + 1, dtype=np.int64)
    np.add.at(change, np.minimum(transit.sent[others], transit.ticks), 1)
    np.add.at(change, np.minimum(transit.taken[others], transit.ticks), -1)
    series = np.cumsum(change[:-1])
    wanted = float(series.mean())
    if len(series) > MAX_TICKS:
        # Means of equal stretches: a peak between two samples is not lost.
        edges = np.linspace(0, len(series), MAX_TICKS + 1).astype(np.int64)
        sums = np.concatenate(([0], np.cumsum(series)))
        series = np.rint(np.diff(sums[edges]) / np.diff(edges)).astype(np.int64)
    counts = np.minimum(series, limit)
    if not counts.any():
        return None
    nbytes = float(transit.bytes[others].mean())
    if shares is not None:
        nbytes = min(
            nbytes * float(series.sum()) / float(counts.sum()), max(MAX_NOISE_BYTES, nbytes)
        )
    return Noise(
        counts=counts, nbytes=int(round(nbytes)), tick_ns=length_ns / len(counts), wanted=wanted
    )


def noise_beside(
    mapping: RankMap,
    topology: Topology,
    transit: Transit,
    pair: tuple[int, int],
    length_ns: float,
    wanted: str,
) -> Noise | None:
    """Return the noise beside a pair: of messages that share a link between switches, if known.

    ``wanted``: one of NOISES.
    """
    shares = None
    if wanted == OFF or (wanted == AUTO and topology.flat):
        return None
    if not topology.flat:
        switch = topology.switches_of(mapping.names)
        shares = topology.trunk(int(switch[pair[0]]), int(switch[pair[1]]), switch)
    return noise_of(transit, pair, shares, length_ns)


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
                offset=place * noise.nbytes if code == Code.IRECV else 0,
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
