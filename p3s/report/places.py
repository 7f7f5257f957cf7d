"""Where calls and phases are in a program, in few words."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from p3s.base.text import NOT_KNOWN, visible
from p3s.capture.callpath import FrameInfo, call_path, stack

if TYPE_CHECKING:
    from p3s.model.types import Model, Phase  # takes longer than all that `p3s phases` needs

Places = Mapping[str, FrameInfo]
#: So many functions of libraries are named in the place of a phase.
_MOST_ENTRIES = 3


# ---- one call
def call_place(frames: Sequence[str], places: Places) -> tuple[str, str]:
    """Return the place of a call and what it is called from, as text; empty where unknown."""
    path = call_path(stack(frames, places))
    return (path.place, " < ".join(path.callers())) if path is not None else ("?", "")


# ---- several calls
def joined_places(sites: Iterable[Sequence[str]], places: Places) -> str:
    """Return the places of several calls: one function with its lines, else the first and more;
    then where all of them are called from."""
    paths = [path for path in (call_path(stack(frames, places)) for frames in sites) if path]
    if not paths:
        return "?"
    firsts = [path.at for path in paths]
    place = lines_of(firsts)
    if not place:
        place = paths[0].place
        others = len({path.place for path in paths}) - 1
        place += f" and {others} more" if others else ""
    return " < ".join([place, *_common_end([[path.at, *path.around()] for path in paths])])


def lines_of(wheres: Sequence[FrameInfo]) -> str:
    """Return one function with the lines of several frames in it; empty where that is not so."""
    lines = [where.line for where in wheres]
    if len({(w.function, w.file) for w in wheres}) > 1 or not all(lines) or len(set(lines)) == 1:
        return ""
    first = wheres[lines.index(min(lines))].name
    return f"{first}-{max(lines)}"


def _common_end(paths: Sequence[Sequence[FrameInfo]]) -> list[str]:
    """Return what all paths end with, lines of one function together, without the beginning of
    the first of them."""
    found: list[str] = []
    for wheres in zip(*(reversed(path) for path in paths), strict=False):
        names = {where.name for where in wheres}
        name = names.pop() if len(names) == 1 else lines_of(wheres)
        if not name or len(found) == len(paths[0]) - 1:
            break
        found.insert(0, name)
    return found


def phase_places(model: Model, places: Places) -> dict[str, str]:
    """Return where the calls of each phase are: their innermost common function with its lines.

    By the number of the phase, as text. Phases whose place has no name are left out.
    """
    found = {str(p.phase): _phase_place(model, p, places) for p in model.phases}
    return {number: place for number, place in found.items() if place}


def phase_place(model: Model, phase: Phase, places: Places) -> str:
    """Return where the loop of a phase is; empty where it is none or its place has no name."""
    return _phase_place(model, phase, places) if phase.parent is not None else ""


def _phase_place(model: Model, phase: Phase, places: Places) -> str:
    sites = dict.fromkeys(model.items[i].site for i in phase.items)
    calls = [model.sites[site] for site in sites if model.sites.get(site)]
    place, known = common_place(calls, places)
    return place if known else ""


def common_place(
    calls: Iterable[Sequence[str]], places: Places, room: int = 160
) -> tuple[str, bool]:
    """Return the innermost function around calls, given by their frames, with their lines.

    Of a library also where it is called from, as far as there is room; of a program that makes
    all of the calls through libraries also their functions that it calls. The second tells whether
    the function has a name.
    """
    stacks = [stack(frames, places) for frames in calls]
    alike, around = _innermost(stacks)
    path = call_path([*alike[:1], *around])
    if path is None:
        return NOT_KNOWN, False
    place = (path.at is alike[0] and lines_of(alike)) or path.at.name
    if path.library:
        text = replace(path, place=place).within(room)
    else:
        text = " < ".join([*_entries(stacks), place])
    return visible(text, 160), bool(path.at.function or path.at.line)


def _entries(stacks: Iterable[Sequence[FrameInfo]]) -> list[str]:
    """Return the functions of libraries that a program calls, as one text; none where some of its
    calls are not in a library."""
    paths = [path for path in map(call_path, stacks) if path is not None]
    found = [path.entry or path.at for path in paths if path.library]
    names = list(dict.fromkeys(where.function for where in found))
    if len(found) < len(paths) or not all(names):
        return []
    more = f" and {len(names) - _MOST_ENTRIES} more" if len(names) > _MOST_ENTRIES else ""
    return [", ".join(names[:_MOST_ENTRIES]) + more]


def _innermost(stacks: Iterable[Sequence[FrameInfo]]) -> tuple[list[FrameInfo], list[FrameInfo]]:
    """Return the frames of stacks in the innermost function around all of them, the one with the
    lowest line first, and the frames around that function, inner ones first."""
    outer = [found[::-1] for found in stacks if found]
    if not outer:
        return [], []
    depth, shortest = 0, min(map(len, outer))
    while depth < shortest - 1 and len({found[depth].frame for found in outer}) == 1:
        depth += 1
    frames = [found[depth] for found in outer]
    [(name, _)] = Counter((where.function, where.file) for where in frames).most_common(1)
    alike = [where for where in frames if (where.function, where.file) == name]
    alike.sort(key=lambda where: where.line or sys.maxsize)
    return alike, list(outer[0][:depth][::-1])
