"""Trace a program with a smaller input: its runs show what few processes of the whole cannot."""

from __future__ import annotations

from dataclasses import dataclass, replace

from p3s.base.errors import P3SError, RunFailure, UsageError
from p3s.base.host.cores import cores
from p3s.base.progress import Progress
from p3s.base.settings import traces_of
from p3s.base.study import Study
from p3s.costs.small_runs.places import SiteMap
from p3s.costs.small_runs.summary import FarFile, FarWorkload
from p3s.costs.small_runs.walk import Reference, counts_upward, stop
from p3s.model.holdout import build_model
from p3s.model.stage import check_dims
from p3s.pipeline.commands import Commands, counts_to_add, most_repeats
from p3s.pipeline.costing import (
    check_command,
    commit,
    name_for,
    own_runs,
    runs_of,
    save,
    stage_study,
    write_far,
)
from p3s.pipeline.records import keep_dims, known_of, model_of
from p3s.pipeline.stages import is_missing
from p3s.pipeline.tracing.counts import CountRequest, Failure, TraceResult, reasons
from p3s.pipeline.tracing.runs import TraceRequest, trace_counts
from p3s.signature_runner.work_unit import in_unit_of


@dataclass(frozen=True)
class SmallRuns:
    """Runs with a smaller input that were put into far/NAME of a study; matched: of far.json."""

    study: Study
    name: str
    done: TraceResult
    matched: FarFile

    @property
    def workload(self) -> FarWorkload:
        """What these runs were matched to."""
        return next(one for one in self.matched.workloads if one.name == f"far/{self.name}")


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
    check_command(study, words)
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
        done, same = _record(study, new, reference, here, not counts, bar)
        if not done.counts:
            raise P3SError(f"--far: {reasons(done.failed)}; nothing was added to {study.root}")
        save(commit(study, name, new, [row.np for row in done.counts]), list(same.values()))
    matched = write_far(study, reference, keep=not is_missing(study, "model"))
    return SmallRuns(study, name, done, matched)


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
) -> tuple[TraceResult, dict[int, SiteMap]]:
    """Run the counts one by one, each checked at once: a wrong workload is not run at all.

    Returned are what was traced, and which call sites are which by count.
    """
    done = TraceResult()
    same: dict[int, SiteMap] = {}
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
        runs, same = runs_of(study, new, reference.own, same)
        reference.refuse(next(t for t in runs.tables if t.np == np))
        if walking and stop(reference.costs(runs)):
            break
    return done, same
