"""The processes of a replay and the nodes they live on."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

MEASURED = "measured"
BLACK_HOLE = "black hole"
NOISE = "noise"

#: Nodes 0 and 1 hold the measured ranges; the black holes of side 0 live on node 3, those of
#: side 1 on node 2, so that the traffic of the two ranges does not share a black-hole node.
BLACK_HOLE_NODE = (3, 2)
NOISE_NODE = (2, 3)
NODES = 4


@dataclass(frozen=True)
class Process:
    """One process of the replay: its role, node (0 to 3), and which measured rank it is or serves.

    ``side``: 0 or 1, the measured node it belongs to; ``slot``: place of the rank in its range.
    """

    role: str
    node: int
    side: int
    slot: int


@dataclass(frozen=True)
class World:
    """All processes of a replay, by rank in its MPI_COMM_WORLD; nodes come one after the other."""

    processes: tuple[Process, ...]

    @property
    def size(self) -> int:
        """Number of processes."""
        return len(self.processes)

    def rank_of(self, role: str) -> dict[tuple[int, int], int]:
        """Return (side, slot) -> rank for the processes of one role."""
        return {(p.side, p.slot): r for r, p in enumerate(self.processes) if p.role == role}

    def on_node(self, node: int) -> int:
        """Return how many processes live on a node."""
        return sum(process.node == node for process in self.processes)

    def roles_on(self, node: int) -> list[str]:
        """Return the roles of the processes on a node, each once."""
        return list(dict.fromkeys(p.role for p in self.processes if p.node == node))


def why_not_representative(machines: Sequence[Hashable]) -> str | None:
    """Return why nodes on these machines are no cluster; None: each node is a machine."""
    if len(set(machines)) == len(machines):
        return None
    if len(set(machines)) == 1:
        return "all nodes are one machine"
    return "some of the four nodes are the same machine"


def lay_out(slots: tuple[int, int], black_holes: Iterable[tuple[int, int]], noise: bool) -> World:
    """Make a world with ``slots`` measured processes per side and these (side, slot) black holes.

    Ranks are given node by node, so that a launcher that fills nodes in order puts them right.
    """
    processes = [
        Process(MEASURED, side, side, slot) for side in (0, 1) for slot in range(slots[side])
    ]
    served = sorted(set(black_holes))
    processes += [Process(BLACK_HOLE, BLACK_HOLE_NODE[side], side, slot) for side, slot in served]
    if noise:
        processes += [Process(NOISE, NOISE_NODE[side], side, 0) for side in (0, 1)]
    return World(tuple(sorted(processes, key=lambda p: (p.node, p.role, p.side, p.slot))))
