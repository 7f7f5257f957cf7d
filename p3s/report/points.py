"""The points of a prediction's speedup curve."""

from __future__ import annotations

from dataclasses import dataclass

from p3s.predict.types import Prediction


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
