"""Frames of call sites as function, file and line, for people.

A capture holds return addresses relative to the module they lie in (docs/capture-format.md);
what they mean is read from the modules' own debug information or symbols, if they are still the
files that were traced.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from p3s.base.text import joined
from p3s.capture.modules import Modules

if TYPE_CHECKING:
    from p3s.capture.dwarf import Line
    from p3s.capture.elf import Binary

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


def resolve(
    frames: Iterable[str], modules: Modules, traced_ns: int | None = None
) -> tuple[dict[str, Where], list[str]]:
    """Return each frame's place, and what could not be resolved, a sentence for modules alike.

    ``traced_ns`` is when the program was traced (as st_mtime_ns): a module written later is
    another one. So is one in which a return address does not follow a call. Both are then shown
    as module and offset.
    """
    found = {frame: parse(frame) for frame in frames}
    by_module: dict[str, list[Where]] = {}
    for where in found.values():
        if where.module:
            by_module.setdefault(where.module, []).append(where)
    notes: dict[str, str] = {}
    for program in modules.programs():
        with contextlib.suppress(OSError, ValueError):
            modules.also(_search_path(program))
    todo = sorted(by_module)
    while todo:  # a module may know where others are: ask again for those not found
        later: list[str] = []
        for name in todo:
            path = modules.find(name)
            if path is None:
                later.append(name)
                continue
            resolved, note = _in_module(path, by_module[name], modules, traced_ns)
            found.update(resolved)
            if note:
                notes[name] = note
        if len(later) == len(todo):
            break
        todo = later
    for name in todo:
        if modules.find(name) is None:
            notes[name] = "not found on this machine, so calls there are addresses"
    alike: dict[str, list[str]] = {}
    for name in sorted(notes):
        alike.setdefault(notes[name], []).append(name)
    return found, [f"{joined(names)}: {note}" for note, names in alike.items()]


def _search_path(path: Path) -> list[Path]:
    from p3s.capture.elf import Binary

    with Binary(path) as binary:
        return binary.search_path()


def _in_module(
    path: Path, wheres: Sequence[Where], modules: Modules, traced_ns: int | None
) -> tuple[dict[str, Where], str]:
    """Resolve the frames of one module; also returns what is wrong with it, or an empty text."""
    from p3s.capture.elf import Binary

    changed = f"{path} is not the file that was traced, so its calls are addresses"
    try:
        if traced_ns is not None and path.stat().st_mtime_ns > traced_ns:
            return {}, changed
        with Binary(path) as binary:
            modules.also(binary.search_path())
            if not all(binary.follows_call(where.offset) for where in wheres):
                return {}, changed
            # A return address is that of the instruction after the call, perhaps another line.
            lines = binary.lines(where.offset - 1 for where in wheres)
            placed = [_placed(binary, where, lines.get(where.offset - 1)) for where in wheres]
            found = {w.frame: w for w in placed if w.function or w.line or w.calls}
            bare = sum(not (where.function or where.line) for where in placed)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        return {}, f"{path}: {why}, so its calls are addresses"
    return found, _missing(bare, len(wheres), bool(lines), modules.of_system(path))


def _placed(binary: Binary, where: Where, line: Line | None) -> Where:
    """Return a frame's place in its file, given what debug information says of it."""
    symbol = None
    if line is None or not line.function:
        symbol = binary.symbol(where.offset - 1)
    name, start = symbol if symbol is not None else ("", 0)
    calls = binary.calls(where.offset)
    if line is None or not (line.line or line.function):
        return replace(where, function=name, offset=where.offset - start, calls=calls)
    return Where(
        where.frame,
        where.module,
        line.function or name,
        line.file,
        line.line,
        where.offset - start if symbol else where.offset,
        tuple(_inlined_into(where.module, each) for each in line.around),
        calls,
    )


def _missing(bare: int, calls: int, lines: bool, of_system: bool) -> str:
    """Say what a module lacks, and what helps: a library of the system cannot be compiled anew."""
    if bare and (bare == calls or not of_system):
        some = "its" if bare == calls else f"{bare} of its {calls}"
        helps = (
            "install its debug symbols to see functions"
            if of_system
            else "compile with -g to see functions and lines"
        )
        return f"{some} calls are addresses, as it has no symbols for them; {helps}"
    if lines or of_system:
        return ""
    return "no debug information; compile with -g to see source lines and inlined functions"


def _inlined_into(module: str, line: Line) -> Where:
    # There is no address of its own: the place stands for it.
    frame = f"{line.function} {line.file}:{line.line}"
    return Where(frame, module, line.function, line.file, line.line)


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
