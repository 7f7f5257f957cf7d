"""Where the calls of a study are in its program: function, file and line of every frame."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from p3s.errors import P3SError
from p3s.study import Study
from p3s.trace.source import Where, stack


def resolve_sites(
    study: Study, sites: Mapping[str, Sequence[str]], more: Sequence[Path] = ()
) -> tuple[dict[str, Where], list[str]]:
    """Return the place of every frame, and what could not be resolved, a sentence per module.

    ``more`` are directories in which the program and its libraries are looked for too.
    """
    from p3s.trace.modules import Modules
    from p3s.trace.source import resolve, shown

    programs, started = _of_runs(study)
    root = study.root.resolve()
    where = Modules([*programs, *_command(study)], [*started, Path.cwd(), root.parent, root],
                    list(more))
    frames = dict.fromkeys(f for frames in sites.values() for f in shown(frames))
    return resolve(frames, where, _traced_ns(study))


def _command(study: Study) -> list[str]:
    try:
        return study.command()
    except P3SError:  # a study put together from runs that do not say it
        return []


def _of_runs(study: Study) -> tuple[list[str], list[Path]]:
    """Return the programs that were run, by absolute path, and the directories this was done in."""
    from p3s.family import sources

    infos = [run.info for each in (study, *sources(study)) for run in each.runs()]
    programs, started = ([word for info in infos if isinstance(word := info.get(key), str)]
                         for key in ("program", "directory"))
    return list(dict.fromkeys(programs)), [Path(word) for word in dict.fromkeys(started)]


def _traced_ns(study: Study) -> int | None:
    """Return when the first of the runs was made."""
    times = []
    for run in study.runs():
        try:
            times.append((run.path / "run.json").stat().st_mtime_ns)
        except OSError:
            continue
    return min(times, default=None)


def phase_places(model: Mapping[str, Any], places: Mapping[str, Where]) -> dict[int, str]:
    """Return where the calls of each phase are: their innermost common function with its lines.

    Phases whose place is not known in the program's source are left out.
    """
    from p3s.report.phase_table import place_of

    found = {}
    for phase in model["phases"]:
        sites = dict.fromkeys(model["items"][i]["site"] for i in phase["items"])
        place = place_of([model["sites"][site] for site in sites if model["sites"].get(site)],
                         places)
        if ":" in place:
            found[int(phase["phase"])] = place
    return found


def call_place(frames: Sequence[str], places: Mapping[str, Where]) -> tuple[str, str]:
    """Return the place of a call and that of its caller, as text; empty where there is none."""
    found = stack(frames, places)
    return (str(found[0]) if found else "?", str(found[1]) if len(found) > 1 else "")


def joined_places(sites: Iterable[Sequence[str]], places: Mapping[str, Where]) -> str:
    """Return the places of several calls: one function with its lines, else the first and more."""
    stacks = [stack(frames, places) for frames in sites]
    firsts = [found[0] for found in stacks if found]
    if not firsts:
        return "?"
    place = str(firsts[0])
    lines = [where.line for where in firsts]
    if len({(w.function, w.file) for w in firsts}) == 1 and all(lines) and min(lines) < max(lines):
        place = f"{place.rpartition(':')[0]}:{min(lines)}-{max(lines)}"
    elif len({str(w) for w in firsts}) > 1:
        place += f" and {len({str(w) for w in firsts}) - 1} more"
    callers = dict.fromkeys(str(found[1]) for found in stacks if len(found) > 1)
    if len(callers) == 1:
        place += f" < {next(iter(callers))}"
    return place
