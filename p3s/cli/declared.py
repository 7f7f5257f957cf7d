"""Options and arguments of commands, with the same words with every version of typer."""

from __future__ import annotations

from typing import Any

import typer


def option(default: Any, words: str, help: str, **more: Any) -> Any:
    """Return an option of a command; ``words``: its names and value as help has them.

    As in "-n --counts COUNTS"; a flag has no value. An empty default is not shown.
    """
    *names, value = words.split()
    if value.startswith("-"):
        names, value = [*names, value], ""
    return typer.Option(
        default, *names, help=help, metavar=value or None, show_default=bool(default), **more
    )


def argument(metavar: str, help: str, default: Any = ...) -> Any:
    """Return an argument of a command; without a default it must be there."""
    return typer.Argument(default, metavar=metavar, help=help)
