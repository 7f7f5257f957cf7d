"""The process counts of a prediction as tables: a short one for terminals, a full one for pages."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from p3s.predict.curve_doubts import WIDE
from p3s.predict.reasons import reasons_in, untrusted
from p3s.report.points import checked_rows, row_is_doubtful
from p3s.report.values import amount
from p3s.text import NOT_KNOWN, UNKNOWN, factor, interval, percent, seconds, span

T = TypeVar("T")

COUNTS_HEAD = [
    "processes",
    "time",
    "interval",
    "speedup",
    "efficiency",
    "compute",
    "communication",
    "measured",
]
#: Rows of the full table; more are thinned out, and it says so.
MAX_COUNTS = 60
#: Keys of the parts of the communication with the names of their columns.
PARTS = (("transfer_s", "transfer"), ("waiting_s", "waiting"), ("software_s", "software"))


def count_rows(prediction: Mapping[str, Any]) -> list[list[str]]:
    """Return the table of counts.

    A measured time that is not representative is in brackets, a predicted one has an asterisk.
    """
    table = []
    for row in checked_rows(prediction):
        time = seconds(row["time_s"]) + ("*" if row_is_doubtful(row) else " ")
        table.append(
            [
                str(row["n"]),
                time,
                interval_of(row),
                factor(row["speedup"]),
                percent(row["efficiency"]),
                seconds(row["compute_s"]),
                seconds(row["comm_s"]),
                _measured(row),
            ]
        )
    return table


def spread_of(row: Mapping[str, Any]) -> float:
    """Return the high over the low end of a predicted time; 1 where it is measured or unknown."""
    low, high = amount(row.get("low_s")), amount(row.get("high_s"))
    if row.get("time_from") == "measured" or low is None or not high:
        return 1.0
    return high / low if low > 0 else math.inf


def not_known(row: Mapping[str, Any]) -> str:
    """Return that a time is not known where its interval says nothing; "" where it does."""
    spread = spread_of(row)
    if spread <= WIDE:
        return ""
    return f"not known within a factor of {spread:.2g}" if math.isfinite(spread) else "not known"


def interval_of(row: Mapping[str, Any], shown: Callable[..., str] = interval) -> str:
    """Return the interval of a row's time, as ``shown``; "unknown (37x)" where it says nothing."""
    if not_known(row):
        spread = spread_of(row)
        return f"{UNKNOWN} ({spread:,.0f}x)" if math.isfinite(spread) else UNKNOWN
    return shown(amount(row.get("low_s")), amount(row.get("high_s")))


def _measured(row: Mapping[str, Any]) -> str:
    """Return the measured time; in brackets where it does not tell how fast the program is."""
    shown = seconds(amount(row.get("measured_s")))
    return f"({shown})" if row.get("measured") and not row.get("representative") else shown


@dataclass(frozen=True)
class CountRow:
    """One row of the full table; ``mark``: recommended, knee or nothing."""

    cells: list[str]
    measured: bool
    mark: str


@dataclass(frozen=True)
class CountTable:
    """The full table of counts; ``cut`` says what was left out, empty where nothing was."""

    head: list[str]
    rows: list[CountRow]
    cut: str


def count_table(prediction: Mapping[str, Any]) -> CountTable:
    """Return all that is known of each count; parts of the communication only where known."""
    found = checked_rows(prediction)
    parts = [
        (key, name) for key, name in PARTS if any(amount(row.get(key)) is not None for row in found)
    ]
    cost = any(amount(row.get("cost_core_h")) is not None for row in found)
    measured = any(row.get("measured") for row in found)
    head = [
        "processes",
        "run time",
        "interval",
        "speedup",
        "interval",
        "efficiency",
        "compute",
        "MPI",
        *(name for _, name in parts),
        *(["core-h"] if cost else []),
        *(["measured"] if measured else []),
    ]
    trusted = not untrusted(reasons_in(prediction))
    marks = {prediction.get("knee"): "knee"} if trusted else {}
    recommended = prediction.get("recommended")
    if trusted and isinstance(recommended, Mapping):
        marks[recommended.get("n")] = "recommended"
    rows = []
    for row in found:
        time = seconds(row["time_s"]) + ("*" if row_is_doubtful(row) else "")
        cells = [
            f"{row['n']:,}",
            time,
            interval_of(row, span),
            factor(row["speedup"]),
            factor_span(row),
            percent(row["efficiency"]),
            seconds(row["compute_s"]),
            seconds(row["comm_s"]),
            *(seconds(amount(row.get(key))) for key, _ in parts),
            *([core_hours(amount(row.get("cost_core_h")))] if cost else []),
            *([_measured(row)] if measured else []),
        ]
        rows.append(CountRow(cells, row.get("time_from") == "measured", marks.get(row["n"], "")))
    kept = thinned(rows, MAX_COUNTS)
    cut = (
        ""
        if len(kept) == len(rows)
        else f"{len(kept)} of {len(rows)} counts are listed; prediction.json has all."
    )
    return CountTable(head, kept, cut)


def factors(row: Mapping[str, Any]) -> str:
    """Return the interval of a speedup."""
    if not_known(row):
        return UNKNOWN
    low, high = amount(row.get("speedup_low")), amount(row.get("speedup_high"))
    if low is None or high is None:
        return UNKNOWN
    return NOT_KNOWN if low == high else f"{factor(low)} to {factor(high)}"


def factor_span(row: Mapping[str, Any]) -> str:
    """Return the interval of a speedup for a narrow column: "29.4–37.0x"."""
    return factors(row).replace("x to ", "–")


def core_hours(value: float | None) -> str:
    """Return a cost in core-hours with three figures."""
    if value is None:
        return NOT_KNOWN
    if 0 < value < 0.001:
        return "<0.001"
    return f"{value:,.0f}" if value >= 999.5 else f"{value:.3g}"


def thinned(values: list[T], most: int) -> list[T]:
    """Return at most that many of the values, evenly spread, the first and the last among them."""
    if len(values) <= most:
        return values
    last = len(values) - 1
    return [values[round(k * last / (most - 1))] for k in range(most)]
