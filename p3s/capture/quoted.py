"""Lines of the source of a program, as they were when it was traced."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from p3s.base.text import visible
from p3s.capture.callpath import FrameInfo

#: Names of files that hold source, by their ends: nothing else is ever read.
SUFFIXES = frozenset(
    ".c .cc .cpp .cxx .cu .h .hh .hpp .hxx .f .for .f77 .f90 .f95 .f03 .f08 .ftn .inc .py .pyx"
    " .jl .rs .hip".split()
)
#: Larger files are not read, and longer lines are cut.
MAX_BYTES, MAX_WIDTH = 8_000_000, 140


@dataclass(frozen=True)
class SourceQuote:
    """A line of source and its place, as ``file:line``."""

    place: str
    text: str


@dataclass(frozen=True)
class Sources:
    """The source files of a program.

    ``before_ns``: when the program was traced, as st_mtime_ns: a file that was written later has
    other lines. ``inside``: the only directory that is read, None where the study is the user's
    own: the author of another one could name any file of the reader's.
    """

    before_ns: int | None
    inside: Path | None = None
    _files: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def quoted(self, stack: Sequence[FrameInfo]) -> SourceQuote | None:
        """Return the innermost source line of a call that can be read."""
        for where in stack:
            lines = self._lines(where.file) if where.line > 0 else ()
            if where.line <= len(lines) and where.line > 0:
                text = " ".join(lines[where.line - 1].split())
                place = f"{os.path.basename(where.file)}:{where.line}"
                return SourceQuote(visible(place, 80), visible(text, MAX_WIDTH))
        return None

    def _lines(self, file: str) -> tuple[str, ...]:
        if file not in self._files:
            self._files[file] = _read(Path(file), self.before_ns, self.inside)
        return self._files[file]


def _read(path: Path, before_ns: int | None, inside: Path | None) -> tuple[str, ...]:
    """Return the lines of a file of source; none where it is no such file, a later one, or not
    ``inside``."""
    if path.suffix.lower() not in SUFFIXES or not path.is_absolute():
        return ()
    try:
        source = path.resolve(strict=True)
        about = source.stat()
        if source.suffix.lower() not in SUFFIXES or not source.is_file():
            return ()
        if inside is not None and not source.is_relative_to(inside.resolve()):
            return ()
        if about.st_size > MAX_BYTES or (before_ns is not None and about.st_mtime_ns > before_ns):
            return ()
        return tuple(source.read_text(encoding="utf-8", errors="replace").split("\n"))
    except (OSError, ValueError):
        return ()
