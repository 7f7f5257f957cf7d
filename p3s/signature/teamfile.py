"""The file of what threads did at one process count: signature/npNNNN.teams.parquet."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from p3s.signature.beside import Form, Head, places_of, read_rows, write_rows
from p3s.signature.teams import COLUMNS, SUMS, Teams

if TYPE_CHECKING:
    from p3s.base.study import Study
    from p3s.signature.part import Part

_FORM = Form(b"p3s.teams", COLUMNS, SUMS)


def teams_path(study: Study, n: int) -> Path:
    """Return where the file is: signature/np0008.teams.parquet."""
    return study.signature_path(n).with_suffix(".teams.parquet")


def write_teams(study: Study, n: int, parts: Sequence[Part]) -> None:
    """Write what threads did in the run of least work; none there where no run had any."""
    path = teams_path(study, n)
    able = [part for part in parts if len(part.teams)]
    if not able:
        path.unlink(missing_ok=True)
        return
    part = min(able, key=lambda part: int(part.segments[:, 4].sum()))
    inside = part.inside / max(part.events, 1)
    write_rows(path, _FORM, Head(n, places_of(part.nodes), inside=inside), part.teams)


def load_teams(root: Path, n: int) -> Teams | None:
    """Return what threads did at a count, None where no run had any; P3SError where damaged."""
    from p3s.base.study import Study

    found = read_rows(teams_path(Study(Path(root)), n), _FORM, n)
    if found is None:
        return None
    head, rows = found
    return Teams(head.nodes, rows[:, 0], rows[:, 1], rows[:, 2:], head.inside)
