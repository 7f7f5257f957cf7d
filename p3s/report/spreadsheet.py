"""Tables by their columns, and as CSV; a prediction: one row per process count, or per phase."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from p3s.predict.saved import PredictionFile

R = TypeVar("R")
T = TypeVar("T")
#: Signs with which a cell is a formula for a spreadsheet.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def rows_of(
    columns: Mapping[str, Callable[[R], T]], records: Iterable[R]
) -> list[list[str] | list[T]]:
    """Return the head of a table, the names of its columns, then a row of cells for each record."""
    cells = columns.values()
    return [list(columns), *([cell(each) for cell in cells] for each in records)]


def counts_csv(prediction: PredictionFile) -> str:
    """Return the counts as CSV; times in s, cost in core hours, empty where not known."""
    return columns_csv(prediction.columns())


def phases_csv(prediction: PredictionFile) -> str:
    """Return the phases at all counts as CSV; times in s, empty where not known."""
    return columns_csv(prediction.phase_columns())


def columns_csv(columns: Mapping[str, Sequence[Any]]) -> str:
    """Return columns as CSV with a head; texts that a spreadsheet would execute get a quote."""
    rows = ([_cell(value) for value in row] for row in zip(*columns.values(), strict=True))
    return lines_csv([list(columns), *rows]).encode("utf-8", "backslashreplace").decode("utf-8")


def lines_csv(lines: Iterable[Sequence[Any]]) -> str:
    """Return lines of cells, the head first, as CSV."""
    sink = io.StringIO()
    csv.writer(sink, lineterminator="\n").writerows(lines)
    return sink.getvalue()


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        text = value.replace("\0", "\\x00")
        return f"'{text}" if text.lstrip(" ").startswith(_FORMULA) else text
    return repr(value)
