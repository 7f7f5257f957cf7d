"""The frames of a call stack that tell people where a call is.

A library makes most of its calls deep inside, in functions that nobody but its authors knows. What
a user knows is the function of the library that her program called, and the line of the program.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from p3s.capture.frames import Where

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

    at: Where
    place: str
    caller: Where | None = None
    entry: Where | None = None
    own: Where | None = None
    library: bool = False

    def around(self) -> list[Where]:
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


def call_path(stack: Sequence[Where]) -> CallPath | None:
    """Return the frames of a p3s.capture.frames.stack that matter, None for an empty one."""
    if not stack:
        return None
    at, *outer = _named(stack)
    kept = [at, *(where for where in outer if not where.module.startswith(PASS_ON))]
    program = _program(stack)
    caller, entry, own = kept[1] if len(kept) > 1 else None, None, None
    library = next((i for i, w in enumerate(kept) if w.module not in ("", program)), None)
    if library is not None:
        end = library
        while end < len(kept) and kept[end].module != program:
            end += 1
        entry = _entry(kept[end - 1], kept[end] if end < len(kept) else None)
        entry = None if entry == at else entry
        own = kept[end] if end < len(kept) and kept[end].function else None
    named = at.function or (entry is not None and entry.function)
    if caller in (entry, own) or (named and caller is not None and not caller.function):
        caller = None
    return CallPath(
        at, str(at) if at is stack[0] else at.name, caller, entry, own, library is not None
    )


def _entry(outermost: Where, own: Where | None) -> Where:
    """Return the function of a library that the program called, given the frames on both sides."""
    if own is None or own.calls in ("", outermost.function):
        return outermost
    return Where(f"{own.frame} {own.calls}", outermost.module, own.calls)


def _named(stack: Sequence[Where]) -> list[Where]:
    """Return a stack without functions that have no name, where one around them in the same module
    has one."""
    kept: list[Where] = []
    module, named = None, False
    for where in reversed(stack):
        named = (named and where.module == module) or bool(where.function)
        module = where.module
        if where.function or not named:
            kept.append(where)
    return kept[::-1]


def _program(stack: Sequence[Where]) -> str:
    """Return the module of the program, that of the outermost frame; empty: it is Python's."""
    return next(
        (w.module for w in reversed(stack) if not w.module.startswith(PASS_ON)), stack[-1].module
    )
