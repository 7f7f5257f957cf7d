"""The signature of one process count: npNNNN.json (readable) and Parquet tables beside it."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from p3s.base.artefacts import read_json, write_json
from p3s.base.errors import P3SError
from p3s.base.records import RunRecord, Traces, signature_path
from p3s.base.text import command_line, processes
from p3s.capture.reader import mark_of
from p3s.capture.sites import chains
from p3s.signature import clock
from p3s.signature.beside import write_teams, write_uses
from p3s.signature.clones import contradicted, copies_of, known_sites, sites_of
from p3s.signature.part import Part, Sites, intact_runs, join_files
from p3s.signature.store import (
    SCHEMA,
    SIGNATURE,
    VERSION,
    SignatureHead,
    signature_of,
    write_tables,
)
from p3s.signature.structure import structure, total_turns, undecided
from p3s.signature.tables import PointTable, table_of
from p3s.signature.times import make_times, write_times


def characterize(traces: Traces, np_: int) -> SignatureHead:
    """Write the signature of one process count from its complete runs; return its head.

    A run with a missing, unfinished or damaged rank file is not used; ``left_out`` says
    what is wrong with it. Raises P3SError when no intact run at that count is left.
    """
    found = _Read.of(traces, np_, Sites())
    others = _signatures(traces, without=np_)
    known = known_sites(others)
    copies = copies_of(found.table, chains(traces, found.table.sites))
    sites = sites_of(found.table, copies, known)
    if sites != Sites():
        found = _Read.of(traces, np_, sites)
    nest = structure([found.table])
    if shared := undecided(nest):
        # where sites do not decide, what the calls do and their order does
        apart = _Read.of(traces, np_, replace(sites, apart=shared))
        divided = structure([apart.table])
        if total_turns(divided) < total_turns(nest):
            found, nest = apart, divided
    lines = {sites.same.get(site, site): chain for site, chain in copies.lines.items()}
    table = replace(found.table, same=dict(sites.same), waits=dict(sites.waits), lines=lines)
    path = signature_path(traces.root, np_)
    out = replace(
        signature_of(table, replace(nest, tables=(table,))),
        left_out=tuple(found.left_out),
        captures={record.path.name: mark_of(record.path) for record in found.used},
        tables=write_tables(table, path),
    )
    write_json(path, SIGNATURE.data(out), [record.path / "run.json" for record in found.used])
    if table.work_unit not in clock.TIMES and any(run.np == np_ for run in traces.timed):
        make_times(traces, np_)
    else:
        write_times(traces.root, table, found.parts, found.used)
    write_teams(traces.root, np_, found.parts)
    write_uses(traces.root, np_, found.parts)
    known.add(np_, lines, sites.same, sites.waits, table.sites)
    for other in contradicted(others, known):
        with contextlib.suppress(P3SError):  # its captures were deleted
            characterize(traces, other)
    return out


@dataclass(frozen=True)
class _Read:
    """The intact runs of a count, read one way: see intact_runs."""

    table: PointTable
    parts: list[Part]
    left_out: list[str]
    used: list[RunRecord]

    @staticmethod
    def of(traces: Traces, np_: int, sites: Sites) -> _Read:
        """Read the runs; raises P3SError when none is intact."""
        parts, walls, left_out, used = intact_runs(traces.runs, np_, sites)
        if not parts:
            why = (
                left_out[0]
                if left_out
                else f"{traces.root} has no complete run at {processes(np_)}"
            )
            advice = " with a larger --limit" if "reached the limit" in why else ""
            raise P3SError(
                f"characterize: {why}; trace it again{advice}: {_traced_again(traces, np_)}"
            )
        return _Read(table_of(parts, walls, str(traces.root)), parts, left_out, used)


def _traced_again(traces: Traces, np_: int) -> str:
    """Return the command that traces a count again, from the directory that it was traced in."""
    words = ["p3s", "characterize", "-n", str(np_), "-o", str(traces.root)]
    return command_line([*words, "--", *traces.command] if traces.command else words)


def _signatures(traces: Traces, without: int | None = None) -> dict[int, dict[str, Any]]:
    """Return the content of the signatures of a study that can be read, but for one count."""
    found = {}
    for n in traces.counts:
        if n != without:
            with contextlib.suppress(P3SError):  # made again or reported by whoever needs it
                found[n] = read_json(signature_path(traces.root, n), SCHEMA, VERSION)
    return found


def read_alike(traces: Traces, model_sites: Collection[str], files: Sequence[Path]) -> Part:
    """Return a run, one Part, with its call sites taken as those of the study's model are."""
    # Where the model tells the calls of one site apart, the run's are told apart alike.
    sites = Sites(frozenset(site.partition("#")[0] for site in model_sites if "#" in site))
    part = join_files(files, sites)
    if part.problem:
        return part
    table = table_of([part], [None], str(traces.root))
    known = known_sites(_signatures(traces))
    copies = copies_of(table, chains(traces, table.sites))
    decided = {**copies.by_graph, **known.of_graph(0)}  # whatever this run tells
    alike = sites_of(table, replace(copies, by_graph=decided, waits={}), known)
    return join_files(files, replace(alike, apart=sites.apart)) if alike != Sites() else part
