"""How well designs explain the points: marginal likelihood, with what was disturbed given.

Errors are relative: a factor common to all points of a run, one of each point, and now and then a
run or a point that something disturbed and that is slower by far more (never faster: the least of
repeats is taken). A hypothesis names what was disturbed; under it everything is normal and linear,
with the size of the errors unknown (a prior from the repeats).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import lgamma, log

import numpy as np

from p3s.costs.families import Designs

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
