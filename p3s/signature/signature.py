"""The signature of one process count: npNNNN.json (readable) and Parquet tables beside it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
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
from p3s.signature.clones import Copies, copies_of, find_contradictions, known_sites, sites_of
from p3s.signature.ended import rest_of
from p3s.signature.part import Part, Sites, intact_runs, join_files
from p3s.signature.phase_file import Matched, Recorded
from p3s.signature.similarity import FOREIGN, match
from p3s.signature.store import (
    SCHEMA,
    SIGNATURE,
    VERSION,
    SignatureHead,
    load_table,
    signature_of,
    write_tables,
)
from p3s.signature.structure import find_ambiguous, structure, total_turns
from p3s.signature.tables import PointTable, table_of
from p3s.signature.times import make_times, write_times


def characterize(traces: Traces, np_: int) -> SignatureHead:
    """Write the signature of one process count from its complete runs; return its head.

    A run with a missing, unfinished or damaged rank file is not used; ``left_out`` says
    what is wrong with it. Signatures of other counts that take call sites otherwise are written
    anew. Raises P3SError when no intact run at that count is left.
    """
    out = _characterize(traces, np_)
    others = _signatures(traces, without=np_)
    sites = known_sites(others)
    sites.add(np_, out.lines, out.same, out.waits, out.sites)
    for other in find_contradictions(others, sites):
        with contextlib.suppress(P3SError):  # its captures were deleted
            characterize(traces, other)
    for n in sorted((n for n in others if n < np_), reverse=True):
        with contextlib.suppress(P3SError):
            if _of_other_build(_signatures(traces)[n]["nodes"], {np_: {"nodes": out.nodes}}):
                _characterize(traces, n)
    return out


def _characterize(traces: Traces, np_: int) -> SignatureHead:
    """Write the signature of one process count, its call sites as other signatures have them."""
    reading = _RunReading.of(traces, np_, Sites())
    others = _signatures(traces, without=np_)
    copies = copies_of(reading.table, chains(traces, reading.table.sites))
    sites = sites_of(reading.table, copies, known_sites(others))
    larger = {n: data for n, data in others.items() if n > np_}
    matched = None
    if _of_other_build(reading.table.nodes, larger):
        sites, matched = _match_sites(traces, sites, copies, larger, partial(_table, traces, np_))
    if sites != Sites():
        reading = _RunReading.of(traces, np_, sites)
    if any(record.ended for record in reading.used):
        full = [n for n, data in others.items() if not (data.get("recorded") or {}).get("ended")]
        reading = _restored_run(traces, np_, sites, [load_table(traces.root, n) for n in full])
    nest = structure([reading.table])
    if (shared := find_ambiguous(nest)) and not any(record.ended for record in reading.used):
        # where sites do not decide, what the calls do and their order does
        apart = _RunReading.of(traces, np_, replace(sites, apart=shared))
        divided = structure([apart.table])
        if total_turns(divided) < total_turns(nest):
            reading, nest = apart, divided
    lines = {sites.same.get(site, site): chain for site, chain in copies.lines.items()}
    table = replace(
        reading.table, same=dict(sites.same), waits=dict(sites.waits), lines=lines, matched=matched
    )
    path = signature_path(traces.root, np_)
    out = replace(
        signature_of(table, replace(nest, tables=(table,))),
        left_out=tuple(reading.left_out),
        captures={record.path.name: mark_of(record.path) for record in reading.used},
        tables=write_tables(table, path),
    )
    write_json(path, SIGNATURE.data(out), [record.path / "run.json" for record in reading.used])
    if table.work_unit not in clock.TIMES and any(run.np == np_ for run in traces.timed):
        make_times(traces, np_)
    else:
        write_times(traces.root, table, reading.parts, reading.used)
    write_teams(traces.root, np_, reading.parts)
    write_uses(traces.root, np_, reading.parts)
    return out


def _restored_run(
    traces: Traces, np_: int, sites: Sites, full: Sequence[PointTable]
) -> _RunReading:
    """Return the run of a program that was ended, as it goes on at the counts traced in full."""
    apart = frozenset(site.partition("#")[0] for t in full for site, _ in t.nodes if "#" in site)
    ended = _RunReading.of(traces, np_, replace(sites, apart=apart))
    rest = rest_of(ended.table, full)
    restored = _RunReading.of(traces, np_, replace(sites, apart=apart, rest=rest))
    detail = ended.table.events - ended.parts[0].restored
    recorded = Recorded(detail, restored.table.events, rest.seen)
    return replace(restored, table=replace(restored.table, recorded=recorded))


def _table(traces: Traces, np_: int, sites: Sites) -> PointTable:
    return _RunReading.of(traces, np_, sites).table


def _of_other_build(nodes: Iterable[Sequence[str]], others: Mapping[int, Any]) -> bool:
    """Tell whether most calls of a run are at no call site of other counts' signatures."""
    named = {tuple(node) for data in others.values() for node in data["nodes"]}
    is_named = [tuple(node) in named for node in nodes]
    return bool(named) and sum(is_named) <= FOREIGN * len(is_named)


def _match_sites(
    traces: Traces,
    sites: Sites,
    copies: Copies,
    counts: Iterable[int],
    read: Callable[[Sites], PointTable],
) -> tuple[Sites, Matched | None]:
    """Return the sites of a run as those of other counts, which run another build.

    Copies of calls are told by the run itself, or by those counts, whichever makes more alike.
    """
    tables = [load_table(traces.root, n) for n in counts]
    with_lines = {site: one for site, one in sites.same.items() if site in copies.lines}
    ways = [sites, *([replace(sites, same=with_lines)] if with_lines != sites.same else [])]
    tries = [(way, matching) for way in ways if (matching := match(tables, read(way))) is not None]
    if not tries:
        return sites, None
    way, (twins, how) = max(tries, key=lambda each: each[1][1].alike / each[1][1].calls)
    same = {**twins, **{copy: twins.get(one, one) for copy, one in way.same.items()}}
    waits = {twins.get(test, test): twins.get(wait, wait) for test, wait in way.waits.items()}
    return replace(way, same=same, waits=waits), how


@dataclass(frozen=True)
class _RunReading:
    """The intact runs of a count, read one way: see intact_runs."""

    table: PointTable
    parts: list[Part]
    left_out: list[str]
    used: list[RunRecord]

    @staticmethod
    def of(traces: Traces, np_: int, sites: Sites) -> _RunReading:
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
        return _RunReading(table_of(parts, walls, str(traces.root)), parts, left_out, used)


def _traced_again(traces: Traces, np_: int) -> str:
    """Return the command that traces a count again, from the directory that it was traced in."""
    words = ["p3s", "characterize", "-n", str(np_), "-o", str(traces.root)]
    return command_line([*words, "--", *traces.command] if traces.command else words)


def _signatures(traces: Traces, without: int | None = None) -> dict[int, dict[str, Any]]:
    """Return the content of the signatures of a study that can be read, but for one count."""
    signatures = {}
    for n in traces.counts:
        if n != without:
            with contextlib.suppress(P3SError):  # made again or reported by whoever needs it
                signatures[n] = read_json(signature_path(traces.root, n), SCHEMA, VERSION)
    return signatures


def _run(traces: Traces, files: Sequence[Path], sites: Sites) -> PointTable:
    return table_of([join_files(files, sites)], [None], str(traces.root))


def read_alike(traces: Traces, model_sites: Collection[str], files: Sequence[Path]) -> Part:
    """Return a run, one Part, with its call sites taken as those of the study's model are."""
    # Where the model tells the calls of one site apart, the run's are told apart alike.
    sites = Sites(frozenset(site.partition("#")[0] for site in model_sites if "#" in site))
    part = join_files(files, sites)
    if part.problem:
        return part
    table = table_of([part], [None], str(traces.root))
    signatures = _signatures(traces)
    sites_known = known_sites(signatures)
    copies = copies_of(table, chains(traces, table.sites))
    decided = {**copies.by_graph, **sites_known.of_graph(0)}  # whatever this run tells
    alike = sites_of(table, replace(copies, by_graph=decided, waits={}), sites_known)
    if _of_other_build(table.nodes, signatures):
        alike, _ = _match_sites(traces, alike, copies, signatures, partial(_run, traces, files))
    return join_files(files, replace(alike, apart=sites.apart)) if alike != Sites() else part
