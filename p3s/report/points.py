"""The rows of a prediction, checked, and the points of its speedup curve."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from p3s.errors import P3SError
from p3s.report.values import amount, count, mapping, rows

#: Without these there is no row; a row may lack the others, or say null.
_NEEDED = ("time_s", "compute_s", "comm_s")
_RATIOS = ("speedup", "efficiency")


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


def checked_rows(prediction: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the counts of a prediction, ascending, each with its phases and ratios.

    Raises P3SError where they do not make sense.
    """
    found = prediction.get("counts")
    given: list[Any] = found if isinstance(found, list) else []
    if not given or not all(map(_makes_sense, given)):
        raise P3SError("prediction.json: damaged: counts do not make sense; run p3s predict again")
    made = [
        {**row, "phases": rows(row["phases"])}
        for row in sorted(given, key=lambda row: int(row["n"]))
    ]
    base = base_of(prediction, made)
    for row in made:
        if row.get("speedup") is None:
            row["speedup"] = base["time_s"] / row["time_s"] if row["time_s"] > 0 else 0.0
        if row.get("efficiency") is None:
            row["efficiency"] = row["speedup"] * base["n"] / row["n"]
    return made


def base_of(prediction: Mapping[str, Any], found: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the row that speedups relate to: that of baseline_n, else the first."""
    n = prediction.get("baseline_n")
    return next((row for row in found if row["n"] == n), found[0])


def _makes_sense(row: Any) -> bool:
    return (
        isinstance(row, dict)
        and type(row.get("n")) is int
        and count(row["n"]) is not None
        and all(amount(row.get(key)) is not None for key in _NEEDED)
        and all(row.get(key) is None or amount(row[key]) is not None for key in _RATIOS)
        and isinstance(row.get("phases"), list)
        and all(isinstance(mapping(phase).get("name"), (str, int)) for phase in row["phases"])
    )


def points_of(prediction: Mapping[str, Any]) -> list[Point]:
    """Return the points of the speedup curve."""
    found = checked_rows(prediction)
    base = base_of(prediction, found)
    points = []
    for row in found:
        model_s = amount(row.get("model_s"))
        points.append(
            Point(
                row["n"],
                row["speedup"],
                amount(row.get("speedup_low")),
                amount(row.get("speedup_high")),
                row["n"] / base["n"],
                row.get("time_from") == "measured",
                base["time_s"] / model_s if model_s else None,
            )
        )
    return points


def row_is_doubtful(row: Mapping[str, Any]) -> bool:
    """Tell whether a time rests on a replay that is not representative."""
    return row.get("time_from") != "measured" and not row.get("model_representative", True)
