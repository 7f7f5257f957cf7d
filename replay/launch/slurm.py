"""Batch scripts for Slurm: a replay on nodes of its own."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from p3s.errors import P3SError

#: Slurm's --time: minutes, [days-]hours:minutes:seconds, and the forms between.
TIME = re.compile(r"(\d+-)?\d+(:\d+){0,2}", re.ASCII)
_WORD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.,:@%+=/-]*", re.ASCII)
_TIMEOUT_S = 60.0
_JOB = re.compile(r"(\d+)(?:;.*)?", re.ASCII)


@dataclass(frozen=True)
class Batch:
    """A batch job: nodes, Slurm's time limit, where its output goes, and other options.

    ``options``: further ``#SBATCH`` words such as ``--constraint=rome``.
    """

    name: str
    nodes: int
    time: str
    output: Path
    partition: str = ""
    account: str = ""
    options: tuple[str, ...] = ()


def time_limit(seconds: float) -> str:
    """Return a number of seconds as Slurm's hours:minutes:00, rounded up to a minute."""
    minutes = max(-(-int(seconds) // 60), 1)
    return f"{minutes // 60}:{minutes % 60:02d}:00"


def batch_script(batch: Batch, commands: Sequence[Sequence[str]], directory: Path) -> str:
    """Return a batch script that executes commands in a directory, the first failure last.

    The nodes are the job's own: what else ran on them would be measured, too. Exit codes 3 (partly
    measured) are handed on when the other commands succeed. Errors: P3SError for options that
    would not be one word of Slurm's.
    """
    settings = [
        f"--job-name={_checked('job name', batch.name)}",
        f"--nodes={batch.nodes}",
        "--exclusive",
    ]
    if not TIME.fullmatch(batch.time):
        raise P3SError(f"--time {batch.time}: not a time of Slurm's; write minutes or h:mm:ss")
    settings.append(f"--time={batch.time}")
    if batch.partition:
        settings.append(f"--partition={_checked('--partition', batch.partition)}")
    if batch.account:
        settings.append(f"--account={_checked('--account', batch.account)}")
    for option in batch.options:
        if not option.startswith("--") or not _WORD.fullmatch(option[2:]):
            raise P3SError(
                f"--sbatch {option[:60]!r}: write one option with its value, for "
                "example --sbatch=--constraint=rome"
            )
        settings.append(option)
    settings.append(f"--output={_quoted(_pattern(batch.output))}")
    lines = [
        "#!/bin/bash",
        *(f"#SBATCH {setting}" for setting in settings),
        "",
        f"cd {shlex.quote(_plain(directory))} || exit 1",
        "code=0",
    ]
    for words in commands:
        lines.append(
            f"{shlex.join(words)} || {{ last=$?; [ $last -eq 3 ] || exit $last; code=$last; }}"
        )
    return "\n".join([*lines, "exit $code", ""])


def _checked(what: str, word: str) -> str:
    if not _WORD.fullmatch(word):
        raise P3SError(f"{what} {word[:60]!r}: not a name that Slurm takes")
    return word


def _plain(path: Path) -> str:
    """Return a path without what would end a line of the script."""
    text = str(path)
    if not text.isprintable():
        raise P3SError(
            f"{text[:60]!r}: a path with such characters cannot be written into a batch script"
        )
    return text


def _pattern(path: Path) -> str:
    """Return a path as a file name pattern of Slurm; the job's number comes in for %j."""
    return _plain(path.parent).replace("%", "%%") + os.sep + path.name


def _quoted(text: str) -> str:
    if '"' in text or "\\" in text:
        raise P3SError(
            f"{text[:60]!r}: a path with such characters cannot be written into a batch script"
        )
    return f'"{text}"' if " " in text else text


def submit(script: Path) -> int:
    """Hand a batch script to sbatch and return the number of the job. Errors: P3SError."""
    try:
        done = subprocess.run(
            ["sbatch", "--parsable", str(script)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=_TIMEOUT_S,
            start_new_session=True,
        )
    except FileNotFoundError as err:
        raise P3SError(
            "sbatch: not found on PATH; submit the script on a node that has Slurm, or "
            "replay with --hosts"
        ) from err
    except (OSError, subprocess.SubprocessError) as err:
        raise P3SError(f"sbatch {script}: {' '.join(str(err).split())[:160]}") from err
    found = _JOB.fullmatch(done.stdout.strip())
    if done.returncode or found is None:
        said = " ".join((done.stderr or done.stdout).split())[:200] or f"exit {done.returncode}"
        raise P3SError(f"sbatch {script}: {said}")
    return int(found[1])
