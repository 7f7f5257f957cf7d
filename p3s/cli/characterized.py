"""The three ways of ``p3s characterize``: trace, say what came of it and what follows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from p3s.base.serialise import to_data
from p3s.cli.common import emit, out, quote_word, say
from p3s.cli.progress import progress
from p3s.report import traced as text

if TYPE_CHECKING:
    from p3s.pipeline.tracing.runs import TraceRequest


def characterize_counts(request: TraceRequest, json_: bool) -> int:
    """Trace the counts of a study."""
    from p3s.pipeline.records import load_study
    from p3s.pipeline.tracing.study import lacking, left_over, trace, without_loop

    with progress(0) as bar:
        done = trace(request, bar)
    study = load_study(request.root)
    failed = [row for row in done.failed if not (request.asked.top and row.refused)]
    next_command = f"p3s {'add STUDY' if request.part else 'model'} {quote_word(study.root)}"
    lack = lacking(study, done, part=request.part)
    if json_:
        emit(
            "characterize",
            study=str(study.root),
            **to_data(done),
            characterized=study.signature_counts(),
            next=None if lack else next_command,
        )
    elif done.counts:
        out(text.traced_text(done.counts))
        if said := without_loop(study, done.counts):
            say(said)
    if lack:
        say(f"p3s: {lack}")
        return 1
    if done.failed:
        say(f"p3s: {left_over(study, done)}")
    say(f"next: {next_command}")
    return 3 if failed or done.problems else 0


def values(request: TraceRequest, params: list[str], json_: bool) -> int:
    """Trace every combination of counts and values, each value in a study inside the study."""
    from p3s.base.settings import MIN_COUNTS, MIN_SETTINGS, THREADS, parameters, settings_in
    from p3s.pipeline.commands import another_value
    from p3s.pipeline.tracing.values import trace_values

    with progress(0) as bar:
        done = trace_values(request, params, bar)
    study = done.study
    able = [s for s, at in settings_in(study) if len(at.signature_counts()) >= MIN_COUNTS]
    needed = 1 if parameters(study) == [THREADS] else MIN_SETTINGS
    enough = len(able) >= needed
    next_command = f"p3s model {quote_word(study.root)}"
    if json_:
        emit(
            "characterize",
            study=str(study.root),
            parameters=study.manifest()["parameters"],
            values=[each.to_json() for each in done.values],
            next=next_command if enough else None,
        )
    else:
        out(text.values_table(done.values))
    if not enough:
        say(
            f"p3s: {'; '.join([*done.failed, ''])}{len(able)} of at least {needed} values have "
            f"{MIN_COUNTS} process counts; add another value: {another_value(study)}"
        )
        return 1
    if done.failed:
        say("p3s: " + "; ".join(done.failed))
    say(f"next: {next_command}")
    return 3 if done.failed else 0


def small_runs(request: TraceRequest, up_to: int, json_: bool) -> int:
    """Record runs of a smaller input, and print what they show."""
    from p3s.pipeline.tracing.runs import reasons
    from p3s.pipeline.tracing.values import trace_smaller
    from p3s.report.small_runs import render

    with progress(0) as bar:
        found = trace_smaller(request, up_to, bar)
    study, matched, done = found.study, found.matched, found.done
    next_command = f"p3s model {quote_word(study.root)}"
    if json_:
        emit(
            "far-runs",
            study=str(study.root),
            workload=matched.name,
            **to_data(done),
            minimum=to_data(matched.minimum),
            places=matched.places,
            matched=to_data(matched),
            next=next_command,
        )
    else:
        told = render(matched, found.work_unit)
        out("\n".join([text.small_runs_table(done.counts), "", *told]))
    if done.failed:
        say(f"p3s: {reasons(done.failed)}; kept: {', '.join(str(row.np) for row in done.counts)}")
    say(f"next: {next_command}")
    return 3 if done.failed or done.problems else 0
