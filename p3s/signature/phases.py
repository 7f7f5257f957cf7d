"""Phases and weights of a program over all traced counts, with everything accounted for.

A phase is a loop of the program that is no walk from partner to partner, with the calls directly
in it; its weight is how often it turns in a run (thesis ch. 4.2, where phases are repeated
segments of the sequence of events). What is in no loop is phase 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from p3s.base.arrays import Ints
from p3s.base.ops import COMPLETION, name_phase_op
from p3s.signature.parse import trips, turns_with
from p3s.signature.phase_file import (
    Account,
    Call,
    Loop,
    Phase,
    PhaseCost,
    Phases,
    SomeEvents,
    Trips,
)

if TYPE_CHECKING:
    from p3s.base.arrays import Ints
    from p3s.signature.structure import Member, Structure
    from p3s.signature.tables import PointTable

#: A phase is relevant from this share of the time of a run on (thesis ch. 4.2).
RELEVANT_SHARE = 0.01
#: Up to this relative spread over the counts, total work counts as constant (Eq. 5.1).
CONSTANT_WORK = 0.10
_MAX_OPS_IN_NAME = 5
Turns = tuple[np.ndarray, np.ndarray, np.ndarray]


def phases_of(s: Structure) -> Phases:
    """Return the tree, the phases and the accounting (docs/formats.md)."""
    totals = {t.np: _Totals(s, t) for t in s.tables}
    tree = _Tree(s, totals)
    phases = _phases(s, totals, tree.order)
    used = {site for site, _ in s.nodes}
    units = sorted({t.work_unit for t in s.tables})
    return Phases(
        tuple(s.counts),
        units[0] if len(units) == 1 else "cpu_ns",
        {k: v for t in s.tables for k, v in sorted(t.sites.items()) if k in used},
        tree.loop(0),
        phases,
        {n: each.accounting(phases) for n, each in totals.items()},
        {copy: site for t in s.tables for copy, site in sorted(t.same.items())},
        {test: site for t in s.tables for test, site in sorted(t.waits.items())},
        {t.np: t.matched for t in s.tables if t.matched is not None},
        {t.np: t.recorded for t in s.tables if t.recorded is not None},
    )


def _phases(s: Structure, totals: Mapping[int, _Totals], order: Sequence[int]) -> tuple[Phase, ...]:
    """Return the phases; order: calls as the program makes them."""
    home = {k: s.phase_loop(k) for k in range(len(s.nest.loops))}
    numbers = {k: i for i, k in enumerate(sorted(set(home.values())))}
    per_node = [home[int(s.nest.around[v, s.nest.depth[v]])] for v in range(len(s.nodes))]
    differing = {name for t in s.tables for name in t.varying}
    phases = []
    for k, number in numbers.items():
        calls = [v for v in order if per_node[v] == k]
        parent = s.parents.get(k)
        costs = {n: cost for n, each in totals.items() if (cost := each.phase(k, calls))}
        works = [cost.work for cost in costs.values()]
        mean = sum(works) / len(works) if works else 0
        spread = (max(works) - min(works)) / mean if len(works) > 1 and mean else None
        phases.append(
            Phase(
                number,
                k,
                None if parent is None else numbers[home[parent]],
                _depth(s, k),
                _name(s, k, calls),
                tuple(calls),
                costs,
                spread,
                None if spread is None else spread <= CONSTANT_WORK,
                any(":".join(s.nodes[v]) in differing for v in calls),
            )
        )
    return tuple(phases)


def _depth(s: Structure, loop: int) -> int:
    depth = 0
    while loop in s.parents:
        loop = s.parents[loop]
        depth += 1
    return depth


def _name(s: Structure, loop: int, calls: list[int]) -> str:
    if loop == 0:
        return "outside loops"
    ops = list(dict.fromkeys(name_phase_op(s.nodes[v][1]).removeprefix("MPI_") for v in calls))
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
        pairs = np.unique(node[into[:, 2]] * t.np + into[:, 0])
        self.ranks_of = np.split(pairs % t.np, np.searchsorted(pairs, t.np * np.arange(1, size)))
        self.time = self.work + self.elapsed
        self.total_time = int(self.time.sum())

    def phase(self, number: int, calls: list[int]) -> PhaseCost | None:
        """Return the phase of a loop with its calls at this count, None if it does not occur."""
        loop = self.s.nest.loops[number]
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
        return PhaseCost(
            max(turns),
            min(turns),
            len(ranks),
            int(self.events[calls].sum()),
            int(self.bytes[calls].sum()),
            int(self.work[calls].sum()),
            int(self.elapsed[calls].sum()),
            share,
            share >= RELEVANT_SHARE,
            operations,
        )

    def accounting(self, phases: Sequence[Phase]) -> Account:
        """Return where all events and all time of this count are."""
        root = self.s.tree.children
        at = [k for k, c in enumerate(root) if not isinstance(c, int)]
        first, last = (at[0], at[-1]) if at else (len(root), len(root))
        start = [c for c in root[:first] if isinstance(c, int)]
        end = [c for c in root[last:] if isinstance(c, int)]
        costs = [(p, p.per_count.get(self.t.np)) for p in phases if p.loop]
        relevant = [v for p, cost in costs if cost and cost.relevant for v in p.calls]
        # Walks outside loops are neither start nor end: their calls belong to the rest.
        rest = sorted(set(range(len(self.s.nodes))) - {*start, *end, *relevant})
        parts = (
            SomeEvents(int(self.events[v].sum()), int(self.time[v].sum()))
            for v in (start, end, relevant, rest)
        )
        t = self.t
        return Account(t.events, t.null_events, t.failed_polls, self.total_time, *parts)


def _sums(where: np.ndarray, values: np.ndarray, size: int) -> np.ndarray:
    total = np.zeros(size, dtype=np.int64)
    np.add.at(total, where, values)
    return total


class _Tree:
    """The tree of loops, with what the samples say about trips and turns."""

    def __init__(self, s: Structure, totals: Mapping[int, _Totals]) -> None:
        self.s, self.totals = s, totals
        self.index = {id(loop): k for k, loop in enumerate(s.nest.loops)}
        self.trips: dict[tuple[int, int], tuple[int, int]] = {}
        self.turns: dict[int, list[Turns]] = {}
        entered = {m: trips(parsed) for m, parsed in s.samples.items()}
        for (n, _), of_rank in entered.items():
            for loop, each in of_rank.items():
                low, high = int(each.min()), int(each.max())
                bounds = self.trips.setdefault((n, loop), (low, high))
                self.trips[(n, loop)] = (min(bounds[0], low), max(bounds[1], high))
        irregular = self._not_always(entered)
        for m, parsed in s.samples.items():
            for node, (turn, total) in turns_with(parsed, irregular).items():
                around = int(s.nest.around[node, s.nest.depth[node]])
                self.turns.setdefault(node, []).append((turn, total, entered[m][around]))
        self.order = self._order(s.tree)
        self.sizes: dict[tuple[int, int], tuple[int, int]] = {}
        for t in s.tables:
            number = {node: k for k, node in enumerate(s.nodes)}
            for group, size in zip(t.group.tolist(), t.nbytes.tolist(), strict=True):
                g = t.groups[group]
                node_key = (t.np, number[(g.site, g.op)])
                have = self.sizes.setdefault(node_key, (size, size))
                self.sizes[node_key] = (min(have[0], size), max(have[1], size))

    def _not_always(self, entered: dict[Member, dict[int, Ints]]) -> Ints:
        """Return the nodes that a rank does not have once in each iteration of their loop."""
        nest = self.s.nest
        around = nest.around[np.arange(len(nest.depth)), nest.depth]
        irregular = np.zeros(len(nest.depth), dtype=bool)
        for m, parsed in self.s.samples.items():
            events = np.bincount(parsed.node, minlength=len(irregular))
            turns = np.zeros(len(nest.loops), dtype=np.int64)
            for loop, each in entered[m].items():
                turns[loop] = each.sum()
            irregular |= (events > 0) & (nest.depth > 0) & (events != turns[around])
        return np.flatnonzero(irregular)

    def _order(self, loop: Any) -> list[int]:
        out: list[int] = []
        for child in loop.children:
            out += [child] if isinstance(child, int) else self._order(child)
        return out

    def loop(self, k: int) -> Loop:
        """Return loop number k with everything inside."""
        s, loop = self.s, self.s.nest.loops[k]
        per = {}
        for n in s.counts:
            turns = [t for (m, _), t in loop.turns.items() if m == n and t]
            if turns:
                entries = [e for (m, _), e in loop.entries.items() if m == n and e]
                low, high = self.trips.get((n, k), (1, 1))
                per[n] = Trips(max(turns), min(turns), max(entries, default=1), (low, high))
        body = (
            self.call(c) if isinstance(c, int) else self.loop(self.index[id(c)])
            for c in loop.children
        )
        return Loop(k, s.walks.get(k), per, tuple(body))

    def call(self, v: int) -> Call:
        """Return one call."""
        totals = {n: each for n, each in self.totals.items() if each.events[v]}
        sizes = {n: self.sizes.get((n, v), (0, 0)) for n in totals}
        return Call(
            v,
            *self.s.nodes[v],
            classify_turns(self.turns.get(v, [])),
            {n: len(each.ranks_of[v]) for n, each in totals.items()},
            {n: int(each.events[v]) for n, each in totals.items()},
            sizes,
            {n: int(each.time[v]) for n, each in totals.items()},
        )


def classify_turns(turns: list[Turns]) -> str:
    """Say in which turns of its loop a call is made: always, first, last, every k or some.

    turns: per rank, the iteration in its entry and the iterations of that entry, one per event, and
    the iterations of all entries of the loop. A call is at most once in a turn."""
    if not turns:
        return "always"
    if all(len(turn) == each.sum() for turn, _, each in turns):
        return "always"
    if all((turn == 0).all() and len(turn) == len(each) for turn, _, each in turns):
        return "first"
    if all((turn == total - 1).all() and len(turn) == len(each) for turn, total, each in turns):
        return "last"
    steps = np.unique(np.concatenate([np.diff(turn) for turn, _, _ in turns]))
    steps = steps[steps > 0]
    if len(steps) != 1 or steps[0] < 2:
        return "some"
    step, start = int(steps[0]), int(turns[0][0][0]) % int(steps[0])
    for turn, _, each in turns:
        expected = np.maximum(-(-(each - start) // step), 0).sum()
        if len(turn) != expected or (turn % step != start).any():
            return "some"
    return f"every {step}"
