"""Commands that P3S proposes can be pasted, whatever the paths in them are called."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import p3s
from p3s.base.text import quote_word

#: What stands before a path, or another word of the user's, in a command.
_BEFORE = re.compile(
    r"(\bp3s [a-z]+( (measure|show|learn|run|fit|check))?|\s(-o|cd|bash)"
    r"|^(cube|otf2-print|wxparaver)) $"
)
#: What a file has that puts a command together.
_MAYBE = re.compile(r"p3s [a-z]|\s(-o|cd|bash) |cube|otf2-print|wxparaver")
#: Names of what is quoted where it is made.
_QUOTES = ("quote_word", "quote", "join", "command_line")


def _unquoted(path: Path) -> Iterator[str]:
    """Yield places of words that are put into a command as they are."""
    source = path.read_text()
    nodes = list(ast.walk(ast.parse(source))) if _MAYBE.search(source) else []

    def named() -> set[str]:
        """Return the names of values that were quoted."""
        return {
            target.id
            for node in nodes
            if isinstance(node, ast.Assign) and _quotes(node.value)
            for target in node.targets
            for target in (target.elts if isinstance(target, ast.Tuple) else [target])
            if isinstance(target, ast.Name)
        }

    for node in nodes:
        if not isinstance(node, ast.JoinedStr):
            continue
        for text, value in zip(node.values, node.values[1:], strict=False):
            if not isinstance(text, ast.Constant) or not isinstance(value, ast.FormattedValue):
                continue
            if not _BEFORE.search(str(text.value)) or _quotes(value.value):
                continue
            if not (isinstance(value.value, ast.Name) and value.value.id in named()):
                yield f"{path.name}:{value.lineno}: {ast.unparse(value.value)}"


def _quotes(value: ast.expr) -> bool:
    return any(
        isinstance(node, ast.Name | ast.Attribute)
        and (node.id if isinstance(node, ast.Name) else node.attr).lstrip("_") in _QUOTES
        for node in ast.walk(value)
    )


def test_paths_in_proposed_commands_are_quoted() -> None:
    found = [line for path in Path(p3s.__file__).parent.rglob("*.py") for line in _unquoted(path)]
    assert not found, "\n".join(found)


def test_a_quoted_path_is_one_word() -> None:
    for name in ("a b", "it's", "$HOME", "plain", "*", ""):
        assert shlex.split(quote_word(Path("d") / name)) == [str(Path("d") / name)]
    assert quote_word("a\nb") == r"$'a\x0ab'"
