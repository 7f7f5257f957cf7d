"""Several programs in one launch: which rank ran which, and the launcher command for any count."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from p3s.base.artefacts import read_json, write_json
from p3s.base.errors import P3SError, UsageError
from p3s.base.extents import with_count
from p3s.base.trust import is_signed, sign
from p3s.capture.chunks import read_header
from p3s.capture.layout import NAME

SCHEMA = "p3s.program"
_FILE = "program-{}.json"


@dataclass(frozen=True)
class Block:
    """Adjacent ranks with one program: its words, and how many they are.

    ``own``: this user started it.
    """

    words: tuple[str, ...]
    count: int
    own: bool


def number_of(program: Sequence[str]) -> int:
    """Return the number by which captures name a program: of its words, never 0."""
    return zlib.crc32("\0".join(program).encode("utf-8", "surrogateescape")) or 1


def write_program(folder: Path, program: Sequence[str], directory: str) -> None:
    """Write down the words of a program that ranks of a launch are about to become."""
    path = folder / _FILE.format(number_of(program))
    if not path.exists():
        signed = sign(program, directory)
        record = {"argv": list(program), "directory": directory, "signed": signed}
        write_json(path, {"schema": SCHEMA, "schema_version": 1, **record})


def blocks(folder: Path, np: int) -> list[Block]:
    """Return the programs of a launch by blocks of ranks; empty where all ranks ran one.

    Errors: P3SError where a program's words are lost.
    """
    if len(list(folder.glob(_FILE.format("*")))) < 2:
        return []
    numbers = [read_header(folder / NAME.format(rank)).program for rank in range(np)]
    if len(set(numbers)) < 2:
        return []
    return [_block(folder, number, len(list(ranks))) for number, ranks in groupby(numbers)]


def _block(folder: Path, number: int, count: int) -> Block:
    path = folder / _FILE.format(number)
    record = read_json(path, SCHEMA)
    words = record.get("argv")
    if not isinstance(words, list) or not words or not all(isinstance(w, str) for w in words):
        raise P3SError(f"{path}: does not say which program was run")
    own = is_signed(record.get("signed"), words, str(record.get("directory")))
    return Block(tuple(words), count, own)


def find_launch_words(runs: Sequence[Sequence[Block]]) -> list[str]:
    """Return the words after the launcher that start such a launch at any process count.

    ``runs``: of several counts, or of one; then the largest block has all further processes.
    Errors: UsageError where the counts of the programs do not follow from the whole.
    """
    programs = [[block.words for block in run] for run in runs]
    if any(each != programs[0] for each in programs):
        raise UsageError(f"these runs have several programs in different places; {_WAY}")
    totals = [sum(block.count for block in run) for run in runs]
    columns = [[run[k].count for run in runs] for k in range(len(runs[0]))]
    counts = [_count(column, totals) for column in columns]
    if all(count.isdigit() for count in counts):
        rest = max(range(len(counts)), key=lambda k: (columns[k][0], k))
        counts[rest] = _count_minus(totals[0] - columns[rest][0])
    words: list[str] = []
    for count, program in zip(counts, programs[0], strict=True):
        words += [":"] * bool(words) + ["-n", count, *program]
    return words


_WAY = "give the launcher command after --, as -- mpiexec -n 1 A : -n {np-1} B"


def _count_minus(by: int) -> str:
    return f"{{np-{by}}}" if by else "{np}"


def _count(column: Sequence[int], totals: Sequence[int]) -> str:
    """Return how many processes of the whole a program has, as a launcher command says it."""
    for text in _laws(column[0], totals[0]):
        try:
            if all(
                [str(n)] == with_count([text], np) for n, np in zip(column, totals, strict=True)
            ):
                return text
        except UsageError:
            continue
    raise UsageError(
        f"{_join_numbers(column)} of {_join_numbers(totals)} processes follow no rule; {_WAY}"
    )


def _laws(count: int, total: int) -> Iterator[str]:
    yield str(count)
    yield _count_minus(total - count)
    yield f"{{np/{total // count}}}"


def _join_numbers(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))
