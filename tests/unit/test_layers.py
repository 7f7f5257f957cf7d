"""Imports between packages point one way, as ARCHITECTURE.md says; no files import each other."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
from paths import ROOT

#: Folders with code, and the packages that they are installed in.
TOPS = {"p3s": "", "replay": "p3s.", "signature_runner": "p3s."}


def table() -> dict[str, str]:
    """Return the packages of ARCHITECTURE.md's table, the lowest first, and what they are."""
    text = (ROOT / "ARCHITECTURE.md").read_text().partition("## Layers")[2].partition("\n## ")[0]
    return dict(re.findall(r"^\| `([\w.]+)` \| (.*) \|$", text, re.M))


def extensions() -> dict[str, list[str]]:
    """Return the packages beside the core with the methods or formats that are in each."""
    rows = {name: table()[name] for name in ("p3s.methods", "p3s.formats")}
    return {
        name: [f"{name}.{each}" for each in re.findall(r"`(\w+)`", text)]
        for name, text in rows.items()
    }


def files() -> dict[str, Path]:
    """Return all modules with their files; a package is the module of its __init__.py."""
    found = {}
    for top, inside in TOPS.items():
        for path in sorted((ROOT / top).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            if path.resolve() == path:  # else it is seen by its own folder
                found[inside + name] = path
    return found


def imported(tree: ast.AST, modules: dict[str, Path]) -> Iterator[str]:
    """Yield the modules that a file imports, at its top, in functions and for types."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in modules else node.module


@pytest.fixture(scope="module")
def graph() -> dict[str, set[str]]:
    """Return module -> modules of P3S that it imports."""
    modules = files()
    return {
        name: {m for m in imported(ast.parse(path.read_text()), modules) if m in modules} - {name}
        for name, path in modules.items()
    }


def package(module: str) -> str:
    """Return the package of the table that a module belongs to."""
    first, _, rest = module.partition(".")
    return f"p3s.{rest.partition('.')[0]}" if first == "p3s" and rest else first


def test_every_package_is_in_the_table(graph: dict[str, set[str]]) -> None:
    assert {package(module) for module in graph} == set(table())
    for name in (each for inside in extensions().values() for each in inside):
        assert name in graph, "a folder or file of its own"


def test_imports_point_to_lower_layers(graph: dict[str, set[str]]) -> None:
    rank = {name: at for at, name in enumerate(table())}
    upward = [
        f"{module} imports {other}"
        for module, others in graph.items()
        for other in others
        if rank[package(other)] > rank[package(module)]
    ]
    assert not upward


def test_extensions_import_the_core_what_they_share_and_themselves(
    graph: dict[str, set[str]],
) -> None:
    inside = extensions()

    def one(module: str) -> str:
        """Return the method or format of a module, its package for what they share."""
        where = package(module)
        return next((e for e in inside[where] if f"{module}.".startswith(f"{e}.")), where)

    across = [
        f"{module} imports {other}"
        for module, others in graph.items()
        for other in others
        if {package(module), package(other)} <= set(inside)
        and one(other) not in {one(module), package(module)}
    ]
    assert not across


def test_no_files_import_each_other(graph: dict[str, set[str]]) -> None:
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))


def test_test_files_have_names_of_their_own() -> None:
    """Two of one name cannot be collected in one run: pytest would not start."""
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert sorted(names) == sorted(set(names))


#: What a report never asks: laws, programs at other counts, binaries, studies, evaluation.
NOT_SHOWING = (
    "p3s.laws",
    "p3s.program",
    "p3s.capture.lines",
    "p3s.capture.elf",
    "p3s.capture.sites",
    "p3s.costs.fit",
    "p3s.costs.apply",
    "p3s.model.evaluate",
    "p3s.model.stage",
    "scipy",
)


def test_a_report_only_shows(graph: dict[str, set[str]]) -> None:
    """It is given values: it fits nothing, evaluates no model, opens no binary."""
    mine = {name: path for name, path in files().items() if package(name) == "p3s.report"}
    wrong = [
        f"{name} imports {other}"
        for name, path in mine.items()
        for other in {*imported(ast.parse(path.read_text()), {}), *graph[name]}
        if any(f"{other}.".startswith(f"{each}.") for each in NOT_SHOWING)
    ]
    assert mine and not wrong


#: Packages that one of the core may import, those of the core, and pairs of them that import.
MOST_IMPORTED, MOST_PACKAGES, MOST_PAIRS = 12, 20, 76


def test_the_core_is_few_packages_that_import_few(graph: dict[str, set[str]]) -> None:
    """A number may only fall (ARCHITECTURE.md, Layers)."""
    core = [name for name in table() if name not in ("p3s.methods", "p3s.formats")]
    pairs = {
        (package(module), package(other))
        for module, others in graph.items()
        for other in others
        if package(module) in core and package(module) != package(other)
    }
    assert len(core) <= MOST_PACKAGES and len(pairs) <= MOST_PAIRS
    imported_by = Counter(importer for importer, _ in pairs)
    assert max(imported_by.values()) <= MOST_IMPORTED
