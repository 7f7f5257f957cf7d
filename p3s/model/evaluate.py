"""Evaluate a model at any process count: the rows of the scaled trace, communicator members."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np

from p3s.errors import P3SError
from p3s.model.expr import Expr, evaluate_int
from p3s.model.grids import GridFamily
from p3s.model.guards import GridAt, eval_guard
from p3s.model.laws import WorkLaw
from p3s.model.nodes import grid_at
from p3s.model.places import instances
from p3s.model.relations import at_stage, partners
from p3s.model.slots import bytes_of, count_of, env_of
from p3s.model.turned import share, turns_at
from p3s.model.workload import share_out

Model = dict[str, Any]


@dataclass(frozen=True)
class ScaledRows:
    """The scaled trace as arrays, one entry per (rank, slot, stage), in program order per rank.

    item, slot index the model's items and the item's slots; comm indexes ``members``.
    """

    n: int
    grid: GridAt
    rank: np.ndarray
    item: np.ndarray
    slot: np.ndarray
    stage: np.ndarray
    phase: np.ndarray
    peer: np.ndarray
    nbytes: np.ndarray
    repeat: np.ndarray
    work: np.ndarray
    comm: np.ndarray
    root: np.ndarray
    members: list[tuple[int, ...]]


def model_grid(model: Model, n: int) -> GridAt:
    """Return the program's process grid at ``n``; P3SError where its rule does not admit n."""
    family = GridFamily.from_json(model["grid"]["family"])
    grid = grid_at(family, n)
    if grid is None:
        raise P3SError(
            f"scale: the program's process grid ({family.text()}) has no form at {n} processes; "
            f"traced counts were {', '.join(map(str, model['counts']))}; choose a count of that "
            "form")
    return grid


class _Comms:
    """Numbers communicators as they are met; the world is 0."""

    def __init__(self, grid: GridAt) -> None:
        self.grid = grid
        self.members: list[tuple[int, ...]] = [tuple(range(grid.n))]
        self.known: dict[str, tuple[np.ndarray, int]] = {}

    def ids(self, law: dict[str, Any]) -> np.ndarray:
        """Return the communicator number per rank (-1 for ranks outside)."""
        name = json.dumps(law, sort_keys=True)
        if name not in self.known:
            if law["kind"] == "world" and not law.get("ordinal") and "order" not in law:
                self.known[name] = (np.zeros(self.grid.n, dtype=np.int64), 0)
            else:
                number, members = instances(law, self.grid)
                self.known[name] = (number, len(self.members))
                self.members += members
        number, base = self.known[name]
        return np.where(number >= 0, number + base, -1)


def generate(model: Model, n: int) -> ScaledRows:
    """Return the rows of the scaled trace at ``n`` processes (unknown items are left out)."""
    grid = model_grid(model, n)
    comms = _Comms(grid)
    parts: list[dict[str, np.ndarray]] = []
    per_item: dict[int, np.ndarray] = {}
    for i, item in enumerate(model["items"]):
        totals = np.zeros(n, dtype=np.int64)
        for k, slot in enumerate(item["slots"]):
            if slot["guard"] is None or "follows" in slot["count"]:
                continue
            for part in _slot_rows(item, slot, i, k, grid, comms):
                np.add.at(totals, part["rank"], part["repeat"])
                parts.append(part)
        per_item[i] = totals
    for i, item in enumerate(model["items"]):
        for k, slot in enumerate(item["slots"]):
            if slot["guard"] is not None and "follows" in slot["count"]:
                total = sum(per_item[j] for j in slot["count"]["follows"])
                parts.extend(_completion_rows(item, slot, i, k, grid, comms,
                                              np.asarray(total)))
    parts = [p for part in parts for p in _spread(model, part, grid)]
    names = ("rank", "item", "slot", "stage", "phase", "order", "peer", "nbytes", "repeat",
             "work", "comm", "root", "key", "turn")
    cols = {k: np.concatenate([p[k] for p in parts]) if parts else np.zeros(0) for k in names}
    order = np.zeros(0, dtype=np.int64)
    if parts:
        # inside a loop over stages everything runs stage by stage
        in_loop = np.array([it["loop_start"] is not None for it in model["items"]],
                           dtype=bool)[cols["item"]]
        order = np.lexsort((cols["turn"], cols["slot"], cols["stage"], cols["order"],
                            np.where(in_loop, cols["stage"], 0), cols["key"], cols["phase"],
                            cols["rank"]))
    c = {k: v[order] for k, v in cols.items()}
    if parts:
        c["work"] = share_out(model, grid, c)
    i64 = {k: c[k].astype(np.int64) for k in c if k != "work"}
    return ScaledRows(n, grid, i64["rank"], i64["item"], i64["slot"], i64["stage"], i64["phase"],
                      i64["peer"], i64["nbytes"], i64["repeat"], c["work"].astype(float),
                      i64["comm"], i64["root"], comms.members)


def _columns(item: dict[str, Any], slot: dict[str, Any], i: int, k: int, ranks: np.ndarray,
             stage: int, peer: np.ndarray, nbytes: np.ndarray, repeat: np.ndarray,
             comm: np.ndarray, grid: GridAt, members: list[tuple[int, ...]]
             ) -> dict[str, np.ndarray]:
    m = len(ranks)
    start = item["loop_start"] if item["loop_start"] is not None else item["order"]

    def full(v: float) -> np.ndarray:
        return np.full(m, v, dtype=np.int64)

    root = full(-1)
    if slot["root"] is not None and "expr" not in slot["root"]:
        root = np.array([_root(slot["root"], members[x]) if x >= 0 else -1 for x in comm],
                        dtype=np.int64)
    work = np.full(m, float(WorkLaw.from_json(slot["work"]).value(grid.n)))
    return {"rank": ranks, "item": full(i), "slot": full(k), "stage": full(stage),
            "phase": full(item["phase"]), "order": full(item["order"]), "key": full(start),
            "peer": peer, "nbytes": nbytes, "repeat": repeat, "work": work, "comm": comm,
            "root": root, "turn": full(0)}


def _root(law: dict[str, Any], members: tuple[int, ...]) -> int:
    index = len(members) // 2 if law.get("half") else law["index"]
    return members[index] if index < len(members) else members[0]


def _slot_rows(item: dict[str, Any], slot: dict[str, Any], i: int, k: int, grid: GridAt,
               comms: _Comms) -> list[dict[str, np.ndarray]]:
    number = comms.ids(slot["place"] or {"kind": "world"})
    out = []
    table = partners(slot["relation"], grid) if slot["relation"] is not None else None
    cells: list[tuple[int, np.ndarray, np.ndarray | None]] = []
    stages = len(table) if table is not None else 1
    for s in range(stages):
        peers = table[s] if table is not None else None
        mask = eval_guard(slot["guard"], at_stage(slot["relation"], grid, s, stages), peers)
        if table is None:
            mask &= number >= 0
        ranks = np.flatnonzero(mask)
        if len(ranks):
            cells.append((s, ranks, peers[ranks] if peers is not None else None))
    total, before = sum(len(ranks) for _, ranks, _ in cells), 0
    for s, ranks, mine in cells:
        stage = np.full(len(ranks), s, dtype=np.int64)
        calls = count_of(slot, grid, ranks, mine, stage, (before, total))
        before += len(ranks)
        env = env_of(grid, ranks, mine, stage)
        for t, has, place in turns_at(slot.get("turns"), env, len(ranks)):
            repeat = share(calls[has], place)
            has, repeat = has[repeat > 0], repeat[repeat > 0]
            if not len(has):
                continue
            here = ranks[has]
            peers = mine[has] if mine is not None else None
            nbytes = bytes_of(slot, grid, here, peers, stage[has], t)
            peer = peers if peers is not None else np.full(len(here), -1, dtype=np.int64)
            part = _columns(item, slot, i, k, here, s, peer, nbytes, repeat, number[here], grid,
                            comms.members)
            if slot["root"] is not None and "expr" in slot["root"]:
                part["root"] = _roots(slot["root"]["expr"], env_of(grid, here, peers, stage[has],
                                                                   t), number[here],
                                      comms.members)
            part["turn"] = np.full(len(here), t, dtype=np.int64)
            out.append(part)
    return out


def _roots(law: Expr, env: dict[str, np.ndarray], comm: np.ndarray,
           members: list[tuple[int, ...]]) -> np.ndarray:
    """Return the root's rank for each row; the law gives its place in the communicator."""
    place = np.broadcast_to(evaluate_int(law, env), comm.shape)
    return np.array([members[c][k] if c >= 0 and k < len(members[c]) else -1
                     for c, k in zip(comm.tolist(), place.tolist(), strict=True)], dtype=np.int64)


def _completion_rows(item: dict[str, Any], slot: dict[str, Any], i: int, k: int, grid: GridAt,
                     comms: _Comms, total: np.ndarray) -> list[dict[str, np.ndarray]]:
    factor = slot["count"]["factor"]
    repeat = np.rint(total * factor[0] / factor[1]).astype(np.int64)
    ranks = np.flatnonzero(repeat > 0)
    if not len(ranks):
        return []
    stage = np.zeros(len(ranks), dtype=np.int64)
    return [_columns(item, slot, i, k, ranks, 0, np.full(len(ranks), -1, dtype=np.int64),
                     bytes_of(slot, grid, ranks, None, stage), repeat[ranks],
                     comms.ids({"kind": "world", "ordinal": 0})[ranks], grid, comms.members)]


def _spread(model: Model, part: dict[str, np.ndarray], grid: GridAt
            ) -> list[dict[str, np.ndarray]]:
    """Give a completion inside a loop over stages its own row per stage."""
    item = model["items"][int(part["item"][0])]
    family = item.get("stages_of")
    if family is None:
        return [part]
    stages = len(partners(model["items"][family]["slots"][0]["relation"], grid))
    if stages < 2 or np.any(part["repeat"] % stages):
        return [part]
    return [{**part, "stage": np.full(len(part["rank"]), s, dtype=np.int64),
             "repeat": part["repeat"] // stages} for s in range(stages)]


def phase_weight(phase: dict[str, Any], grid: GridAt) -> int:
    """Return how often a phase occurs in the run at the grid's process count."""
    law = phase["weight"]
    if "expr" in law:
        env = {"n": grid.n, **{f"p{d}": p for d, p in enumerate(grid.dims)}}
        return int(evaluate_int(law["expr"], env))
    return max(int(round(float(WorkLaw.from_json(law["stat"]).value(grid.n)))), 0)
