"""Where the calls of a study are in its program: function, file and line of every frame."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from p3s.base.errors import P3SError
from p3s.base.settings import sources
from p3s.base.study import Study
from p3s.capture.callpath import Where


def resolve_sites(
    study: Study, sites: Mapping[str, Sequence[str]], more: Sequence[Path] = ()
) -> tuple[dict[str, Where], list[str]]:
    """Return the place of every frame, and what could not be resolved, a sentence per module.

    ``more`` are directories in which the program and its libraries are looked for too.
    """
    from p3s.capture.callpath import shown
    from p3s.capture.modules import Modules
    from p3s.capture.source import resolve

    programs, started = _of_runs(study)
    root = study.root.resolve()
    where = Modules(
        [*programs, *_command(study)], [*started, Path.cwd(), root.parent, root], list(more)
    )
    frames = dict.fromkeys(f for frames in sites.values() for f in shown(frames))
    return resolve(frames, where, traced_ns(study))


@dataclass(frozen=True)
class Chains:
    """The call stacks of sites, innermost frame first.

    lines: functions and lines, of the sites where debug information has any; functions: the
    functions (modules, where there are no symbols) alone, of all.
    """

    lines: dict[str, tuple[str, ...]]
    functions: dict[str, tuple[str, ...]]


def chains(study: Study, sites: Mapping[str, Sequence[str]]) -> Chains:
    """Return the call stacks of sites as chains of functions, with lines where these are known.

    A frame without a line stands for itself; inlined functions are frames of their own.
    """
    from p3s.capture.callpath import parse

    places, _ = resolve_sites(study, sites)
    out = Chains({}, {})
    for site, frames in sites.items():
        stack = [places.get(frame) or parse(frame) for frame in frames]
        whole = [each for where in stack for each in (where, *where.around)]
        if any(where.line for where in whole):
            out.lines[site] = tuple(_identity(where) for where in whole)
            stack = whole
        out.functions[site] = tuple(where.function or where.module for where in stack)
    return out


def programs_of(study: Study) -> list[str]:
    """Return what may be the program's own file: what was run, and the words of the command."""
    return [*_of_runs(study)[0], *_command(study)]


def _identity(where: Where) -> str:
    if not where.line or where.python:
        return where.frame
    return f"{where.module} {where.function} {where.file}:{where.line}"


def _command(study: Study) -> list[str]:
    try:
        return study.command()
    except P3SError:  # a study put together from runs that do not say it
        return []


def _of_runs(study: Study) -> tuple[list[str], list[Path]]:
    """Return the programs that were run, by absolute path, and the directories this was done in."""
    infos = [run.info for each in (study, *sources(study)) for run in each.runs()]
    programs, started = (
        [word for info in infos if isinstance(word := info.get(key), str)]
        for key in ("program", "directory")
    )
    return list(dict.fromkeys(programs)), [Path(word) for word in dict.fromkeys(started)]


def traced_ns(study: Study) -> int | None:
    """Return when the first of the runs was made."""
    times = []
    for run in study.runs():
        try:
            times.append((run.path / "run.json").stat().st_mtime_ns)
        except OSError:
            continue
    return min(times, default=None)
