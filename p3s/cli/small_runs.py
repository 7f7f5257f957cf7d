"""``p3s characterize --far``: runs with a smaller workload show what few processes cannot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from p3s.base.text import one_line, table
from p3s.cli.common import emit, out, progress, quoted, say
from p3s.cli.helptext import option

if TYPE_CHECKING:
    from p3s.pipeline.tracing.results import TracedCount
    from p3s.pipeline.tracing.runs import TraceRequest

FAR = option(False, "--far", "The command is the same program with a smaller input.")
UP_TO = option(0, "--up-to N", "With --far and no -n: largest count [default: of the study].")


def far_runs(request: TraceRequest, up_to: int, json_: bool) -> int:
    """Record runs of a smaller input, and print what they show."""
    from p3s.base.serialise import to_data
    from p3s.costs.small_runs.places import HOW, SITE
    from p3s.costs.small_runs.summary import FAR as FAR_FILE
    from p3s.pipeline.tracing.results import reasons
    from p3s.pipeline.tracing.small_runs import trace_smaller
    from p3s.report.small_runs import render, status_text

    with progress(0) as bar:
        found = trace_smaller(request, up_to, bar)
    study, name, done = found.study, found.name, found.done
    matched, places = found.matched, found.places
    next_command = f"p3s model {quoted(study.root)}"
    if json_:
        emit(
            "far-runs",
            study=str(study.root),
            workload=f"far/{name}",
            **done.to_json(),
            minimum=to_data(found.costs),
            places=places,
            matched=None if matched is None else FAR_FILE.data(matched),
            next=next_command,
        )
    elif matched is not None:
        out("\n".join([_runs(done.counts), "", *render(matched, f"far/{name}")]))
    else:
        told = [f"{row.name}: {status_text(row)}" for row in found.costs]
        if places != HOW[SITE]:
            told.insert(0, f"another build of the program; its places were matched {places}")
        out("\n".join([_runs(done.counts), *map(one_line, told)]))
    if done.failed:
        say(f"p3s: {reasons(done.failed)}; kept: {', '.join(str(row.np) for row in done.counts)}")
    say(f"next: {next_command}")
    return 3 if done.failed or done.problems else 0


def _runs(rows: Sequence[TracedCount]) -> str:
    cells = [
        [
            str(row.np),
            str(len(row.runs)),
            f"{min(run.wall_s for run in row.runs):.2f} s",
            str(row.signature.get("events", "-")),
        ]
        for row in rows
    ]
    return table(cells, ["processes", "runs", "run time", "events"], left=0)
