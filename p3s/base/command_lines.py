"""Command lines of a study: its launcher, where it was run, and lines that work from here."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from p3s.base.errors import P3SError
from p3s.base.study import Study
from p3s.base.text import command_line


def listed(counts: int | Sequence[int]) -> str:
    """Return counts as -n takes them."""
    return str(counts) if isinstance(counts, int) else ",".join(map(str, counts))


def launcher(study: Study) -> list[str]:
    """Return the study's launcher command; of one that does not know it what it looks like."""
    try:
        return study.command()
    except P3SError:  # put together from runs that do not say it
        return ["mpiexec", "-n", "{np}", "PROGRAM"]


def arguments(study: Study) -> str:
    """Return the arguments of the study's program, which say what its input is."""
    words = launcher(study)
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


def elsewhere(study: Study) -> Path | None:
    """Return where the study's command was run, None if that is here, not known, or gone."""
    from p3s.base.settings import sources

    try:
        command = study.command()
    except P3SError:
        return None
    runs = [
        run for run in [*study.runs(), *study.timed_runs()] if run.info.get("command") == command
    ]
    # a value of a parameter that was not traced: as the others
    runs = runs or [run for each in sources(study) for run in each.runs()]
    runs = [run for run in runs if run.info.get("directory")]
    if not runs:
        return None
    latest = max(runs, key=lambda run: (run.path / "run.json").stat().st_mtime_ns)
    there = Path(str(latest.info["directory"]))
    return there if there.is_dir() and not there.samefile(Path.cwd()) else None


def study_root(study: Study) -> str:
    """Return the study's directory as a command that is run where the others were names it."""
    return str(study.root if elsewhere(study) is None else study.root.resolve())


def shown(study: Study, words: Sequence[str]) -> str:
    """Return a command with the study's launcher as a line that works from here.

    A relative name in the study's command is one from where that was run.
    """
    there = elsewhere(study)
    line = command_line(words)
    return line if there is None else f"(cd {shlex.quote(str(there))} && {line})"


def another_value(study: Study) -> str:
    """Return the command that traces another value of a study's parameters, as a line.

    A value with too few counts comes first; else one that is twice the largest.
    """
    from p3s.base.settings import MIN_COUNTS, setting_name, settings_in

    traced = settings_in(study)
    counts = sorted({n for _, at in traced for n in at.complete_counts()}) or [2]
    while len(counts) < MIN_COUNTS:
        counts.append(2 * counts[-1])
    few = [s for s, at in traced if len(at.signature_counts()) < MIN_COUNTS]
    largest = {name: 2 * max(s[name] for s, _ in traced) for name in traced[0][0]} if traced else {}
    words = setting_name(few[0] if few else largest).split(",")
    at = traced[-1][1] if traced else study
    root = study.root if elsewhere(at) is None else study.root.resolve()
    return shown(
        at,
        [
            "p3s",
            "characterize",
            "-n",
            listed(counts),
            *(word for each in words for word in ("--param", each) if each),
            "-o",
            str(root),
            "--",
            *launcher(study),
        ],
    )
