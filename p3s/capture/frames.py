"""Frames of call stacks: what their texts in a capture say, and which of them people want."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_NATIVE = re.compile(r"^(?P<module>.+)\+0x(?P<offset>[0-9a-fA-F]{1,16})$", re.DOTALL)
#: File names of Python's extension modules.
_EXTENSION = re.compile(r"\.(cpython-|abi3\.|pypy)")
_PYTHON = re.compile(r"^(?P<file>.+?):(?P<name>.+):(?P<line>\d+)$", re.DOTALL)


@dataclass(frozen=True)
class Where:
    """What one frame of a call stack is.

    ``frame`` is its text in the capture; ``function``, ``file`` and ``line`` are empty and 0
    where they are not known; ``offset`` is that of the return address in ``function``, or in
    ``module`` when there is no function. ``around``: the functions this one was inlined into,
    innermost first, each at the place of its call. ``calls``: the function of another file that
    it calls here, by the name in the machine code; empty where none is named.
    """

    frame: str
    module: str = ""
    function: str = ""
    file: str = ""
    line: int = 0
    offset: int = 0
    around: tuple[Where, ...] = ()
    calls: str = ""

    @property
    def python(self) -> bool:
        """Whether this is a frame of a Python program."""
        return bool(self.file) and not self.module

    @property
    def name(self) -> str:
        """Return ``function file:line``, ``function``, or the frame as it is."""
        if self.line:
            place = f"{os.path.basename(self.file)}:{self.line}"
            return f"{self.function} {place}" if self.function else place
        return self.function or self.frame

    def __str__(self) -> str:
        """Return the name; where only the function is known, ``function+0xoffset``."""
        return self.name if self.line or not self.function else f"{self.name}+{self.offset:#x}"


def parse(frame: str) -> Where:
    """Return what the text of a frame says by itself; any text is a frame."""
    if found := _NATIVE.match(frame):
        return Where(frame, module=found["module"], offset=int(found["offset"], 16))
    if found := _PYTHON.match(frame):
        line = int(found["line"][:9])
        return Where(frame, function=found["name"], file=found["file"], line=line)
    return Where(frame)


def shown(frames: Sequence[str]) -> list[str]:
    """Return the frames of a site that people want.

    Of a Python program these are its own, without those of the interpreter and its import system,
    and those of a library that an extension module calls.
    """
    parsed = [parse(frame) for frame in frames]
    python = [where.frame for where in parsed if where.python]
    own = [frame for frame in python if not frame.startswith("<frozen ")]
    if not python:
        return list(frames)
    return _libraries([where for where in parsed if not where.python]) + (own or python)


def _libraries(native: Sequence[Where]) -> list[str]:
    """Return the frames below an extension module, given those from it to the interpreter."""
    left = list(native)
    for _ in ("interpreter", "extension module"):
        module = left[-1].module if left else ""
        while left and left[-1].module == module:
            left.pop()
    return [where.frame for where in left if not _EXTENSION.search(where.module)]


def stack(frames: Sequence[str], places: Mapping[str, Where]) -> list[Where]:
    """Return the places of :func:`shown` frames, innermost first, with those inlined into."""
    found = []
    for frame in shown(frames):
        where = places.get(frame) or parse(frame)
        found += [where, *where.around]
    return found
