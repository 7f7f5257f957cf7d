"""What a study holds, as values: opened, read and resolved here, handed on to what shows it.

Beside it what the user states: a process grid, iterations of loops, process counts to leave out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from p3s.base.errors import P3SError, UsageError
from p3s.base.extensions import load_provided
from p3s.base.extents import EXTENTS, dims_balanced, extents_in, shape
from p3s.base.records import Traces, work_of
from p3s.base.serialise import to_data
from p3s.base.settings import MIN_COUNTS, parameters, parent_of, traces_of
from p3s.base.study import Study
from p3s.base.text import processes, quote_word
from p3s.base.trust import is_made_here
from p3s.capture.callpath import FrameInfo
from p3s.capture.sites import resolve_sites
from p3s.model.grid.stated import LAST, Contradiction, Extents, Statement
from p3s.model.stage import ProgramFacts, load
from p3s.model.stage import as_of_now as model_now
from p3s.model.tripcounts import MAX_TRIPS
from p3s.model.types import Model
from p3s.pipeline.commands import Commands
from p3s.pipeline.saved import PredictionFile
from p3s.predict.estimates import Structure
from p3s.predict.types import Reason

if TYPE_CHECKING:
    from p3s.base.records import RunRecord


#: How Python's interface names what holds a study's files.
Directory = Study
#: The study in a directory: P3SError where there is none; one that need not be there yet.
load_study, name_study = Study.open, Study
Places = Mapping[str, FrameInfo]
T = TypeVar("T")


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
class ModelRecord:
    """A model, what it is of, and what is told beside it.

    places: of the frames of its calls, resolved; notes: what could not be resolved, and what the
    calls could be instead. foreign: whether another user has run the program, where that is asked.
    """

    model: Model
    places: Places
    notes: Sequence[str]
    program: Program
    traces: Traces
    foreign: bool = False


def open_traces(root: Path) -> Traces:
    """Return what the study in a directory has traced; raises P3SError where there is none."""
    return traces_of(load_study(root))


def existing(root: Path | None) -> Study | None:
    """Return the study in a directory, None where there is none."""
    return None if root is None else Study.find(root)


def has_parameters(root: Path) -> bool:
    """Tell whether a study has parameters."""
    return (root / "study.json").exists() and bool(parameters(Study(root)))


def known_of(study: Study | None) -> ProgramFacts:
    """Return what a study knows of its program beside signatures; of none, nothing."""
    if study is None:
        return ProgramFacts()
    said = _read_entry(study, "grid", "at")
    had = {run.np: tuple(map(int, run.info.get("dims", ()))) for run in study.runs()}
    # Extents that MPI_Dims_create would not have made are as good as listed.
    odd = {n: dims for n, dims in had.items() if dims and dims != dims_balanced(n, len(dims))}
    kept = _read_entry(study, "dims", "at", "far").items()
    return ProgramFacts(
        read_or_none(study.command) or (),
        study.complete_counts(),
        study.failed_counts(),
        study.left_out(),
        _read_entry(study, "trips"),
        replace(Statement.from_json(said), by_user=True) if said else Statement(),
        {n: dims for n, dims in had.items() if dims},
        odd | {int(n): tuple(map(int, dims)) for n, dims in kept},
        study.model_path.exists(),
    )


def _read_entry(study: Study, name: str, *around: str) -> dict[str, Any]:
    """Return an entry of study.json, or of that of the study around it."""
    found = (read_or_none(study.manifest) or {}).get(name)
    if not found and study.root.resolve().parent.name in around:
        return _read_entry(Study(study.root.resolve().parent.parent), name)
    return found if isinstance(found, dict) else {}


def keep_dims(study: Study, given: Mapping[int, Extents]) -> None:
    """Add extents to those that the study lists."""
    if given:
        listed = {**known_of(study).extents, **given}
        study.update(dims={str(n): list(dims) for n, dims in sorted(listed.items())})


def model_of(study: Study) -> Model:
    """Return the model of a study, checked, with what its later runs tell of the counts.

    Raises P3SError, in one line, where there is none that can be read.
    """
    return model_now(load(study.root), known_of(study))


def study_unit(study: Study | None) -> str:
    """Return how the work of a study was measured: runs of jobs do not know each other."""
    there = work_of(run for run in (study.runs() if study is not None else []) if run.info)
    return next(iter(there)) if len(there) == 1 else "cpu"


def command_of(root: Path) -> Sequence[str]:
    """Return the launcher command of a study; empty for a file or where none is known."""
    return (read_or_none(Study(root).command) or ()) if root.is_dir() else ()


def read_or_none(read_or_make: Callable[[], T]) -> T | None:
    """Return what is read or made; None where it cannot be."""
    try:
        return read_or_make()
    except P3SError:
        return None


def model_record(
    study: Study, modules: Sequence[Path] = (), *, foreign: bool = False
) -> ModelRecord:
    """Return the model of a study; modules: directories with further debug information.

    foreign: it is asked who has run the program. Raises P3SError where there is no model that can
    be read.
    """
    model, traces = model_of(study), traces_of(study)
    places, notes = resolve_sites(traces, model.sites, modules)
    program = Program(
        study.root.resolve().name,
        str(study.root),
        traces.command,
        str(study.manifest().get("created", "?")),
        traces.runs,
        study.complete_counts(),
        study.left_out(),
        Commands(study).take_back(model.without),
    )
    return ModelRecord(model, places, notes, program, traces, foreign and not is_made_here(study))


def structure_of(study: Study) -> Structure:
    """Return what the first extension that recognises a study's program knows of it."""
    ways: Iterator[Callable[[Traces], Structure | None]] = load_provided("structures")
    traces = traces_of(study)
    return next((it for way in ways if (it := way(traces)) is not None), Structure())


# ---- what the user states of a study -----------------------------------------------------------
@contextmanager
def keep_statements(
    study: Study,
    trips: Sequence[str] = (),
    grid: Sequence[str] = (),
    fastest: str = "",
    without: Sequence[int] = (),
    back: Sequence[int] = (),
) -> Iterator[None]:
    """Keep what the user states with the study, unless what is done then shows it cannot be meant.

    Texts are those of the options --trips, --grid, --fastest; without, back: process counts.
    """
    was = {**study.manifest(), "without": study.left_out()}
    said: dict[str, Any] = {}
    if trips:
        said["trips"] = stated_trips(trips, was.get("trips", {}))
    if grid or fastest:
        _refuse_derived(study)
        said["grid"] = stated_grid(
            grid, fastest, Statement.from_json(was.get("grid", {}))
        ).to_json()
    if without or back:
        said["without"] = left_without(study.complete_counts(), study.left_out(), without, back)
    if said:
        study.update(**said)
    try:
        yield
    except BaseException as err:
        if said:
            study.update(**{name: was.get(name, {}) for name in said})
        if isinstance(err, Contradiction) and (grid or fastest):
            raise UsageError(str(err)) from err
        raise


def _refuse_derived(study: Study) -> None:
    """Refuse a grid for a value of a parameter whose model is derived from those of others."""
    around = parent_of(study)
    if around is not None and study.manifest().get("derived"):
        raise UsageError(
            f"--grid: {study.root} is derived from other values; state the grid for "
            f"them all: p3s model {quote_word(around[0].root)} --grid ..."
        )


def keep_parsed(study: Study, text: str) -> None:
    """Keep the extents of --dims for the study's own command."""
    keep_dims(outermost(study), parse_dims(text, study.command()))


def outermost(study: Study) -> Study:
    """Return the study around one at a value of a parameter, else the study itself."""
    around = parent_of(study)
    return around[0] if around is not None else study


# ---- a prediction beside its study -------------------------------------------------------------
def as_of_now(prediction: PredictionFile) -> PredictionFile:
    """Return a prediction with a reason more where runs that it rests on are gone or left out.

    One that is kept outside of a study is returned as it is.
    """
    if prediction.source is None:
        return prediction
    study = Study(prediction.source.parent)
    if not study.manifest_path.exists() or study.prediction_path.name != prediction.source.name:
        return prediction
    found = _of_runs(study, prediction)
    if found is None:
        return prediction
    reasons = [to_data(found), *prediction.data["reasons"]]
    return PredictionFile({**prediction.data, "reasons": reasons}, prediction.source)


def _of_runs(study: Study, prediction: PredictionFile) -> Reason | None:
    """Say which runs that a prediction rests on were deleted or left out since."""
    traced = prediction.content.traced_counts
    gone = sorted(set(traced) & set(study.gone_counts()))
    out = sorted(set(traced) & set(study.left_out()))
    if not gone and not out:
        return None
    commands = Commands(study)
    if gone and len(study.counts()) < MIN_COUNTS:
        advice = f"trace them again: {commands.trace(gone)}"
    else:
        rest = [n for n in prediction.counts if n not in traced] or prediction.counts
        advice = f"make it again without them: {commands.predict(rest)}"
    what = " and ".join(["deleted"] * bool(gone) + ["left out of the model"] * bool(out))
    return Reason(
        "outdated",
        f"the prediction rests on runs at {processes(sorted({*gone, *out}))}, which were {what} "
        "since",
        advice,
    )


#: A grid of more dimensions is not modelled; no study goes above so many processes.
MAX_DIMENSIONS, MAX_COUNT = 4, 1 << 24
#: Takes a statement back.
NONE = "none"


def stated_trips(words: Sequence[str], before: Mapping[str, int]) -> dict[str, int]:
    """Return the iterations of loops that are stated, those of ``before`` included."""
    trips = dict(before)
    for word in words:
        where, equals, count = word.rpartition("=")
        if not equals or not where:
            raise UsageError(f"--trips {word}: write SITE=COUNT, as in --trips solve=250")
        if not count:
            trips.pop(where, None)
        elif (number := _number(count, MAX_TRIPS)) is None:
            raise UsageError(f"--trips {word}: {count!r} is not a number of iterations")
        else:
            trips[where] = number
    return trips


def left_without(
    have: Sequence[int], before: Sequence[int], gone: Sequence[int], taken: Sequence[int]
) -> list[int]:
    """Return the counts that are left out once some more are, and some are taken back.

    have: those that were traced; before: of these, those that are left out already.
    """
    for n in gone:
        if n not in have:
            raise UsageError(
                f"--without {n}: no run at {processes(n)}; there are {_list_counts(have)}"
            )
        if n in taken:
            raise UsageError(f"--without {n} --with {n}: give one of them")
    for n in taken:
        if n not in before:
            raise UsageError(f"--with {n}: is not left out; left out: {_list_counts(before)}")
    left = sorted({*before, *gone} - set(taken))
    stay = [n for n in have if n not in left]
    if len(stay) < MIN_COUNTS:
        raise UsageError(
            f"--without {','.join(map(str, gone))}: {len(stay)} process counts would stay "
            f"({_list_counts(stay)}), the model needs {MIN_COUNTS}; trace another first"
        )
    return left


def _list_counts(counts: Sequence[int]) -> str:
    return ", ".join(map(str, counts)) or "none"


def _number(text: str, most: int = MAX_COUNT) -> int | None:
    """Return a whole number from 1 to ``most``; None for any other text."""
    number = int(text[:20]) if text.isascii() and text.isdigit() else 0
    return number if 0 < number <= most else None


def _extents(text: str, option: str) -> Extents:
    """Return the extents of ``4x2x2``; UsageError for anything else."""
    extents = tuple(map(_number, text.lower().split("x")))
    if len(extents) > MAX_DIMENSIONS:
        raise UsageError(f"{option}: {text} has more than {MAX_DIMENSIONS} dimensions")
    known = tuple(extent for extent in extents if extent is not None)
    if len(known) < len(extents):
        raise UsageError(f"{option}: {text!r} are not extents; write them as 4x2x2")
    return known


def _count(text: str, option: str) -> int:
    if (number := _number(text)) is None:
        raise UsageError(f"{option}: {text!r} is not a process count")
    return number


# ---- the grid as arguments ---------------------------------------------------------------------
def parse_dims(text: str, words: Sequence[str]) -> dict[int, Extents]:
    """Return the extents at counts of ``16=4x2x2,32=4x4x2``, for a launcher command.

    Raises UsageError where they are no extents, or not as many as the command asks for.
    """
    names = extents_in(words)
    if not text:
        return {}
    if not names:
        asked = ", ".join(f"{{{name}}}" for name in EXTENTS[:3])
        raise UsageError(
            f"--dims {text}: the command has no {asked} for them; the grid of a "
            "program that makes its own is stated with p3s model --grid"
        )
    found: dict[int, Extents] = {}
    for part in map(str.strip, text.split(",")):
        option = f"--dims {part}"
        count, equals, extents = part.partition("=")
        if not equals:
            raise UsageError(f"{option}: write N=EXTENTS, as in --dims 16=4x2x2")
        n, dims = _count(count, option), _extents(extents, option)
        if len(dims) != len(names):
            raise UsageError(
                f"{option}: {len(dims)} extents, but the command has "
                + ", ".join(f"{{{name}}}" for name in names)
            )
        if math.prod(dims) != n:
            raise UsageError(f"{option}: {extents} is {math.prod(dims)}, not {n}")
        if found.setdefault(n, dims) != dims:
            raise UsageError(f"--dims {text}: two grids for {n} processes")
    return found


# ---- a stated grid -----------------------------------------------------------------------------
def stated_grid(words: Sequence[str], fastest: str, before: Statement) -> Statement:
    """Return what --grid and --fastest say, with what was stated before.

    Raises UsageError where a word is none, or says something else than another one.
    """
    known = before
    for word in (part.strip() for each in words for part in each.split(",")):
        if word == NONE:
            known = Statement()
        elif "@" in word:
            known = _with_extents(known, word)
        elif (number := _number(word, MAX_DIMENSIONS)) is not None:
            known = _with_dimensions(known, number, f"--grid {word}")
        else:
            raise UsageError(
                f"--grid {word}: write the number of dimensions, 1 to "
                f"{MAX_DIMENSIONS}, or extents at a count, as in --grid 4x2x2@16"
            )
    return _with_fastest(known, fastest) if fastest else known


def _with_extents(known: Statement, word: str) -> Statement:
    text, _, count = word.partition("@")
    n = _count(count, f"--grid {word}")
    others = tuple(each for each in known.extents if each[0] != n)
    if text == NONE:
        return replace(known, extents=others)
    dims = _extents(text, f"--grid {word}")
    if math.prod(dims) > n:
        raise UsageError(f"--grid {word}: {text} is {math.prod(dims)}, not {n}")
    known = _with_dimensions(replace(known, extents=others), len(dims), f"--grid {word}")
    return replace(known, extents=tuple(sorted((*others, (n, dims)))))


def _with_dimensions(known: Statement, ndims: int, option: str) -> Statement:
    for n, dims in known.extents:
        if len(dims) != ndims:
            raise UsageError(
                f"{option}: {ndims} dimensions, but {shape(dims)} at {n} processes "
                "is stated; --grid none takes that back"
            )
    return _check_fastest(replace(known, ndims=ndims), option)


def _with_fastest(known: Statement, word: str) -> Statement:
    numbers = {"first": 0, "last": LAST, **{str(d): d for d in range(MAX_DIMENSIONS)}}
    if word == NONE:
        return replace(known, fastest=None)
    if word not in numbers:
        raise UsageError(
            f"--fastest {word}: say first, last, or the number of a dimension, "
            f"0 to {MAX_DIMENSIONS - 1}"
        )
    return _check_fastest(replace(known, fastest=numbers[word]), f"--fastest {word}")


def _check_fastest(known: Statement, option: str) -> Statement:
    if known.fastest is not None and 0 < known.ndims <= known.fastest:
        raise UsageError(
            f"{option}: dimension {known.fastest} of a grid of {known.ndims} "
            "dimensions; they are counted from 0"
        )
    return known
