"""Nothing in the packages turns data into code, and rooms import only downwards."""

from __future__ import annotations

import ast

import pytest
from paths import ROOT

FILES = sorted(
    p for room in ("p3s", "signature_runner", "replay") for p in (ROOT / room).rglob("*.py")
)
FORBIDDEN_NAMES = {
    "eval",
    "exec",
    "compile",
    "sympify",
    "parse_expr",
    "lambdify",
    "mktemp",
    "extractall",
    "read_pickle",
}
FORBIDDEN_MODULES = {"pickle", "marshal", "shelve", "dill"}
ORDER = ["trace", "characterize", "model", "scale", "predict", "report", "cli"]


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_no_code_from_data(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            f = node.func
            name = f.attr if isinstance(f, ast.Attribute) else getattr(f, "id", "")
            owner = (
                f.value.id if isinstance(f, ast.Attribute) and isinstance(f.value, ast.Name) else ""
            )
            if not (name == "compile" and owner == "re"):
                assert name not in FORBIDDEN_NAMES, f"{path}:{node.lineno} {name}"
            assert (owner, name) != ("os", "system"), f"{path}:{node.lineno}"
            for kw in node.keywords:
                shell = kw.arg == "shell" and getattr(kw.value, "value", False) is True
                assert not shell, f"{path}:{node.lineno} shell=True"
        names = (
            [a.name for a in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
        for name in names:
            assert name.split(".")[0] not in FORBIDDEN_MODULES, f"{path}:{node.lineno} {name}"


@pytest.mark.parametrize(
    "path",
    [p for p in FILES if p.is_relative_to(ROOT / "p3s")],
    ids=lambda p: str(p.relative_to(ROOT)),
)
def test_rooms_import_only_downwards(path):
    room = path.relative_to(ROOT / "p3s").parts[0]
    if room not in ORDER:
        return
    above = set(ORDER[ORDER.index(room) + 1 :])
    for node in ast.walk(ast.parse(path.read_text())):
        modules = (
            [node.module]
            if isinstance(node, ast.ImportFrom) and node.module
            else [a.name for a in node.names]
            if isinstance(node, ast.Import)
            else []
        )
        for module in modules:
            parts = module.split(".")
            if parts[0] == "p3s" and len(parts) > 1:
                assert parts[1] not in above, f"{path}:{node.lineno} imports {module}"
