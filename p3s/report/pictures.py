"""Pictures of a prediction for papers and slides: the charts of the report as PNG, SVG and PDF."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from p3s.base.errors import P3SError, UsageError
from p3s.base.study import write_bytes
from p3s.base.text import processes
from p3s.pipeline.saved import read_prediction
from p3s.predict.types import Prediction
from p3s.report.charts import bars, cells, curves
from p3s.report.charts.figures import Chart, as_file, as_svg, draw, label_of
from p3s.report.compare import Comparison
from p3s.report.costs import stacks_of
from p3s.report.sure import network_of, warning_of
from p3s.signature.matrix import CommMatrix

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Formats by the end of the file's name.
FORMATS = ("png", "svg", "pdf")
#: Width and height of a picture in inches where nothing else is asked for.
SIZE = (7.2, 4.4)
#: Limits of both, in inches.
SMALLEST, LARGEST = 1.5, 40.0
#: Size of a matrix in a file, and its cells a side: more ranks share cells.
MATRIX_SIZE, MATRIX_CELLS = (8.0, 8.0), 1024
#: Size of labels in points, at most.
_LABEL_PT = 10.0


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
    """A figure of matplotlib that a notebook shows."""

    figure: Figure

    def save(self, path: Path | str) -> None:
        """Write it as .png, .svg or .pdf, whole or not at all; UsageError for any other name.

        The same content gives the same bytes.
        """
        kind = format_of(Path(path))
        write_bytes(Path(path), as_file(self.figure, kind))

    def _repr_svg_(self) -> str:
        """Return it as static SVG."""
        return as_svg(self.figure)

    def __repr__(self) -> str:
        """Return what it shows as one line."""
        return f"Picture({label_of(self.figure)!r})"


def picture(chart: Chart, size: tuple[float, float] = SIZE, ax: Axes | None = None) -> Picture:
    """Return a chart on a new figure, or drawn onto ``ax``."""
    if ax is not None:
        chart(ax)
        return Picture(ax.figure.figure)
    points = min(2.6 * min(size), _LABEL_PT)
    return Picture(draw(chart, 72 * size[0], 72 * size[1], points))


def picture_of(
    prediction: Prediction, plot: str, size: tuple[float, float] = SIZE, ax: Axes | None = None
) -> Picture:
    """Return one of :data:`PLOTS` of a prediction.

    The network that it is for stands above it. One that is not to be trusted says so across the
    top, and is hatched.
    """
    return picture(partial(PLOTS[plot], prediction=prediction), size, ax)


def comparison_picture(found: Comparison) -> Picture:
    """Return the run times of two predictions with their intervals."""
    return picture(partial(curves.comparison, found=found))


def matrix_picture(
    matrix: CommMatrix,
    what: str,
    size: tuple[float, float],
    most: int = cells.CELLS,
    ax: Axes | None = None,
) -> Picture:
    """Return a communication matrix below its totals, of at most so many cells a side."""
    return picture(partial(cells.matrix, found=matrix, what=what, cells=most), size, ax)


def _stack(axes: Axes, prediction: Prediction, by_phase: bool) -> None:
    notes = warning_of(prediction), network_of(prediction)
    bars.stack(axes, stacks_of(prediction), "core", by_phase, *notes)


#: Pictures by name, in the order in which they are offered.
PLOTS: dict[str, Callable[..., None]] = {
    "speedup": curves.speedup,
    "time": curves.run_time,
    "efficiency": curves.efficiency,
    "parts": partial(_stack, by_phase=False),
    "phases": partial(_stack, by_phase=True),
}


class Plots:
    """What can be drawn of a study; curves and bars are of its last prediction.

    Every plot takes ``size``, width and height in inches, or ``ax``, axes of matplotlib to draw
    onto. Where the prediction is not to be trusted the plot says so. Raises P3SError where nothing
    was predicted yet.
    """

    def __init__(self, root: Path, matrix: Callable[[int], CommMatrix]) -> None:
        """Take the directory of a study, and what makes the matrix of a count."""
        self._root, self._matrix = root, matrix

    def speedup(self, size: tuple[float, float] = SIZE, ax: Axes | None = None) -> Picture:
        """Draw the speedup over the number of processes, with its interval and the ideal one."""
        return self._of("speedup", size, ax)

    def efficiency(self, size: tuple[float, float] = SIZE, ax: Axes | None = None) -> Picture:
        """Draw the parallel efficiency over the number of processes."""
        return self._of("efficiency", size, ax)

    def time(self, size: tuple[float, float] = SIZE, ax: Axes | None = None) -> Picture:
        """Draw the run time over the number of processes."""
        return self._of("time", size, ax)

    def phases(self, size: tuple[float, float] = SIZE, ax: Axes | None = None) -> Picture:
        """Draw the core time of each phase, a bar per number of processes."""
        return self._of("phases", size, ax)

    def parts(self, size: tuple[float, float] = SIZE, ax: Axes | None = None) -> Picture:
        """Draw the core time of computation, messages, waiting and software, as ``phases`` does."""
        return self._of("parts", size, ax)

    def interval(
        self, n: int = 0, size: tuple[float, float] = SIZE, ax: Axes | None = None
    ) -> Picture:
        """Draw how much each part widens the interval at ``n``, the largest count by default."""
        prediction = self._prediction()
        row = next((row for row in prediction.counts if row.n == n), prediction.last)
        if n and row.n != n:
            raise P3SError(f"{self._root}: {processes(n)} were not predicted yet")
        if not bars.interval_rows(row):
            raise P3SError(f"{self._root}: no interval is known at {processes(row.n)}")
        heading = f"interval at {processes(row.n)}"
        return picture(partial(bars.interval, row=row, heading=heading), size, ax)

    def matrix(
        self,
        n: int,
        what: str = "bytes",
        size: tuple[float, float] = (SIZE[1], SIZE[1]),
        ax: Axes | None = None,
    ) -> Picture:
        """Draw who sends how many "bytes" or "messages" to whom with ``n`` processes."""
        if what not in ("messages", "bytes"):
            raise UsageError(f"matrix: {what!r} is neither messages nor bytes")
        return matrix_picture(self._matrix(n), what, size, ax=ax)

    def _of(self, name: str, size: tuple[float, float], ax: Axes | None) -> Picture:
        return picture_of(self._prediction(), name, size, ax)

    def _prediction(self) -> Prediction:
        path = self._root / "prediction.json"
        if not path.exists():
            raise P3SError(
                f"{self._root}: nothing was predicted yet; study.predict([64, 128]) does so"
            )
        return read_prediction(path)
