"""Speedup, efficiency and run time over the process count: interval, ideal, measured points."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from textwrap import fill
from typing import TYPE_CHECKING, Any

from p3s.base.text import NOT_KNOWN, ends, factor, percent, processes, seconds
from p3s.predict.types import Count, Prediction
from p3s.report.charts.figures import (
    COLOURS,
    letter_width,
    literal,
    mark_counts,
    name_axes,
    round_time,
    tell,
)
from p3s.report.compare import Comparison
from p3s.report.costs import KIND_NAMES, PhaseCurves
from p3s.report.counts import Point, interval_of, points_of
from p3s.report.show import Curve
from p3s.report.sure import network_of, warning_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Speedups that are drawn are at most 2**16 times as far apart, times 2**24 times.
_SPAN, _TIME_SPAN = 2.0**16, 2.0**24
#: Efficiencies that are drawn at most.
_MOST_EFFICIENCY = 4.0
#: By how much what is hatched reaches beyond a point at least, so that it can be seen.
_HATCHED = 1.12
#: Curve of another method: its legend and its points.
Other = tuple[str, list[Point]]
_SEE = "the table of process counts has the numbers"


def speedup(axes: Axes, prediction: Prediction, beside: Sequence[Curve] = ()) -> None:
    """Draw speedup over processes, both logarithmic; beside: other methods' curves."""
    base = processes(prediction.baseline_n)
    points = points_of(prediction)
    others = [_scale_curve(prediction, curve, lambda _, value: value) for curve in beside]
    shown = [1.0, *_values(points), *(p.speedup for _, rows in others for p in rows)]
    high = 1.08 * max(shown)
    axes.set_yscale("log", base=2)
    axes.set_ylim(max(min(shown) / 1.12, high / _SPAN), high)
    axes.yaxis.set_major_formatter(lambda value, _: times_label(value))
    what = f"Speedup over the number of processes, relative to {prediction.baseline_n}"
    _draw(axes, prediction, points, what, f"speedup over {base}", others)


def efficiency(axes: Axes, prediction: Prediction, beside: Sequence[Curve] = ()) -> None:
    """Draw efficiency over processes, up to 400 %; beside: other methods' curves."""
    base, limit = prediction.baseline_n, prediction.knee_efficiency

    def of(n: int, value: float | None) -> float | None:
        return None if value is None else value * base / n

    points = [
        replace(
            point,
            speedup=point.speedup * base / point.n,
            low=of(point.n, point.low),
            high=of(point.n, point.high),
            ideal=1.0,
            model=of(point.n, point.model),
        )
        for point in points_of(prediction)
    ]
    others = [
        _scale_curve(prediction, curve, lambda n, value: value * base / n) for curve in beside
    ]
    top = min(1.05 * max(1.0, *_values(points)), _MOST_EFFICIENCY)
    axes.set_ylim(0.0, top)
    axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
    what = f"Efficiency over the number of processes, relative to {base}"
    name = f"efficiency over {processes(base)}"
    _draw(axes, prediction, points, what, name, others)
    if 0 < limit < top:
        look: dict[str, Any] = {"color": COLOURS["waiting"], "linewidth": 1.3, "linestyle": "--"}
        axes.axhline(limit, label=f"{100 * limit:.3g} %: worth it above", **look)


def run_time(axes: Axes, prediction: Prediction) -> None:
    """Draw run times over processes, both logarithmic."""
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
    _scale_times(axes, _values(points))
    what = "Run time over the number of processes"
    _draw(axes, prediction, points, what, "run time")


def comparison(axes: Axes, found: Comparison) -> None:
    """Draw the run times of two predictions, the second with square points."""
    lines = {
        "A": [Point(p.n, p.a_s, *p.a_interval, p.a_s, False, None) for p in found.counts],
        "B": [Point(p.n, p.b_s, *p.b_interval, p.b_s, True, None) for p in found.counts],
    }
    _scale_times(axes, [value for points in lines.values() for value in _values(points)])
    counts = [pair.n for pair in found.counts]
    _scale_counts(axes, counts)
    name_axes(axes, "Run times of both over the number of processes", "run time", found.warning)
    for (name, points), mark, colour in zip(
        lines.items(), "os", ("accent", "measured"), strict=True
    ):
        _band(axes, points, colour, "")
        _line(axes, _middles(points), colour, marker=mark, markersize=7, label=name)
    if found.warning:
        _hatch(axes, [*lines["A"]])
    told = [f"{processes(p.n)}\nA: {seconds(p.a_s)}\nB: {seconds(p.b_s)}" for p in found.counts]
    tell(axes, counts, told)


def phase(axes: Axes, curves: PhaseCurves) -> None:
    """Draw the parts of one phase as lines; a part that is zero somewhere has a gap there."""
    shown = [value for part in curves.parts.values() for value in part if value]
    _scale_times(axes, shown, ticks=5)
    _scale_counts(axes, curves.counts)
    axes.set_label(f"Time of phase {curves.name} over the number of processes")
    axes.set_xlabel("")
    told = [processes(n) for n in curves.counts]
    for kind, part in curves.parts.items():
        pairs = [(n, value or math.nan) for n, value in zip(curves.counts, part, strict=True)]
        _line(axes, pairs, kind, marker="o", markersize=5, linewidth=1.8)
        for k, value in enumerate(part):
            told[k] += "" if value is None else f"\n{KIND_NAMES[kind]} {seconds(value)}"
    tell(axes, curves.counts, told)


# ---- scales --------------------------------------------------------------------------------------
def times_label(value: float) -> str:
    """Return a power of an axis of speedups: 0.25x, 16x, 1,024x."""
    return f"{value:,.0f}x" if value >= 1 else f"{value:.3g}x"


def _values(points: Sequence[Point]) -> list[float]:
    """Return all values of points above zero."""
    each = [(p.speedup, p.low, p.high, p.ideal, p.model) for p in points]
    return [value for values in each for value in values if value]


def _scale_counts(axes: Axes, counts: Sequence[int]) -> None:
    axes.set_xscale("log", base=2)
    first, last = counts[0], counts[-1]
    beside = (last / first) ** 0.03 if last > first else 2.0
    axes.set_xlim(first / beside, last * beside)
    axes.minorticks_off()
    mark_counts(axes, counts, counts)


def _scale_times(axes: Axes, shown: Sequence[float], ticks: int = 9) -> None:
    """Scale the vertical axis for times: lines at powers of ten; where few, also at 2, 5 times."""
    from matplotlib.ticker import LogLocator

    low, high = min(shown, default=1.0), max(shown, default=1.0)
    room = 1.5 if high < 1.5 * low else 1.12
    low, high = max(low / room, high / _TIME_SPAN), high * room
    axes.set_yscale("log")
    axes.set_ylim(low, high)
    room = axes.bbox.height / letter_width(axes) / 10 - 2  # decades, between title and legend
    subs = (1.0, 2.0, 5.0) if math.log10(high / low) < room else (1.0,)
    axes.yaxis.set_major_locator(LogLocator(subs=subs, numticks=ticks))
    axes.yaxis.set_major_formatter(round_time)


def _scale_curve(
    prediction: Prediction, curve: Curve, value: Callable[[int, float], float]
) -> Other:
    """Return a curve of times within the counts shown; value: of a count and a speedup."""
    base, first, last = prediction.base.time_s, prediction.counts[0].n, prediction.last.n
    rows = zip(curve.counts, curve.low, curve.mid, curve.high, strict=True)
    return curve.legend, [
        Point(
            n,
            value(n, base / mid),
            value(n, base / high),
            value(n, base / (low if low > 0 else mid)),
            *(1.0, False, None),
        )
        for n, low, mid, high in rows
        if first <= n <= last and mid > 0
    ]


# ---- what is drawn -------------------------------------------------------------------------------
def _draw(
    axes: Axes,
    prediction: Prediction,
    points: Sequence[Point],
    what: str,
    name: str,
    beside: Sequence[Other] = (),
) -> None:
    """Draw points; what: they show, name: of the axis, beside: curves behind them."""
    warning, counts = warning_of(prediction), [p.n for p in points]
    name_axes(axes, f"{what}; {_SEE}", name, warning, network_of(prediction))
    _scale_counts(axes, counts)
    largest = max(prediction.traced_counts, default=0)
    if counts[0] <= largest < counts[-1]:
        shade: dict[str, Any] = {"color": COLOURS["tint"], "linewidth": 0, "zorder": 0}
        axes.axvspan(axes.get_xlim()[0], largest, label="traced", **shade)
    ideal = [(p.n, p.ideal) for p in (points[0], points[-1])]
    _line(axes, ideal, "soft", linewidth=1.5, linestyle=(0, (1, 2.5)), label="ideal")
    for label, others in beside:
        _band(axes, others, "rest", "")
        _line(axes, _middles(others), "rest", linewidth=1.8, linestyle="--", label=label)
    _band(axes, points, "accent", "interval")
    if warning:
        _hatch(axes, points)
    _line(axes, _middles(points), "accent", linewidth=2.2, linestyle="--" if warning else "-")
    few = len(points) <= 40
    marks: dict[str, Any] = {"linestyle": "", "markersize": 8.0 if few else 3.0}
    edges = {"markeredgecolor": COLOURS["card"], "markeredgewidth": 1.2 * few, **marks}
    predicted, measured = ([p for p in points if p.measured is was] for was in (False, True))
    _line(axes, _middles(predicted), "accent", marker="o", label="predicted", **edges)
    _line(axes, _middles(measured), "measured", marker="s", label="measured", **edges)
    model = [(p.n, p.model) for p in measured if p.model is not None]
    _line(axes, model, "accent", marker="o", fillstyle="none", label="by the model", **marks)
    best = None if warning else prediction.recommended
    ring = [(p.n, p.speedup) for p in points if best is not None and p.n == best.n]
    look = {"fillstyle": "none", "linestyle": "", "markersize": 14.0, "markeredgewidth": 2.0}
    _line(axes, ring, "good", marker="o", label="worth using", **look)
    rows = zip(points_of(prediction), prediction.counts, strict=True)
    tell(axes, counts, ["\n".join(_describe_count(*row)) for row in rows])


def _middles(points: Sequence[Point]) -> list[tuple[int, float]]:
    return [(p.n, p.speedup) for p in points]


def _line(
    axes: Axes, pairs: Sequence[tuple[float, float]], colour: str, label: str = "", **look: Any
) -> None:
    """Draw from point to point, inside of the vertical scale; nothing where there are none."""
    if pairs:
        low, high = axes.get_ylim()
        inside = [min(max(value, low), high) for _, value in pairs]
        look |= {"label": fill(literal(label), 32)} if label else {}
        by = float(axes.xaxis.label.get_fontsize()) / 12.5
        for name in look.keys() & {"linewidth", "markersize", "markeredgewidth"}:
            look[name] *= by
        places = [place for place, _ in pairs]
        axes.plot(places, inside, color=COLOURS[colour], clip_on=False, **look)


def _band(axes: Axes, points: Sequence[Point], colour: str, label: str) -> None:
    """Shade the intervals that are known; that of a single count is a line."""
    known = [(p.n, p.low, p.high) for p in points if p.low is not None and p.high is not None]
    counts, lows, highs = ([each[k] for each in known] for k in range(3))
    look: dict[str, Any] = {"color": COLOURS[colour], "label": label or None}
    if len(known) > 1:
        axes.fill_between(counts, lows, highs, alpha=0.17, linewidth=0, **look)
    elif lows != highs:
        axes.vlines(counts, lows, highs, **look)


def _hatch(axes: Axes, points: Sequence[Point]) -> None:
    """Hatch the intervals of points; where one is not known or narrow, what is around it."""
    counts = [float(p.n) for p in points]
    lows = [min(p.low or p.speedup, p.speedup / _HATCHED) for p in points]
    highs = [max(p.high or p.speedup, p.speedup * _HATCHED) for p in points]
    if len(points) == 1:
        counts = [counts[0] / _HATCHED, counts[0] * _HATCHED]
        lows, highs = 2 * lows, 2 * highs
    look: dict[str, Any] = {"edgecolor": COLOURS["none"], "linewidth": 0, "hatch": "////"}
    label = "not to be trusted"
    axes.fill_between(counts, lows, highs, facecolor="none", label=label, **look)


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
