"""Batch scripts: directives of a scheduler, modules, virtual environment, commands."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from p3s.base.errors import P3SError
from p3s.base.host.schedulers import Job, Scheduler

_MODULE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+/@-]*", re.ASCII)
#: P3S ends with it where something of the work is missing or not to be trusted.
_PARTLY = 3
_WIDTH = 96


@dataclass(frozen=True)
class Surroundings:
    """What commands of a job need: a directory, modules to load, the bin/activate of a venv."""

    directory: Path
    modules: tuple[str, ...] = ()
    activate: Path | None = None


def script(
    scheduler: Scheduler,
    job: Job,
    commands: Sequence[Sequence[str]],
    around: Surroundings,
    before: Sequence[str] = (),
) -> str:
    """Return a batch script that executes commands, the first failure last.

    ``commands``: their words, as a shell reads them; ``before``: lines ahead of them. Exit code 3
    (done in part) of a command does not keep the next ones from being run; it is the script's if
    nothing worse comes. Errors: P3SError for options that the scheduler does not take.
    """
    # Modules are defined for login shells, at least where the job does not get the environment.
    lines = ["#!/bin/bash -l" if around.modules else "#!/bin/bash"]
    lines += [f"{scheduler.prefix} {each}" for each in scheduler.directives(job)]
    lines += ["", "set -e"]
    lines += [f"module load {_module(name)}" for name in around.modules]
    if around.activate is not None:
        lines.append(f". {quoted(around.activate)}")
    # Not before: modules and activate may use variables that are not set.
    lines += ["set -u", f"cd {quoted(around.directory)}", *scheduler.environment(job), *before, ""]
    if len(commands) == 1:
        return "\n".join([*lines, _folded(commands[0]), ""])
    lines += _STEP
    lines += [_folded(["step", *words]) for words in commands]
    return "\n".join([*lines, "exit $partly", ""])


#: What runs one command of several.
_STEP = (
    f"# {_PARTLY}: done in part, and what follows can be done",
    "partly=0",
    "step() {",
    f'    "$@" || {{ code=$?; [ $code -eq {_PARTLY} ] || exit $code; partly=$code; }}',
    "}",
    "",
)


def _folded(words: Sequence[str]) -> str:
    """Return a command on lines that can be read."""
    lines = [words[0]]
    for word in words[1:]:
        if len(lines[-1]) + len(word) < _WIDTH:
            lines[-1] += f" {word}"
        else:
            lines.append(f"    {word}")
    return " \\\n".join(lines)


def of_array(scheduler: Scheduler, counts: Sequence[int]) -> list[str]:
    """Return the lines that set np to the process count of a task of a job array."""
    first = f" - {scheduler.first}" if scheduler.first else ""
    return [f"counts=({' '.join(map(str, counts))})", f"np=${{counts[{scheduler.index}{first}]}}"]


def by_hand(scheduler: Scheduler, scripts: Sequence[Path], last: Path | None) -> str:
    """Return a shell script that hands batch scripts over; ``last`` runs when all have ended."""
    folder = scripts[0].parent
    lines = ["#!/bin/bash", "set -eu -o pipefail", f"cd {quoted(folder)}"]
    names = [f"job{k}" for k in range(1, len(scripts) + 1)]
    for name, path in zip(names, scripts, strict=True):
        lines.append(f"{name}=$({scheduler.by_hand(quoted(Path(path.name)))})")
    lines.append(f'echo "submitted: {" ".join(f"${name}" for name in names)}"')
    if last is not None:
        options = scheduler.after([f"${name}" for name in names])
        after = " ".join([*options[:-1], f'"{options[-1]}"'])
        lines.append(scheduler.by_hand(quoted(Path(last.name)), after))
    return "\n".join([*lines, ""])


def quoted(path: Path) -> str:
    """Return a path as a word of a shell. Errors: P3SError where it would not be one line."""
    text = str(path)
    if not text.isprintable():
        raise P3SError(
            f"{text[:60]!r}: a path with such characters cannot be written into a batch script"
        )
    return shlex.quote(text)


def _module(name: str) -> str:
    if not _MODULE.fullmatch(name):
        raise P3SError(f"--module {name[:60]!r}: not a name of a module")
    return name
