"""Draws of laws that the samples leave: shapes by their likelihood, coefficients none negative.

Given its shapes a law is linear: its coefficients have a normal distribution, cut off at zero. Many
shapes are weighed by Laplace's approximation of their marginal likelihood, as
p3s.costs.posterior does with curves; the draws then move by Gibbs steps (coefficients, along random
directions, and the size of errors) and Metropolis steps (shapes). Errors are relative. The random
numbers are always the same: equal samples give equal laws.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from p3s.threads.columns import Shapes
from p3s.threads.priors import ERROR, ERROR_RUNS, POWER, SHARP, WIDE, Prior
from p3s.topology.units import Bools, Floats

#: Shapes tried, draws kept, rounds of moves, directions in each.
TRIED, DRAWS, ROUNDS, DIRECTIONS = 1500, 160, 60, 6
#: An effect that programs may lack has one of these parts of its usual width, all as likely.
SCALES = np.array([0.01, 0.03, 0.1, 0.3, 1.0])
#: Steps of the coefficients' search for the likeliest, and of the size of errors in it.
_STEPS, _ERRORS = 40, 2
_FAR_OFF = 1e30


@dataclass(frozen=True, eq=False)
class Problem:
    """What is fitted: columns of shapes, relative to the measured times and made independent.

    design: shapes -> (shapes, rows, columns); target: (rows,); signed: columns that may be
    negative; lacking: those that a program may lack; ranges: (low, high) of fill and size.
    """

    design: Callable[[Shapes], Floats]
    target: Floats
    prior: Prior
    signed: Bools
    lacking: Bools
    fill: tuple[float, float]
    size: tuple[float, float]


@dataclass(frozen=True, eq=False)
class State:
    """Draws: shapes, coefficients and their usual widths (draws, columns), and the size of errors
    (draws,)."""

    shapes: Shapes
    coefficient: Floats
    width: Floats
    error: Floats


def sample(problem: Problem, tried: Shapes, random: np.random.Generator) -> State:
    """Return DRAWS draws of the laws that the samples leave; ``tried``: shapes to weigh."""
    design = problem.design(tried)
    scale = random.choice(SCALES, (len(tried), len(problem.lacking)))
    width = problem.prior.width * np.where(problem.lacking, scale, 1.0)
    coefficient, error, score = _weighed(problem, design, width)
    weight = np.exp(score - score.max())
    upto = np.cumsum(weight / weight.sum())
    chosen = np.searchsorted(upto, (np.arange(DRAWS) + random.random()) / DRAWS)
    chosen = chosen.clip(0, len(upto) - 1)
    state = State(tried.take(chosen), coefficient[chosen], width[chosen], error[chosen])
    return _moved(problem, state, design[chosen], random)


def _normal(
    problem: Problem, design: Floats, width: Floats, error: Floats
) -> tuple[Floats, Floats]:
    """Return the precision of the coefficients, and it times their mean, in units of ``width``."""
    scaled = design * width[:, None, :]
    once = 1.0 / error**2
    precision = np.einsum("dnp,dnq->dpq", scaled, scaled) * once[:, None, None]
    precision += np.eye(width.shape[1])
    pull = np.einsum("dnp,n->dp", scaled, problem.target) * once[:, None]
    return precision, pull + problem.prior.middle / width


def _weighed(problem: Problem, design: Floats, width: Floats) -> tuple[Floats, Floats, Floats]:
    """Return the likeliest coefficients of each shape, the size of errors and the evidence."""
    rows = len(problem.target)
    error = np.full(len(design), 2 * ERROR)
    for _ in range(_ERRORS):
        precision, pull = _normal(problem, design, width, error)
        best = _likeliest(precision, pull, problem.signed)
        coefficient = best * width
        square = _square(problem, design, coefficient)
        error = np.sqrt((ERROR_RUNS * ERROR**2 + square) / (ERROR_RUNS + rows))
    likely = -0.5 * (ERROR_RUNS + rows) * np.log(ERROR_RUNS * ERROR**2 + square)
    usual = 0.5 * ((best - problem.prior.middle / width) ** 2).sum(axis=1)
    return coefficient, error, likely - usual - 0.5 * np.linalg.slogdet(precision)[1]


def _square(problem: Problem, design: Floats, coefficient: Floats) -> Floats:
    """Return the sum of squared errors of each draw."""
    told = (design @ coefficient[..., None])[..., 0]
    return np.asarray(((problem.target - told) ** 2).sum(axis=1))


def _likeliest(precision: Floats, pull: Floats, signed: Bools) -> Floats:
    """Return the likeliest coefficients that are not negative, by coordinate descent."""
    found = np.zeros_like(pull)
    for _ in range(_STEPS):
        for k in range(pull.shape[1]):
            diagonal = precision[:, k, k]
            step = pull[:, k] - np.einsum("dp,dp->d", precision[:, k], found)
            moved = found[:, k] + step / diagonal
            found[:, k] = moved if signed[k] else np.maximum(moved, 0.0)
    return found


def _moved(problem: Problem, state: State, design: Floats, random: np.random.Generator) -> State:
    """Return draws after rounds of moves."""
    rows = len(problem.target)
    for _ in range(ROUNDS):
        width = state.width
        precision, pull = _normal(problem, design, width, state.error)
        start = state.coefficient / width
        coefficient = width * _along(precision, pull, start, problem.signed, random)
        square = _square(problem, design, coefficient)
        chi = random.chisquare(ERROR_RUNS + rows, len(square))
        error = np.sqrt((ERROR_RUNS * ERROR**2 + square) / chi)
        shapes = _near(problem, state.shapes, random)
        other = problem.design(shapes)
        better = (square - _square(problem, other, coefficient)) / (2 * error**2)
        taken = np.log(random.random(len(square))) < better
        design = np.where(taken[:, None, None], other, design)
        width = _widths(problem, coefficient, random)
        state = State(_either(taken, shapes, state.shapes), coefficient, width, error)
    return state


def _widths(problem: Problem, coefficient: Floats, random: np.random.Generator) -> Floats:
    """Return usual widths drawn anew: those that the coefficients make likely."""
    width = problem.prior.width
    each = ((coefficient - problem.prior.middle) / width)[..., None] / SCALES
    likely = np.exp(-0.5 * np.minimum(each**2, 1400.0)) / SCALES
    upto = np.cumsum(likely + 1e-300, axis=-1)
    share = random.random(coefficient.shape)[..., None] * upto[..., -1:]
    chosen = SCALES[(upto < share).sum(axis=-1).clip(0, len(SCALES) - 1)]
    return np.asarray(width * np.where(problem.lacking, chosen, 1.0))


def _along(
    precision: Floats, pull: Floats, start: Floats, signed: Bools, random: np.random.Generator
) -> Floats:
    """Return coefficients drawn anew along some directions, then along each axis."""
    draws, size = pull.shape
    root = np.linalg.cholesky(precision)
    here = start
    some = np.linalg.solve(
        np.broadcast_to(root.transpose(0, 2, 1), root.shape),
        random.standard_normal((draws, size, DIRECTIONS)),
    )
    axes = np.broadcast_to(np.eye(size), (draws, size, size))
    ways = np.concatenate([some, axes], axis=2)
    for k in range(ways.shape[2]):
        way = ways[:, :, k]
        turned = np.einsum("dpq,dq->dp", precision, way)
        steep = np.einsum("dp,dp->d", way, turned)
        slope = np.einsum("dp,dp->d", way, pull) - np.einsum("dp,dp->d", turned, here)
        low, high = _room(here, way, signed)
        step = _cut_normal(slope / steep, 1.0 / np.sqrt(steep), low, high, random)
        here = here + step[:, None] * way
        here = np.where(signed, here, np.maximum(here, 0.0))
    return here


def _room(here: Floats, way: Floats, signed: Bools) -> tuple[Floats, Floats]:
    """Return how far one may go back and forth until a coefficient is zero."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        reach = -here / way
    bound = ~signed & (np.abs(way) > 1e-300)
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
    drawn = np.clip(np.where(mirrored, -drawn, drawn) * width + middle, low, high)
    return np.asarray(drawn)


def _near(problem: Problem, shapes: Shapes, random: np.random.Generator) -> Shapes:
    """Return shapes a step away; beyond an end of a range they are turned back into it."""
    step = random.standard_normal((5, len(shapes))) * random.choice([0.1, 0.4], len(shapes))

    def log_step(x: Floats, k: int, low: float, high: float) -> Floats:
        return np.exp(_back(np.log(x) + step[k], np.log(low), np.log(high)))

    none = shapes.size <= 0
    size = log_step(np.where(none, problem.size[0], shapes.size), 2, *problem.size)
    return replace(
        shapes,
        fill=log_step(shapes.fill, 0, *problem.fill),
        sharp=log_step(shapes.sharp, 1, *SHARP),
        size=np.where(none, 0.0, size),
        wide=log_step(shapes.wide, 3, *WIDE),
        power=_back(shapes.power + 0.5 * step[4], *POWER),
    )


def _back(x: Floats, low: float, high: float) -> Floats:
    """Return values that are mirrored at the ends of a range until they lie in it."""
    span = high - low
    turned = np.mod(x - low, 2 * span)
    return np.asarray(low + np.where(turned > span, 2 * span - turned, turned))


def _either(taken: Bools, one: Shapes, other: Shapes) -> Shapes:
    names = Shapes.__dataclass_fields__
    return Shapes(*(np.where(taken, getattr(one, k), getattr(other, k)) for k in names))
