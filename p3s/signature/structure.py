"""The loop nest of a program over all its traced process counts: nodes, tree, walks."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from p3s.base.arrays import Ints
from p3s.base.ops import COMPLETION, RECV, SEND, kind_of, of_one_call, place_of
from p3s.signature.cycles import Edge
from p3s.signature.fold import Loop, count_turns, fold
from p3s.signature.parse import Nest, ParsedEvents, nest_of, parse, trips
from p3s.signature.tables import PointTable


def refine(
    root: Loop,
    members: Mapping[Any, Mapping[Edge, int]],
    sequences: Mapping[Any, Sequence[int] | Ints],
    nodes: int,
) -> tuple[Nest, dict[Any, ParsedEvents]]:
    """Put regular guards in place of irregular nests, join branches; return the nest, parsed.

    root: changed in place; members: transitions of all ranks; sequences: node numbers in program
    order of some of them, one of each kind of rank is enough; nodes: how many there are.
    """
    number = {
        m: np.bincount(np.asarray(s, dtype=np.int64), minlength=nodes) for m, s in sequences.items()
    }
    while True:
        nest = nest_of(root, nodes)
        parsed = {m: parse(nest, s) for m, s in sequences.items()}
        pick = _find_guarded(nest, {m: trips(p) for m, p in parsed.items()}, number)
        if pick is None:
            break
        outer, inner = pick
        at = outer.children.index(inner)
        outer.children[at : at + 1] = inner.children
        count_turns(root, members)
    joined = False
    while _join(root):
        joined = True
        count_turns(root, members)
    if joined:
        nest = nest_of(root, nodes)
        parsed = {m: parse(nest, s) for m, s in sequences.items()}
    return nest, parsed


def _find_guarded(
    nest: Nest, iterations_of: Mapping[Any, Mapping[int, Ints]], number: Mapping[Any, Ints]
) -> tuple[Loop, Loop] | None:
    """Return an outer and an inner loop that are one loop with a call in every k-th turn."""
    index = {id(loop): k for k, loop in enumerate(nest.loops)}
    for outer in nest.loops[1:]:
        own_nodes = outer.own_nodes()
        for inner in outer.children:
            if not isinstance(inner, Loop):
                continue
            at = outer.children.index(inner)
            if 0 < at < len(outer.children) - 1:
                continue  # calls on both sides of the inner loop: a nest
            rows = [
                (
                    t[index[id(outer)]],
                    t[index[id(inner)]],
                    int(number[m][own_nodes].max()) if own_nodes else None,
                )
                for m, t in iterations_of.items()
                if index[id(outer)] in t and index[id(inner)] in t
            ]
            if _every_kth(rows, before=at > 0):
                return outer, inner
    return None


def _every_kth(rows: Sequence[tuple[Ints, Ints, int | None]], before: bool) -> bool:
    """Tell whether inner loops run k times in all iterations of the outer but its first and last.

    rows: trips per entry of the outer and of the inner loop, and how often a call of the outer
    loop's own is made, one per rank; before: it comes before the inner loop. A nest whose inner
    trips are all equal stays a nest, and so does one with the call in an iteration that is too
    short for it."""
    steps: set[int] = set()
    uneven = False
    for outer, inner, _ in rows:
        if int(outer.sum()) != len(inner):
            return False  # some iterations lack the inner loop
        ends = np.cumsum(outer)
        for stop, turns in zip(ends.tolist(), outer.tolist(), strict=True):
            each = inner[stop - turns : stop]
            if turns < 3:
                if turns == 2 and each[0] != each[1]:
                    uneven = True
                continue
            middle = np.unique(each[1:-1])
            if len(middle) > 1 or middle[0] < 2 or max(each[0], each[-1]) > middle[0]:
                return False
            steps.add(int(middle[0]))
            uneven |= bool(each[0] != middle[0] or each[-1] != middle[0])
    if len(steps) != 1 or not uneven:
        return False
    step = steps.pop()
    for outer, inner, calls in rows:
        last = np.cumsum(outer)
        edge = inner[last - outer] if before else inner[last - 1]
        if calls and calls != len(inner) - int((edge < step).sum()):
            return False
    return True


def _join(root: Loop) -> bool:
    """Join one pair of neighbouring loops of different ranks with the same iterations
    everywhere."""
    for parent in root.loops():
        for k in range(len(parent.children) - 1):
            a, b = parent.children[k : k + 2]
            if not isinstance(a, Loop) or not isinstance(b, Loop):
                continue
            mine, other = _per_count(a), _per_count(b)
            if mine is None or mine != other or max(mine.values(), default=0) < 2:
                continue
            if a.turns.keys() & b.turns.keys():
                continue
            parent.children[k : k + 2] = [Loop([*a.children, *b.children])]
            return True
    return False


def _per_count(loop: Loop) -> dict[Any, int] | None:
    """Return the iterations at each count if they are the same on all ranks that take part."""
    out: dict[Any, int] = {}
    for member, turns in loop.turns.items():
        if out.setdefault(member[0] if isinstance(member, tuple) else None, turns) != turns:
            return None
    return out


#: Loops that are part of the phase around them.
PARTNERS: Literal["partners"] = "partners"
REQUESTS: Literal["requests"] = "requests"
Walk = Literal["partners", "requests"]
#: A loop around all of a program that turns no more than this is suspected to be none.
_FEW_TURNS = 2
#: A frame of a compiled program: module and offset.
_FRAME = re.compile(r"(.+)\+0x([0-9a-f]+)")
Node = tuple[str, str]
Member = tuple[int, int]


@dataclass(frozen=True)
class Structure:
    """One tree for all ranks and counts.

    nodes: (site, operation); nest.loops[0] is the whole program; walks: loop number -> "partners"
    (every iteration goes to one other partner) or "requests" (completions only); parents: loop
    number -> number of the loop around; samples: (np, rank) -> its events in the nest."""

    tables: tuple[PointTable, ...]
    nodes: list[Node]
    tree: Loop
    nest: Nest
    walks: dict[int, Walk]
    parents: dict[int, int]
    samples: dict[Member, ParsedEvents]

    @property
    def counts(self) -> list[int]:
        """The process counts, ascending."""
        return [t.np for t in self.tables]

    def phase_loop(self, loop: int) -> int:
        """Return the innermost loop around and including a loop that is no walk."""
        while loop in self.walks:
            loop = self.parents[loop]
        return loop


def structure(tables: Sequence[PointTable]) -> Structure:
    """Fold the runs at all process counts into one tree.

    Nodes are matched across counts by their call site (functional similarity, thesis 5.3.1).
    """
    tables = tuple(sorted(tables, key=lambda t: t.np))
    number: dict[Node, int] = {}
    members: dict[Member, dict[Edge, int]] = {}
    places: dict[int, list[float]] = {}
    samples: dict[Member, np.ndarray] = {}
    for t in tables:
        used = set(t.edges[:, 2].tolist())
        of = np.array(
            [
                number.setdefault(node, len(number)) if k in used else -1
                for k, node in enumerate(t.nodes)
            ],
            dtype=np.int64,
        )
        of = np.append(of, [-2, -1])  # END and START at their own negative places
        lengths = {int(r): int(first) for r, _, v, _, first in t.edges if v == -2}
        for rank, u, v, k, first in t.edges.tolist():
            edge = (int(of[u]), int(of[v]))
            edges = members.setdefault((t.np, rank), {})
            edges[edge] = edges.get(edge, 0) + k
            if v >= 0:
                places.setdefault(edge[1], []).append(first / max(lengths[rank], 1))
        for rank, sequence in t.samples.items():
            samples[(t.np, rank)] = of[sequence]
    position = {node: float(np.mean(v)) for node, v in places.items()}
    tree = fold(members, position, _in_code(list(number), tables))
    nest, parsed = refine(tree, members, samples, len(number))
    parents = {}
    index = {id(loop): k for k, loop in enumerate(nest.loops)}
    for k, loop in enumerate(nest.loops):
        for child in loop.children:
            if isinstance(child, Loop):
                parents[index[id(child)]] = k
    nodes = list(number)
    return Structure(tables, nodes, tree, nest, _walks(nest, nodes, tables, index), parents, parsed)


def _in_code(nodes: Sequence[Node], tables: Sequence[PointTable]) -> dict[int, int]:
    """Return the place of nodes in the program's code, as their stacks of calls say it.

    Two stacks first differ, from the outermost call on, in return addresses of one function.
    """
    stacks = {site: names for t in tables for site, names in t.sites.items()}
    addresses_of: dict[int, tuple[tuple[str, int], ...]] = {}
    for v, (site, _) in enumerate(nodes):
        calls = [_FRAME.fullmatch(name) for name in reversed(stacks.get(site, ()))]
        stack = tuple((call[1], int(call[2], 16)) for call in calls if call is not None)
        if calls and len(stack) == len(calls):
            addresses_of[v] = stack
    places = {stack: k for k, stack in enumerate(sorted(set(addresses_of.values())))}
    return {v: places[stack] for v, stack in addresses_of.items()}


def total_turns(s: Structure) -> int:
    """Return the iterations of all loops on the ranks that have most of each, summed."""
    return sum(max(loop.turns.values(), default=0) for loop in s.nest.loops[1:])


def find_ambiguous(s: Structure) -> frozenset[str]:
    """Return the sites that stand for several places of a program.

    Those from which calls of different kinds are made (the halves of a call and what MPI_Startall
    starts are one kind), and all sites of a loop that holds everything between MPI_Init and
    MPI_Finalize and iterations but twice: its calls before and behind the program's own loops are
    made through the line of those inside."""
    places_of_site: dict[str, set[str]] = {}
    for site, op in s.nodes:
        places_of_site.setdefault(site, set()).add(place_of(op))
    shared = {site for site, ops in places_of_site.items() if site and len(ops) > 1}
    loops = [c for c in s.tree.children if isinstance(c, Loop)]
    outside = {s.nodes[v][1] for v in s.tree.own_nodes()}
    if (
        len(loops) == 1
        and outside <= {"MPI_Init", "MPI_Init_thread", "MPI_Finalize"}
        and max(loops[0].turns.values(), default=0) <= _FEW_TURNS
    ):
        shared |= {s.nodes[v][0] for v in loops[0].nodes()}
    return frozenset(shared)


def _walks(
    nest: Nest, nodes: Sequence[Node], tables: Sequence[PointTable], index: dict[int, int]
) -> dict[int, Walk]:
    """Return the loops that only go from partner to partner, or complete requests."""
    out: dict[int, Walk] = {}
    most = {t.np: _most_to_one_partner(t) for t in tables}
    partners = {t.np: _partners(t) for t in tables}
    for k in range(len(nest.loops) - 1, 0, -1):  # inner loops have higher numbers
        loop = nest.loops[k]
        inner = [c for c in loop.children if isinstance(c, Loop)]
        kinds = {kind_of(nodes[v][1]) for v in loop.own_nodes()}
        if any(index[id(c)] not in out for c in inner) or not kinds <= {SEND, RECV, COMPLETION}:
            continue
        if kinds == {COMPLETION} and not inner:
            out[k] = REQUESTS
            continue
        p2p = [v for v in loop.own_nodes() if kind_of(nodes[v][1]) != COMPLETION]
        if p2p and not inner and all(of_one_call(nodes[v][1]) for v in loop.own_nodes()):
            out[k] = PARTNERS
            continue
        # At few ranks several partners are one: the largest count decides.
        largest = max((n for n, _ in loop.turns), default=0)
        mine = [m for m in loop.turns if m[0] == largest]
        if (
            p2p
            and any(loop.turns[m] > loop.entries[m] for m in mine)
            and all(
                most[largest].get((m[1], nodes[v]), 0) <= loop.entries[m] for m in mine for v in p2p
            )
            and _one_at_a_time([nodes[v] for v in p2p], partners[largest])
        ):
            out[k] = PARTNERS
    return out


#: Node -> (rank, kind of call) -> partners.
_Partners = dict[Node, dict[tuple[int, str], set[int]]]


def _partners(t: PointTable) -> _Partners:
    out: _Partners = {}
    for rank, group in zip(t.rank.tolist(), t.group.tolist(), strict=True):
        g = t.groups[group]
        out.setdefault((g.site, g.op), {}).setdefault((rank, g.kind), set()).add(g.peer)
    return out


def _one_at_a_time(p2p: Sequence[Node], partners: _Partners) -> bool:
    """Tell whether an iteration sends to one partner and receives from one: all calls have the
    same."""
    first: dict[tuple[int, str], set[int]] = {}
    return all(
        first.setdefault(who, theirs) == theirs
        for node in p2p
        for who, theirs in partners.get(node, {}).items()
    )


def _most_to_one_partner(t: PointTable) -> dict[tuple[int, Node], int]:
    """Return (rank, node) -> largest number of events with one partner."""
    totals: dict[tuple[int, Node, int], int] = {}
    for rank, group, count in zip(t.rank.tolist(), t.group.tolist(), t.count.tolist(), strict=True):
        g = t.groups[group]
        key = (rank, (g.site, g.op), g.peer)
        totals[key] = totals.get(key, 0) + count
    out: dict[tuple[int, Node], int] = {}
    for (rank, node, _), count in totals.items():
        out[(rank, node)] = max(out.get((rank, node), 0), count)
    return out
