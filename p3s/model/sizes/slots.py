"""Slots: one communication of the program as equations (partner, guard, count, bytes, work).

An *item* is what one node (site, operation, tag) does towards one relation or on one kind of
communicator; a *slot* is an item with one size. All slots of a node are plain data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from p3s.laws.counts import WorkLaw
from p3s.laws.expr import whole_number
from p3s.laws.lawfinder import find_law
from p3s.laws.whole import evaluate_int
from p3s.model.grid.guardfit import fit_guard
from p3s.model.grid.guards import GridAt
from p3s.model.partners import irregular
from p3s.model.partners.relations import at_stage
from p3s.model.sizes.amounts import Amount
from p3s.model.sizes.blocks import ExtentPool, Observations
from p3s.model.sizes.elements import fit_elements
from p3s.model.sizes.rankcounts import fit_rank_count
from p3s.model.sizes.turned import fit_root, fit_turns, turns_matter
from p3s.text import processes

MAX_VARIANTS = 32
NO_SIZE = "no exact law for the message size"
ROOT = "the root varies: rank 0 of the communicator stands in"
OPEN = "several ways of cutting the blocks fit at the traced counts"
EVEN = "blocks were even at every traced count: how a remainder is dealt with is open"
Slot = dict[str, Any]


@dataclass
class Rows:
    """What one node did at one count; arrays of equal length, one row per rank, group, size, turn.

    turn: index of the iteration in the loop whose iterations differ in partner, size or root,
    0 where it does not matter (p3s.model.order.turns)."""

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
        return Rows(*(getattr(self, f)[mask] for f in self.__dataclass_fields__))


@dataclass
class Item:
    """The rows of one relation (or communicator law) of a node, per count.

    stage: stage number per row; peers: partners (stages, n) or None for collectives and the
    like; care: (stages, n) False where another item of the node has the same partner; sure: cells
    whose size is known all the same, because all messages to that partner have one size; ways:
    how many items and stages share a cell's partner.
    """

    rows: dict[int, Rows]
    stage: dict[int, np.ndarray]
    peers: dict[int, np.ndarray] | None
    care: dict[int, np.ndarray]
    grids: Mapping[int, GridAt]
    relation: dict[str, Any] | None = None
    place: dict[str, Any] | None = None
    notes: list[str] = field(default_factory=list)
    sure: dict[int, np.ndarray] = field(default_factory=dict)
    ways: dict[int, np.ndarray] = field(default_factory=dict)

    def sized(self, n: int) -> np.ndarray:
        """Return the cells whose size belongs to this item for certain."""
        return self.care[n] | self.sure[n] if n in self.sure else self.care[n]


def env_of(
    g: GridAt,
    ranks: np.ndarray,
    peers: np.ndarray | None = None,
    stage: np.ndarray | int = 0,
    turn: np.ndarray | int = 0,
) -> dict[str, np.ndarray]:
    """Return the symbols of expressions for ``ranks`` at one count, as int64 arrays."""
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
    return env


def _matrix(item: Item, n: int, values: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    out = np.zeros(shape, dtype=np.int64)
    np.add.at(out, (item.stage[n], item.rows[n].rank), values)
    return out


def _variants(item: Item, counts: list[int]) -> dict[int, np.ndarray] | None:
    """Number the sizes that each (stage, rank) uses, in order of appearance; None if irregular."""
    out: dict[int, np.ndarray] = {}
    widths: set[int] = set()
    for n in counts:
        rows, stage = item.rows[n], item.stage[n]
        number = np.zeros(len(rows.rank), dtype=np.int64)
        cell = stage * item.grids[n].n + rows.rank
        order = np.lexsort((rows.first, cell))
        sizes: dict[int, list[int]] = {}
        for i in order:
            known = sizes.setdefault(int(cell[i]), [])
            b = int(rows.nbytes[i])
            if b not in known:
                known.append(b)
            number[i] = known.index(b)
        cared, sized = item.care[n], item.sized(n)
        for c, known in sizes.items():
            s, r = divmod(c, item.grids[n].n)
            if cared[s, r]:
                widths.add(len(known))
            elif not sized[s, r]:  # another item's sizes are mixed in
                number[cell == c] = 0
        out[n] = number
    if len(widths) > 1 or (widths and max(widths) > MAX_VARIANTS):
        return None
    return out


def fit_item(item: Item, counts: list[int], pool: ExtentPool, varying: bool) -> list[Slot]:
    """Return the slots of an item: one, by turn where iterations tell sizes or roots apart; else
    one
    per size in order of appearance, or one with statistical sizes.

    counts: all process counts of the study, also those at which the item was not seen.
    """
    seen = [n for n in counts if len(item.rows[n].rank)]
    if any(_by_turn(item, n) for n in seen):
        slot = _fit_slot(
            item,
            {n: item.rows[n] for n in counts},
            item.stage,
            counts,
            pool,
            varying,
            mixed=False,
            turned=True,
        )
        if slot["turns"] is not None and "expr" in slot["elements"] and ROOT not in slot["why"]:
            return [slot]
    numbers = _variants(item, seen)
    width = 1 + max((int(v.max()) for v in (numbers or {}).values() if len(v)), default=0)
    if numbers is None:
        slot = _fit_slot(
            item, {n: item.rows[n] for n in counts}, item.stage, counts, pool, varying, mixed=True
        )
        return [slot]
    slots = []
    for k in range(width):
        rows: dict[int, Rows] = {}
        stage: dict[int, np.ndarray] = {}
        for n in counts:
            pick = numbers[n] == k if n in numbers else np.zeros(0, dtype=bool)
            rows[n] = item.rows[n].take(pick)
            stage[n] = item.stage[n][pick]
        slots.append(_fit_slot(item, rows, stage, counts, pool, varying, mixed=False))
    return slots


def _by_turn(item: Item, n: int) -> bool:
    """Tell whether the iterations of the cells that are known tell sizes or roots apart at
    ``n``."""
    rows, stage = item.rows[n], item.stage[n]
    keep = item.sized(n)[stage, rows.rank]
    mine = rows.take(keep)
    return turns_matter(
        stage[keep] * item.grids[n].n + mine.rank, mine.turn, (mine.nbytes, mine.root)
    )


def _fit_slot(
    item: Item,
    rows: dict[int, Rows],
    stage: dict[int, np.ndarray],
    counts: list[int],
    pool: ExtentPool,
    varying: bool,
    mixed: bool,
    turned: bool = False,
) -> Slot:
    sub = Item(
        rows,
        stage,
        item.peers,
        item.care,
        item.grids,
        item.relation,
        item.place,
        sure=item.sure,
        ways=item.ways,
    )
    slot: Slot = {"relation": item.relation, "place": item.place, "why": [], "turns": None}
    why: list[str] = slot["why"]
    shapes = {
        n: (len(item.peers[n]) if item.peers is not None else 1, item.grids[n].n) for n in counts
    }
    times = {n: _matrix(sub, n, rows[n].count, shapes[n]) for n in counts}
    slot["seen"] = [n for n in counts if times[n].any()]

    grids: list[GridAt] = []
    sets: list[np.ndarray] = []
    peers: list[np.ndarray] = []
    cares: list[np.ndarray] = []
    for n in counts:
        for s in range(shapes[n][0]):
            grids.append(at_stage(item.relation, item.grids[n], s, shapes[n][0]))
            # who takes part, whichever partner it happened to have in this run
            if varying and item.peers is not None:
                sets.append(np.any(times[n] > 0, axis=0) & (item.peers[n][s] >= 0))
            else:
                sets.append(np.asarray(times[n][s] > 0))
            cares.append(item.care[n][s])
            if item.peers is not None:
                peers.append(item.peers[n][s])
    guard = (
        fit_guard(grids, sets, peers if item.peers is not None else None, cares) if grids else []
    )
    if guard is None and slot["seen"] and slot["seen"][0] > counts[0]:
        late = [i for i, g in enumerate(grids) if g.n >= slot["seen"][0]]
        guard = fit_guard(
            [grids[i] for i in late],
            [sets[i] for i in late],
            [peers[i] for i in late] if peers else None,
            [cares[i] for i in late],
        )
        if guard is not None:
            below = max(n for n in counts if n < slot["seen"][0])
            guard = [*guard, ["above", below]]
            why.append(f"first seen at {processes(slot['seen'][0])}")
    slot["guard"] = guard
    if guard is None:
        why.append("no rule found for which ranks take part")
    _fit_count(slot, item, times, counts, varying)
    if turned:
        _fit_turns(slot, sub, counts)
    _fit_bytes(slot, sub, counts, pool, mixed)
    _fit_root(slot, sub, counts)
    _fit_work(slot, sub, counts)
    return slot


def _cells(item: Item, times: dict[int, np.ndarray], n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return (stage, rank) of the cells that are known to belong to this slot alone."""
    stage, rank = np.nonzero((times[n] > 0) & item.care[n])
    return stage, rank


def _fit_count(
    slot: Slot, item: Item, times: dict[int, np.ndarray], counts: list[int], varying: bool
) -> None:
    ndims = len(item.grids[counts[0]].dims)
    envs: list[dict[str, int]] = []
    values: list[float] = []
    parts: list[tuple[dict[str, np.ndarray], np.ndarray]] = []
    exact = True
    for n in counts:
        s, r = _cells(item, times, n)
        if not len(s):
            continue
        got = times[n][s, r]
        g = item.grids[n]
        env = env_of(g, r, item.peers[n][s, r] if item.peers is not None else None, s)
        parts.append((env, got))
        if np.any(got != got[0]):
            exact = False
        envs.append({"n": n, **{f"p{d}": p for d, p in enumerate(g.dims)}})
        values.append(int(got[0]))
    if not parts:  # every cell is shared with another relation: each gets its part
        envs, values = [], []
        for n in counts:
            s, r = np.nonzero(times[n])
            if len(s):
                ways = np.maximum(item.ways[n][s, r], 1) if n in item.ways else 1
                envs.append({"n": n, **{f"p{d}": p for d, p in enumerate(item.grids[n].dims)}})
                values.append(float(np.median(times[n][s, r] / ways)))
        whole = all(v == int(v) for v in values)
        law = find_law(zip(envs, map(int, values), strict=True), "whole").law if whole else None
        slot["count"] = (
            {"expr": law.expr}
            if law
            else {"stat": find_law(zip(envs, values, strict=True), "work").fit.to_json()}
        )
        slot["why"].append("never seen apart from another partner at the same rank")
        return
    if exact and not varying:
        law = find_law(zip(envs, map(int, values), strict=True), "whole").law
        if law is not None:
            slot["count"] = {"expr": law.expr, "points": law.points, "free": law.free}
            if law.others:
                slot["count"]["rivals"] = [{"expr": e} for e in law.others]
            return
        slot["why"].append("no exact law for the number of communications")
    elif not varying:
        names = set(parts[0][0])
        obs = Observations(
            {k: np.concatenate([e[k] for e, _ in parts]) for k in names},
            np.concatenate([v for _, v in parts]),
            ndims,
        )
        law = fit_rank_count(obs.env, obs.value, ndims) or fit_elements(obs, ExtentPool())
        if law is not None and law.points >= 2 and law.free < law.points:
            slot["count"] = {"expr": law.expr, "points": law.points, "free": law.free}
            return
        slot["why"].append("the number of communications differs by rank without a rule found")
    else:
        slot["why"].append("the number of communications differs between repeats")
    totals = [int(v.sum()) for _, v in parts]
    law = find_law(((e["n"], v) for e, v in zip(envs, totals, strict=True)), "whole").law
    slot["count"] = (
        {"total": law.expr}
        if law is not None and law.free < law.points
        else {
            "stat": find_law(
                ((e["n"], v.mean()) for e, (_, v) in zip(envs, parts, strict=True)), "work"
            ).fit.to_json()
        }
    )


def _known_rows(item: Item, n: int) -> tuple[dict[str, np.ndarray], Rows, np.ndarray]:
    """Return the symbols and the rows of the cells that are the item's own, and their stages."""
    rows, stage = item.rows[n], item.stage[n]
    keep = item.sized(n)[stage, rows.rank]
    if not keep.any() and not any(
        item.sized(m).any() and len(item.rows[m].rank) for m in item.rows
    ):
        keep = np.ones(len(rows.rank), dtype=bool)
    mine, stage = rows.take(keep), stage[keep]
    peers = item.peers[n][stage, mine.rank] if item.peers is not None else None
    return env_of(item.grids[n], mine.rank, peers, stage, mine.turn), mine, stage


def _joined(parts: Sequence[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    return {k: np.concatenate([e[k] for e in parts]) for k in parts[0]}


def _fit_turns(slot: Slot, item: Item, counts: list[int]) -> None:
    parts = []
    for n in counts:
        if len(item.rows[n].rank):
            env, rows, stage = _known_rows(item, n)
            if len(rows.rank):  # else all cells are shared with another relation
                parts.append((env, stage * item.grids[n].n + rows.rank, rows.count))
    slot["turns"] = fit_turns(parts, len(item.grids[counts[0]].dims)) if parts else None


def _fit_bytes(slot: Slot, item: Item, counts: list[int], pool: ExtentPool, mixed: bool) -> None:
    parts: list[tuple[dict[str, np.ndarray], np.ndarray]] = []
    elem = 1
    sizes = {int(e) for n in counts for e in np.unique(item.rows[n].elem)}
    if len(sizes) == 1:
        elem = sizes.pop()
    means: list[tuple[int, float, int]] = []
    for n in counts:
        rows = item.rows[n]
        if not len(rows.rank):
            continue
        total = float((rows.nbytes * rows.count).sum())
        means.append((n, total / float(rows.count.sum()), int(rows.count.sum())))
        if np.any(rows.nbytes % elem):
            elem = 1
        env, known, _ = _known_rows(item, n)
        parts.append((env, known.nbytes))
    slot["elem_bytes"] = elem
    if not mixed and parts:
        env = _joined([e for e, _ in parts])
        obs = Observations(
            env,
            np.concatenate([v for _, v in parts]) // elem,
            len(item.grids[counts[0]].dims),
            _across(item),
            _all_there(env),
        )
        law = fit_elements(obs, pool)
        if law is not None:
            slot["elements"] = {
                "expr": law.expr,
                "points": law.points,
                "free": law.free,
                "even": law.even,
                "rivals": [*map(list, law.rivals), *({"expr": e} for e in law.others)],
                "open": law.open(),
            }
            if law.even:
                slot["why"].append(EVEN)
            elif law.rivals or law.others:
                slot["why"].append(OPEN)
            return
        slot["why"].append(NO_SIZE)
    else:
        slot["why"].append("message sizes vary inside the run")
    # The law comes when all sizes are known (amounts.fit_amounts): they share what they show.
    slot["elements"] = {"stat": None, "means": [[n, b / elem, k] for n, b, k in means]}


def _all_there(env: dict[str, np.ndarray]) -> bool:
    """Tell whether every rank is there at every count, stage and iteration at which any is."""
    cells = np.unique(np.stack([env[k] for k in ("n", "s", "t", "r")]), axis=1)
    _, first, ranks = np.unique(cells[:3], axis=1, return_index=True, return_counts=True)
    return bool(np.all(ranks == cells[0][first]))


def _across(item: Item) -> tuple[int, ...]:
    """Return the dimensions a shift does not move along; empty for all else."""
    rel = item.relation
    if rel is None or rel["kind"] != "shift" or len(rel["vec"]) < 2 or not any(rel["vec"]):
        return ()
    return tuple(d for d, v in enumerate(rel["vec"]) if v == 0)


def _fit_root(slot: Slot, item: Item, counts: list[int]) -> None:
    roots = {(int(r), n) for n in counts for r in np.unique(item.rows[n].root)}
    where = {r for r, _ in roots}
    if where <= {-1}:
        slot["root"] = None
    elif len(where) == 1:
        slot["root"] = {"index": where.pop()}
    elif roots and all(r == item.grids[n].n - 1 for r, n in roots):
        slot["root"] = {"index": -1}
    elif all(r == item.grids[n].n // 2 for r, n in roots):
        slot["root"] = {"half": True}
    else:
        parts = [_known_rows(item, n) for n in counts if len(item.rows[n].rank)]
        env = _joined([e for e, _, _ in parts])
        if slot["turns"] is None:
            env["t"] = np.zeros(len(env["n"]), dtype=np.int64)
        law = fit_root(
            env, np.concatenate([r.root for _, r, _ in parts]), len(item.grids[counts[0]].dims)
        )
        if law is not None:
            slot["root"] = {"expr": law}
            return
        slot["root"] = {"index": 0}
        slot["why"].append(ROOT)


def _fit_work(slot: Slot, item: Item, counts: list[int]) -> None:
    ns, values = [], []
    for n in counts:
        rows = item.rows[n]
        if len(rows.rank) and rows.count.sum():
            ns.append(n)
            values.append(float(rows.work.sum()) / float(rows.count.sum()))
    slot["work"] = find_law(zip(ns, values, strict=True), "work").fit.to_json()
    slot["work_points"] = [[n, v] for n, v in zip(ns, values, strict=True)]


def sample_slot(item: Item, counts: list[int]) -> Slot:
    """Return the one slot of an item whose relation is a sample (p3s.model.partners.irregular)."""
    rows = {n: item.rows[n] for n in counts if len(item.rows[n].rank)}
    units = {int(e) for r in rows.values() for e in np.unique(r.elem)}
    elem = units.pop() if len(units) == 1 else 1
    if any(np.any(r.nbytes % elem) for r in rows.values()):
        elem = 1
    slot: Slot = {
        "relation": item.relation,
        "place": item.place,
        "why": [irregular.WHY],
        "seen": sorted(rows),
        "guard": [["peer"]],
        "elem_bytes": elem,
    }
    each = {
        n: np.bincount(np.unique(r.rank * n + r.peer, return_inverse=True)[1], weights=r.count)
        for n, r in rows.items()
    }
    law = None
    if all(np.all(v == v[0]) for v in each.values()):
        law = find_law(
            [
                ({"n": n, **{f"p{d}": p for d, p in enumerate(item.grids[n].dims)}}, int(v[0]))
                for n, v in each.items()
            ],
            "whole",
        ).law
    slot["count"] = (
        {"expr": law.expr, "points": law.points, "free": law.free}
        if law
        else {"stat": find_law(((n, v.mean()) for n, v in each.items()), "work").fit.to_json()}
    )
    slot["elements"] = irregular.sample_law(
        {n: (r.rank, r.peer, r.nbytes, r.count) for n, r in rows.items()}, elem
    )
    _fit_root(slot, item, counts)
    _fit_work(slot, item, counts)
    return slot


def count_of(
    slot: Slot,
    g: GridAt,
    ranks: np.ndarray,
    peers: np.ndarray | None,
    stage: np.ndarray,
    cells: tuple[int, int],
) -> np.ndarray:
    """Return how often each rank executes the slot in the run, int64.

    cells: number of (stage, rank) cells before these and in all, to share out a total.
    """
    law = slot["count"]
    if "expr" in law:
        value = evaluate_int(law["expr"], env_of(g, ranks, peers, stage))
        return np.broadcast_to(value, (len(ranks),)).astype(np.int64)
    if "total" in law:
        total = int(np.max(evaluate_int(law["total"], env_of(g, np.zeros(1, dtype=np.int64)))))
        shares = max(cells[1], 1)
        return total // shares + (cells[0] + np.arange(len(ranks)) < total % shares)
    mean = float(WorkLaw.from_json(law["stat"]).value(g.n))
    return np.full(len(ranks), whole_number(mean, g.n), dtype=np.int64)


def bytes_of(
    slot: Slot,
    g: GridAt,
    ranks: np.ndarray,
    peers: np.ndarray | None,
    stage: np.ndarray,
    turn: int = 0,
) -> np.ndarray:
    """Return the bytes of one occurrence for each rank, int64."""
    law = slot["elements"]
    if "sample" in law and peers is not None:
        return irregular.sizes(slot["relation"], law["sample"], g.n, ranks, peers) * int(
            slot["elem_bytes"]
        )
    if "expr" in law:
        value = evaluate_int(law["expr"], env_of(g, ranks, peers, stage, turn))
        elements = np.broadcast_to(value, (len(ranks),)).astype(np.int64)
        return np.asarray(elements * slot["elem_bytes"])
    at = {"n": g.n, **{f"p{d}": p for d, p in enumerate(g.dims)}}
    mean = float(Amount.from_json(law["stat"]).value(at)) * slot["elem_bytes"]
    return np.full(len(ranks), whole_number(mean, g.n), dtype=np.int64)
