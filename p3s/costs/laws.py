"""The cost of a unit of work as a law of the working set, with intervals (thesis, chapter 6).

The logarithm of the cost is a random walk over log2 of the work of a rank per iteration: what a
cache does to it may come anywhere, and beyond the points nothing says that it goes on. How fast it
changes, how large errors are, whether a fixed overhead per iteration shows at small work and which
run something disturbed are averaged over, each weighing as its marginal likelihood (Rasmussen and
Williams, Gaussian Processes for Machine Learning, 2006, eq. 2.30).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import product
from math import isfinite, log
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

from p3s.base.arrays import Bools, Floats, Ints
from p3s.costs.points import Point, thinned
from p3s.laws.statistics import quantiles

#: Share inside the interval.
INSIDE = 0.90
#: Knots of the table per doubling of x inside the points and outside; doublings outside.
KNOTS, KNOTS_OUTSIDE, BELOW, ABOVE = 4, 2, 8, 5
#: Points that are nearer to each other, in doublings, are at one x: a file keeps six digits.
_SAME = 1e-4
#: Changes of the logarithm of the cost: over a doubling (standard deviation), how likely such a
#: cost is (many kernels never leave the registers), and doublings over which a change goes on.
RATES = ((0.0, 0.3, 1.0), (0.03, 0.3, 4.0), (0.1, 0.25, 1.2), (0.3, 0.15, 0.47))
#: The rate beside which an overhead can be told.
SLOW = 0.03
#: The same beyond the points, at least: about one cache in eight doublings, of any size.
UNSEEN = 0.1
#: Size of errors as multiples of what the repeats say, and how likely each is.
ERRORS = {0.6: 0.35, 1.0: 0.4, 1.7: 0.25}
#: How likely a fixed overhead per iteration is, its share of the cost at the least x and how far
#: that varies.
OVERHEAD, OVERHEAD_SHARE, OVERHEAD_VARIES = 0.15, 0.15, 0.1
#: How often a run is disturbed; the logarithm by which it is slower then, and how far that varies;
#: how many are, at most.
DISTURBED, SLOWER, VARIES, MOST_DISTURBED = 0.05, 0.14, 0.06, 3
#: Share of the variance of errors that is common to a run; the rest is a point's own.
RUN_SHARE = 0.5
#: Error of a point, relative: at least, and where nothing was repeated; share of the spread of
#: single repeats that is left in the least of them.
LEAST_ERROR, ASSUMED, KEPT = 0.007, 0.015, 0.7
#: How many repeats the error common to all points counts as, against those of similar x.
LOCAL = 6.0
#: Walks that weigh less than this share of the likeliest are left out.
WINDOW = 1e-3
#: Half width of the interval of a law of one point, and what it grows by with each doubling.
ONE_POINT, ONE_POINT_EACH = 0.25, 0.1
#: Doublings of x within which points tell how much more than the least time is typical.
NEAR = 0.7
#: Values that stand for a normal distribution.
_LEVELS = np.array([NormalDist().inv_cdf((i + 0.5) / 25) for i in range(25)])
#: Keeps matrices of points at one x regular.
_ROUNDING = 1e-14


@dataclass(frozen=True)
class CostLaw:
    """Nanoseconds per unit of work as a function of x, a rank's work per iteration of the phase.

    unit: of the work. at, middle, usual, low, high: log2 x ascending, and there the least cost, the
    typical one, and the ends of the 90 % interval of the typical one. covered: smallest and largest
    x of the points. disturbed: what was taken for disturbed ("source@count"). refused: why the
    points tell nothing.
    """

    unit: str
    at: Floats
    middle: Floats = field(metadata={"key": "least"})
    usual: Floats = field(metadata={"key": "typical"})
    low: Floats
    high: Floats
    covered: tuple[float, float]
    disturbed: tuple[str, ...] = ()
    refused: str | None = None

    def cost(self, x: Any) -> np.ndarray:
        """Return the least cost at ``x`` in ns per unit of work."""
        return self._table(self.middle, x, grows=False)

    def typical(self, x: Any) -> np.ndarray:
        """Return the cost at ``x`` in ns per unit as the median of repeats would show it."""
        return self._table(self.usual, x, grows=False)

    def interval(self, x: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return the 90 % interval of the typical cost at ``x``, in ns per unit."""
        value = self.typical(x)
        return (
            np.minimum(self._table(self.low, x, grows=True), value),
            np.maximum(self._table(self.high, x, grows=True), value),
        )

    def outside(self, x: Any) -> np.ndarray:
        """Return how far ``x`` lies outside the points, as a ratio; 1 inside, and of no work."""
        x = np.asarray(x, dtype=float)
        low, high = self.covered
        if not low > 0:
            return np.ones_like(x)
        some = np.where(x > 0, x, low)
        return np.maximum(1.0, np.maximum(low / some, some / high))

    def _table(self, y: np.ndarray, x: Any, *, grows: bool) -> np.ndarray:
        """Return the table at ``x``; beyond its ends the value is held, an interval goes on."""
        if not len(self.at):
            return np.zeros_like(np.asarray(x, dtype=float))
        u = np.log2(np.maximum(np.asarray(x, dtype=float), 1e-300))
        v = np.log2(np.maximum(y, 1e-300))
        out = np.interp(u, self.at, v)
        if grows and len(self.at) > 1:
            for i, j in ((0, 1), (-1, -2)):
                slope = (v[i] - v[j]) / (self.at[i] - self.at[j])
                beyond = (
                    np.minimum(u - self.at[i], 0.0) if i == 0 else np.maximum(u - self.at[i], 0.0)
                )
                out = out + np.clip(slope * beyond, -30.0, 30.0)
        result: np.ndarray = np.exp2(out)
        return result

    def to_json(self) -> dict[str, Any]:
        """Return the law as plain data."""

        def digits(y: np.ndarray) -> list[float]:
            return [float(f"{v:.6g}") for v in y]

        return {
            "unit": self.unit,
            "covered": list(self.covered),
            "at": [round(float(u), 6) for u in self.at],
            "least": digits(self.middle),
            "typical": digits(self.usual),
            "low": digits(self.low),
            "high": digits(self.high),
            "disturbed": list(self.disturbed),
            "refused": self.refused,
        }

    def valid(self) -> None:
        """Raise ValueError where the table or the curve does not hold together."""
        tables = (self.middle, self.usual, self.low, self.high)
        if {len(y) for y in tables} != {len(self.at)} or np.any(np.diff(self.at) <= 0):
            raise ValueError("the table of a law of cost does not hold together")
        if any(np.any(y < 0) for y in tables):
            raise ValueError("a law of cost has a cost below zero")


def fit_cost(points: Sequence[Point], *, unit: str) -> CostLaw:
    """Fit the cost of a unit of work over x to the points of one place; always returns a law.

    points: of one place, of all runs, in any order. unit: name of the unit of work. Points without
    work or time are left out. Where the points tell nothing, ``refused`` of the law says why.
    """
    return _fitted(tuple(points), unit)


@lru_cache(maxsize=1024)  # with and without what is held out, most places have the same points
def _fitted(points: tuple[Point, ...], unit: str) -> CostLaw:
    usable = usable_points(points)
    if not usable:
        return _nothing(points, unit)
    if len(usable) == 1:
        return _one_point(usable[0], unit)
    return _law(usable, unit)


def _nothing(points: Sequence[Point], unit: str) -> CostLaw:
    if not points:
        why = "no run has measured it"
    elif not any(p.work > 0 for p in points):
        why = "no work was counted at any point"
    else:
        why = "no time was measured at any point"
    empty = np.zeros(0)
    return CostLaw(unit, empty, empty, empty, empty, empty, (0.0, 0.0), refused=why)


def _one_point(point: Point, unit: str) -> CostLaw:
    """Return a constant law whose interval grows with the distance from the point."""
    u0 = float(np.log2(point.x))
    at = u0 + np.arange(-BELOW, ABOVE + 1.0)
    cost = point.cost
    usual = max(cost, point.typical_ns / point.work)
    half = 1.0 + ONE_POINT + ONE_POINT_EACH * np.abs(at - u0)
    return CostLaw(
        unit,
        at,
        np.full(len(at), cost),
        np.full(len(at), usual),
        usual / half,
        usual * half,
        (point.x, point.x),
        refused="one point cannot tell how the cost changes with the working set",
    )


def _knots(low: float, high: float) -> np.ndarray:
    """Return where the curve is kept, as log2 of x, from below the points to above them."""
    inside = (
        np.linspace(low, high, int(np.ceil((high - low) * KNOTS)) + 1)
        if high - low > _SAME
        else np.array([low])
    )
    below = low - np.arange(BELOW * KNOTS_OUTSIDE, 0, -1) / KNOTS_OUTSIDE
    above = high + np.arange(1, ABOVE * KNOTS_OUTSIDE + 1) / KNOTS_OUTSIDE
    return np.concatenate([below, inside, above])


def usable_points(points: Sequence[Point]) -> list[Point]:
    """Return the points with work and time, by x; of many groups of ranks of a run some are one."""
    good = sorted(
        (p for p in points if all(isfinite(v) and v > 0 for v in (p.work, p.least_ns, p.x))),
        key=lambda p: (p.source, p.traced, p.x, p.work, p.least_ns, p.typical_ns),
    )
    return sorted(thinned(good), key=lambda p: (p.x, p.source, p.traced))


class _Measured(NamedTuple):
    """Points as arrays: u = log2 x, v = log cost, the number of the run of each; error: of a point
    relative to its cost, noise: covariance of the errors in units of its square; scale: how much
    that of each differs from it; runs: names."""

    u: Floats
    v: Floats
    run: Ints
    error: float
    noise: Floats
    scale: Floats
    runs: list[str]


def _measured(points: Sequence[Point]) -> _Measured:
    names = sorted({(p.source, p.traced) for p in points})
    run = np.array([names.index((p.source, p.traced)) for p in points])
    weight = np.array([min(8.0, max(1, p.ranks * p.repeats)) for p in points]) ** (1 / 3)
    u = np.log2([p.x for p in points])
    error, scale = _errors(points, u)
    noise = np.where(run[:, None] == run, RUN_SHARE, 0.0)
    noise += np.diag((1.0 - RUN_SHARE) * weight.mean() / weight)
    noise *= scale[:, None] * scale
    v = np.log([p.cost for p in points])
    return _Measured(u, v, run, error, noise, scale, [f"{source}@{n}" for source, n in names])


@dataclass(frozen=True)
class _Walks:
    """Walks with their weights (walks,), means and variances at the knots (walks, knots), the size
    of errors, the variance per doubling, and which runs something disturbed (walks, runs)."""

    weight: Floats
    mean: Floats
    variance: Floats
    error: Floats
    rate: Floats
    disturbed: Bools

    def some(self, which: np.ndarray) -> _Walks:
        """Return some of the walks."""
        return _Walks(*(getattr(self, name)[which] for name in self.__dataclass_fields__))

    def quantiles(self, variance: Floats, shares: Sequence[float]) -> Floats:
        """Return quantiles of the cost of all walks: (shares, knots)."""
        away = np.sqrt(variance)[:, None, :] * _LEVELS[:, None]
        values = (self.mean[:, None, :] + away).reshape(-1, self.mean.shape[1])
        weight = np.repeat(self.weight, len(_LEVELS)) / len(_LEVELS)
        return np.asarray(np.exp(quantiles(values, weight, shares)))


def _walks(points: _Measured, at: Floats) -> _Walks:
    """Return the walks that the points leave, and what they are at the knots."""
    n, runs = len(points.u), len(points.runs)
    x = np.concatenate([points.u, at]) - points.u.min()
    moves = bool(np.ptp(points.u) > _SAME)  # else one x tells of no change
    each = [
        (rate, length, error, over, log(p * q * (OVERHEAD if over else 1.0 - OVERHEAD)))
        for (rate, p, length), (error, q), over in product(RATES, ERRORS.items(), (0.0, 1.0))
        if moves and (not over or rate == SLOW) or not (rate or over)
    ]
    rate, length, error, over, prior = np.array(each).T
    apart = _variogram(x, length[:, None])
    walk = 0.5 * (apart[:, :, None] + apart[:, None, :])
    walk -= 0.5 * _variogram(x[:, None] - x, length[:, None, None])
    shape = np.exp2(np.minimum(-x, BELOW))
    kernel = rate[:, None, None] ** 2 * walk
    kernel += over[:, None, None] * OVERHEAD_VARIES**2 * np.outer(shape, shape)
    overhead = OVERHEAD_SHARE * over[:, None] * shape
    noise = (error * points.error)[:, None, None] ** 2 * points.noise
    covariance = kernel[:, :n, :n] + noise + _ROUNDING * np.eye(n)
    to, own = kernel[:, :n, n:], np.diagonal(kernel, axis1=1, axis2=2)[:, n:]

    def of_disturbed(which: tuple[int, ...]) -> _Walks:
        of = np.isin(points.run, which)
        common = VARIES**2 * np.outer(of, of) * (points.run[:, None] == points.run)
        v = points.v - SLOWER * of - overhead[:, :n]
        likely, mean, variance = _conditional(covariance + common, to, own, v)
        likely += prior + len(which) * log(DISTURBED)
        runs_of = np.tile(np.isin(range(runs), which), (len(mean), 1))
        return _Walks(
            likely, mean + overhead[:, n:], variance, error * points.error, rate**2, runs_of
        )

    best: tuple[int, ...] = ()
    parts = [of_disturbed(best)]
    for _ in range(min(MOST_DISTURBED, (runs - 1) // 2)):  # the likeliest, and each other one
        more = [(*best, run) for run in range(runs) if run not in best]
        found = [of_disturbed(which) for which in more]
        best = more[int(np.argmax([each.weight.max() for each in found]))]
        parts += found
    names = _Walks.__dataclass_fields__
    every = _Walks(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))
    weight = np.exp(every.weight - every.weight.max())
    kept = every.some(weight > WINDOW)
    weight = weight[weight > WINDOW]
    return _Walks(weight / weight.sum(), *(getattr(kept, name) for name in list(names)[1:]))


def _variogram(t: Floats, length: Floats) -> Floats:
    """Return the variance of a walk's change over a distance in doublings, relative to its rate."""
    return np.asarray(np.abs(t) - length * (1.0 - np.exp(-np.abs(t) / length)))


def _conditional(
    covariance: Floats, to: Floats, own: Floats, v: Floats
) -> tuple[Floats, Floats, Floats]:
    """Return log likelihood, means and variances of walks whose level nothing is known of.

    covariance: of the points (walks, n, n), v: their values (walks, n); to: with the knots (walks,
    n, knots); own: of these.
    """
    factor = np.linalg.cholesky(covariance)
    both = np.stack([v, np.ones(v.shape)], axis=2)
    z = np.linalg.solve(factor, np.concatenate([both, to], axis=2))
    y, one, k = z[..., 0], z[..., 1], z[..., 2:]
    sure = (one**2).sum(axis=1)
    level = (one * y).sum(axis=1) / sure
    rest = y - level[:, None] * one
    likely = -np.log(np.diagonal(factor, axis1=1, axis2=2)).sum(axis=1)
    likely -= 0.5 * (np.log(sure) + (rest**2).sum(axis=1))
    mean = level[:, None] + np.einsum("wnk,wn->wk", k, rest)
    lift = 1.0 - np.einsum("wnk,wn->wk", k, one)
    variance = own - (k**2).sum(axis=1) + lift**2 / sure[:, None]
    return likely, mean, np.maximum(variance, 0.0)


def _law(points: Sequence[Point], unit: str) -> CostLaw:
    measured = _measured(points)
    low, high = float(measured.u.min()), float(measured.u.max())
    at = _knots(low, high)
    walks = _walks(measured, at)
    disturbed = np.flatnonzero(walks.weight @ walks.disturbed > 1 / 2)
    middle = walks.quantiles(walks.variance, (0.5,))[0]
    least = np.interp(measured.u, at, middle)
    factor = _usual(points, measured.u, ~np.isin(measured.run, disturbed), least, at)
    # another run than the measured ones has an error of its own; beyond them a cache may come
    inside = np.clip(at, low, high)
    near = np.exp(-0.5 * (inside[:, None] - measured.u) ** 2)
    scale = near @ measured.scale / near.sum(axis=1)
    more = np.maximum(UNSEEN**2 - walks.rate, 0.0)[:, None] * np.abs(at - inside)
    variance = walks.variance + more + (walks.error[:, None] * scale) ** 2
    ends = walks.quantiles(variance, ((1 - INSIDE) / 2, (1 + INSIDE) / 2)) * factor
    covered = (points[0].x, points[-1].x)
    names = tuple(measured.runs[run] for run in disturbed.tolist())
    return CostLaw(unit, at, middle, middle * factor, ends[0], ends[1], covered, names)


def _errors(points: Sequence[Point], u: np.ndarray) -> tuple[float, np.ndarray]:
    """Return the error to expect of a point, from its repeats, and each one's relative to that.

    How far the median of the repeats lies above the least tells more than their range, which one
    disturbed repeat makes. Runs at similar x tell about one another: what comes from memory
    differs more from run to run than what comes from caches.
    """
    repeats = np.array([p.repeats for p in points])
    gap = np.array([max(p.typical_ns / p.least_ns - 1.0, 0.0) for p in points])
    # mean distance of the median of so many normal values from the least, in standard deviations
    sigma = gap / np.interp(repeats, (2, 3, 4, 5, 7, 10), (0.56, 0.85, 1.03, 1.16, 1.35, 1.54))
    told = np.minimum(repeats - 1.0, 4.0)
    if not told.any():
        return ASSUMED, np.ones(len(points))
    error = float(np.hypot(LEAST_ERROR, KEPT * np.median(sigma[told > 0])))
    near = np.exp(-0.5 * (u[:, None] - u[None, :]) ** 2) * told
    own = np.hypot(LEAST_ERROR, KEPT * np.minimum(sigma, 0.3)) ** 2
    each = np.sqrt((LOCAL * error**2 + near @ own) / (LOCAL + near.sum(axis=1)))
    return min(error, 0.2), np.clip(each / error, 0.5, 4.0)


def _usual(
    points: Sequence[Point], u: Floats, sound: np.ndarray, least: Floats, at: Floats
) -> Floats:
    """Return the typical cost over the least one at ``at``: at least 1.

    u, sound, least: log2 x of the points, whether nothing disturbed them, the law's cost there. It
    is the median of the ratios of the points around, which are
    unlike each other: what waits for memory is slowed by other load more than what does not. Runs
    without repeats have a typical time only, which is as good here.
    """
    ratio = np.array([p.typical_ns / p.work for p in points]) / np.maximum(least, 1e-300)
    away = (np.clip(at, u.min(), u.max())[:, None] - u) / NEAR
    near = np.exp(-0.5 * away**2) * np.where(sound, 1.0, 1e-6)
    near /= near.sum(axis=1, keepdims=True)
    ratios = np.repeat(ratio[:, None], len(at), axis=1)
    return np.asarray(np.maximum(1.0, quantiles(ratios, near.T, (0.5,))[0]))


#: Costs at the ends of the points that differ by less than this share are not told apart.
TELLING = 0.05


def text(law: CostLaw) -> str:
    """Return the law as one line: the cost in the middle of the points, and how it changes."""
    if not len(law.at):
        return f"unknown ({law.refused})"
    low, high = law.covered
    first, middle, last = law.cost(np.array([low, (low * high) ** 0.5, high])).tolist()
    said = f"{number(middle)} ns per {law.unit}"
    if abs(last - first) < TELLING * middle:
        return said
    x = np.geomspace(low, high, 256)
    half = np.argmax((law.cost(x) - (first + last) / 2) * (last - first) >= 0)
    return (
        f"{said} ({number(first)} at {number(low)} per iteration, {number(last)} at "
        f"{number(high)}, half of the way at {number(float(x[half]))})"
    )


def number(value: float) -> str:
    """Return three digits of a number."""
    out = f"{value:.3g}"
    return out.replace("e+0", "e").replace("e+", "e").replace("e-0", "e-")
