"""Which curves the points leave, each with its weight: designs x which runs were disturbed.

A design is a choice of columns (families.py), a hypothesis says which runs something disturbed.
The weight of both is their marginal likelihood (Hoeting et al., Bayesian Model Averaging, 1999),
which is how well each point is predicted from the others, so that needless columns cost. Equal
points give equal results: the draws are always the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from math import isfinite, lgamma, log

import numpy as np

from p3s.costs.families import MOST_COLUMNS, Column, Designs, designs, values
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
