"""How well designs explain the points: marginal likelihood, with what was disturbed given.

Errors are relative: a factor common to all points of a run, one of each point, and now and then a
run or a point that something disturbed and that is slower by far more (never faster: the least of
repeats is taken). A hypothesis names what was disturbed; under it everything is normal and linear,
with the size of the errors unknown (a prior from the repeats). Before that, measured points become
arrays: groups of ranks joined, with the errors to expect.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from math import isfinite, lgamma, log, log2

import numpy as np

from p3s.costs.families import Designs
from p3s.costs.points import Point, per_rank

#: Share of the variance that is common to a run; the rest is a point's own.
RUN_SHARE = 0.5
#: Prior of the relative error: as if PRIOR_DOF errors had been seen, of the size that the repeats
#: tell (KEPT of it is left in the least of them), at least LEAST_ERROR, ASSUMED where nothing was
#: repeated.
PRIOR_DOF, LEAST_ERROR, ASSUMED, KEPT = 4.0, 0.007, 0.015, 0.7
#: How often a run or a point is disturbed, by what typical amount (share of what is then seen).
DISTURBED, AMOUNT = 0.05, 0.12
#: Relative, of squares of columns: keeps those that are alike but for rounding apart.
ROUNDING = 1e-12
#: Prior of a coefficient h (share of the middle cost): 1/(h + SMALL) up to LARGE.
SMALL, LARGE = 0.04, 4.0


@dataclass(frozen=True)
class Measured:
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
class Scored:
    """Designs of k columns under one hypothesis: score (log weight), coefficients (designs, k),
    lower Cholesky factor of the precision (designs, k, k), sum of squares."""

    score: np.ndarray
    beta: np.ndarray
    factor: np.ndarray
    square: np.ndarray


def _precision(points: Measured, disturbed: tuple[int, ...]) -> tuple[np.ndarray, float]:
    """Return the inverse of the errors' covariance (in units of their common size squared), and
    the logarithm of its determinant."""
    runs = int(points.run.max()) + 1
    extra = (AMOUNT / points.error) ** 2
    common = np.full(runs, RUN_SHARE)
    own = (1.0 - RUN_SHARE) / points.weight
    for unit in disturbed:
        if unit < runs:
            common[unit] += extra
        else:
            own[unit - runs] += extra
    same = points.run[:, None] == points.run[None, :]
    covariance = np.where(same, common[points.run][:, None], 0.0) + np.diag(own)
    covariance *= points.scale[:, None] * points.scale[None, :]
    factor = np.linalg.inv(np.linalg.cholesky(covariance))
    return factor, 2.0 * float(np.log(np.diag(factor)).sum())


def score(
    points: Measured,
    found: Designs,
    table: np.ndarray,
    disturbed: tuple[int, ...],
    grid: float = 0.0,
) -> dict[int, Scored]:
    """Return the scores of all designs under one hypothesis, by the number of columns.

    table: the columns at the points, relative to the costs (points, columns). grid: relative error
    that the distance of the steps' places makes; errors count as no smaller.
    """
    factor, logdet = _precision(points, disturbed)
    a = np.ascontiguousarray((factor @ table).T)
    z = factor.sum(axis=1)
    right, total = a @ z, float(z @ z)
    ridge = (points.error / LARGE) ** 2
    out = {}
    for k, which in found.of.items():
        # designs of several columns begin with the constant; coefficients beyond the first are
        # known beforehand to be no more than LARGE
        columns = a[which]
        matrix = columns @ columns.transpose(0, 2, 1)
        matrix[:, range(k), range(k)] *= 1.0 + ROUNDING
        matrix[:, range(1, k), range(1, k)] += ridge
        b = right[which]
        low = np.linalg.cholesky(matrix)
        beta = np.linalg.solve(matrix, b[..., None])[..., 0]
        square = total + PRIOR_DOF * points.error**2 - (beta * b).sum(axis=1)
        square = np.maximum(square, PRIOR_DOF * points.error**2)
        worth = found.prior[k] + 0.5 * logdet + _worth(points, low, beta, square, grid)
        for unit in disturbed:
            worth += log(DISTURBED) + _above(points, table, which, beta, unit)
        out[k] = Scored(worth, beta, low, square)
    return out


def _worth(
    points: Measured, low: np.ndarray, beta: np.ndarray, square: np.ndarray, grid: float
) -> np.ndarray:
    """Return the logarithm of the marginal likelihood, up to what all designs share."""
    dof = len(points.u) + PRIOR_DOF
    size = np.maximum(square / dof, grid**2)
    worth: np.ndarray = -np.log(low[:, 0, 0]) + np.where(beta[:, 0] > 0, 0.0, -50.0)
    if grid > points.error:
        worth -= 0.5 * square / grid**2 + len(points.u) * log(grid)
    else:
        worth -= 0.5 * dof * np.log(size) - lgamma(0.5 * (dof - 1.0))
    variance = (np.linalg.inv(low) ** 2).sum(axis=1)  # the diagonal of the inverse of the precision
    for j in range(1, low.shape[1]):
        sd = np.sqrt(variance[:, j] * size)
        # what the prior of the coefficient holds of its likelihood, at most all
        share = 0.5 * np.log(2 * np.pi * size) - np.log(
            low[:, j, j] * (np.maximum(beta[:, j], sd) + SMALL) * log((LARGE + SMALL) / SMALL)
        )
        worth += np.minimum(share, 0.0) + _log_positive(beta[:, j] / sd)
    return worth


def _above(
    points: Measured, table: np.ndarray, which: np.ndarray, beta: np.ndarray, unit: int
) -> np.ndarray:
    """Return what it adds that a disturbed unit lies above the curve, as it should."""
    runs = int(points.run.max()) + 1
    of = points.run == unit if unit < runs else np.arange(len(points.u)) == unit - runs
    above = 1.0 - (beta * table[of].mean(axis=0)[which]).sum(axis=1)
    return np.asarray(np.minimum(0.7, _log_positive(above / points.error) + 0.7))


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
#: Groups of ranks of a run are joined where x differs by less than this many doublings; at most so
#: many are left of a run.
SAME, MOST_GROUPS = 0.07, 6


def usable_points(points: Sequence[Point]) -> list[Point]:
    """Return the points with work and time, by x; similar groups of ranks of a run are one."""
    good = sorted(
        (p for p in points if all(isfinite(v) and v > 0 for v in (p.work, p.least_ns, p.x))),
        key=lambda p: (p.source, p.traced, p.x, p.work, p.least_ns, p.typical_ns),
    )
    out: list[Point] = []
    for _, of in groupby(good, key=lambda p: (p.source, p.traced)):
        run = list(of)
        width = max(SAME, log2(run[-1].x / run[0].x) / MOST_GROUPS)
        start, group = run[0].x, [run[0]]
        for p in run[1:]:
            if log2(p.x / start) > width:
                out.append(_joined(group))
                start, group = p.x, []
            group.append(p)
        out.append(_joined(group))
    return sorted(out, key=lambda p: (p.x, p.source, p.traced))


def _joined(group: Sequence[Point]) -> Point:
    """Return the mean of groups of ranks, each weighing as its ranks."""
    if len(group) == 1:
        return group[0]
    group = [replace(p, ranks=max(p.ranks, 1)) for p in group]
    ranks = sum(p.ranks for p in group)
    out = per_rank(group, ranks, group[0].place)
    return replace(
        out,
        x=float(sum(p.x * p.ranks for p in group) / ranks),
        typical_ns=max(out.typical_ns, out.least_ns),
        spread=max(p.spread for p in group),
    )


def measured_points(points: Sequence[Point]) -> tuple[Measured, list[str]]:
    """Return usable points as arrays, and the names of the runs ("source@count")."""
    names = sorted({(p.source, p.traced) for p in points})
    number = {name: i for i, name in enumerate(names)}
    weight = np.array([min(8.0, max(1, p.ranks * p.repeats)) for p in points]) ** (1 / 3)
    u = np.log2([p.x for p in points])
    error, scale = _errors(points, u)
    measured = Measured(
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
