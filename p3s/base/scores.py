"""Errors of predictions: relative to what was measured, and what is said of many of them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

Number = float | None


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


def against_least(predicted: float, repeats: Iterable[float]) -> float:
    """Return the relative error against the least of repeated runs.

    Disturbances only make a run slower, so the least is what the program needs (Kazmina and
    Antonov). ValueError without repeats.
    """
    return relative_error(predicted, min(repeats))


def scores(errors: Iterable[Number]) -> Scores:
    """Return median, mean, least and largest of absolute errors; None and NaN are left out."""
    kept = sorted(abs(e) for e in errors if e is not None and not math.isnan(e))
    if not kept:
        return Scores(0, math.nan, math.nan, math.nan, math.nan)
    return Scores(len(kept), statistics.median(kept), statistics.fmean(kept), kept[0], kept[-1])


def median_range(series: Iterable[Sequence[Number]]) -> tuple[float, float] | None:
    """Return least and largest of the medians of several series of errors.

    This is how ranges of errors of regression methods are printed ("5.76-15.24 %"). Series without
    an error are left out; None where there is no other.
    """
    medians = [found.median for found in map(scores, series) if found.count]
    return (min(medians), max(medians)) if medians else None


def spread(repeats: Sequence[float]) -> float:
    """Return (largest - least) / least of repeated runs, 0 for one; ValueError unless all > 0."""
    least = min(repeats)
    if not least > 0:
        raise ValueError(f"{least!r} is no run time")
    return (max(repeats) - least) / least


def by_target(
    predicted: Mapping[int, Number], observed: Mapping[int, Sequence[float]]
) -> dict[int, Number]:
    """Return the error at every count of either, against the least run; None where one is not."""
    found: dict[int, Number] = {}
    for n in sorted({*predicted, *observed}):
        told, runs = predicted.get(n), observed.get(n, ())
        found[n] = None if told is None or not runs else against_least(told, runs)
    return found
