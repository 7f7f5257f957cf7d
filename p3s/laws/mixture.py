"""Sums of typed terms for noisy measurements: all that fit, each with its weight."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from itertools import combinations
from math import exp, lgamma, log, pi
from statistics import NormalDist

import numpy as np

from p3s.laws.statistics import FLOAT_ERROR, quantiles

#: (power of n, power of log2 n) with the logarithm of the prior weight, common terms first:
#: computation, serial part, stages of collectives, linear costs, surfaces of 2-D and
#: 3-D blocks, work shared out over iterations that grow as the side of the grid.
SHAPES: tuple[tuple[Fraction, int, float], ...] = (
    (Fraction(-1), 0, 0.0),
    (Fraction(0), 0, 0.0),
    (Fraction(0), 1, -1.0),
    (Fraction(1), 0, -2.0),
    (Fraction(-1, 2), 0, -2.0),
    (Fraction(-2, 3), 0, -2.5),
    (Fraction(1, 2), 0, -3.0),
    (Fraction(-2), 0, -3.0),
    (Fraction(-1), 1, -3.0),
    (Fraction(-3, 2), 0, -3.0),
)
MAX_TERMS = 3
CONSTANT = 1

#: Prior of a term's share s of the value at the largest count: 1/(s + SHARE), so that small
#: terms are not ruled out before they are seen; each further term costs EACH_TERM.
SHARE, EACH_TERM = 0.1, -0.5
#: What a growing or surface term costs when there is no constant term: programs have overheads.
NO_CONSTANT = 2.0
#: Prior of the relative error: as if one of this size had been seen; the less the more repeats
#: there are to tell.
PRIOR_ERROR = 0.005
#: Standard errors below zero at which a coefficient is surely negative.
SURE = 3.0
#: Models that weigh less than the best by this factor are left out.
WINDOW = 20.0
#: Share of the mixture inside the interval; the share that holds the truth is measured
#: (benchmarks/laws.py).
INSIDE = 0.86
DRAWS = 256


def select_terms(parts: np.ndarray, error: np.ndarray | float) -> np.ndarray:
    """Return which terms of a law points can show: those that add more than its error somewhere.

    parts: (points, terms), what each term adds; error: what each point may be off by, both relative
    to the points. What is below that at all points is noise, however it fits.
    """
    limit = np.broadcast_to(np.maximum(error, FLOAT_ERROR), len(parts))
    return np.asarray((np.abs(parts) > limit[:, None]).any(axis=0))


@dataclass(frozen=True)
class Points:
    """Repeats reduced to means: n, mean, repeats per count; spread: sum of squared relative
    deviations of the repeats; total: number of values; known: what each mean may be off by beside
    its noise, relative."""

    n: np.ndarray
    mean: np.ndarray
    repeats: np.ndarray
    spread: float
    total: int
    known: np.ndarray

    @staticmethod
    def of(
        ns: Sequence[float], values: Sequence[float], resolution: Sequence[float] = ()
    ) -> Points:
        """Return the points of a list of (count, value) with repeats.

        resolution: what each value may be off by, in its unit; none is known without it.
        """
        y = np.asarray(values, dtype=float)
        n, which, k = np.unique(
            np.asarray(ns, dtype=float), return_inverse=True, return_counts=True
        )
        mean = np.bincount(which, y) / k
        size = np.maximum(mean, mean.max() * 1e-3)
        off = np.bincount(which, resolution) / k if len(resolution) else np.zeros(len(n))
        return Points(
            n, mean, k, float(np.sum(((y - mean[which]) / size[which]) ** 2)), len(y), off / size
        )

    @property
    def size(self) -> np.ndarray:
        """Return the values by which errors are relative; tiny ones count as a thousandth."""
        result: np.ndarray = np.maximum(self.mean, self.mean.max() * 1e-3)
        return result


def columns(n: np.ndarray, top: float) -> np.ndarray:
    """Return the shapes at counts ``n``, one column each, scaled to one at ``top``."""
    return _columns(tuple(np.asarray(n, dtype=float).tolist()), float(top))


@lru_cache(maxsize=512)
def _columns(n: tuple[float, ...], top: float) -> np.ndarray:
    x = np.array([*n, top])
    out = np.stack([x ** float(a) * np.log2(np.maximum(x, 1.0)) ** b for a, b, _ in SHAPES], axis=1)
    result: np.ndarray = out[:-1] / np.maximum(out[-1], 1e-300)
    return result


@dataclass(frozen=True)
class Fits:
    """Least squares of all models of k terms, one per row: their shapes, coefficients as shares of
    the value at the largest count, a factor of the inverse of the normal matrix, residuals,
    logarithm of the determinant of that factor and of the prior weight."""

    which: np.ndarray
    share: np.ndarray
    factor: np.ndarray
    residual: np.ndarray
    logdet: np.ndarray
    prior: np.ndarray


@lru_cache(maxsize=8)
def _subsets(k: int) -> tuple[np.ndarray, np.ndarray]:
    which = list(combinations(range(len(SHAPES)), k))
    return np.array(which, dtype=np.int64), np.array([prior(w) for w in which])


def fits(points: Points, most: int, error: np.ndarray | float = 1.0) -> list[Fits]:
    """Return the least-squares fits of all models of 1, 2, ... ``most`` terms; errors relative.

    error: of each point, relative; residuals are in units of it.
    """
    weight = np.sqrt(points.repeats) / (points.size * error)
    design = columns(points.n, float(points.n[-1])) * (points.size[-1] * weight)[:, None]
    z = points.mean * weight
    out = []
    for k in range(1, most + 1):
        which, before = _subsets(k)
        q, r = np.linalg.qr(design[:, which].transpose(1, 0, 2))
        diagonal = np.abs(np.einsum("ikk->ik", r))
        usable = diagonal.min(axis=1) > 1e-12
        if not usable.all():
            which, before, q, r, diagonal = (x[usable] for x in (which, before, q, r, diagonal))
        inverse = np.linalg.inv(r)
        share = (inverse @ (q.transpose(0, 2, 1) @ z)[..., None])[..., 0]
        fitted = (design[:, which].transpose(1, 0, 2) @ share[..., None])[..., 0]
        out.append(Fits(which, share, inverse, z - fitted, -np.log(diagonal).sum(axis=1), before))
    return out


def prior(which: tuple[int, ...]) -> float:
    """Return the logarithm of the prior weight of a model, without its coefficients."""
    odd = len(which) > 1 and CONSTANT not in which and any(i > CONSTANT for i in which)
    return (
        sum(SHAPES[i][2] for i in which)
        - EACH_TERM * (len(which) - 1)
        - (NO_CONSTANT if odd else 0.0)
    )


@lru_cache(maxsize=1)
def _draws() -> tuple[np.ndarray, np.ndarray]:
    """Return MAX_TERMS rows of quasi-random standard normal and one of uniform draws."""

    def halton(base: int) -> list[float]:
        out = []
        for i in range(1, DRAWS + 1):
            f, r = 1.0, 0.0
            while i:
                f /= base
                r += f * (i % base)
                i //= base
            out.append(r)
        return out

    normal = NormalDist()
    return np.array([[normal.inv_cdf(x) for x in halton(b)] for b in (2, 3, 5)]), np.array(
        halton(7)
    )


@lru_cache(maxsize=64)
def _error_factors(dof: float) -> np.ndarray:
    """Return draws of 1/sqrt(chi squared) with ``dof`` degrees of freedom."""
    log_x = np.linspace(-24.0, np.log(dof + 40.0 + 8.0 * dof**0.5), 2000)
    upto = np.cumsum(np.exp(dof / 2.0 * (log_x - np.log(dof)) - (np.exp(log_x) - dof) / 2.0))
    result: np.ndarray = np.exp(-0.5 * np.interp(_draws()[1], upto / upto[-1], log_x))
    return result


@dataclass(frozen=True)
class Model:
    """A model of the mixture: terms, least-squares shares (none negative), its weight, draws
    of the shares with weights that sum to one, and the relative error of a value."""

    which: tuple[int, ...]
    share: np.ndarray
    weight: float
    error: float
    draws: np.ndarray
    draw_weight: np.ndarray


def mixture(points: Points) -> list[Model]:
    """Return the models that are not clearly worse than the best, best first.

    Weights sum to one. Fewer terms than distinct counts, at most MAX_TERMS. None where models with
    a term that may be below zero alone are clearly better than all others.
    """
    most = max(1, min(MAX_TERMS, len(points.n) - 1))
    found = [model for f in fits(points, most) for model in _models(f, points)]
    best = max((m.weight for m in found), default=0.0)
    found = [m for m in found if m.weight > best - log(WINDOW) and m.draw_weight.any()]
    weights = [exp(m.weight - best) for m in found]
    kept = [replace(m, weight=w / sum(weights)) for m, w in zip(found, weights, strict=True)]
    return sorted(kept, key=lambda m: (-m.weight, m.which))


def _models(f: Fits, points: Points) -> Iterator[Model]:
    """Yield the models of so many terms, each with the logarithm of its weight.

    Coefficients are drawn as the points leave them open; draws below zero weigh nothing. A model
    without others has the weight of these, but none of its draws has one; a model with a term that
    is surely below zero is none.
    """
    k = f.which.shape[1]
    assumed = 1.0 / (1 + points.total - len(points.n))
    dof = points.total - k + assumed
    square = points.spread + (f.residual**2).sum(axis=1) + assumed * PRIOR_ERROR**2
    likely = f.logdet - dof / 2 * np.log(pi * square) + lgamma(dof / 2) + f.prior
    normal = _draws()[0][:k] * _error_factors(dof)
    spread = (f.factor @ normal).transpose(0, 2, 1) * np.sqrt(square)[:, None, None]
    draws = f.share[:, None, :] + spread
    weight = 1.0 / np.prod((np.abs(draws) + SHARE) * log(1.0 + 1.0 / SHARE), axis=2)
    there = weight * (draws.min(axis=2) >= 0)
    total = np.where(there.any(axis=1), there.sum(axis=1), weight.sum(axis=1))
    sure = f.share < -SURE * np.sqrt((f.factor**2).sum(axis=2) * (square / dof)[:, None])
    for i in np.flatnonzero(~sure.any(axis=1)).tolist():
        share, error = np.maximum(f.share[i], 0.0), float(np.sqrt(square[i] / dof))
        level = float(likely[i] + log(total[i] / DRAWS))
        yield Model(tuple(f.which[i].tolist()), share, level, error, draws[i], there[i] / total[i])


def choose_model(models: Sequence[Model], points: Points) -> Model:
    """Return the likeliest model, without the terms that are below what the points can show."""
    model = models[0]
    parts = (
        columns(points.n, float(points.n[-1]))[:, list(model.which)]
        * model.share
        * (points.size[-1] / points.size)[:, None]
    )
    kept = select_terms(parts, np.maximum(model.error / np.sqrt(points.repeats), points.known))
    if kept.all() or not kept.any():
        return model
    which = tuple(w for w, k in zip(model.which, kept.tolist(), strict=True) if k)
    return next(
        (m for m in models if m.which == which),
        replace(model, which=which, share=model.share[kept]),
    )


def interval(models: Sequence[Model], points: Points, n: np.ndarray) -> np.ndarray:
    """Return the shortest interval with INSIDE of the mixture at every count: (low, high) rows."""
    values, weight = _values(models, columns(n, float(points.n[-1])))
    below = np.linspace(0.001, 0.999 - INSIDE, 50)
    both = quantiles(values, weight, np.concatenate([below, below + INSIDE]))
    low, high = both[: len(below)], both[len(below) :]
    shortest = np.argmin(high - low, axis=0)[None, :]
    ends = [np.take_along_axis(side, shortest, axis=0)[0] for side in (low, high)]
    return np.asarray(np.stack(ends, axis=1) * points.size[-1])


def _values(models: Sequence[Model], at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the draws of all models at the rows of shapes ``at``, and their weights."""
    return (
        np.concatenate([m.draws @ at[:, list(m.which)].T for m in models]),
        np.concatenate([m.draw_weight * m.weight for m in models]),
    )
