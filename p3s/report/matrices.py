"""Communication matrices of a report: the largest traced count, the largest predicted."""

from __future__ import annotations

from dataclasses import dataclass

from p3s.base.text import plural, processes
from p3s.report.charts.cells import CELLS, matrix_chart
from p3s.report.matrix import totals
from p3s.signature.matrix import CommMatrix


@dataclass(frozen=True)
class MatrixView:
    """One matrix: its title, its chart, what a cell of that is, lines of text; or text alone."""

    title: str
    chart: str
    cell: str
    lines: list[str]


def matrix_view(n: int, traced: bool, found: CommMatrix | str) -> MatrixView:
    """Return how the matrix of a count is shown, or the sentence that stands for it."""
    title = f"{'Traced' if traced else 'Predicted'}, {processes(n)}"
    if isinstance(found, str):
        return MatrixView(title, "", "", [found])
    what = "bytes" if found.bytes.any() or not found.messages.any() else "messages"
    said = [totals(found) + "."]
    if found.collective_calls:
        said.append(f"Not in the matrix: {plural(found.collective_calls, 'call')} of collectives.")
    ranks = max(-(-found.np // CELLS), 1)
    cell = "a pair of ranks" if ranks == 1 else f"{ranks} × {ranks} ranks"
    chart = matrix_chart(found, what)
    return MatrixView(title, chart, f"{what}; a cell is {cell}", [*said, *found.notes])
