"""Run the signature of a program: each phase only often enough for its time to be known."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from p3s.base.artefacts import read_json, write_json
from p3s.base.errors import P3SError, UsageError
from p3s.base.host.cores import cores
from p3s.base.progress import Progress
from p3s.base.records import RUN_SCHEMA, Traces
from p3s.base.settings import traces_of
from p3s.base.text import processes, quoted
from p3s.capture import read_run
from p3s.capture.recording_plan import WORK, Enough
from p3s.model.evaluate import model_grid, phase_weight
from p3s.model.stage import check_dims
from p3s.model.types import Model
from p3s.pipeline.records import existing, keep_dims, known_of, model_of, opened
from p3s.pipeline.tracing.runs import TraceRequest
from p3s.signature.phase_file import Phases
from p3s.signature.plans import Weights, calls_of, plan_of, too_rare, traced_weights
from p3s.signature.sampled import SAMPLED, predict, saved_by
from p3s.signature.store import load_phases
from p3s.signature_runner.recording import Recording
from p3s.signature_runner.traced_run import Launch, trace_once
from p3s.signature_runner.work_unit import in_unit_of


def run_signature(
    request: TraceRequest, settings: Enough, bar: Progress
) -> tuple[Path, list[dict[str, Any]]]:
    """Run the signature of a study at each count; return its directory and the times that follow.

    Raises UsageError when the study is of another command or unit of work, P3SError when it cannot
    be run.
    """
    root, command, asked = request.root, request.command, request.recording
    counts, extents = request.asked.counts, request.extents
    check_dims(known_of(existing(root)), extents, counts)
    study = opened(root)
    if list(command) not in study.manifest()["commands"]:
        raise UsageError(
            f"{root}: holds runs of another command; run its signature with the same words:"
            f" -- {' '.join(study.command())}"
        )
    keep_dims(study, extents)
    traces = traces_of(study)
    phases, recording = load_phases(traces), in_unit_of(traces, asked)
    model = model_of(study) if asked.stop and study.model_path.exists() else None
    prepared = []
    for np in counts:  # everything that can be refused is, before anything runs
        # Where ranks take turns on a core, the time inside calls tells nothing about the program.
        work_alone = np > cores() or recording.work == "instructions"
        plan = plan_of(phases, np, replace(settings, measure=WORK) if work_alone else settings)
        weights = weights_at(root, model, phases, np) if asked.stop else None
        prepared.append((np, plan, weights))
        rare = too_rare(phases, np, plan)
        if rare and asked.stop:
            bar.say(
                f"np={np}: {', '.join(rare[:3])} {'is' if len(rare) == 1 else 'are'} not begun"
                f" more than {settings.turns} times in a run: the program will not be stopped"
            )
    results = []
    launch = Launch(command, request.timeout_s, known_of(study).extents)
    bar.expect(len(counts))
    for np, plan, weights in prepared:
        bar.start(f"np={np}: running the signature")
        target = study.sampled_dir(np)
        how = replace(recording, plan=plan)
        found = _one(traces, launch, np, target, how, phases, weights, bar)
        write_json(study.sampled_path(np), found)
        results.append(found)
        bar.done(f"np={np}: {results[-1]['saved']['wall_s']:.1f} s")
    return root, results


def _one(
    traces: Traces,
    launch: Launch,
    np: int,
    target: Path,
    recording: Recording,
    phases: Phases,
    weights: Weights | None,
    bar: Progress,
) -> dict[str, Any]:
    problems = trace_once(traces, launch, np, target, recording, bar).problems
    if problems:
        raise P3SError(f"np={np}: {problems[0]}; run the signature again")
    assert recording.plan is not None
    info = read_json(target / "run.json", RUN_SCHEMA)
    ended = weights if info["status"] == "stopped" else None
    full = [(run.path, run.info.get("wall_s")) for run in traces.complete(np)]
    saved = saved_by(target, info["wall_s"], full)
    return SAMPLED.data(predict(read_run(target), recording.plan, phases, ended, saved))


def weights_at(root: Path, model: Model | None, phases: Phases, np: int) -> Weights:
    """Return the weights of a whole run: as traced at that count, else by the model of a study.

    Raises P3SError when neither can tell.
    """
    traced = traced_weights(phases, np)
    if traced is not None:
        return traced
    if model is None:
        raise P3SError(
            f"{root}: the weights at {processes(np)} are not known: there is neither a"
            f" signature of that count nor a model; run `p3s model {quoted(root)}` first, or"
            " leave --stop out"
        )
    most = _of_model(model, phases, np)
    return Weights("the model", most, most)


def _of_model(model: Model, phases: Phases, np: int) -> tuple[float, ...]:
    """Return the model's weight of each phase, found by the calls both have in it."""
    grid = model_grid(model, np)
    of_model = {(item.site, item.op): int(item.phase) for item in model.items}
    weights = {int(p.phase): float(phase_weight(p, grid)) for p in model.phases}
    votes: dict[int, Counter[int]] = {}
    for call in calls_of(phases):
        place = of_model.get((call.site, call.op))
        if place is not None:
            votes.setdefault(call.phase, Counter())[place] += 1
    found = []
    for phase in range(len(phases.phases)):
        mine = votes.get(phase)
        found.append(weights[max(sorted(mine), key=lambda k: mine[k])] if mine else 0.0)
    found[0] = 1.0  # the program itself
    return tuple(found)
