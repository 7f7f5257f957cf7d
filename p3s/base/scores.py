"""Errors of predictions: relative to what was measured, and what is said of many of them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass

Number = float | None
#: Half of a normal distribution's 90 % interval, in standard deviations.
Z90 = 1.645


@dataclass(frozen=True)
class Scores:
    """What is said of some errors, all as shares (0.05: five percent), signs left out.

    None of them is a number where ``count`` is 0.
    """

    count: int
    median: float
    mean: float
    least: float
    largest: float


def relative_error(predicted: float, observed: float) -> float:
    """Return (predicted - observed) / observed, with its sign; ValueError unless observed > 0."""
    if not observed > 0 or not math.isfinite(observed):
        raise ValueError(f"{observed!r} is nothing an error can be relative to")
    return (predicted - observed) / observed


def scores(errors: Iterable[Number]) -> Scores:
    """Return median, mean, least and largest of absolute errors; None and NaN are left out."""
    kept = sorted(abs(e) for e in errors if e is not None and not math.isnan(e))
    if not kept:
        return Scores(0, math.nan, math.nan, math.nan, math.nan)
    return Scores(len(kept), statistics.median(kept), statistics.fmean(kept), kept[0], kept[-1])
