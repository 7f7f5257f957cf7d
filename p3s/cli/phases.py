"""``p3s phases``: the phases of a study, the loops they are, and where in the program."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from p3s.base.settings import traces_of
from p3s.cli.common import emit_json, out, say
from p3s.cli.progress import progress
from p3s.cli.values import parse_counts

if TYPE_CHECKING:
    from p3s.capture.callpath import FrameInfo


def phases(
    study_dir: Path,
    counts: str | None,
    tree: bool,
    everything: bool,
    modules: list[Path],
    json_: bool,
) -> int:
    """Show the phases with their weights and costs, the loop nest, and what is in no phase.

    Functions and lines come from the debug information of the program (compile it with -g).
    """
    from p3s.base.serialise import to_data
    from p3s.capture.sites import resolve_sites
    from p3s.costs.counted import counted_in
    from p3s.pipeline.records import load_study
    from p3s.pipeline.stages import ensure_phases
    from p3s.report.call_tree import render
    from p3s.signature.phase_file import PHASES
    from p3s.signature.times import load_times

    selected = parse_counts(counts) if counts is not None else None
    study = load_study(study_dir)
    with progress(len(study.counts())) as bar:
        phases_found = ensure_phases(study, bar)
    if selected is not None:
        phases_found = phases_found.only(selected, study.root)
    times = [load_times(study.root, n) for n in phases_found.counts]
    counted = [row for each in times if each for row in counted_in(phases_found, each)]
    places, notes = resolve_sites(traces_of(study), phases_found.sites, modules)
    if json_:
        emit_json(
            {
                **PHASES.data(phases_found),
                "counters": to_data(counted),
                "places": {name: _as_json(places[name]) for name in sorted(places)},
                "notes": notes,
            }
        )
    else:
        out(render(phases_found, places, counted, everything=everything, only_tree=tree))
    for note in notes:
        say(f"note: {note}")
    return 0


def _as_json(where: FrameInfo) -> dict[str, Any]:
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
