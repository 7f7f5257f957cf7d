"""The cost of computation from a study's own runs and other inputs: compute.json, far.json.

Runs of a smaller workload are a study of their own inside a study. Places of another build are
matched to those of the study, and remembered: builds go.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
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
from p3s.capture.sites import resolve_sites
from p3s.costs.fit import fit
from p3s.costs.gather import measured_at
from p3s.costs.points import OWN, Point
from p3s.costs.small_runs.cells import InputRuns, Reference
from p3s.costs.small_runs.match import FAR, FarFile, far_file, match_all
from p3s.costs.small_runs.places import SITES, SiteMap, as_words, correspond, matches_study
from p3s.costs.types import COMPUTE, ComputeModel, NotUsed, TimedRun, own_cores
from p3s.model.types import Model
from p3s.pipeline.records import model_of
from p3s.signature.signature import characterize
from p3s.signature.store import load_phases, load_table
from p3s.signature.tables import PointTable
from p3s.signature.times import Times, load_times


def sites_path(other: Study) -> Path:
    """Return the file that says which places of another build are which of the study."""
    return other.root / "sites.json"


def times_of(root: Path, counts: Sequence[int]) -> list[Times]:
    """Return the times of computation of a study, at those of some counts that have any."""
    return [found for n in counts if (found := load_times(root, n)) is not None]


def own_runs(study: Study) -> InputRuns:
    """Return the runs of a study's own input."""
    counts = study.signature_counts()
    times = {each.np: each for each in times_of(study.root, counts)}
    tables = [load_table(study.root, n) for n in counts]
    return InputRuns(OWN, (), tuple(counts), tables, times)


def other_inputs(study: Study, own: InputRuns) -> list[InputRuns]:
    """Return the runs of a study's other inputs; own: its own."""
    out = []
    for other in study.others():
        try:
            out.append(runs_of(study, other, own)[0])
        except P3SError as err:
            out.append(replace(_list_input_runs(study, other), problem=str(err)))
    return out


def runs_of(
    study: Study, other: Study, own: InputRuns, known: Mapping[int, SiteMap] | None = None
) -> tuple[InputRuns, dict[int, SiteMap]]:
    """Return the runs of another input, their call sites named as those of the study, and how.

    own: the study's own runs; known: which sites are which, by count, as far as that was found.
    """
    named = _list_input_runs(study, other)
    tables, times, found = [], {}, {}
    for n in named.counts:
        table, spent = load_table(other.root, n), load_times(other.root, n)
        same = (known or {}).get(n) or same_places(study, other, own.tables, table)
        tables.append(same.renamed(table, own.tables))
        found[n] = same
        if spent is not None:
            times[n] = same.renamed_times(spent, own.tables)
    return replace(named, tables=tables, times=times, how=as_words(found.values())), found


def _list_input_runs(study: Study, other: Study) -> InputRuns:
    inside = other.root.is_relative_to(study.root)
    name = str(other.root.relative_to(study.root) if inside else other.root)
    commands = other.manifest()["commands"]
    return InputRuns(name, tuple(commands[-1]) if commands else (), tuple(other.signature_counts()))


def same_places(
    study: Study, other: Study, own: Sequence[PointTable], table: PointTable
) -> SiteMap:
    """Return which places of a run are which of the study; by call site where that is so, or
    where nothing better is known."""
    if matches_study(own, table):
        return SiteMap()
    kept = _load(other, own)
    if kept is not None and matches_study(own, kept.renamed(table, own)):
        return kept
    if not _another_build(study, other):
        return SiteMap()
    return _correspond(study, other, own, table) or SiteMap()


def save(other: Study, found: Sequence[SiteMap]) -> None:
    """Remember how places were matched: programs are built again, and old builds are gone."""
    made = [same for same in found if same.sites]
    if not made:
        return
    before = _load(other)
    sites = dict(before.sites) if before is not None else {}
    for same in made:
        sites.update(same.sites)
    write_json(sites_path(other), SITES.data(SiteMap(made[-1].how, dict(sorted(sites.items())))))


def _load(other: Study, own: Sequence[PointTable] | None = None) -> SiteMap | None:
    """Return what is remembered; None where that is nothing, or not of the study's places."""
    path = sites_path(other)
    if not path.exists():
        return None
    try:
        found = SITES.read(path)
    except P3SError:  # it is found again
        return None
    if own is not None and not set(found.sites.values()) <= {
        name for t in own for site, _ in t.nodes for name in (site, site.partition("#")[0])
    }:
        return None
    return found


def _correspond(
    study: Study, other: Study, own: Sequence[PointTable], table: PointTable
) -> SiteMap | None:
    frames = {site: frames for t in own for site, frames in t.sites.items()}
    mine, _ = resolve_sites(traces_of(study), frames)
    theirs, _ = resolve_sites(traces_of(other), table.sites)
    return correspond(own, table, mine, theirs)


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


def _another_build(study: Study, other: Study) -> bool:
    """Tell whether the other runs are of a program that is another file, or was written anew."""
    mine: set[Path] = set()
    for words in _commands(study.manifest()):
        mine |= programs(words)
    return any(
        programs(words) - mine or rebuilt(words, first_run_ns(study))
        for words in _commands(other.manifest())
    )


def _commands(manifest: Mapping[str, object]) -> list[list[str]]:
    found = manifest["commands"]
    return found if isinstance(found, list) else []


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
    reference = reference_of(study, model)
    points: list[Point] = []
    refused = []
    for name, found in match_all(reference, other_inputs(study, reference.own)).items():
        if isinstance(found, P3SError):
            refused.append(NotUsed(name, str(found)))
        else:
            points += [p for groups in found.values() for g in groups for p in g.points]
    return points, refused


def reference_of(study: Study, model: Model) -> Reference:
    """Return a model of a study with the study's own runs."""
    return Reference(model, own_runs(study))


def write_far(study: Study, reference: Reference, keep: bool = True) -> FarFile:
    """Write far.json of a study, return it: what all its other inputs were matched to.

    keep: else nothing is written, as where the study has no model.
    """
    out = far_file(reference, other_inputs(study, reference.own))
    if keep:
        write_json(study.root / "far.json", FAR.data(out))
    return out
