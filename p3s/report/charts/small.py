"""Small charts, one per phase: its parts over the process count, both axes logarithmic."""

from __future__ import annotations

from p3s.base.text import processes, seconds
from p3s.report.charts.draw import Svg
from p3s.report.charts.scales import Log, log_ends, spaced
from p3s.report.costs import KIND_NAMES, PhaseCurves

WIDTH, HEIGHT = 360.0, 210.0
LEFT, RIGHT, TOP, BOTTOM = 62.0, 14.0, 10.0, 28.0


def phase_chart(curves: PhaseCurves) -> str:
    """Return the parts of one phase as lines; a part that is zero somewhere has a gap there."""
    svg = Svg(WIDTH, HEIGHT, f"Time of phase {curves.name} over the number of processes")
    values = [value for part in curves.parts.values() for value in part if value]
    low, high = log_ends(values, 10.0, 23.0)
    x = Log(curves.counts[0], curves.counts[-1], LEFT + 8, WIDTH - RIGHT - 8)
    y = Log(low, high, HEIGHT - BOTTOM, TOP)
    for tick in y.powers(10, 5):
        svg.line((LEFT, y(tick)), (WIDTH - RIGHT, y(tick)), "grid")
        svg.text(LEFT - 7, y(tick) + 4, _power(tick), anchor="end")
    texts = [f"{n:,}" for n in curves.counts]
    for k, shown in enumerate(spaced([x(n) for n in curves.counts], texts, 10)):
        if shown:
            svg.text(x(curves.counts[k]), HEIGHT - 9, texts[k], anchor="middle")
    svg.line((LEFT, HEIGHT - BOTTOM), (WIDTH - RIGHT, HEIGHT - BOTTOM), "axis")
    for kind, part in curves.parts.items():
        svg.group(f"series l-{kind}")
        run: list[tuple[float, float]] = []
        for n, value in [*zip(curves.counts, part, strict=True), (0, None)]:
            if value is not None and value >= low:
                run.append((x(n), y(value)))
                continue
            svg.polyline(run, "part")
            run = []
        for n, value in zip(curves.counts, part, strict=True):
            if value is not None and value >= low:
                svg.circle(
                    x(n),
                    y(value),
                    2.8,
                    "dot",
                    f"{processes(n)}, {KIND_NAMES[kind]}: {seconds(value)}",
                )
        svg.end()
    return svg.markup()


def _power(value: float) -> str:
    """Return a power of ten seconds as short as it can be."""
    for limit, by, unit in (
        (0.9e-6, 1e9, "ns"),
        (0.9e-3, 1e6, "µs"),
        (0.9, 1e3, "ms"),
        (0.9e4, 1.0, "s"),
    ):
        if value < limit or unit == "s" and value < 0.9e7:
            return f"{value * by:,.0f} {unit}"
    return f"{value:.0e} s".replace("e+0", "e").replace("e+", "e")
