"""The signature of one process count: npNNNN.json (readable) and Parquet tables beside it."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from p3s.base.errors import P3SError
from p3s.base.serialise import to_data
from p3s.base.tables import TABLES
from p3s.base.text import command_line, processes
from p3s.capture.reader import mark_of
from p3s.signature import clock
from p3s.signature.beside import write_teams, write_uses
from p3s.signature.clones import contradicted, copies_of, known_sites, sites_of
from p3s.signature.part import Part, Sites, intact_runs
from p3s.signature.phases import phases_json
from p3s.signature.store import SCHEMA, VERSION, write_tables
from p3s.signature.structure import Structure, structure, total_turns, undecided
from p3s.signature.tables import PointTable, table_of
from p3s.signature.times import make_times, write_times
from p3s.signature.unmodelled import unmodelled_calls

if TYPE_CHECKING:
    from p3s.base.study import RunRecord, Study


def characterize(study_dir: Path, np_: int) -> dict[str, Any]:
    """Write the signature of one process count from its complete runs; return its JSON.

    A run with a missing, unfinished or damaged rank file is not used; ``left_out`` in the JSON
    says what is wrong with it. Raises P3SError when no intact run at that count is left.
    """
    from p3s.base.study import Study, write_json

    study = Study.open(Path(study_dir))
    found = _Read.of(study, np_, Sites())
    known = known_sites(study, without=np_)
    copies = copies_of(study, found.table)
    sites = sites_of(found.table, copies, known)
    if sites != Sites():
        found = _Read.of(study, np_, sites)
    nest = structure([found.table])
    if shared := undecided(nest):
        # where sites do not decide, what the calls do and their order does
        apart = _Read.of(study, np_, replace(sites, apart=shared))
        divided = structure([apart.table])
        if total_turns(divided) < total_turns(nest):
            found, nest = apart, divided
    lines = {sites.same.get(site, site): chain for site, chain in copies.lines.items()}
    table = replace(found.table, same=dict(sites.same), waits=dict(sites.waits), lines=lines)
    path = study.signature_path(np_)
    facts = to_data(write_tables(table, path))
    captures = {record.path.name: mark_of(record.path) for record in found.used}
    told = {"left_out": found.left_out, "captures": captures, TABLES: facts}
    out = {**signature_json(table, replace(nest, tables=(table,))), **told}
    write_json(path, out, [record.path / "run.json" for record in found.used])
    if table.work_unit not in clock.TIMES and study.timed_runs(np_):
        make_times(study, np_)
    else:
        write_times(study, table, found.parts, found.used)
    write_teams(study, np_, found.parts)
    write_uses(study, np_, found.parts)
    known.add(np_, lines, sites.same, sites.waits, table.sites)
    for other in contradicted(study, np_, known):
        with contextlib.suppress(P3SError):  # its captures were deleted
            characterize(study.root, other)
    return out


@dataclass(frozen=True)
class _Read:
    """The intact runs of a count, read one way: see intact_runs."""

    table: PointTable
    parts: list[Part]
    left_out: list[str]
    used: list[RunRecord]

    @staticmethod
    def of(study: Study, np_: int, sites: Sites) -> _Read:
        """Read the runs; raises P3SError when none is intact."""
        parts, walls, left_out, used = intact_runs(study.runs(np_), np_, sites)
        if not parts:
            why = (
                left_out[0] if left_out else f"{study.root} has no complete run at {processes(np_)}"
            )
            advice = " with a larger --limit" if "reached the limit" in why else ""
            raise P3SError(
                f"characterize: {why}; trace it again{advice}: {_traced_again(study, np_)}"
            )
        return _Read(table_of(parts, walls, str(study.root)), parts, left_out, used)


def _traced_again(study: Study, np_: int) -> str:
    """Return the command that traces a count again, from the directory that it was traced in."""
    words = ["p3s", "characterize", "-n", str(np_), "-o", str(study.root)]
    with contextlib.suppress(P3SError):  # study.json was lost: the user knows the program
        words += ["--", *study.command()]
    return command_line(words)


def signature_json(t: PointTable, nest: Structure | None = None) -> dict[str, Any]:
    """Return the readable signature: groups, communicators, loop tree, accounted time.

    nest: the structure of the table, found here where it is not given.
    """
    found = phases_json(nest or structure([t]))
    key = str(t.np)
    return {
        "schema": SCHEMA,
        "schema_version": VERSION,
        "np": t.np,
        "repeats": t.repeats,
        "events": t.events,
        "null_events": t.null_events,
        "failed_polls": t.failed_polls,
        "wall_ns": t.wall_ns,
        "work": int(t.work.sum()),
        "work_unit": t.work_unit,
        "communication_ns": int(t.elapsed_ns.sum()),
        "varying": list(t.varying),
        "moved": list(t.moved),
        "recounted": list(t.recounted),
        "unmodelled": t.unmodelled,
        "not_modelled": unmodelled_calls([t]),
        "tracing": t.tracing,
        "buffers": t.buffers,
        "pieces": t.pieces,
        "accounting": found["accounting"][key],
        "phases": found["phases"],
        "tree": found["tree"],
        "nodes": [list(node) for node in t.nodes],
        "groups": [[g.site, g.op, g.comm, g.peer, g.tag, g.root] for g in t.groups],
        "places": [
            {
                "members": _packed(p.members),
                "ordinal": p.ordinal,
                "op": p.op,
                "dims": list(p.dims) if p.dims else None,
                "periods": list(p.periods) if p.periods else None,
            }
            for p in t.places
        ],
        "sites": {k: list(v) for k, v in sorted(t.sites.items())},
        "same": dict(sorted(t.same.items())),
        "waits": dict(sorted(t.waits.items())),
        "lines": dict(sorted(t.lines.items())),
    }


def _packed(members: tuple[int, ...]) -> dict[str, Any]:
    if members and members == tuple(range(members[0], members[0] + len(members))):
        return {"first": members[0], "size": len(members)}
    return {"ranks": list(members)}
