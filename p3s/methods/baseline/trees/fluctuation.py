"""Tests of parameter instability: does a node's regression hold over all values of a variable?

Generalised M-fluctuation tests on the scores of the regression (Zeileis and Hornik 2007; model
based trees, Zeileis, Hothorn and Hornik 2008; A. Castellanos Carrazana, UAB 2014, section 4.4.4).
H0: the coefficients are the same for all rows (eq. 4.7, 4.8).

p-values of supLM are those of the supremum of a tied-down Bessel process: the largest
||B(t)||^2 / (t (1 - t)) for t in [pi, 1 - pi], B a Brownian bridge in k dimensions (Andrews,
Econometrica 61, 1993). With t / (1 - t) = e^u it becomes the squared radius of a stationary
Ornstein-Uhlenbeck process over a time of 2 ln((1 - pi) / pi). The probability that it stays below
x is a sum of exponentials: eigenvalues of w f'' + (k/2 - w) f' = -nu f, f(x/2) = 0, w half the
squared radius. They are found by Galerkin's method, in the form f = e^(w/2) g, whose matrices stay
well conditioned.
"""

from __future__ import annotations

import math
from collections.abc import Container, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np
from scipy.special import chdtrc, eval_jacobi, gammaln, roots_jacobi

from p3s.methods.baseline.trees.regress import Fit
from p3s.methods.baseline.trees.types import Array, Growing, Test

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


#: Residuals that are the last digits of the numbers say nothing.
_EXACT = 1e-12
#: p-values are corrected by a product up to it (the other formula loses digits there).
_SMALL = 0.01


def increments(fit: Fit, t: Array, w: Array) -> Array | None:
    """Return the decorrelated scores of the rows, (rows, kept); None where the fit is exact.

    psi = residual x, J = sum of w psi psi' / n, d = w J^(-1/2) psi / sqrt(n), n the sum of w. They
    sum to zero; their squares to k. Linear maps of the columns change no norm of their sums.
    """
    if not len(fit.kept):
        return None
    n, r = w.sum(), fit.residuals
    if float(np.sum(w * r**2)) <= _EXACT**2 * float(np.sum(w * t**2)):
        return None
    scores = r[:, None] * fit.q
    spread = (scores * w[:, None]).T @ scores / n
    values, vectors = np.linalg.eigh(spread)
    good = values > 1e-12 * values[-1]
    half = vectors[:, good] / np.sqrt(values[good])
    return np.asarray(w[:, None] * (scores @ half) / math.sqrt(n))


def supremum(d: Array, z: Array, w: Array, trim: float) -> tuple[float, int] | None:
    """Return supLM of a numeric variable: largest ||C(t)||^2 / (t (1 - t)), t in [trim, 1 - trim].

    C cumulates the scores by the values of ``z``, t the weights; both are seen between two values
    that differ: at how many points is returned, too. None where there is none.
    """
    order = np.argsort(z, kind="stable")
    ends = np.flatnonzero(np.diff(z[order]) > 0)
    t = (np.cumsum(w[order]) / w.sum())[ends]
    inside = (t >= trim - 1e-12) & (t <= 1 - trim + 1e-12)
    if not inside.any():
        return None
    t = t[inside]
    walk = np.cumsum(d[order], axis=0)[ends[inside]]
    return float(np.max(np.einsum("ij,ij->i", walk, walk) / (t * (1 - t)))), len(t)


def between_levels(d: Array, z: Array, w: Array) -> tuple[float, int] | None:
    """Return sum over levels of n / n_c ||sum of d||^2 and its degrees of freedom k (C - 1)."""
    _, which = np.unique(z, return_inverse=True)
    count = np.bincount(which, w)
    if len(count) < 2:
        return None
    sums = np.stack([np.bincount(which, d[:, j]) for j in range(d.shape[1])], axis=1)
    found = float(np.sum(np.einsum("ij,ij->i", sums, sums) / count) * w.sum())
    return found, d.shape[1] * (len(count) - 1)


def log_chi2(x: float, dof: int) -> float:
    """Return ln of the probability that chi-squared with ``dof`` is above ``x``."""
    p = float(chdtrc(dof, x))
    if p > 1e-290:
        return math.log(p)
    return (dof / 2 - 1) * math.log(x / 2) - x / 2 - float(gammaln(dof / 2))


def least_stable(
    d: Array, z: Array, names: Sequence[str], words: Container[str], w: Array, growing: Growing
) -> tuple[Test, int] | None:
    """Return the test with the least p-value of the variables ``z``, and how many were tested.

    p of a supremum is that over all of [trim, 1 - trim], or with ``growing.few_values`` that of the
    points at which it was seen, if that is less: chi-squared of each, added up. Both are bounds.
    None where the rows have one value of every variable.
    """
    kept, k = [], d.shape[1]
    suprema: list[tuple[Test, int]] = []
    trim = growing.trim(len(w), float(w.sum()))
    for name, column in zip(names, z.T, strict=True):
        if name in words:
            levels = between_levels(d, column, w)
            kept += [Test(name, levels[0], log_chi2(*levels))] if levels else []
        elif seen := supremum(d, column, w, trim):
            suprema.append((Test(name, seen[0], 0.0), seen[1]))
    tested = len(kept) + len(suprema)
    if suprema:  # of one distribution: only the largest needs its p
        largest = max((test for test, _ in suprema), key=lambda test: test.statistic)
        kept.append(replace(largest, log_p=log_p(largest.statistic, k, trim)))
    for test, points in suprema if growing.few_values else ():
        p = min(0.0, math.log(points) + log_chi2(test.statistic, k))
        kept.append(replace(test, log_p=p))
    return (min(kept, key=lambda test: test.log_p), tested) if tested else None


def corrected(log: float, tests: int) -> float:
    """Return ln of a p-value corrected for the number of tests (Bonferroni, as in R's party).

    min(1, m p) for p up to 0.01, else 1 - (1 - p)^m.
    """
    if log <= math.log(_SMALL):
        return min(0.0, log + math.log(tests))
    p = -math.expm1(tests * math.log1p(-math.exp(log))) if log < 0 else 1.0
    return math.log(p)
