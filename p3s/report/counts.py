"""The process counts of a prediction as tables, points of its curve, and tables as CSV."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from p3s.base.text import (
    NOT_KNOWN,
    UNKNOWN,
    ends,
    factor,
    interval,
    percent,
    processes,
    seconds,
    span,
    visible,
)
from p3s.pipeline.saved import PredictionFile
from p3s.predict.checks import ROUNDING, UNSURE, WIDE, half_width
from p3s.predict.types import Count, Prediction, filter_untrusted, part_s
from p3s.report.show import Cell, Part, PartTable, lines_csv

T = TypeVar("T")

#: What a tilde and an asterisk mean.
ROUGH = f"~     known roughly: by more than {100 * UNSURE:.0f} % to either side"
DOUBTFUL = "*     communication was not measured as in a real run"
#: Rows of the full table; more are thinned out, and it says so.
MAX_COUNTS = 60
#: Parts of the communication, each a column.
PARTS = ("transfer", "waiting", "software")


Column = tuple[str, Callable[[Count], str]]


def count_table(prediction: Prediction, most: int = MAX_COUNTS, *, wide: bool = True) -> PartTable:
    """Return the process counts, at most so many; ``wide``: all that is known, for a page."""
    columns, found = _columns(prediction, wide=wide), prediction.counts
    trusted = not filter_untrusted(prediction.reasons)
    kinds = {prediction.knee: "knee"} if trusted else {}
    if trusted and prediction.recommended is not None:
        kinds[prediction.recommended.n] = "recommended"
    if wide:
        columns.insert(1, ("mark", lambda row: _mark(row, kinds.get(row.n, ""))))
    kept = thin_values(found, most)
    return PartTable(
        "Process counts",
        [name for name, _ in columns],
        [[cell(row) for _, cell in columns] for row in kept],
        left=(1,) if wide else (),
        kind="counts",
        row_kinds=[kinds.get(row.n, "") for row in kept],
    )


def counts_part(prediction: Prediction) -> Part:
    """Return all that is known of each count, as a part of the page."""
    base = processes(prediction.baseline_n)
    notes = (
        f"Speedup and efficiency relative to {base}. Measured times in brackets do not tell how "
        "fast the program is; times with an asterisk rest on communication that was not measured "
        "in representative conditions."
    )
    cut = [f"{line}." for line in count_cut(prediction)]
    return Part("counts", "Process counts", tables=[count_table(prediction)], notes=[*cut, notes])


def count_cut(prediction: Prediction, most: int = MAX_COUNTS) -> list[str]:
    """Return that not all counts are listed, where they are not."""
    number = len(prediction.counts)
    return [f"{most} of {number} counts; p3s report --csv has all"] * (number > most)


def _mark(row: Count, kind: str) -> Cell:
    """Return what is to be seen of a count at once."""
    if kind:
        best = kind == "recommended"
        return Cell("worth using", tag="best-tag") if best else Cell(kind, tag="knee-tag")
    return Cell("measured", tag="measured-tag") if row.time_from == "measured" else Cell("")


def _columns(prediction: Prediction, *, wide: bool) -> list[Column]:
    """Return the columns of a table of counts; ``wide``: all that is known, for a page.

    A measured time that is not representative is in brackets, a predicted one has an asterisk; one
    that is known roughly has a tilde.
    """
    found = prediction.counts
    weak, ends = found[0].setting, span if wide else interval

    def time(row: Count) -> str:
        return _rough(row) + seconds(row.time_s) + ("*" if row.doubtful else "" if wide else " ")

    columns: list[Column] = [("processes", lambda row: f"{row.n:,}" if wide else str(row.n))]
    if weak is not None:
        names = visible(", ".join(weak))
        columns.append((names, lambda row: visible(", ".join((row.setting or {}).values()))))
    columns.append(("run time" if wide else "time", time))
    columns.append(("interval", lambda row: interval_of(row, ends)))
    if weak is None:
        columns.append(("speedup", lambda row: factor(row.speedup)))
    if wide:
        columns.append(("interval", factor_span))
    name = "efficiency" if weak is None else "weak efficiency"
    columns.append((name, lambda row: percent(row.efficiency)))
    columns.append(("compute", lambda row: seconds(row.compute_s)))
    columns.append(("MPI" if wide else "communication", lambda row: seconds(row.comm_s)))
    if wide:
        known = [part for part in PARTS if any(part_s(row, part) is not None for row in found)]
        columns += [(part, partial(_part, part)) for part in known]
    if weak is None and any(row.io_s for row in found):
        columns.append(("files", lambda row: seconds(row.io_s)))
    if wide:
        columns.append(("core-h", lambda row: core_hours(row.cost_core_h)))
    if not wide or any(row.measured for row in found):
        columns.append(("measured", measured_of))
    return columns


def _part(part: str, row: Count) -> str:
    return seconds(part_s(row, part))


def _rough(row: Count) -> str:
    """Return the sign of a predicted time that is known roughly, "" for another."""
    rough = row.time_from != "measured" and half_width(row) > UNSURE + ROUNDING
    return "~" if rough else ""


def spread_of(row: Count) -> float:
    """Return the high over the low end of a predicted time; 1 where it is measured or unknown."""
    low, high = row.low_s, row.high_s
    if row.time_from == "measured" or low is None or not high:
        return 1.0
    return high / low if low > 0 else math.inf


def not_known(row: Count) -> str:
    """Return that a time is not known where its interval says nothing; "" where it does."""
    spread = spread_of(row)
    if spread <= WIDE:
        return ""
    return f"not known within a factor of {spread:.2g}" if math.isfinite(spread) else "not known"


def interval_of(row: Count, shown: Callable[..., str] = interval) -> str:
    """Return the interval of a row's time, as ``shown``; "unknown (37x)" where it says nothing."""
    if not_known(row):
        spread = spread_of(row)
        return f"{UNKNOWN} ({spread:,.0f}x)" if math.isfinite(spread) else UNKNOWN
    return shown(row.low_s, row.high_s)


def signs(rows: Iterable[Count]) -> list[str]:
    """Return what brackets and asterisks of :func:`count_rows` mean, of those that occur."""
    rows = list(rows)
    lines = []
    if any(row.measured and not row.representative for row in rows):
        lines.append("(...) measured, but not as in a real run")
    if any(row.doubtful for row in rows):
        lines.append(DOUBTFUL)
    if any(_rough(row) for row in rows):
        lines.append(ROUGH)
    return lines


def measured_of(row: Count) -> str:
    """Return the measured time; in brackets where it does not tell how fast the program is."""
    shown = seconds(row.measured_s)
    return f"({shown})" if row.measured and not row.representative else shown


def factors(row: Count) -> str:
    """Return the interval of a speedup."""
    if not_known(row):
        return UNKNOWN
    low, high = row.speedup_low, row.speedup_high
    if low is None or high is None:
        return UNKNOWN
    return NOT_KNOWN if low == high else ends(factor(low), factor(high))


def factor_span(row: Count) -> str:
    """Return the interval of a speedup for a narrow column: "29.4–37.0x"."""
    return factors(row).replace("x to ", "–")


def core_hours(value: float) -> str:
    """Return a cost in core-hours with three figures."""
    if 0 < value < 0.001:
        return "<0.001"
    return f"{value:,.0f}" if value >= 999.5 else f"{value:.3g}"


def thin_values(values: Sequence[T], most: int) -> list[T]:
    """Return at most that many of the values, evenly spread, the first and the last among them."""
    if len(values) <= most:
        return list(values)
    last = len(values) - 1
    return [values[round(k * last / (most - 1))] for k in range(most)]


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
    rows = ([_cell(value) for value in row] for row in zip(*columns.values(), strict=True))
    return lines_csv([list(columns), *rows]).encode("utf-8", "backslashreplace").decode("utf-8")


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        text = value.replace("\0", "\\x00")
        return f"'{text}" if text.lstrip(" ").startswith(_FORMULA) else text
    return repr(value)


@dataclass(frozen=True)
class Point:
    """One process count on the curve; speedups relative to the baseline, None if unknown."""

    n: int
    speedup: float
    low: float | None
    high: float | None
    ideal: float
    measured: bool
    model: float | None


def points_of(prediction: Prediction) -> list[Point]:
    """Return the points of the speedup curve."""
    base = prediction.base
    return [
        Point(
            row.n,
            row.speedup,
            row.speedup_low,
            row.speedup_high,
            row.n / base.n,
            row.time_from == "measured",
            base.time_s / row.model_s if row.model_s else None,
        )
        for row in prediction.counts
    ]
