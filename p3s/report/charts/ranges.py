"""How wide the parts of an interval are, a line each."""

from __future__ import annotations

from p3s.predict.types import Count
from p3s.report.charts.draw import LETTER, Linear, Svg

WIDTH = 560.0
LINE, TOP, BOTTOM, RIGHT = 30.0, 8.0, 34.0, 24.0


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
    low, high, bottom = min(0.0, *ends), max(0.0, *ends), TOP + LINE * len(shown)
    left = min(max(len(name) for name, *_ in shown) * LETTER + 16, WIDTH * 0.4)
    room = (high - low) * 0.06 or 1.0
    svg = Svg(WIDTH, bottom + BOTTOM, "How much each part widens the interval of the run time")
    x = Linear(low - room, high + room, left, WIDTH - RIGHT)
    for tick in x.ticks():
        svg.line((x(tick), TOP), (x(tick), bottom), "grid")
        svg.text(x(tick), bottom + 18, _format_change(tick), anchor="middle")
    svg.line((x(0.0), TOP), (x(0.0), bottom), "axis")
    for k, (name, kind, low, high) in enumerate(shown):
        place = TOP + LINE * (k + 0.5)
        svg.text(0, place + 4, name, f"line {kind}")
        left, right = x(100 * (low - 1)), x(100 * (high - 1))
        told = f"{name}: {100 * (low - 1):+.1f} % to {100 * (high - 1):+.1f} %"
        svg.rect(left, place - 7, max(right - left, 1.5), 14, f"widen {kind}", told)
    return svg.markup()


def _format_change(value: float) -> str:
    """Return a change in per cent."""
    if abs(value) < 1e-9:
        return "0 %"
    return (f"{value:+,.0f} %" if abs(value) >= 10 else f"{value:+.3g} %").replace("-", "−")
