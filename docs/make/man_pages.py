"""Writes docs/man: a manual page for p3s and for each of its commands, from the code.

python docs/make/man_pages.py docs/man
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

from command_help import Command, commands, program

from p3s.base.version import __version__

_WIDTH = 78
_EXIT = (
    ("0", "Done."),
    ("1", "Failed."),
    ("2", "Wrong use."),
    ("3", "Done, but partial or not to be trusted."),
    ("4", "A gate failed."),
    ("70", "A bug in P3S."),
    ("129, 130, 143", "Interrupted by a signal; programs that were started are ended too."),
)
_ENVIRONMENT = (
    ("P3S_DEBUG=1", "Print tracebacks."),
    ("XDG_CACHE_HOME", "Where compiled C is kept, in p3s [default: ~/.cache]."),
    ("XDG_CONFIG_HOME", "Where the key is that signs your studies, in p3s [default: ~/.config]."),
)


def pages() -> dict[str, str]:
    """Return the pages by the names of their files."""
    found = list(commands())
    made = {"p3s.1": _root(program())}
    for command in found:
        made[_file(command.path)] = _alias(command) if command.same_as else _page(command, found)
    return made


def _file(path: str) -> str:
    return f"{_title(path)}.1"


def _title(path: str) -> str:
    return path.replace(" ", "-")


def _alias(command: Command) -> str:
    return f".so man1/{_file(command.same_as)}\n"


def _root(root: Command) -> str:
    return "".join(
        [
            _head(root, root.paragraphs[0][1]),
            _section("DESCRIPTION", _paragraphs(root)),
            _options(root),
            *_groups(root),
            _section("EXIT STATUS", _rows(_EXIT)),
            _section("ENVIRONMENT", _rows(_ENVIRONMENT)),
            _epilog(root),
        ]
    )


def _page(command: Command, all_of_them: list[Command]) -> str:
    parent = command.path.rpartition(" ")[0]
    beside = [parent] + [each.path for each in all_of_them if _is_in(each, command.path)]
    also = ", ".join(f"\\fB{_escaped(_title(path))}\\fR(1)" for path in beside)
    return "".join(
        [
            _head(command, command.short),
            _section("DESCRIPTION", _paragraphs(command)),
            _options(command),
            *_groups(command),
            _epilog(command),
            _section("SEE ALSO", [also]),
        ]
    )


def _is_in(command: Command, parent: str) -> bool:
    return command.path.rpartition(" ")[0] == parent


def _head(command: Command, sentence: str) -> str:
    title = _title(command.path)
    name = f"{_escaped(title)} \\- {_escaped(sentence.rstrip('.'))}"
    words = command.usage.removeprefix(command.path)
    return (
        '.\\" Made by docs/make/man_pages.py from the code.\n'
        f'.TH "{title.upper()}" "1" "" "p3s {__version__}" "P3S"\n'
        + _section("NAME", [name])
        + _section("SYNOPSIS", [f"\\fB{_escaped(command.path)}\\fR{_escaped(words)}"])
    )


def _section(title: str, lines: list[str]) -> str:
    return f'.SH "{title}"\n' + "".join(f"{line}\n" for line in lines) if lines else ""


def _paragraphs(command: Command) -> list[str]:
    lines: list[str] = []
    for keeps_lines, text in command.paragraphs:
        lines += [".PP"] if lines else []
        lines += _kept(text.splitlines()) if keeps_lines else _filled(text)
    return lines


def _options(command: Command) -> str:
    return _section("OPTIONS", _rows(command.options))


def _groups(command: Command) -> list[str]:
    """Return a section for each group of its commands."""
    return [
        _section(
            "COMMANDS" if title == "Commands" else f"COMMANDS: {title.upper()}",
            _rows([(f"{_title(command.path)}-{name}", words) for name, words in rows], "(1)"),
        )
        for title, rows in command.groups.items()
        if title != "Options"
    ]


def _rows(rows: Sequence[tuple[str, str]], behind: str = "") -> list[str]:
    lines: list[str] = []
    for name, words in rows:
        lines += [".TP", f"\\fB{_escaped(name)}\\fR{behind}", *_filled(words)]
    return lines


def _epilog(command: Command) -> str:
    """Return words and examples as they stand in the help."""
    words, examples = "", command.epilog
    if examples and not examples[0].endswith(":"):
        words, examples = examples[0], [line for line in examples[1:] if line]
    lines = [*_filled(words), *([".PP"] if words and examples else []), *_kept(examples)]
    return _section("EXAMPLES" if examples else "NOTES", lines)


def _kept(lines: list[str]) -> list[str]:
    return [".nf", *map(_escaped, lines), ".fi"] if lines else []


def _filled(text: str) -> list[str]:
    """Return a paragraph in lines that an editor can show."""
    broken = textwrap.wrap(text, _WIDTH, break_long_words=False, break_on_hyphens=False)
    return list(map(_escaped, broken))


def _escaped(line: str) -> str:
    """Return a line in which nothing is a request or an escape."""
    plain = line.replace("\\", "\\(rs").replace("-", "\\-").replace("~", "\\(ti")
    plain = plain.replace("^", "\\(ha").replace("`", "\\(ga").replace("'", "\\(aq")
    ascii_ = "".join(c if c.isascii() else f"\\[u{ord(c):04X}]" for c in plain)
    return f"\\&{ascii_}" if ascii_.startswith(".") else ascii_


def main(folder: str) -> None:
    """Write the pages; those of commands that are gone go too."""
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    made = pages()
    for old in target.glob("*.1"):
        if old.name not in made:
            old.unlink()
    for name, text in made.items():
        (target / name).write_text(text, encoding="ascii")


if __name__ == "__main__":
    main(sys.argv[1])
