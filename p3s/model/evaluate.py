"""Evaluate a model at any process count: the rows of the scaled trace, communicator members."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property

import numpy as np

from p3s.base.errors import P3SError
from p3s.base.text import join_words, processes
from p3s.laws.exact import evaluate_int
from p3s.model.follow import count_posted
from p3s.model.grid import domain_grids, grids, uncut
from p3s.model.grid.at import GridAt, GridRule, Guard, standing_for_all
from p3s.model.grid.guardfit import of_ranks
from p3s.model.partners import stencil
from p3s.model.partners.communicator_laws import World
from p3s.model.partners.members import Communicators
from p3s.model.partners.stencil import at_stage, partners
from p3s.model.registry import frozen
from p3s.model.sizes.numbers import share, turns_at
from p3s.model.sizes.observed import env_of
from p3s.model.sizes.slots import bytes_of, count_of
from p3s.model.tree import phase_weight
from p3s.model.types import Model, ProcessGrid, Slot
from p3s.model.work.workload import of_segments, share_out

__all__ = ["Evaluator", "Model", "ScaledRows", "generate", "model_grid", "phase_weight"]

#: Modules of rules that a file may hold: a kind is known once its module was imported.
RULES = (domain_grids, grids, domain_grids, uncut, stencil)
#: Up to how many times a count the counts are looked at of which one may have a grid.
_SEARCHED = 5
#: Ranks that the mean work of all is taken from, at most, where not all are asked for; as many at
#: once as are written at once.
_SAMPLE, _AT_ONCE = 8192, 2048
#: Where some ranks stand for all: so many runs of ranks, each of so many.
SPREAD, SPREAD_RUN = 4096, 16
#: Multiples of this, less what is whole, lie evenly wherever one stops.
_GOLDEN = (5**0.5 - 1) / 2


@dataclass(frozen=True)
class ScaledRows:
    """The scaled trace as arrays, one entry per (rank, slot, stage, iteration), by rank and phase.

    item, slot index the model's items and the item's slots; comm indexes ``members``. means: of
    ``rank_work``, where these are not all ranks.
    """

    n: int
    grid: GridAt
    rank: np.ndarray
    item: np.ndarray
    slot: np.ndarray
    stage: np.ndarray
    turn: np.ndarray
    phase: np.ndarray
    peer: np.ndarray
    nbytes: np.ndarray
    repeat: np.ndarray
    work: np.ndarray
    comm: np.ndarray
    root: np.ndarray
    members: Communicators
    means: np.ndarray | None = None


def spread_ranks(n: int) -> np.ndarray:
    """Return ranks that stand for all of ``n``, ascending: runs spread evenly, first and last."""
    first = (np.arange(1, SPREAD + 1) * _GOLDEN % 1.0 * (n - SPREAD_RUN)).astype(np.int64)
    runs = np.concatenate([first, [0, n - SPREAD_RUN]])
    return np.unique((runs[:, None] + np.arange(SPREAD_RUN)).reshape(-1))


def model_grid(model: Model, n: int) -> GridAt:
    """Return the program's process grid at ``n``; P3SError where its rule does not admit n."""
    family = model.grid.family
    grid = family.at(n)
    if grid is None:
        raise P3SError(
            f"the program's process grid ({family.text()}) has no form at {processes(n)}; "
            f"{_nearest(family, n)} (traced: {join_words(f'{m:,}' for m in model.counts)})"
            + _found_in_traces(model.grid)
        )
    return grid


def _found_in_traces(grid: ProcessGrid) -> str:
    """Say how to state another grid, where neither the program nor the user says which it is."""
    if grid.cart or grid.stated:
        return ""
    return "; the traces alone say which grid it is: p3s model --grid states another"


def _nearest(family: GridRule, n: int) -> str:
    """Say which counts a grid has a form at, the nearest below and above ``n``."""
    below = next((m for m in range(n - 1, 0, -1) if family.dims(m)), None)
    above = next((m for m in range(n + 1, _SEARCHED * n + _SEARCHED) if family.dims(m)), None)
    found = [f"{m:,}" for m in (below, above) if m is not None]
    if not found:
        return "nor at any other near it"
    return f"the nearest with one {'is' if len(found) == 1 else 'are'} {join_words(found)}"


@dataclass(frozen=True)
class Amounts:
    """Whose sizes, numbers and work the ranks of a smaller process grid have.

    ``grid``: the program's process grid at another count; ``ranks``: the rank there that each rank
    of the smaller grid stands for, ascending; ``means``: the mean work of all ranks there
    (``Evaluator.means``).
    """

    grid: GridAt
    ranks: np.ndarray
    means: np.ndarray

    def of(
        self, ranks: np.ndarray, peers: np.ndarray | None
    ) -> tuple[GridAt, np.ndarray, np.ndarray | None]:
        """Return the grid there, and ranks and partners as they are numbered there."""
        if peers is None:
            return self.grid, self.ranks[ranks], None
        return self.grid, self.ranks[ranks], np.where(peers < 0, -1, self.ranks[peers])


#: What is one number in all rows of a part.
_OF_PART = ("item", "slot", "turn")


@dataclass(frozen=True)
class _Part:
    """Rows of one slot in one iteration, as arrays; several parts may have the same ones."""

    item: int
    slot: int
    turn: int
    rank: np.ndarray
    stage: np.ndarray
    peer: np.ndarray
    nbytes: np.ndarray
    repeat: np.ndarray
    comm: np.ndarray
    root: np.ndarray

    def of(self, item: int, slot: int) -> _Part:
        """Return the same rows of another slot."""
        if item == self.item and slot == self.slot:
            return self
        columns = self.peer, self.nbytes, self.repeat, self.comm, self.root
        return _Part(item, slot, self.turn, self.rank, self.stage, *columns)

    def take(self, mask: np.ndarray) -> _Part:
        """Return the rows selected by a mask."""
        arrays = {f.name: getattr(self, f.name)[mask] for f in fields(self)[len(_OF_PART) :]}
        return replace(self, **arrays)


class _RankCache:
    """What is known of some ranks already: who takes part by equal rules, rows of equal slots."""

    def __init__(self, grid: GridAt) -> None:
        self.grid = grid
        self.cells: dict[object, tuple[np.ndarray, np.ndarray, np.ndarray | None]] = {}
        self.parts: dict[object, list[_Part]] = {}


def _alike(slot: Slot) -> object:
    """Return what tells apart slots that have other rows; None for a slot of rare laws."""
    count, size = slot.count, slot.elements
    if count.expr is None or size.expr is None or count.sample or size.sample or slot.turns:
        return None
    root = slot.root and (slot.root.index, slot.root.half, frozen(slot.root.expr))
    return (
        slot.guard,
        slot.relation,
        slot.place,
        frozen(count.expr),
        frozen(size.expr),
        slot.elem_bytes,
        root,
    )


class Evaluator:
    """A model at one process count: rows of any of its ranks, communicators numbered for all.

    ``amounts``: the grid is ``grid``, one of fewer ranks than the program has, who talks to whom
    as on any grid of that form, and all amounts are those of the ranks that they stand for.
    """

    def __init__(
        self, model: Model, n: int, *, grid: GridAt | None = None, amounts: Amounts | None = None
    ) -> None:
        self.model, self.n = model, n
        self.grid = model_grid(model, n) if grid is None else grid
        self.amounts = amounts
        self.comms = Communicators(self.grid)
        for item in model.items:  # numbers must not depend on which ranks are asked for first
            for slot in item.slots:
                if slot.guard is not None:
                    self.comms.ids(slot.place or _WORLD, np.zeros(0, dtype=np.int64))

    def rows(self, ranks: np.ndarray | None = None, work: bool = True) -> ScaledRows:
        """Return the rows of all ranks or of those given, ascending (unknown items left out).

        work: the work before each row is asked for; without it that is of no use.
        """
        c = self._rows(ranks, work)
        means = None
        if work and self.amounts is None:
            means = None if ranks is None or len(ranks) == self.n else self.means
            c["work"] = share_out(self.model, self.grid, c, means)
        elif work and self.amounts is not None:
            there = {**c, "rank": self.amounts.ranks[c["rank"]]}
            c["work"] = share_out(self.model, self.amounts.grid, there, self.amounts.means)
        i64 = {k: c[k].astype(np.int64, copy=False) for k in c if k != "work"}
        return ScaledRows(
            self.n,
            self.grid,
            i64["rank"],
            i64["item"],
            i64["slot"],
            i64["stage"],
            i64["turn"],
            i64["phase"],
            i64["peer"],
            i64["nbytes"],
            i64["repeat"],
            c["work"].astype(float),
            i64["comm"],
            i64["root"],
            self.comms,
            means,
        )

    @cached_property
    def means(self) -> np.ndarray:
        """The mean work of the ranks of each phase by the laws of segments, of those that take
        part; 0 where nothing is brought to it."""
        total, there = np.zeros((2, len(self.model.phases)))
        if self.model.level is None:
            return total
        ranks, weight = standing_for_all(self.grid, _SAMPLE)
        for at in range(0, len(ranks), _AT_ONCE):
            some = ranks[at : at + _AT_ONCE]
            found = of_segments(self.model, self.grid, self._rows(some, work=False), widths=False)
            said = found.per_phase()
            times = weight[np.searchsorted(ranks, found.ranks)]
            total += said @ times
            there += (said > 0) @ times
        return np.asarray(np.divide(total, there, out=total, where=there > 0))

    def _rows(self, ranks: np.ndarray | None, work: bool = True) -> dict[str, np.ndarray]:
        some = self.grid if ranks is None else self.grid.only(np.asarray(ranks, dtype=np.int64))
        items = self.model.items
        known = _RankCache(some)
        parts: list[_Part] = []
        followed = {j for item in items for slot in item.slots for j in slot.count.follows or ()}
        per_item: dict[int, np.ndarray] = {}
        for i, item in enumerate(items):
            totals = np.zeros(some.size, dtype=np.int64) if i in followed else None
            for k, slot in enumerate(item.slots):
                if slot.guard is None or slot.count.follows is not None:
                    continue
                for part in self._slot_rows(i, k, known):
                    if totals is not None:
                        np.add.at(totals, np.searchsorted(some.r, part.rank), part.repeat)
                    parts.append(part)
            if totals is not None:
                per_item[i] = totals
        posts: dict[object, np.ndarray] = {}
        for i, item in enumerate(items):
            for k, slot in enumerate(item.slots):
                if slot.guard is not None and slot.count.follows is not None:
                    law = slot.count
                    if (law.follows, law.together) not in posts:
                        total = np.asarray(count_posted(law, items, per_item))
                        posts[law.follows, law.together] = total
                    parts += self._completion_rows(i, k, known, posts[law.follows, law.together])
        return self._sorted([p for part in parts for p in self._spread(part)], work)

    def _sorted(self, parts: Sequence[_Part], work: bool) -> dict[str, np.ndarray]:
        """Return the columns of all parts by rank and phase, in the order of the program."""
        items = self.model.items
        lengths = [len(p.rank) for p in parts]
        of = np.repeat(np.arange(len(parts)), lengths)

        def each(values: Iterable[float], kind: type) -> np.ndarray:
            return np.fromiter(values, kind, len(parts))[of]

        cols = {
            name: np.concatenate([getattr(p, name) for p in parts]) if parts else np.zeros(0)
            for name in ("rank", "stage", "peer", "nbytes", "repeat", "comm", "root")
        }
        cols |= {name: each((getattr(p, name) for p in parts), int) for name in _OF_PART}
        cols["phase"] = each((items[p.item].phase for p in parts), int)
        n = self.n if self.amounts is None else self.amounts.grid.n
        slots = (items[p.item].slots[p.slot] for p in parts)
        cols["work"] = each((float(s.work.value(n)) if work else 0.0 for s in slots), float)
        # inside a loop over stages everything runs stage by stage
        starts = [items[p.item].loop_start for p in parts]
        in_loop = each((start is not None for start in starts), bool)
        key = each(
            (items[p.item].order if s is None else s for p, s in zip(parts, starts, strict=True)),
            int,
        )
        order = np.lexsort(
            (
                cols["turn"],
                cols["slot"],
                cols["stage"],
                each((items[p.item].order for p in parts), int),
                np.where(in_loop, cols["stage"], 0),
                key,
                cols["phase"],
                cols["rank"],
            )
        )
        return {k: v[order] for k, v in cols.items()}

    def _part(
        self,
        i: int,
        k: int,
        ranks: np.ndarray,
        stage: np.ndarray,
        turn: int,
        peer: np.ndarray | None,
        nbytes: np.ndarray,
        repeat: np.ndarray,
    ) -> _Part:
        slot, m = self.model.items[i].slots[k], len(ranks)
        # completions belong to no communicator
        comm = self.comms.ids(
            _WORLD if slot.count.follows is not None else slot.place or _WORLD, ranks
        )
        none = np.full(m, -1, dtype=np.int64)
        root = none
        law = slot.root
        if law is not None and law.expr is not None:
            place = evaluate_int(law.expr, env_of(self.grid, ranks, peer, stage, turn))
            root = self.comms.member(comm, np.broadcast_to(place, (m,)))
        elif law is not None:
            at = self.comms.sizes(comm) // 2 if law.half else np.full(m, law.index or 0)
            root = self.comms.member(comm, at, beyond=0)
        return _Part(
            i, k, turn, ranks, stage, none if peer is None else peer, nbytes, repeat, comm, root
        )

    def _cells(self, slot: Slot, some: GridAt) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """Return rank, stage and partner of all (stage, rank) that take part, stage by stage."""
        guard = slot.guard or Guard()
        plain = of_ranks(guard)
        if (
            plain.atoms and some.ranks is not None
        ):  # most slots are of few ranks: partners of those only
            some = some.only(some.r[plain.holds(some)])
        none = np.zeros(0, dtype=np.int64)
        relation = slot.relation
        if relation is None:
            there = guard.holds(some) & (self.comms.ids(slot.place or _WORLD, some.r) >= 0)
            ranks = some.r[there]
            return ranks, np.zeros(len(ranks), dtype=np.int64), None
        if not some.size:
            return none, none, none
        table = partners(relation, some)
        found: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = [(none, none, none)]
        for s in range(len(table)):
            mask = guard.holds(at_stage(relation, some, s, len(table)), table[s])
            if mask.any():
                found.append(
                    (some.r[mask], np.full(int(mask.sum()), s, dtype=np.int64), table[s][mask])
                )
        ranks, stage, peer = (np.concatenate(each) for each in zip(*found, strict=True))
        return ranks, stage, peer

    def _at(
        self, ranks: np.ndarray, peers: np.ndarray | None
    ) -> tuple[GridAt, np.ndarray, np.ndarray | None]:
        """Return the grid that amounts are of, with ranks and partners as they are numbered
        there."""
        if self.amounts is None:
            return self.grid, ranks, peers
        return self.amounts.of(ranks, peers)

    def _slot_rows(self, i: int, k: int, known: _RankCache) -> list[_Part]:
        slot = self.model.items[i].slots[k]
        key = _alike(slot)
        found = None if key is None else known.parts.get(key)
        if found is None:
            found = self._of_slot(i, k, known)
            if key is not None:
                known.parts[key] = found
        return [part.of(i, k) for part in found]

    def _of_slot(self, i: int, k: int, known: _RankCache) -> list[_Part]:
        slot, some = self.model.items[i].slots[k], known.grid
        shared = slot.count.total is not None and some.ranks is not None  # among all ranks
        who = (slot.guard, slot.relation, slot.place, shared)
        if who not in known.cells:
            known.cells[who] = self._cells(slot, self.grid if shared else some)
        ranks, stage, peers = known.cells[who]
        calls = count_of(slot, *self._at(ranks, peers), stage, (0, len(ranks)))
        if shared:
            mine = np.isin(ranks, some.r)
            ranks, stage, calls = ranks[mine], stage[mine], calls[mine]
            peers = peers[mine] if peers is not None else None
        out = []
        env = {} if slot.turns is None else env_of(*self._at(ranks, peers), stage)
        for t, has, place in turns_at(slot.turns, env, len(ranks)):
            repeat = share(calls[has], place)
            has, repeat = has[repeat > 0], repeat[repeat > 0]
            if not len(has):
                continue
            peer = peers[has] if peers is not None else None
            nbytes = bytes_of(slot, *self._at(ranks[has], peer), stage[has], t)
            out.append(self._part(i, k, ranks[has], stage[has], t, peer, nbytes, repeat))
        return out

    def _completion_rows(self, i: int, k: int, known: _RankCache, total: np.ndarray) -> list[_Part]:
        slot, some = self.model.items[i].slots[k], known.grid
        times, per = slot.count.factor or (1, 1)
        repeat = np.rint(total * times / per).astype(np.int64)
        there = np.flatnonzero(repeat > 0)
        if not len(there):
            return []
        ranks = some.r[there]
        stage = np.zeros(len(ranks), dtype=np.int64)
        nbytes = bytes_of(slot, *self._at(ranks, None), stage)
        return [self._part(i, k, ranks, stage, 0, None, nbytes, repeat[there])]

    def _spread(self, part: _Part) -> list[_Part]:
        """Give a completion inside a loop over stages its own row per stage."""
        item = self.model.items[part.item]
        relation = None if item.stages_of is None else self.model.items[item.stages_of].relation
        if relation is None:
            return [part]
        stages = len(partners(relation, self.grid.only(np.zeros(1, dtype=np.int64))))
        uneven = part.repeat % max(stages, 1) != 0
        if stages < 2 or uneven.all():
            return [part]
        even = part.take(~uneven)
        split = [
            replace(even, stage=np.full(len(even.rank), s), repeat=even.repeat // stages)
            for s in range(stages)
        ]
        return [part.take(uneven), *split] if uneven.any() else split


_WORLD = World(ordinal=0)


def generate(
    model: Model, n: int, ranks: np.ndarray | None = None, work: bool = True
) -> ScaledRows:
    """Return the rows of the scaled trace at ``n`` processes, of all ranks or of some.

    work: as of :meth:`Evaluator.rows`.
    """
    return Evaluator(model, n).rows(ranks, work)
