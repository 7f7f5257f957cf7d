"""Predictions of weak scaling: a parameter of the input grows with the process count."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

from p3s.base.settings import value_text
from p3s.predict.knee import knee, recommended
from p3s.predict.types import Count, Prediction


def relate(
    result: Prediction, settings: Mapping[int, Mapping[str, Fraction]], threshold: float
) -> Prediction:
    """Return a composed prediction as one of weak scaling: efficiency = T(n0) / T(n).

    Rows get their setting; their speedup is that of the work, efficiency times n / n0.
    """
    base = result.counts[0]
    rows = tuple(_related(row, base, settings[row.n]) for row in result.counts)
    return replace(
        result, counts=rows, knee=knee(rows, threshold), recommended=recommended(rows, threshold)
    )


def _related(row: Count, base: Count, setting: Mapping[str, Fraction]) -> Count:
    grown = row.n / base.n

    def over(seconds: float | None) -> float | None:
        return None if seconds is None else base.time_s / seconds if seconds > 0 else 0.0

    def times(efficiency: float | None) -> float | None:
        return None if efficiency is None else efficiency * grown

    efficiency, low, high = over(row.time_s) or 0.0, over(row.high_s), over(row.low_s)
    return replace(
        row,
        setting={name: value_text(value) for name, value in setting.items()},
        efficiency=efficiency,
        speedup=efficiency * grown,
        speedup_low=times(low),
        speedup_high=times(high),
    )
