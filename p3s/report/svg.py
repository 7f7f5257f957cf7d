"""The speedup curve as inline SVG: numbers only, coloured by the page's style sheet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from p3s.report.curve import axes_of
from p3s.report.view import Point

WIDTH, HEIGHT = 760.0, 420.0
LEFT, RIGHT, TOP, BOTTOM = 64.0, 20.0, 16.0, 48.0


@dataclass(frozen=True)
class Mark:
    """A point of the picture with its place, its kind and what it says."""

    x: str
    y: str
    kind: str
    text: str


@dataclass(frozen=True)
class Picture:
    """Coordinates for the template, as text with one decimal."""

    width: int
    height: int
    left: str
    right: str
    top: str
    bottom: str
    x_ticks: list[tuple[str, str]]
    y_ticks: list[tuple[str, str]]
    ideal: str
    line: str
    band: str
    marks: list[Mark]


def _number(value: float) -> str:
    return f"{value:.1f}"


def picture(points: Sequence[Point]) -> Picture:
    """Return the picture of a speedup curve."""
    axes = axes_of(points)

    def x(n: float) -> float:
        return LEFT + axes.x(n) * (WIDTH - LEFT - RIGHT)

    def y(speedup: float) -> float:
        return HEIGHT - BOTTOM - axes.y(speedup) * (HEIGHT - TOP - BOTTOM)

    def path(pairs: Sequence[tuple[float, float]]) -> str:
        return " ".join(f"{_number(x(n))},{_number(y(s))}" for n, s in pairs)

    marks = []
    for point in points:
        kind = "measured" if point.measured else "predicted"
        text = f"{point.n} processes: {point.speedup:.2f}x, {kind}"
        if point.low is not None and point.high is not None and not point.measured:
            text += f", interval {point.low:.2f}x to {point.high:.2f}x"
        marks.append(Mark(_number(x(point.n)), _number(y(point.speedup)), kind, text))
        if point.measured and point.model is not None:
            marks.append(
                Mark(
                    _number(x(point.n)),
                    _number(y(point.model)),
                    "model",
                    f"{point.n} processes: {point.model:.2f}x by the model",
                )
            )
    bounded = [p for p in points if p.low is not None and p.high is not None]
    upper = [(p.n, p.high) for p in bounded if p.high is not None]
    lower = [(p.n, p.low) for p in reversed(bounded) if p.low is not None]
    x_ticks: list[tuple[str, str]] = []
    last = -1e9
    for point in points:
        if x(point.n) - last >= 34:
            last = x(point.n)
            x_ticks.append((_number(last), str(point.n)))
    return Picture(
        int(WIDTH),
        int(HEIGHT),
        _number(LEFT),
        _number(WIDTH - RIGHT),
        _number(TOP),
        _number(HEIGHT - BOTTOM),
        x_ticks,
        [(_number(y(tick)), f"{tick:.3g}x") for tick in axes.ticks()],
        path([(points[0].n, points[0].ideal), (points[-1].n, points[-1].ideal)]),
        path([(p.n, p.speedup) for p in points]),
        path([*upper, *lower]) if len(bounded) > 1 else "",
        marks,
    )
