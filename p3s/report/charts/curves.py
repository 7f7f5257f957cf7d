"""Speedup, efficiency and run time over the process count: interval, ideal, measured points."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from textwrap import wrap
from typing import Any

from p3s.base.text import NOT_KNOWN, factor, percent, processes, seconds
from p3s.predict.types import Count, Prediction
from p3s.report.charts.draw import (
    Linear,
    Log,
    Svg,
    edges_of,
    hatching,
    log_ends,
    nice_top,
    round_time,
    times_label,
)
from p3s.report.compare import Comparison
from p3s.report.costs import KIND_NAMES, PhaseCurves
from p3s.report.counts import Point, interval_of, points_of
from p3s.report.show import Curve
from p3s.report.sure import warning_of

LEFT, RIGHT, TOP, BOTTOM = 62.0, 18.0, 14.0, 46.0

_SEE = "the table of process counts has the numbers"
#: Width that a letter of a warning takes, at most.
_WARNING_LETTER = 7.75


@dataclass(frozen=True)
class Size:
    """Width and height of a chart; ``warned``: it says itself that it is not to be trusted."""

    width: float = 560.0
    height: float = 400.0
    warned: bool = True


@dataclass(frozen=True)
class _Chart:
    """A chart of a prediction: its points in units of the vertical axis, and both scales."""

    svg: Svg
    points: Sequence[Point]
    x: Log
    y: Linear | Log
    prediction: Prediction | None = None

    def at(self, n: float, value: float) -> tuple[float, float]:
        """Return where a value stands."""
        return self.x(n), self.y(value)

    @property
    def right(self) -> float:
        """The right end of the axes."""
        return self.svg.width - RIGHT

    @property
    def bottom(self) -> float:
        """The lower end of the axes."""
        return self.svg.height - BOTTOM


def speedup_chart(prediction: Prediction, beside: Sequence[Curve] = (), size: Size = Size()) -> str:
    """Return speedup over processes, both logarithmic; beside: other methods' curves."""
    points = points_of(prediction)
    others = _speedups(points, prediction, beside)
    shown = [*_values(points), *(mid for curve in others for _, _, mid, _ in curve)]
    high = max(1.0, *shown) * 1.08
    low = max(min(1.0, *shown) / 1.12, high / 2.0**16)  # what is near zero must not flatten it
    y = Log(low, high, size.height - BOTTOM, TOP)
    ticks = [(y(tick), times_label(tick)) for tick in y.powers()]
    what = f"Speedup over the number of processes, relative to {prediction.baseline_n}"
    chart = _begun(prediction, points, y, ticks, what, size)
    _beside(chart, others)
    return _series(chart, prediction, rising=True)


def efficiency_chart(
    prediction: Prediction, beside: Sequence[Curve] = (), size: Size = Size()
) -> str:
    """Return efficiency over processes, up to 400 %; beside: other methods' curves."""
    base, speedups = prediction.baseline_n, points_of(prediction)

    def efficiency(n: int, value: float | None) -> Any:
        return None if value is None else value * base / n

    points = []
    for p in speedups:
        speedup, *ends = (efficiency(p.n, v) for v in (p.speedup, p.low, p.high, p.model))
        low, high, model = ends
        points.append(Point(p.n, speedup, low, high, 1.0, p.measured, model))
    shown = [v for p in points for v in (p.speedup, p.high, p.model) if v is not None]
    top = min(nice_top(max(1.0, *shown)), 4.0)
    y = Linear(0.0, top, size.height - BOTTOM, TOP)
    ticks = [(y(tick), f"{100 * tick:.0f} %") for tick in y.ticks()]
    what = f"Efficiency over the number of processes, relative to {base}"
    chart = _begun(prediction, points, y, ticks, what, size)
    limit = prediction.knee_efficiency
    if 0 < limit < top:
        chart.svg.line((LEFT, y(limit)), (chart.right, y(limit)), "limit")
        chart.svg.text(LEFT + 6, y(limit) + 15, f"{100 * limit:.3g} %: worth it above", "note")
    others = _speedups(speedups, prediction, beside)
    _beside(chart, ([(n, *(efficiency(n, v) for v in rest)) for n, *rest in o] for o in others))
    return _series(chart, prediction, rising=False)


def time_chart(prediction: Prediction, size: Size = Size()) -> str:
    """Return run times over processes, both logarithmic."""
    base = prediction.base
    points = [
        Point(
            row.n,
            row.time_s,
            row.low_s,
            row.high_s,
            base.time_s * base.n / row.n,
            row.time_from == "measured",
            row.model_s,
        )
        for row in prediction.counts
    ]
    y = _times(_values(points), size)
    what = "Run time over the number of processes"
    chart = _begun(prediction, points, y, _time_labels(y), what, size)
    return _series(chart, prediction, rising=False)


def _values(points: Sequence[Point]) -> list[float]:
    """Return all values of a chart above zero."""
    return [v for p in points for v in (p.speedup, p.low, p.high, p.ideal, p.model) if v]


def comparison_chart(found: Comparison, size: Size) -> str:
    """Return the run times of two predictions, the second with square points."""
    counts = [pair.n for pair in found.counts]
    lines = [
        ("", [(p.n, p.a_s, *p.a_interval) for p in found.counts]),
        (" b", [(p.n, p.b_s, *p.b_interval) for p in found.counts]),
    ]
    y = _times([v for _, line in lines for _, *row in line for v in row if v], size)
    svg = Svg(size.width, size.height, "Run times of both over the number of processes")
    x = Log(counts[0], counts[-1], LEFT + 12, size.width - RIGHT - 12)
    for kind, line in lines:
        points = [Point(n, time, low, high, time, bool(kind), None) for n, time, low, high in line]
        chart = _Chart(svg, points, x, y)
        if not kind:
            _frame(chart, _time_labels(y))
        _interval(chart, kind)
        if found.warning:
            svg.path(hatching(edges_of(points, x, y)), "hatch")
        svg.polyline([chart.at(p.n, p.speedup) for p in points], f"curve{kind}")
        for p in points:
            told = f"{'AB'[bool(kind)]}, {processes(p.n)}: {seconds(p.speedup)}"
            _mark(chart, p, 4.0, told)
    return svg.markup()


def warning_lines(warning: str, width: float) -> list[str]:
    """Return the lines that say that a prediction is not to be trusted; none where it is."""
    return wrap(warning, max(int(width / _WARNING_LETTER), 12))


def _times(shown: Sequence[float], size: Size) -> Log:
    low, high = min(shown, default=1.0), max(shown, default=1.0)
    if high < 1.5 * low:
        low, high = log_ends([low, high])
    return Log(max(low / 1.12, high / 2.0**24), high * 1.12, size.height - BOTTOM, TOP)


def _time_labels(y: Log) -> list[tuple[float, str]]:
    """Return round times and where they stand: powers of ten; where few, also 2 and 5 times."""
    ticks = y.powers(10)
    if len(ticks) <= 3:
        each = range(math.floor(math.log10(y.low)), math.ceil(math.log10(y.high)) + 1)
        ticks = [t for k in each for m in (1, 2, 5) if y.low <= (t := m * 10.0**k) <= y.high]
    return [(y(tick), round_time(tick)) for tick in ticks]


def _begun(
    prediction: Prediction,
    points: Sequence[Point],
    y: Linear | Log,
    ticks: Sequence[tuple[float, str]],
    what: str,
    size: Size,
) -> _Chart:
    """Return a chart with all that is behind its curve; what: it shows."""
    above = warning_lines(warning_of(prediction), size.width) if size.warned else ()
    svg = Svg(size.width, size.height, f"{what}; {_SEE}", above=above)
    x = Log(points[0].n, points[-1].n, LEFT + 12, size.width - RIGHT - 12)
    chart = _Chart(svg, points, x, y, prediction)
    _frame(chart, ticks)
    svg.polyline([chart.at(p.n, p.ideal) for p in (points[0], points[-1])], "ideal")
    return chart


def _frame(chart: _Chart, y_ticks: Sequence[tuple[float, str]]) -> None:
    """Draw what is behind the curve: what was traced, grid lines and their labels."""
    svg, x, points, right = chart.svg, chart.x, chart.points, chart.right
    bottom = chart.bottom
    traced = chart.prediction.traced_counts if chart.prediction else ()
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
        if right - edge > 90:
            svg.text(edge + 6, TOP + 15, "predicted", "note")
    svg.grid(y_ticks, LEFT, right)
    places, texts = [x(point.n) for point in points], [f"{point.n:,}" for point in points]
    for place in svg.labels(places, texts, bottom + 20):
        svg.line((place, bottom), (place, bottom + 5), "tick")
    svg.line((LEFT, bottom), (right, bottom), "axis")
    svg.text((LEFT + right) / 2, svg.height - 6, "processes", "name", "middle")


def _speedups(
    points: Sequence[Point], prediction: Prediction, beside: Sequence[Curve]
) -> list[list[tuple[int, float, float, float]]]:
    """Return each curve as (count, least, middle, largest speedup) within the counts shown."""
    base = prediction.base.time_s
    return [
        [
            (n, base / high, base / mid, base / low if low > 0 else base / mid)
            for n, low, mid, high in zip(each.counts, each.low, each.mid, each.high, strict=True)
            if points[0].n <= n <= points[-1].n and mid > 0
        ]
        for each in beside
    ]


def _beside(chart: _Chart, curves: Iterable[Sequence[tuple[int, Any, Any, Any]]]) -> None:
    """Draw curves of other methods, behind the predicted one."""
    for rows in curves:
        if len(rows) > 1:
            top = [chart.at(n, high) for n, _, _, high in rows]
            bottom = [chart.at(n, low) for n, low, _, _ in reversed(rows)]
            chart.svg.polygon([*top, *bottom], "otherband")
            chart.svg.polyline([chart.at(n, mid) for n, _, mid, _ in rows], "otherline")


def _interval(chart: _Chart, kind: str = "") -> None:
    """Shade between the ends where they are known; a single count gets a line."""
    ends = [
        (chart.at(p.n, p.low), chart.at(p.n, p.high))
        for p in chart.points
        if p.low is not None and p.high is not None
    ]
    if len(ends) > 1:
        chart.svg.polygon(
            [*(top for _, top in ends), *(low for low, _ in ends[::-1])], f"band{kind}"
        )
    elif ends and ends[0][0] != ends[0][1]:
        chart.svg.line(*ends[0], "whisker")


def _mark(chart: _Chart, point: Point, radius: float, told: str = "") -> None:
    """Draw a square where it was measured, a circle where it is predicted."""
    x, y = chart.at(point.n, point.speedup)
    if point.measured:
        chart.svg.rect(x - 4.5, y - 4.5, 9, 9, "measured", told)
    else:
        chart.svg.circle(x, y, radius, "predicted", told)


def _series(chart: _Chart, prediction: Prediction, rising: bool) -> str:
    """Draw interval, curve, marks, and a box of numbers for each count; return the picture."""
    svg, points = chart.svg, chart.points
    _interval(chart)
    warning = warning_of(prediction)
    if warning:
        svg.path(hatching(edges_of(points, chart.x, chart.y)), "hatch")
    svg.polyline(
        [chart.at(p.n, p.speedup) for p in points], "curve untrusted" if warning else "curve"
    )
    worth = prediction.recommended
    best = None if warning or worth is None else worth.n
    for point in points:
        if point.n == best:
            svg.circle(*chart.at(point.n, point.speedup), 11, "best")
        if point.measured and point.model is not None:
            svg.circle(*chart.at(point.n, point.model), 4, "model")
        _mark(chart, point, 4 if len(points) <= 40 else 2)
    if best in {point.n for point in points} and len(points) > 1:
        point = next(p for p in points if p.n == best)
        _best(chart, *chart.at(point.n, point.speedup), rising)
    _hits(chart, prediction)
    return svg.markup()


def _best(chart: _Chart, x: float, y: float, rising: bool) -> None:
    """Name the recommended count on the side where no curve is."""
    right = x < chart.right - 90
    below = rising == right
    chart.svg.text(
        x + 12 if right else x - 12,
        y + 24 if below else y - 14,
        "worth using",
        "bestname",
        "start" if right else "end",
    )


def _hits(chart: _Chart, prediction: Prediction) -> None:
    """Make each count a column that shows its numbers when the pointer is there."""
    rows, speedups = prediction.counts, points_of(prediction)
    svg = chart.svg
    places = [chart.at(point.n, point.speedup) for point in chart.points]
    for k, (speedup, row) in enumerate(zip(speedups, rows, strict=True)):
        x, y = places[k]
        left = (places[k - 1][0] + x) / 2 if k else LEFT
        right = (x + places[k + 1][0]) / 2 if k + 1 < len(places) else chart.right
        if right - left < 1.5:
            continue
        svg.group("hit")
        svg.rect(left, TOP, right - left, chart.bottom - TOP, "catch")
        svg.line((x, TOP), (x, chart.bottom), "guide")
        svg.tip(x, y, _tip(speedup, row), LEFT, chart.right)
        svg.end()


def _tip(point: Point, row: Count) -> list[str]:
    ends = interval_of(row)
    told = [
        f"{processes(point.n)}, {'measured' if point.measured else 'predicted'}",
        f"time {seconds(row.time_s)}" + ("" if ends == NOT_KNOWN else f"  ({ends})"),
        f"speedup {factor(point.speedup)}",
        f"efficiency {percent(row.efficiency)}",
    ]
    if point.low is not None and point.high is not None and point.low != point.high:
        told[2] += f"  ({factor(point.low)} to {factor(point.high)})"
    if point.measured and point.model is not None:
        told.append(f"by the model {factor(point.model)}")
    return told


#: Size of the chart of one phase, and its margins.
_WIDE, _HIGH = 360.0, 210.0
_RIGHT, _TOP, _BOTTOM = 14.0, 10.0, 28.0


def phase_chart(curves: PhaseCurves) -> str:
    """Return the parts of one phase as lines; a part that is zero somewhere has a gap there."""
    svg = Svg(_WIDE, _HIGH, f"Time of phase {curves.name} over the number of processes")
    values = [value for part in curves.parts.values() for value in part if value]
    low, high = log_ends(values, 10.0, 23.0)
    x = Log(curves.counts[0], curves.counts[-1], LEFT + 8, _WIDE - _RIGHT - 8)
    y = Log(low, high, _HIGH - _BOTTOM, _TOP)
    svg.grid([(y(tick), round_time(tick)) for tick in y.powers(10, 5)], LEFT, _WIDE - _RIGHT)
    places = [x(n) for n in curves.counts]
    svg.labels(places, [f"{n:,}" for n in curves.counts], _HIGH - 9, 10)
    svg.line((LEFT, _HIGH - _BOTTOM), (_WIDE - _RIGHT, _HIGH - _BOTTOM), "axis")
    for kind, part in curves.parts.items():
        svg.group(f"series l-{kind}")
        known = [value is not None and value >= low for value in part]
        drawn = [(place, y(value or low)) for place, value in zip(places, part, strict=True)]
        for is_known, run in groupby(zip(known, drawn, strict=True), key=lambda pair: pair[0]):
            if is_known:
                svg.polyline([place for _, place in run], "part")
        for n, value, (left, top) in zip(curves.counts, part, drawn, strict=True):
            if value is not None and value >= low:
                told = f"{processes(n)}, {KIND_NAMES[kind]}: {seconds(value)}"
                svg.circle(left, top, 2.8, "dot", told)
        svg.end()
    return svg.markup()
