"""The speedup curve as a PNG picture."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from pathlib import Path

from p3s.report.view import Point
from p3s.study import write_bytes


def keep_out_of_home() -> None:
    """Let matplotlib keep its files in the user's cache; by default it makes a ~/.config entry."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    folder = Path(home, "p3s", "matplotlib")
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError:
        return
    os.environ.setdefault("MPLCONFIGDIR", str(folder))


def write_png(points: Sequence[Point], path: Path) -> None:
    """Draw the speedup curve with its interval and the ideal line into ``path``."""
    keep_out_of_home()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    figure = Figure(figsize=(7.2, 4.4), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    counts = [p.n for p in points]
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.plot(counts, [p.ideal for p in points], ":", color="0.5", label="ideal")
    bounded = [
        (p.n, p.low, p.high)
        for p in points
        if p.low is not None and p.high is not None and p.low > 0
    ]
    if len(bounded) > 1:
        axes.fill_between(
            [n for n, _, _ in bounded],
            [low for _, low, _ in bounded],
            [high for _, _, high in bounded],
            color="C0",
            alpha=0.2,
            linewidth=0,
            label="interval",
        )
    axes.plot(counts, [p.speedup for p in points], "-", color="C0", linewidth=1.2)
    for measured, style, name in ((False, "o", "predicted"), (True, "s", "measured")):
        some = [p for p in points if p.measured is measured]
        if some:
            axes.plot(
                [p.n for p in some],
                [p.speedup for p in some],
                style,
                color="C1" if measured else "C0",
                label=name,
            )
    axes.xaxis.set_major_locator(FixedLocator(counts))
    axes.xaxis.set_minor_locator(NullLocator())
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _at: f"{value:g}"))
    axes.set_xlabel("processes")
    axes.set_ylabel(f"speedup over {points[0].n} processes")
    axes.grid(True, alpha=0.3)
    axes.legend(frameon=False)
    data = io.BytesIO()
    figure.savefig(data, format="png", metadata={"Software": None})
    write_bytes(path, data.getvalue())
