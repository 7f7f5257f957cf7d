"""``p3s phases``: the phases of a study, the loops they are, and where in the program."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from p3s.cli.common import JSON_OPTION, emit_json, out, parse_counts, progress, say
from p3s.errors import P3SError

if TYPE_CHECKING:
    from p3s.report.phases import Phases
    from p3s.study import Study
    from p3s.trace.source import Where

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
    modules: list[Path] = typer.Option(
        [], "--modules", metavar="DIR", help="Where the program and its libraries are, if moved."
    ),
    json_: bool = JSON_OPTION,
) -> int:
    """Show the phases with their weights and costs, the loop nest, and what is in no phase.

    Functions and lines come from the debug information of the program (compile it with -g).
    """
    from p3s.report.phases import load
    from p3s.report.tree import render
    from p3s.study import Study

    wanted = parse_counts(counts) if counts is not None else None
    study = Study.open(study_dir)
    _make(study)
    found = load(study.phases_path)
    if wanted is not None:
        found = found.only(wanted, study.root)
    places, notes = _places(study, found, list(modules))
    if json_:
        emit_json(
            {**found.raw, "places": {name: _as_json(places[name]) for name in sorted(places)},
             "notes": notes}
        )  # fmt: skip
    else:
        out(render(found, places, everything=everything, only_tree=tree))
    for note in notes:
        say(f"note: {note}")
    return 0


def _make(study: Study) -> None:
    """Make phases.json when it is missing or older than what it is made from."""
    from p3s.characterize import load_phases
    from p3s.cli.pipeline import ensure_signatures

    with progress(len(study.counts())) as bar:
        ensure_signatures(study, bar)
    if study.signature_counts():
        load_phases(study.root)
    elif not study.phases_path.exists():
        raise P3SError(
            f"{study.root}: no phases yet; trace it: p3s characterize -n COUNTS -o {study.root} "
            "-- LAUNCHER"
        )


def _places(
    study: Study, found: Phases, more: list[Path]
) -> tuple[dict[str, Where], list[str]]:
    """Return the place of every frame, and what could not be resolved."""
    from p3s.trace.modules import Modules
    from p3s.trace.source import resolve, shown

    try:
        command = study.command()
    except P3SError:  # a study put together from runs that do not say it
        command = []
    root = study.root.resolve()
    where = Modules(command, [Path.cwd(), root.parent, root], more)
    frames = dict.fromkeys(f for frames in found.sites.values() for f in shown(frames))
    return resolve(frames, where, _traced_ns(study))


def _traced_ns(study: Study) -> int | None:
    """Return when the first of the runs was made."""
    from p3s.cli.pipeline import changed_ns

    times = [changed_ns(run.path / "run.json") for run in study.runs()]
    return min((time for time in times if time is not None), default=None)


def _as_json(where: Where) -> dict[str, Any]:
    return {
        "module": where.module, "function": where.function, "file": where.file,
        "line": where.line, "offset": where.offset,
        "inlined_into": [
            {"function": each.function, "file": each.file, "line": each.line}
            for each in where.around
        ],
    }  # fmt: skip
