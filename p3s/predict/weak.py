"""Predictions of weak scaling: a parameter of the input grows with the process count."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from p3s.predict.knee import knee, recommended
from p3s.settings import value_text


def relate(
    result: dict[str, Any], settings: Mapping[int, Mapping[str, Fraction]], threshold: float
) -> dict[str, Any]:
    """Turn a composed prediction into one of weak scaling: efficiency = T(n0) / T(n).

    Rows get their setting; their speedup is that of the work, efficiency times n / n0.
    """
    rows = result["counts"]
    base = rows[0]

    def over(seconds: float | None) -> float | None:
        return None if seconds is None else base["time_s"] / seconds if seconds > 0 else 0.0

    for row in rows:
        grown = row["n"] / base["n"]
        row["setting"] = {k: value_text(v) for k, v in settings[row["n"]].items()}
        row["efficiency"] = over(row["time_s"])
        for key, time in (("efficiency_low", "high_s"), ("efficiency_high", "low_s")):
            row[key] = over(row[time])
        for key, of in (
            ("speedup", "efficiency"),
            ("speedup_low", "efficiency_low"),
            ("speedup_high", "efficiency_high"),
        ):
            row[key] = None if row[of] is None else row[of] * grown
    result["knee"] = knee(rows, threshold)
    result["recommended"] = recommended(rows, threshold)
    return result
