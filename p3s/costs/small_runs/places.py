"""Places of another build of a program as those of the study.

A call site is the hash of its return addresses. A program whose input is compiled in is built
again for a smaller one, and its addresses shift. Which call is which is then told by debug
information, else by symbols and the order of the calls in their functions, else by the position
in the loop nest; nothing is matched in part.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from p3s.base.ops import INIT_OPS
from p3s.base.serialise import FileFormat
from p3s.capture.callpath import FrameInfo, parse
from p3s.signature.phases import RELEVANT_SHARE
from p3s.signature.similarity import FOREIGN, align_sites
from p3s.signature.structure import Node, structure
from p3s.signature.tables import PointTable
from p3s.signature.times import Times

SITE, LINE, FUNCTION, STRUCTURE = "site", "line", "function", "structure"
#: How places were matched, as words.
HOW = {
    SITE: "by call site",
    LINE: "by function and line",
    FUNCTION: "by function and order of calls",
    STRUCTURE: "by structure",
}
#: Names that compilers append to copies they make of a function.
_COPY = re.compile(r"\.(?:constprop|isra|part|cold|lto_priv|clone)(?:\.\d+)?")
_APART = "~"
Key = tuple[Any, ...]
Names = dict[str, tuple[Key, tuple[int, ...]]]


@dataclass(frozen=True)
class SiteMap:
    """Sites of another build -> sites of the study; how they were found.

    Without ``sites`` (how: SITE) both have the same.
    """

    how: str = SITE
    sites: Mapping[str, str] = field(default_factory=dict)

    def valid(self) -> None:
        """Raise ValueError for a file where places were not matched, or two are the same."""
        if self.how not in HOW or self.how == SITE or not self.sites:
            raise ValueError(f"how is {self.how!r:.40}")
        if len(set(self.sites.values())) != len(self.sites):
            raise ValueError("two sites are the same one of the study")

    def site(self, name: str, own: Iterable[str] = ()) -> str:
        """Return the study's name of a site; own: names that an unknown one must not take."""
        plain, mark, number = name.partition("#")
        if name in self.sites:
            return self.sites[name]
        if plain in self.sites:
            return self.sites[plain] + mark + number
        return _APART + name if self.sites and name and name in own else name

    def renamed(self, t: PointTable, own: Sequence[PointTable]) -> PointTable:
        """Return a table with the sites of the study."""
        if not self.sites:
            return t
        known = {site for o in own for site, _ in o.nodes}

        def words(names: Sequence[str]) -> tuple[str, ...]:
            split = [name.rpartition(":") for name in names]
            return tuple(f"{self.site(site, known)}:{op}" for site, _, op in split)

        return replace(
            t,
            groups=tuple(g._replace(site=self.site(g.site, known)) for g in t.groups),
            nodes=tuple((self.site(site, known), op) for site, op in t.nodes),
            sites={self.site(site, known): frames for site, frames in t.sites.items()},
            varying=words(t.varying),
            moved=words(t.moved),
            recounted=words(t.recounted),
        )

    def renamed_times(self, times: Times, own: Sequence[PointTable]) -> Times:
        """Return times with the sites of the study."""
        known = {site for o in own for site, _ in o.nodes}
        return replace(times, nodes=tuple((self.site(site, known), op) for site, op in times.nodes))


SITES = FileFormat("p3s.far-sites", 1, SiteMap, True, "remove it, and it is found again")


def as_words(found: Iterable[SiteMap]) -> str:
    """Return how the places of several runs were matched."""
    ways = {same.how for same in found}
    return " and ".join(text for how, text in HOW.items() if how in ways)


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


def matches_study(own: Sequence[PointTable], far: PointTable) -> bool:
    """Tell whether a run is at the places of the study, but for a few that hardly matter."""
    mine = {node for t in own for node in list_nodes(t)}
    here = list_nodes(far)
    strange = [node for node in here if node not in mine]
    return len(strange) <= FOREIGN * len(here) and share(far, strange) <= RELEVANT_SHARE


def correspond(
    own: Sequence[PointTable],
    far: PointTable,
    own_places: Mapping[str, FrameInfo],
    far_places: Mapping[str, FrameInfo],
) -> SiteMap | None:
    """Return which sites of another build are which of the study, None where it cannot be told.

    own_places, far_places: frame -> place, of both. Where both have names these decide: a place
    whose name the study does not have is another place, whatever its position.
    """
    nearest = min(own, key=lambda t: (abs(np.log(t.np / far.np)), t.np))
    for how in (LINE, FUNCTION):
        mine = _name_sites(own, own_places, far_places, how)
        theirs = _name_sites([far], far_places, own_places, how)
        if mine is None or theirs is None:
            continue
        for tables in (own, [nearest]):
            sites = _by_name(tables, far, mine, theirs)
            same = SiteMap(how, sites)
            if sites and _alike(tables, same.renamed(far, own), nearest, how):
                return same
        return None
    for tables in (own, [nearest]):
        sites, _ = align_sites(tables, far)
        same = SiteMap(STRUCTURE, sites)
        shared = {site for t in own for site in t.sites} & set(far.sites)
        if any(sites.get(site, site) != site for site in shared):
            continue
        if sites and _alike(tables, same.renamed(far, own), nearest, STRUCTURE):
            return same
    return None


# ---- by name
def _line(where: FrameInfo) -> Key | None:
    if not (where.function and where.line):
        return None
    return tuple(
        (_bare(w.function), w.file.rpartition("/")[2], w.line) for w in (where, *where.around)
    )


def _function(where: FrameInfo) -> Key | None:
    return (_bare(where.function),) if where.function else None


def _bare(name: str) -> str:
    return _COPY.sub("", name)


def _name_sites(
    tables: Sequence[PointTable],
    places: Mapping[str, FrameInfo],
    others: Mapping[str, FrameInfo],
    how: str,
) -> Names | None:
    """Return plain site -> its name and its offsets; None where sites that matter have none.

    A frame without a name stands for itself where the other build has the same: a library.
    """
    out: Names = {}
    for t in tables:
        for site, frames in t.sites.items():
            found = [places.get(frame) or parse(frame) for frame in frames]
            names = [
                (how == LINE and _line(w))
                or _function(w)
                or ((w.frame,) if w.frame in others else None)
                for w in found
            ]
            best = [(_line if how == LINE else _function)(w) for w in found]
            if any(best) and all(names):
                out[site.partition("#")[0]] = (
                    tuple(n for each in names for n in each or ()),
                    tuple(w.offset for w in found),
                )
    for t in tables:
        lost = [node for node in list_nodes(t) if node[0].partition("#")[0] not in out]
        if share(t, lost) > RELEVANT_SHARE or len(lost) > FOREIGN * len(list_nodes(t)):
            return None
    return out


def _by_name(
    own: Sequence[PointTable], far: PointTable, mine: Names, theirs: Names
) -> dict[str, str]:
    """Return sites of the same name and operations; several of one name in their order, where
    both have as many."""

    def grouped(tables: Sequence[PointTable], names: Names) -> dict[Key, list[str]]:
        ops: dict[str, set[str]] = {}
        for t in tables:
            for site, op in list_nodes(t):
                if (plain := site.partition("#")[0]) in names:
                    ops.setdefault(plain, set()).add(op)
        out: dict[Key, list[str]] = {}
        for site in sorted(ops, key=lambda s: names[s][1]):
            out.setdefault((names[site][0], frozenset(ops[site])), []).append(site)
        return out

    there, here = grouped(own, mine), grouped([far], theirs)
    return {
        site: twin
        for key, sites in here.items()
        if len(there.get(key, ())) == len(sites)
        for site, twin in zip(sites, there[key], strict=True)
    }


# ---- what is accepted
def _alike(own: Sequence[PointTable], far: PointTable, nearest: PointTable, how: str) -> bool:
    """Tell whether all places that matter are known, and loops hold the same of them.

    Where lines do not tell, their first calls must come in the same order; by structure those of
    the study that matter must occur too, and be reached by the same ranks. (Calls of different
    ranks have no order; names tell them apart.)
    """
    mine = {node for t in own for node in list_nodes(t)}
    here = list_nodes(far)
    if len(set(here)) != len(here):
        return False
    both = [node for node in here if node in mine]
    if len(both) <= FOREIGN * len(here):
        return False
    if share(far, [n for n in here if n not in mine]) > RELEVANT_SHARE:
        return False
    missing = [n for n in list_nodes(nearest) if n not in here]
    if how == STRUCTURE and (
        share(nearest, missing) > RELEVANT_SHARE or not _same_ranks(nearest, far, both)
    ):
        return False
    matter = {
        n for n in both if share(far, [n]) > RELEVANT_SHARE or share(nearest, [n]) > RELEVANT_SHARE
    }
    if how != LINE and not _same_order(nearest, far, matter):
        return False
    nests = []
    for s in (structure(own), structure([far])):
        inside = [
            frozenset(s.nodes[v] for v in s.nest.loops[k].nodes()) & matter
            for k in range(1, len(s.nest.loops))
            if k not in s.walks
        ]
        nests.append({each for each in inside if each})
    return nests[0] == nests[1]


def _same_ranks(one: PointTable, two: PointTable, nodes: Iterable[Node]) -> bool:
    """Tell whether the same ranks reach each place; at two counts: the first, the last, all."""

    def ranks(t: PointTable) -> dict[Node, frozenset[int]]:
        out: dict[Node, set[int]] = {}
        for rank, group in set(zip(t.rank.tolist(), t.group.tolist(), strict=True)):
            out.setdefault((t.groups[group].site, t.groups[group].op), set()).add(rank)
        if one.np == two.np:
            return {node: frozenset(each) for node, each in out.items()}
        return {
            node: frozenset(
                k
                for k, there in enumerate((0 in each, t.np - 1 in each, len(each) == t.np))
                if there
            )
            for node, each in out.items()
        }

    here, there = ranks(one), ranks(two)
    return all(here[node] == there[node] for node in nodes if node in here and node in there)


def _same_order(one: PointTable, two: PointTable, nodes: set[Node]) -> bool:
    """Tell whether the first calls of places that both reach come in the same order on each rank,
    at two counts on the first."""

    def order(t: PointTable) -> dict[int, list[Node]]:
        first: dict[int, dict[Node, int]] = {}
        for rank, _, v, _, at in t.edges.tolist():
            if v >= 0 and t.nodes[v] in nodes:
                each = first.setdefault(rank, {})
                each[t.nodes[v]] = min(at, each.get(t.nodes[v], at))
        return {rank: sorted(each, key=lambda node: each[node]) for rank, each in first.items()}

    here, there = order(one), order(two)
    for rank in range(one.np) if one.np == two.np else (0,):
        mine, theirs = here.get(rank, []), there.get(rank, [])
        if [n for n in mine if n in theirs] != [n for n in theirs if n in mine]:
            return False
    return True
