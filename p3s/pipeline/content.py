"""What a report shows of a study, as values: read, resolved and evaluated."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from p3s.base.errors import P3SError
from p3s.base.study import RunRecord, Study
from p3s.base.trust import is_made_here
from p3s.capture.callpath import Where, stack
from p3s.capture.quoted import Quoted, Sources
from p3s.capture.sites import resolve_sites, traced_ns
from p3s.costs.types import ComputeModel
from p3s.model.stage import as_of_now, read
from p3s.model.types import Model
from p3s.model.work.scic import InstructionTable, instruction_table, larger_counts
from p3s.pipeline.matrices import scaled_matrix, traced_matrix
from p3s.predict.commands import Commands
from p3s.predict.types import Prediction
from p3s.program.scaled import scaled_head
from p3s.signature.matrix import CommMatrix
from p3s.signature.phase_file import Phases, load

if TYPE_CHECKING:
    from p3s.costs.types import Row

    Places = Mapping[str, Where]

T = TypeVar("T")
#: Calls of a model above which the instruction table takes too long for a report.
MAX_CALLS = 500


@dataclass(frozen=True)
class ComputeTable:
    """The laws of computation time, and their rows at the counts of a prediction."""

    model: ComputeModel
    rows: Sequence[Row]


@dataclass(frozen=True)
class Program:
    """The program of a study and its runs: what is said of where a report comes from.

    name: of the study's directory; root: as it was named; created: when the study was made, ""
    where it does not say. complete, left_out: process counts that were traced, and those of them
    that the model leaves out; take_back: the command that takes these back.
    """

    name: str
    root: str
    command: Sequence[str]
    created: str
    runs: Sequence[RunRecord]
    complete: Sequence[int]
    left_out: Sequence[int]
    take_back: str


@dataclass(frozen=True)
class StudyContent:
    """What a report of a prediction shows of its study.

    phases: None where there are none that can be read. places: of the frames of all calls. quotes:
    the line of source that makes the calls of a site, by site; foreign: none are quoted, since this
    user has not run the program. replays: by process count. unknown: calls without a rule in the
    scaled trace. matrices: (process count, whether traced, matrix or why it is not drawn).
    instructions: None where the model has too many calls, or admits no other count.
    """

    program: Program
    model: Model
    prediction: Prediction
    phases: Phases | None
    places: Places
    quotes: Mapping[str, Quoted]
    foreign: bool
    replays: Mapping[int, Mapping[str, Any]]
    unknown: Sequence[Any]
    matrices: Sequence[tuple[int, bool, CommMatrix | str]]
    instructions: InstructionTable | None
    compute: ComputeTable | None


def content_of(study: Study, prediction: Prediction, *, source: bool = True) -> StudyContent:
    """Return what a report of this prediction shows; ``source``: lines of the program's source."""
    model = as_of_now(study, read(study.model_path))
    phases = _known(lambda: load(study.phases_path))
    traced = {} if phases is None else phases.sites
    places, _ = resolve_sites(study, {**traced, **model.sites})
    largest, counts = prediction.last.n, [row.n for row in prediction.counts]
    foreign = source and not is_made_here(study)
    return StudyContent(
        _program(study, model),
        model,
        prediction,
        phases,
        places,
        _quotes(study, model, places, foreign) if source else {},
        foreign,
        # The prediction rests on none that cannot be read.
        {n: replay for n in counts if (replay := _known(partial(study.replay, n))) is not None},
        _unknown(study, largest),
        list(_matrices(study, largest)),
        _instructions(model),
        _compute(study, model, counts),
    )


def _program(study: Study, model: Model) -> Program:
    return Program(
        study.root.resolve().name,
        str(study.root),
        study.command(),
        str(study.manifest().get("created", "?")),
        study.runs(),
        study.complete_counts(),
        study.left_out(),
        Commands(study).take_back(model.without),
    )


def _known(make: Callable[[], T]) -> T | None:
    """Return what is made; None where it cannot be read or made."""
    try:
        return make()
    except P3SError:
        return None


def _quotes(study: Study, model: Model, places: Places, foreign: bool) -> dict[str, Quoted]:
    """Return the innermost line of source of each site that can be read."""
    sources = Sources(traced_ns(study), study.root if foreign else None)
    lines = {site: sources.quoted(stack(frames, places)) for site, frames in model.sites.items()}
    return {site: line for site, line in lines.items() if line is not None}


def _unknown(study: Study, n: int) -> Sequence[Any]:
    found = scaled_head(study.scaled_dir(n)).get("unknown") if study.scaled_path(n).exists() else ()
    return found if isinstance(found, list) else ()


def _matrices(study: Study, largest: int) -> Iterator[tuple[int, bool, CommMatrix | str]]:
    """Yield the matrices of the largest traced count and of ``largest``, those that can be had."""
    counts = study.signature_counts()
    if counts and (traced := traced_matrix(study, max(counts))) is not None:
        yield max(counts), True, traced
    if largest not in counts and (scaled := scaled_matrix(study, largest)) is not None:
        yield largest, False, scaled


def _instructions(model: Model) -> InstructionTable | None:
    if len(model.items) > MAX_CALLS:
        return None
    return _known(lambda: instruction_table(model, larger_counts(model)))


def _compute(study: Study, model: Model, counts: Sequence[int]) -> ComputeTable | None:
    """Return the times of computation at the counts of a prediction; None without times."""
    from p3s.costs.table import compute_table
    from p3s.costs.types import load

    found = _known(lambda: load(study.root))
    if found is None:
        return None
    asked = [n for n in counts if n not in model.counts]
    return _known(lambda: ComputeTable(found, compute_table(model, found, asked)))
