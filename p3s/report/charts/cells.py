"""A communication matrix as a picture: who sends how much to whom, rows send, columns receive."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from p3s.base.text import plural, processes
from p3s.report.charts.draw import LETTER, Svg, coord, nice_step
from p3s.report.matrix import shade_levels, totals
from p3s.report.phase_table import volume
from p3s.report.show import Part
from p3s.signature.matrix import CommMatrix

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

SIDE, LEFT, TOP = 420.0, 56.0, 30.0
#: Shades, and cells a side: with more ranks some share a cell.
LEVELS, CELLS = 6, 96


def matrix_chart(matrix: CommMatrix, what: str, cells: int = CELLS) -> str:
    """Return the matrix of "messages" or "bytes", at most that many cells a side.

    Empty where nothing was sent.
    """
    square, ranks = matrix.binned(what, cells)
    if not square.any():
        return ""
    levels, _ = shade_levels(square, LEVELS)
    side = len(square)
    cell = SIDE / side
    svg = Svg(
        LEFT + SIDE + 12,
        TOP + SIDE + 64,
        f"Communication matrix of {processes(matrix.np)}: {what} from each rank (rows) to "
        "each rank (columns)",
    )
    svg.rect(LEFT, TOP, SIDE, SIDE, "ground")
    for level in range(1, LEVELS + 1):
        steps = []
        for row in range(side):
            column = 0
            line = levels[row]
            while column < side:
                if line[column] != level:
                    column += 1
                    continue
                start = column
                while column < side and line[column] == level:
                    column += 1
                wide, high = at2((column - start) * cell), at2(cell)
                steps.append(
                    f"M{at2(LEFT + start * cell)} {at2(TOP + row * cell)}h{wide}v{high}h-{wide}z"
                )
        svg.path(steps, f"cell m-{level}")
    svg.parts.append(
        f'<rect class="border" x="{coord(LEFT)}" y="{coord(TOP)}" width="{coord(SIDE)}" '
        f'height="{coord(SIDE)}"/>'
    )
    step = max(int(nice_step(matrix.np / 6)), 1)
    scale = SIDE / (side * ranks)
    for rank in range(0, matrix.np, step):
        place = (rank + 0.5) * scale
        svg.text(LEFT + place, TOP - 8, f"{rank:,}", anchor="middle")
        svg.text(LEFT - 8, TOP + place + 4, f"{rank:,}", anchor="end")
    svg.text(LEFT + SIDE, TOP + SIDE + 18, "to rank: columns, from rank: rows", "note", "end")
    _legend(svg, square, levels, what)
    return svg.markup()


def at2(value: float) -> str:
    """Return a coordinate with two decimals: cells of large matrices are narrow."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _legend(svg: Svg, square: Ints, levels: Ints, what: str) -> None:
    x, y = LEFT, TOP + SIDE + 34
    for level in range(1, LEVELS + 1):
        some = square[levels == level]
        if not len(some):
            continue
        low, high = int(some.min()), int(some.max())
        ends = dict.fromkeys((_amount(low, what), _amount(high, what)))
        text = "–".join(ends)
        wide = 18 + len(text) * LETTER + 12
        if x + wide > LEFT + SIDE + 12:
            x, y = LEFT, y + 18
        svg.rect(x, y, 12, 12, f"cell m-{level}")
        svg.text(x + 17, y + 10.5, text)
        x += wide


def _amount(value: int, what: str) -> str:
    return volume(value) if what == "bytes" else f"{value:,}"


def matrix_part(matrices: Iterable[tuple[int, bool, CommMatrix | str]]) -> Part | None:
    """Return matrices (process count, whether traced, matrix or why there is none) as a part."""
    charts, notes = [], []
    for n, traced, found in matrices:
        title = f"{'Traced' if traced else 'Predicted'}, {processes(n)}"
        if isinstance(found, str):
            notes.append(f"{title}: {found}")
            continue
        what = "bytes" if found.bytes.any() or not found.messages.any() else "messages"
        ranks = max(-(-found.np // CELLS), 1)
        cell = "a pair of ranks" if ranks == 1 else f"{ranks} × {ranks} ranks"
        charts.append((title, f"{what}; a cell is {cell}", matrix_chart(found, what)))
        notes.append(f"{title}: {totals(found)}.")
        if found.collective_calls:
            calls = plural(found.collective_calls, "call")
            notes.append(f"Not in the matrix: {calls} of collectives.")
        notes += found.notes
    if not notes:
        return None
    return Part("matrix", "Who sends how much to whom", charts=charts, notes=notes)
