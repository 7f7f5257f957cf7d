"""Pictures of a prediction for papers and slides: the charts of the report as PNG, SVG and PDF."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from textwrap import wrap
from xml.etree import ElementTree

from p3s.base.errors import P3SError, UsageError
from p3s.base.study import write_bytes
from p3s.base.text import processes
from p3s.pipeline.saved import read_prediction
from p3s.predict.types import Prediction
from p3s.report.charts import cells, curves, stacks
from p3s.report.charts.cells import matrix_chart
from p3s.report.charts.draw import LETTER, LINE, Svg
from p3s.report.charts.files import as_pdf, as_png, as_svg
from p3s.report.charts.looks import inline_styles
from p3s.report.charts.ranges import interval_chart
from p3s.report.compare import Comparison
from p3s.report.costs import stacks_of
from p3s.report.matrix import totals
from p3s.report.sure import network_of, warning_of
from p3s.signature.matrix import CommMatrix

#: Formats by the end of the file's name.
FORMATS = ("png", "svg", "pdf")
#: Width and height of a picture in inches where nothing else is asked for.
SIZE = (7.2, 4.4)
#: Limits of both, in inches.
SMALLEST, LARGEST = 1.5, 40.0
#: Size of a matrix in a file, and its cells a side: more ranks share cells.
MATRIX_SIZE, MATRIX_CELLS = (8.0, 8.0), 1024
#: Least height of a chart below what stands above it, in units of the drawing.
_LEAST = 140.0
#: Size of labels in units of the drawing, and in points in a wide and in a narrow picture.
_LABEL, _WIDE_PT, _NARROW_PT = 12.5, 10.0, 7.0


@dataclass(frozen=True)
class Entry:
    """An entry of a legend: how it is drawn (a line, a box, a circle), its class, its name."""

    shape: str
    kind: str
    name: str


@dataclass(frozen=True)
class Plot:
    """What a picture shows: its vertical axis, its legend, and the chart by its size."""

    axis: str
    legend: Sequence[Entry]
    draw: Callable[[float, float], str]


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


@dataclass(frozen=True, eq=False)
class Picture:
    """A drawing that a notebook shows; ``size``: width and height in inches."""

    root: ElementTree.Element
    size: tuple[float, float] = SIZE

    def save(self, path: Path | str) -> None:
        """Write it as .png, .svg or .pdf, whole or not at all; UsageError for any other name.

        The same content gives the same bytes.
        """
        (width, height), kind = self.size, format_of(Path(path))
        if kind == "png":
            data = as_png(self.root, round(width * (150 if width >= 5 else 300)))
        elif kind == "pdf":
            data = as_pdf(self.root, 72 * width, 72 * height)
        else:
            self.root.set("width", f"{72 * width:g}pt")
            self.root.set("height", f"{72 * height:g}pt")
            data = as_svg(self.root)
        write_bytes(Path(path), data)

    def _repr_svg_(self) -> str:
        """Return it as static SVG."""
        shown = ElementTree.fromstring(ElementTree.tostring(self.root))
        shown.set("width", f"{72 * self.size[0]:g}")
        return as_svg(shown).decode("utf-8")

    def __repr__(self) -> str:
        """Return what it shows as one line."""
        return f"Picture({self.root.get('aria-label', '')!r})"


def picture_of(
    prediction: Prediction, plot: str | Plot, size: tuple[float, float] = SIZE
) -> Picture:
    """Return one of :data:`PLOTS`, or another plot, of a prediction.

    The network that it is for stands above it. One that is not to be trusted says so across the
    top, and is hatched.
    """
    shown = PLOTS[plot](prediction) if isinstance(plot, str) else plot
    return _picture(shown, size, warning_of(prediction), network_of(prediction))


def comparison_picture(found: Comparison, size: tuple[float, float] = SIZE) -> Picture:
    """Return the run times of two predictions with their intervals."""
    legend = (Entry("circle", "predicted", "A"), Entry("rect", "measured", "B"))
    plot = Plot(
        "run time", legend, lambda *size: curves.comparison_chart(found, curves.Size(*size))
    )
    return _picture(plot, size, found.warning)


def matrix_picture(
    matrix: CommMatrix, what: str, size: tuple[float, float], most: int = cells.CELLS
) -> Picture:
    """Return a communication matrix below its totals, of at most so many cells a side."""
    drawn = matrix_chart(matrix, what, most)
    chart = inline_styles(drawn or Svg(cells.LEFT + cells.SIDE, 4.0, "Nothing was sent").markup())
    head = [("axisname", line) for line in wrap(totals(matrix), 60)]
    return Picture(_below(chart, head, []), size)


def _picture(plot: Plot, size: tuple[float, float], warning: str, heading: str = "") -> Picture:
    """Return a chart with its warning, heading and legend above it, on white."""
    points = _WIDE_PT if size[0] >= 5 else _NARROW_PT
    width, height = (72 * inches * _LABEL / points for inches in size)
    head = [("warning", line) for line in curves.warning_lines(warning, width)]
    head += [("note", heading)] if heading else []
    rows = _rows(plot, width)
    room = height - _above(head, rows)
    return Picture(_below(inline_styles(plot.draw(width, max(room, _LEAST))), head, rows), size)


Head = Sequence[tuple[str, str]]
Rows = Sequence[Sequence[tuple[float, Entry]]]


def _above(head: Head, rows: Rows) -> float:
    return LINE * (len(head) + len(rows)) + 4


def _below(chart: ElementTree.Element, head: Head, rows: Rows) -> ElementTree.Element:
    """Return a chart on white below lines (class, text) and the rows of a legend."""
    _, _, width, high = map(float, chart.get("viewBox", "").split())
    above = _above(head, rows)
    svg = Svg(width, above + high, chart.get("aria-label", ""))
    svg.rect(0, 0, width, above + high, "paper")
    for k, (kind, line) in enumerate(head):
        svg.text(4, LINE * (k + 0.75) + 2, line, kind)
    for k, row in enumerate(rows, len(head)):
        for x, entry in row:
            _entry(svg, entry, x, LINE * (k + 0.75) + 2)
    root = inline_styles(svg.markup())
    moved = ElementTree.SubElement(root, "g", {"transform": f"translate(0 {above:g})"})
    moved.extend(chart[1:])  # its title is that of the picture
    return root


def _rows(plot: Plot, width: float) -> list[list[tuple[float, Entry]]]:
    """Return the entries of a legend by line, each with where it begins; the axis is the first."""
    rows: list[list[tuple[float, Entry]]] = [[(4.0, Entry("", "axisname", plot.axis))]]
    x = 4.0 + 1.2 * LETTER * len(plot.axis) + 20
    for entry in plot.legend:
        wide = 22 + LETTER * len(entry.name) + 14
        if x + wide > width and rows[-1]:
            rows.append([])
            x = 4.0
        rows[-1].append((x, entry))
        x += wide
    return rows


def _entry(svg: Svg, entry: Entry, x: float, y: float) -> None:
    if not entry.shape:
        svg.text(x, y, entry.name, entry.kind)
        return
    middle = y - 4.5
    if entry.shape == "line":
        svg.polyline([(x, middle), (x + 16, middle)], entry.kind)
    elif entry.shape == "circle":
        svg.circle(x + 8, middle, 4, entry.kind)
    else:
        svg.rect(x + 3, middle - 5, 10, 10, entry.kind)
    svg.text(x + 22, y, entry.name)


# ---- what is drawn ---------------------------------------------------------------------------


def _curve(axis: str, draw: Callable[..., str], prediction: Prediction) -> Plot:
    """Return a curve; ``axis``: its name, {} is what the values are relative to."""
    rows = prediction.counts
    measured = [row.time_from == "measured" for row in rows]
    known = [row for row in rows if row.low_s is not None]
    entries = [Entry("line", "ideal", "ideal")]
    entries += [Entry("rect", "band", "interval")] if known else []
    entries += [Entry("line", "hatch", "not to be trusted")] if warning_of(prediction) else []
    entries += [] if all(measured) else [Entry("circle", "predicted", "predicted")]
    entries += [Entry("rect", "measured", "measured")] if any(measured) else []
    beside = any(was and row.model_s for was, row in zip(measured, rows, strict=True))
    entries += [Entry("circle", "model", "by the model")] if beside else []
    return Plot(
        axis.format(processes(prediction.baseline_n)),
        entries,
        lambda wide, high: draw(prediction, size=curves.Size(wide, high, warned=False)),
    )


def _plot_stacks(by_phase: bool, prediction: Prediction) -> Plot:
    found = stacks_of(prediction)
    legend = (
        stacks.phase_legend(found)
        if by_phase
        else stacks.kind_legend(row.kinds for row in found.rows)
    )
    return Plot(
        "processes x time",
        [Entry("rect", f"bar {entry.kind}", _shorten_name(entry.name)) for entry in legend],
        lambda *size: stacks.stack_chart(
            found, "core", by_phase, size, hatched=bool(warning_of(prediction))
        ),
    )


#: Pictures by name, in the order in which they are offered.
PLOTS: dict[str, Callable[[Prediction], Plot]] = {
    "speedup": partial(_curve, "speedup over {}", curves.speedup_chart),
    "time": partial(_curve, "run time", curves.time_chart),
    "efficiency": partial(_curve, "efficiency over {}", curves.efficiency_chart),
    "parts": partial(_plot_stacks, False),
    "phases": partial(_plot_stacks, True),
}


def _shorten_name(name: str, limit: int = 28) -> str:
    return name if len(name) <= limit else f"{name[: limit - 1]}…"


class Plots:
    """What can be drawn of a study; curves and bars are of its last prediction.

    Every plot takes ``size``, width and height in inches. Where the prediction is not to be trusted
    the plot says so. Raises P3SError where nothing was predicted yet.
    """

    def __init__(self, root: Path, matrix: Callable[[int], CommMatrix]) -> None:
        """Take the directory of a study, and what makes the matrix of a count."""
        self._root, self._matrix = root, matrix

    def speedup(self, size: tuple[float, float] = SIZE) -> Picture:
        """Draw the speedup over the number of processes, with its interval and the ideal one."""
        return self._of("speedup", size)

    def efficiency(self, size: tuple[float, float] = SIZE) -> Picture:
        """Draw the parallel efficiency over the number of processes."""
        return self._of("efficiency", size)

    def time(self, size: tuple[float, float] = SIZE) -> Picture:
        """Draw the run time over the number of processes."""
        return self._of("time", size)

    def phases(self, size: tuple[float, float] = SIZE) -> Picture:
        """Draw the core time of each phase, a bar per number of processes."""
        return self._of("phases", size)

    def parts(self, size: tuple[float, float] = SIZE) -> Picture:
        """Draw the core time of computation, messages, waiting and software, as ``phases`` does."""
        return self._of("parts", size)

    def interval(self, n: int = 0, size: tuple[float, float] = SIZE) -> Picture:
        """Draw how much each part widens the interval at ``n``, the largest count by default."""
        prediction = self._prediction()
        row = next((row for row in prediction.counts if row.n == n), prediction.last)
        if n and row.n != n:
            raise P3SError(f"{self._root}: {processes(n)} were not predicted yet")
        chart = interval_chart(row)
        if not chart:
            raise P3SError(f"{self._root}: no interval is known at {processes(row.n)}")
        plot = Plot(f"interval at {processes(row.n)}", (), lambda *_: chart)
        return picture_of(prediction, plot, size)

    def matrix(
        self, n: int, what: str = "bytes", size: tuple[float, float] = (SIZE[1], SIZE[1])
    ) -> Picture:
        """Draw who sends how many "bytes" or "messages" to whom with ``n`` processes."""
        if what not in ("messages", "bytes"):
            raise UsageError(f"matrix: {what!r} is neither messages nor bytes")
        return matrix_picture(self._matrix(n), what, size)

    def _of(self, name: str, size: tuple[float, float]) -> Picture:
        return picture_of(self._prediction(), name, size)

    def _prediction(self) -> Prediction:
        path = self._root / "prediction.json"
        if not path.exists():
            raise P3SError(
                f"{self._root}: nothing was predicted yet; study.predict([64, 128]) does so"
            )
        return read_prediction(path)
