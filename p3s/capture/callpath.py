"""The frames of call stacks: what their texts in a capture say, and which of them people want."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

_NATIVE = re.compile(r"^(?P<module>.+)\+0x(?P<offset>[0-9a-fA-F]{1,16})$", re.DOTALL)
#: File names of Python's extension modules.
_EXTENSION = re.compile(r"\.(cpython-|abi3\.|pypy)")
_PYTHON = re.compile(r"^(?P<file>.+?):(?P<name>.+):(?P<line>\d+)$", re.DOTALL)


@dataclass(frozen=True)
class FrameInfo:
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
    around: tuple[FrameInfo, ...] = ()
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


def parse(frame: str) -> FrameInfo:
    """Return what the text of a frame says by itself; any text is a frame."""
    if match := _NATIVE.match(frame):
        return FrameInfo(frame, module=match["module"], offset=int(match["offset"], 16))
    if match := _PYTHON.match(frame):
        line = int(match["line"][:9])
        return FrameInfo(frame, function=match["name"], file=match["file"], line=line)
    return FrameInfo(frame)


def select_frames(frames: Sequence[str]) -> list[str]:
    """Return the frames of a site that people want.

    Of a Python program these are its own, without those of the interpreter and its import system,
    and those of a library that an extension module calls.
    """
    parsed = [parse(frame) for frame in frames]
    python = [where.frame for where in parsed if where.python]
    files_only = [frame for frame in python if not frame.startswith("<frozen ")]
    if not python:
        return list(frames)
    return _libraries([where for where in parsed if not where.python]) + (files_only or python)


def _libraries(native: Sequence[FrameInfo]) -> list[str]:
    """Return the frames below an extension module, given those from it to the interpreter."""
    remaining = list(native)
    for _ in ("interpreter", "extension module"):
        module = remaining[-1].module if remaining else ""
        while remaining and remaining[-1].module == module:
            remaining.pop()
    return [where.frame for where in remaining if not _EXTENSION.search(where.module)]


def stack(frames: Sequence[str], places: Mapping[str, FrameInfo]) -> list[FrameInfo]:
    """Return the places of frames that were selected, innermost first, with those inlined into."""
    places_found = []
    for frame in select_frames(frames):
        where = places.get(frame) or parse(frame)
        places_found += [where, *where.around]
    return places_found


#: Libraries that only pass calls on: they begin threads, or call what they were given.
PASS_ON = (
    "libc.",
    "libc-",
    "libpthread",
    "ld-",
    "libgomp.",
    "libomp.",
    "libiomp",
    "libstdc++.",
    "libffi.",
)


@dataclass(frozen=True)
class CallPath:
    """Where a call is, in at most four frames; None where there is none of its own.

    ``at``: the innermost function with a name, and ``place`` as text; ``caller``: what called
    that; ``entry``: the function of a library that the program called, by the name that the
    program calls, as functions that end in a call of another leave no frame; ``own``: the innermost
    frame of the program around it. ``library``: a library is among the callers, or is ``at``.
    """

    at: FrameInfo
    place: str
    caller: FrameInfo | None = None
    entry: FrameInfo | None = None
    own: FrameInfo | None = None
    library: bool = False

    def around(self) -> list[FrameInfo]:
        """Return the frames around the innermost one, inner ones first."""
        return [where for where in (self.caller, self.entry, self.own) if where is not None]

    def callers(self) -> list[str]:
        """Return the frames around the innermost one as text."""
        return [where.name for where in self.around()]

    def within(self, room: int) -> str:
        """Return as much of the path as fits a number of characters, the place in any case."""
        texts = (" < ".join([self.place, *names]) for names in self._shorter())
        return next((text for text in texts if len(text) <= room), self.place)

    def _shorter(self) -> Iterator[list[str]]:
        """Yield the callers as text, then fewer of them, those that tell least left out first."""
        few = (self.entry, self.own) if self.own is not None else (self.caller or self.entry,)
        for choice in (self.around(), few, few[-1:], few[:1]):
            frames = [where for where in choice if where is not None]
            if frames:
                names = [where.name for where in frames]
                yield names
                yield [*names[:-1], frames[-1].function or names[-1]]


def call_path(stack: Sequence[FrameInfo]) -> CallPath | None:
    """Return the frames of a p3s.capture.callpath.stack that matter, None for an empty one."""
    if not stack:
        return None
    at, *outer = _drop_nameless(stack)
    frames = [at, *(where for where in outer if not where.module.startswith(PASS_ON))]
    program = _program(stack)
    caller, entry, user = frames[1] if len(frames) > 1 else None, None, None
    library = next((i for i, w in enumerate(frames) if w.module not in ("", program)), None)
    if library is not None:
        end = library
        while end < len(frames) and frames[end].module != program:
            end += 1
        entry = _entry(frames[end - 1], frames[end] if end < len(frames) else None)
        entry = None if entry == at else entry
        user = frames[end] if end < len(frames) and frames[end].function else None
    named = at.function or (entry is not None and entry.function)
    if caller in (entry, user) or (named and caller is not None and not caller.function):
        caller = None
    return CallPath(
        at, str(at) if at is stack[0] else at.name, caller, entry, user, library is not None
    )


def _entry(outermost: FrameInfo, caller: FrameInfo | None) -> FrameInfo:
    """Return the function of a library that the program called, given the frames on both sides."""
    if caller is None or caller.calls in ("", outermost.function):
        return outermost
    return FrameInfo(f"{caller.frame} {caller.calls}", outermost.module, caller.calls)


def _drop_nameless(stack: Sequence[FrameInfo]) -> list[FrameInfo]:
    """Return a stack without functions that have no name, where one around them in the same module
    has one."""
    named_frames: list[FrameInfo] = []
    module, named = None, False
    for where in reversed(stack):
        named = (named and where.module == module) or bool(where.function)
        module = where.module
        if where.function or not named:
            named_frames.append(where)
    return named_frames[::-1]


def _program(stack: Sequence[FrameInfo]) -> str:
    """Return the module of the program, that of the outermost frame; empty: it is Python's."""
    return next(
        (w.module for w in reversed(stack) if not w.module.startswith(PASS_ON)), stack[-1].module
    )
