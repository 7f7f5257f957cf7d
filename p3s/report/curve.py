"""Geometry of the speedup curve on logarithmic axes, shared by the SVGs and the terminal."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from p3s.report.points import Point


@dataclass(frozen=True)
class Axes:
    """Maps process counts and speedups to the unit square, both by their logarithm."""

    n_low: float
    n_high: float
    s_low: float
    s_high: float

    def x(self, n: float) -> float:
        """Return 0 at the smallest count, 1 at the largest."""
        span = math.log2(self.n_high / self.n_low)
        return math.log2(n / self.n_low) / span if span > 0 else 0.5

    def y(self, speedup: float) -> float:
        """Return 0 at the smallest speedup shown, 1 at the largest; clipped to that."""
        span = math.log2(self.s_high / self.s_low)
        if speedup <= 0:
            return 0.0
        at = math.log2(speedup / self.s_low) / span if span > 0 else 0.5
        return min(1.0, max(0.0, at))

    def ticks(self) -> list[float]:
        """Return powers of two of the speedup inside the axes, at most nine."""
        first = math.ceil(math.log2(self.s_low) - 1e-9)
        last = math.floor(math.log2(self.s_high) + 1e-9)
        step = max(1, math.ceil((last - first) / 8))
        return [2.0**k for k in range(first, last + 1, step)]


def axes_of(points: Sequence[Point]) -> Axes:
    """Return axes that hold all points, their intervals and the ideal line."""
    speedups = [1.0]
    for point in points:
        speedups += [
            value
            for value in (point.speedup, point.low, point.high, point.ideal, point.model)
            if value is not None and value > 0
        ]
    low, high = min(speedups), max(speedups)
    # An interval that almost reaches zero must not flatten the curve.
    low = max(low, high / 2.0**16)
    low, high = 2.0 ** math.floor(math.log2(low)), 2.0 ** math.ceil(math.log2(high))
    if low == high:
        low, high = low / 2, high * 2
    return Axes(points[0].n, points[-1].n, low, high)


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
