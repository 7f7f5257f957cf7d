"""Speedup, efficiency and run time over the process count: interval, ideal, measured points."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from textwrap import wrap

from p3s.base.text import NOT_KNOWN, ends, factor, percent, processes, seconds
from p3s.predict.types import Count, Prediction
from p3s.report.charts.draw import (
    Axes,
    Box,
    Linear,
    Log,
    Svg,
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
#: Speedups that are drawn are at most 2**16 times as far apart, times 2**24 times.
_SPAN, _TIME_SPAN = 16.0, 24.0
#: Efficiencies that are drawn at most.
_MOST_EFFICIENCY = 4.0
#: Width that a letter of a warning takes, at most.
_WARNING_LETTER = 7.75
_SEE = "the table of process counts has the numbers"

#: A scale and the values that have a grid line, each with its label.
Scale = tuple[Linear | Log, Sequence[tuple[float, str]]]


@dataclass(frozen=True)
class Size:
    """Width and height of a chart; ``warned``: it says itself that it is not to be trusted."""

    width: float = 560.0
    height: float = 400.0
    warned: bool = True

    @property
    def box(self) -> Box:
        """The area between the axes."""
        return Box(LEFT, TOP, self.width - RIGHT, self.height - BOTTOM)


def speedup_chart(prediction: Prediction, beside: Sequence[Curve] = (), size: Size = Size()) -> str:
    """Return speedup over processes, both logarithmic; beside: other methods' curves."""
    what = f"Speedup over the number of processes, relative to {prediction.baseline_n}"
    curves = [_scale_curve(prediction, curve, lambda _, speedup: speedup) for curve in beside]

    def scale(shown: Sequence[float], box: Box) -> Scale:
        shown = [*shown, *(mid for curve in curves for _, _, mid, _ in curve)]
        high = max(1.0, *shown) * 1.08
        low = max(min(1.0, *shown) / 1.12, high / 2.0**_SPAN)  # near zero must not flatten it
        y = Log(low, high, box.bottom, box.top)
        return y, [(tick, times_label(tick)) for tick in y.powers()]

    return _chart(prediction, points_of(prediction), scale, what, size, curves).svg.markup()


def efficiency_chart(
    prediction: Prediction, beside: Sequence[Curve] = (), size: Size = Size()
) -> str:
    """Return efficiency over processes, up to 400 %; beside: other methods' curves."""
    base, limit = prediction.baseline_n, prediction.knee_efficiency

    def efficiency(n: int, speedup: float) -> float:
        return speedup * base / n

    def known(p: Point, speedup: float | None) -> float | None:
        return None if speedup is None else efficiency(p.n, speedup)

    points = [
        Point(
            *(p.n, efficiency(p.n, p.speedup), known(p, p.low), known(p, p.high)),
            *(1.0, p.measured, known(p, p.model)),
        )
        for p in points_of(prediction)
    ]
    top = min(nice_top(max(1.0, *(v for p in points for v in _list_values(p)))), _MOST_EFFICIENCY)

    def scale(_shown: Sequence[float], box: Box) -> Scale:
        y = Linear(0.0, top, box.bottom, box.top)
        return y, [(tick, f"{100 * tick:.0f} %") for tick in y.ticks()]

    what = f"Efficiency over the number of processes, relative to {base}"
    curves = [_scale_curve(prediction, curve, efficiency) for curve in beside]
    chart = _chart(prediction, points, scale, what, size, curves, rising=False)
    if 0 < limit < top:
        y, box = chart.y(limit), chart.box
        chart.svg.line((box.left, y), (box.right, y), "limit")
        chart.svg.text(box.left + 6, y + 15, f"{100 * limit:.3g} %: worth it above", "note")
    return chart.svg.markup()


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
    what = "Run time over the number of processes"
    return _chart(prediction, points, _time_scale, what, size, rising=False).svg.markup()


def comparison_chart(found: Comparison, size: Size) -> str:
    """Return the run times of two predictions, the second with square points."""
    lines = {
        "": [(p.n, p.a_s, *p.a_interval) for p in found.counts],
        " b": [(p.n, p.b_s, *p.b_interval) for p in found.counts],
    }
    shown = [v for line in lines.values() for _, *row in line for v in row if v]
    svg = Svg(size.width, size.height, "Run times of both over the number of processes")
    y, ticks = _time_scale(shown, size.box)
    counts = [pair.n for pair in found.counts]
    chart = Axes(svg, size.box, _across(counts, size.box), y)
    chart.frame(ticks, counts)
    for kind, line in lines.items():
        points = [Point(n, time, low, high, time, bool(kind), None) for n, time, low, high in line]
        _band(chart, points, f"band{kind}")
        if found.warning:
            chart.hatch(points)
        chart.line([(p.n, p.speedup) for p in points], f"curve{kind}")
        for p in points:
            _mark(chart, p, 4.0, f"{'AB'[bool(kind)]}, {processes(p.n)}: {seconds(p.speedup)}")
    return svg.markup()


def warning_lines(warning: str, width: float) -> list[str]:
    """Return the lines that say that a prediction is not to be trusted; none where it is."""
    return wrap(warning, max(int(width / _WARNING_LETTER), 12))


# ---- scales --------------------------------------------------------------------------------------
def _list_values(point: Point) -> list[float]:
    return [v for v in (point.speedup, point.high, point.model) if v is not None]


def _across(counts: Sequence[int], box: Box) -> Log:
    return Log(counts[0], counts[-1], box.left + 12, box.right - 12)


def _time_scale(shown: Sequence[float], box: Box) -> Scale:
    """Return a scale of times: lines at powers of ten; where few, also at 2 and 5 times."""
    low, high = min(shown, default=1.0), max(shown, default=1.0)
    if high < 1.5 * low:
        low, high = log_ends([low, high])
    y = Log(max(low / 1.12, high / 2.0**_TIME_SPAN), high * 1.12, box.bottom, box.top)
    ticks = y.powers(10)
    if len(ticks) <= 3:
        each = range(math.floor(math.log10(y.low)), math.ceil(math.log10(y.high)) + 1)
        ticks = [t for k in each for m in (1, 2, 5) if y.low <= (t := m * 10.0**k) <= y.high]
    return y, [(tick, round_time(tick)) for tick in ticks]


def _scale_curve(
    prediction: Prediction, curve: Curve, value: Callable[[int, float], float]
) -> list[tuple[int, float, float, float]]:
    """Return a curve of times as (count, least, middle, largest value) within the counts shown.

    value: of a count and a speedup.
    """
    base, first, last = prediction.base.time_s, prediction.counts[0].n, prediction.last.n
    rows = zip(curve.counts, curve.low, curve.mid, curve.high, strict=True)
    return [
        (n, value(n, base / high), value(n, base / mid), value(n, base / (low if low > 0 else mid)))
        for n, low, mid, high in rows
        if first <= n <= last and mid > 0
    ]


# ---- what is drawn -------------------------------------------------------------------------------
def _chart(
    prediction: Prediction,
    points: Sequence[Point],
    scale: Callable[[Sequence[float], Box], Scale],
    what: str,
    size: Size,
    beside: Sequence[Sequence[tuple[int, float, float, float]]] = (),
    rising: bool = True,
) -> Axes:
    """Return a chart of points; what: it shows, beside: curves behind it."""
    warning, box, counts = warning_of(prediction), size.box, [p.n for p in points]
    above = warning_lines(warning, size.width) if size.warned else ()
    shown = [v for p in points for v in (p.speedup, p.low, p.high, p.ideal, p.model) if v]
    y, ticks = scale(shown, box)
    svg = Svg(size.width, size.height, f"{what}; {_SEE}", above=above)
    chart = Axes(svg, box, _across(counts, box), y)
    _shade_traced(chart, prediction)
    chart.frame(ticks, counts)
    chart.line([(p.n, p.ideal) for p in (points[0], points[-1])], "ideal")
    for rows in beside:
        chart.band([(n, low, high) for n, low, _, high in rows], "otherband")
        chart.line([(n, mid) for n, _, mid, _ in rows], "otherline")
    _band(chart, points, "band")
    if warning:
        chart.hatch(points)
    chart.line([(p.n, p.speedup) for p in points], "curve untrusted" if warning else "curve")
    worth = None if warning else prediction.recommended
    for point in points:
        if worth is not None and point.n == worth.n:
            _best(chart, point, rising, named=len(points) > 1)
        if point.measured and point.model is not None:
            svg.circle(*chart.at(point.n, point.model), 4, "model")
        _mark(chart, point, 4 if len(points) <= 40 else 2)
    _numbers(chart, prediction, points)
    return chart


def _shade_traced(chart: Axes, prediction: Prediction) -> None:
    """Shade the counts that were traced."""
    svg, box, largest = chart.svg, chart.box, max(prediction.traced_counts, default=0)
    if not prediction.counts[0].n <= largest < prediction.last.n:
        return
    edge, high = chart.x(largest), box.bottom - box.top
    told = f"traced, up to {processes(largest)}"
    svg.rect(box.left, box.top, edge - box.left, high, "traced", told)
    if edge - box.left > 56:
        svg.text(edge - 6, box.top + 15, "traced", "note", "end")
    if box.right - edge > 90:
        svg.text(edge + 6, box.top + 15, "predicted", "note")


def _band(chart: Axes, points: Sequence[Point], kind: str) -> None:
    """Shade the intervals that are known."""
    known = [(p.n, p.low, p.high) for p in points if p.low is not None and p.high is not None]
    chart.band(known, kind)


def _mark(chart: Axes, point: Point, radius: float, told: str = "") -> None:
    """Draw a square where it was measured, a circle where it is predicted."""
    x, y = chart.at(point.n, point.speedup)
    if point.measured:
        chart.svg.rect(x - 4.5, y - 4.5, 9, 9, "measured", told)
    else:
        chart.svg.circle(x, y, radius, "predicted", told)


def _best(chart: Axes, point: Point, rising: bool, named: bool) -> None:
    """Ring the recommended count, and name it on the side where no curve is."""
    x, y = chart.at(point.n, point.speedup)
    chart.svg.circle(x, y, 11, "best")
    if named:
        right = x < chart.box.right - 90
        y += 24 if rising == right else -14
        anchor = "start" if right else "end"
        chart.svg.text(x + 12 if right else x - 12, y, "worth using", "bestname", anchor)


def _numbers(chart: Axes, prediction: Prediction, points: Sequence[Point]) -> None:
    """Make each count a column that tells its numbers when the pointer is there."""
    svg, box, places = chart.svg, chart.box, [chart.x(point.n) for point in points]
    borders = [(a + b) / 2 for a, b in zip(places, places[1:], strict=False)]
    ends = zip([box.left, *borders], [*borders, box.right], strict=True)
    each = zip(prediction.counts, points_of(prediction), places, ends, strict=True)
    for row, point, x, (left, right) in each:
        if right - left >= 1.5:
            svg.group("hit", "\n".join(_describe_count(point, row)))
            svg.rect(left, box.top, right - left, box.bottom - box.top, "catch")
            svg.line((x, box.top), (x, box.bottom), "guide")
            svg.end()


def _describe_count(point: Point, row: Count) -> list[str]:
    """Return the numbers of a count."""
    sure = interval_of(row)
    told = [
        f"{processes(point.n)}, {'measured' if point.measured else 'predicted'}",
        f"time {seconds(row.time_s)}" + ("" if sure == NOT_KNOWN else f"  ({sure})"),
        f"speedup {factor(point.speedup)}",
        f"efficiency {percent(row.efficiency)}",
    ]
    if point.low is not None and point.high is not None and point.low != point.high:
        told[2] += f"  ({ends(factor(point.low), factor(point.high))})"
    if point.measured and point.model is not None:
        told.append(f"by the model {factor(point.model)}")
    return told


#: Size of the chart of one phase, and its area.
_WIDE, _HIGH = 360.0, 210.0
_PHASE_BOX = Box(LEFT, 10.0, _WIDE - 14.0, _HIGH - 28.0)


def phase_chart(curves: PhaseCurves) -> str:
    """Return the parts of one phase as lines; a part that is zero somewhere has a gap there."""
    svg = Svg(_WIDE, _HIGH, f"Time of phase {curves.name} over the number of processes")
    low, high = log_ends([v for part in curves.parts.values() for v in part if v], 10.0, 23.0)
    x = Log(curves.counts[0], curves.counts[-1], _PHASE_BOX.left + 8, _PHASE_BOX.right - 8)
    y = Log(low, high, _PHASE_BOX.bottom, _PHASE_BOX.top)
    chart = Axes(svg, _PHASE_BOX, x, y)
    chart.frame([(tick, round_time(tick)) for tick in y.powers(10, 5)], curves.counts, name=False)
    for kind, part in curves.parts.items():
        svg.group(f"series l-{kind}")
        pairs = [
            (n, v if v and v >= low else None) for n, v in zip(curves.counts, part, strict=True)
        ]
        for is_known, run in groupby(pairs, key=lambda pair: pair[1] is not None):
            if is_known:
                chart.line([(n, v or low) for n, v in run], "part")
        for n, value in pairs:
            if value is not None:
                told = f"{processes(n)}, {KIND_NAMES[kind]}: {seconds(value)}"
                svg.circle(*chart.at(n, value), 2.8, "dot", told)
        svg.end()
    return svg.markup()
