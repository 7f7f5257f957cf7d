"""Writes docs/reference/commands.md: every command with its arguments and options, from the code.

python docs/make/commands_page.py docs/reference/commands.md
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import typer

from p3s.cli.main import app

_HEAD = """# Every command and option

This page is generated: `python docs/make/commands_page.py docs/reference/commands.md`. It says what
`p3s COMMAND --help` says. [Commands](../commands.md) explains how they work together, with the exit
codes and what goes to which stream.
"""


def page() -> str:
    """Return the page."""
    root = typer.main.get_command(app)
    parts = [_HEAD]
    seen: dict[object, str] = {}
    for command, context in _commands(root, click.Context(root, info_name="p3s")):
        first = seen.setdefault(command.callback or command, context.command_path)
        same = first != context.command_path
        parts.append(_other_name(context, first) if same else _section(command, context))
    return re.sub(r"\n{3,}", "\n\n", "\n".join(parts))


def _commands(
    group: click.Command, context: click.Context
) -> Iterator[tuple[click.Command, click.Context]]:
    """Yield the commands in the order of the help, those of a group after it."""
    for name in group.list_commands(context):  # type: ignore[attr-defined]
        command = group.get_command(context, name)  # type: ignore[attr-defined]
        if command is None or command.hidden:
            continue
        inside = click.Context(command, info_name=name, parent=context)
        yield command, inside
        if hasattr(command, "list_commands"):
            yield from _commands(command, inside)


def _other_name(context: click.Context, first: str) -> str:
    return f"## {context.command_path}\n\nThe same as [{first}](#{first.replace(' ', '-')}).\n"


def _section(command: click.Command, context: click.Context) -> str:
    rank = "##" if context.parent and context.parent.parent is None else "###"
    usage = command.get_usage(context).removeprefix("Usage: ")
    parts = [
        f"{rank} {context.command_path}\n",
        _words(command.help or ""),
        f"    {' '.join(usage.split())}\n",
        _table(command, context),
        _epilog(command.epilog or ""),
    ]
    return "\n".join(part for part in parts if part)


def _words(text: str) -> str:
    r"""Return a help text; what stands behind \b keeps its lines."""
    paragraphs = inspect.cleandoc(text).split("\n\n")
    return "".join(f"{_paragraph(each)}\n" for each in paragraphs if each.strip())


def _paragraph(text: str) -> str:
    if text.startswith("\b\n"):
        return "\n" + "\n".join(f"    {line}" for line in text.splitlines()[1:]) + "\n"
    return _escaped(" ".join(text.split())) + "\n"


def _escaped(text: str) -> str:
    """Return text in which nothing is markup."""
    text = re.sub(r"([\\*_\[\]])", r"\\\1", text)
    return text.replace("<", "&lt;").replace(">", "&gt;").replace("|", "&#124;")


def _table(command: click.Command, context: click.Context) -> str:
    rows = [_row(each, context) for each in command.get_params(context) if _shown(each)]
    if not rows:
        return ""
    return "\n".join(["| option | what it does |", "|---|---|", *rows, ""])


def _shown(parameter: click.Parameter) -> bool:
    return not getattr(parameter, "hidden", False) and parameter.name != "help"


def _row(parameter: click.Parameter, context: click.Context) -> str:
    record = parameter.get_help_record(context)
    if record is None:
        name, words = parameter.make_metavar(context), getattr(parameter, "help", "") or ""
    else:
        name, words = record
    return f"| `{name.replace('|', chr(92) + '|')}` | {_escaped(' '.join(words.split()))} |"


def _epilog(text: str) -> str:
    """Return examples as they stand in the help."""
    lines = inspect.cleandoc(text.replace("\b\n", "")).splitlines()
    return "\n".join(f"    {line}" if line else "" for line in lines) + "\n" if lines else ""


def main(target: str) -> None:
    """Write the page."""
    Path(target).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
