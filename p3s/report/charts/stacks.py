"""Where the time goes, a stacked bar per process count: run time, core time, or shares."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, replace

from p3s.base.text import percent, processes, seconds
from p3s.report.charts.draw import Axes, Box, Linear, Svg, fit_labels, hatching, nice_top
from p3s.report.costs import KIND_NAMES, KINDS, Stack, Stacks

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


def kind_legend(shown: Iterable[Container[str]]) -> list[Legend]:
    """Return the parts of the time that occur in some of what is shown."""
    held = list(shown)
    kinds = (kind for kind in KINDS if any(kind in each for each in held))
    return [Legend(f"k-{kind}", KIND_NAMES[kind]) for kind in kinds]


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
    bars = [_bar(stacks, row, by_phase, measure) for row in stacks.rows]
    timed = measure == "time"
    ends = [bar.row.high for bar in bars if bar.row.high is not None and timed]
    high = 1.0 if measure == "share" else nice_top(max([*(b.top for b in bars), *ends], default=0))
    box = Box(LEFT, TOP, width - RIGHT, height - BOTTOM)
    slot = (box.right - box.left) / len(bars)
    wide = min(slot * 0.72, 64.0)
    counts = [row.n for row in stacks.rows]
    places = {n: box.left + slot * (k + 0.5) for k, n in enumerate(counts)}
    y = Linear(0.0, high, box.bottom, box.top)
    chart = Axes(svg, box, lambda n: places[int(n)], y)
    chart.frame([(tick, _label(tick, measure)) for tick in y.ticks()], counts)
    totals = [_label(bar.top, measure) for bar in bars]
    keep = fit_labels(list(places.values()), totals, 6)
    for bar, centre, total, shown in zip(bars, places.values(), totals, keep, strict=True):
        below, left = 0.0, centre - wide / 2
        for kind, name, value in bar.parts:
            upper = below + value * bar.by
            told = f"{processes(bar.row.n)}, {name}: {_title(bar, value, measure)}"
            svg.rect(left, y(upper), wide, y(below) - y(upper), f"bar {kind}", told)
            below = upper
        edge = y(below)
        if hatched:
            svg.path(hatching([(x, edge, y(0.0)) for x in (left, left + wide)]), "hatch onbars")
        ends_ = (bar.row.low, bar.row.high)
        if timed and ends_[0] is not None and ends_[1] is not None and ends_[0] < ends_[1]:
            svg.line((centre, y(ends_[0])), (centre, y(ends_[1])), "whisker")
            edge = min(edge, y(ends_[1]))
        if measure != "share" and shown:
            svg.text(centre, edge - 6, total, "total", "middle")
    if measure == "core" and len(bars) > 1:
        svg.line((box.left, y(bars[0].top)), (box.right, y(bars[0].top)), "limit")
    return svg.markup()


@dataclass(frozen=True)
class _Bar:
    """A bar: (class, name, seconds) from the bottom up; by: what a second is in its measure."""

    row: Stack
    parts: Sequence[tuple[str, str, float]]
    by: float

    @property
    def whole(self) -> float:
        """All of it, in s."""
        return sum(value for _, _, value in self.parts)

    @property
    def top(self) -> float:
        """How high it is."""
        return self.whole * self.by


def _bar(stacks: Stacks, row: Stack, by_phase: bool, measure: str) -> _Bar:
    named = zip(stacks.names, row.phases, strict=True)
    phases = [(_colour(k, stacks), name, value) for k, (name, value) in enumerate(named)]
    kinds = [(f"k-{kind}", KIND_NAMES[kind], value) for kind, value in row.kinds.items()]
    bar = _Bar(row, phases if by_phase else kinds, 1.0)
    share = 1.0 / bar.whole if bar.whole > 0 else 0.0
    return replace(bar, by={"core": float(row.n), "time": 1.0, "share": share}[measure])


def _label(value: float, measure: str) -> str:
    if measure == "share":
        return f"{100 * value:.0f} %"
    return core_time(value) if measure == "core" else seconds(value)


def core_time(value: float) -> str:
    """Return a time of many cores together: hours where it is many."""
    if value >= 36_000:
        return f"{value / 3600:,.3g} h" if value < 3.6e6 else f"{value / 3600:,.0f} h"
    return seconds(value)


def _title(bar: _Bar, value: float, measure: str) -> str:
    share = percent(value / bar.whole) if bar.whole > 0 else percent(0.0)
    return f"{core_time(value * bar.by) if measure == 'core' else seconds(value)}, {share}"
