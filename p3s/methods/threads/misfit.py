"""What laws miss: errors that are alike where nodes are used alike.

No law is right to the last per cent, and where it is off it is off at similar places, too. The
relative misfit of a law is a smooth random function of the use (a Gaussian process; Kennedy and
O'Hagan, Bayesian calibration of computer models, 2001), of the size of the errors of runs. Half of
it is the same at all process counts. Draws of it, given what is left at the samples, are made by
Matheron's rule with random features, so that any number of uses is told jointly.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from p3s.machine.topology.units import Floats
from p3s.methods.threads.places import Places
from p3s.methods.threads.types import Uses, rounded

#: Variance of the misfit in units of that of one run, and the part that is so at all counts.
SIZE, LASTING = 2.0, 0.5
#: Variance of slopes: misfits that go on in one direction, over a length, from the samples' middle.
SLOPE = 0.5
_SLOPES = np.array([1.0, 1.0, 0.0, 0.0, 1.0])
#: Lengths over which it changes: doublings of threads, of threads on the node, of processes.
_THREADS, _ON_NODE, _COUNT = 1.5, 1.5, 3.0
#: Difference of far and close, and of threads on a core, in the same units.
_FAR, _SHARED = 0.7, 0.8
_FEATURES = 64


def features(uses: Uses, places: Places) -> Floats:
    """Return how nodes are used as numbers whose distances matter: (uses, 5), processes last."""
    return np.stack(
        [
            np.log2(uses.threads) / _THREADS,
            np.log2(places.node_crowd) / _ON_NODE,
            _FAR * uses.far,
            _SHARED * (places.share - 1.0),
            np.log2(uses.n) / _COUNT,
        ],
        axis=1,
    )


def alike(one: Floats, other: Floats) -> Floats:
    """Return the covariance of misfits: (uses of one, uses of other)."""
    apart = (one[:, None, :] - other[None, :, :]) ** 2
    placed = np.exp(-0.5 * apart[..., :-1].sum(axis=2))
    counted = np.exp(-0.5 * apart[..., -1])
    return np.asarray(SIZE * placed * (LASTING + (1.0 - LASTING) * counted))


@dataclass(frozen=True, eq=False)
class Misfit:
    """Draws of a misfit: at (samples, 5), and what they pull by: (draws, samples), in units of the
    error of each draw's runs; seed: of the draws."""

    at: tuple[Floats, ...]
    pull: tuple[Floats, ...]
    seed: int

    def valid(self) -> None:
        """Raise ValueError where rows are not of five numbers, or of one for each sample."""
        rows = {len(row) for row in self.at} | {len(row) + 5 - len(self.at) for row in self.pull}
        if rows != {5}:
            raise ValueError("the misfit of its draws does not hold together")

    def draws(self, where: Floats, number: int) -> Floats:
        """Return the misfit in units of the error: (draws, uses)."""
        at = np.array(self.at)
        away, middle = sloped(where, at), sloped(at, at)
        free = _free(where, away, number, self.seed)
        pulled = alike(at, where) + SLOPE * middle @ away.T
        return np.asarray(free + np.array(self.pull) @ pulled)


def sloped(where: Floats, at: Floats) -> Floats:
    """Return how far uses are from the middle of the samples where slopes count: (uses, 5)."""
    return np.asarray((where - at.mean(axis=0)) * _SLOPES)


def covariance(at: Floats) -> Floats:
    """Return the covariance of errors of runs and misfits at samples, in units of the error's."""
    away = sloped(at, at)
    return np.asarray(alike(at, at) + SLOPE * away @ away.T + np.eye(len(at)))


def misfit(at: Floats, left: Floats, seed: int) -> Misfit:
    """Return the misfit that explains what is left at the samples.

    at: (samples, 5); left: (draws, samples), relative errors in units of their size.
    """
    random = np.random.default_rng(seed + 1)
    noise = random.standard_normal(left.shape)
    unexplained = left - _free(at, sloped(at, at), len(left), seed) - noise
    pull = np.asarray(np.linalg.solve(covariance(at), unexplained.T).T, dtype=float)
    return Misfit(tuple(map(rounded, at)), tuple(map(rounded, pull)), seed)


def _free(where: Floats, away: Floats, number: int, seed: int) -> Floats:
    """Return the same functions always, of no samples: (number, uses)."""
    turns, start, weight, slope = _random(number, seed)
    out = np.sqrt(SLOPE) * slope @ away.T
    for k, share in enumerate((LASTING, 1.0 - LASTING)):
        some = where if k else where * np.array([1.0, 1.0, 1.0, 1.0, 0.0])
        waves = np.sqrt(2.0 / _FEATURES) * np.cos(some @ turns[k] + start[k])
        out += np.sqrt(SIZE * share) * (weight[k] @ waves.T)
    return np.asarray(out)


@lru_cache(maxsize=64)
def _random(number: int, seed: int) -> tuple[Floats, Floats, Floats, Floats]:
    random = np.random.default_rng(seed)
    return (
        random.standard_normal((2, 5, _FEATURES)),
        random.random((2, _FEATURES)) * 2 * np.pi,
        random.standard_normal((2, number, _FEATURES)),
        random.standard_normal((number, 5)),
    )
