"""Writes docs/reference/commands.md: every command with its arguments and options, from the code.

python docs/make/commands_page.py docs/reference/commands.md
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path

from command_help import Command, commands

_HEAD = """# Every command and option

Made from what `p3s COMMAND --help` says, by `python docs/make/commands_page.py
docs/reference/commands.md`. The help also has further examples, the command that follows, and which
options exclude each other. [Commands](../commands.md) explains how they work together.

## Options of several commands

Each command names those that it takes behind "Also".
"""
#: What forbids an option beside others, at the end of its words.
_EXCLUDED = re.compile(r" ?\(not with [^)]*\)$")
_METAVAR = re.compile(" [A-Z|=]+$")
_SHARED = "[Also](#options-of-several-commands)"


def page() -> str:
    """Return the page."""
    every = list(commands())
    shared = _shared(every)
    head = _HEAD + "\n" + "".join(_item(name, words) for name, words in shared)
    parts = [_other_name(each) if each.same_as else _section(each, shared) for each in every]
    return re.sub(r"\n{3,}", "\n\n", "\n".join([head, *parts]))


def _rows(command: Command) -> list[tuple[str, str]]:
    return [(name, _EXCLUDED.sub("", words)) for name, words in command.options]


def _shared(every: list[Command]) -> list[tuple[str, str]]:
    """Return the options that at least two commands have with the same words, by their name."""
    counts = Counter(row for each in every if not each.same_as for row in _rows(each))
    return sorted((row for row, number in counts.items() if number > 1), key=_by_name)


def _by_name(row: tuple[str, str]) -> tuple[bool, str]:
    return row[0].startswith("-"), row[0].lstrip("-")


def _other_name(command: Command) -> str:
    first = command.same_as
    return f"## {command.path}\n\nThe same as [{first}](#{first.replace(' ', '-')}).\n"


def _section(command: Command, shared: list[tuple[str, str]]) -> str:
    own = [row for row in _rows(command) if row not in shared]
    parts = [
        f"{'#' * (command.depth + 1)} {command.path}\n",
        "".join(f"{_paragraph(*each)}\n" for each in command.paragraphs),
        f"    {command.usage.replace(' [OPTIONS]', '')}\n",
        "".join(_item(name, words) for name, words in own),
        _also([name for name, words in _rows(command) if (name, words) in shared]),
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


def _item(name: str, words: str) -> str:
    return f"- `{name}`: {_escaped(words)}\n"


def _also(names: list[str]) -> str:
    """Return a line of a command's shared options; its arguments are in the line above."""
    options = [f"`{_METAVAR.sub('', name)}`" for name in names if name.startswith("-")]
    return f"{_SHARED}: {', '.join(options)}.\n" if options else ""


def _epilog(lines: list[str]) -> str:
    """Return words and the first example as they stand in the help, without the next command."""
    end = lines.index("Next:") if "Next:" in lines else len(lines)
    rest = lines[:end]
    if "Example:" in rest:
        first = rest.index("Example:") + 2
        after = next((i for i in range(first, end) if rest[i] and rest[i][0] != " "), end)
        rest = rest[:first] + rest[after:]
    return "\n".join(f"    {line}" if line else "" for line in rest) + "\n" if rest else ""


def main(target: str) -> None:
    """Write the page."""
    Path(target).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
