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
from dataclasses import dataclass, fields

import numpy as np

from p3s.base.arrays import Floats
from p3s.machine.topology.inside import Node
from p3s.methods.threads import columns
from p3s.methods.threads.columns import NAMES, Rows, Shapes
from p3s.methods.threads.types import Samples

#: Widths of coefficients (half normal), relative to the least time of a unit of work on one
#: thread; of what does not go with work relative to the least time, of regions in seconds.
_BY_WORK = {columns.PARALLEL: 1.0, columns.BALANCE: 0.2, columns.RANKS: 0.05, columns.SERIAL: 0.3}
_FIXED, _FORK_SHARE, _TEAM_SHARE = 1.0, 0.5, 0.1
_FORK, _TEAM = 1e-5, 2e-6
#: Effects that a program may lack have from this part of their usual width on, in logarithms.
_LEAST = 0.01
#: Size of errors of runs, and how many runs that knowledge is worth.
ERROR, ERROR_RUNS = 0.02, 3.0
#: Chances: of misses of a cache that the law needs, of bandwidth shared by more than a domain, of
#: data placed by one thread, of what was measured of the machine, of rows that are few.
_CACHE, _WIDER, _HOME, _MEASURED, _ROWS = 0.8, 0.15, 0.1, 0.7, 0.4
#: Doublings of work outside the traced one where a cache may begin to hold it.
BELOW, ABOVE = 5.0, 1.0
#: Ranges: what a second thread on a core adds (0: it brings as much as the first, 1: nothing) and
#: by how much clocks are lower when all cores compute; in logarithms: waiting for memory over
#: computing for one thread, more of it in another domain, in another socket; how well both hide
#: each other; how sharply bandwidth saturates and caches fill; exponents of overhead and of
#: unevenness over threads; how much dearer regions are on shared cores and on several sockets.
_SMT, _CLOCK, _MEMORY, _REMOTE, _SOCKETS = (0.1, 1.1), (0.0, 0.4), (0.01, 10.0), (0.01, 1.5), 1.5
_HIDE, _SHARP, _WIDE, _POWER = (1.0, 6.0), (1.5, 8.0), (0.7, 4.0), (0.3, 1.3)
#: Workloads that are further apart than this, in logarithms, tell how rows go with them.
_SEVERAL = 0.1
#: Rows of all processes over the threads in all of the largest traced run, and what power of the
#: whole work they go with: fixed, those of a cube, of a square, of a list.
_FEW, _MANY, _GROWS = 0.5, 4096.0, np.array([0.0, 1 / 3, 0.5, 1.0])
_UNEVEN, _DEARER = (-1.5, 0.5), (0.02, 3.0)
#: How many uniform numbers shapes have, and with the widths of coefficients.
SHAPES = len(fields(Shapes))
SIZE = SHAPES + len(NAMES)


@dataclass(frozen=True, eq=False)
class Prior:
    """What is usual: widths of the coefficients and where the team's is, 0 where not measured;
    fills: threads that fill a bandwidth; sizes: work that a cache holds; rows: of all processes at
    the workload ``whole``; (low, high) each; known: rows at a whole work of one, and the power of
    it that they go with, None where no run tells; measured: whether bandwidth was."""

    width: Floats
    middle: Floats
    fills: tuple[float, float]
    sizes: tuple[float, float]
    rows: tuple[float, float]
    whole: float
    known: tuple[float, float] | None
    measured: bool

    def widths(self, cube: Floats) -> Floats:
        """Return widths of coefficients: (draws, columns); cube: (draws, SIZE)."""
        scale = _LEAST ** cube[:, SHAPES:]
        scale[:, columns.PARALLEL] = 1.0
        scale[:, self.middle > 0] = 1.0
        return np.asarray(self.width * scale)

    def shapes(self, cube: Floats) -> Shapes:
        """Return shapes: (draws,) each; cube: (draws, SIZE), numbers between 0 and 1."""
        u = cube.T
        wider = 1.0 + np.floor(2.0 * np.minimum(u[8] / _WIDER, 0.999))
        scope = np.where(u[8] < _WIDER, wider, columns.DOMAIN)
        has_rows = u[16] < _ROWS
        grows = _GROWS[np.minimum(u[17] * len(_GROWS), len(_GROWS) - 1).astype(int)]
        rows = log_between((u[16] / _ROWS).clip(0.0, 1.0), *self.rows) / self.whole**grows
        if self.known is not None:
            has_rows, rows, grows = has_rows | True, *(np.full(len(cube), x) for x in self.known)
        size = log_between((u[10] / _CACHE).clip(0.0, 1.0), *self.sizes)
        return Shapes(
            between(u[0], *_SMT),
            between(u[1], *_CLOCK),
            log_between(u[2], *_MEMORY),
            log_between(u[3], *_REMOTE),
            log_between(u[4], _REMOTE[0], _SOCKETS),
            log_between(u[5], *_HIDE),
            log_between(u[6], *self.fills),
            log_between(u[7], *_SHARP),
            np.where(u[8] > 1.0 - _HOME, columns.HOME, scope),
            (u[9] < (_MEASURED if self.measured else 0.0)).astype(float),
            np.where(u[10] < _CACHE, size, 0.0),
            log_between(u[11], *_WIDE),
            between(u[12], *_POWER),
            between(u[13], *_UNEVEN),
            log_between(u[14], *_DEARER),
            log_between(u[15], *_DEARER),
            np.where(has_rows, rows, 0.0),
            grows,
        )


def prior_of(
    samples: Samples, y: Floats, rows: Rows, node: Node, regions: bool, measured: tuple[bool, bool]
) -> Prior:
    """Return what is usual.

    y: seconds of the samples; rows: their places; regions: whether their number is known; measured:
    whether the bandwidth is, and the time of an empty region.
    """
    unit, least = unit_of(samples, y), float(y.min())
    held_work = samples.work / samples.threads * rows.places.cache
    width, middle = np.empty(len(NAMES)), np.zeros(len(NAMES))
    for column, share in _BY_WORK.items():
        width[column] = share * unit
    width[columns.FIXED] = _FIXED * least
    width[columns.FORK] = _FORK if regions else _FORK_SHARE * least
    width[columns.TEAM] = _TEAM if regions else _TEAM_SHARE * least
    if regions and measured[1]:
        width[columns.TEAM] = middle[columns.TEAM] = columns.FORK_UNIT
    fills = (0.7, 1.5 * max(node.domains) + 1.0)
    sizes = (float(held_work.min()) * 2.0**-BELOW, float(held_work.max()) * 2.0**ABOVE)
    threads = float((samples.n * samples.threads).max())
    most = (threads * _FEW, threads * _MANY)
    whole = float(np.median(samples.n * samples.work))
    rows_known = known_rows(samples)
    return Prior(width, middle, fills, sizes, most, whole, rows_known, measured[0])


def known_rows(samples: Samples) -> tuple[float, float] | None:
    """Return the rows of all processes at a whole work of one, and the power of it that they go
    with; None where runs do not tell. One workload tells no power: then they are fixed."""
    if not np.all(samples.rows > 0):
        return None
    rows, whole = np.log(samples.n * samples.rows), np.log(samples.n * samples.work)
    away = whole - whole.mean()
    several = float(away @ away) > len(away) * _SEVERAL**2
    power = float(np.clip(away @ rows / (away @ away), 0.0, 1.0)) if several else 0.0
    return float(np.exp(np.median(rows - power * whole))), power


def unit_of(samples: Samples, y: Floats) -> float:
    """Return the least seconds of one thread for a unit of work."""
    return float((y * samples.threads / samples.work).min())


def between(share: Floats, low: float, high: float) -> Floats:
    """Return values evenly between two ends."""
    return np.asarray(low + share * (high - low))


def log_between(share: Floats, low: float, high: float) -> Floats:
    """Return values between two ends, evenly in their logarithms."""
    return np.asarray(low * (high / low) ** share)


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
        return _Laws(*(column[rows] for column in vars(self).values()))


def sample(problem: Problem, random: np.random.Generator) -> State:
    """Return DRAWS draws of the laws that the samples leave."""
    laws = _weigh_laws(problem, random.random((TRIED, SIZE)))
    before = 0.0
    for heat, rounds in HEAT:
        weight = (heat - before) * laws.score
        laws = laws.take(_resample(weight, MOVED, random))
        for _ in range(rounds):
            laws = _move_laws(problem, laws, heat, random)
        before = heat
    laws = laws.take(random.permutation(MOVED)[:DRAWS])
    return _draw_state(problem, laws, random)


def _resample(score: Floats, number: int, random: np.random.Generator) -> np.ndarray:
    """Return which to take so that each is there as often as it weighs (systematically)."""
    upto = np.cumsum(np.exp(score - score.max()))
    at = np.searchsorted(upto / upto[-1], (np.arange(number) + random.random()) / number)
    return np.asarray(at.clip(0, len(score) - 1))


def _weigh_laws(problem: Problem, cube: Floats) -> _Laws:
    """Return laws with their likeliest coefficients and evidence."""
    design = problem.design(problem.prior.shapes(cube))
    width = problem.prior.widths(cube)
    gram, pull, middle, target_square = _normal(problem, design, width)
    error = np.full(len(cube), 2 * ERROR)
    runs = ERROR_RUNS + len(problem.target)
    best = np.zeros_like(pull)
    for _ in range(_ERRORS):
        once = 1.0 / error[:, None] ** 2
        precision = gram * once[..., None] + np.eye(gram.shape[1])
        best = _likeliest(precision, pull * once + middle, best)
        square = target_square - 2 * (best * pull).sum(axis=1) + _quadratic(gram, best)
        square = ERROR_RUNS * ERROR**2 + np.maximum(square, 0.0)
        error = np.sqrt(square / runs)
    usual = 0.5 * ((best - middle) ** 2).sum(axis=1)
    score = -0.5 * runs * np.log(square) - usual - 0.5 * np.linalg.slogdet(precision)[1]
    return _Laws(cube, design, width, best * width, error, score)


def _normal(
    problem: Problem, design: Floats, width: Floats
) -> tuple[Floats, Floats, Floats, float]:
    """Return X'X, X'y and the prior's middle in units of the widths, and y'y."""
    scaled = design * width[:, None, :]
    turned = scaled.transpose(0, 2, 1)
    target_square = float(problem.target @ problem.target)
    return turned @ scaled, turned @ problem.target, problem.prior.middle / width, target_square


def _quadratic(matrix: Floats, x: Floats) -> Floats:
    return np.asarray(np.einsum("dp,dpq,dq->d", x, matrix, x))


def _likeliest(precision: Floats, pull: Floats, start: Floats) -> Floats:
    """Return the likeliest coefficients that are not negative, by coordinate descent."""
    coefficients = start.copy()
    columns = [np.ascontiguousarray(precision[:, k]) for k in range(pull.shape[1])]
    for _ in range(_STEPS):
        for k, column in enumerate(columns):
            step = pull[:, k] - (column * coefficients).sum(axis=1)
            coefficients[:, k] = np.maximum(coefficients[:, k] + step / column[:, k], 0.0)
    return coefficients


def _move_laws(problem: Problem, laws: _Laws, heat: float, random: np.random.Generator) -> _Laws:
    """Return laws after one move of each, accepted by the evidence at this heat."""
    number = len(laws.score)
    one, other = random.permutation(number), random.permutation(number)
    moved_count = random.choice(_SOME, number)
    masked = random.random((number, SIZE)) < (moved_count / SIZE)[:, None]
    length = np.where(random.random(number) < _WHOLE, 1.0, 1.68 / np.sqrt(moved_count))
    step = (laws.cube[one] - laws.cube[other]) * length[:, None]
    step += _TREMBLE * random.standard_normal(step.shape)
    turned = np.mod(laws.cube + masked * step, 2.0)
    proposed = _weigh_laws(problem, np.where(turned > 1.0, 2.0 - turned, turned))
    accepted = np.log(random.random(number)) < heat * (proposed.score - laws.score)
    return _Laws(
        *(
            np.where(accepted.reshape(-1, *[1] * (new.ndim - 1)), new, old)
            for new, old in zip(vars(proposed).values(), vars(laws).values(), strict=True)
        )
    )


def _draw_state(problem: Problem, laws: _Laws, random: np.random.Generator) -> State:
    """Return draws of coefficients and errors of laws."""
    gram, pull, middle, square_y = _normal(problem, laws.design, laws.width)
    drawn, error = laws.coefficient / laws.width, laws.error
    for _ in range(_GIBBS):
        once = 1.0 / error[:, None] ** 2
        precision = gram * once[..., None] + np.eye(gram.shape[1])
        drawn = _along(precision, pull * once + middle, drawn, random)
        square = np.maximum(
            square_y - 2 * (drawn * pull).sum(axis=1) + _quadratic(gram, drawn), 0.0
        )
        chi = random.chisquare(ERROR_RUNS + len(problem.target), len(square))
        error = np.sqrt((ERROR_RUNS * ERROR**2 + square) / chi)
    return State(laws.cube, problem.prior.shapes(laws.cube), drawn * laws.width, error)


def _along(precision: Floats, pull: Floats, start: Floats, random: np.random.Generator) -> Floats:
    """Return coefficients drawn anew along random directions, then along each axis."""
    draws, size = pull.shape
    root = np.linalg.cholesky(precision).transpose(0, 2, 1)
    directions = np.linalg.solve(root, random.standard_normal((draws, size, size)))
    axes = np.broadcast_to(np.eye(size), (draws, size, size))
    coefficients = start
    for way in np.concatenate([directions, axes], axis=2).transpose(2, 0, 1):
        turned = (precision @ way[..., None])[..., 0]
        steep = (way * turned).sum(axis=1)
        slope = (way * pull).sum(axis=1) - (turned * coefficients).sum(axis=1)
        low, high = _room(coefficients, way)
        step = _cut_normal(slope / steep, 1.0 / np.sqrt(steep), low, high, random)
        coefficients = np.maximum(coefficients + step[:, None] * way, 0.0)
    return coefficients


def _room(coefficients: Floats, way: Floats) -> tuple[Floats, Floats]:
    """Return how far one may go back and forth until a coefficient is zero."""
    bound = np.abs(way) > 1e-300
    reach = -coefficients / np.where(bound, way, 1.0)
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
