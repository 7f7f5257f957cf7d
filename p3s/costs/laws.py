"""The cost of a unit of work as a law of the working set, with intervals (thesis, chapter 6)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np

from p3s.base.arrays import Floats
from p3s.costs.points import Point
from p3s.costs.posterior import CONSTANT, Column
from p3s.laws.statistics import quantiles

if TYPE_CHECKING:
    from p3s.costs.posterior import Best, Draws, FitPoints

#: Share inside the interval.
INSIDE = 0.90
#: Knots of the table per doubling of x inside the points and outside; doublings outside.
KNOTS, KNOTS_OUTSIDE, BELOW, ABOVE = 4, 2, 8, 5
#: Points that are nearer to each other, in doublings, are at one x: a file keeps six digits.
_SAME = 1e-4
#: Steps not seen yet: how many per doubling beyond the points, and their heights relative to the
#: cost: from LOWEST to HIGHEST, all magnitudes as likely; width in doublings.
UNSEEN, LOWEST, HIGHEST, UNSEEN_WIDTH = 0.12, 0.01, 0.5, 0.4
#: A fixed overhead per turn too small to be seen: how likely, and its share of the cost at the
#: smallest x of the points, from and to, all magnitudes as likely; it grows as 1/x.
OVERHEAD, OVERHEAD_LEAST, OVERHEAD_MOST = 0.4, 1e-4, 0.03
#: Half width of the interval of a law of one point, and what it grows by with each doubling.
ONE_POINT, ONE_POINT_EACH = 0.25, 0.1
#: A family that weighs more than this share of the best one is a rival.
RIVAL = 1 / 3
#: Doublings of x within which points tell the errors of others, and what of their times is typical.
NEAR = 0.7


@dataclass(frozen=True)
class CostLaw:
    """Nanoseconds per unit of work as a function of x, a rank's work per iteration of the phase.

    unit: of the work. kind: the likeliest family (families.py). columns, coefficients: its curve.
    at, middle, usual, low, high: log2 x ascending, and there the least cost, the typical one, and
    the ends of the 90 % interval of the typical one. covered: smallest and largest x of the points.
    rivals: families that do about as well. refused: why the points tell nothing. disturbed: what
    was taken for disturbed ("source@count").

    Inside the points the value is the weighted median of all curves. Outside it is the same curves
    continued: where they agree on a plateau it is held, and where the points show a step it is
    completed; steps that nobody has seen widen the interval only (UNSEEN of them per doubling).
    """

    unit: str
    kind: str
    columns: tuple[Column, ...]
    coefficients: tuple[float, ...]
    at: Floats
    middle: Floats = field(metadata={"key": "least"})
    usual: Floats = field(metadata={"key": "typical"})
    low: Floats
    high: Floats
    covered: tuple[float, float]
    rivals: tuple[str, ...] = ()
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
            "kind": self.kind,
            "columns": [[c.kind, c.first, c.second] for c in self.columns],
            "coefficients": list(self.coefficients),
            "covered": list(self.covered),
            "at": [round(float(u), 6) for u in self.at],
            "least": digits(self.middle),
            "typical": digits(self.usual),
            "low": digits(self.low),
            "high": digits(self.high),
            "rivals": list(self.rivals),
            "disturbed": list(self.disturbed),
            "refused": self.refused,
        }

    def valid(self) -> None:
        """Raise ValueError where the table or the curve does not hold together."""
        tables = (self.middle, self.usual, self.low, self.high)
        if {len(y) for y in tables} != {len(self.at)} or np.any(np.diff(self.at) <= 0):
            raise ValueError("the table of a law of cost does not hold together")
        if len(self.columns) != len(self.coefficients) or any(np.any(y < 0) for y in tables):
            raise ValueError("a law of cost has a coefficient too few, or a cost below zero")


def fit_cost(points: Sequence[Point], *, unit: str) -> CostLaw:
    """Fit the cost of a unit of work over x to the points of one place; always returns a law.

    points: of one place, of all runs, in any order. unit: name of the unit of work. Points without
    work or time are left out. Where the points tell nothing, ``refused`` of the law says why.
    """
    return _fit_law(tuple(points), unit)


@lru_cache(maxsize=1024)  # with and without what is held out, most places have the same points
def _fit_law(points: tuple[Point, ...], unit: str) -> CostLaw:
    from p3s.costs.posterior import measured_points, posterior, usable_points

    usable = usable_points(points)
    if not usable:
        return _nothing(points, unit)
    if len(usable) == 1:
        return _one_point(usable[0], unit)
    measured, runs = measured_points(usable)
    draws, best = posterior(measured)
    return _law(usable, measured, runs, draws, best, unit)


def _nothing(points: Sequence[Point], unit: str) -> CostLaw:
    if not points:
        why = "no run has measured it"
    elif not any(p.work > 0 for p in points):
        why = "no work was counted at any point"
    else:
        why = "no time was measured at any point"
    empty = np.zeros(0)
    return CostLaw(
        unit, CONSTANT, (), (), empty, empty, empty, empty, empty, (0.0, 0.0), refused=why
    )


def _one_point(point: Point, unit: str) -> CostLaw:
    """Return a constant law whose interval grows with the distance from the point."""
    u0 = float(np.log2(point.x))
    at = u0 + np.arange(-BELOW, ABOVE + 1.0)
    cost = point.cost
    usual = max(cost, point.typical_ns / point.work)
    half = 1.0 + ONE_POINT + ONE_POINT_EACH * np.abs(at - u0)
    return CostLaw(
        unit,
        CONSTANT,
        (Column("one"),),
        (cost,),
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


@lru_cache(maxsize=4)
def _uniform(number: int) -> np.ndarray:
    """Return the same uniform draws always: for what is not seen beyond the points, and a run."""
    return np.random.Generator(np.random.PCG64(20110712)).random((number, 10))


@lru_cache(maxsize=4)
def _normal(number: int) -> np.ndarray:
    """Return the same normal draws always: of what a further run differs by."""
    return np.array([NormalDist().inv_cdf(p) for p in _uniform(number)[:, 8].tolist()])


def unseen(number: int, at: np.ndarray, low: float, high: float) -> np.ndarray:
    """Return factors on the cost by steps that no point has shown: (number, len(at)).

    Going away from the points a step is met after an exponentially distributed distance, UNSEEN
    per doubling, and another one after it; it lowers the cost towards small x and raises it
    towards large x by a share between LOWEST and HIGHEST, all magnitudes as likely. Towards small
    x an overhead per iteration may show that was too small before.
    """
    random = _uniform(number)
    out = np.ones((number, len(at)))
    for side, (edge, sign) in enumerate(((low, -1.0), (high, 1.0))):
        beyond = np.maximum(sign * (at - edge), 0.0)
        distance = np.zeros(number)
        for step in range(2):
            first, second = random[:, 4 * side + 2 * step], random[:, 4 * side + 2 * step + 1]
            distance = distance - np.log(1.0 - first) / UNSEEN
            share = LOWEST * (HIGHEST / LOWEST) ** second
            seen = 0.5 + 0.5 * np.tanh((beyond - distance[:, None]) / (2 * UNSEEN_WIDTH))
            fall = 1.0 - share[:, None] * np.where(beyond > 0, seen, 0.0)
            out *= fall if sign < 0 else 1.0 / fall
    share = OVERHEAD_LEAST * (OVERHEAD_MOST / OVERHEAD_LEAST) ** (random[:, 9] / OVERHEAD)
    share = np.where(random[:, 9] < OVERHEAD, share, 0.0)
    return out * (1.0 + share[:, None] * (np.exp2(np.maximum(low - at, 0.0)) - 1.0))


def _law(
    points: Sequence[Point],
    measured: FitPoints,
    runs: Sequence[str],
    draws: Draws,
    best: Best,
    unit: str,
) -> CostLaw:
    low, high = float(measured.u.min()), float(measured.u.max())
    at = _knots(low, high)
    curves = draws.curves(at)
    middle = quantiles(curves, draws.weight, (0.5,))[0]
    # what points say at each knot: mostly those around
    near = np.exp(-0.5 * ((np.clip(at, low, high)[:, None] - measured.u) / NEAR) ** 2)
    factor = _usual(points, np.interp(measured.u, at, middle), measured.run, best.disturbed, near)
    # another run than the measured ones has an error of its own
    scale = near @ measured.scale / near.sum(axis=1)
    error = np.exp(_normal(len(curves))[:, None] * draws.error[:, None] * scale)
    spread = curves * unseen(len(curves), at, low, high) * error
    ends = quantiles(spread, draws.weight, ((1 - INSIDE) / 2, (1 + INSIDE) / 2)) * factor
    names = [
        f
        for f, w in sorted(best.families.items(), key=lambda f: -f[1])
        if f != best.family and w > RIVAL * max(best.families.values())
    ]
    return CostLaw(
        unit,
        best.family,
        best.columns,
        best.coefficient,
        at,
        middle,
        middle * factor,
        np.maximum(ends[0], 0.0),
        ends[1],
        (points[0].x, points[-1].x),
        tuple(names),
        tuple(runs[run] for run in best.disturbed),
    )


def _usual(
    points: Sequence[Point],
    least: np.ndarray,
    run: np.ndarray,
    disturbed: Sequence[int],
    near: np.ndarray,
) -> np.ndarray:
    """Return the typical cost over the least one: at least 1.

    least: the law's at the points; run: number of the run of each; near: how much each point
    (columns) counts at each knot. It is the median of the ratios of the points around, which are
    unlike each other: what waits for memory is slowed by other load more than what does not. Runs
    without repeats have a typical time only, which is as good here.
    """
    ratio = np.array([p.typical_ns / p.work for p in points]) / np.maximum(least, 1e-300)
    weight = near * np.where(np.isin(run, disturbed), 1e-6, 1.0)
    weight /= weight.sum(axis=1, keepdims=True)
    ratios = np.repeat(ratio[:, None], len(near), axis=1)
    return np.asarray(np.maximum(1.0, quantiles(ratios, weight.T, (0.5,))[0]))


#: Costs at the ends of the points that differ by less than this share are not told apart.
TELLING = 0.05


def text(law: CostLaw) -> str:
    """Return the law as one line: the cost in the middle of the points, and where it changes.

    Named are the steps inside the covered range, and the costs on either side of them.
    """
    if not law.columns:
        return f"unknown ({law.refused})"
    per = f"per {law.unit}"
    shape = list(zip(law.columns, law.coefficients, strict=True))
    low, high = law.covered
    steps = [
        2.0**c.first
        for c, height in shape
        if c.kind in ("step", "capacity") and height > 0 and low < 2.0**c.first < high
    ]
    powers = [(c, a) for c, a in shape if c.kind == "power"]
    if steps:
        edges = [low, *steps, high]
        between = [(a * b) ** 0.5 for a, b in zip(edges[1:-2], edges[2:-1], strict=True)]
        costs = law.cost(np.array([low, *between, high]))
        words = [f"{number(costs[0])} below {number(steps[0])} per iteration"]
        words += [
            f"{number(c)} up to {number(x)}" for c, x in zip(costs[1:-1], steps[1:], strict=True)
        ]
        words.append(f"{number(costs[-1])} above")
        return f"{number(float(law.cost((low * high) ** 0.5)))} ns {per} ({', '.join(words)})"
    if powers:
        level = sum(a for c, a in shape if c.kind == "one")
        parts = [number(level)] if level else []
        parts += [f"{number(_at_one(c, a))} x**{c.first:.3g}" for c, a in powers]
        return f"{' + '.join(parts)} ns {per}, x the work per iteration"
    first, middle, last = law.cost(np.array([low, (low * high) ** 0.5, high])).tolist()
    ends = (
        ""
        if abs(last - first) < TELLING * middle
        else (
            f" ({number(first)} at {number(low)} per iteration, {number(last)} at {number(high)})"
        )
    )
    return f"{number(middle)} ns {per}{ends}"


def _at_one(column: Column, coefficient: float) -> float:
    """Return the coefficient of x**exponent of a column that is one at 2**centre."""
    return float(coefficient * np.exp2(np.clip(-column.first * column.second, -900.0, 900.0)))


def number(value: float) -> str:
    """Return three digits of a number."""
    out = f"{value:.3g}"
    return out.replace("e+0", "e").replace("e+", "e").replace("e-0", "e-")
