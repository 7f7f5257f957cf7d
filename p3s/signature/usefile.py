"""The file of what was done to files at one process count: signature/npNNNN.files.parquet."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from p3s.signature.beside import Form, Head, places_of, read_rows, write_rows
from p3s.signature.fileuse import COLUMNS, SUMS, FileUse

if TYPE_CHECKING:
    from p3s.base.study import Study
    from p3s.signature.part import Part

#: Version 2 knows how files were opened.
_FORM = Form(b"p3s.files", COLUMNS, SUMS, version=2, added=("truncates",))
_ELAPSED = COLUMNS.index("elapsed_ns")


def uses_path(study: Study, n: int) -> Path:
    """Return where the file is: signature/np0008.files.parquet."""
    return study.signature_path(n).with_suffix(".files.parquet")


def write_uses(study: Study, n: int, parts: Sequence[Part]) -> None:
    """Write what was done to files in the run whose time in it is the median of the repeats."""
    path = uses_path(study, n)
    able = sorted(
        (part for part in parts if len(part.files)), key=lambda p: int(p.files[:, _ELAPSED].sum())
    )
    if not able:
        path.unlink(missing_ok=True)
        return
    part = able[(len(able) - 1) // 2]
    write_rows(path, _FORM, Head(n, places_of(part.nodes)), part.files)


def load_uses(root: Path, n: int) -> FileUse | None:
    """Return what was done to files at a count, None where nothing was; P3SError where damaged."""
    from p3s.base.study import Study

    found = read_rows(uses_path(Study(Path(root)), n), _FORM, n)
    if found is None:
        return None
    head, rows = found
    return FileUse(head.nodes, rows[:, 0], rows[:, 1], rows[:, 2:])
