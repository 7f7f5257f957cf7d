"""Hatching of intervals that are not to be trusted."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from p3s.report.counts import Point

#: Distance between the lines of a hatching, and the least height of what is hatched.
HATCH_STEP, HATCH_HEIGHT = 7.0, 16.0
#: Ends of the interval around a point of a curve: x, top, bottom, in the units of the picture.
Edge = tuple[float, float, float]


def hatching(edges: Sequence[Edge], step: float = HATCH_STEP) -> list[str]:
    """Return slanted lines between the ends of an interval, as commands of an SVG path.

    Where the ends are close to each other the lines are as long as can be seen. ``edges``: by x,
    ascending; a single one is hatched to both sides.
    """
    if len(edges) == 1:
        x, top, bottom = edges[0]
        edges = [(x - 2 * step, top, bottom), (x + 2 * step, top, bottom)]
    lines = []
    for (x0, top0, low0), (x1, top1, low1) in zip(edges, edges[1:], strict=False):
        for k in range(math.ceil((x1 - x0) / step)):
            share = k * step / (x1 - x0)
            top, low = top0 + share * (top1 - top0), low0 + share * (low1 - low0)
            spare = max(HATCH_HEIGHT - (low - top), 0.0) / 2
            lines.append(
                f"M{x0 + k * step - step / 2:.1f} {low + spare:.1f}"
                f"L{x0 + k * step + step / 2:.1f} {top - spare:.1f}"
            )
    return lines


def edges_of(
    points: Sequence[Point], x: Callable[[float], float], y: Callable[[float], float]
) -> list[Edge]:
    """Return the ends of the interval of every point; where it is not known, the point itself.

    ``x``: of a count, ``y``: of a point's value or an end of its interval, in the picture.
    """
    return [
        (
            x(p.n),
            y(p.speedup if p.high is None else p.high),
            y(p.speedup if p.low is None else p.low),
        )
        for p in points
    ]
