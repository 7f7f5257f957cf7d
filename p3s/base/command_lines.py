"""Command lines of a study: its launcher, where it was run, and lines that work from here."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from p3s.base.errors import P3SError
from p3s.base.records import Traces
from p3s.base.text import command_line


def join_counts(counts: int | Sequence[int]) -> str:
    """Return counts as -n takes them."""
    return str(counts) if isinstance(counts, int) else ",".join(map(str, counts))


def arguments(traces: Traces) -> str:
    """Return the arguments of the study's program, which say what its input is."""
    words = traces.launcher
    return command_line(words[len(without_arguments(words)) :])


def without_arguments(words: list[str]) -> list[str]:
    """Return a launcher command up to its program (the script of an interpreter)."""
    from p3s.base.extents import names_count
    from p3s.base.host.command import parse

    if ":" in words:
        return words  # several programs: which arguments make the input is not known
    try:
        program = parse(words, 2, there=False, trusted=False).program
    except P3SError:  # the launcher is not on this machine
        start = next((k + 1 for k, word in enumerate(words) if names_count([word])), len(words) - 1)
        program = tuple(words[start:])
    keep = 1
    if Path(program[0]).name.startswith("python"):
        keep = next((k + 1 for k, word in enumerate(program) if word.endswith(".py")), 1)
    return words[: len(words) - len(program) + keep]


def elsewhere(traces: Traces) -> Path | None:
    """Return where the study's command was run, None if that is here, not known, or gone."""
    command = list(traces.command)
    runs = [run for run in (*traces.runs, *traces.timed) if run.info.get("command") == command]
    # a value of a parameter that was not traced: as the others
    runs = runs or [run for each in traces.sources for run in each.runs]
    runs = [run for run in runs if run.info.get("directory")]
    if not command or not runs:
        return None
    latest = max(runs, key=lambda run: (run.path / "run.json").stat().st_mtime_ns)
    directory = Path(str(latest.info["directory"]))
    return directory if directory.is_dir() and not directory.samefile(Path.cwd()) else None


def study_root(traces: Traces) -> str:
    """Return the study's directory as a command that is run where the others were names it."""
    return str(traces.root if elsewhere(traces) is None else traces.root.resolve())


def render_from_here(traces: Traces, words: Sequence[str]) -> str:
    """Return a command with the study's launcher as a line that works from here.

    A relative name in the study's command is one from where that was run.
    """
    directory = elsewhere(traces)
    line = command_line(words)
    return line if directory is None else f"(cd {shlex.quote(str(directory))} && {line})"
