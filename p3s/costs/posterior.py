"""Which curves of cost over the working set the points leave, each with its weight.

The shapes are what a machine's memory makes of the cost of a unit of work. Every curve is a sum of
columns with coefficients that are not negative: one, steps that rise by one (logistic in log2 x, or
"capacity": what misses a cache that holds a part of randomly accessed data, 1 - size/x), powers of
x, what fixed overheads per iteration add. A design is the choice of one to three columns. x is the
work of a rank per iteration of the phase (thesis, chapter 6: with more processes the same code
finds its data in a faster memory); u = log2 x.

A hypothesis says which runs something disturbed. The weight of a design and a hypothesis is their
marginal likelihood (Hoeting et al., Bayesian Model Averaging, 1999), which is how well each point
is predicted from the others, so that needless columns cost. Equal points give equal results: the
draws are always the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from math import isfinite, lgamma, log
from typing import Literal, NamedTuple

import numpy as np

from p3s.costs.points import Point, thin_points

#: Share of the variance that is common to a run; the rest is a point's own.
RUN_SHARE = 0.5
#: Prior of the relative error: as if PRIOR_DOF errors had been seen, of the size that the repeats
#: tell (KEPT of it is left in the least of them), at least LEAST_ERROR, ASSUMED where nothing was
#: repeated.
PRIOR_DOF, LEAST_ERROR, ASSUMED, KEPT = 4.0, 0.007, 0.015, 0.7
#: How often a run is disturbed, by what typical amount (share of what is then seen).
DISTURBED, AMOUNT = 0.05, 0.12
#: Relative, of squares of columns: keeps those that are alike but for rounding apart.
ROUNDING = 1e-12
#: Prior of a coefficient h (share of the middle cost): 1/(h + SMALL) up to LARGE.
SMALL, LARGE = 0.04, 4.0


@dataclass(frozen=True)
class FitPoints:
    """Points ready to fit: u = log2 x, cost (positive), run: number of the run of each point,
    weight: moderate weight of each (mean 1), error: expected relative error of a point, scale: by
    how much that of each point differs from it."""

    u: np.ndarray
    cost: np.ndarray
    run: np.ndarray
    weight: np.ndarray
    error: float
    scale: np.ndarray


@dataclass(frozen=True)
class DesignScores:
    """Designs under one hypothesis: score (log weight), coefficients (designs, columns), lower
    Cholesky factor of the precision (designs, columns, columns), sum of squares."""

    score: np.ndarray
    beta: np.ndarray
    factor: np.ndarray
    square: np.ndarray


def _precision(points: FitPoints, disturbed: tuple[int, ...]) -> tuple[np.ndarray, float]:
    """Return the inverse of the errors' covariance (in units of their common size squared), and
    the logarithm of its determinant."""
    common = np.full(int(points.run.max()) + 1, RUN_SHARE)
    common[list(disturbed)] += (AMOUNT / points.error) ** 2
    same = points.run[:, None] == points.run[None, :]
    own = np.diag((1.0 - RUN_SHARE) / points.weight)
    covariance = np.where(same, common[points.run][:, None], 0.0) + own
    covariance *= points.scale[:, None] * points.scale[None, :]
    factor = np.linalg.inv(np.linalg.cholesky(covariance))
    return factor, 2.0 * float(np.log(np.diag(factor)).sum())


def score(
    points: FitPoints, found: Designs, table: np.ndarray, disturbed: tuple[int, ...]
) -> DesignScores:
    """Return the scores of all designs under one hypothesis: the runs that were disturbed.

    table: the columns at the points, relative to the costs (points, columns). A column that a
    design does not use has coefficient 0.
    """
    factor, logdet = _precision(points, disturbed)
    a = np.ascontiguousarray((factor @ table).T)
    z = factor.sum(axis=1)
    columns = a[found.which] * found.used[..., None]
    matrix = columns @ columns.transpose(0, 2, 1)
    # designs of several columns begin with the constant; coefficients beyond the first are
    # known beforehand to be no more than LARGE
    ridge = np.where(np.arange(MOST_COLUMNS) > 0, (points.error / LARGE) ** 2, 0.0)
    place = range(MOST_COLUMNS)
    square = matrix[:, place, place] * (1.0 + ROUNDING) + ridge
    matrix[:, place, place] = np.where(found.used, square, 1.0)
    b = (a @ z)[found.which] * found.used
    low = np.linalg.cholesky(matrix)
    beta = np.linalg.solve(matrix, b[..., None])[..., 0]
    assumed = PRIOR_DOF * points.error**2
    rest = np.maximum(float(z @ z) + assumed - (beta * b).sum(axis=1), assumed)
    worth = found.prior + 0.5 * logdet + _worth(points, found.used, low, beta, rest)
    for run in disturbed:
        # a disturbed run lies above the curve, as it should
        expected = (beta * table[points.run == run].mean(axis=0)[found.which]).sum(axis=1)
        above = _log_positive((1.0 - expected) / points.error) + 0.7
        worth += log(DISTURBED) + np.minimum(0.7, above)
    return DesignScores(worth, beta, low, rest)


def _worth(
    points: FitPoints, used: np.ndarray, low: np.ndarray, beta: np.ndarray, square: np.ndarray
) -> np.ndarray:
    """Return the logarithm of the marginal likelihood, up to what all designs share."""
    dof = len(points.u) + PRIOR_DOF
    size = square / dof
    worth: np.ndarray = -np.log(low[:, 0, 0]) + np.where(beta[:, 0] > 0, 0.0, -50.0)
    worth -= 0.5 * dof * np.log(size) - lgamma(0.5 * (dof - 1.0))
    variance = (np.linalg.inv(low) ** 2).sum(axis=1)  # the diagonal of the inverse of the precision
    for j in range(1, MOST_COLUMNS):
        sd = np.sqrt(variance[:, j] * size)
        # what the prior of the coefficient holds of its likelihood, at most all
        share = 0.5 * np.log(2 * np.pi * size) - np.log(
            low[:, j, j] * (np.maximum(beta[:, j], sd) + SMALL) * log((LARGE + SMALL) / SMALL)
        )
        worth += used[:, j] * (np.minimum(share, 0.0) + _log_positive(beta[:, j] / sd))
    return worth


def _log_positive(t: np.ndarray) -> np.ndarray:
    """Return about log of the share of a normal distribution around ``t`` above zero."""
    below = np.minimum(t, 0.0)
    result: np.ndarray = np.where(
        t > 0,
        -0.69 * np.exp(-1.2 * np.maximum(t, 0.0)),
        -0.69 - 0.5 * below * below - np.log1p(-below),
    )
    return result


#: How many repeats the error common to all points counts as, against those of similar x.
LOCAL = 6.0


def usable_points(points: Sequence[Point]) -> list[Point]:
    """Return the points with work and time, by x; similar groups of ranks of a run are one."""
    good = sorted(
        (p for p in points if all(isfinite(v) and v > 0 for v in (p.work, p.least_ns, p.x))),
        key=lambda p: (p.source, p.traced, p.x, p.work, p.least_ns, p.typical_ns),
    )
    return sorted(thin_points(good), key=lambda p: (p.x, p.source, p.traced))


def measured_points(points: Sequence[Point]) -> tuple[FitPoints, list[str]]:
    """Return usable points as arrays, and the names of the runs ("source@count")."""
    names = sorted({(p.source, p.traced) for p in points})
    number = {name: i for i, name in enumerate(names)}
    weight = np.array([min(8.0, max(1, p.ranks * p.repeats)) for p in points]) ** (1 / 3)
    u = np.log2([p.x for p in points])
    error, scale = _errors(points, u)
    measured = FitPoints(
        u,
        np.array([p.cost for p in points]),
        np.array([number[p.source, p.traced] for p in points]),
        weight / weight.mean(),
        error,
        scale,
    )
    return measured, [f"{source}@{traced}" for source, traced in names]


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


#: How many disturbed runs at most, and how many of them are thought of.
MOST_DISTURBED, CANDIDATES = 2, 4
#: Kept: pairs of design and hypothesis within this factor of the best.
WINDOW = 1000.0
DRAWS = 500


@dataclass(frozen=True)
class Draws:
    """Draws of curves: coefficient (draws, columns) of the columns ``which``, 0 for unused ones,
    weight (sums to one), error: the relative size of errors in each draw."""

    columns: list[Column]
    which: np.ndarray
    coefficient: np.ndarray
    weight: np.ndarray
    error: np.ndarray

    def curves(self, u: np.ndarray) -> np.ndarray:
        """Return the cost of every draw at ``u``: (draws, points)."""
        table = values(self.columns, u).T
        result: np.ndarray = np.einsum("dk,dkp->dp", self.coefficient, table[self.which])
        return result


@dataclass(frozen=True)
class Best:
    """The likeliest design: family, columns, coefficients; what was disturbed; families' shares."""

    family: str
    columns: tuple[Column, ...]
    coefficient: tuple[float, ...]
    disturbed: tuple[int, ...]
    families: dict[str, float]


#: Which runs were disturbed, and the scores under that.
_Hypothesis = tuple[tuple[int, ...], DesignScores]


def posterior(points: FitPoints) -> tuple[Draws, Best]:
    """Return draws of the curves that the points leave, and the likeliest of them."""
    middle = float(np.median(points.cost))
    found = designs(points.u, np.log2(points.cost))
    table = values(found.columns, points.u) * (middle / points.cost)[:, None]
    return _draw_curves(points, found, _hypotheses(points, found, table), middle)


def _hypotheses(points: FitPoints, found: Designs, table: np.ndarray) -> list[_Hypothesis]:
    """Score all designs with no run disturbed, with one, and with the likeliest two.

    Which are likely is found with the designs of few columns.
    """
    most = min(MOST_DISTURBED, (len(points.u) - 1) // 2)
    few = found.some(~found.used[:, -1])

    def likeliest(some: Iterable[tuple[int, ...]], number: int) -> list[tuple[int, ...]]:
        worth = {h: float(score(points, few, table, h).score.max()) for h in some}
        return sorted(worth, key=lambda h: (-worth[h], h))[:number]

    runs = range(int(points.run.max()) + 1) if most else ()
    alone = likeliest(((run,) for run in runs), CANDIDATES)
    of = sorted(run for (run,) in alone)
    several = likeliest(combinations(of, 2), 1) if most > 1 else []
    tried = ((), *alone, *several)
    return [(h, score(points, found, table, h)) for h in tried]


@lru_cache(maxsize=4)
def _random(number: int) -> np.ndarray:
    """Return the same normal draws always: (number, 5)."""
    return np.random.Generator(np.random.PCG64(20110711)).standard_normal((number, 5))


def _draw_curves(
    points: FitPoints, found: Designs, tried: Sequence[_Hypothesis], middle: float
) -> tuple[Draws, Best]:
    """Draw curves from all designs and hypotheses, each as often as it weighs."""
    total = np.stack([scored.score for _, scored in tried])
    weight = np.exp(total - total.max())
    weight[weight < 1.0 / WINDOW] = 0.0
    weight /= weight.sum()
    picks = np.searchsorted(np.cumsum(weight), (np.arange(DRAWS) + 0.5) / DRAWS)
    at = np.unravel_index(picks.clip(0, total.size - 1), total.shape)
    beta, factor, square = (
        np.stack([getattr(scored, name) for _, scored in tried])[at]
        for name in ("beta", "factor", "square")
    )
    dof = len(points.u) + PRIOR_DOF
    normal = _random(DRAWS)
    # sums of squares of errors, by the cube-root approximation (Wilson and Hilferty)
    chi = dof * np.maximum(1 - 2 / (9 * dof) + normal[:, 4] * np.sqrt(2 / (9 * dof)), 0.1) ** 3
    error = np.sqrt(square / chi)
    scatter = (normal[:, :MOST_COLUMNS] * error[:, None])[..., None]
    away = np.linalg.solve(factor.transpose(0, 2, 1), scatter)[..., 0]
    # where a coefficient comes out negative, its mirror image around zero
    coefficient = np.where(found.used[at[1]], np.abs(beta + away), 0.0)
    ratio = (np.maximum(beta, 0.0) + SMALL) / (coefficient + SMALL)
    importance = np.clip(np.prod(ratio[:, 1:], axis=1), 0.2, 5.0)
    names = np.unique(found.family)
    shares = {str(f): share for f in names if (share := float(weight[:, found.family == f].sum()))}
    # the likeliest design of the family that weighs most in all
    family = max(shares, key=lambda name: shares[name])
    worth = np.where(found.family == family, total, -np.inf)
    h, k = divmod(int(np.argmax(worth)), total.shape[1])
    used = found.used[k]
    best = Best(
        family,
        tuple(found.columns[c] for c in found.which[k][used]),
        tuple(max(0.0, float(b)) * middle for b in tried[h][1].beta[k][used]),
        tried[h][0],
        shares,
    )
    return Draws(
        found.columns,
        found.which[at[1]],
        coefficient * middle,
        importance / importance.sum(),
        error,
    ), best


#: Families with the logarithm of their prior weight, simplest first.
CONSTANT, OVERHEAD, POWER, STEP, TWO_STEPS = "constant", "overhead", "power", "step", "two steps"
PRIOR = {
    CONSTANT: log(0.27),
    OVERHEAD: log(0.10),
    POWER: log(0.07),
    STEP: log(0.30),
    TWO_STEPS: log(0.13),
}
MOST_COLUMNS = 3
#: Widths of steps in doublings of x (a logistic rises from 12 % to 88 % over four of them).
#: Width 0 stands for a capacity. Two steps have any two of the second, and fewer places.
WIDTHS = (*(0.12 * 1.2**k for k in range(15)), 0.0)
PAIR_WIDTHS, PAIR_EACH = (0.2, 0.65, 0.0), 2
#: Exponents of pure powers: how many around the slope of the points, apart by how much between the
#: first and last point, and the width of the range in which all are as likely beforehand.
POWERS, POWER_EACH, POWER_RANGE = 33, 0.006, 1.2
#: Exponents of what overheads add to a constant: per iteration, per surface.
OVERHEADS = (-1.0, -0.5)
#: Locations of steps: distance between them in doublings, how far outside the points they may be.
EACH, BEYOND, MOST_LOCATIONS = 0.2, 1.0, 60
#: Two steps are at least so many doublings apart; a step's column varies at least so much.
APART, VARIES = 1.2, 0.04
#: Largest power of two a power of x is taken to: keeps every value finite.
MOST_LOG2 = 400.0


class Column(NamedTuple):
    """One column, as a row: its kind, location and width or exponent and centre in log2 x."""

    kind: Literal["one", "step", "capacity", "power"]
    first: float = 0.0
    second: float = 0.0


def values(columns: Sequence[Column], u: np.ndarray) -> np.ndarray:
    """Return the columns at ``u``: an array of one more dimension, the columns last."""
    u = np.asarray(u, dtype=float)[..., None]
    step = np.array([c.kind == "step" for c in columns])
    first = np.array([c.first for c in columns])
    second = np.array([c.second for c in columns])
    out = np.ones((*u.shape[:-1], len(columns)))
    if step.any():
        out[..., step] = 0.5 + 0.5 * np.tanh((u - first[step]) / (2.0 * second[step]))
    capacity = np.array([c.kind == "capacity" for c in columns])
    if capacity.any():
        out[..., capacity] = 1.0 - np.exp2(np.minimum(first[capacity] - u, 0.0))
    power = np.array([c.kind == "power" for c in columns])
    if power.any():
        exponent = first[power] * (u - second[power])
        out[..., power] = np.exp2(np.clip(exponent, -MOST_LOG2, MOST_LOG2))
    return out


@dataclass(frozen=True)
class Designs:
    """Columns at hand and the designs made of them, one in each row.

    which, used: (designs, MOST_COLUMNS), numbers of columns, and which of these count; family: the
    name of each design; prior: logarithm of the prior weight of each.
    """

    columns: list[Column]
    which: np.ndarray
    used: np.ndarray
    family: np.ndarray
    prior: np.ndarray

    def some(self, kept: np.ndarray) -> Designs:
        """Return the designs that a mask keeps."""
        return Designs(
            self.columns, self.which[kept], self.used[kept], self.family[kept], self.prior[kept]
        )


def designs(u: np.ndarray, v: np.ndarray) -> Designs:
    """Return the designs that points at ``u`` = log2 x and ``v`` = log2 cost can tell apart."""
    low, high = float(u.min()), float(u.max())
    columns = [Column("one")]
    of: dict[str, list[tuple[int, ...]]] = {CONSTANT: [(0,)]}
    weight: dict[str, float] = {}
    if high - low > 0.05 and len(np.unique(np.round(u, 2))) > 1:

        def added(more: Sequence[Column]) -> range:
            columns.extend(more)
            return range(len(columns) - len(more), len(columns))

        mid, each = (low + high) / 2, POWER_EACH / (high - low)
        weight[POWER] = log(min(1.0, each / POWER_RANGE))
        exponents = _slope(u, v) + each * (np.arange(POWERS) - POWERS // 2)
        of[POWER] = [(i,) for i in added([Column("power", float(p), mid) for p in exponents])]
        of[OVERHEAD] = [(0, i) for i in added([Column("power", p, low) for p in OVERHEADS])]
        of[STEP] = [(0, i) for i in added(_steps(u, low, high, WIDTHS, 1))]
        if len(np.unique(np.round(u, 1))) > 3:  # as many columns as points meet any of them
            pairs = added(_steps(u, low, high, PAIR_WIDTHS, PAIR_EACH))
            of[TWO_STEPS] = [
                (0, i, j)
                for i in pairs
                for j in pairs
                if columns[j].first - columns[i].first >= APART
            ]
    return _designs(columns, {name: some for name, some in of.items() if some}, weight)


def _slope(u: np.ndarray, v: np.ndarray) -> float:
    """Return the median slope of all pairs of points (Theil and Sen's)."""
    i, j = np.triu_indices(len(u), 1)
    apart = np.abs(u[i] - u[j]) > 0.02
    return float(np.median((v[i] - v[j])[apart] / (u[i] - u[j])[apart])) if apart.any() else 0.0


def _steps(
    u: np.ndarray, low: float, high: float, widths: Sequence[float], every: int
) -> list[Column]:
    """Return the steps that change between the points."""
    count = int(min(MOST_LOCATIONS, (high - low + 2 * BEYOND) / EACH + 1)) // every
    where = np.linspace(low - BEYOND, high + BEYOND, max(count, 4))
    found = [Column("step" if w else "capacity", float(at), w) for w in widths for at in where]
    table = values(found, np.sort(u))
    varies = table[-1] - table[0] > VARIES
    # between two neighbouring points all narrow steps are the same to the points; all are kept,
    # because the predictions between them differ
    return [c for c, v in zip(found, varies, strict=True) if v]


def _designs(
    columns: list[Column], of: dict[str, list[tuple[int, ...]]], weight: dict[str, float]
) -> Designs:
    """Return designs by family; a family's weight is shared out equally, or as given."""
    rows = [row for some in of.values() for row in some]
    family = np.repeat(list(of), [len(some) for some in of.values()])
    each = {name: PRIOR[name] + weight.get(name, -log(len(some))) for name, some in of.items()}
    total = np.logaddexp.reduce([PRIOR[name] for name in of])
    place = np.arange(MOST_COLUMNS)
    used = place < np.array([len(row) for row in rows])[:, None]
    which = np.zeros(used.shape, dtype=np.int64)
    which[used] = [i for row in rows for i in row]
    return Designs(columns, which, used, family, np.array([each[f] for f in family]) - total)
