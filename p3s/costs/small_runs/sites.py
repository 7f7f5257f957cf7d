"""Call sites of runs of another build of a program, under the names that the study has for them.

A call site is the hash of its return addresses. A program whose input is compiled in is built
again for a smaller one, and its addresses shift. Which call is which is then told as it is of
builds for single process counts: by what the calls do (p3s.signature.similarity).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from p3s.base.ops import INIT_OPS
from p3s.signature.phases import RELEVANT_SHARE
from p3s.signature.similarity import match
from p3s.signature.structure import Node, structure
from p3s.signature.tables import PointTable
from p3s.signature.times import Times

#: How call sites were matched, in words.
BY_SITE, BY_SIMILARITY = "by call site", "by functional similarity"
_APART = "~"


@dataclass(frozen=True)
class SiteNames:
    """The study's names of the sites of a run; without ``twins`` both are of one build.

    known: the study's sites, whose names an unknown one must not take.
    """

    twins: Mapping[str, str] = field(default_factory=dict)
    known: frozenset[str] = frozenset()

    @property
    def how(self) -> str:
        """How the call sites were matched, in words."""
        return BY_SIMILARITY if self.twins else BY_SITE

    def site(self, name: str) -> str:
        """Return the study's name of a site."""
        plain, mark, number = name.partition("#")
        if name in self.twins:
            return self.twins[name]
        if plain in self.twins:
            return self.twins[plain] + mark + number
        return _APART + name if self.twins and name in self.known else name

    def table(self, t: PointTable) -> PointTable:
        """Return a table with the sites of the study."""

        def words(names: Sequence[str]) -> tuple[str, ...]:
            split = [name.rpartition(":") for name in names]
            return tuple(f"{self.site(site)}:{op}" for site, _, op in split)

        return replace(
            t,
            groups=tuple(g._replace(site=self.site(g.site)) for g in t.groups),
            nodes=tuple((self.site(site), op) for site, op in t.nodes),
            sites={self.site(site): frames for site, frames in t.sites.items()},
            varying=words(t.varying),
            moved=words(t.moved),
            recounted=words(t.recounted),
        )

    def times(self, times: Times) -> Times:
        """Return times with the sites of the study."""
        return replace(times, nodes=tuple((self.site(site), op) for site, op in times.nodes))


def names_in(own: Sequence[PointTable], t: PointTable) -> SiteNames:
    """Return the names that the study with the tables ``own`` has for the sites of a run.

    Those of another build are taken as a whole or not at all: loops must hold the same calls, made
    by the same ranks.
    """
    found = match(own, t)
    if found is None:
        return SiteNames()
    names = SiteNames(found[0], frozenset(site for o in own for site, _ in o.nodes if site))
    return names if _alike(own, names.table(t)) else SiteNames()


def list_nodes(t: PointTable) -> list[Node]:
    """Return the places that a run reaches."""
    return [t.nodes[k] for k in sorted(set(t.edges[:, 2].tolist())) if k >= 0]


def share(t: PointTable, nodes: Iterable[Node]) -> float:
    """Return the share of places in the time of a run."""
    mine = set(nodes)
    there = np.array([(g.site, g.op) in mine for g in t.groups], dtype=bool)
    count = np.array([g.op not in INIT_OPS for g in t.groups], dtype=bool)
    time = (t.work + t.elapsed_ns) * count[t.group]
    return float(time[there[t.group]].sum() / max(time.sum(), 1))


def _alike(own: Sequence[PointTable], t: PointTable) -> bool:
    """Tell whether loops hold the same of the calls that matter, and the same ranks make them.

    Who makes them is asked where an operation has several call sites, which could be mixed up.
    """
    nearest = min(own, key=lambda o: (abs(np.log(o.np / t.np)), o.np))
    here, there = _ranks_of(t), _ranks_of(nearest)
    sites = Counter(op for _, op in here)
    if any(there.get(n, ranks) != ranks for n, ranks in here.items() if sites[n[1]] > 1):
        return False
    known = {node for o in own for node in list_nodes(o)}
    both = [node for node in here if node in known]
    matter = {n for n in both if max(share(t, [n]), share(nearest, [n])) > RELEVANT_SHARE}
    return _loops([t], matter) in (_loops([nearest], matter), _loops(own, matter))


def _loops(tables: Sequence[PointTable], matter: set[Node]) -> set[frozenset[Node]]:
    """Return the calls that matter in each loop that is no walk from partner to partner."""
    s = structure(tables)
    loops = [k for k in range(1, len(s.nest.loops)) if k not in s.walks]
    inside = [{s.nodes[v] for v in s.nest.loops[k].nodes()} & matter for k in loops]
    return {frozenset(each) for each in inside if each}


def _ranks_of(t: PointTable) -> dict[Node, tuple[bool, ...]]:
    """Return which ranks reach each place: the first, the last, all."""
    out: dict[Node, set[int]] = {}
    for rank, group in set(zip(t.rank.tolist(), t.group.tolist(), strict=True)):
        out.setdefault((t.groups[group].site, t.groups[group].op), set()).add(rank)
    return {node: (0 in r, t.np - 1 in r, len(r) == t.np) for node, r in out.items()}
