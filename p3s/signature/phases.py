"""Phases and weights of a program over all traced counts, with everything accounted for.

A phase is a loop of the program that is no walk from partner to partner, with the calls directly
in it; its weight is how often it turns in a run (thesis ch. 4.2, where phases are repeated
segments of the sequence of events). What is in no loop is phase 0.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from p3s.base.artefacts import is_of_others
from p3s.base.errors import P3SError
from p3s.base.ops import COMPLETION, named
from p3s.signature.phase_file import SCHEMA, VERSION, Phases, load

if TYPE_CHECKING:
    from p3s.base.arrays import Ints
    from p3s.signature.structure import Member, Structure
    from p3s.signature.tables import PointTable

#: A phase is relevant from this share of the time of a run on (thesis ch. 4.2).
RELEVANT_SHARE = 0.01
#: Up to this relative spread over the counts, total work counts as constant (Eq. 5.1).
CONSTANT_WORK = 0.10
_MAX_OPS_IN_NAME = 5
Json = dict[str, Any]
Turns = tuple[np.ndarray, np.ndarray, np.ndarray]


def write_phases(study_dir: Path) -> Json:
    """Write signature/phases.json of a study from its signatures; return it."""
    from p3s.base.study import Study, write_json
    from p3s.signature.store import load_table
    from p3s.signature.structure import structure

    study = Study.open(Path(study_dir))
    counts = study.signature_counts()
    if not counts:
        raise P3SError(f"phases: {study_dir} holds no signature; run `p3s characterize` first")
    out = phases_json(structure([load_table(study.root, n) for n in counts]))
    write_json(study.phases_path, out, [study.signature_path(n) for n in counts])
    return out


def load_phases(study_dir: Path) -> Phases:
    """Return signature/phases.json, made anew where it is not that of the study's counts."""
    from p3s.base.study import Study

    study = Study.open(Path(study_dir))
    path = study.phases_path
    if path.exists():
        found = load(path)
        counts = study.signature_counts()
        made_of = [study.signature_path(n) for n in counts]
        newest = max((each.stat().st_mtime_ns for each in made_of), default=0)
        same = list(found.counts) == counts and not is_of_others(path, made_of)
        if same and path.stat().st_mtime_ns >= newest:
            return found
    write_phases(study_dir)
    return load(path)


def phases_json(s: Structure) -> Json:
    """Return the tree, the phases and the accounting as plain data (docs/formats.md)."""
    leaf = _Leaves(s)
    home = {k: s.phase_loop(k) for k in range(len(s.nest.loops))}
    numbers = {k: i for i, k in enumerate(sorted(set(home.values())))}
    per_node = [home[int(s.nest.around[v, s.nest.depth[v]])] for v in range(len(s.nodes))]
    phases: list[Json] = []
    for k in numbers:
        calls = [v for v in leaf.order if per_node[v] == k]
        parent = s.parents.get(k)
        phases.append(
            {
                "phase": numbers[k],
                "loop": k,
                "parent": None if parent is None else numbers[home[parent]],
                "depth": int(_depth(s, k)),
                "name": _name(s, k, calls),
                "calls": calls,
                "per_count": {},
            }
        )
    accounting = {}
    for t in s.tables:
        totals = _Totals(s, t)
        for phase in phases:
            row = totals.phase(phase)
            if row is not None:
                phase["per_count"][str(t.np)] = row
        accounting[str(t.np)] = totals.accounting(phases)
    for phase in phases:
        works = [row["work"] for row in phase["per_count"].values()]
        mean = sum(works) / len(works) if works else 0
        spread = (max(works) - min(works)) / mean if len(works) > 1 and mean else None
        phase["total_work_spread"] = spread
        phase["constant_work"] = None if spread is None else spread <= CONSTANT_WORK
    differing = {name for t in s.tables for name in t.varying}
    for phase in phases:
        phase["varying"] = any(":".join(s.nodes[v]) in differing for v in phase["calls"])
    used = {site for site, _ in s.nodes}
    units = sorted({t.work_unit for t in s.tables})
    return {
        "schema": SCHEMA,
        "schema_version": VERSION,
        "counts": s.counts,
        "work_unit": units[0] if len(units) == 1 else "cpu_ns",
        "sites": {k: list(v) for t in s.tables for k, v in sorted(t.sites.items()) if k in used},
        "same": {copy: site for t in s.tables for copy, site in sorted(t.same.items())},
        "waits": {test: site for t in s.tables for test, site in sorted(t.waits.items())},
        "tree": leaf.loop_json(0),
        "phases": phases,
        "accounting": accounting,
    }


def _depth(s: Structure, loop: int) -> int:
    depth = 0
    while loop in s.parents:
        loop = s.parents[loop]
        depth += 1
    return depth


def _name(s: Structure, loop: int, calls: list[int]) -> str:
    if loop == 0:
        return "outside loops"
    ops = list(dict.fromkeys(named(s.nodes[v][1]).removeprefix("MPI_") for v in calls))
    ops = [op for op in ops if not op.endswith("_recv")]
    more = "+..." if len(ops) > _MAX_OPS_IN_NAME else ""
    return "+".join(ops[:_MAX_OPS_IN_NAME]) + more or "nest"


class _Totals:
    """Sums over the events of one count by node."""

    def __init__(self, s: Structure, t: PointTable) -> None:
        number = {node: k for k, node in enumerate(s.nodes)}
        of_group = np.array([number[(g.site, g.op)] for g in t.groups], dtype=np.int64)
        size = len(s.nodes)
        row = of_group[t.group] if len(t.group) else np.zeros(0, dtype=np.int64)
        self.s, self.t = s, t
        # A completion's bytes are the number of its requests.
        moves = np.array([g.kind != COMPLETION for g in t.groups], dtype=bool)[t.group]
        self.bytes = _sums(row, t.nbytes * t.count * moves, size)
        self.work = _sums(row, t.work, size)
        self.elapsed = _sums(row, t.elapsed_ns, size)
        into = t.edges[t.edges[:, 2] >= 0]
        node = np.array([number[n] for n in t.nodes], dtype=np.int64)
        self.events = _sums(node[into[:, 2]], into[:, 3], size)
        made = np.unique(node[into[:, 2]] * t.np + into[:, 0])
        self.ranks_of = np.split(made % t.np, np.searchsorted(made, t.np * np.arange(1, size)))
        self.time = self.work + self.elapsed
        self.total_time = int(self.time.sum())

    def phase(self, phase: Json) -> Json | None:
        """Return a phase at this count, None if it does not occur."""
        calls = phase["calls"]
        loop = self.s.nest.loops[phase["loop"]]
        turns = [t for (n, _), t in loop.turns.items() if n == self.t.np]
        if not turns:
            return None
        share = float(self.time[calls].sum() / max(self.total_time, 1))
        operations: dict[str, int] = {}
        for v in calls:
            if self.events[v]:
                op = self.s.nodes[v][1]
                operations[op] = operations.get(op, 0) + int(self.events[v])
        ranks = {r for v in calls for r in self.ranks_of[v].tolist()}
        return {
            "weight": max(turns),
            "weight_min": min(turns),
            "ranks": len(ranks),
            "events": int(self.events[calls].sum()),
            "bytes": int(self.bytes[calls].sum()),
            "work": int(self.work[calls].sum()),
            "elapsed_ns": int(self.elapsed[calls].sum()),
            "share": share,
            "relevant": share >= RELEVANT_SHARE,
            "operations": operations,
        }

    def accounting(self, phases: list[Json]) -> Json:
        """Return where all events and all time of this count are."""
        key = str(self.t.np)
        root = self.s.tree.children
        at = [k for k, c in enumerate(root) if not isinstance(c, int)]
        first, last = (at[0], at[-1]) if at else (len(root), len(root))
        start = [c for c in root[:first] if isinstance(c, int)]
        end = [c for c in root[last:] if isinstance(c, int)]
        relevant = [
            v
            for p in phases
            if p["loop"] and p["per_count"].get(key, {}).get("relevant")
            for v in p["calls"]
        ]
        # Walks outside loops are neither start nor end: their calls belong to the rest.
        rest = sorted(set(range(len(self.s.nodes))) - {*start, *end, *relevant})
        parts = {"start": start, "end": end, "relevant": relevant, "rest": rest}
        return {
            "events": self.t.events,
            "null_events": self.t.null_events,
            "failed_polls": self.t.failed_polls,
            "time_ns": self.total_time,
            **{
                name: {"events": int(self.events[v].sum()), "time_ns": int(self.time[v].sum())}
                for name, v in parts.items()
            },
        }


def _sums(where: np.ndarray, values: np.ndarray, size: int) -> np.ndarray:
    total = np.zeros(size, dtype=np.int64)
    np.add.at(total, where, values)
    return total


class _Leaves:
    """The tree as plain data, with what the samples say about trips and turns."""

    def __init__(self, s: Structure) -> None:
        from p3s.signature.parse import trips, turns_with

        self.s = s
        self.index = {id(loop): k for k, loop in enumerate(s.nest.loops)}
        self.totals = {t.np: _Totals(s, t) for t in s.tables}
        self.trips: dict[tuple[int, int], list[int]] = {}
        self.turns: dict[int, list[Turns]] = {}
        entered = {m: trips(parsed) for m, parsed in s.samples.items()}
        for (n, _), of_rank in entered.items():
            for loop, each in of_rank.items():
                low, high = int(each.min()), int(each.max())
                known = self.trips.setdefault((n, loop), [low, high])
                self.trips[(n, loop)] = [min(known[0], low), max(known[1], high)]
        some = self._not_always(entered)
        for m, parsed in s.samples.items():
            for node, (turn, total) in turns_with(parsed, some).items():
                around = int(s.nest.around[node, s.nest.depth[node]])
                self.turns.setdefault(node, []).append((turn, total, entered[m][around]))
        self.order = self._order(s.tree)
        self.sizes: dict[tuple[int, int], list[int]] = {}
        for t in s.tables:
            number = {node: k for k, node in enumerate(s.nodes)}
            for group, size in zip(t.group.tolist(), t.nbytes.tolist(), strict=True):
                g = t.groups[group]
                node_key = (t.np, number[(g.site, g.op)])
                have = self.sizes.setdefault(node_key, [size, size])
                self.sizes[node_key] = [min(have[0], size), max(have[1], size)]

    def _not_always(self, entered: dict[Member, dict[int, Ints]]) -> Ints:
        """Return the nodes that a rank does not have once in each iteration of their loop."""
        nest = self.s.nest
        around = nest.around[np.arange(len(nest.depth)), nest.depth]
        found = np.zeros(len(nest.depth), dtype=bool)
        for m, parsed in self.s.samples.items():
            made = np.bincount(parsed.node, minlength=len(found))
            turns = np.zeros(len(nest.loops), dtype=np.int64)
            for loop, each in entered[m].items():
                turns[loop] = each.sum()
            found |= (made > 0) & (nest.depth > 0) & (made != turns[around])
        return np.flatnonzero(found)

    def _order(self, loop: Any) -> list[int]:
        out: list[int] = []
        for child in loop.children:
            out += [child] if isinstance(child, int) else self._order(child)
        return out

    def loop_json(self, k: int) -> Json:
        """Return loop number k with everything inside."""
        s, loop = self.s, self.s.nest.loops[k]
        per = {}
        for n in s.counts:
            turns = [t for (m, _), t in loop.turns.items() if m == n and t]
            if turns:
                entries = [e for (m, _), e in loop.entries.items() if m == n and e]
                per[str(n)] = {
                    "turns": max(turns),
                    "turns_min": min(turns),
                    "entries": max(entries, default=1),
                    "per_entry": self.trips.get((n, k), [1, 1]),
                }
        return {
            "loop": k,
            "walk": s.walks.get(k),
            "trips": per,
            "body": [
                self.call_json(c) if isinstance(c, int) else self.loop_json(self.index[id(c)])
                for c in loop.children
            ],
        }

    def call_json(self, v: int) -> Json:
        """Return one call."""
        site, op = self.s.nodes[v]
        count, ranks, sizes, time_ns = {}, {}, {}, {}
        for n, totals in self.totals.items():
            if totals.events[v]:
                count[str(n)] = int(totals.events[v])
                ranks[str(n)] = len(totals.ranks_of[v])
                sizes[str(n)] = self.sizes.get((n, v), [0, 0])
                time_ns[str(n)] = int(totals.time[v])
        return {
            "call": v,
            "site": site,
            "op": op,
            "when": when(self.turns.get(v, [])),
            "ranks": ranks,
            "count": count,
            "bytes": sizes,
            "time_ns": time_ns,
        }


def when(found: list[Turns]) -> str:
    """Say in which turns of its loop a call is made: always, first, last, every k or some.

    found: per rank, the iteration in its entry and the iterations of that entry, one per event, and
    the iterations of all entries of the loop. A call is at most once in a turn."""
    if not found:
        return "always"
    if all(len(turn) == each.sum() for turn, _, each in found):
        return "always"
    if all((turn == 0).all() and len(turn) == len(each) for turn, _, each in found):
        return "first"
    if all((turn == total - 1).all() and len(turn) == len(each) for turn, total, each in found):
        return "last"
    steps = np.unique(np.concatenate([np.diff(turn) for turn, _, _ in found]))
    steps = steps[steps > 0]
    if len(steps) != 1 or steps[0] < 2:
        return "some"
    step, start = int(steps[0]), int(found[0][0][0]) % int(steps[0])
    for turn, _, each in found:
        wanted = np.maximum(-(-(each - start) // step), 0).sum()
        if len(turn) != wanted or (turn % step != start).any():
            return "some"
    return f"every {step}"
