"""Plots of a study for notebooks and scripts: the charts of the report, shown or written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from p3s.base.errors import P3SError, UsageError
from p3s.base.text import processes
from p3s.predict.saved import read_prediction
from p3s.predict.types import Prediction
from p3s.report.charts.ranges import interval_chart
from p3s.report.pictures import SIZE, Picture, Plot, matrix_picture, picture_of
from p3s.signature.matrix import CommMatrix


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
