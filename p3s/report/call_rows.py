"""The call-path tree of a report as rows of a table: text to read, numbers to sort by."""

from __future__ import annotations

from dataclasses import dataclass

from p3s.base.text import NOT_KNOWN, factor, percent, seconds
from p3s.predict.types import Prediction
from p3s.report.call_tree import CallTree, Node, weight
from p3s.report.charts.flame import growth, step_of

#: Rows of a tree from which on small branches are folded at first, and what is small.
FOLDED, SMALL = 40, 0.02
#: Deeper rows are not moved in further.
MAX_DEPTH = 14


@dataclass(frozen=True)
class Cell:
    """What a cell shows, and what it is sorted by ("": last)."""

    text: str
    value: str


@dataclass(frozen=True)
class CallRow:
    """A node: how deep it is, what it is, its cells; ``step``: how much it grows.

    ``closed``: what is in it is folded at first.
    """

    depth: int
    kind: str
    name: str
    where: str
    phase: str
    cells: list[Cell]
    step: int
    closed: bool


@dataclass(frozen=True)
class CallRows:
    """The rows of a tree under their heads, and what is to be kept in mind."""

    head: list[str]
    rows: list[CallRow]
    said: list[str]


def call_rows(tree: CallTree, prediction: Prediction) -> CallRows:
    """Return the rows of a tree from the top down."""
    nodes = list(tree.root.walk())
    traced = tree.traced_n is not None
    head = ["call path"]
    head += [f"traced at {tree.traced_n:,}", "share"] if tree.traced_n is not None else []
    head += [f"predicted at {tree.n:,}", "share", "computation", "MPI"]
    head.append(f"core time over that at {tree.base_n:,}")
    many = len(nodes) > FOLDED
    rows = [_row(tree, node, depth, many and depth > 0, traced) for depth, node in nodes]
    said = []
    if traced:
        said = [
            "Traced: computation and MPI, mean over the ranks. Predicted: of the rank that takes "
            "longest; the model tells times of loops, not of single calls in one."
        ]
        run = next((row for row in prediction.counts if row.n == tree.traced_n), None)
        if run is not None and not run.representative:
            said.append("The traced ranks shared cores: their times in MPI tell little.")
    return CallRows(head, rows, [*said, *([tree.cut] if tree.cut else [])])


def _row(tree: CallTree, node: Node, depth: int, many: bool, traced: bool) -> CallRow:
    whole = tree.root
    cells = [*_timed(node.traced_s, whole.traced_s)] if traced else []
    spent, before = node.spent, node.before
    if spent is None:
        cells += [Cell(NOT_KNOWN, "")] * 5
        ratio, step = None, -1
    else:
        cells += _timed(spent.time_s, whole.spent.time_s if whole.spent else None)
        cells += [_time(spent.compute_s), _time(spent.comm_s)]
        ratio = growth(tree, spent.time_s, before.time_s if before else 0.0)
        step = step_of(ratio) if spent.time_s > 0 else -1
        cells.append(Cell("new", "1e99") if ratio is None and spent.time_s > 0 else _ratio(ratio))
    closed = many and bool(node.body) and (weight(node, whole) < SMALL or _calls_only(node))
    return CallRow(
        min(depth, MAX_DEPTH), node.kind, node.name, node.where, node.phase, cells, step, closed
    )


def _calls_only(node: Node) -> bool:
    return all(each.kind == "call" for each in node.body)


def _timed(value: float | None, whole: float | None) -> list[Cell]:
    """Return a time and its share."""
    if value is None or not whole:
        return [Cell(NOT_KNOWN, ""), Cell(NOT_KNOWN, "")]
    return [_time(value), Cell(percent(value / whole), f"{value / whole:.4g}")]


def _time(value: float) -> Cell:
    return Cell(seconds(value), f"{value:.4g}")


def _ratio(ratio: float | None) -> Cell:
    return Cell(NOT_KNOWN, "") if ratio is None else Cell(factor(ratio), f"{ratio:.4g}")
