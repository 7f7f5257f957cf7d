"""Where the time goes, a stacked bar per process count, and how wide parts make an interval."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from p3s.base.text import percent, processes, seconds
from p3s.predict.types import Count
from p3s.report.charts.figures import COLOURS, fit, literal, mark_counts, name_axes, tell
from p3s.report.costs import KIND_NAMES, KINDS, Stacks

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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
#: Bars that have their total above them; of more it is the last one alone.
MAX_TOTALS = 12


def kind_legend(shown: Iterable[Container[str]]) -> list[tuple[str, str]]:
    """Return class and name of the parts of the time that occur in some of what is shown."""
    held = list(shown)
    kinds = (kind for kind in KINDS if any(kind in each for each in held))
    return [(f"k-{kind}", KIND_NAMES[kind]) for kind in kinds]


def stack(
    axes: Axes, stacks: Stacks, measure: str, by_phase: bool, warning: str = "", network: str = ""
) -> None:
    """Draw the bars of one measure (a key of MEASURES), by phase or by part of the time.

    warning: that they are not to be trusted, which hatches them; network: what they are for.
    """
    rows, places = stacks.rows, list(range(len(stacks.rows)))
    layers = _phase_layers(stacks) if by_phase else _kind_layers(stacks)
    wholes = [sum(values) for values in zip(*(values for *_, values in layers), strict=True)]
    wholes = wholes or [0.0] * len(rows)
    by = [_unit(row.n, whole, measure) for row, whole in zip(rows, wholes, strict=True)]
    tops = [whole * unit for whole, unit in zip(wholes, by, strict=True)]
    peaks, told = list(tops), [processes(row.n) for row in rows]
    timed, names = measure == "time", MEASURES[measure][0]
    for k, row in enumerate(rows):
        if timed and row.low is not None and row.high is not None and row.low < row.high:
            peaks[k] = max(tops[k], row.high)
            axes.vlines(k, row.low, row.high, color=COLOURS["ink"], linewidth=1.5, zorder=3)
    axes.set_ylim(0.0, 1.0 if measure == "share" else 1.1 * max(peaks) or 1.0)
    beside = max(0.6, 3.0 - 0.5 * len(rows))  # a few bars are not wider than one of six
    axes.set_xlim(-beside, len(rows) - 1 + beside)
    axes.yaxis.set_major_formatter(lambda value, _: _label(value, measure))
    what = f"{names} by {'phase' if by_phase else 'part'}"
    what = f"Stacked bars over the number of processes: {what}"
    name_axes(axes, what, "processes x time" if measure == "core" else names, warning, network)
    mark_counts(axes, places, [row.n for row in rows])
    below = [0.0] * len(rows)
    look: dict[str, Any] = {"edgecolor": COLOURS["card"], "linewidth": 0.6}
    look |= {"hatch": "//"} if warning else {}
    for name, colour, values in layers:
        heights = [value * unit for value, unit in zip(values, by, strict=True)]
        axes.bar(places, heights, 0.72, below, color=colour, label=literal(name), **look)
        below = [low + height for low, height in zip(below, heights, strict=True)]
        for k, value in enumerate(values):
            told[k] += f"\n{name}: {_describe(value, wholes[k], rows[k].n, measure)}"
    if measure != "share":
        totals = [_label(top, measure) for top in tops]
        if len(rows) > MAX_TOTALS:
            totals[:-1] = [""] * (len(rows) - 1)
        for k, text in enumerate(fit(axes, places, totals, 0.83)):
            at: dict[str, Any] = {"textcoords": "offset points", "horizontalalignment": "center"}
            axes.annotate(text, (k, peaks[k]), (0, 4), color=COLOURS["ink"], size="small", **at)
    if measure == "core" and len(rows) > 1:
        axes.axhline(tops[0], color=COLOURS["waiting"], linewidth=1.3, linestyle="--", zorder=3)
    tell(axes, places, told)


Layers = list[tuple[str, str, Sequence[float]]]


def _kind_layers(stacks: Stacks) -> Layers:
    """Return (name, colour, seconds of each count) from the bottom up."""
    kinds = [kind for kind in KINDS if any(kind in row.kinds for row in stacks.rows)]
    return [
        (KIND_NAMES[kind], COLOURS[kind], [row.kinds.get(kind, 0.0) for row in stacks.rows])
        for kind in kinds
    ]


def _phase_layers(stacks: Stacks) -> Layers:
    """Return (name, colour, seconds of each count) from the bottom up."""
    colours = [f"f{k}" for k in range(len(stacks.names))]
    if stacks.has_others:
        colours[-1] = "rest"
    columns = zip(*(row.phases for row in stacks.rows), strict=True)
    return [
        (shorten_name(name), COLOURS[colour], values)
        for name, colour, values in zip(stacks.names, colours, columns, strict=True)
    ]


def shorten_name(name: str, limit: int = 28) -> str:
    """Return a name that has room in a legend."""
    return name if len(name) <= limit else f"{name[: limit - 1]}…"


def _unit(n: int, whole: float, measure: str) -> float:
    """Return what a second is in a measure."""
    share = 1.0 / whole if whole > 0 else 0.0
    return {"core": float(n), "time": 1.0, "share": share}[measure]


def _label(value: float, measure: str) -> str:
    if measure == "share":
        return f"{100 * value:.0f} %"
    return core_time(value) if measure == "core" else seconds(value)


def core_time(value: float) -> str:
    """Return a time of many cores together: hours where it is many."""
    if value >= 36_000:
        return f"{value / 3600:,.3g} h" if value < 3.6e6 else f"{value / 3600:,.0f} h"
    return seconds(value)


def _describe(value: float, whole: float, n: int, measure: str) -> str:
    share = percent(value / whole) if whole > 0 else percent(0.0)
    return f"{core_time(value * n) if measure == 'core' else seconds(value)}, {share}"


# ---- intervals -----------------------------------------------------------------------------------
def interval_rows(row: Count) -> list[tuple[str, float, float]]:
    """Return by how many per cent each part widens the interval of a time, and the whole of it."""
    parts = row.interval_parts.known()
    rows = [(name, *ends) for name, ends in parts.items() if min(ends) > 0]
    time, low, high = row.model_s, row.model_low_s, row.model_high_s
    if rows and time and low and high is not None:
        rows.append(("all together", low / time, high / time))
    return [(name, 100 * (low - 1), 100 * (high - 1)) for name, low, high in rows]


def interval(axes: Axes, row: Count, heading: str = "") -> None:
    """Draw :func:`interval_rows`, a line each, below a heading."""
    names, lows, highs = zip(*interval_rows(row), strict=True)
    colours = [COLOURS["accent" if name == "all together" else "rest"] for name in names]
    widths = [high - low for low, high in zip(lows, highs, strict=True)]
    look: dict[str, Any] = {"color": colours, "edgecolor": colours, "linewidth": 1.5}
    axes.barh(range(len(names)), widths, 0.5, lows, **look)
    name_axes(axes, "How much each part widens the interval of the run time", heading)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.grid(axis="x")
    axes.axvline(0.0, color=COLOURS["soft"], linewidth=0.8)
    axes.xaxis.set_major_formatter(lambda value, _: _change(value))
    axes.use_sticky_edges = False
    axes.margins(x=0.06)


def _change(value: float) -> str:
    """Return a change in per cent."""
    if abs(value) < 1e-9:
        return "0 %"
    return (f"{value:+,.0f} %" if abs(value) >= 10 else f"{value:+.3g} %").replace("-", "−")
