"""How much the transfer of a message varies, and messages that vary as measured.

Where ranks wait for each other again and again, every delay of one is waited for by others: with
the typical cost of each message alone the simulation is too fast. So some simulations are made in
which every message takes its typical time and a deviation drawn from the measured ones, and their
times are averaged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from p3s.predict.network import Network
from replay.costs.messages import Key, Observed, typical
from replay.steps import SENDS, Floats, Ints, Steps

#: Fewest deviations that stand for a size; else those of the nearest size are taken.
_FEWEST = 20
#: Quantiles that are kept of the deviations of one size.
_KEPT = 401
#: Simulations that are averaged: as many as this many steps allow, in these bounds.
_STEPS = 2_000_000
_REPEATS = (2, 12)
#: No message becomes shorter than this share of its typical time.
_SHORTEST = 0.1

Spread = dict[Key, Floats]

_SEND_OPS = [int(op) for op in SENDS]


def spread_of(use: Sequence[Observed], deviations: Mapping[Key, Floats]) -> Spread:
    """Return per (distance, bytes) quantiles of how far transfers are off, in ns, median 0.

    ``deviations``: from the simulated transfers, where there are any; else they are taken from
    the typical time of each message.
    """
    found: dict[Key, list[Floats]] = {}
    for observed in use:
        deviation = (observed.ns - typical(observed.ns)[None, :]).reshape(-1)
        found.setdefault(observed.key, []).append(deviation[~np.isnan(deviation)])
    spread = {}
    for key, parts in found.items():
        every = deviations.get(key, np.concatenate(parts))
        if len(every) >= _FEWEST:
            share = np.linspace(0.0, 1.0, min(len(every), _KEPT))
            spread[key] = np.quantile(every, share) - np.median(every)
    return spread


def repeats_of(steps: Steps) -> int:
    """Return how many simulations of these steps are averaged."""
    return int(np.clip(_STEPS // max(len(steps), 1), *_REPEATS))


def draw(
    steps: Steps, node_of: Ints, distance: Ints | None, network: Network,
    spread: Mapping[Key, Floats], rng: np.random.Generator,
) -> Floats:
    """Return what is added to the transfer of each step's message, in ns; 0 for other steps."""
    extra = np.zeros(len(steps))
    sends = np.flatnonzero(np.isin(steps.op, _SEND_OPS) & (steps.peer >= 0))
    if not len(sends) or not spread:
        return extra
    here, there = node_of[steps.rank[sends]], node_of[steps.peer[sends]]
    hops = (here != there).astype(np.int64) if distance is None else distance[here, there]
    nbytes = steps.bytes[sends]
    keys, which = np.unique(np.stack([hops, nbytes]), axis=1, return_inverse=True)
    which = which.reshape(-1)
    for i, (d, size) in enumerate(keys.T.tolist()):
        near = _nearest((d, size), spread)
        if near is None:
            continue
        mine = sends[which == i]
        drawn = spread[near][rng.integers(0, len(spread[near]), len(mine))]
        shortest = (_SHORTEST - 1.0) * float(network.path(d).transfer.at(size))
        extra[mine] = np.maximum(drawn, shortest)
    return extra


def _nearest(key: Key, spread: Mapping[Key, Floats]) -> Key | None:
    """Return the measured size nearest by ratio, on the same side of the node's border."""
    d, size = key
    near = [k for k in spread if (k[0] > 0) == (d > 0)]
    if not near:
        return None
    return min(near, key=lambda k: (abs(k[0] - d), abs(np.log((k[1] + 1) / (size + 1))), k))
