"""Lines of each package beside its budget, in ARCHITECTURE.md's table.

    python tests/helpers/budgets.py

lowers the table's numbers to what there is, and adds rows that are missing. It never raises one:
who needs more lines raises the number by hand, and says why in the commit.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from dataclasses import astuple, dataclass
from pathlib import Path

from paths import ROOT

#: Folders of the product; those at the top are linked into p3s, and counted once.
TOPS = {"p3s": "", "replay": "p3s.", "signature_runner": "p3s."}
TABLE = ROOT / "ARCHITECTURE.md"
WORDS = "docs, in words"
_HEAD = "## Budgets"
_ROW = re.compile(r"^\| (?:`([\w.]+)`|([\w, ]+)) \| ([\d,]+) \| ([\d,]*) \|$", re.M)


@dataclass(frozen=True)
class Size:
    """Lines (words of the docs) and statements of one row."""

    lines: int
    statements: int

    def least(self, other: Size) -> Size:
        """Return the lesser of two sizes, number by number."""
        return Size(*map(min, astuple(self), astuple(other)))


def sizes(parsed: bool = True) -> dict[str, Size]:
    """Return the size of each package, of tests, and of docs; without parsing no statements."""
    lines: Counter[str] = Counter()
    statements: Counter[str] = Counter()
    for top, inside in {**TOPS, "tests": ""}.items():
        for path in sorted((ROOT / top).rglob("*.py")):
            if path.resolve() != path:
                continue  # below a link: counted in its own folder
            name = "tests" if top == "tests" else _package(inside, path.relative_to(ROOT))
            text = path.read_text()
            lines[name] += text.count("\n")
            if parsed:
                statements[name] += sum(isinstance(n, ast.stmt) for n in ast.walk(ast.parse(text)))
    pages = sorted((ROOT / "docs").rglob("*.md"))
    words = Size(sum(len(page.read_text().split()) for page in pages), 0)
    packages = {name: Size(lines[name], statements[name]) for name in sorted(lines)}
    return {**packages, "tests": packages["tests"], WORDS: words}


def _package(inside: str, path: Path) -> str:
    """Return the package of a file: an entry of p3s, or a method."""
    parts = [*filter(None, inside.split(".")), *path.with_suffix("").parts]
    deep = 3 if parts[1] == "methods" and len(parts) > 3 else 2
    return ".".join(parts[:1] if parts[1] == "__init__" else parts[:deep])


def budgets() -> dict[str, Size]:
    """Return the table's numbers."""
    _, _, text = TABLE.read_text().partition(_HEAD)
    return {
        package or name: Size(_number(lines), _number(statements))
        for package, name, lines, statements in _ROW.findall(text.partition("\n## ")[0])
        if name != "product"
    }


def _number(text: str) -> int:
    return int(text.replace(",", "") or 0)


def lowered() -> dict[str, Size]:
    """Return the table with no number above what there is; a row that is missing as it is."""
    table = budgets()
    return {name: size.least(table.get(name, size)) for name, size in sizes().items()}


def write(table: dict[str, Size]) -> None:
    """Put rows into ARCHITECTURE.md, the product's sum last of its packages."""
    packages = {name: size for name, size in table.items() if name.startswith("p3s")}
    total = Size(
        sum(size.lines for size in packages.values()),
        sum(size.statements for size in packages.values()),
    )
    rest = {name: size for name, size in table.items() if name not in packages}
    rows = [_row(f"`{name}`", size) for name, size in packages.items()]
    rows += [_row(name, size) for name, size in {"product": total, **rest}.items()]
    before, _, after = TABLE.read_text().partition(_HEAD)
    words, _, old = after.partition("|---|---|---|\n")
    while old.startswith("|"):
        old = old.partition("\n")[2]
    TABLE.write_text(before + _HEAD + words + "|---|---|---|\n" + "".join(rows) + old)


def _row(name: str, size: Size) -> str:
    statements = f"{size.statements:,}" if size.statements else ""
    return f"| {name} | {size.lines:,} | {statements} |\n"


if __name__ == "__main__":
    write(lowered())
