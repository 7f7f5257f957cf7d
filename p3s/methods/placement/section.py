"""Placements of a report: those of a predicted count that were ranked last."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from p3s.base.errors import P3SError
from p3s.base.study import Study
from p3s.base.text import processes
from p3s.methods.placement.link_chart import link_chart
from p3s.methods.placement.ranked.types import PLACEMENTS, Placements, path_of
from p3s.methods.placement.text import (
    HEAD,
    PHASE_HEAD,
    default_of,
    notes,
    phase_rows,
    rows_of,
    verdict,
)
from p3s.predict.types import Prediction
from p3s.report.parts import Part, PartTable

_LINKS = "bytes on links, in the busier direction"


def section(study: Study, prediction: Prediction) -> Part | None:
    """Return the placements of a predicted count that were ranked last; None without any.

    Those that are older than the scaled trace, or damaged, are not shown.
    """
    made = [(_changed(path_of(study, row.n)), row.n) for row in prediction.counts]
    for changed, n in sorted(made, reverse=True):
        if not changed or changed < _changed(study.scaled_path(n)):
            continue
        with suppress(P3SError):
            return _part(PLACEMENTS.read(path_of(study, n)))
    return None


def _changed(path: Path) -> int:
    """Return when a file was written, 0 where it is not there."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def _part(found: Placements) -> Part:
    best, default = found.ranked[0].name, default_of(found).name
    tables = [PartTable("Placements", HEAD, rows_of(found))]
    if phases := phase_rows(found):
        lead = f"Phases under {best}, beside {default}:"
        tables.append(PartTable("Phases that gain", PHASE_HEAD, phases, lead))
    return Part(
        "placements",
        f"Which rank on which node, {processes(found.n)}",
        " ".join(verdict(found)),
        tables,
        _links(found, best),
        notes(found),
    )


def _links(found: Placements, best: str) -> list[tuple[str, str, str]]:
    """Return the network under the default placement and under the best one."""
    drawn = found.picture
    if drawn is None:
        return []
    return [
        (name, _LINKS, link_chart(drawn, name, best=is_best))
        for name, is_best in ((drawn.default, False), (best, True))
    ]
