"""``p3s help``: the usual commands, all of them, or the help of one."""

from __future__ import annotations

import typer

from p3s.base.errors import UsageError
from p3s.cli.common import out
from p3s.cli.helptext import SHOW_ALL


def help_(context: typer.Context, words: list[str], every: bool) -> int:
    """Show the usual commands, all of them, or the help of one."""
    at = context.find_root()
    at.meta[SHOW_ALL] = every
    for word in words or []:
        command = at.command.get_command(at, word) if hasattr(at.command, "get_command") else None
        if command is None:
            raise UsageError(f"{word}: no command of {at.command_path}; p3s help --all shows them")
        at = type(at)(command, info_name=word, parent=at)
    out(at.get_help())
    return 0
