"""The prediction on a terminal: a table of counts and a small curve."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from p3s.report.text import visible
from p3s.report.view import COUNTS_HEAD, Point, count_rows, points_of, row_is_doubtful, verdict_of

WIDTH, HEIGHT = 56, 13


def render(prediction: dict[str, Any]) -> str:
    """Return a prediction as text: table, curve, what it means and what to keep in mind."""
    parts = [_table(count_rows(prediction), COUNTS_HEAD), "", curve(points_of(prediction)), ""]
    parts.append(verdict_of(prediction))
    parts += [f"note: {visible(str(note), 400)}" for note in prediction.get("notes", [])]
    rows = prediction["counts"]
    if any(row.get("measured") and not row.get("representative") for row in rows):
        parts.append("(...) measured, but not representative")
    if any(row_is_doubtful(row) for row in rows):
        parts.append("*     rests on communication that is not representative")
    return "\n".join(parts)


def _table(rows: Sequence[Sequence[str]], head: Sequence[str]) -> str:
    lines = [list(head), *map(list, rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    return "\n".join(
        "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def curve(points: Sequence[Point], width: int = WIDTH, height: int = HEIGHT) -> str:
    """Draw the speedup over the count, both logarithmic: ideal ., interval |, points o and *."""
    from p3s.report.curve import axes_of

    axes = axes_of(points)
    cells = [[" "] * width for _ in range(height)]

    def column(n: float) -> int:
        return round(axes.x(n) * (width - 1))

    def line(speedup: float) -> int:
        return height - 1 - round(axes.y(speedup) * (height - 1))

    first, last = points[0], points[-1]
    for x in range(width):
        share = x / (width - 1)
        cells[line(first.ideal * (last.ideal / first.ideal) ** share)][x] = "."
    for point in points:
        if point.low is not None and point.high is not None and not point.measured:
            top, bottom = line(point.high), line(point.low)
            for y in range(top, bottom + 1):
                cells[y][column(point.n)] = "|"
    for point in points:
        cells[line(point.speedup)][column(point.n)] = "o" if point.measured else "*"

    labels = {line(tick): f"{tick:.3g}x" for tick in axes.ticks()}
    text = [f"{labels.get(y, ''):>8} |{''.join(row)}".rstrip() for y, row in enumerate(cells)]
    text.append(" " * 9 + "+" + "-" * width)
    foot = [" "] * (width + 12)
    free = 0
    for point in points:
        name = str(point.n)
        at = min(10 + column(point.n), len(foot) - len(name))
        if at >= free:
            foot[at : at + len(name)] = name
            free = at + len(name) + 1
    text.append("".join(foot).rstrip())
    text.append(" " * 10 + "speedup over processes: o measured, * predicted, | interval, . ideal")
    return "\n".join(text)
