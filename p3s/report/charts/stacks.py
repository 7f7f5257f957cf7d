"""Where the time goes, a stacked bar per process count: run time, core time, or shares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from p3s.base.text import percent, processes, seconds
from p3s.report.charts.draw import Linear, Svg, hatching, nice_top, spaced
from p3s.report.costs import KIND_NAMES, KINDS, PhaseCurves, Stack, Stacks

SIZE = (560.0, 330.0)
LEFT, RIGHT, TOP, BOTTOM = 62.0, 10.0, 22.0, 46.0

#: Names of the measures in the order of the page, and what the bars are.
MEASURES = {
    "core": (
        "core time",
        "processes x run time: bars as high as the first one would be perfect "
        "scaling, what is above its dashed line is lost",
    ),
    "time": ("run time", "of the model; the thin line is its interval"),
    "share": ("share", "of the run time"),
}


@dataclass(frozen=True)
class Legend:
    """An entry of a legend: the class of its colour and its name."""

    kind: str
    name: str


def kind_legend(stacks: Stacks) -> list[Legend]:
    """Return the parts of the time that occur."""
    return [
        Legend(f"k-{kind}", KIND_NAMES[kind])
        for kind in KINDS
        if any(kind in row.kinds for row in stacks.rows)
    ]


def curve_legend(curves: Sequence[PhaseCurves]) -> list[Legend]:
    """Return the parts of the time that curves of phases show."""
    shown = [kind for kind in KINDS if any(kind in curve.parts for curve in curves)]
    return [Legend(f"k-{kind}", KIND_NAMES[kind]) for kind in shown]


def phase_legend(stacks: Stacks) -> list[Legend]:
    """Return the phases that have a colour, and the others."""
    return [Legend(_colour(k, stacks), name) for k, name in enumerate(stacks.names)]


def _colour(k: int, stacks: Stacks) -> str:
    return "f-rest" if stacks.has_others and k == len(stacks.names) - 1 else f"f-{k}"


def stack_chart(
    stacks: Stacks,
    measure: str,
    by_phase: bool,
    size: tuple[float, float] = SIZE,
    hatched: bool = False,
) -> str:
    """Return the bars of one measure (a key of MEASURES), by phase or by part of the time.

    ``hatched``: they are not to be trusted.
    """
    width, height = size
    what = f"{MEASURES[measure][0]} by {'phase' if by_phase else 'part'}"
    svg = Svg(width, height, f"Stacked bars over the number of processes: {what}")
    bars = [_segments(stacks, row, by_phase) for row in stacks.rows]
    factors = [_factor(row, bar, measure) for row, bar in zip(stacks.rows, bars, strict=True)]
    tops = [sum(value for _, _, value in bar) * by for bar, by in zip(bars, factors, strict=True)]
    ends = [
        row.high * by
        for row, by in zip(stacks.rows, factors, strict=True)
        if row.high is not None and measure == "time"
    ]
    high = 1.0 if measure == "share" else nice_top(max([*tops, *ends], default=0.0))
    y = Linear(0.0, high, height - BOTTOM, TOP)
    labels = [f"{100 * t:.0f} %" if measure == "share" else _label(t, measure) for t in y.ticks()]
    svg.grid(zip(map(y, y.ticks()), labels, strict=True), LEFT, width - RIGHT)
    slot = (width - LEFT - RIGHT) / len(bars)
    wide = min(slot * 0.72, 64.0)
    centres = [LEFT + slot * (k + 0.5) for k in range(len(bars))]
    totals = [_label(top, measure) for top in tops]
    keep = spaced(centres, totals, 6)
    for k, (row, bar, by) in enumerate(zip(stacks.rows, bars, factors, strict=True)):
        below = 0.0
        for kind, name, value in bar:
            upper = below + value * by
            svg.rect(
                centres[k] - wide / 2,
                y(upper),
                wide,
                y(below) - y(upper),
                f"bar {kind}",
                f"{processes(row.n)}, {name}: {_title(row, value, bar, measure)}",
            )
            below = upper
        edge = y(below)
        if hatched:
            sides = (centres[k] - wide / 2, centres[k] + wide / 2)
            svg.path(hatching([(x, edge, y(0.0)) for x in sides]), "hatch onbars")
        if (
            measure == "time"
            and row.low is not None
            and row.high is not None
            and row.high > row.low
        ):
            svg.line((centres[k], y(row.low)), (centres[k], y(row.high)), "whisker")
            edge = min(edge, y(row.high))
        if measure != "share" and keep[k]:
            svg.text(centres[k], edge - 6, totals[k], "total", "middle")
    if measure == "core" and len(bars) > 1:
        svg.line((LEFT, y(tops[0])), (width - RIGHT, y(tops[0])), "limit")
    texts = [f"{row.n:,}" for row in stacks.rows]
    svg.labels(centres, texts, height - BOTTOM + 20)
    svg.line((LEFT, height - BOTTOM), (width - RIGHT, height - BOTTOM), "axis")
    svg.text((LEFT + width - RIGHT) / 2, height - 6, "processes", "name", "middle")
    return svg.markup()


Segments = Sequence[tuple[str, str, float]]


def _segments(stacks: Stacks, row: Stack, by_phase: bool) -> Segments:
    """Return (class, name, seconds) of a bar from the bottom up."""
    if by_phase:
        return [
            (_colour(k, stacks), name, value)
            for k, (name, value) in enumerate(zip(stacks.names, row.phases, strict=True))
        ]
    return [(f"k-{kind}", KIND_NAMES[kind], value) for kind, value in row.kinds.items()]


def _factor(row: Stack, bar: Segments, measure: str) -> float:
    whole = sum(value for _, _, value in bar)
    return {"core": float(row.n), "time": 1.0, "share": 1.0 / whole if whole > 0 else 0.0}[measure]


def _label(value: float, measure: str) -> str:
    return core_time(value) if measure == "core" else seconds(value)


def core_time(value: float) -> str:
    """Return a time of many cores together: hours where it is many."""
    if value >= 36_000:
        return f"{value / 3600:,.3g} h" if value < 3.6e6 else f"{value / 3600:,.0f} h"
    return seconds(value)


def _title(row: Stack, value: float, bar: Segments, measure: str) -> str:
    whole = sum(part for _, _, part in bar)
    share = percent(value / whole) if whole > 0 else percent(0.0)
    shown = core_time(value * row.n) if measure == "core" else seconds(value)
    return f"{shown}, {share}"
