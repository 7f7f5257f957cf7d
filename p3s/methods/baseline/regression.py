"""Columns of linear regressions over counts and inputs, and their least squares.

Sources: Barnes et al., "A regression-based approach to scalability prediction", section 2.1, as
Kazmina and Antonov give it; their own model with the times of all small runs as inputs, which they
reject (section 4.2); restricted cubic splines of the logarithm of the count, linear beyond the
outer knots (Lee et al., section 2; Harrell's basis, knots at quantiles).
"""

from __future__ import annotations

import numpy as np

from p3s.base.arrays import Floats
from p3s.base.errors import P3SError


def solve(columns: Floats, target: Floats, weights: Floats, family_name: str) -> Floats:
    """Return least-squares coefficients; P3SError, naming rank and points, if not determined."""
    coefficients, rank = least_norm(columns * weights[:, None], target * weights)
    if rank < columns.shape[1]:
        raise P3SError(
            f"{family_name}: {columns.shape[1]} coefficients cannot be told from {len(target)} run"
            f" times of rank {rank}: such a model only repeats what it was given; take fewer"
            " inputs, or a family with fewer coefficients"
        )
    return coefficients


def least_norm(rows: Floats, target: Floats) -> tuple[Floats, int]:
    """Return the least-squares solution of least norm of scaled columns, and the rank."""
    scale = np.linalg.norm(rows, axis=0)
    scale[scale == 0] = 1.0
    solution, _, rank, _ = np.linalg.lstsq(rows / scale, target, rcond=1e-9)
    return np.asarray(solution / scale, dtype=np.float64), int(rank)


def shares(q: Floats) -> Floats:
    """Return the columns 1 and 1/q."""
    return np.column_stack([np.ones_like(q), 1.0 / q])


def logarithms(q: Floats, x: Floats, degree: int) -> Floats:
    """Return powers of log2 q up to a degree, and the logarithms of the inputs."""
    if (x <= 0).any():
        raise P3SError("barnes: an input is zero or negative, so it has no logarithm; leave it out")
    log = np.log2(q)
    return np.column_stack([*(log**power for power in range(degree + 1)), np.log2(x)])


#: Knots of Harrell's basis, by their number.
_QUANTILES = {3: (0.1, 0.5, 0.9), 4: (0.05, 0.35, 0.65, 0.95), 5: (0.05, 0.275, 0.5, 0.725, 0.95)}


def knots_of(q: Floats) -> Floats:
    """Return three to five knots at quantiles of the distinct logarithms; more of more counts."""
    distinct = np.unique(np.log2(q))
    number = 3 if len(distinct) < 8 else 4 if len(distinct) < 16 else 5
    return np.asarray(np.quantile(distinct, _QUANTILES[number]))


def splines(q: Floats, x: Floats, knots: Floats) -> Floats:
    """Return a constant, the spline of log2 q, the logarithms of the inputs, and these times it."""
    log, log_inputs = np.log2(q), np.log2(x)
    last, before = knots[-1], knots[-2]
    bent = [
        _cube(log - knot)
        - _cube(log - before) * (last - knot) / (last - before)
        + _cube(log - last) * (before - knot) / (last - before)
        for knot in knots[:-2]
    ]
    bent = [column / (last - knots[0]) ** 2 for column in bent]
    # y = b0 + b1 x1 + b2 x2 + b3 x1 x2: the count with every input.
    return np.column_stack([np.ones_like(log), log, *bent, log_inputs, log_inputs * log[:, None]])


def _cube(x: Floats) -> Floats:
    return np.maximum(x, 0.0) ** 3
