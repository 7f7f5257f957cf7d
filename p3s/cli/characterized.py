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
        result = trace(request, bar)
    study = load_study(request.root)
    failed = [row for row in result.failed if not (request.asked.top and row.refused)]
    next_command = f"p3s {'add STUDY' if request.part else 'model'} {quote_word(study.root)}"
    lack = lacking(study, result, part=request.part)
    if json_:
        emit(
            "characterize",
            study=str(study.root),
            **to_data(result),
            characterized=study.signature_counts(),
            next=None if lack else next_command,
        )
    elif result.counts:
        out(text.traced_text(result.counts))
        if warning := without_loop(study, result.counts):
            say(warning)
    if lack:
        say(f"p3s: {lack}")
        return 1
    if result.failed:
        say(f"p3s: {left_over(study, result)}")
    say(f"next: {next_command}")
    return 3 if failed or result.problems else 0


def values(request: TraceRequest, params: list[str], json_: bool) -> int:
    """Trace every combination of counts and values, each value in a study inside the study."""
    from p3s.base.settings import MIN_COUNTS, MIN_SETTINGS, THREADS, parameters, settings_in
    from p3s.pipeline.commands import another_value
    from p3s.pipeline.tracing.values import trace_values

    with progress(0) as bar:
        result = trace_values(request, params, bar)
    study = result.study
    able = [s for s, at in settings_in(study) if len(at.signature_counts()) >= MIN_COUNTS]
    needed = 1 if parameters(study) == [THREADS] else MIN_SETTINGS
    enough = len(able) >= needed
    next_command = f"p3s model {quote_word(study.root)}"
    if json_:
        emit(
            "characterize",
            study=str(study.root),
            parameters=study.manifest()["parameters"],
            values=[each.to_json() for each in result.values],
            next=next_command if enough else None,
        )
    else:
        out(text.values_table(result.values))
    if not enough:
        say(
            f"p3s: {'; '.join([*result.failed, ''])}{len(able)} of at least {needed} values have "
            f"{MIN_COUNTS} process counts; add another value: {another_value(study)}"
        )
        return 1
    if result.failed:
        say("p3s: " + "; ".join(result.failed))
    say(f"next: {next_command}")
    return 3 if result.failed else 0


def small_runs(request: TraceRequest, up_to: int, json_: bool) -> int:
    """Record runs of a smaller input, and print what they show."""
    from p3s.pipeline.tracing.runs import reasons
    from p3s.pipeline.tracing.values import trace_smaller
    from p3s.report.small_runs import render

    with progress(0) as bar:
        small = trace_smaller(request, up_to, bar)
    study, matched, runs = small.study, small.matched, small.done
    next_command = f"p3s model {quote_word(study.root)}"
    if json_:
        emit(
            "far-runs",
            study=str(study.root),
            workload=matched.name,
            **to_data(runs),
            minimum=to_data(matched.minimum),
            places=matched.places,
            matched=to_data(matched),
            next=next_command,
        )
    else:
        lines = render(matched, small.work_unit)
        out("\n".join([text.small_runs_table(runs.counts), "", *lines]))
    if runs.failed:
        say(f"p3s: {reasons(runs.failed)}; kept: {', '.join(str(row.np) for row in runs.counts)}")
    say(f"next: {next_command}")
    return 3 if runs.failed or runs.problems else 0
