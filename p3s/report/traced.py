"""What tracing has made, as text: runs of counts, of values, of smaller inputs, of a signature."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from p3s.base.extents import shape
from p3s.base.text import one_line
from p3s.pipeline.tracing.runs import TracedCount
from p3s.pipeline.tracing.values import TracedValue
from p3s.report.show import Columns, show, table_of
from p3s.signature import buffers
from p3s.signature.tracing import sentence
from p3s.signature.unmodelled import sentences


def traced_text(rows: Sequence[TracedCount]) -> str:
    """Return a table of counts, then what the model will leave out at the largest, and of which
    calls buffers and times tell little."""
    largest = max(rows, key=lambda row: row.np)
    lines = [_table(rows), *map(one_line, sentences(largest.not_modelled))]
    lines += buffers.sentences({str(row.np): row.buffers for row in rows})
    return "\n".join(lines + sentence({str(row.np): row.tracing for row in rows}))


def _table(rows: Sequence[TracedCount]) -> str:
    columns: dict[str, Callable[[TracedCount], object]] = {"processes": lambda row: row.np}
    if any(run.dims for row in rows for run in row.runs):
        columns["grid"] = _grid
    columns |= {
        "runs": lambda row: len(row.runs),
        "run time": lambda row: _format_shortest([run.wall_s for run in row.runs]),
    }
    if any(row.timed for row in rows):
        columns["native runs"] = lambda row: len(row.timed)
        columns["native time"] = lambda row: _format_shortest([run.wall_s for run in row.timed])
    columns["shared cores"] = lambda row: (
        "yes" if any(run.oversubscribed for run in row.runs + row.timed) else "no"
    )
    columns |= {key: partial(_number, key) for key in ("events", "phases", "sites")}
    return show(table_of("Traced", columns, rows, left=()))


def small_runs_table(rows: Sequence[TracedCount]) -> str:
    """Return the runs of a smaller input as a table."""
    columns: Columns[TracedCount] = {
        "processes": lambda row: row.np,
        "runs": lambda row: len(row.runs),
        "run time": lambda row: _format_shortest([run.wall_s for run in row.runs]),
        "events": partial(_number, "events"),
    }
    return show(table_of("Traced", columns, rows, left=()))


def values_table(values: Sequence[TracedValue]) -> str:
    """Return the counts of every value of the parameters as a table."""
    columns: Columns[TracedValue] = {
        "value": lambda each: each.name,
        "traced now": lambda each: ", ".join(str(n.np) for n in each.done.counts) or "none",
        "in the study": lambda each: ", ".join(map(str, each.characterized)) or "none",
    }
    return show(table_of("Values", columns, values))


def _grid(row: TracedCount) -> str:
    """Return the extents that the program was given."""
    return next((shape(run.dims) for run in row.runs if run.dims), "-")


def _number(what: str, row: TracedCount) -> object:
    return row.signature.get(what, "-")


def _format_shortest(seconds: Sequence[float]) -> str:
    """Return what the shortest run took."""
    return f"{min(seconds):.2f} s" if seconds else "-"
