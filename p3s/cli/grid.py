"""What the user says of the process grid: --grid and --fastest of model, --dims of runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from p3s.base.errors import UsageError
from p3s.base.extents import EXTENTS, extents_in, shape
from p3s.base.study import Study
from p3s.cli.common import MAX_COUNT, quoted
from p3s.cli.helptext import option

if TYPE_CHECKING:
    from p3s.model.grid.stated import Extents, Statement

#: A grid of more dimensions is not modelled.
MAX_DIMENSIONS = 4
#: Takes a statement back.
NONE = "none"

GRID = option(
    [],
    "--grid GRID",
    "State the process grid: its dimensions, as 3, or its extents at a count, as 4x2x2@16; "
    "none takes it back.",
)
FASTEST = option(
    "",
    "--fastest DIMENSION",
    "State the dimension in which the next rank is: first, last, or 0, 1, ...; none.",
)
DIMS = option(
    "",
    "--dims N=EXTENTS",
    "What {px}, {py}, {pz} are at some counts, as 16=4x2x2,32=4x4x2 "
    "[default: as MPI_Dims_create deals them].",
)


def _extents(text: str, option: str) -> Extents:
    """Return the extents of ``4x2x2``; UsageError for anything else."""
    words = text.lower().split("x")
    if len(words) > MAX_DIMENSIONS:
        raise UsageError(f"{option}: {text} has more than {MAX_DIMENSIONS} dimensions")
    if not all(
        word.isascii() and word.isdigit() and 0 < int(word[:9]) <= MAX_COUNT for word in words
    ):
        raise UsageError(f"{option}: {text!r} are not extents; write them as 4x2x2")
    return tuple(map(int, words))


def _count(text: str, option: str) -> int:
    if not (text.isascii() and text.isdigit()) or not 0 < int(text[:9]) <= MAX_COUNT:
        raise UsageError(f"{option}: {text!r} is not a process count")
    return int(text)


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
    out: dict[int, Extents] = {}
    for part in text.split(","):
        count, equals, extents = part.strip().partition("=")
        if not equals:
            raise UsageError(f"--dims {part}: write N=EXTENTS, as in --dims 16=4x2x2")
        n = _count(count, f"--dims {part}")
        dims = _extents(extents, f"--dims {part}")
        if len(dims) != len(names):
            raise UsageError(
                f"--dims {part}: {len(dims)} extents, but the command has "
                + ", ".join(f"{{{name}}}" for name in names)
            )
        if math.prod(dims) != n:
            raise UsageError(f"--dims {part}: {extents} is {math.prod(dims)}, not {n}")
        if out.setdefault(n, dims) != dims:
            raise UsageError(f"--dims {text}: two grids for {n} processes")
    return out


def outermost(study: Study) -> Study:
    """Return the study around one at a value of a parameter, else the study itself."""
    from p3s.base.settings import parent_of

    around = parent_of(study)
    return around[0] if around is not None else study


# ---- statements --------------------------------------------------------------------------------
def refuse_derived(study: Study) -> None:
    """Refuse a statement for a value of a parameter whose model is derived from those of others."""
    from p3s.base.settings import parent_of

    around = parent_of(study)
    if around is not None and study.manifest().get("derived"):
        raise UsageError(
            f"--grid: {study.root} is derived from other values; state the grid for "
            f"them all: p3s model {quoted(around[0].root)} --grid ..."
        )


def stated(words: Sequence[str], fastest: str, before: Statement) -> Statement:
    """Return what --grid and --fastest say, with what was stated before.

    Raises UsageError where a word is none, or says something else than another one.
    """
    from p3s.model.grid.stated import Statement

    out = before
    for word in (part.strip() for each in words for part in each.split(",")):
        if word == NONE:
            out = Statement()
        elif "@" in word:
            out = _with_extents(out, word)
        elif word.isascii() and word.isdigit() and 0 < int(word[:9]) <= MAX_DIMENSIONS:
            out = _with_dimensions(out, int(word), f"--grid {word}")
        else:
            raise UsageError(
                f"--grid {word}: write the number of dimensions, 1 to "
                f"{MAX_DIMENSIONS}, or extents at a count, as in --grid 4x2x2@16"
            )
    return _with_fastest(out, fastest) if fastest else out


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
    return _checked(replace(known, ndims=ndims), option)


def _with_fastest(known: Statement, word: str) -> Statement:
    from p3s.model.grid.stated import LAST

    numbers = {"first": 0, "last": LAST, **{str(d): d for d in range(MAX_DIMENSIONS)}}
    if word == NONE:
        return replace(known, fastest=None)
    if word not in numbers:
        raise UsageError(
            f"--fastest {word}: say first, last, or the number of a dimension, "
            f"0 to {MAX_DIMENSIONS - 1}"
        )
    return _checked(replace(known, fastest=numbers[word]), f"--fastest {word}")


def _checked(known: Statement, option: str) -> Statement:
    if known.fastest is not None and 0 < known.ndims <= known.fastest:
        raise UsageError(
            f"{option}: dimension {known.fastest} of a grid of {known.ndims} "
            "dimensions; they are counted from 0"
        )
    return known
