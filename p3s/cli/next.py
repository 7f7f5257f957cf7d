"""``p3s next``: which process counts to trace next, which smaller workload to run, and why."""

from __future__ import annotations

from pathlib import Path

from p3s.base.command_lines import arguments, elsewhere, render_from_here
from p3s.base.settings import traces_of
from p3s.base.text import join_words
from p3s.cli.common import emit, out, quote_word, say
from p3s.cli.progress import progress
from p3s.cli.values import one_count
from p3s.pipeline.commands import Commands, count_to_validate


def next_(study_dir: Path, target: str, json_: bool) -> int:
    """Name the runs that would decide most about the model: counts, and smaller workloads."""
    from p3s.base.serialise import to_data
    from p3s.costs.small_runs.lookup import default_target, propose
    from p3s.costs.types import load as load_compute
    from p3s.costs.types import measured_range
    from p3s.pipeline import commands
    from p3s.pipeline.records import load_study, model_of
    from p3s.pipeline.stages import ensure_model

    wanted_n = one_count(target, "give one count, the largest to be predicted")
    study = load_study(study_dir)
    with progress(2) as bar, bar.slow("looking for the counts that tell most"):
        ensure_model(study, bar)
        bar.start("looking for the counts that tell most")
        model = model_of(study)
        by_work, by_count = measured_range(load_compute(study.root))
        far = propose(model, wanted_n or default_target(model), by_work, by_count)
    proposed, traces = model.next, traces_of(study)
    counts = [each.n for each in proposed]
    words = commands.tracing(traces, model, counts) if proposed else []
    again = sorted(set(commands.units(traces, model, counts)[0]) - set(counts)) if proposed else []
    shows = far["phases"] and not far["unmatched"]
    far["command"] = commands.build_smaller_run(traces, far["counts"]) if shows else []
    far["arguments"], directory = arguments(traces), elsewhere(traces)
    if json_:
        emit(
            "next",
            study=str(study.root),
            counts=[{**to_data(each), "why": each.why} for each in proposed],
            command=words,
            directory=None if directory is None else str(directory),
            far=far,
        )
        return 0
    from p3s.report.next import ARGUMENTS, render, render_far

    larger = count_to_validate(study, [])
    validate = Commands(study).validate(larger) if larger else ""
    out(render(model, render_from_here(traces, words), validate))
    if again:
        say(
            "note: with more processes than cores work is CPU time, and a study holds one unit: "
            f"{join_words(again)} are traced again"
        )
    if wanted_n or far["phases"] or far["above"]:  # that none is needed is said when asked
        line = render_from_here(traces, [*far["command"], ARGUMENTS]) if far["command"] else ""
        out("\n" + render_far(far, str(model.work_unit), line))
    if proposed or far["command"]:
        say(f"then: p3s model {quote_word(study.root)}")
    return 0
