"""Placements of a report: those that were ranked at the largest predicted count that has any."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from p3s.errors import P3SError
from p3s.predict.placing.file import load
from p3s.predict.placing.types import Placements
from p3s.report.placements import HEAD, PHASE_HEAD, default_of, notes, phase_rows, rows_of, verdict
from p3s.study import Study


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
    """Return the placements at the largest of these counts; None where there are none.

    Those that are older than the scaled trace, or damaged, are not shown.
    """
    for n in sorted(counts, reverse=True):
        path, trace = study.placement_path(n), study.scaled_path(n)
        if not path.exists() or not trace.exists():
            continue
        if path.stat().st_mtime_ns < trace.stat().st_mtime_ns:
            continue
        try:
            return _view(load(path))
        except P3SError:
            continue
    return None


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
