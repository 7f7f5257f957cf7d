"""Geometry of the speedup curve on logarithmic axes, shared by the SVG and the terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence
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
