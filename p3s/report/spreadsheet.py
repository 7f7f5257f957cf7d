"""A prediction as CSV: one row per process count, or per count and phase."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

from p3s.predict.saved import PredictionFile

#: Signs with which a cell is a formula for a spreadsheet.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def counts_csv(prediction: PredictionFile) -> str:
    """Return the counts as CSV; times in s, cost in core hours, empty where not known."""
    return columns_csv(prediction.columns())


def phases_csv(prediction: PredictionFile) -> str:
    """Return the phases at all counts as CSV; times in s, empty where not known."""
    return columns_csv(prediction.phase_columns())


def columns_csv(columns: Mapping[str, Sequence[Any]]) -> str:
    """Return columns as CSV with a head; texts that a spreadsheet would execute get a quote."""
    sink = io.StringIO()
    writer = csv.writer(sink, lineterminator="\n")
    writer.writerow(columns)
    for row in zip(*columns.values(), strict=True):
        writer.writerow([_cell(value) for value in row])
    return sink.getvalue().encode("utf-8", "backslashreplace").decode("utf-8")


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        text = value.replace("\0", "\\x00")
        return f"'{text}" if text.lstrip(" ").startswith(_FORMULA) else text
    return repr(value)
