"""Trace a program with other inputs, each in a study inside the study.

Every value of its parameters, or a smaller input, whose runs show what few processes of the whole
cannot.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

from p3s.base.errors import P3SError, RunFailure, UsageError
from p3s.base.host.cores import cores
from p3s.base.progress import Progress
from p3s.base.serialise import to_data
from p3s.base.settings import (
    MOST_SETTINGS,
    THREADS,
    check_command,
    fill_parameters,
    parameters,
    parse_params,
    setting_name,
    settings_in,
    settings_of,
    traces_of,
    value_study,
    value_text,
)
from p3s.base.study import Study
from p3s.base.text import differing
from p3s.costs.small_runs.cells import Reference, counts_upward, stop
from p3s.costs.small_runs.match import OtherInput
from p3s.model.holdout import build_model
from p3s.model.stage import ProgramFacts, check_dims
from p3s.pipeline.commands import Commands, counts_to_add, most_repeats
from p3s.pipeline.costing import (
    check_smaller,
    commit,
    name_for,
    other_inputs,
    own_runs,
    runs_of,
    stage_study,
)
from p3s.pipeline.parameters import NamedProgress
from p3s.pipeline.records import keep_dims, known_of, model_of
from p3s.pipeline.stages import is_missing
from p3s.pipeline.tracing.runs import (
    CountRequest,
    Failure,
    TraceRequest,
    TraceResult,
    choose_counts,
    grids_of,
    reasons,
    trace_asked,
    trace_counts,
    warn,
)
from p3s.signature_runner.traced_run import check_template, program_of
from p3s.signature_runner.work_unit import in_unit_of


@dataclass(frozen=True)
class TracedValue:
    """What tracing one value did; ``root``: its study; characterized: counts with signatures."""

    name: str
    root: Path
    done: TraceResult
    characterized: Sequence[int]

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "name": self.name,
            "study": str(self.root),
            **to_data(self.done),
            "characterized": list(self.characterized),
        }


@dataclass(frozen=True)
class TracedValues:
    """What tracing all values did, and why some or some of their counts are missing."""

    study: Study
    values: Sequence[TracedValue]
    failed: Sequence[str]


def trace_values(request: TraceRequest, params: Sequence[str], bar: Progress) -> TracedValues:
    """Trace every combination of counts and values, each value in a study inside the study.

    Up to a maximum, the first value decides on the counts. Raises UsageError where a study would
    not be one of these values, and P3SError where no value can be traced.
    """
    words, root, asked = list(request.command), request.root, request.asked
    values = parse_params(params)
    check_template(words)
    check_command(words, list(values))
    settings = settings_of(values)
    program_of(fill_parameters(words, settings[0]), max(asked.counts, default=asked.top))
    made = not root.exists()
    study = _root(root, words, values)
    keep_dims(study, request.extents)
    grids = grids_of(known_of(study), words, request.extents)
    counts = choose_counts(asked, ProgramFacts(), grids, bar)
    warn(asked, counts, ProgramFacts(), grids, bar)
    bar.say(f"tracing into {study.root}")
    bar.expect(len(counts) * request.repeats * len(settings))
    rows: list[TracedValue] = []
    failed: list[str] = []
    try:
        for setting in settings:
            name = setting_name(setting)
            at = value_study(study, setting)
            new = not at.root.exists()
            command = fill_parameters(words, setting)
            try:
                derived = at.manifest_path.exists() and at.manifest().get("derived")
                if derived and not at.runs():  # its derived model stays till it is traced
                    bar.say(f"{at.root.name}: was derived from other values, is traced now")
                at = Study.create(at.root, command)
                threads = int(setting.get(THREADS, 0))
                here = replace(
                    request,
                    command=tuple(command),
                    recording=replace(request.recording, threads=threads),
                )

                some = partial(
                    trace_counts, at, here, bar=NamedProgress(bar, name, notes=True), made=new
                )
                done = trace_asked(asked, counts, partial(known_of, at), grids, some, bar)
            except P3SError as err:
                if isinstance(err, UsageError) or not rows:
                    raise
                failed.append(f"{name}: {err}")
                continue
            if asked.top:
                counts = [row.np for row in done.counts]
                asked = CountRequest(tuple(counts))
            if done.failed:
                failed.append(f"{name}: {reasons(done.failed)}")
            failed += [f"{name}: {problem}" for problem in done.problems]
            rows.append(TracedValue(name, at.root, done, at.signature_counts()))
    finally:
        _tidy(study, made)
    _remember(study)
    return TracedValues(study, rows, failed)


def _root(root: Path, words: list[str], values: Mapping[str, Sequence[Fraction]]) -> Study:
    """Return the study with parameters, made or as it is; nothing in it is changed yet."""
    existing = Study.find(root)
    if existing is not None:
        names, why = parameters(existing), ""
        if not names and existing.runs():
            why = "holds runs without parameters"
        elif not names and existing.manifest()["commands"]:
            why = "is a study without parameters"
        elif names and names != list(values):
            why = f"its parameters are {', '.join(names)}, not {', '.join(values)}; give these, or"
        elif names and existing.command() != words:
            there, here = differing(existing.command(), words)
            why = f"holds runs of another command ({there}, not {here})"
        if why:
            why += "" if why.endswith("or") else ";"
            raise UsageError(f"{root}: {why} choose another directory with -o")
        settings = {setting_name(s) for s, _ in settings_in(existing)}
        settings |= {setting_name(s) for s in settings_of(values)}
        if len(settings) > MOST_SETTINGS:
            raise UsageError(
                f"{root}: would hold {len(settings)} values, at most {MOST_SETTINGS}; "
                "use another study"
            )
        if names:
            return existing
    study = Study.create(root, words)
    study.update(parameters={name: [] for name in values})
    return study


def _remember(study: Study) -> None:
    """Write the values that have runs into study.json."""
    found = settings_in(study)
    study.update(
        parameters={
            name: [value_text(v) for v in sorted({s[name] for s, _ in found})]
            for name in parameters(study)
        }
    )


def _tidy(study: Study, made: bool) -> None:
    """Remove a study that was made for nothing."""
    at = study.root / "at"
    if not made or (at.is_dir() and any(at.iterdir())):
        return
    shutil.rmtree(at, ignore_errors=True)
    study.remove_if_empty()


@dataclass(frozen=True)
class SmallRuns:
    """Runs with a smaller input that were put into far/NAME of a study, and what they stand for.

    work_unit: of the study.
    """

    study: Study
    done: TraceResult
    matched: OtherInput
    work_unit: str


def trace_smaller(request: TraceRequest, up_to: int, bar: Progress) -> SmallRuns:
    """Record runs of a smaller input into far/NAME of the study that is asked for.

    Nothing is kept of one that is no smaller input of the same program. Without counts, they are
    walked upwards, to ``up_to`` or the study's largest; with 0 repeats there are as many as the
    study has, because the least of several times is less than one time. Raises UsageError and
    P3SError, before anything is kept.
    """
    if up_to < 0 or up_to == 1:
        raise UsageError(f"--up-to {up_to}: give a count of two or more")
    study = Study.open(request.root)
    words, counts = request.command, request.asked.counts
    if 1 in counts:
        raise UsageError(
            "-n 1: one process has nobody to communicate with, so there are no phases "
            "to compare; give counts of two or more"
        )
    check_smaller(study, words)
    check_dims(known_of(study), request.extents, [])
    keep_dims(study, request.extents)
    recording = in_unit_of(traces_of(study), request.recording)
    # wall time says nothing where processes share cores; both are time
    if recording.work == "wall" and any(n > cores() for n in counts or [cores() + 1]):
        recording = replace(recording, work="cpu")
    reference = _reference(study)
    wanted = list(counts) or _walk(study, reference, up_to)
    repeats = request.repeats or most_repeats(traces_of(study))
    name = name_for(study, words)
    bar.say(f"recording into {study.far_dir(name)}")
    bar.expect(len(wanted) * repeats)
    with stage_study(study, name, words) as new:
        here = replace(
            request,
            root=new.root,
            asked=CountRequest(tuple(wanted)),
            repeats=repeats,
            recording=recording,
        )
        done = _record(study, new, reference, here, not counts, bar)
        if not done.counts:
            raise P3SError(f"--far: {reasons(done.failed)}; nothing was added to {study.root}")
        commit(study, name, new, [row.np for row in done.counts])
    every = {one.name: one for one in other_inputs(study, reference)}
    return SmallRuns(study, done, every[f"far/{name}"], reference.model.work_unit)


def _reference(study: Study) -> Reference:
    """Return the study's own runs and its model; where it has none of them, one that is not kept.

    A run that is refused leaves the study as it is.
    """
    own = own_runs(study)
    if not own.counts:
        raise P3SError(
            f"{study.root}: holds no characterized run to compare a smaller workload "
            f"with; first run {Commands(study).trace(counts_to_add(study, 3))}"
        )
    if not is_missing(study, "model"):
        return Reference(model_of(study), own)
    return Reference(build_model(own.tables, holdout=False, known=known_of(study).grid), own)


def _walk(study: Study, reference: Reference, up_to: int) -> list[int]:
    """Return the counts to try, upwards from the study's smallest."""
    traced = list(reference.own.counts)
    found = counts_upward(reference.model.admissible, traced, up_to or max(traced))
    if not found:
        raise UsageError(
            f"--up-to {up_to}: below the study's smallest count, {min(n for n in traced if n > 1)}"
        )
    return found


def _record(
    study: Study,
    new: Study,
    reference: Reference,
    request: TraceRequest,
    walking: bool,
    bar: Progress,
) -> TraceResult:
    """Run the counts one by one, each checked at once: a wrong workload is not run at all."""
    done = TraceResult()
    for np in request.asked.counts:
        try:
            one = trace_counts(new, request, [np], bar, kept=False)
        except RunFailure as err:  # it was not even started
            if not done.counts:  # no other count will do better
                raise P3SError(err.reason) from err
            one = TraceResult(failed=[Failure(np, None, err.code, err.reason)])
        done.add(one)
        if not one.counts:
            continue
        runs = runs_of(study, new, reference.own)
        if runs.problem:
            raise P3SError(runs.problem)
        reference.refuse(next(t for t in runs.tables if t.np == np))
        if walking and stop(reference.costs(runs)):
            break
    return done
