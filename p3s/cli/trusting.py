"""Whether the command of a study that somebody else has made may be run."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import typer

from p3s.base.errors import P3SError, UsageError
from p3s.base.text import command_line
from p3s.cli.common import quoted, say
from p3s.pipeline.records import opened


def settle(root: Path, words: Sequence[str], directory: Path, trusted: bool) -> None:
    """Return if the study's own command may be run in a directory; what is allowed is remembered.

    It may when this user has run it there, or allows it now: with --trust, or on a terminal.
    Errors: UsageError otherwise, which says what would be run.
    """
    from p3s.base.trust import allow, is_own

    study, where = opened(root), str(directory)
    why = ""
    try:
        if is_own(study, words, where):
            return
    except P3SError as err:  # the user's key cannot be used
        why = f" ({err})"
    line = f"{command_line(words)}, in {quoted(directory)}"
    if not trusted and not _asked(root, line + why):
        raise UsageError(
            f"{root}: was not made by you on this machine{why}, and its command is run: "
            f"{line}; if you know what that does, add --trust, or give the command after --"
        )
    allow(study, words, where)


def _asked(root: Path, line: str) -> bool:
    """Ask on a terminal whether a command may be run; False where there is none."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    say(f"{root}: was not made by you on this machine. This would run its command:")
    say(f"  {line}")
    return typer.confirm("Run it?", default=False, err=True)
