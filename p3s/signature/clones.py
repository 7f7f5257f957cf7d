"""Call sites that are one call of the program: copies that a compiler made.

An optimising compiler copies calls: the first iteration of a loop, both branches of a condition, a
function for constant arguments. The copies have addresses of their own and one chain of functions
and lines. Calls of one line that every rank makes equally often, at all counts, stay apart: they
are calls of one macro, or the iterations of a loop that was written out. Without debug
information the graph of the calls tells, that of the largest count.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, product
from typing import TYPE_CHECKING, Any

import numpy as np

from p3s.signature.cycles import strongly_connected
from p3s.signature.parse import WAITS
from p3s.signature.part import Sites

if TYPE_CHECKING:
    from p3s.capture.sites import Chains
    from p3s.signature.tables import PointTable

Pair = tuple[str, str]


def copied_calls(table: PointTable, functions: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    """Return site -> the one that stands for it and its copies (its own where it has none).

    functions: of every site to be looked at, the functions of its frames, innermost first.
    """
    graph = _Graph.of(table)
    calls = calls_by_rank(table)
    pairs = set(_candidates(table, functions, graph.component, calls))
    facts = {site: _Facts() for pair in pairs for site in pair}
    _collect(facts, table)
    pairs = {(a, b) for a, b in pairs if facts[a].meets(facts[b])}
    while True:
        of_class = _classes(functions, pairs)
        confirmed = {
            (a, b) for a, b in pairs if graph.inside(a, b, of_class) or graph.inside(b, a, of_class)
        }
        confirmed -= _find_mixed(of_class, confirmed)
        if confirmed == pairs:
            return of_class
        pairs = confirmed


def replaced_waits(table: PointTable, functions: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    """Return site of a test -> the wait that a program leaves out, or finds done, if it succeeds.

    Both are of one function and complete as many requests; either the wait comes right behind the
    test and then has nothing to do, or both lie between the same calls.
    """
    graph = _Graph.of(table)
    ops = operations(table.nodes)
    out = {}
    for test in (site for site in functions if ops[site] <= set(WAITS) and len(ops[site]) == 1):
        wait = {WAITS[op] for op in ops[test]}
        waits = [
            site
            for site in functions
            if ops[site] == wait
            and functions[site] == functions[test]
            and graph.component[site] == graph.component[test]
            and (_done_before(table, graph, test, site) or graph.instead(test, site))
            and _requests(table, test) <= _requests(table, site) | {0}
        ]
        if len(waits) == 1:
            out[test] = waits[0]
    return out


def _done_before(table: PointTable, graph: _Graph, test: str, wait: str) -> bool:
    """Tell whether a wait always follows a test that succeeded, then with nothing to do."""
    if graph.behind[test] != {wait}:
        return False
    events = np.zeros((2, table.np), dtype=np.int64)
    for rank, group, nbytes, count in zip(
        *(getattr(table, name).tolist() for name in ("rank", "group", "nbytes", "count")),
        strict=True,
    ):
        site = table.groups[group].site
        if site == test or (site == wait and nbytes == 0):
            events[int(site == wait), rank] += count
    return bool(np.array_equal(events[0], events[1]))


def _requests(table: PointTable, site: str) -> set[int]:
    """Return how many requests the calls of a site complete."""
    mine = np.array([g.site == site for g in table.groups], dtype=bool)[table.group]
    return set(np.unique(table.nbytes[mine]).tolist())


def operations(nodes: Iterable[Pair]) -> dict[str, set[str]]:
    """Return the operations that are called at each site."""
    ops: dict[str, set[str]] = {}
    for site, op in nodes:
        ops.setdefault(site, set()).add(op)
    return ops


def calls_by_rank(table: PointTable) -> dict[str, np.ndarray]:
    """Return site -> how often every rank makes its calls, those that move nothing included."""
    number = {site: k for k, site in enumerate(dict.fromkeys(site for site, _ in table.nodes))}
    of_node = np.array([number[site] for site, _ in table.nodes], dtype=np.int64)
    edges = table.edges[table.edges[:, 2] >= 0]
    calls = np.zeros((len(number), table.np), dtype=np.int64)
    np.add.at(calls, (of_node[edges[:, 2]], edges[:, 0]), edges[:, 3])
    return dict(zip(number, calls, strict=True))


def _unlike(a: np.ndarray, b: np.ndarray) -> bool:
    """Tell whether no rank that makes both calls makes them equally often."""
    return not np.any((a == b) & (a > 0))


def _candidates(
    table: PointTable,
    functions: Mapping[str, tuple[str, ...]],
    component: Mapping[str, int],
    calls: Mapping[str, np.ndarray],
) -> Iterable[Pair]:
    """Yield the pairs of sites of the same functions whose stacks differ in one of them.

    Both share a loop, and no rank makes both equally often: most calls of a program are made as
    often as their neighbours, and are in no pair.
    """
    ops = operations(table.nodes)
    alike: dict[tuple[object, ...], dict[bytes, list[str]]] = {}
    for site in sorted(functions):
        # Copies of whole functions have a suffix: halo.constprop.0
        plain = tuple(name.partition(".")[0] for name in functions[site])
        kind = alike.setdefault((plain, frozenset(ops[site]), component[site]), {})
        kind.setdefault(calls[site].tobytes(), []).append(site)
    for kind in alike.values():
        for group, others in _unlike_pairs(kind, calls):
            for a, b in ((min(pair), max(pair)) for pair in product(group, others)):
                differ = (
                    f == g and x != y
                    for f, g, x, y in zip(
                        functions[a], functions[b], table.sites[a], table.sites[b], strict=True
                    )
                )
                if sum(differ) <= 1:
                    yield a, b


def _unlike_pairs(
    kind: Mapping[bytes, list[str]], calls: Mapping[str, np.ndarray]
) -> Iterable[tuple[list[str], list[str]]]:
    """Yield the sites that are made alike beside those of which no rank makes as many."""
    for group, others in combinations(kind.values(), 2):
        if _unlike(calls[group[0]], calls[others[0]]):
            yield group, others
    for group in kind.values():
        if not calls[group[0]].any():
            yield from (([a], [b]) for a, b in combinations(group, 2))


@dataclass
class _Facts:
    """What the calls of a site do: operations, communicators, tags, sizes; distances to partners.

    Sizes are by rank: ranks at a border may have others.
    """

    does: dict[int, set[tuple[object, ...]]] = field(default_factory=dict)
    distances: set[int] = field(default_factory=set)

    def meets(self, other: _Facts) -> bool:
        """Tell whether both do the same, as far as the same ranks make them."""
        apart = self.distances and other.distances and not self.distances & other.distances
        return not apart and all(
            mine <= other.does[rank] or other.does[rank] <= mine
            for rank, mine in self.does.items()
            if rank in other.does
        )


def _collect(facts: Mapping[str, _Facts], table: PointTable) -> None:
    for rank, group, nbytes in zip(
        table.rank.tolist(), table.group.tolist(), table.nbytes.tolist(), strict=True
    ):
        g = table.groups[group]
        if g.site in facts:
            mine = facts[g.site]
            mine.does.setdefault(rank, set()).add((g.op, g.comm, g.tag, nbytes))
            if g.peer >= 0:
                mine.distances.add((g.peer - rank) % table.np)


def _classes(sites: Iterable[str], pairs: Iterable[Pair]) -> dict[str, str]:
    """Return site -> the first of those that are copies of each other."""
    out = {site: site for site in sites}
    members = {site: [site] for site in out}
    for a, b in sorted(pairs):
        first, second = sorted((out[a], out[b]))
        if first != second:
            moved = members.pop(second)
            members[first] += moved
            out.update(dict.fromkeys(moved, first))
    return out


def _find_mixed(of_class: Mapping[str, str], pairs: set[Pair]) -> set[Pair]:
    """Return the pairs of classes that hold sites that are no copies of each other."""
    members: dict[str, list[str]] = {}
    for site in sorted({site for pair in pairs for site in pair}):
        members.setdefault(of_class[site], []).append(site)
    of_all = Counter(of_class.values())
    mixed = {
        one
        for one, mine in members.items()
        if of_all[one] != len(mine) or any(pair not in pairs for pair in combinations(mine, 2))
    }
    return {pair for pair in pairs if of_class[pair[0]] in mixed}


@dataclass(frozen=True)
class _Graph:
    """Which call follows which on some rank; component: the loops that share calls, numbered."""

    before: dict[str, set[str]]
    behind: dict[str, set[str]]
    component: dict[str, int]

    @staticmethod
    def of(table: PointTable) -> _Graph:
        """Return the graph of the sites; what lies in no common loop is not beside another."""
        sites = list(dict.fromkeys(site for site, _ in table.nodes))
        number = {site: k for k, site in enumerate(sites)}
        node = np.array([number[site] for site, _ in table.nodes], dtype=np.int64)
        inner = table.edges[(table.edges[:, 1] >= 0) & (table.edges[:, 2] >= 0)]
        steps = np.unique(node[inner[:, 1:3]].reshape(-1, 2), axis=0).tolist()
        parts = strongly_connected(range(len(sites)), ((u, v) for u, v in steps))
        component = {v: k for k, part in enumerate(parts) for v in part}
        before: dict[str, set[str]] = {site: set() for site in sites}
        behind: dict[str, set[str]] = {site: set() for site in sites}
        for u, v in steps:
            if component[u] == component[v]:
                behind[sites[u]].add(sites[v])
                before[sites[v]].add(sites[u])
        return _Graph(before, behind, {site: component[number[site]] for site in sites})

    def instead(self, a: str, b: str) -> bool:
        """Tell whether two calls lie between the same ones and never follow each other."""
        return b not in self.behind[a] | self.before[a] and all(
            near[a] and near[b] and (near[a] <= near[b] or near[b] <= near[a])
            for near in (self.before, self.behind)
        )

    def inside(self, a: str, b: str, of_class: Mapping[str, str]) -> bool:
        """Tell whether all that is called before and behind ``a`` is so with ``b``, too."""
        return all(
            _kinds(near[a], of_class) <= _kinds(near[b], of_class)
            for near in (self.before, self.behind)
        )


def _kinds(sites: Sequence[str] | set[str], of_class: Mapping[str, str]) -> set[str]:
    return {of_class.get(site, site) for site in sites}


@dataclass
class KnownSites:
    """What the signatures of a study say.

    sites: chain of lines -> its sites; merged: chains whose sites are one -> that site;
    by_graph: count -> site without lines -> the site that stands for it and its copies; waits:
    site of a test -> the wait that its success replaces.
    """

    sites: dict[str, list[str]] = field(default_factory=dict)
    merged: dict[str, str] = field(default_factory=dict)
    by_graph: dict[int, dict[str, str]] = field(default_factory=dict)
    waits: dict[str, str] = field(default_factory=dict)

    def add(
        self,
        n: int,
        lines: Mapping[str, str],
        same: Mapping[str, str],
        waits: Mapping[str, str],
        sites: Collection[str],
    ) -> None:
        """Take what the signature of n processes says."""
        self.waits.update(waits)
        for site, chain in lines.items():
            mine = self.sites.setdefault(chain, [])
            mine += [site] * (site not in mine)
        for site in same.values():
            if site in lines:
                self.merged.setdefault(lines[site], site)
        self.by_graph[n] = {
            site: one for site in (*sites, *same) if (one := same.get(site, site)) not in lines
        }

    def of_graph(self, least: int, decisions: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return site -> the one that stands for it; decisions: as ``least`` processes alone tell.

        Of the counts from ``least`` on the largest decides that has the site.
        """
        by_graph = self.by_graph if decisions is None else {**self.by_graph, least: decisions}
        out: dict[str, str] = {}
        for n in sorted((n for n in by_graph if n >= least), reverse=True):
            for site, one in by_graph[n].items():
                out.setdefault(site, out.get(one, one))
        return out


@dataclass(frozen=True)
class Copies:
    """What one run tells of its sites.

    lines: site -> a short name of its chain of lines and its operations; by_graph: site without
    lines -> the site that stands for it and its copies; waits: site of a test -> the wait that its
    success replaces.
    """

    lines: dict[str, str]
    by_graph: dict[str, str]
    waits: dict[str, str]


def known_sites(signatures: Mapping[int, Mapping[str, Any]]) -> KnownSites:
    """Return what signatures say, by count: the content of their files."""
    sites = KnownSites()
    for n, data in signatures.items():
        lines, same, waits = (data.get(key, {}) for key in ("lines", "same", "waits"))
        sites.add(n, lines, same, waits, data["sites"])
    return sites


def copies_of(table: PointTable, stacks: Chains) -> Copies:
    """Return what a run tells of its sites; stacks: their call stacks."""
    ops = operations(table.nodes)
    lines = {}
    for site, site_ops in ops.items():
        if site in stacks.lines:
            text = "\0".join([*sorted(site_ops), *stacks.lines[site]])
            digest = hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=8)
            lines[site] = digest.hexdigest()
    functions = {site: names for site, names in stacks.functions.items() if site in ops}
    bare = {site: names for site, names in functions.items() if site not in lines}
    return Copies(lines, copied_calls(table, bare), replaced_waits(table, functions))


def sites_of(table: PointTable, copies: Copies, known_sites: KnownSites) -> Sites:
    """Return how the sites of a run are taken, from what it and others of the study tell."""
    same = _same_sites(table, copies, known_sites)
    waits = {**copies.waits, **known_sites.waits}
    return Sites(
        same=same,
        waits={same.get(test, test): same.get(wait, wait) for test, wait in waits.items()},
    )


def _same_sites(table: PointTable, copies: Copies, study: KnownSites) -> dict[str, str]:
    """Return site -> the site that stands for it too, those that stay themselves left out."""
    of_chain: dict[str, list[str]] = {}
    for site, chain in sorted(copies.lines.items()):
        of_chain.setdefault(chain, []).append(site)
    calls = calls_by_rank(table)
    by_graph = study.of_graph(table.np, copies.by_graph)
    out = {site: by_graph[site] for site in copies.by_graph if by_graph[site] != site}
    for chain, sites in of_chain.items():
        named = study.sites.get(chain, [])
        if chain in study.merged or _differ([calls[s] for s in sites]):
            first, stay = study.merged.get(chain, (named or sites)[0]), []
        else:  # one site, or calls that differ: what other counts know keeps its name
            first, stay = ((named or sites)[0], named if len(sites) == 1 else sites)
        out.update({s: first for s in sites if s != first and s not in stay})
    return out


def _differ(calls: Sequence[np.ndarray]) -> bool:
    """Tell whether some rank makes the calls of one line differently often."""
    return any(not np.array_equal(calls[0], other) for other in calls[1:])


def find_contradictions(
    signatures: Mapping[int, Mapping[str, Any]], known_sites: KnownSites
) -> list[int]:
    """Return the counts whose signatures take sites otherwise than all of them tell."""
    out = []
    for n, data in signatures.items():
        lines, nodes = data.get("lines", {}), data["nodes"]
        apart = any(site in known_sites.waits and op in WAITS for site, op in nodes)
        apart |= any(known_sites.merged.get(chain, site) != site for site, chain in lines.items())
        by_graph = known_sites.of_graph(n)
        if apart or any(by_graph[s] != one for s, one in known_sites.by_graph.get(n, {}).items()):
            out.append(n)
    return out
