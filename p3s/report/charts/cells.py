"""Squares in shades: who sends how much to whom, and times over processes and threads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from p3s.base.text import plural, processes
from p3s.report.charts.figures import COLOURS, name_axes, on_page
from p3s.report.matrix import shade_levels, totals
from p3s.report.phase_table import volume
from p3s.report.show import Part
from p3s.signature.matrix import CommMatrix

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

#: Shades, and cells a side: with more ranks some share a cell.
LEVELS, CELLS = 6, 96


def matrix(axes: Axes, found: CommMatrix, what: str, cells: int = CELLS) -> None:
    """Draw the matrix of "messages" or "bytes", at most that many cells a side."""
    square, ranks = found.binned(what, cells)
    levels, _ = shade_levels(square, LEVELS)
    names = [""] * LEVELS
    for level in range(1, LEVELS + 1):
        some = square[levels == level]
        if len(some):
            ends = (_amount(int(end), what) for end in (some.min(), some.max()))
            names[level - 1] = "–".join(dict.fromkeys(ends))
    label = f"Communication matrix of {processes(found.np)}: {what} from each rank (rows) to "
    name_axes(axes, f"{label}each rank (columns)", totals(found))
    _draw_cells(axes, levels, names, ranks)
    axes.set_aspect("equal")
    axes.locator_params(integer=True)
    axes.set(xlabel="to rank", ylabel="from rank")
    axes.spines[:].set(visible=True, color=COLOURS["line"])


def heat(
    axes: Axes,
    levels: Mapping[tuple[int, int], int],
    texts: Mapping[tuple[int, int], str],
    label: str,
    best: Sequence[tuple[int, int]],
) -> None:
    """Draw fields of processes and threads in shades, 1 to LEVELS, with texts.

    best: fields with a frame.
    """
    import numpy as np

    down, across = (sorted({field[k] for field in levels}) for k in (0, 1))
    square = np.zeros((len(down), len(across)), dtype=np.int64)
    at = {field: (down.index(field[0]), across.index(field[1])) for field in levels}
    for field, level in levels.items():
        square[at[field]] = level
        i, j = at[field]
        colour = COLOURS["page" if level > 3 else "ink"]
        where: dict[str, Any] = {"horizontalalignment": "center", "verticalalignment": "center"}
        axes.text(j, i, texts[field], color=colour, **where)
    name_axes(axes, label, "")
    _draw_cells(axes, square, [""] * LEVELS)
    frame: dict[str, Any] = {"edgecolor": COLOURS["measured"], "linewidth": 2.5, "fill": False}
    for i, j in (at[field] for field in best):
        axes.bar(j, 0.92, 0.97, i - 0.46, **frame)
    axes.set_xticks(range(len(across)), [plural(threads, "thread") for threads in across])
    axes.set_yticks(range(len(down)), [f"{n:,}" for n in down])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set_ylabel("processes")


def _draw_cells(axes: Axes, levels: Ints, names: Sequence[str], ranks: int = 1) -> None:
    """Draw cells of levels above 0, a path for each; cells beside each other are one rectangle."""
    import numpy as np
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    for level, name in enumerate(names, 1):
        inside = np.pad(levels == level, ((0, 0), (1, 1))).astype(np.int8)
        steps = np.diff(inside, axis=1)
        (rows, starts), (_, stops) = np.nonzero(steps == 1), np.nonzero(steps == -1)
        if len(rows):
            left, right, top = starts * ranks, stops * ranks, rows * ranks
            corners = [(left, top), (right, top), (right, top + ranks), (left, top + ranks)]
            outline = np.array(corners).transpose(2, 0, 1) - 0.5
            shape = Path.make_compound_path_from_polys(outline)
            colour = COLOURS[f"m{level}"]
            look: dict[str, Any] = {"facecolor": colour, "linewidth": 0, "antialiased": False}
            axes.add_patch(PathPatch(shape, label=name, **look))
    high, wide = (extent * ranks - 0.5 for extent in levels.shape)
    axes.set(xlim=(-0.5, wide), ylim=(high, -0.5))
    axes.xaxis.tick_top()
    axes.xaxis.set_label_position("top")
    axes.grid(visible=False)


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
        if found.messages.any():
            drawn = partial(on_page, partial(matrix, found=found, what=what), 500.0, 560.0)
            charts.append((title, f"{what}; a cell is {cell}", drawn))
        notes.append(f"{title}: {totals(found)}.")
        if found.collective_calls:
            calls = plural(found.collective_calls, "call")
            notes.append(f"Not in the matrix: {calls} of collectives.")
        notes += found.notes
    if not notes:
        return None
    return Part("matrix", "Who sends how much to whom", charts=charts, notes=notes)
