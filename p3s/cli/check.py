"""``p3s check``: what captures hold and what is wrong with them."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from p3s.base.text import one_line, plural, table
from p3s.cli.common import JSON_OPTION, emit, out, quoted, say
from p3s.cli.helptext import argument

if TYPE_CHECKING:
    from p3s.capture.check import RunCheck

EPILOG = """\b
Example:
  p3s check study/runs/np0008.r0
Next:
  p3s recover study/runs/np0008.r0 -o saved    (what is intact of a damaged run)"""

#: Complete ranks of larger runs are not listed one by one.
_LISTED_RANKS = 16


def check(
    path: Path = argument("PATH", "Study, run directory or .p3t file."), json_: bool = JSON_OPTION
) -> int:
    """Say for every run and rank whether its capture is complete, and what is wrong if not.

    Exit code 0 when all is complete, 3 when something is partial or damaged, 1 when nothing can
    be used.
    """
    from p3s.capture.check import COMPLETE, PARTIAL
    from p3s.capture.check import check as check_place
    from p3s.capture.recover import places_at

    found = []
    for place in places_at(path, others=True):
        run = check_place(place)
        found.append(run)
        if not json_:
            _show(run)
    usable = [run for run in found if run.usable]
    whole = all(run.status == COMPLETE for run in found)
    if json_:
        emit("check", ok=whole, runs=[asdict(run) for run in found])
    if not usable:
        say(f"p3s: {path} holds nothing that can be used; trace the program again")
        return 1
    if not whole:
        bad = [run for run in usable if run.status not in (COMPLETE, PARTIAL) and run.path.is_dir()]
        if bad:
            there = bad[0].path
            say(
                f"next: p3s recover {quoted(there)} -o {quoted(Path(f'{there.name}-saved'))} "
                "(saves what is intact)"
            )
        return 3
    return 0


def _show(run: RunCheck) -> None:
    events = sum(rank.events for rank in run.ranks)
    size = sum(rank.bytes for rank in run.ranks)
    ranks = plural(run.np, "rank") if run.path.is_dir() else "one rank"
    out(
        f"{one_line(str(run.path))}: {run.status}, {ranks}, {plural(events, 'event')}, "
        f"{plural(size, 'byte')}"
    )
    shown = [rank for rank in run.ranks if len(run.ranks) <= _LISTED_RANKS or rank.problem]
    missing = [rank for rank in shown if rank.status == "missing"]
    unlisted = missing[_LISTED_RANKS:]
    if unlisted:
        gone = {rank.rank for rank in unlisted}
        shown = [rank for rank in shown if rank.rank not in gone]
    if shown:
        rows = [[str(r.rank), r.status, str(r.events), str(r.bytes)] for r in shown]
        lines = table(rows, ["rank", "status", "events", "bytes"], left=2).split("\n")
        said = ["", *[one_line(rank.problem) for rank in shown]]
        for line, sentence in zip(lines, said, strict=True):
            out(f"  {line}  {sentence}".rstrip())
    if unlisted:
        out(f"  and {len(unlisted)} more ranks are missing")
    for problem in run.problems:
        out(f"  {one_line(problem)}")
    for note in run.notes:
        out(f"  note: {one_line(note)}")
