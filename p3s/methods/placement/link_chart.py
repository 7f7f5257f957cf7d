"""What the links of a network carry, drawn on the network: the busier, the darker and thicker."""

from __future__ import annotations

from collections.abc import Callable

from p3s.methods.placement.ranked.types import Cable, LinkPicture
from p3s.report.charts.draw import LETTER, Svg
from p3s.report.phase_table import volume

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
