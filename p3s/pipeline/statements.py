"""What the user states: a process grid, iterations of loops, process counts to leave out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from p3s.base.errors import UsageError
from p3s.base.extents import EXTENTS, extents_in, shape
from p3s.base.settings import MIN_COUNTS
from p3s.base.text import processes
from p3s.model.grid.stated import LAST, Extents, Statement
from p3s.model.tripcounts import MAX_TRIPS

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
