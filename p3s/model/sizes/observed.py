"""What was traced of a call, the symbols of its laws, and equations that fit as well."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from p3s.laws.exact import evaluate_int
from p3s.laws.expr import symbols_of
from p3s.model.grid.at import GridAt
from p3s.model.law_types import CountLaw, SizeLaw
from p3s.model.memory import Memory
from p3s.model.partners.communicator_laws import CommunicatorLaw
from p3s.model.partners.relation import Relation
from p3s.model.partners.stencil import branches, partners
from p3s.model.reasons import Reason
from p3s.model.sizes.observations import joined_symbols


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
class ObservedRows:
    """The rows of one relation (or communicator law) of a node, per count.

    stage: stage number per row; peers: partners (stages, n) or None for collectives and the
    like; care: (stages, n) False where another item of the node has the same partner; sure: cells
    whose size is known all the same, because all messages to that partner have one size; ways:
    how many items and stages share a cell's partner; taken: cells that show who takes part, where
    these are others than care.
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

    def sized(self, n: int) -> np.ndarray:
        """Return the cells whose size belongs to this item for certain."""
        return self.care[n] | self.sure[n] if n in self.sure else self.care[n]


def digest(item: ObservedRows) -> object:
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


#: Iterations that are compared; ranks that rules are evaluated for at once.
_TURNS, _AT_ONCE = 8, 1 << 14


def differ_at(law: SizeLaw | CountLaw, grid: GridAt, relation: Relation | None = None) -> bool:
    """Return whether a law and one of its rivals give different values on a grid.

    relation: who calls whom at which stage.
    """
    return bool(differ(law, [grid], relation)[0])


def differ(
    law: SizeLaw | CountLaw, grids: Sequence[GridAt], relation: Relation | None = None
) -> np.ndarray:
    """Return on which grids, of one number of dimensions, :func:`differ_at` holds."""
    found = np.zeros(len(grids), dtype=bool)
    exprs = law.rivals or ()
    if not exprs:
        return found
    names = {name[0] for e in (law.expr or [], *exprs) if e for name in symbols_of(e)}
    inside = bool(names & {"c", "q"})  # a law of places says nothing of ranks without one
    for batch in _batches(grids, np.flatnonzero(~found).tolist()):
        for turn in range(_TURNS if "t" in names else 1):
            asked = [k for k in batch if turn < max(grids[k].dims)]
            if not asked:
                break
            env, of_grid = _everywhere([grids[k] for k in asked], relation, turn, inside)
            own = evaluate_int(law.expr or [], env, undefined=-1)
            off = np.zeros(len(of_grid), dtype=bool)
            for e in exprs:
                off |= own != evaluate_int(e, env, undefined=-1)
            found[asked] |= np.bincount(of_grid[off], minlength=len(asked)) > 0
    return found


def _batches(grids: Sequence[GridAt], which: Sequence[int]) -> Iterator[list[int]]:
    """Yield the numbers of grids that are evaluated at once."""
    batch: list[int] = []
    ranks = 0
    for k in which:
        ranks += grids[k].n
        if batch and ranks > _AT_ONCE:
            yield batch
            batch, ranks = [], grids[k].n
        batch.append(k)
    if batch:
        yield batch


_CALLS: Memory[tuple[dict[str, np.ndarray], np.ndarray]] = Memory(64)


def _everywhere(
    grids: Sequence[GridAt], relation: Relation | None, turn: int, inside: bool
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Return the symbols of all calls on several grids, and the number of the grid of each.

    They are remembered: many laws are asked on the same grids. inside: without a relation those
    ranks call that are on the grid, else all.
    """

    def evaluated() -> tuple[dict[str, np.ndarray], np.ndarray]:
        each = [_calls(grid, relation, turn, inside) for grid in grids]
        env = joined_symbols(each)
        return env, np.repeat(np.arange(len(each)), [len(e["n"]) for e in each])

    return _CALLS.of((tuple(g.key for g in grids), relation, turn, inside), evaluated)


def _calls(
    grid: GridAt, relation: Relation | None, turn: int, inside: bool
) -> dict[str, np.ndarray]:
    if relation is None:
        ranks = np.flatnonzero(grid.inside) if inside else np.arange(grid.n)
        return env_of(grid, ranks, (ranks + 1) % grid.n, 0, turn)
    table = partners(relation, grid)
    stage, rank = np.nonzero(table >= 0)
    return env_of(grid, rank, table[stage, rank], stage, turn, relation)
