"""Sums of typed terms for noisy measurements: all that fit, each with its weight."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from itertools import combinations
from math import lgamma, log, pi
from statistics import NormalDist

import numpy as np

from p3s.laws.statistics import FAR, FLOAT_ERROR, quantiles

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
#: Prior of the relative error: as if PRIOR_DOF errors of size PRIOR_ERROR had been seen; the less
#: the more repeats there are to tell.
PRIOR_DOF, PRIOR_ERROR = 1.0, 0.005
#: Models that weigh less than the best by this factor are left out; if they are the best with a
#: term more, by the second one, by the third one where no repeats tell the size of the error.
WINDOW, WINDOW_LARGER, WINDOW_SINGLE = 1e3, 6.0, 50.0
#: Least weight, relative to the best, of the best model with a constant: a serial part too small
#: to be seen may still be there.
UNSEEN_CONSTANT = 1.5
#: Share of the mixture inside the interval. Below 0.9 because models that are kept out of
#: caution widen it: the share that holds the truth is measured (benchmarks/laws.py).
INSIDE = 0.87
DRAWS, MAX_MODELS = 256, 16
#: How well the law has to agree with the mixture at FAR times the largest count.
MIDDLE = 0.8


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

    Weights sum to one. Fewer terms than distinct counts, at most MAX_TERMS.
    """
    most = max(1, min(MAX_TERMS, len(points.n) - 1))
    assumed = PRIOR_DOF / (1 + points.total - len(points.n))
    ranked: list[tuple[float, tuple[int, ...], float, float, float, np.ndarray, np.ndarray]] = []
    for f in fits(points, most):
        k = f.which.shape[1]
        dof = points.total - k + assumed
        square = points.spread + (f.residual**2).sum(axis=1) + assumed * PRIOR_ERROR**2
        error = np.sqrt((f.factor**2).sum(axis=2) * (square / dof)[:, None])
        t = f.share / np.maximum(error, 1e-300)
        likely = f.logdet - dof / 2 * np.log(pi * square) + lgamma(dof / 2) + f.prior
        guess = likely - (
            np.where(t < 0, t * t / 2 + 0.7, 0.0) + np.log(np.maximum(f.share, error) + SHARE)
        ).sum(axis=1)
        guess[np.any(t < -3.0, axis=1)] = -np.inf
        ranked += [
            (
                -float(guess[i]),
                tuple(f.which[i].tolist()),
                float(likely[i]),
                float(square[i]),
                dof,
                f.share[i],
                f.factor[i],
            )
            for i in np.argsort(-guess, kind="stable")[:MAX_MODELS]
            if np.isfinite(guess[i])
        ]
    ranked.sort(key=lambda c: c[:2])
    found = [
        m
        for c in ranked[:MAX_MODELS]
        if c[0] - ranked[0][0] < log(WINDOW) and (m := _draw_coefficients(*c[1:])) is not None
    ]
    return _window(found, WINDOW_LARGER if points.total > len(points.n) else WINDOW_SINGLE)


def _draw_coefficients(
    which: tuple[int, ...],
    likely: float,
    square: float,
    dof: float,
    share: np.ndarray,
    factor: np.ndarray,
) -> Model | None:
    """Return a model with draws of its coefficients, those that are not negative."""
    normal, _ = _draws()
    draws = share + (factor @ (normal[: len(which)] * (_error_factors(dof) * np.sqrt(square)))).T
    draws = draws[draws.min(axis=1) >= 0]
    if not len(draws):
        return None
    weight = 1.0 / np.prod((draws + SHARE) * log(1.0 + 1.0 / SHARE), axis=1)
    total = float(weight.sum())
    return Model(
        which,
        np.maximum(share, 0.0),
        likely + log(total / DRAWS),
        float(np.sqrt(square / dof)),
        draws,
        weight / total,
    )


def _window(models: list[Model], larger_by: float) -> list[Model]:
    """Iteration logarithms into weights and leave out what is clearly worse than the best."""
    if not models:
        return []
    best = max(models, key=lambda m: m.weight)
    ratio = {m.which: float(np.exp(m.weight - best.weight)) for m in models}
    for m in models:
        larger = set(m.which) > set(best.which)
        if larger and set(m.which) - set(best.which) == {CONSTANT}:
            ratio[m.which] = max(ratio[m.which], UNSEEN_CONSTANT)
        elif ratio[m.which] < (1 / larger_by if larger else 1 / WINDOW):
            ratio[m.which] = 0.0
    total = sum(ratio.values())
    kept = [replace(m, weight=ratio[m.which] / total) for m in models if ratio[m.which] > 0]
    return sorted(kept, key=lambda m: (m.which != best.which, -m.weight, m.which))


def choose_model(models: Sequence[Model], points: Points) -> Model:
    """Return the likeliest model among those that do not contradict the others further on.

    Points with large errors may leave many models, of which the likeliest is no more than one
    voice: at FAR times the largest count it has to lie within the middle of the mixture.
    """
    at = columns(points.n[-1:] * FAR, float(points.n[-1]))[0]
    values, weight = _values(models, at[None, :])
    order = np.argsort(values[:, 0], kind="stable")
    upto = np.cumsum(weight[order])
    low, high = (
        np.interp((1 - MIDDLE) / 2, upto, values[order, 0]),
        np.interp((1 + MIDDLE) / 2, upto, values[order, 0]),
    )
    inside = [m for m in models if low <= float(at[list(m.which)] @ m.share) <= high]
    return _drop_weak_terms((inside or list(models))[0], models, points)


def _drop_weak_terms(model: Model, models: Sequence[Model], points: Points) -> Model:
    """Return a model without the terms that are below what the points can show."""
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
