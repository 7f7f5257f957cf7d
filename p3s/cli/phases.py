"""``p3s phases``: the phases of a study, the loops they are, and where in the program."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from p3s.base.errors import P3SError, UsageError
from p3s.cli.common import JSON_OPTION, MODULES, emit_json, header, out, parse_counts, progress, say

if TYPE_CHECKING:
    from p3s.base.study import Study
    from p3s.capture.source import Where
    from p3s.report.phases import Phases

EPILOG = """docs/phases.md tells how to read the table.

\b
Example:
  p3s phases study
  p3s phases study -n 16 --tree --all | less
  p3s phases study --modules ~/build/lib
Next:
  p3s model study"""


def phases(
    study_dir: Path = typer.Argument(..., metavar="STUDY", help="Study directory."),
    counts: str | None = typer.Option(
        None, "-n", metavar="COUNTS", help="Only these process counts, e.g. 8,16."
    ),
    tree: bool = typer.Option(False, "--tree", help="Only the tree of loops and calls."),
    everything: bool = typer.Option(False, "--all", help="All phases, all lines of the tree."),
    modules: list[Path] = MODULES,
    thesis: bool = typer.Option(
        False, "--thesis", help="The thesis's phases instead: segments that repeat (one count)."
    ),
    similar: str = typer.Option(
        "5%,90%,80%,1%",
        "--similar",
        metavar="V,C,E,R",
        help="With --thesis: volume, computation and events alike, share of a relevant phase.",
    ),
    json_: bool = JSON_OPTION,
) -> int:
    """Show the phases with their weights and costs, the loop nest, and what is in no phase.

    Functions and lines come from the debug information of the program (compile it with -g).
    """
    from p3s.base.study import Study
    from p3s.capture.sites import resolve_sites
    from p3s.report.phases import load
    from p3s.report.tree import render

    wanted = parse_counts(counts) if counts is not None else None
    shares = _shares(similar)
    if thesis and wanted is not None and len(wanted) > 1:
        raise UsageError("-n: the phases of the thesis are of one count; give one")
    study = Study.open(study_dir)
    _make(study)
    found = load(study.phases_path)
    if thesis:
        return _thesis(study, found, wanted, shares, everything, json_)
    if wanted is not None:
        found = found.only(wanted, study.root)
    places, notes = resolve_sites(study, found.sites, modules)
    if json_:
        emit_json(
            {
                **found.raw,
                "places": {name: _as_json(places[name]) for name in sorted(places)},
                "notes": notes,
            }
        )
    else:
        out(render(found, places, everything=everything, only_tree=tree))
    for note in notes:
        say(f"note: {note}")
    return 0


def _shares(text: str) -> tuple[float, float, float, float]:
    """Return the shares that --similar names: of volume, computation, events, of a phase."""
    try:
        shares = [float(word.strip().removesuffix("%")) / 100 for word in text.split(",")]
        volume, compute, events, relevance = shares
    except ValueError:
        shares = [-1.0]
    if not all(0 <= share <= 1 for share in shares):
        raise UsageError(
            f"--similar {text}: not four percentages; for example --similar 5%,90%,80%,1%"
        )
    return volume, compute, events, relevance


def _thesis(
    study: Study,
    found: Phases,
    wanted: list[int] | None,
    shares: tuple[float, float, float, float],
    everything: bool,
    json_: bool,
) -> int:
    """Show the phases as the thesis finds them, at one count."""
    from p3s.capture import read_run
    from p3s.report.thesis import as_rows, render
    from p3s.signature.thesis import Similarity, loop_of, thesis_phases

    settings = Similarity(*shares)
    n = found.only(wanted, study.root).counts[0] if wanted else found.counts[-1]
    runs = [run for run in study.runs(n) if run.status == "complete"]
    if not runs:
        raise P3SError(f"{study.root}: no complete run at {n} processes; trace it again")
    run = read_run(runs[0].path)
    phases_found = thesis_phases(run, settings)
    site_of = {call.call: call.site.partition("#")[0] for call in found.tree.calls()}
    inside: dict[int, set[str]] = {p.phase: {site_of[c] for c in p.calls} for p in found.phases}
    for phase in reversed(found.phases):
        if phase.parent is not None:
            inside[phase.parent] |= inside[phase.phase]
    loops = {p.number: loop_of(p, inside) for p in phases_found}
    if json_:
        emit_json(
            {
                **header("phases.thesis"),
                "np": n,
                "work_unit": run.work_unit,
                "settings": {
                    "volume": settings.volume,
                    "compute": settings.compute,
                    "events": settings.events,
                    "relevance": settings.relevance,
                },
                "phases": as_rows(phases_found, loops),
            }
        )
    else:
        out(render(phases_found, loops, n, settings, everything, run.work_unit == "instructions"))
    return 0


def _make(study: Study) -> None:
    """Make phases.json when it is missing or older than what it is made from."""
    from p3s.pipeline.stages import ensure_signatures
    from p3s.signature.phases import load_phases

    with progress(len(study.counts())) as bar:
        ensure_signatures(study, bar)
    if study.signature_counts():
        load_phases(study.root)
    elif not study.phases_path.exists():
        from p3s.predict.commands import Commands, counts_to_add

        again = Commands(study).trace(study.complete_counts() or counts_to_add(study, 3))
        raise P3SError(f"{study.root}: no phases yet; to trace it, run {again}")


def _as_json(where: Where) -> dict[str, Any]:
    return {
        "module": where.module,
        "function": where.function,
        "file": where.file,
        "line": where.line,
        "offset": where.offset,
        "inlined_into": [
            {"function": each.function, "file": each.file, "line": each.line}
            for each in where.around
        ],
        "calls": where.calls,
    }
