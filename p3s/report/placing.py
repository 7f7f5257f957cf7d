"""Placements of a report: those of a predicted count that were ranked last."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from p3s.base.errors import P3SError
from p3s.base.study import Study
from p3s.predict.placing.file import load
from p3s.predict.placing.types import Placements
from p3s.report.placements import HEAD, PHASE_HEAD, default_of, notes, phase_rows, rows_of, verdict


@dataclass(frozen=True)
class PlacementView:
    """What is shown of placements: sentences, tables, and what they were made from."""

    n: int
    sentences: list[str]
    head: Sequence[str]
    rows: list[list[str]]
    phase_head: Sequence[str]
    phases: list[list[str]]
    notes: list[str]
    best: str
    default: str
    found: Placements


def placements_of(study: Study, counts: Sequence[int]) -> PlacementView | None:
    """Return the placements of these counts that were ranked last; None where there are none.

    Those that are older than the scaled trace, or damaged, are not shown.
    """
    made = [(_changed(study.placement_path(n)), n) for n in counts]
    for changed, n in sorted(made, reverse=True):
        if not changed or changed < _changed(study.scaled_path(n)):
            continue
        with suppress(P3SError):
            return _view(load(study.placement_path(n)))
    return None


def _changed(path: Path) -> int:
    """Return when a file was written, 0 where it is not there."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def _view(found: Placements) -> PlacementView:
    default = default_of(found).name
    return PlacementView(
        n=found.n,
        sentences=verdict(found),
        head=HEAD,
        rows=rows_of(found),
        phase_head=PHASE_HEAD,
        phases=phase_rows(found),
        notes=notes(found),
        best=found.ranked[0].name,
        default=default,
        found=found,
    )
