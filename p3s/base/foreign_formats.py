"""Formats of other tools: how each is recognised, and the command that reads it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from p3s.base.errors import P3SError
from p3s.base.text import quote_word

#: Bytes of a file that show its format, and entries of a directory that are looked at.
_HEAD_BYTES, _ENTRIES = 4096, 64


class ReadBy(StrEnum):
    """Readers of files, as the command that calls each.

    OWN: those of P3S's own formats, which are in no table.
    """

    TIMES = "p3s baseline fit {file}"
    NETWORK = "p3s place ... --topology {file}"
    PLATFORM = "p3s machine learn --simgrid {file}"
    NODE = "p3s place ... --inside {file}"
    TRACE = "p3s add ... {file}"
    OWN = "p3s"


@dataclass(frozen=True)
class Format:
    """A format: its name with an article, who reads it, and what its first bytes look like."""

    name: str
    reader: ReadBy
    head: re.Pattern[bytes]


def _format(name: str, reader: ReadBy, head: bytes) -> Format:
    return Format(name, reader, re.compile(head, re.IGNORECASE | re.MULTILINE))


EXTRAP_TEXT = _format("an Extra-P text file", ReadBy.TIMES, rb"\A(?:\s*(?:#.*)?\n)*PARAMETER\s")
EXTRAP_LINES = _format(
    "a file of Extra-P's JSON Lines", ReadBy.TIMES, rb'\A\s*\{[^\n]*"params"\s*:\s*\{'
)
EXTRAP_JSON = _format(
    "an Extra-P JSON file",
    ReadBy.TIMES,
    rb'\A\s*\{\s*"(?:parameters|measurements|callpaths|metrics|coordinates)"\s*:\s*[\[{]',
)
OTF2 = _format("an OTF2 archive", ReadBy.TRACE, rb"\A[\s\S]{2}OTF2")
#: The first that fits counts. Sources: the tools' own readers and writers, and what they write.
FORMATS = (
    EXTRAP_TEXT,
    EXTRAP_LINES,
    EXTRAP_JSON,
    _format("a topology/tree file of Slurm", ReadBy.NETWORK, rb"^\s*SwitchName="),
    _format("a node file of netloc", ReadBy.NETWORK, rb"\A\d+\s*\n[^\n=]*\n[^\n=]*\n\d+\s*$"),
    _format("a platform of SimGrid", ReadBy.PLATFORM, rb"\A\s*<(?:[\s\S]*?<)?platform\b"),
    _format("a node file of hwloc", ReadBy.NODE, rb"\A\s*<(?:[\s\S]*?<)?topology\b"),
    OTF2,
)


def format_of(head: bytes) -> Format | None:
    """Return the format that the first bytes of a file are of, None for an unknown one."""
    return next((each for each in FORMATS if each.head.search(head[:_HEAD_BYTES])), None)


def refuse_foreign(path: Path | str, reader: ReadBy, head: bytes | None = None) -> None:
    """Raise P3SError where a file is of a known format that another reader takes.

    ``head``: its first bytes, read from ``path`` where None: a file, or a directory of files.
    """
    heads = [head] if head is not None else _heads(Path(path))
    foreign = next((each for each in map(format_of, heads) if each is not None), None)
    if foreign is None or foreign.reader is reader:
        return
    command = foreign.reader.format(file=quote_word(path))
    raise P3SError(f"{path}: is {foreign.name}, which this command does not read; run: {command}")


def _heads(path: Path) -> list[bytes]:
    """Return the first bytes of a file, or of files of a directory; none where it has no files."""
    try:
        paths = sorted(path.iterdir())[:_ENTRIES] if path.is_dir() else [path]
        return [_head(each) for each in paths if each.is_file()]
    except OSError:
        return []


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_HEAD_BYTES)
