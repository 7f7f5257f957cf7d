"""The loop nest over items: phases, weights, order, loops over stages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from p3s.characterize.fold import Loop, fold
from p3s.characterize.tables import PointTable
from p3s.model.guards import GridAt
from p3s.model.laws import fit_exact, fit_work
from p3s.model.nodes import law_of, node_key
from p3s.model.places import instances
from p3s.model.relations import partners, stages_depend_on_n
from p3s.trace.ops import COLLECTIVE, COMM, COMPLETION, RECV, SEND

UNKNOWN_ITEM = 10**6


@dataclass
class Assignment:
    """Which item every (rank, group) of one count belongs to; shared: several would fit."""

    item: dict[tuple[int, int], int]
    shared: bool


def assign(items: Sequence[dict[str, Any]], table: PointTable, grid: GridAt,
           split: Mapping[tuple[str, str], bool]) -> Assignment:
    """Map the groups of a table to model items; groups of no item get numbers of their own."""
    by_node: dict[tuple[str, str, int | None], list[int]] = {}
    for i, item in enumerate(items):
        by_node.setdefault((item["site"], item["op"], item["tag"]), []).append(i)
    tabs: dict[int, np.ndarray] = {}
    out: dict[tuple[int, int], int] = {}
    shared = False
    law_members: dict[int, set[tuple[int, ...]]] = {}
    for rank, gi in np.unique(np.stack([table.rank, table.group], axis=1), axis=0):
        g = table.groups[gi]
        options = by_node.get(node_key(g.site, g.op, g.tag, split), [])
        fits = []
        for i in options:
            rel = items[i]["relation"]
            if rel is not None:
                if i not in tabs:
                    tabs[i] = partners(rel, grid)
                if len(tabs[i]) and bool((tabs[i][:, rank] == g.peer).any()) and g.peer >= 0:
                    fits.append(i)
            elif g.kind in (COLLECTIVE, COMM):
                if i not in law_members:
                    law_members[i] = set(instances(items[i]["place"], grid)[1])
                members = table.places[g.comm].members if 0 <= g.comm < len(table.places) else ()
                same = items[i]["place"].get("ordinal") == law_of(table, g.comm,
                                                                  grid).get("ordinal")
                odd = items[i]["place"]["kind"] == "odd" and \
                    law_of(table, g.comm, grid)["kind"] == "odd"
                if same and (members in law_members[i] or odd):
                    fits.append(i)
            elif g.kind not in (SEND, RECV):
                fits.append(i)
        if not fits:
            fits = [i for i in options if items[i]["relation"] is None
                    and g.kind in (SEND, RECV)]
        shared |= len(fits) > 1
        out[(int(rank), int(gi))] = fits[0] if fits else UNKNOWN_ITEM + int(gi)
    return Assignment(out, shared)


def member_edges(table: PointTable, assignment: Assignment
                 ) -> dict[int, dict[tuple[int, int], int]]:
    """Return per rank the transitions between items, with counts, START and END included."""
    out: dict[int, dict[tuple[int, int], int]] = {}
    for rank, a, b, k in table.edges:
        r = int(rank)
        u = assignment.item[(r, int(a))] if a >= 0 else int(a)
        v = assignment.item[(r, int(b))] if b >= 0 else int(b)
        edges = out.setdefault(r, {})
        edges[(u, v)] = edges.get((u, v), 0) + int(k)
    return out


def build_tree(items: Sequence[dict[str, Any]], tables: Sequence[PointTable],
               grids: Mapping[int, GridAt], split: Mapping[tuple[str, str], bool]
               ) -> tuple[Loop, list[int]]:
    """Fold the runs into one tree; return it with the counts that took part.

    Counts at which two items cannot be told apart (an extent of 2) are left out as long as
    others remain, because the transitions there are those of one item.
    """
    assigned = {t.np: assign(items, t, grids[t.np], split) for t in tables}
    clear = [t for t in tables if not assigned[t.np].shared]
    used = clear if clear else list(tables)
    members: dict[Any, dict[tuple[int, int], int]] = {}
    place: dict[int, list[float]] = {}
    for t in used:
        for rank, edges in member_edges(t, assigned[t.np]).items():
            members[(t.np, rank)] = edges
        top = np.zeros(t.np, dtype=np.int64)
        np.maximum.at(top, t.rank, t.first)
        for r, gi, first in zip(t.rank, t.group, t.first, strict=True):
            item = assigned[t.np].item[(int(r), int(gi))]
            place.setdefault(item, []).append(float(first) / max(int(top[r]), 1))
    position = {i: float(np.mean(v)) for i, v in place.items()}
    return fold(members, position), [t.np for t in used]


def stage_loop(loop: Loop, items: Sequence[dict[str, Any]]) -> bool:
    """Whether a loop only walks the stages of families of partners."""
    own = [items[i] for i in loop.own_nodes() if i < UNKNOWN_ITEM]
    if any(isinstance(c, Loop) for c in loop.children) or not own:
        return False
    p2p = [i for i in own if i["kind"] in (SEND, RECV)]
    if any(i["kind"] not in (SEND, RECV, COMPLETION) for i in own) or not p2p:
        return False
    return all(i["relation"] is not None and stages_depend_on_n(i["relation"])
               and all("expr" in s["count"] for s in i["slots"]) for i in p2p)


def _stages(loop: Loop, items: Sequence[dict[str, Any]], grids: Mapping[int, GridAt]
            ) -> dict[int, int] | None:
    """Return the number of stages per count of the families in a loop, None without a family."""
    for i in loop.own_nodes():
        rel = items[i]["relation"] if i < UNKNOWN_ITEM else None
        if rel is not None:
            return {n: len(partners(rel, g)) for n, g in grids.items()}
    return None


def _once_per_turn(loop: Loop, around: Loop, stages: Mapping[int, int]) -> bool:
    turns: Mapping[Any, int] = loop.turns
    return all(t <= around.turns.get(m, 0) * stages[m[0]] for m, t in turns.items())


def phases_of(tree: Loop, items: list[dict[str, Any]], counts: Sequence[int],
              grids: Mapping[int, GridAt]) -> list[dict[str, Any]]:
    """Number the phases, place the items in them, fit the weights.

    A phase is the loop in which an item lies, innermost first; loops over stages and loops
    that only complete requests belong to the phase around them.
    """
    phases: list[dict[str, Any]] = []
    counter = [0]

    def visit(loop: Loop, phase: int, start: int | None) -> None:
        family = next((i for i in loop.own_nodes() if start is not None and i < UNKNOWN_ITEM
                       and items[i]["kind"] in (SEND, RECV)), None)
        for child in loop.children:
            if isinstance(child, Loop):
                if all(i < UNKNOWN_ITEM and items[i]["kind"] == COMPLETION
                       for i in child.nodes()):
                    visit(child, phase, start)  # waiting for one request after the other
                    continue
                stages = _stages(child, items, grids) if stage_loop(child, items) else None
                if stages is not None and _once_per_turn(child, loop, stages):
                    visit(child, phase, counter[0])
                    continue
                # A loop over stages that is entered less often than it starts over is the
                # perfect nest of two: its turns are those of the outer one times the stages.
                inner = len(phases)
                phases.append({"depth": phases[phase]["depth"] + 1, "parent": phase,
                               "loop": child, "stages": stages})
                visit(child, inner, counter[0] if stages is not None else start)
                continue
            counter[0] += 1
            if child < UNKNOWN_ITEM:
                items[child].update(phase=phase, order=counter[0], loop_start=start)
                if start is not None and items[child]["kind"] == COMPLETION:
                    items[child]["stages_of"] = family

    phases.append({"depth": 0, "parent": None, "loop": tree, "stages": None})
    visit(tree, 0, None)
    out = []
    for k, phase in enumerate(phases):
        loop = phase["loop"]
        ns, values = [], []
        for n in counts:
            stages = (phase["stages"] or {}).get(n, 1)
            turns = [t // stages for (m, _), t in loop.turns.items() if m == n and stages]
            if turns and max(turns) > 0:
                ns.append(n)
                values.append(max(turns))
        envs = [{"n": n, **{f"p{d}": p for d, p in enumerate(grids[n].dims)}} for n in ns]
        law = fit_exact(envs, values, len(grids[counts[0]].dims)) if ns else None
        out.append({
            "phase": k, "depth": phase["depth"], "parent": phase["parent"],
            "weight": {"expr": law.expr, "points": law.points, "free": law.free} if law
            else {"stat": fit_work(ns, [float(v) for v in values]).to_json()},
            "weight_points": [[n, v] for n, v in zip(ns, values, strict=True)],
            "fused_stages": phase["stages"] is not None,
            "items": sorted((i for i, it in enumerate(items) if it.get("phase") == k),
                            key=lambda i: items[i]["order"]),
        })
    return out


def phase_stages(phase: Mapping[str, Any], items: Sequence[dict[str, Any]], grid: GridAt) -> int:
    """Return by how many stages the turns of a phase's loop are to be divided (1: none)."""
    if not phase.get("fused_stages"):
        return 1
    rels = [items[i]["relation"] for i in phase["items"] if items[i]["relation"] is not None]
    return len(partners(rels[0], grid)) if rels else 1
