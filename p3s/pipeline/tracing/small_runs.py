"""Trace a program with a smaller input: its runs show what few processes of the whole cannot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from p3s.base.errors import P3SError, RunFailed, UsageError
from p3s.base.host.cores import cores
from p3s.base.progress import Progress
from p3s.base.records import work_of
from p3s.base.study import Study
from p3s.costs.small_runs.cells import spent
from p3s.costs.small_runs.places import Same, as_words
from p3s.costs.small_runs.record import check_command, commit, name_for, same_places, save, staged
from p3s.costs.small_runs.summary import FarFile, write
from p3s.costs.small_runs.walk import PhaseCost, costs, counts_upward, refuse, stop
from p3s.model.grid import admissible
from p3s.model.stage import check_dims, keep_dims, load, read
from p3s.pipeline.stages import is_stale
from p3s.pipeline.tracing.counts import Asked
from p3s.pipeline.tracing.results import Failure, Traced, reasons
from p3s.pipeline.tracing.runs import TraceRequest, trace_counts
from p3s.predict.commands import Commands, counts_to_add, most_repeats
from p3s.signature.store import load_table
from p3s.signature.tables import PointTable
from p3s.signature_runner.recording import Recording
from p3s.signature_runner.work_unit import of_study


@dataclass(frozen=True)
class SmallRuns:
    """Runs with a smaller input that were put into far/NAME of a study.

    costs: per unit of work, of the relevant phases over the counts; matched: far.json, None where
    there is no model to match with; places: how call sites were matched.
    """

    study: Study
    name: str
    done: Traced
    costs: Sequence[PhaseCost]
    matched: FarFile | None
    places: str


@dataclass
class _Far:
    """What is recorded: tables and times of the study and of the smaller workload."""

    study: Study
    own: list[PointTable]
    own_times: dict[int, Mapping[tuple[str, str], float] | None]
    tables: list[PointTable] = field(default_factory=list)
    times: dict[int, Mapping[tuple[str, str], float] | None] = field(default_factory=dict)
    same: dict[int, Same] = field(default_factory=dict)

    def add(self, other: Study, np: int, check: bool = True) -> None:
        """Take in one count of the smaller workload; P3SError where it is no far point."""
        table = load_table(other.root, np)
        same = self.same.get(np) or same_places(self.study, other, self.own, table)
        found = same.renamed(table, self.own)
        if check:
            refuse(self.own, found)
        self.same[np] = same
        self.tables = [*(t for t in self.tables if t.np != np), found]
        self.times[np] = _times(other, found, same)

    def costs(self) -> list[PhaseCost]:
        """Return the cost per unit of every relevant phase over the counts so far."""
        return costs(self.own, self.tables, self.times, self.own_times) if self.tables else []


def _times(
    study: Study, t: PointTable, same: Same | None = None
) -> Mapping[tuple[str, str], float] | None:
    found = spent(study, t, t.nodes, same)
    return None if found is None else found.of_place(t.nodes)


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
    check_dims(study, request.extents, [])
    keep_dims(study, request.extents)
    recording = _same_unit(study, request.recording, counts)
    far = _own(study)
    wanted = list(counts) or _walk(study, far, up_to)
    repeats = request.repeats or most_repeats(study)
    name = name_for(study, words)
    bar.say(f"recording into {study.far_dir(name)}")
    bar.expect(len(wanted) * repeats)
    with staged(study, name, words) as new:
        here = replace(
            request, root=new.root, asked=Asked(tuple(wanted)), repeats=repeats, recording=recording
        )
        done = _record(new, far, here, not counts, bar)
        if not done.counts:
            raise P3SError(f"--far: {reasons(done.failed)}; nothing was added to {study.root}")
        other = commit(study, name, new, [row.np for row in done.counts])
        save(other, [far.same[row.np] for row in done.counts])
    return SmallRuns(
        study, name, done, _all_costs(far, other), _matched(study, bar), as_words(far.same.values())
    )


def _same_unit(study: Study, asked: Recording, counts: Sequence[int]) -> Recording:
    """Return how the runs are recorded: work in the unit of the study; UsageError for another."""
    own = of_study(study).work
    if asked.work not in ("auto", own):
        there = " and ".join(work_of(run for run in study.runs() if run.info)) or own
        raise UsageError(
            f"--work {asked.work}: the study's work was measured in {there}, and work "
            "can only be compared in one unit; leave out --work"
        )
    # wall time says nothing where processes share cores; both are time
    if own == "wall" and any(n > cores() for n in counts or [cores() + 1]):
        own = "cpu"
    return replace(asked, work=own)


def _own(study: Study) -> _Far:
    counts = study.signature_counts()
    if not counts:
        raise P3SError(
            f"{study.root}: holds no characterized run to compare a smaller workload "
            f"with; first run {Commands(study).trace(counts_to_add(study, 3))}"
        )
    own = [load_table(study.root, np) for np in counts]
    return _Far(study, own, {t.np: _times(study, t) for t in own})


def _walk(study: Study, far: _Far, up_to: int) -> list[int]:
    """Return the counts to try, upwards from the study's smallest."""
    traced = [t.np for t in far.own]
    known = admissible.learn(traced, study.failed_counts())
    if study.model_path.exists():
        known = read(study.model_path).admissible
    found = counts_upward(known, traced, up_to or max(traced))
    if not found:
        raise UsageError(
            f"--up-to {up_to}: below the study's smallest count, {min(n for n in traced if n > 1)}"
        )
    return found


def _record(new: Study, far: _Far, request: TraceRequest, walking: bool, bar: Progress) -> Traced:
    """Run the counts one by one, each checked at once: a wrong workload is not run at all."""
    done = Traced()
    for np in request.asked.counts:
        try:
            one = trace_counts(new, request, [np], bar, kept=False)
        except RunFailed as err:  # it was not even started
            if not done.counts:  # no other count will do better
                raise P3SError(err.reason) from err
            one = Traced(failed=[Failure(np, None, err.code, err.reason)])
        if one.counts:
            far.add(new, np)
        done.add(one)
        if one.counts and walking and stop(far.costs()):
            break
    return done


def _all_costs(far: _Far, other: Study) -> list[PhaseCost]:
    """Return the costs over all counts of this workload, those of earlier commands too."""
    for np in other.signature_counts():
        far.add(other, np, check=False)
    return far.costs()


def _matched(study: Study, bar: Progress) -> FarFile | None:
    """Write far.json when there is a model to match with; return it.

    The runs are in place by now: what is wrong with the model is said, and is no failure.
    """

    signatures = [study.signature_path(np) for np in study.signature_counts()]
    if is_stale(study.model_path, signatures):
        return None
    try:
        return write(study, load(study.root))
    except P3SError as err:
        bar.say(f"note: {err}")
        return None
