"""What was traced of a call, and the symbols of its laws."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from p3s.model.grid.guards import GridAt
from p3s.model.partners.communicator_laws import CommunicatorLaw
from p3s.model.partners.relation import Relation
from p3s.model.partners.relations import branches
from p3s.model.reasons import Reason


@dataclass
class Rows:
    """What one node did at one count; arrays of equal length, one row per rank, group, size, turn.

    turn: index of the iteration in the loop whose iterations differ in partner, size or root,
    0 where it does not matter (p3s.model.order.iterations)."""

    rank: np.ndarray
    group: np.ndarray
    peer: np.ndarray
    nbytes: np.ndarray
    elem: np.ndarray
    count: np.ndarray
    work: np.ndarray
    first: np.ndarray
    root: np.ndarray
    turn: np.ndarray

    def take(self, mask: np.ndarray) -> Rows:
        """Return the rows selected by a mask or index array."""
        if mask.dtype == bool and mask.all():  # nothing is to be copied then
            return self
        return Rows(*(getattr(self, f)[mask] for f in self.__dataclass_fields__))


@dataclass
class Observed:
    """The rows of one relation (or communicator law) of a node, per count.

    stage: stage number per row; peers: partners (stages, n) or None for collectives and the
    like; care: (stages, n) False where another item of the node has the same partner; sure: cells
    whose size is known all the same, because all messages to that partner have one size; ways:
    how many items and stages share a cell's partner; taken: cells that show who takes part, where
    these are others than care; rivals: other relations with the same partners.
    """

    rows: dict[int, Rows]
    stage: dict[int, np.ndarray]
    peers: dict[int, np.ndarray] | None
    care: dict[int, np.ndarray]
    grids: Mapping[int, GridAt]
    relation: Relation | None = None
    place: CommunicatorLaw | None = None
    notes: list[Reason] = field(default_factory=list)
    sure: dict[int, np.ndarray] = field(default_factory=dict)
    ways: dict[int, np.ndarray] = field(default_factory=dict)
    taken: dict[int, np.ndarray] = field(default_factory=dict)
    rivals: tuple[Relation, ...] = ()

    def sized(self, n: int) -> np.ndarray:
        """Return the cells whose size belongs to this item for certain."""
        return self.care[n] | self.sure[n] if n in self.sure else self.care[n]


def digest(item: Observed) -> object:
    """Return what tells apart items whose sizes, numbers and roots have other laws."""
    parts: list[object] = [item.relation, item.place]
    for n, rows in item.rows.items():
        order = np.lexsort((rows.first, rows.rank, item.stage[n]))
        of = (rows.rank, rows.nbytes, rows.elem, rows.count, rows.root, rows.turn, item.stage[n])
        cells = (each.get(n) for each in (item.care, item.sure, item.ways))
        parts += [n, *(x.tobytes() for x in (*of, order))]
        parts += [x.tobytes() if x is not None else None for x in cells]
    return tuple(parts)


def env_of(
    g: GridAt,
    ranks: np.ndarray,
    peers: np.ndarray | None = None,
    stage: np.ndarray | int = 0,
    turn: np.ndarray | int = 0,
    relation: Relation | None = None,
) -> dict[str, np.ndarray]:
    """Return the symbols of expressions for ``ranks`` at one count, as int64 arrays.

    relation: for the symbol b, the ranks of the branch of a tree that a call is for.
    """
    ranks = np.asarray(ranks, dtype=np.int64)
    env = {
        "n": np.full(len(ranks), g.n, dtype=np.int64),
        "r": ranks,
        "s": np.zeros(len(ranks), dtype=np.int64) + stage,
        "t": np.zeros(len(ranks), dtype=np.int64) + turn,
    }
    for d, p in enumerate(g.dims):
        env[f"p{d}"] = np.full(len(ranks), p, dtype=np.int64)
        env[f"c{d}"] = g.coords[d][ranks]
        if peers is not None:
            env[f"q{d}"] = g.coords[d][np.maximum(peers, 0)]
    branch = branches(relation, g)
    if branch is not None:
        env["b"] = branch[env["s"], ranks]
    return env
