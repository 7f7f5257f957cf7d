"""The nodes that a job gets, and how many ranks each has room for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from p3s.base.arrays import Ints
from p3s.base.errors import UsageError
from p3s.program.mapping import RankMap, rank_map


@dataclass(frozen=True, eq=False)
class Allocation:
    """Nodes of a job.

    ``hosts``: name of each, "" where nobody has said it. ``slots``: ranks that each has room for.
    """

    hosts: tuple[str, ...]
    slots: Ints

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return len(self.hosts)

    @property
    def room(self) -> int:
        """Number of ranks that it has room for."""
        return int(self.slots.sum())

    def check(self, ranks: int) -> None:
        """Raise UsageError where there is no room for so many ranks."""
        if self.room < ranks:
            raise UsageError(
                f"{ranks} ranks need {ranks} slots, {self.nodes} nodes have {self.room}; "
                "give more nodes, or more ranks per node"
            )


def allocation(nodes: int, ppn: int | Sequence[int], hosts: Sequence[str] = ()) -> Allocation:
    """Return an allocation of ``nodes`` nodes with ``ppn`` slots, each the same or one by one.

    Errors: UsageError, in one line, where numbers are less than 1, do not fit each other or a host
    is there twice.
    """
    if nodes < 1:
        raise UsageError(f"{nodes} nodes: there must be at least one")
    slots = np.broadcast_to(np.asarray(ppn, dtype=np.int64), nodes) if _fits(ppn, nodes) else None
    if slots is None:
        raise UsageError(f"slots of {np.size(ppn)} nodes are given, there are {nodes}")
    if slots.min() < 1:
        raise UsageError(f"{int(slots.min())} ranks per node: there must be at least one")
    if hosts and len(hosts) != nodes:
        raise UsageError(f"{len(hosts)} hosts are named, there are {nodes} nodes")
    if len(set(hosts)) != len(hosts):
        twice = next(host for k, host in enumerate(hosts) if host in hosts[:k])
        raise UsageError(f"host {twice} is named twice")
    return Allocation(tuple(hosts) or ("",) * nodes, np.array(slots))


def _fits(ppn: int | Sequence[int], nodes: int) -> bool:
    return np.ndim(ppn) == 0 or np.shape(ppn) == (nodes,)


def put(kind: str, ranks: Ints, nodes: Ints, where: Allocation, *, turns: bool = False) -> RankMap:
    """Return ranks on nodes, both in the order that is given: each node filled before the next.

    ``turns``: instead one rank on each node in turn, as long as it has room. Errors: UsageError
    where there is no room.
    """
    where.check(len(ranks))
    slots = where.slots[nodes]
    of_slot = np.repeat(nodes, slots)
    if turns:
        round_of = np.arange(len(of_slot)) - np.repeat(np.cumsum(slots) - slots, slots)
        of_slot = of_slot[np.argsort(round_of, kind="stable")]
    node_of = np.empty(len(ranks), dtype=np.int64)
    node_of[ranks] = of_slot[: len(ranks)]
    return rank_map(kind, node_of, where.hosts)
