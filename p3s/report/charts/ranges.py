"""Values with their ranges, a line each: estimators, parts of an interval, residuals, shares."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from p3s.base.text import percent, processes, seconds
from p3s.predict.types import Count, Residual
from p3s.report.charts.draw import LETTER, Linear, Svg
from p3s.report.sure import Estimate, Shares, verdict_order

WIDTH = 560.0
LINE, TOP, BOTTOM, RIGHT = 30.0, 8.0, 34.0, 24.0


def estimate_chart(estimates: Sequence[Estimate]) -> str:
    """Return the run times of the estimators; empty where fewer than two give one."""
    known = [(each, each.time) for each in estimates if each.time is not None]
    if len(known) < 2:
        return ""
    ends = [v for each, time in known for v in (each.low, time, each.high) if v is not None]
    names = [(each.name, "chosen" if each.chosen else "other") for each, _ in known]
    svg, x, places = _lines(names, ends, "Run time by each estimator", seconds)
    for place, (each, time), (_, kind) in zip(places, known, names, strict=True):
        told = f"{each.name}: {seconds(time)}"
        if each.low is not None and each.high is not None and each.high > each.low:
            _range(svg, x(each.low), x(each.high), place, kind)
            told += f", {seconds(each.low)} to {seconds(each.high)}"
        svg.circle(x(time), place, 5.5, f"mark {kind}", told)
    return svg.markup()


def interval_chart(row: Count) -> str:
    """Return how wide each part makes the interval of the model's time at a count, and the whole of
    it; empty without parts."""
    parts = row.interval_parts.known()
    shown = [(name, "other", *ends) for name, ends in parts.items() if min(ends) > 0]
    if not shown:
        return ""
    time, low, high = row.model_s, row.model_low_s, row.model_high_s
    if time and low and high is not None:
        shown.append(("all together", "chosen", low / time, high / time))
    ends = [100 * (v - 1) for *_, low, high in shown for v in (low, high)]
    what = "How much each part widens the interval of the run time"
    svg, x, places = _lines([(name, kind) for name, kind, *_ in shown], [0.0, *ends], what)
    for place, (name, kind, low, high) in zip(places, shown, strict=True):
        left, right = x(100 * (low - 1)), x(100 * (high - 1))
        told = f"{name}: {100 * (low - 1):+.1f} % to {100 * (high - 1):+.1f} %"
        svg.rect(left, place - 7, max(right - left, 1.5), 14, f"widen {kind}", told)
    return svg.markup()


def residual_chart(residuals: Sequence[Residual]) -> str:
    """Return measured over model at each count; empty where nothing can be compared."""
    known = [each for each in residuals if each.ratio is not None and each.ratio > 0]
    if not known:
        return ""
    # what does not tell how fast the program is would set the scale for what does
    known = ([each for each in known if each.representative] or known)[:24]
    off = [100 * ((each.ratio or 1.0) - 1) for each in known]
    wide = max(2.0, *(abs(v) for v in off)) * 1.15
    names = [(f"{each.n:,}: {each.what}", "other") for each in known]
    what = "Measured time over that of the model, by process count"
    svg, x, places = _lines(names, [-wide, wide], what)
    for place, each, by in zip(places, known, off, strict=True):
        kind = "measured" if each.representative else "model"
        told = f"{processes(each.n)}, {each.what}: {by:+.1f} % of the model"
        svg.line((x(0.0), place), (x(by), place), "range other")
        svg.rect(x(by) - 4.5, place - 4.5, 9, 9, kind, told)
    return svg.markup()


def shares_chart(shares: Shares) -> str:
    """Return a bar of verdicts for each of events and bytes; empty where none are known."""
    columns = {kind: values for kind, values in shares.columns.items() if sum(values) > 0}
    if not columns:
        return ""
    left = 64.0
    svg = Svg(WIDTH, 10 + 30 * len(columns), "Share of each verdict, of events and bytes")
    for line, (kind, values) in enumerate(columns.items()):
        top = 6.0 + 30 * line
        svg.text(left - 10, top + 15, kind, anchor="end")
        at, whole = left, sum(values)
        for k in range(len(shares.names)):
            wide = (WIDTH - left - 4) * values[k] / whole
            svg.rect(
                at,
                top,
                wide,
                20,
                f"bar {verdict_class(shares.names[k])}",
                f"{shares.names[k]}: {percent(values[k])} of the {kind}",
            )
            if wide > (len(shares.names[k]) + 9) * LETTER:
                svg.text(at + 8, top + 14.5, f"{shares.names[k]} {percent(values[k])}", "onbar")
            at += wide
    return svg.markup()


def verdict_class(name: str) -> str:
    """Return the class of a verdict's colour."""
    at = verdict_order(name)[0]
    return ("v-exact", "v-fitted", "v-fitted", "v-stat", "v-doubt", "v-none", "v-none", "v-doubt")[
        at
    ]


def _signed(value: float) -> str:
    """Return a change in per cent."""
    if abs(value) < 1e-9:
        return "0 %"
    return (f"{value:+,.0f} %" if abs(value) >= 10 else f"{value:+.3g} %").replace("-", "−")


# ---- parts of charts with a line per name ------------------------------------------------------
def _lines(
    names: Sequence[tuple[str, str]],
    ends: Sequence[float],
    label: str,
    shown: Callable[[float], str] = _signed,
) -> tuple[Svg, Linear, list[float]]:
    """Return a chart with a line per name and its kind, its axis, and where the lines are.

    ends: values that have to fit; shown: how a tick is written. Zero has a line where it is inside.
    """
    low, high, bottom = min(ends), max(ends), TOP + LINE * len(names)
    left = min(max(len(name) for name, _ in names) * LETTER + 16, WIDTH * 0.4)
    room = (high - low) * 0.06 or abs(high) * 0.1 or 1.0
    svg = Svg(WIDTH, bottom + BOTTOM, label)
    x = Linear(low - room, high + room, left, WIDTH - RIGHT)
    for tick in x.ticks():
        svg.line((x(tick), TOP), (x(tick), bottom), "grid")
        svg.text(x(tick), bottom + 18, shown(tick), anchor="middle")
    if low <= 0.0:
        svg.line((x(0.0), TOP), (x(0.0), bottom), "axis")
    places = [TOP + LINE * (k + 0.5) for k in range(len(names))]
    cut = int(WIDTH * 0.4 / LETTER)
    for place, (name, kind) in zip(places, names, strict=True):
        name = name if len(name) <= cut else f"{name[: cut - 1]}…"
        svg.text(0, place + 4, name, f"line {kind}")
    return svg, x, places


def _range(svg: Svg, left: float, right: float, place: float, kind: str) -> None:
    svg.line((left, place), (right, place), f"range {kind}")
    for end in (left, right):
        svg.line((end, place - 5), (end, place + 5), f"range {kind}")
