"""Call sites that are one call of the program: copies that a compiler made.

An optimising compiler copies calls: the first iteration of a loop, both branches of a condition, a
function for constant arguments. The copies have addresses of their own and one chain of functions
and lines. Calls of one line that every rank makes equally often, at all counts, stay apart: they
are calls of one macro, or the iterations of a loop that was written out. Without debug
information the graph of the calls tells (p3s.signature.copies), that of the largest count.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from p3s.base.errors import P3SError
from p3s.signature.completions import WAITS
from p3s.signature.copies import calls_by_rank, copied_calls, replaced_waits
from p3s.signature.part import Sites

if TYPE_CHECKING:
    from p3s.base.study import Study
    from p3s.signature.part import Part
    from p3s.signature.tables import PointTable


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

    def of_graph(self, least: int, own: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return site -> the one that stands for it; own: as ``least`` processes alone tell.

        Of the counts from ``least`` on the largest decides that has the site.
        """
        by_graph = self.by_graph if own is None else {**self.by_graph, least: own}
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


def known_sites(study: Study, without: int | None = None) -> KnownSites:
    """Return what the signatures of a study say, but for one count."""
    known = KnownSites()
    for n in study.signature_counts():
        if n == without:
            continue
        try:
            data = _signature(study, n)
        except P3SError:  # made again or reported by whoever needs it
            continue
        lines, same, waits = (data.get(key, {}) for key in ("lines", "same", "waits"))
        known.add(n, lines, same, waits, data["sites"])
    return known


def _signature(study: Study, n: int) -> dict[str, Any]:
    from p3s.base.study import read_json
    from p3s.signature.store import SCHEMA, VERSION

    return read_json(study.signature_path(n), SCHEMA, VERSION)


def copies_of(study: Study, table: PointTable) -> Copies:
    """Return what a run tells of its sites."""
    from p3s.capture.sites import chains

    found = chains(study, table.sites)
    ops: dict[str, set[str]] = {}
    for site, op in table.nodes:
        ops.setdefault(site, set()).add(op)
    lines = {}
    for site, made in ops.items():
        if site in found.lines:
            text = "\0".join([*sorted(made), *found.lines[site]])
            digest = hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=8)
            lines[site] = digest.hexdigest()
    functions = {site: names for site, names in found.functions.items() if site in ops}
    bare = {site: names for site, names in functions.items() if site not in lines}
    return Copies(lines, copied_calls(table, bare), replaced_waits(table, functions))


def sites_of(table: PointTable, copies: Copies, known: KnownSites) -> Sites:
    """Return how the sites of a run are taken, from what it and others of the study tell."""
    same = _same_sites(table, copies, known)
    waits = {**copies.waits, **known.waits}
    return Sites(
        same=same,
        waits={same.get(test, test): same.get(wait, wait) for test, wait in waits.items()},
    )


def _same_sites(table: PointTable, copies: Copies, known: KnownSites) -> dict[str, str]:
    """Return site -> the site that stands for it too, those that stay themselves left out."""
    of_chain: dict[str, list[str]] = {}
    for site, chain in sorted(copies.lines.items()):
        of_chain.setdefault(chain, []).append(site)
    calls = calls_by_rank(table)
    by_graph = known.of_graph(table.np, copies.by_graph)
    out = {site: by_graph[site] for site in copies.by_graph if by_graph[site] != site}
    for chain, sites in of_chain.items():
        there = known.sites.get(chain, [])
        if chain in known.merged or _differ([calls[s] for s in sites]):
            first, stay = known.merged.get(chain, (there or sites)[0]), []
        else:  # one site, or calls that differ: what other counts know keeps its name
            first, stay = (there or sites)[0], there if len(sites) == 1 else sites
        out.update({s: first for s in sites if s != first and s not in stay})
    return out


def _differ(calls: Sequence[np.ndarray]) -> bool:
    """Tell whether some rank makes the calls of one line differently often."""
    return any(not np.array_equal(calls[0], other) for other in calls[1:])


def contradicted(study: Study, np_: int, known: KnownSites) -> list[int]:
    """Return the other counts whose signatures take sites otherwise than all of them tell."""
    out = []
    for n in study.signature_counts():
        if n == np_:
            continue
        try:
            data = _signature(study, n)
        except P3SError:  # of an earlier version: made again next
            continue
        lines, nodes = data.get("lines", {}), data["nodes"]
        apart = any(site in known.waits and op in WAITS for site, op in nodes)
        apart |= any(known.merged.get(chain, site) != site for site, chain in lines.items())
        by_graph = known.of_graph(n)
        if apart or any(by_graph[s] != one for s, one in known.by_graph.get(n, {}).items()):
            out.append(n)
    return out


def read_alike(study: Study, model_sites: Collection[str], files: Sequence[Path]) -> Part:
    """Return a run, one Part, with its call sites taken as those of the study's model are."""
    from p3s.signature.intact import join_files
    from p3s.signature.tables import table_of

    # Where the model tells the calls of one site apart, the run's are told apart alike.
    sites = Sites(frozenset(site.partition("#")[0] for site in model_sites if "#" in site))
    part = join_files(files, sites)
    if part.problem:
        return part
    table = table_of([part], [None], str(study.root))
    known, copies = known_sites(study), copies_of(study, table)
    decided = {**copies.by_graph, **known.of_graph(0)}  # whatever this run tells
    alike = sites_of(table, replace(copies, by_graph=decided, waits={}), known)
    return join_files(files, replace(alike, apart=sites.apart)) if alike != Sites() else part
