"""Draws of laws that the samples leave: shapes by their likelihood, coefficients none negative.

Given its shapes a law is linear: its coefficients have a normal distribution, cut off at zero.
Shapes are weighed by Laplace's approximation of their marginal likelihood, as
p3s.costs.posterior does with curves. Many are tried first, then those kept are moved by differences
of others (ter Braak, differential evolution Markov chains, 2006) while the samples count more and
more (Del Moral and others, sequential Monte Carlo samplers, 2006). Coefficients and the size
of errors are drawn last, by Gibbs steps. Errors are relative. The random numbers are always the
same: equal samples give equal laws.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from p3s.machine.topology.units import Floats
from p3s.methods.threads.columns import Shapes
from p3s.methods.threads.priors import ERROR, ERROR_RUNS, SIZE, Prior

#: Laws tried first, moved, and kept.
TRIED, MOVED, DRAWS = 2000, 320, 160
#: How much the samples count, and how often all are moved then.
HEAT = ((0.03, 6), (0.15, 8), (0.5, 10), (1.0, 30))
#: A move in so many of all directions; now and then a whole step from one to another.
_SOME, _WHOLE, _TREMBLE = (2, 4, 8), 0.1, 1e-3
#: Steps of the coefficients' search for the likeliest, of the size of errors in it, and of Gibbs.
_STEPS, _ERRORS, _GIBBS = 25, 2, 12
_FAR_OFF = 1e30


@dataclass(frozen=True, eq=False)
class Problem:
    """What is fitted: columns of shapes, relative to the measured times and made independent.

    design: shapes -> (shapes, rows, columns); target: (rows,).
    """

    design: Callable[[Shapes], Floats]
    target: Floats
    prior: Prior


@dataclass(frozen=True, eq=False)
class State:
    """Draws: numbers in the unit cube, shapes of them, coefficients (draws, columns), and the size
    of errors (draws,)."""

    cube: Floats
    shapes: Shapes
    coefficient: Floats
    error: Floats


@dataclass(frozen=True, eq=False)
class _Laws:
    """Laws by their numbers in the unit cube: columns, widths and likeliest of coefficients, size
    of errors, logarithm of the evidence."""

    cube: Floats
    design: Floats
    width: Floats
    coefficient: Floats
    error: Floats
    score: Floats

    def take(self, rows: np.ndarray) -> _Laws:
        return _Laws(
            self.cube[rows],
            self.design[rows],
            self.width[rows],
            self.coefficient[rows],
            self.error[rows],
            self.score[rows],
        )


def sample(problem: Problem, random: np.random.Generator) -> State:
    """Return DRAWS draws of the laws that the samples leave."""
    laws = _weighed(problem, random.random((TRIED, SIZE)))
    before = 0.0
    for heat, rounds in HEAT:
        weight = (heat - before) * laws.score
        laws = laws.take(_resampled(weight, MOVED, random))
        for _ in range(rounds):
            laws = _moved(problem, laws, heat, random)
        before = heat
    laws = laws.take(random.permutation(MOVED)[:DRAWS])
    return _drawn(problem, laws, random)


def _resampled(score: Floats, number: int, random: np.random.Generator) -> np.ndarray:
    """Return which to take so that each is there as often as it weighs (systematically)."""
    upto = np.cumsum(np.exp(score - score.max()))
    at = np.searchsorted(upto / upto[-1], (np.arange(number) + random.random()) / number)
    return np.asarray(at.clip(0, len(score) - 1))


def _weighed(problem: Problem, cube: Floats) -> _Laws:
    """Return laws with their likeliest coefficients and evidence."""
    design = problem.design(problem.prior.shapes(cube))
    width = problem.prior.widths(cube)
    scaled = design * width[:, None, :]
    gram = np.matmul(scaled.transpose(0, 2, 1), scaled)
    pull = scaled.transpose(0, 2, 1) @ problem.target
    middle = problem.prior.middle / width
    own = float(problem.target @ problem.target)
    error = np.full(len(cube), 2 * ERROR)
    runs = ERROR_RUNS + len(problem.target)
    best = np.zeros_like(pull)
    for _ in range(_ERRORS):
        once = 1.0 / error[:, None] ** 2
        precision = gram * once[..., None] + np.eye(gram.shape[1])
        best = _likeliest(precision, pull * once + middle, best)
        square = own - 2 * (best * pull).sum(axis=1) + _quadratic(gram, best)
        square = ERROR_RUNS * ERROR**2 + np.maximum(square, 0.0)
        error = np.sqrt(square / runs)
    usual = 0.5 * ((best - middle) ** 2).sum(axis=1)
    score = -0.5 * runs * np.log(square) - usual - 0.5 * np.linalg.slogdet(precision)[1]
    return _Laws(cube, design, width, best * width, error, score)


def _quadratic(matrix: Floats, x: Floats) -> Floats:
    return np.asarray(np.einsum("dp,dpq,dq->d", x, matrix, x))


def _likeliest(precision: Floats, pull: Floats, start: Floats) -> Floats:
    """Return the likeliest coefficients that are not negative, by coordinate descent."""
    found = start.copy()
    columns = [np.ascontiguousarray(precision[:, k]) for k in range(pull.shape[1])]
    for _ in range(_STEPS):
        for k, column in enumerate(columns):
            step = pull[:, k] - (column * found).sum(axis=1)
            found[:, k] = np.maximum(found[:, k] + step / column[:, k], 0.0)
    return found


def _moved(problem: Problem, laws: _Laws, heat: float, random: np.random.Generator) -> _Laws:
    """Return laws after one move of each, accepted by the evidence at this heat."""
    number = len(laws.score)
    one, other = random.permutation(number), random.permutation(number)
    some = random.choice(_SOME, number)
    masked = random.random((number, SIZE)) < (some / SIZE)[:, None]
    length = np.where(random.random(number) < _WHOLE, 1.0, 1.68 / np.sqrt(some))
    step = (laws.cube[one] - laws.cube[other]) * length[:, None]
    step += _TREMBLE * random.standard_normal(step.shape)
    turned = np.mod(laws.cube + masked * step, 2.0)
    made = _weighed(problem, np.where(turned > 1.0, 2.0 - turned, turned))
    taken = np.log(random.random(number)) < heat * (made.score - laws.score)
    return _Laws(
        *(
            np.where(taken.reshape(-1, *[1] * (new.ndim - 1)), new, old)
            for new, old in zip(_columns(made), _columns(laws), strict=True)
        )
    )


def _columns(laws: _Laws) -> tuple[Floats, ...]:
    return laws.cube, laws.design, laws.width, laws.coefficient, laws.error, laws.score


def _drawn(problem: Problem, laws: _Laws, random: np.random.Generator) -> State:
    """Return draws of coefficients and errors of laws."""
    scaled = laws.design * laws.width[:, None, :]
    gram = np.matmul(scaled.transpose(0, 2, 1), scaled)
    pull = scaled.transpose(0, 2, 1) @ problem.target
    middle = problem.prior.middle / laws.width
    here, error = laws.coefficient / laws.width, laws.error
    own = float(problem.target @ problem.target)
    for _ in range(_GIBBS):
        once = 1.0 / error[:, None] ** 2
        precision = gram * once[..., None] + np.eye(gram.shape[1])
        here = _along(precision, pull * once + middle, here, random)
        square = np.maximum(own - 2 * (here * pull).sum(axis=1) + _quadratic(gram, here), 0.0)
        chi = random.chisquare(ERROR_RUNS + len(problem.target), len(square))
        error = np.sqrt((ERROR_RUNS * ERROR**2 + square) / chi)
    return State(laws.cube, problem.prior.shapes(laws.cube), here * laws.width, error)


def _along(precision: Floats, pull: Floats, start: Floats, random: np.random.Generator) -> Floats:
    """Return coefficients drawn anew along random directions, then along each axis."""
    draws, size = pull.shape
    root = np.linalg.cholesky(precision).transpose(0, 2, 1)
    some = np.linalg.solve(root, random.standard_normal((draws, size, size)))
    axes = np.broadcast_to(np.eye(size), (draws, size, size))
    here = start
    for way in np.concatenate([some, axes], axis=2).transpose(2, 0, 1):
        turned = (precision @ way[..., None])[..., 0]
        steep = (way * turned).sum(axis=1)
        slope = (way * pull).sum(axis=1) - (turned * here).sum(axis=1)
        low, high = _room(here, way)
        step = _cut_normal(slope / steep, 1.0 / np.sqrt(steep), low, high, random)
        here = np.maximum(here + step[:, None] * way, 0.0)
    return here


def _room(here: Floats, way: Floats) -> tuple[Floats, Floats]:
    """Return how far one may go back and forth until a coefficient is zero."""
    bound = np.abs(way) > 1e-300
    reach = -here / np.where(bound, way, 1.0)
    low = np.where(bound & (way > 0), reach, -_FAR_OFF).max(axis=1)
    high = np.where(bound & (way < 0), reach, _FAR_OFF).min(axis=1)
    return low, np.maximum(high, low)


def _cut_normal(
    middle: Floats, width: Floats, low: Floats, high: Floats, random: np.random.Generator
) -> Floats:
    """Return draws of normal distributions between two ends; far out in a tail the nearer end."""
    from scipy.special import ndtr, ndtri

    a, b = (low - middle) / width, (high - middle) / width
    mirrored = a > 0  # the other tail has the digits
    a, b = np.where(mirrored, -b, a), np.where(mirrored, -a, b)
    first, last = ndtr(np.clip(a, -37, 37)), ndtr(np.clip(b, -37, 37))
    share = first + (last - first) * random.random(len(middle))
    drawn = ndtri(np.clip(share, 1e-300, 1 - 1e-16))
    return np.asarray(np.clip(np.where(mirrored, -drawn, drawn) * width + middle, low, high))
