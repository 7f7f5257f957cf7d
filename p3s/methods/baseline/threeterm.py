"""T(q) = a q + b/q + c/sqrt(q): its fit by two methods, its derivatives, its turnover.

Source: Kazmina and Antonov, "Development of methods for predicting the scalability of applications
on supercomputer configurations", sections 3.2 and 4.1.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
#: Starts of the Levenberg-Marquardt search, as shares of the largest value of each term.
_STARTS = ((1.0, 1.0, 1.0), (1e-3, 1.0, 1e-3), (1e-3, 1e-3, 1.0), (1.0, 1.0, 1e-3))


def design(q: Array) -> Array:
    """Return the columns q, 1/q and 1/sqrt(q)."""
    return np.column_stack([q, 1.0 / q, 1.0 / np.sqrt(q)])


def by_nnls(q: Array, seconds: Array, weights: Array) -> Array:
    """Return a, b, c >= 0 of least weighted squares, by a non-negative least squares solver."""
    return nonnegative(design(q), seconds, weights)


def nonnegative(columns: Array, seconds: Array, weights: Array) -> Array:
    """Return non-negative coefficients of least weighted squares; columns are scaled before."""
    from scipy.optimize import nnls

    rows = columns * weights[:, None]
    scale = np.linalg.norm(rows, axis=0)
    scale[scale == 0] = 1.0
    size = float(np.linalg.norm(seconds * weights)) or 1.0
    found, _ = nnls(rows / scale, seconds * weights / size)
    return np.asarray(found * size / scale, dtype=np.float64)


def by_levenberg_marquardt(q: Array, seconds: Array, weights: Array) -> Array:
    """Return the same by Levenberg-Marquardt, the signs held by a = u^2, b = v^2, c = w^2.

    The best of several starts; where there are fewer points than coefficients, rows of zeros are
    added, which the algorithm needs and which change nothing.
    """
    from scipy.optimize import least_squares

    rows = design(q) * weights[:, None]
    scale = np.linalg.norm(rows, axis=0)
    rows = rows / scale
    size = float(np.linalg.norm(seconds * weights)) or 1.0
    wanted = seconds * weights / size
    short = max(0, 3 - len(q))
    rows = np.vstack([rows, np.zeros((short, 3))])
    wanted = np.concatenate([wanted, np.zeros(short)])

    def residual(root: Array) -> Array:
        return np.asarray(rows @ root**2 - wanted)

    def jacobian(root: Array) -> Array:
        return np.asarray(rows * (2.0 * root))

    best, least = np.zeros(3), math.inf
    for start in _STARTS:
        found = least_squares(
            residual,
            np.sqrt(start),
            jac=jacobian,
            method="lm",
            ftol=1e-15,
            xtol=1e-15,
            gtol=1e-15,
            max_nfev=2000,
        )
        if found.cost < least:
            best, least = found.x**2, float(found.cost)
    return np.asarray(best * size / scale, dtype=np.float64)


def value(abc: Array, q: Array) -> Array:
    """Return T(q) in seconds."""
    return np.asarray(design(q) @ abc)


def slope(abc: Array, q: Array) -> Array:
    """Return T'(q) = a - (2 b + c sqrt(q)) / (2 q^2)."""
    a, b, c = abc
    return np.asarray(a - (2 * b + c * np.sqrt(q)) / (2 * q**2))


def turnover(abc: Array) -> float | None:
    """Return q* where T is least, the root of 2 a s^4 - c s - 2 b = 0 with s = sqrt(q).

    None where the time never rises (a = 0) or never falls (b = c = 0).
    """
    a, b, c = (float(x) for x in abc)
    if a <= 0 or b + c <= 0:
        return None
    if c == 0:
        return math.sqrt(b / a)
    if b == 0:
        result: float | None = (c / (2 * a)) ** (2 / 3)
        return result
    from scipy.optimize import brentq

    # Each negative term alone would be overcome at these: together at no more than twice that.
    top = 2.0 * max((b / a) ** 0.25, (c / (2 * a)) ** (1 / 3))
    root = brentq(lambda s: 2 * a * s**4 - c * s - 2 * b, 0.0, top, xtol=1e-300, rtol=1e-14)
    return float(root) ** 2
