"""Intervals of a fitted family: by drawing configurations, residuals or repeats again."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from p3s.base.errors import P3SError, UsageError
from p3s.base.scores import Z90
from p3s.methods.baseline.families import Data, Fitted, fit, weights_of
from p3s.methods.baseline.times import REDUCTIONS, Point

Array = NDArray[np.float64]
METHODS = ("auto", "configurations", "residuals", "jackknife")
LEVEL = 0.90
DRAWS = 200
#: From so many counts on, whole configurations are drawn; fewer of them miss one end too often.
_MANY = 6


def interval(
    points: Sequence[Point],
    fitted: Fitted,
    at: Sequence[int],
    inputs: Array | None = None,
    *,
    weights: str = "relative",
    reduction: str = "min",
    method: str = "auto",
    draws: int = DRAWS,
    seed: int = 0,
) -> tuple[Array, Array] | None:
    """Return the lower and upper ends of the 90 % interval in seconds at counts ``at``.

    "configurations": points drawn with replacement, and their repeats within each; "residuals":
    relative residuals of the fit, made larger for what the coefficients took of them, put on its
    curve; "jackknife": every point left out once, ends from the spread of the logarithm. "auto":
    configurations from 6 points on, else residuals. The same seed gives the same ends. None where
    the points do not leave any freedom: as many coefficients as points, or more, as in learned
    forms.
    """
    if method not in METHODS:
        raise UsageError(f"{method}: no way to an interval; one of {', '.join(METHODS)}")
    if len(points) <= _used(fitted):
        return None
    if method == "auto":
        method = "configurations" if len(points) >= _MANY else "residuals"
    where = np.asarray(at, dtype=np.float64)
    if method == "jackknife":
        return _jackknife(points, fitted, where, inputs, weights)
    rng = np.random.default_rng(seed)
    draw = (
        _configurations(points, fitted, rng, reduction)
        if method == "configurations"
        else _residuals(points, fitted, rng)
    )
    found = []
    for _ in range(draws):
        data = next(draw)
        try:
            again = fit(fitted.family, data, weights_of(weights, data.seconds))
        except P3SError:  # drawn too few distinct counts
            continue
        told = again.predict(where, inputs)
        if np.isfinite(told).all():
            found.append(told)
    if len(found) < draws / 2:
        return None
    low, high = np.quantile(np.array(found), [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    middle = fitted.predict(where, inputs)
    return np.minimum(low, middle), np.maximum(high, middle)


def _used(fitted: Fitted) -> int:
    """Return how many coefficients took freedom: those that a sign holds at zero did not."""
    names = {"three-term": "abc", "amdahl": ("serial", "parallel")}.get(fitted.family)
    if names is None:
        return fitted.n_params
    result: int = max(1, sum(fitted.parameters[name] > 0 for name in names))
    return result


def _configurations(
    points: Sequence[Point], fitted: Fitted, rng: np.random.Generator, reduction: str
) -> Iterator[Data]:
    """Draw points with replacement, and the repeats of each, for ever."""
    data = Data.of(points, fitted.inputs)
    repeated = any(len(point.repeats) > 1 for point in points)
    reduce = REDUCTIONS[reduction]
    while True:
        chosen = rng.integers(len(points), size=len(points))
        drawn = data.only(chosen)
        if repeated:
            seconds = [
                reduce(rng.choice(points[i].repeats, len(points[i].repeats)).tolist())
                for i in chosen.tolist()
            ]
            drawn = Data(drawn.n, np.array(seconds), drawn.inputs, drawn.names)
        yield drawn


def _residuals(points: Sequence[Point], fitted: Fitted, rng: np.random.Generator) -> Iterator[Data]:
    """Put residuals on the fitted curve, for ever."""
    data = Data.of(points, fitted.inputs)
    curve = np.maximum(fitted.predict(data.n, data.inputs), 1e-12 * data.seconds)
    lost = math.sqrt(len(points) / (len(points) - _used(fitted)))
    off = np.log(data.seconds / curve) * lost
    off = off - off.mean()
    while True:
        # Signs are drawn too: a handful of residuals has hardly two alike.
        chosen = rng.choice(off, size=len(points)) * rng.choice([-1.0, 1.0], size=len(points))
        yield Data(data.n, curve * np.exp(chosen), data.inputs, data.names)


def _jackknife(
    points: Sequence[Point], fitted: Fitted, where: Array, inputs: Array | None, weights: str
) -> tuple[Array, Array] | None:
    found = []
    for i in range(len(points)):
        data = Data.of([p for j, p in enumerate(points) if j != i], fitted.inputs)
        try:
            again = fit(fitted.family, data, weights_of(weights, data.seconds))
        except P3SError:
            return None
        found.append(again.predict(where, inputs))
    logs = np.log(np.maximum(np.array(found), 1e-300))
    number = len(found)
    error = np.sqrt((number - 1) / number * ((logs - logs.mean(axis=0)) ** 2).sum(axis=0))
    middle = fitted.predict(where, inputs)
    return middle * np.exp(-Z90 * error), middle * np.exp(Z90 * error)
