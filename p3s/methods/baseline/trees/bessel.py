"""How large the supremum of a tied-down Bessel process gets: p-values of supLM tests.

The statistic is the largest ||B(t)||^2 / (t (1 - t)) for t in [pi, 1 - pi], B a Brownian bridge in
k dimensions (Andrews, Econometrica 61, 1993). With t / (1 - t) = e^u it becomes the squared radius
of a stationary Ornstein-Uhlenbeck process over a time of 2 ln((1 - pi) / pi). The probability that
it stays below x is a sum of exponentials: eigenvalues of w f'' + (k/2 - w) f' = -nu f, f(x/2) = 0,
w half the squared radius. They are found by Galerkin's method, in the form f = e^(w/2) g, whose
matrices stay well conditioned.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtrc, eval_jacobi, gammaln, roots_jacobi

Array = NDArray[np.float64]
#: Polynomials; with 30 the p-values of up to 40 dimensions have 1e-10.
_SIZE = 40
#: Below it a p-value is what its tail says: the sum has lost its digits, the tail is close.
_TAIL = 1e-8
#: What a walk's largest value falls short of the largest of its continuous path, in steps of one
#: standard deviation: -zeta(1/2) / sqrt(2 pi) (Siegmund; Chernoff 1965).
_SHORT = 0.5825971579390107


@lru_cache(maxsize=64)
def _basis(k: int) -> tuple[Array, Array, Array, Array]:
    """Return nodes in [0, 1], weights for u^(k/2 - 1) du, orthonormal (1-u) P_i, derivatives."""
    a = k / 2 - 1
    x, w = roots_jacobi(2 * _SIZE + 30, 0, a)
    u, w = (1 + x) / 2, w / 2 ** (a + 1)
    size = range(_SIZE)
    poly = np.array([eval_jacobi(i, 2, a, x) for i in size])
    slope = np.array([(i + a + 3) * eval_jacobi(i - 1, 3, a + 1, x) if i else 0 * x for i in size])
    value, change = (1 - u) * poly, (1 - u) * slope - poly
    norm = np.sqrt((w * value**2).sum(axis=1))[:, None]
    return u, w, value / norm, change / norm


def _inside(x: float, k: int, span: float) -> float:
    """Return the probability that the squared radius stays below ``x`` for a time ``span``."""
    u, w, value, change = _basis(k)
    b = x / 2
    rows = (change + b / 2 * value) * np.sqrt(w * u / b)
    nu, vectors = np.linalg.eigh(rows @ rows.T)
    share = vectors.T @ (value @ (w * np.exp(-b * u / 2)))
    scale = math.exp(k / 2 * math.log(b) - gammaln(k / 2))
    return scale * float(np.sum(share**2 * np.exp(-nu * span)))


def tail(x: float, k: int, pi: float) -> float:
    """Return ln p far out: p = x^(k/2) e^(-x/2) / (2^(k/2) Gamma(k/2)) ((1 - k/x) ln l + 2/x).

    l = ((1 - pi) / pi)^2 (DeLong 1981; Estrella, Econometric Theory 19, 2003). Never above 0.
    """
    span = 2 * math.log((1 - pi) / pi)
    factor = (1 - k / x) * span + 2 / x if x > 0 else 0.0
    if factor <= 0:
        return 0.0
    found = k / 2 * math.log(x / 2) - x / 2 - float(gammaln(k / 2)) + math.log(factor)
    return min(0.0, found)


def log_p(x: float, k: int, pi: float, steps: int | None = None) -> float:
    """Return ln p of a supLM statistic ``x`` of ``k`` parameters, trimmed by ``pi`` at both ends.

    ``steps``: the process is seen at this many equal steps of [0, 1] only, as in a simulation;
    the boundary moves outwards by 0.5826 standard deviations of a step.
    """
    if x <= 0:
        return 0.0
    if pi >= 0.5:  # one point: chi-squared
        p = float(chdtrc(k, x))
        return math.log(p) if p > 0 else tail(x, k, 0.4999)
    if steps is not None:
        x = _moved(x, pi, steps)
    far = tail(x, k, pi)
    if x > k and far < math.log(_TAIL):
        return far
    p = 1 - _inside(x, k, 2 * math.log((1 - pi) / pi))
    return math.log(min(1.0, p)) if p > _TAIL else far


def p_value(x: float, k: int, pi: float, steps: int | None = None) -> float:
    """Return p of a supLM statistic; see :func:`log_p`."""
    return math.exp(log_p(x, k, pi, steps))


def _moved(x: float, pi: float, steps: int) -> float:
    """Return the boundary of the continuous process that is passed as often as ``x`` by steps."""
    at = np.arange(round(pi * steps), round((1 - pi) * steps) + 1) / steps
    gaps = np.diff(np.log(at / (1 - at)))
    radius, out = math.sqrt(x), _SHORT * np.sqrt(gaps)
    share = np.sum(gaps * np.exp(-out * (radius + out / 2))) / gaps.sum()
    return radius**2 - 2 * math.log(share)
