"""What a study holds, as values: opened, read and resolved here, handed on to what shows it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from p3s.base.errors import P3SError
from p3s.base.extensions import provided
from p3s.base.records import work_of
from p3s.base.settings import parameters, traces_of
from p3s.base.study import Study
from p3s.capture.callpath import Where
from p3s.capture.sites import resolve_sites
from p3s.model.stage import load
from p3s.model.types import Model
from p3s.pipeline.commands import Commands
from p3s.pipeline.tracing.counts import Known
from p3s.predict.estimates import Structure

if TYPE_CHECKING:
    from p3s.costs.types import ComputeModel

#: How Python's interface names what holds a study's files.
Directory = Study
Places = Mapping[str, Where]
T = TypeVar("T")


@dataclass(frozen=True)
class ModelRecord:
    """A model and what is told beside it.

    places: of the frames of its calls, resolved; notes: what could not be resolved, and what the
    calls could be instead. take_back: the command that takes counts back that it leaves out.
    """

    model: Model
    places: Places
    notes: Sequence[str]
    take_back: str


def opened(root: Path) -> Study:
    """Return the study in a directory; raises P3SError where there is none."""
    return Study.open(root)


def named(root: Path) -> Study:
    """Return the study of a directory where there need not be one yet."""
    return Study(root)


def existing(root: Path | None) -> Study | None:
    """Return the study in a directory, None where there is none."""
    return None if root is None else Study.find(root)


def has_parameters(root: Path) -> bool:
    """Tell whether a study has parameters."""
    return (root / "study.json").exists() and bool(parameters(Study(root)))


def known_counts(study: Study | None) -> Known:
    """Return what a study knows of its counts; of none, nothing."""
    from p3s.model.stage import listed_extents, stated_by_user

    if study is None:
        return Known()
    return Known(
        study.counts(),
        study.failed_counts(),
        listed_extents(study),
        stated_by_user(study).ndims,
        study.model_path.exists(),
    )


def study_unit(study: Study | None) -> str:
    """Return how the work of a study was measured: runs of jobs do not know each other."""
    there = work_of(run for run in (study.runs() if study is not None else []) if run.info)
    return next(iter(there)) if len(there) == 1 else "cpu"


def command_of(root: Path) -> Sequence[str]:
    """Return the launcher command of a study; empty for a file or where none is known."""
    return (known(Study(root).command) or ()) if root.is_dir() else ()


def known(read_or_make: Callable[[], T]) -> T | None:
    """Return what is read or made; None where it cannot be."""
    try:
        return read_or_make()
    except P3SError:
        return None


def model_record(study: Study, modules: Sequence[Path] = ()) -> ModelRecord:
    """Return the model of a study; modules: directories with further debug information.

    Raises P3SError where there is none that can be read.
    """
    model = load(study.root)
    places, notes = resolve_sites(traces_of(study), model.sites, modules)
    return ModelRecord(model, places, notes, Commands(study).take_back(model.without))


def structure_of(study: Study) -> Structure:
    """Return what the first extension that recognises a study's program knows of it."""
    ways: Iterator[Callable[[Study], Structure | None]] = provided("structures")
    return next((it for way in ways if (it := way(study)) is not None), Structure())


def costs_of(study: Study) -> ComputeModel | None:
    """Return the laws of computation time, None where no times were taken."""
    from p3s.costs.types import load

    return load(study.root)
