"""Writes docs/reference/commands.md: every command with its arguments and options, from the code.

python docs/make/commands_page.py docs/reference/commands.md
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from command_help import Command, commands

_HEAD = """# Every command and option

This page is generated: `python docs/make/commands_page.py docs/reference/commands.md`. It says what
`p3s COMMAND --help` says. [Commands](../commands.md) explains how they work together, with the exit
codes and what goes to which stream.
"""


def page() -> str:
    """Return the page."""
    parts = [_other_name(each) if each.same_as else _section(each) for each in commands()]
    return re.sub(r"\n{3,}", "\n\n", "\n".join([_HEAD, *parts]))


def _other_name(command: Command) -> str:
    first = command.same_as
    return f"## {command.path}\n\nThe same as [{first}](#{first.replace(' ', '-')}).\n"


def _section(command: Command) -> str:
    parts = [
        f"{'#' * (command.depth + 1)} {command.path}\n",
        "".join(f"{_paragraph(*each)}\n" for each in command.paragraphs),
        f"    {command.usage}\n",
        _table(command),
        _epilog(command.epilog),
    ]
    return "\n".join(part for part in parts if part)


def _paragraph(keeps_lines: bool, text: str) -> str:
    if keeps_lines:
        return "\n" + "\n".join(f"    {line}" for line in text.splitlines()) + "\n"
    return _escaped(text) + "\n"


def _escaped(text: str) -> str:
    """Return text in which nothing is markup."""
    text = re.sub(r"([\\*_\[\]])", r"\\\1", text)
    return text.replace("<", "&lt;").replace(">", "&gt;").replace("|", "&#124;")


def _table(command: Command) -> str:
    rows = [
        f"| `{name.replace('|', chr(92) + '|')}` | {_escaped(words)} |"
        for name, words in command.options
    ]
    return "\n".join(["| option | what it does |", "|---|---|", *rows, ""]) if rows else ""


def _epilog(lines: list[str]) -> str:
    """Return examples as they stand in the help."""
    return "\n".join(f"    {line}" if line else "" for line in lines) + "\n" if lines else ""


def main(target: str) -> None:
    """Write the page."""
    Path(target).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
