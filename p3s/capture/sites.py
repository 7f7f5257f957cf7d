"""Where the calls of a study are in its program: function, file and line of every frame."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from p3s.base.artefacts import changed_ns
from p3s.base.records import Traces
from p3s.base.text import join_words
from p3s.capture.callpath import FrameInfo, parse, select_frames
from p3s.capture.lines import lines_of, reader
from p3s.capture.modules import Modules

if TYPE_CHECKING:
    from p3s.capture.elf import Binary


def resolve_sites(
    traces: Traces, sites: Mapping[str, Sequence[str]], more: Sequence[Path] = ()
) -> tuple[dict[str, FrameInfo], list[str]]:
    """Return the place of every frame, and what could not be resolved, a sentence per module.

    ``more`` are directories in which the program and its libraries are looked for too.
    """
    root = traces.root.resolve()
    started = map(Path, _said_by_runs(traces, "directory"))
    where = Modules(programs_of(traces), [*started, Path.cwd(), root.parent, root], list(more))
    frames = dict.fromkeys(f for frames in sites.values() for f in select_frames(frames))
    return resolve(frames, where, traced_ns(traces))


@dataclass(frozen=True)
class Chains:
    """The call stacks of sites, innermost frame first.

    lines: functions and lines, of the sites where debug information has any; functions: the
    functions (modules, where there are no symbols) alone, of all.
    """

    lines: dict[str, tuple[str, ...]]
    functions: dict[str, tuple[str, ...]]


def chains(traces: Traces, sites: Mapping[str, Sequence[str]]) -> Chains:
    """Return the call stacks of sites as chains of functions, with lines where these are known.

    A frame without a line stands for itself; inlined functions are frames of their own.
    """
    places, _ = resolve_sites(traces, sites)
    out = Chains({}, {})
    for site, frames in sites.items():
        stack = [places.get(frame) or parse(frame) for frame in frames]
        whole = [each for where in stack for each in (where, *where.around)]
        if any(where.line for where in whole):
            out.lines[site] = tuple(_identity(where) for where in whole)
            stack = whole
        out.functions[site] = tuple(where.function or where.module for where in stack)
    return out


def programs_of(traces: Traces) -> list[str]:
    """Return what may be the program's own file: what was run, and the words of the command."""
    return [*_said_by_runs(traces, "program"), *traces.command]


def _said_by_runs(traces: Traces, key: str) -> list[str]:
    """Return the texts that runs say of themselves under a key, each once."""
    infos = [run.info for each in (traces, *traces.sources) for run in each.runs]
    return list(dict.fromkeys(w for info in infos if isinstance(w := info.get(key), str)))


def _identity(where: FrameInfo) -> str:
    if not where.line or where.python:
        return where.frame
    return f"{where.module} {where.function} {where.file}:{where.line}"


def traced_ns(traces: Traces) -> int | None:
    """Return when the first of the runs was made."""
    times = [changed_ns(run.path / "run.json") for run in traces.runs]
    return min(filter(None, times), default=None)


def resolve(
    frames: Iterable[str], modules: Modules, traced_ns: int | None = None
) -> tuple[dict[str, FrameInfo], list[str]]:
    """Return each frame's place, and what could not be resolved, a sentence for modules alike.

    ``traced_ns`` is when the program was traced (as st_mtime_ns): a module written later is
    another one. So is one in which a return address does not follow a call. Both are then shown
    as module and offset.
    """
    from p3s.capture.elf import Binary

    places = {frame: parse(frame) for frame in frames}
    by_module: dict[str, list[FrameInfo]] = {}
    for where in places.values():
        if where.module:
            by_module.setdefault(where.module, []).append(where)
    notes: dict[str, str] = {}
    for program in modules.programs():
        with contextlib.suppress(OSError, ValueError), Binary(program) as binary:
            modules.also(binary.search_path())
    todo = sorted(by_module)
    while todo:  # a module may know where others are: ask again for those not found
        later: list[str] = []
        for name in todo:
            path = modules.find(name)
            if path is None:
                later.append(name)
                continue
            resolved, note = _in_module(path, by_module[name], modules, traced_ns)
            places.update(resolved)
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
    return places, [f"{join_words(names)}: {note}" for note, names in alike.items()]


def _in_module(
    path: Path, wheres: Sequence[FrameInfo], modules: Modules, traced_ns: int | None
) -> tuple[dict[str, FrameInfo], str]:
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
            lines = lines_of(path, (where.offset - 1 for where in wheres))
            placed = [_locate_frame(binary, where, lines.get(where.offset - 1)) for where in wheres]
            known_places = {w.frame: w for w in placed if w.function or w.line or w.calls}
            bare = sum(not (where.function or where.line) for where in placed)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        return {}, f"{path}: {why}, so its calls are addresses"
    return known_places, _missing(bare, len(wheres), bool(lines), modules.of_system(path))


def _locate_frame(binary: Binary, where: FrameInfo, line: FrameInfo | None) -> FrameInfo:
    """Return a frame's place in its file, given what debug information says of it."""
    symbol = None
    if line is None or not line.function:
        symbol = binary.symbol(where.offset - 1)
    name, start = symbol if symbol is not None else ("", 0)
    calls = binary.calls(where.offset)
    if line is None or not (line.line or line.function):
        return replace(where, function=name, offset=where.offset - start, calls=calls)
    return replace(
        line,
        frame=where.frame,
        module=where.module,
        function=line.function or name,
        offset=where.offset - start if symbol else where.offset,
        # There is no address of their own: the place stands for it.
        around=tuple(
            replace(each, frame=f"{each.function} {each.file}:{each.line}", module=where.module)
            for each in line.around
        ),
        calls=calls,
    )


def _missing(bare: int, calls: int, lines: bool, of_system: bool) -> str:
    """Say what a module lacks, and what helps: a library of the system cannot be compiled anew."""
    if bare and (bare == calls or not of_system):
        which = "its" if bare == calls else f"{bare} of its {calls}"
        helps = (
            "install its debug symbols to see functions"
            if of_system
            else "compile with -g to see functions and lines"
        )
        return f"{which} calls are addresses, as it has no symbols for them; {helps}"
    if lines or of_system:
        return ""
    if reader() is None:
        return "source lines are not read, as there is no addr2line; install binutils"
    return "no debug information; compile with -g to see source lines and inlined functions"
