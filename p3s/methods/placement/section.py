"""Placements of a report: those of a predicted count that were ranked last."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from p3s.base.errors import P3SError
from p3s.base.study import Study
from p3s.base.text import processes
from p3s.methods.placement.ranked.types import PLACEMENTS, Cable, LinkPicture, Placements, path_of
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
from p3s.report.charts.draw import LETTER, Svg
from p3s.report.phase_table import volume
from p3s.report.sections import Part, PartTable

WIDTH, HEIGHT, EDGE = 460.0, 300.0, 16.0
#: Shades of links, and how large nodes and switches are at most.
LEVELS, _NODE, _SWITCH = 6, 3.0, 5.0


def link_chart(found: LinkPicture, name: str, *, best: bool) -> str:
    """Return the network under the best placement, or under the one that it is compared with.

    Shades are the same in both. Empty where no link carries anything.
    """
    load: Callable[[Cable], float] = (lambda c: c.after) if best else (lambda c: c.before)
    most = max((max(c.before, c.after) for c in found.cables), default=0.0)
    if not most:
        return ""
    svg = Svg(WIDTH, HEIGHT + 40, f"Bytes on the links of the network under {name}")
    for cable in sorted(found.cables, key=load):
        if not load(cable):
            continue
        ends = (_at(found, cable.first), _at(found, cable.second))
        svg.line(*ends, f"link m-{level_of(load(cable), most)}")
    nodes = max(found.nodes, 1)
    radius = min(_NODE, 0.4 * WIDTH / nodes)
    for k in range(len(found.points)):
        x, y = _at(found, k)
        svg.circle(x, y, radius if k < found.nodes else min(_SWITCH, 1.5 * radius + 1), "point")
    _legend(svg, most)
    return svg.markup()


def level_of(load: float, most: float) -> int:
    """Return the shade of a link: 1 to LEVELS."""
    return max(min(int(LEVELS * load / most) + 1, LEVELS), 1)


def _at(found: LinkPicture, point: int) -> tuple[float, float]:
    x, y = found.points[point]
    return EDGE + x * (WIDTH - 2 * EDGE), EDGE + y * (HEIGHT - 2 * EDGE)


def _legend(svg: Svg, most: float) -> None:
    x, y = EDGE, HEIGHT + 20
    for level in (1, LEVELS // 2, LEVELS):
        text = f"to {volume(round(most * level / LEVELS))}"
        svg.line((x, y), (x + 18, y), f"link m-{level}")
        svg.text(x + 24, y + 4, text)
        x += 24 + len(text) * LETTER + 16


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
