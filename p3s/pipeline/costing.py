"""The cost of computation from a study's own runs and other inputs: compute.json.

Runs of a smaller workload are a study of their own inside a study.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from p3s.base.artefacts import reason, sync_directory, write_json, writing
from p3s.base.errors import P3SError, UsageError
from p3s.base.extents import names_count
from p3s.base.host.command import parse
from p3s.base.records import commit_run
from p3s.base.settings import traces_of
from p3s.base.staging import discard, new_directory
from p3s.base.study import Study
from p3s.costs.fit import fit
from p3s.costs.gather import measured_at
from p3s.costs.points import OWN, Point
from p3s.costs.small_runs.cells import InputRuns, Reference
from p3s.costs.small_runs.match import OtherInput, match_all
from p3s.costs.small_runs.sites import names_in
from p3s.costs.types import COMPUTE, ComputeModel, NotUsed, TimedRun, own_cores
from p3s.model.types import Model
from p3s.pipeline.records import model_of
from p3s.signature.signature import characterize
from p3s.signature.store import load_phases, load_table
from p3s.signature.times import Times, load_times


def times_of(root: Path, counts: Sequence[int]) -> list[Times]:
    """Return the times of computation of a study, at those of some counts that have any."""
    return [found for n in counts if (found := load_times(root, n)) is not None]


def own_runs(study: Study) -> InputRuns:
    """Return the runs of a study's own input."""
    counts = study.signature_counts()
    times = {each.np: each for each in times_of(study.root, counts)}
    tables = [load_table(study.root, n) for n in counts]
    return InputRuns(OWN, (), tuple(counts), tables, times)


def other_inputs(study: Study, reference: Reference) -> list[OtherInput]:
    """Return what the runs of all other inputs of a study stand for.

    reference: the study's model with its own runs.
    """
    return match_all(reference, [runs_of(study, o, reference.own) for o in study.others()])


def runs_of(study: Study, other: Study, own: InputRuns) -> InputRuns:
    """Return the runs of another input, their call sites named as those of the study.

    own: the study's own runs.
    """
    inside = other.root.is_relative_to(study.root)
    name = str(other.root.relative_to(study.root) if inside else other.root)
    commands = other.manifest()["commands"]
    command = tuple(commands[-1]) if commands else ()
    found = InputRuns(name, command, tuple(other.signature_counts()))
    tables, times, how = [], {}, [found.how]
    try:
        for n in found.counts:
            table, spent = load_table(other.root, n), load_times(other.root, n)
            names = names_in(own.tables, table)
            tables.append(names.table(table))
            how.append(names.how)
            if spent is not None:
                times[n] = names.times(spent)
    except P3SError as err:
        return replace(found, problem=str(err))
    return replace(found, tables=tables, times=times, how=how[-1])


# ---- whether it is another build
def rebuilt(command: Sequence[str], since_ns: int | None) -> bool:
    """Tell whether a program that a command names was written after a time (of st_mtime_ns)."""
    if since_ns is None:
        return False
    return any(path.stat().st_mtime_ns > since_ns for path in programs(command))


def first_run_ns(study: Study) -> int | None:
    """Return when the first run of a study was made, None where there is none."""
    found = []
    for run in study.runs():
        try:
            found.append((run.path / "run.json").stat().st_mtime_ns)
        except OSError:
            continue
    return min(found, default=None)


def programs(command: Sequence[str]) -> set[Path]:
    """Return the programs and scripts that the words of a command name."""
    return {path for word in command for path in _program(word)}


def _program(word: str) -> Iterator[Path]:
    if not word or word.startswith("-") or "\0" in word or names_count([word]):
        return
    found = shutil.which(word) or (word if word.endswith(".py") and os.path.isfile(word) else None)
    if found:
        yield Path(found).resolve()


def check_smaller(study: Study, command: Sequence[str]) -> None:
    """Raise UsageError where a command is that of the study's own workload.

    A program that was built again since may have another input compiled in.
    """

    def program(words: Sequence[str]) -> tuple[str, ...] | None:
        try:
            return parse(list(words), 2, trusted=False).program
        except P3SError:  # the study's own may be gone by now
            return None

    words = list(command)
    if rebuilt(words, first_run_ns(study)):
        return
    for own in study.manifest()["commands"]:
        if own == words or program(own) == program(words) is not None:
            shown = " ".join(program(words) or words)
            raise UsageError(
                f"{shown}: this is the study's own workload; give a "
                "smaller input of the same program"
            )


def name_for(study: Study, command: Sequence[str]) -> str:
    """Return the name of the study for a command: that of its earlier runs, else the next free.

    A program that was built again since these runs may have another input: it gets its own.
    """
    words = list(command)
    taken = {path.name for path in study.far_dir("x").parent.glob("*")}
    for name in sorted(taken):
        path = study.far_dir(name)
        if (
            not name.startswith(".")
            and (path / "study.json").is_file()
            and words in Study(path).manifest()["commands"]
            and not rebuilt(words, first_run_ns(Study(path)))
        ):
            return name
    return next(f"w{k}" for k in range(1, len(taken) + 2) if f"w{k}" not in taken)


@contextmanager
def stage_study(study: Study, name: str, command: Sequence[str]) -> Iterator[Study]:
    """Give a study beside the one wanted; it is gone when this ends, unless :func:`commit` moved
    it: a run that is refused leaves nothing."""
    folder = study.far_dir(name).parent
    made = not folder.exists()
    with writing(study.far_dir(name)):
        folder.mkdir(parents=True, exist_ok=True)
        path = new_directory(study.far_dir(name))
    try:
        yield Study.create(path, command)
    finally:
        discard(path)
        if made:
            with suppress(OSError):
                folder.rmdir()


def commit(study: Study, name: str, new: Study, counts: Sequence[int]) -> Study:
    """Move the runs of ``counts`` to their place, far/NAME; earlier runs there stay."""
    target = study.far_dir(name)
    if not target.exists():
        try:
            os.rename(new.root, target)
            sync_directory(target.parent)
        except OSError as err:
            raise P3SError(f"{target}: cannot be put in place: {reason(err)}") from err
        return Study(target)
    old = Study.open(target)
    for np in counts:
        for run in new.runs(np):
            commit_run(run.path, old.runs_dir(np, run.rep))
        for run in new.timed_runs(np):
            into = old.timed_dir(np, run.rep)
            into.parent.mkdir(exist_ok=True)
            commit_run(run.path, into)
        characterize(traces_of(old), np)  # with the repeats that were there before
    old.update()
    load_phases(traces_of(old))
    return old


# ---- the cost of computation --------------------------------------------------------------------
def build_compute(root: Path, points: Sequence[Point] = ()) -> ComputeModel | None:
    """Fit the cost of computation from all times of a study and write compute.json; return it.

    points: of runs that are in no study inside this one; x is work per iteration, n the count of
    this study's input. None, and nothing is there, where there are no times at any count of its
    model and no points."""
    study = Study.open(Path(root))
    model = model_of(study)
    times = times_of(study.root, model.counts)
    if not times and not points:
        study.compute_path.unlink(missing_ok=True)
        return None
    shared = {
        str(record.path.relative_to(study.root)): bool(record.info.get("oversubscribed", True))
        for record in (*study.runs(), *study.timed_runs())
    }
    runs = tuple(
        TimedRun(t.np, run.dir, run.disturbed, not shared.get(run.dir, True))
        for t in times
        for run in t.runs
    )
    quiet = own_cores(runs)
    far, refused = other_points(study, model)
    found = fit(model, [measured_at(model, t, t.np in quiet) for t in times], [*far, *points])
    out = replace(
        found, runs=runs, refused=tuple(refused), unmatched={str(t.np): t.unmatched for t in times}
    )
    made_of = [study.model_path, *(study.times_path(t.np) for t in times)]
    write_json(study.compute_path, COMPUTE.data(out), made_of)
    return out


def other_points(study: Study, model: Model) -> tuple[list[Point], list[NotUsed]]:
    """Return the points of the other inputs' runs, and which of them could not be used."""
    if not study.others():
        return [], []
    points: list[Point] = []
    refused = []
    for one in other_inputs(study, Reference(model, own_runs(study))):
        if one.error:
            refused.append(NotUsed(one.name, one.error))
        points += [p for g in one.rows for p in g.points]
    return points, refused
