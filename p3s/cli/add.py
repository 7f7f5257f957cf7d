"""``p3s add``: put captures made by ``p3s exec``, or traces in OTF2, into a study."""

from __future__ import annotations

from pathlib import Path

import typer

from p3s.base.text import table
from p3s.cli.common import emit, launcher_words, out, quote_word, say


def add(ctx: typer.Context, study_dir: Path, run_dirs: list[Path], force: bool, json_: bool) -> int:
    """Copy captured runs into a study and find their phases.

    Makes the study when it is missing. Several runs of one process count are repeats. A run
    that is not complete is left out and does not keep the others out (exit code 3); one that the
    study has already is passed over. An OTF2 trace (traces.otf2 of Score-P, or its directory)
    becomes a capture; what it does not tell is said.
    """
    from p3s.base.settings import MIN_COUNTS
    from p3s.pipeline.gather import captures, characterize_added, collect, put_runs

    with captures(list(run_dirs)) as archive:
        runs_ = collect(study_dir, archive.paths, launcher_words(ctx) or None)
        if not runs_.runs:
            raise (*runs_.refused, *runs_.there)[0]
        study = put_runs(study_dir, runs_.runs, force=force)
    refused = [archive.named(str(problem)) for problem in runs_.refused]
    refused += characterize_added(study, sorted({run.np for run in runs_.runs}))
    have = study.signature_counts()
    next_command = f"p3s model {quote_word(study.root)}" if len(have) >= MIN_COUNTS else None
    if json_:
        added = [
            {"np": run.np, "from": archive.source(run.path), "events": run.events}
            for run in runs_.runs
        ]
        emit(
            "add",
            study=str(study.root),
            added=added,
            refused=refused,
            characterized=have,
            left_out=[{"call": op, "events": n} for op, n in archive.left_out],
            notes=list(archive.notes),
            next=next_command,
        )
    else:
        rows = [[str(run.np), f"{run.events:,}", archive.source(run.path)] for run in runs_.runs]
        out(table(rows, ["processes", "events", "from"], left=0))
    for op, number in archive.left_out:
        say(f"left out: {number:,} {op}: an archive does not tell what they did")
    for note in (*archive.notes, *(archive.named(str(problem)) for problem in runs_.there)):
        say(f"note: {note}")
    for why in refused:
        say(f"p3s: {why}")
    if next_command:
        say(f"next: {next_command}")
    else:
        say(
            f"{study.root}: holds {', '.join(map(str, have)) or 'no'} processes; the model needs"
            f" {MIN_COUNTS} counts: trace others and add them"
        )
    return 3 if refused or archive.left_out else 0
