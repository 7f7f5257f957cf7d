"""``p3s characterize --far``: runs with a smaller workload show what few processes cannot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from p3s.base.errors import P3SError, UsageError
from p3s.base.study import Study
from p3s.base.text import one_line, table
from p3s.cli.common import Progress, emit_json, header, out, parse_counts, progress, quoted, say
from p3s.predict.commands import Commands, counts_to_add, most_repeats

if TYPE_CHECKING:
    from p3s.costs.small_runs.places import Same
    from p3s.costs.small_runs.summary import FarFile
    from p3s.costs.small_runs.walk import PhaseCost
    from p3s.pipeline.tracing.results import Traced, TracedCount
    from p3s.pipeline.tracing.runs import TraceRequest
    from p3s.signature.tables import PointTable
    from p3s.signature_runner.recording import Recording

FAR = typer.Option(False, "--far", help="The command is the same program with a smaller input.")
UP_TO = typer.Option(
    0,
    "--up-to",
    metavar="N",
    show_default=False,
    help="With --far and no -n: largest count [default: of the study].",
)


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
        from p3s.costs.small_runs.builds import same_places
        from p3s.costs.small_runs.check import refuse
        from p3s.signature.store import load_table

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
        from p3s.costs.small_runs.walk import costs

        return costs(self.own, self.tables, self.times, self.own_times) if self.tables else []


def _times(
    study: Study, t: PointTable, same: Same | None = None
) -> Mapping[tuple[str, str], float] | None:
    from p3s.costs.small_runs.times import spent

    found = spent(study, t, t.nodes, same)
    return None if found is None else found.of_place(t.nodes)


def far_runs(
    root: Path | None,
    words: Sequence[str],
    listed: str | None,
    up_to: int,
    repeats: int | None,
    timeout_s: float,
    asked: Recording,
    json_: bool,
    repeat: bool = True,
) -> int:
    """Record runs of a smaller workload into far/NAME of a study; nothing is kept of one that is
    no smaller workload of the same program.

    Without ``listed`` counts, they are walked upwards; without ``repeats`` there are as many as the
    study has, because the least of several times is less than one time.
    """
    from p3s.costs.small_runs.builds import save
    from p3s.costs.small_runs.places import as_words
    from p3s.costs.small_runs.record import check_command, commit, name_for, staged
    from p3s.pipeline.tracing.counts import Asked
    from p3s.pipeline.tracing.runs import TraceRequest
    from p3s.signature_runner.standard_input import own

    if up_to < 0 or up_to == 1:
        raise UsageError(f"--up-to {up_to}: give a count of two or more")
    counts = parse_counts(listed) if listed is not None else []
    if root is None:
        raise UsageError("--far: say with -o which study it is a smaller workload of")
    study = Study.open(root)
    if 1 in counts:
        raise UsageError(
            "-n 1: one process has nobody to communicate with, so there are no phases "
            "to compare; give counts of two or more"
        )
    check_command(study, words)
    recording = _same_unit(study, asked, counts)
    far = _own(study)
    wanted = list(counts) or _walk(study, far, up_to)
    repeats = repeats or most_repeats(study)
    name = name_for(study, words)
    say(f"recording into {study.far_dir(name)}")
    with staged(study, name, words) as new, progress(len(wanted) * repeats) as bar:
        request = TraceRequest(
            new.root,
            tuple(words),
            Asked(tuple(wanted)),
            repeats,
            timeout_s,
            recording,
            repeat_disturbed=repeat,
            stdin=own,
        )
        done = _record(new, far, request, not counts, bar)
        if not done.counts:
            from p3s.pipeline.tracing.results import reasons

            raise P3SError(f"--far: {reasons(done.failed)}; nothing was added to {study.root}")
        other = commit(study, name, new, [row.np for row in done.counts])
        save(other, [far.same[row.np] for row in done.counts])
    costs = _all_costs(far, other)
    matched = _matched(study)
    places = as_words(far.same.values())
    return _tell(study, name, done, costs, matched, places, json_)


def _same_unit(study: Study, asked: Recording, counts: Sequence[int]) -> Recording:
    """Return how the runs are recorded: work in the unit of the study; UsageError for another."""
    from p3s.base.host.cores import cores
    from p3s.base.records import work_of
    from p3s.signature_runner.work_unit import of_study

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
    from p3s.signature.store import load_table

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
    from p3s.costs.small_runs.walk import counts_upward
    from p3s.model.grid import admissible
    from p3s.model.stage import read

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
    from p3s.base.errors import RunFailed
    from p3s.costs.small_runs.walk import stop
    from p3s.pipeline.tracing.results import Failure, Traced
    from p3s.pipeline.tracing.runs import trace_counts

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


def _matched(study: Study) -> FarFile | None:
    """Write far.json when there is a model to match with; return it.

    The runs are in place by now: what is wrong with the model is said, and is no failure.
    """
    from p3s.costs.small_runs.summary import write
    from p3s.model.stage import load
    from p3s.pipeline.stages import is_stale

    signatures = [study.signature_path(np) for np in study.signature_counts()]
    if is_stale(study.model_path, signatures):
        return None
    try:
        return write(study, load(study.root))
    except P3SError as err:
        say(f"note: {err}")
        return None


def _tell(
    study: Study,
    name: str,
    done: Traced,
    costs: Sequence[PhaseCost],
    matched: FarFile | None,
    places: str,
    json_: bool,
) -> int:
    from p3s.base.serialise import to_data
    from p3s.costs.small_runs.places import HOW, SITE
    from p3s.costs.small_runs.summary import FAR as FAR_FILE
    from p3s.pipeline.tracing.results import reasons
    from p3s.report.small_runs import render, status_text

    next_command = f"p3s model {quoted(study.root)}"
    if json_:
        emit_json(
            {
                **header("far-runs"),
                "study": str(study.root),
                "workload": f"far/{name}",
                **done.to_json(),
                "minimum": to_data(costs),
                "places": places,
                "matched": None if matched is None else FAR_FILE.data(matched),
                "next": next_command,
            }
        )
    elif matched is not None:
        out("\n".join([_runs(done.counts), "", *render(matched, f"far/{name}")]))
    else:
        told = [f"{row.name}: {status_text(row)}" for row in costs]
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
