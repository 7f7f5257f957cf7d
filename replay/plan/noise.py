"""How many messages of the full run share the network with those of the loaded ranks (Eq. 7.1)."""

from __future__ import annotations

import numpy as np

from p3s.base.arrays import Bools
from p3s.replay.plan.build_holes import Noise
from p3s.replay.plan.logical import Transit

#: Ticks in one program; a section with more is thinned out evenly.
MAX_TICKS = 32
#: Messages at once that one pair of noise processes can stand for.
NOISE_LIMIT = 16
#: Where the shared link is known, fewer messages than in the full run are made longer, up to this.
MAX_NOISE_BYTES = 4 << 20


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
