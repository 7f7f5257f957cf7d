"""Speedup and efficiency over the process count, with interval, ideal and measured points."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from textwrap import wrap
from typing import Any

from p3s.report.charts.draw import Svg
from p3s.report.charts.scales import Linear, Log, nice_top, spaced
from p3s.report.counts import interval_of
from p3s.report.curve import edges_of, hatching
from p3s.report.points import Point, base_of, checked_rows, points_of
from p3s.report.regression import Regression
from p3s.report.values import amount, count, mapping
from p3s.report.verdict import warning_of
from p3s.text import NOT_KNOWN, factor, percent, processes, seconds

WIDTH, HEIGHT = 560.0, 400.0
LEFT, RIGHT, TOP, BOTTOM = 52.0, 18.0, 14.0, 46.0

Scale = Callable[[float], float]
_SEE = "the table of process counts has the numbers"
#: Characters in a line of what stands above a picture that is not to be trusted.
_WARNING_WIDTH = 72


def speedup_chart(prediction: Mapping[str, Any], beside: Regression | None = None) -> str:
    """Return speedup over processes, both logarithmic; beside: what a regression says."""
    points = points_of(prediction)
    shown = [v for p in points for v in (p.speedup, p.low, p.high, p.ideal, p.model) if v]
    shown += [value for _, value in _mid(points, prediction, beside)]
    high = max(1.0, *shown) * 1.08
    low = max(min(1.0, *shown) / 1.12, high / 2.0**16)  # what is near zero must not flatten it
    svg = Svg(
        WIDTH,
        HEIGHT,
        f"Speedup over the number of processes, relative to {_base(prediction)}; {_SEE}",
        above=_warning(prediction),
    )
    x = Log(points[0].n, points[-1].n, LEFT + 12, WIDTH - RIGHT - 12)
    y = Log(low, high, HEIGHT - BOTTOM, TOP)
    _frame(svg, prediction, points, x, [(y(tick), f"{tick:,.3g}x") for tick in y.powers()])
    first, last = points[0], points[-1]
    svg.polyline([(x(first.n), y(first.ideal)), (x(last.n), y(last.ideal))], "ideal")
    _regression(svg, prediction, points, beside, x, lambda n, value: y(value))
    _series(svg, prediction, points, x, y, lambda point, value: value, rising=True)
    return svg.markup()


def efficiency_chart(prediction: Mapping[str, Any], beside: Regression | None = None) -> str:
    """Return efficiency over processes; empty where there is one count only."""
    points = points_of(prediction)
    if len(points) < 2:
        return ""
    base = _base(prediction)

    def efficiency(point: Point, value: float) -> float:
        return value * base / point.n

    shown = [
        efficiency(p, v) for p in points for v in (p.speedup, p.high, p.model) if v is not None
    ]
    top = min(nice_top(max(1.0, *shown)), 4.0)
    svg = Svg(
        WIDTH,
        HEIGHT,
        f"Efficiency over the number of processes, relative to {base}; {_SEE}",
        above=_warning(prediction),
    )
    x = Log(points[0].n, points[-1].n, LEFT + 12, WIDTH - RIGHT - 12)
    y = Linear(0.0, top, HEIGHT - BOTTOM, TOP)
    _frame(
        svg,
        prediction,
        points,
        x,
        [(y(tick), f"{100 * tick:.0f} %") for tick in Linear(0, top, 0, 1).ticks()],
    )
    svg.line((x(points[0].n), y(1.0)), (x(points[-1].n), y(1.0)), "ideal")
    limit = amount(prediction.get("knee_efficiency"))
    if limit is not None and 0 < limit < top:
        svg.line((LEFT, y(limit)), (WIDTH - RIGHT, y(limit)), "limit")
        svg.text(LEFT + 6, y(limit) + 15, f"{100 * limit:.3g} %: worth it above", "note")
    _regression(svg, prediction, points, beside, x, lambda n, value: y(value * base / n))
    _series(svg, prediction, points, x, y, efficiency, rising=False)
    return svg.markup()


def _warning(prediction: Mapping[str, Any]) -> list[str]:
    """Return the lines that say that a prediction is not to be trusted; none where it is."""
    return wrap(warning_of(prediction), _WARNING_WIDTH)


def _base(prediction: Mapping[str, Any]) -> int:
    """Return the count that speedups relate to."""
    return int(base_of(prediction, checked_rows(prediction))["n"])


def _frame(
    svg: Svg,
    prediction: Mapping[str, Any],
    points: Sequence[Point],
    x: Scale,
    y_ticks: Sequence[tuple[float, str]],
) -> None:
    """Draw what is behind the curve: what was traced, grid lines and their labels."""
    bottom = HEIGHT - BOTTOM
    traced = [n for n in map(count, prediction.get("traced_counts") or ()) if n]
    if traced and points[0].n <= max(traced) < points[-1].n:
        edge = x(max(traced))
        svg.rect(
            LEFT,
            TOP,
            edge - LEFT,
            bottom - TOP,
            "traced",
            f"traced, up to {processes(max(traced))}",
        )
        if edge - LEFT > 56:
            svg.text(edge - 6, TOP + 15, "traced", "note", "end")
        if WIDTH - RIGHT - edge > 90:
            svg.text(edge + 6, TOP + 15, "predicted", "note")
    for place, text in y_ticks:
        svg.line((LEFT, place), (WIDTH - RIGHT, place), "grid")
        svg.text(LEFT - 8, place + 4, text, anchor="end")
    texts = [f"{point.n:,}" for point in points]
    keep = spaced([x(point.n) for point in points], texts)
    for point, text, shown in zip(points, texts, keep, strict=True):
        if shown:
            svg.line((x(point.n), bottom), (x(point.n), bottom + 5), "tick")
            svg.text(x(point.n), bottom + 20, text, anchor="middle")
    svg.line((LEFT, bottom), (WIDTH - RIGHT, bottom), "axis")
    svg.text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 6, "processes", "name", "middle")


def _mid(
    points: Sequence[Point], prediction: Mapping[str, Any], beside: Regression | None
) -> list[tuple[int, float]]:
    """Return the speedups of a regression, within the counts of the curve."""
    if beside is None:
        return []
    base = float(base_of(prediction, checked_rows(prediction))["time_s"])
    return [
        (n, base / mid)
        for n, mid in zip(beside.counts, beside.mid, strict=True)
        if points[0].n <= n <= points[-1].n and mid > 0
    ]


def _regression(
    svg: Svg,
    prediction: Mapping[str, Any],
    points: Sequence[Point],
    beside: Regression | None,
    x: Scale,
    y: Callable[[int, float], float],
) -> None:
    """Draw what a regression of the run times says, behind the curve."""
    middle = _mid(points, prediction, beside)
    if beside is None or len(middle) < 2:
        return
    base = float(base_of(prediction, checked_rows(prediction))["time_s"])
    ends = [
        (n, base / high, base / low)
        for n, low, high in zip(beside.counts, beside.low, beside.high, strict=True)
        if low > 0
    ]
    svg.polygon(
        [
            *((x(n), y(n, top)) for n, _, top in ends),
            *((x(n), y(n, bottom)) for n, bottom, _ in reversed(ends)),
        ],
        "otherband",
    )
    svg.polyline([(x(n), y(n, value)) for n, value in middle], "otherline")


def _series(
    svg: Svg,
    prediction: Mapping[str, Any],
    points: Sequence[Point],
    x: Scale,
    y: Scale,
    value_of: Callable[[Point, float], float],
    rising: bool,
) -> None:
    """Draw interval, curve, marks, and a box of numbers for each count."""
    bounded = [p for p in points if p.low is not None and p.high is not None]
    if len(bounded) > 1:
        svg.polygon(
            [
                *((x(p.n), y(value_of(p, p.high or 0.0))) for p in bounded),
                *((x(p.n), y(value_of(p, p.low or 0.0))) for p in reversed(bounded)),
            ],
            "band",
        )
    elif bounded and bounded[0].low != bounded[0].high:
        only = bounded[0]
        svg.line(
            (x(only.n), y(value_of(only, only.low or 0.0))),
            (x(only.n), y(value_of(only, only.high or 0.0))),
            "whisker",
        )
    warning = warning_of(prediction)
    if warning:
        svg.path(hatching(edges_of(points, x, lambda p, value: y(value_of(p, value)))), "hatch")
    svg.polyline(
        [(x(p.n), y(value_of(p, p.speedup))) for p in points],
        "curve untrusted" if warning else "curve",
    )
    best = None if warning else count(mapping(prediction.get("recommended")).get("n"))
    for point in points:
        place = x(point.n), y(value_of(point, point.speedup))
        if point.n == best:
            svg.circle(*place, 11, "best")
        if point.measured:
            if point.model is not None:
                svg.circle(x(point.n), y(value_of(point, point.model)), 4, "model")
            svg.rect(place[0] - 4.5, place[1] - 4.5, 9, 9, "measured")
        else:
            svg.circle(*place, 4 if len(points) <= 40 else 2, "predicted")
    if best in {point.n for point in points} and len(points) > 1:
        point = next(p for p in points if p.n == best)
        _best(svg, x(point.n), y(value_of(point, point.speedup)), rising)
    _hits(svg, prediction, points, x, lambda p: y(value_of(p, p.speedup)))


def _best(svg: Svg, x: float, y: float, rising: bool) -> None:
    """Name the recommended count on the side where no curve is."""
    right = x < WIDTH - RIGHT - 90
    below = rising == right
    svg.text(
        x + 12 if right else x - 12,
        y + 24 if below else y - 14,
        "worth using",
        "bestname",
        "start" if right else "end",
    )


def _hits(
    svg: Svg,
    prediction: Mapping[str, Any],
    points: Sequence[Point],
    x: Scale,
    y: Callable[[Point], float],
) -> None:
    """Make each count a column that shows its numbers when the pointer is there."""
    rows = checked_rows(prediction)
    places = [x(point.n) for point in points]
    for k, (point, row) in enumerate(zip(points, rows, strict=True)):
        left = (places[k - 1] + places[k]) / 2 if k else LEFT
        right = (places[k] + places[k + 1]) / 2 if k + 1 < len(places) else WIDTH - RIGHT
        if right - left < 1.5:
            continue
        svg.group("hit")
        svg.rect(left, TOP, right - left, HEIGHT - TOP - BOTTOM, "catch")
        svg.line((places[k], TOP), (places[k], HEIGHT - BOTTOM), "guide")
        svg.tip(places[k], y(point), _tip(point, row), LEFT, WIDTH - RIGHT)
        svg.end()


def _tip(point: Point, row: Mapping[str, Any]) -> list[str]:
    ends = interval_of(row)
    told = [
        f"{processes(point.n)}, {'measured' if point.measured else 'predicted'}",
        f"time {seconds(row['time_s'])}" + ("" if ends == NOT_KNOWN else f"  ({ends})"),
        f"speedup {factor(point.speedup)}",
        f"efficiency {percent(row['efficiency'])}",
    ]
    if point.low is not None and point.high is not None and point.low != point.high:
        told[2] += f"  ({factor(point.low)} to {factor(point.high)})"
    if point.measured and point.model is not None:
        told.append(f"by the model {factor(point.model)}")
    return told
