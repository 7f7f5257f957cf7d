"""Extents of the process grid in a launcher command: {px}, {py}, {pz} beside {np}."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from p3s.base.errors import UsageError

#: Placeholders for the extents of the process grid, the first dimension first.
EXTENTS = ("px", "py", "pz", "pt")


#: The process count, or what is left of it for one of several programs: {np-1}, {np/2}.
_COUNT = re.compile(r"\{np(?:([-+*/])(\d{1,7}))?\}")


def names_count(words: Sequence[str]) -> bool:
    """Tell whether a launcher command has a place for the process count."""
    return any(_COUNT.search(word) for word in words)


def with_count(words: Sequence[str], np: int) -> list[str]:
    """Return a launcher command with the process count in place.

    Raises UsageError where one of its programs would get no whole number of processes above 0.
    """

    def number(match: re.Match[str]) -> str:
        sign, by = match[1], int(match[2] or 0)
        of = {None: np, "-": np - by, "+": np + by, "*": np * by, "/": np // by if by else 0}[sign]
        if of < 1 or (sign == "/" and of * by != np):
            raise UsageError(f"{match[0]}: is no number of processes at {np}")
        return str(of)

    return [_COUNT.sub(number, word) for word in words]


def shape(extents: Sequence[int]) -> str:
    """Return the extents of a grid for people: ``4x2x2``."""
    return "x".join(map(str, extents))


def extents_in(template: Sequence[str]) -> tuple[str, ...]:
    """Return the extents of the process grid that a launcher command asks for, in their order."""
    return tuple(name for name in EXTENTS if any(f"{{{name}}}" in word for word in template))


def extents_at(
    template: Sequence[str], np: int, listed: Mapping[int, tuple[int, ...]]
) -> tuple[int, ...]:
    """Return the extents of the process grid that the program gets at ``np`` ranks.

    ``listed``: extents by count; at others they are as MPI_Dims_create deals them, the largest
    first. Empty for a command that asks for none.
    """
    ndims = len(extents_in(template))
    if not ndims:
        return ()
    from p3s.base.extents import dims_balanced

    return listed.get(np) or dims_balanced(np, ndims)


def with_extents(
    template: Sequence[str], np: int, listed: Mapping[int, tuple[int, ...]] | None = None
) -> list[str]:
    """Return a launcher command with the extents of the process grid in place; {np} stays."""
    extents = extents_at(template, np, listed or {})
    words = list(template)
    for name, extent in zip(extents_in(template), extents, strict=True):
        words = [word.replace(f"{{{name}}}", str(extent)) for word in words]
    return words


def extents_of(template: Sequence[str], argv: Sequence[str]) -> tuple[int, ...]:
    """Return the extents of the process grid in the arguments of a run of a launcher command.

    Empty for a command that asks for none. Raises UsageError where these are other arguments.
    """
    found: dict[str, int] = {}
    for word, argument in zip(reversed(template), reversed(argv), strict=False):
        parts = re.split(rf"\{{({'|'.join(EXTENTS)})\}}", word)  # every second one is a name
        pattern = "".join(r"(\d+)" if k % 2 else re.escape(part) for k, part in enumerate(parts))
        match = re.fullmatch(pattern, argument) if len(parts) > 1 else None
        found.update(zip(parts[1::2], map(int, match.groups() if match else ()), strict=False))
    names = extents_in(template)
    if any(name not in found for name in names):
        raise UsageError(f"{' '.join(argv)[:80]}: are no arguments of {' '.join(template)[:80]}")
    return tuple(found[name] for name in names)
