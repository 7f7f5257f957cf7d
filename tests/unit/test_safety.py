"""Nothing in the packages turns data into code."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from paths import ROOT

FILES = sorted(
    p for room in ("p3s", "signature_runner", "replay") for p in (ROOT / room).rglob("*.py")
)
FORBIDDEN_NAMES = set(
    "eval exec compile sympify parse_expr lambdify mktemp extractall read_pickle".split()
)
FORBIDDEN_MODULES = {"pickle", "marshal", "shelve", "dill"}


def forbidden(path: Path) -> Iterator[str]:
    """Yield what of a file turns data into code, or starts a shell."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            f = node.func
            name = f.attr if isinstance(f, ast.Attribute) else getattr(f, "id", "")
            value = f.value if isinstance(f, ast.Attribute) else None
            owner = value.id if isinstance(value, ast.Name) else ""
            if name in FORBIDDEN_NAMES and (owner, name) != ("re", "compile"):
                yield f"{path}:{node.lineno} {name}"
            if (owner, name) == ("os", "system"):
                yield f"{path}:{node.lineno} os.system"
            for kw in node.keywords:
                if kw.arg == "shell" and getattr(kw.value, "value", False) is True:
                    yield f"{path}:{node.lineno} shell=True"
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        for name in names:
            if name.split(".")[0] in FORBIDDEN_MODULES:
                yield f"{path}:{node.lineno} {name}"


def test_no_code_from_data() -> None:
    assert len(FILES) > 100
    found = [line for path in FILES for line in forbidden(path)]
    assert not found, "\n".join(found)
