"""Pictures of a prediction for papers and slides: PNG, SVG and PDF."""

from __future__ import annotations

import io
import math
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from textwrap import wrap
from typing import Any

from p3s.errors import UsageError
from p3s.report.compare import Comparison
from p3s.report.points import base_of, checked_rows, points_of
from p3s.report.verdict import network_of, warning_of
from p3s.study import write_bytes
from p3s.text import processes

#: Formats by the end of the file's name.
FORMATS = ("png", "svg", "pdf")
#: Width and height of a picture in inches where nothing else is asked for.
SIZE = (7.2, 4.4)
#: Limits of both, in inches.
SMALLEST, LARGEST = 1.5, 40.0
#: Colours that remain apart for colour-blind readers and in grey (Okabe and Ito).
BLUE, ORANGE, GREEN, PURPLE, SKY, YELLOW, GREY = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#56B4E9",
    "#F0E442",
    "#999999",
)
#: Of what says that a picture is not to be trusted.
WARNING = "#B22222"
#: Width of a letter of a warning, as part of the size of the letters.
_LETTER = 0.66
#: Ratio by which the hatched strip around a curve reaches beyond it at least.
_STRIP = 1.12
#: Of a curve: count, low end, value, high end, whether it was measured.
Value = tuple[int, float | None, float, float | None, bool]
_PARTS = {"compute": BLUE, "software": YELLOW, "transfer": GREEN, "waiting": ORANGE, "comm": SKY}
_PHASES = (BLUE, ORANGE, GREEN, PURPLE, SKY, YELLOW, "#000000", GREY)

#: Metadata that would make two pictures of the same prediction differ.
_UNDATED: dict[str, dict[str, None]] = {
    "png": {"Software": None},
    "svg": {"Date": None},
    "pdf": {"CreationDate": None},
}
#: Two labels closer than this, as part of the axis, would overlap.
_APART = 0.07


def format_of(path: Path) -> str:
    """Return the format that a file's name asks for; raises UsageError for any other."""
    found = path.suffix.lower().removeprefix(".")
    if found not in FORMATS:
        raise UsageError(
            f"{path}: the name of a picture ends with {', '.join('.' + name for name in FORMATS)}"
        )
    return found


def size_of(text: str) -> tuple[float, float]:
    """Return width and height in inches of ``3.4x2.4``; raises UsageError for anything else."""
    words = text.lower().split("x")
    try:
        width, height = (float(word) for word in words)
    except ValueError:
        width = height = math.nan
    if not (SMALLEST <= width <= LARGEST and SMALLEST <= height <= LARGEST):
        raise UsageError(
            f"--size {text}: give width and height in inches, between {SMALLEST:g} and "
            f"{LARGEST:g}, for example --size 3.4x2.4"
        )
    return width, height


def write_picture(
    prediction: Mapping[str, Any], plot: str, path: Path, size: tuple[float, float] = SIZE
) -> None:
    """Draw one of :data:`PLOTS` of a prediction into a file, in the format of its name.

    The network that it is for stands above it. One that is not to be trusted says so across the
    top, and is hatched.
    """
    draw = PLOTS[plot]
    warning = warning_of(prediction)
    network = network_of(prediction)

    def drawn(axes: Any) -> None:
        draw(axes, prediction)
        if network:
            axes.set_title(network, loc="left", fontsize="small", color="0.35")

    write_figure(drawn, path, size, warning)


def write_comparison(found: Comparison, path: Path, size: tuple[float, float] = SIZE) -> None:
    """Draw the run times of two predictions with their intervals."""
    write_figure(lambda axes: _comparison(axes, found), path, size, found.warning)


def write_figure(
    draw: Callable[[Any], None], path: Path, size: tuple[float, float] = SIZE, warning: str = ""
) -> None:
    """Let a function draw into axes and write the picture, whole or not at all.

    ``warning`` stands above it. The same content gives the same bytes.
    """
    kind = format_of(path)
    data = io.BytesIO()
    with _settings(size):
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        figure = Figure(figsize=size, dpi=150 if size[0] >= 5 else 300, layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        draw(axes)
        if warning:
            _warn(axes, warning, size)
        figure.savefig(data, format=kind, metadata=_UNDATED[kind])
    write_bytes(path, data.getvalue())


@contextmanager
def _settings(size: tuple[float, float]) -> Iterator[None]:
    """Embedded fonts, no dates, and names that are never read as formulas."""
    keep_out_of_home()
    import matplotlib

    settings: Any = {
        "font.size": 10 if size[0] >= 5 else 7,
        "lines.markersize": 6 if size[0] >= 5 else 4,
        "pdf.fonttype": 42,  # TrueType: publishers refuse type 3
        "svg.hashsalt": "p3s",
        "text.parse_math": False,
        "text.usetex": False,
        "axes.axisbelow": True,
        "legend.frameon": False,
    }
    with matplotlib.rc_context(settings), warnings.catch_warnings():
        # characters that the font lacks are boxes in the picture; nobody wants to read of each
        warnings.simplefilter("ignore", UserWarning)
        yield


def keep_out_of_home() -> None:
    """Let matplotlib keep its files in the user's cache; by default it makes a ~/.config entry."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    folder = Path(home, "p3s", "matplotlib")
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError:
        return
    os.environ.setdefault("MPLCONFIGDIR", str(folder))


# ---- what is drawn ---------------------------------------------------------------------------


def _warn(axes: Any, warning: str, size: tuple[float, float]) -> None:
    """Write above the axes that this is not to be trusted."""
    import matplotlib

    letter = _LETTER * float(matplotlib.rcParams["font.size"]) / 72
    axes.figure.suptitle(
        "\n".join(wrap(warning, int((size[0] - 0.3) / letter))),
        x=0.02,
        ha="left",
        color=WARNING,
        fontweight="bold",
        fontsize="medium",
    )


def _speedup(axes: Any, prediction: Mapping[str, Any]) -> None:
    points = points_of(prediction)
    counts = [point.n for point in points]
    axes.set_yscale("log", base=2)
    axes.plot(counts, [point.ideal for point in points], ":", color="0.5", label="ideal")
    _series(axes, prediction, [(p.n, p.low, p.speedup, p.high, p.measured) for p in points])
    _counts_below(axes, counts)
    axes.set_ylabel(f"speedup over {processes(_base(prediction))}")
    axes.legend()


def _time(axes: Any, prediction: Mapping[str, Any]) -> None:
    rows = checked_rows(prediction)
    counts = [row["n"] for row in rows]
    axes.set_yscale("log")
    base = base_of(prediction, rows)
    if base["time_s"] > 0:
        ideal = [base["time_s"] * base["n"] / n for n in counts]
        axes.plot(counts, ideal, ":", color="0.5", label="ideal")
    _series(
        axes,
        prediction,
        [
            (row["n"], row.get("low_s"), row["time_s"], row.get("high_s"), _measured(row))
            for row in rows
        ],
    )
    _counts_below(axes, counts)
    axes.set_ylabel("run time [s]")
    axes.legend()


def _efficiency(axes: Any, prediction: Mapping[str, Any]) -> None:
    rows = checked_rows(prediction)
    counts = [row["n"] for row in rows]

    def values(row: Mapping[str, Any]) -> Value:
        per = _base(prediction) / row["n"]
        low, high = (
            None if end is None else end * per
            for end in (row.get("speedup_low"), row.get("speedup_high"))
        )
        return row["n"], low, row["efficiency"], high, _measured(row)

    limit = prediction.get("knee_efficiency")
    if isinstance(limit, (int, float)):
        axes.axhline(limit, linestyle="--", linewidth=0.8, color="0.5", label=f"{limit:.0%}")
    _series(axes, prediction, [values(row) for row in rows])
    recommended = prediction.get("recommended")
    if (
        isinstance(recommended, Mapping)
        and recommended.get("n") in counts
        and not warning_of(prediction)
    ):
        axes.axvline(
            recommended["n"],
            linestyle=":",
            linewidth=1.0,
            color=GREEN,
            label=f"recommended: {recommended['n']}",
        )
    _counts_below(axes, counts)
    axes.set_ylim(bottom=0)
    axes.set_ylabel(f"efficiency over {processes(_base(prediction))}")
    axes.legend()


def _parts(axes: Any, prediction: Mapping[str, Any]) -> None:
    from p3s.report.costs import KIND_NAMES, KINDS, stacks_of

    stacks = stacks_of(prediction).rows
    found = [kind for kind in KINDS if any(stack.kinds.get(kind) for stack in stacks)]
    _stacked(
        axes,
        [stack.n for stack in stacks],
        {
            KIND_NAMES[kind]: [stack.kinds.get(kind, 0.0) * stack.n for stack in stacks]
            for kind in found
        },
        [_PARTS[kind] for kind in found],
        bool(warning_of(prediction)),
    )


def _phases(axes: Any, prediction: Mapping[str, Any]) -> None:
    from p3s.report.costs import stacks_of

    found = stacks_of(prediction)
    names = [
        f"{name} ({found.names[:at].count(name) + 1})" if found.names.count(name) > 1 else name
        for at, name in enumerate(found.names)
    ]
    colours = [*_PHASES[: len(names)]]
    if names and len(names) > len(colours) - 1:
        colours = [*_PHASES[: len(names) - 1], GREY]
    _stacked(
        axes,
        [stack.n for stack in found.rows],
        {
            name: [stack.phases[at] * stack.n for stack in found.rows]
            for at, name in enumerate(names)
        },
        colours,
        bool(warning_of(prediction)),
    )


#: Pictures by name, in the order in which they are offered.
PLOTS: dict[str, Callable[[Any, Mapping[str, Any]], None]] = {
    "speedup": _speedup,
    "time": _time,
    "efficiency": _efficiency,
    "parts": _parts,
    "phases": _phases,
}


def _comparison(axes: Any, found: Comparison) -> None:
    counts = [pair.n for pair in found.counts]
    axes.set_yscale("log")
    for name, colour, mark, times, ends in (
        ("A", BLUE, "o-", [p.a_s for p in found.counts], [p.a_interval for p in found.counts]),
        ("B", ORANGE, "s-", [p.b_s for p in found.counts], [p.b_interval for p in found.counts]),
    ):
        _band(axes, [(n, *pair) for n, pair in zip(counts, ends, strict=True)], colour, "")
        if found.warning:
            _hatch(
                axes,
                [
                    (n, low, time, high, False)
                    for n, time, (low, high) in zip(counts, times, ends, strict=True)
                ],
                "",
            )
        axes.plot(counts, times, mark, color=colour, linewidth=1.2, label=name)
    _counts_below(axes, counts)
    axes.set_ylabel("run time [s]")
    axes.legend()


# ---- pieces ----------------------------------------------------------------------------------


def _base(prediction: Mapping[str, Any]) -> int:
    """Return the count that speedups relate to."""
    return int(base_of(prediction, checked_rows(prediction))["n"])


def _measured(row: Mapping[str, Any]) -> bool:
    return row.get("time_from") == "measured"


def _series(axes: Any, prediction: Mapping[str, Any], values: Sequence[Value]) -> None:
    """Draw interval and curve, hatched where they are not to be trusted."""
    untrusted = bool(warning_of(prediction))
    _band(axes, [(n, low, high) for n, low, _, high, _ in values], BLUE, "interval")
    if untrusted:
        _hatch(axes, values)
    _curve(axes, [(n, value, was) for n, _, value, _, was in values], "--" if untrusted else "-")


def _hatch(axes: Any, values: Sequence[Value], name: str = "not to be trusted") -> None:
    """Hatch the interval; where it is narrow, a strip around the curve that can be seen.

    Without a name it is not in the legend.
    """
    wide: list[tuple[float, float, float]]
    wide = [
        (n, min(value / _STRIP, low or value), max(value * _STRIP, high or value))
        for n, low, value, high, _ in values
        if value > 0
    ]
    if len(wide) == 1:
        n, low, high = wide[0]
        wide = [(n / _STRIP**2, low, high), (n * _STRIP**2, low, high)]
    if wide:
        counts, lows, highs = zip(*wide, strict=True)
        axes.fill_between(
            counts,
            lows,
            highs,
            facecolor="none",
            edgecolor=WARNING,
            hatch="////",
            linewidth=0,
            label=name or None,
        )


def _band(
    axes: Any, ends: Sequence[tuple[int, float | None, float | None]], colour: str, name: str
) -> None:
    """Shade between the ends where they are known; a single count gets a bar.

    Without a name it is not in the legend.
    """
    known = [
        (n, low, high) for n, low, high in ends if low is not None and high is not None and low > 0
    ]
    counts, lows, highs = ([end[k] for end in known] for k in range(3))
    if len(known) > 1:
        axes.fill_between(
            counts, lows, highs, color=colour, alpha=0.2, linewidth=0, label=name or None
        )
    elif known:
        axes.vlines(counts, lows, highs, color=colour, alpha=0.4, linewidth=3, label=name or None)


def _curve(axes: Any, values: Sequence[tuple[int, float, bool]], line: str) -> None:
    """Draw a line with round points where it is predicted, square ones where it was measured."""
    axes.plot([n for n, _, _ in values], [y for _, y, _ in values], line, color=BLUE, linewidth=1.2)
    for measured, mark, colour, name in (
        (False, "o", BLUE, "predicted"),
        (True, "s", ORANGE, "measured"),
    ):
        some = [(n, y) for n, y, was in values if was is measured]
        if some:
            axes.plot([n for n, _ in some], [y for _, y in some], mark, color=colour, label=name)


def _counts_below(axes: Any, counts: Sequence[int]) -> None:
    """Put the process counts on a logarithmic axis, those that have room."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    axes.set_xscale("log", base=2)
    if len(counts) == 1:
        axes.set_xlim(counts[0] / 2, counts[0] * 2)
    span = math.log(counts[-1] / counts[0]) or 1.0
    shown: list[int] = []
    for n in counts:
        if not shown or math.log(n / shown[-1]) >= _APART * span:
            shown.append(n)
    axes.xaxis.set_major_locator(FixedLocator(shown))
    axes.xaxis.set_minor_locator(NullLocator())
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _at: f"{value:g}"))
    axes.set_xlabel("processes")
    axes.grid(True, alpha=0.3)


def _stacked(
    axes: Any,
    counts: Sequence[int],
    parts: Mapping[str, Sequence[float]],
    colours: Sequence[str],
    hatched: bool,
) -> None:
    """Stack the core time of parts per process count: in ideal scaling all bars are alike."""
    from matplotlib.ticker import FuncFormatter

    bottom = [0.0] * len(counts)
    handles = []
    for (name, values), colour in zip(parts.items(), colours, strict=True):
        bars = axes.bar(
            range(len(counts)),
            values,
            0.8,
            bottom=bottom,
            color=colour,
            edgecolor="white",
            linewidth=0.4,
            hatch="////" if hatched else None,
        )
        # a name that begins with an underscore would be left out of the legend
        handles.append((bars, f" {_shortened(name)}"))
        bottom = [below + value for below, value in zip(bottom, values, strict=True)]
    width = axes.figure.get_figwidth()
    step = max(1, math.ceil(len(counts) * _APART * SIZE[0] / width / 1.4))
    axes.set_xticks(range(0, len(counts), step), [str(n) for n in counts[::step]])
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _at: f"{value:g}"))
    axes.set_xlabel("processes")
    axes.set_ylabel("processes x time [s]")
    axes.grid(True, axis="y", alpha=0.3)
    if handles:
        bars, names = zip(*reversed(handles), strict=True)
        if width < 5:  # no room beside it
            axes.figure.legend(bars, names, loc="outside lower center", ncols=2)
        else:
            axes.legend(bars, names, loc="upper left", bbox_to_anchor=(1.0, 1.0))


def _shortened(name: str, limit: int = 28) -> str:
    return name if len(name) <= limit else f"{name[: limit - 1]}…"
