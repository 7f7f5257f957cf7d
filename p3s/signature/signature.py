"""The signature of one process count: npNNNN.json (readable) and Parquet tables beside it."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from pathlib import Path

from p3s.base.artefacts import write_json
from p3s.base.errors import P3SError
from p3s.base.records import RunRecord
from p3s.base.study import Study
from p3s.base.text import command_line, processes
from p3s.capture.reader import mark_of
from p3s.signature import clock
from p3s.signature.beside import write_teams, write_uses
from p3s.signature.clones import contradicted, copies_of, known_sites, sites_of
from p3s.signature.part import Part, Sites, intact_runs
from p3s.signature.store import SIGNATURE, SignatureHead, signature_of, write_tables
from p3s.signature.structure import structure, total_turns, undecided
from p3s.signature.tables import PointTable, table_of
from p3s.signature.times import make_times, write_times


def characterize(study_dir: Path, np_: int) -> SignatureHead:
    """Write the signature of one process count from its complete runs; return its head.

    A run with a missing, unfinished or damaged rank file is not used; ``left_out`` says
    what is wrong with it. Raises P3SError when no intact run at that count is left.
    """
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
    out = replace(
        signature_of(table, replace(nest, tables=(table,))),
        left_out=tuple(found.left_out),
        captures={record.path.name: mark_of(record.path) for record in found.used},
        tables=write_tables(table, path),
    )
    write_json(path, SIGNATURE.data(out), [record.path / "run.json" for record in found.used])
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
