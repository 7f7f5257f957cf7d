"""Each module of the product is reached from a command or from `import p3s`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from paths import ROOT
from test_layers import files, imported

#: What users start: commands (by the table in p3s.cli.main), Python's interface.
STARTS = ("p3s.__main__", "p3s", "p3s.api")


def edges(path: Path, modules: dict[str, Path]) -> Iterator[str]:
    """Yield modules that a file imports, or names for importing them when they are needed."""
    tree, words = ast.parse(path.read_text()), _texts(path)
    yield from imported(tree, modules)
    yield from (word.partition(":")[0] for word in words)  # as after "-m", or in registrations
    here = ".".join(path.relative_to(ROOT).parent.parts)
    for word in words:
        if word.endswith(".py"):  # a file beside it that is run by its path
            yield f"{here if here.startswith('p3s') else f'p3s.{here}'}.{word[:-3]}"
    beside = [word for other in path.parent.glob("*.py") for word in _texts(other)]
    for before in _lazy(tree):
        yield from (before + re.split("[.:]", word)[0] for word in beside)


@cache
def _texts(path: Path) -> frozenset[str]:
    """Return the strings in a file."""
    values = (n.value for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Constant))
    return frozenset(value for value in values if isinstance(value, str)) | _registered(path)


def _registered(path: Path) -> frozenset[str]:
    """Return the functions in the table of commands beside a file."""
    words = (
        re.findall(r'"([^"]+)"', each.read_text()) for each in path.parent.glob("*/index.toml")
    )
    return frozenset(word for found in words for word in found)


def _lazy(tree: ast.AST) -> Iterator[str]:
    """Yield what stands before the module's name where it is put together."""
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr) and isinstance(node.values[0], ast.Constant):
            before = str(node.values[0].value)
            if before.startswith("p3s.") and before.endswith("."):
                yield before


def test_every_module_is_reached() -> None:
    modules = files()
    there: set[str] = set()
    ahead = [*STARTS]
    while ahead:
        name = ahead.pop()
        if name in modules and name not in there:
            there.add(name)
            ahead += [*edges(modules[name], modules), name.rpartition(".")[0]]
    assert sorted(modules.keys() - there) == []
