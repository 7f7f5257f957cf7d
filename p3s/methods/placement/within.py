"""Which core of its node each rank gets: those that talk much share a socket and a cache."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from p3s.base.errors import UsageError
from p3s.machine.topology.inside import Inside
from p3s.machine.topology.units import Ints
from p3s.methods.placement.allocation import allocation
from p3s.methods.placement.search import bisected
from p3s.methods.placement.traffic import Traffic
from p3s.program.mapping import RankMap


@dataclass(frozen=True, eq=False)
class OnCores:
    """The core of each rank, a number in ``inside.cores``."""

    inside: Inside
    core_of: Ints

    def between_sockets(self, traffic: Traffic, placed: RankMap) -> int:
        """Return the bytes that ranks of one node send from one socket to another."""
        socket = np.array([core.socket for core in self.inside.cores])[self.core_of]
        same = placed.node_of[traffic.source] == placed.node_of[traffic.dest]
        apart = socket[traffic.source] != socket[traffic.dest]
        return int(traffic.volume[same & apart].sum())

    def slot(self, rank: int) -> str:
        """Return where a rank is as rankfiles have it: socket and core."""
        core = self.inside.cores[int(self.core_of[rank])]
        return f"{core.socket}:{core.number}"


def in_order(placed: RankMap, inside: Inside) -> OnCores:
    """Return ranks on cores in their order. Errors: UsageError where there are too few."""
    if int(placed.slot_of.max()) >= len(inside.cores):
        raise UsageError(
            f"{inside.source}: has {len(inside.cores)} cores, a node gets "
            f"{int(placed.sizes.max())} ranks; give fewer ranks per node"
        )
    return OnCores(inside, placed.slot_of)


def on_cores(traffic: Traffic, placed: RankMap, inside: Inside) -> OnCores:
    """Return ranks on cores of their nodes, few bytes between sockets, then between caches.

    Never more bytes between sockets than in order. Errors: UsageError where cores are too few.
    """
    usual = in_order(placed, inside)
    caches = inside.caches
    where, tree = allocation(len(caches), caches.tolist()), inside.tree()
    first = np.cumsum(caches) - caches
    by_cache = np.argsort([core.cache for core in inside.cores], kind="stable")
    core_of = np.zeros(placed.n, dtype=np.int64)
    for node in np.unique(placed.node_of).tolist():
        ranks = placed.ranks_of(node)
        found = bisected(_among(traffic, ranks), where, tree)
        core_of[ranks] = by_cache[first[found.node_of] + found.slot_of]
    better = OnCores(inside, core_of)
    less = better.between_sockets(traffic, placed) <= usual.between_sockets(traffic, placed)
    return better if less else usual


def _among(traffic: Traffic, ranks: Ints) -> Traffic:
    """Return what some ranks send each other, numbered in their order."""
    place = np.full(traffic.ranks, -1, dtype=np.int64)
    place[ranks] = np.arange(len(ranks))
    source, dest = place[traffic.source], place[traffic.dest]
    kept = (source >= 0) & (dest >= 0)
    columns = (traffic.messages[kept], traffic.nbytes[kept])
    return Traffic(len(ranks), source[kept], dest[kept], *columns)
