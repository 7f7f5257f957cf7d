"""T(q) = a q + b/q + c/sqrt(q): its fit and its turnover.

Source: Kazmina and Antonov, "Development of methods for predicting the scalability of applications
on supercomputer configurations", sections 3.2 and 4.1.
"""

from __future__ import annotations

import math

import numpy as np

from p3s.base.arrays import Floats


def design(q: Floats) -> Floats:
    """Return the columns q, 1/q and 1/sqrt(q)."""
    return np.column_stack([q, 1.0 / q, 1.0 / np.sqrt(q)])


def value(abc: Floats, q: Floats) -> Floats:
    """Return T(q) in seconds."""
    return np.asarray(design(q) @ abc)


def turnover(abc: Floats) -> float | None:
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
