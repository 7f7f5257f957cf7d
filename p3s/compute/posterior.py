"""Which curves the points leave, each with its weight: designs x what may have been disturbed.

Errors are relative: a factor common to all points of a run, one of each point, and now and then a
run or a point that something disturbed and that is slower by far more (never faster: the least of
repeats is taken). A hypothesis names what was disturbed; under it everything is normal and linear,
with the size of the errors unknown (a prior from the repeats). The weight of a design is its
marginal likelihood (Hoeting et al., Bayesian Model Averaging, 1999), which is how well it
predicts each point from the others, so that needless columns cost. Equal points give equal results:
the draws are always the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from math import lgamma, log

import numpy as np

from p3s.compute.families import Column, Designs, designs, refined, values

#: Share of the variance that is common to a run; the rest is a point's own.
RUN_SHARE = 0.5
#: Prior of the relative error: as if PRIOR_DOF errors had been seen, of the size that the repeats
#: tell (KEPT of it is left in the least of them), at least LEAST_ERROR, ASSUMED where nothing was
#: repeated.
PRIOR_DOF, LEAST_ERROR, ASSUMED, KEPT = 4.0, 0.007, 0.015, 0.7
#: How often a run or a point is disturbed, by what typical relative amount, how many at most.
DISTURBED, AMOUNT, MOST_DISTURBED, CANDIDATES, CANDIDATES_ALONE = 0.05, 0.2, 3, 5, 2
#: Prior of a coefficient h (share of the middle cost): 1/(h + SMALL) up to LARGE.
SMALL, LARGE = 0.04, 4.0
#: Kept: pairs of design and hypothesis within this factor of the best.
WINDOW = 1000.0
#: How many hypotheses of what was disturbed are tried with all designs.
TRIED = 5
#: Steps are looked at again, closer, twice: of how many designs, under which hypotheses (within
#: this factor of the best).
REFINED = ((40, 50.0), (12, 20.0))
DRAWS = 500


@dataclass(frozen=True)
class Measured:
    """Points ready to fit: u = log2 x, cost (positive), run: number of the run of each point,
    weight: moderate weight of each (mean 1), error: expected relative error of a point, scale: by
    how much that of each point differs from it."""

    u: np.ndarray
    cost: np.ndarray
    run: np.ndarray
    weight: np.ndarray
    error: float
    scale: np.ndarray


@dataclass(frozen=True)
class Draws:
    """Draws of curves: coefficient (draws, 3) of the columns ``which`` (draws, 3; unused ones have
    coefficient 0), weight (sums to one), error: the relative size of errors in each draw."""

    columns: list[Column]
    which: np.ndarray
    coefficient: np.ndarray
    weight: np.ndarray
    error: np.ndarray

    def curves(self, u: np.ndarray) -> np.ndarray:
        """Return the cost of every draw at ``u``: (draws, points)."""
        table = values(self.columns, u).T
        return np.einsum("dk,dkp->dp", self.coefficient, table[self.which])


@dataclass(frozen=True)
class Best:
    """The likeliest design: family, columns, coefficients; what was disturbed; families' shares."""

    family: str
    columns: tuple[Column, ...]
    coefficient: tuple[float, ...]
    disturbed: tuple[int, ...]
    families: dict[str, float]
    error: float


@dataclass(frozen=True)
class _Scored:
    """Designs of k columns under one hypothesis: score (log weight), coefficients, Cholesky factor
    of the precision, sum of squares."""

    score: np.ndarray
    beta: np.ndarray
    factor: np.ndarray
    square: np.ndarray


#: What was disturbed, and the scores under it by the number of columns.
_Hypothesis = tuple[tuple[int, ...], dict[int, _Scored]]
#: What was disturbed, number of columns, scores, numbers of the designs.
_Part = tuple[tuple[int, ...], int, _Scored, np.ndarray]


def posterior(points: Measured) -> tuple[Draws, Best]:
    """Return draws of the curves that the points leave, and the likeliest of them."""
    middle = float(np.median(points.cost))
    found = designs(points.u, np.log2(points.cost))
    table = values(found.columns, points.u) * (middle / points.cost)[:, None]
    tried = _hypotheses(points, found, table)
    for look, (number, window) in enumerate(REFINED):
        likely = _likely_designs(tried, number)
        if not any(k > 1 for k in likely):
            break
        found = refined(found, likely, look)
        table = values(found.columns, points.u) * (middle / points.cost)[:, None]
        top = max(_top(by) for _, by in tried)
        tried = [(h, _score(points, found, table, h)) for h, by in tried
                 if _top(by) > top - log(window)]
    return _drawn(points, found, tried, middle)


def _likely_designs(tried: Sequence[_Hypothesis], number: int) -> dict[int, np.ndarray]:
    """Return by number of columns which designs weigh most, at most ``number`` of them."""
    best = {k: np.max([by[k].score for _, by in tried], axis=0) for k in tried[0][1]}
    top = max(float(s.max()) for s in best.values())
    flat = sorted((-float(s[i]), k, int(i)) for k, s in best.items()
                  for i in np.flatnonzero(s > top - log(WINDOW)))[:number]
    return {k: np.array([i for _, of, i in flat if of == k], dtype=np.int64)
            for k in {k for _, k, _ in flat}}


def _hypotheses(points: Measured, found: Designs, table: np.ndarray) -> list[_Hypothesis]:
    """Score all designs with nothing disturbed, and under the most likely disturbances.

    Which disturbances are likely, of one to three units, is found with designs of few columns.
    """
    tried: list[_Hypothesis] = [((), _score(points, found, table, ()))]
    if len(points.u) < 3:
        return tried
    of, family, prior = ({k: v for k, v in by.items() if k < 3}
                         for by in (found.of, found.family, found.prior))
    few = Designs(found.columns, of, family, prior, found.spacing)
    rest = _likely_units(points, found, table, tried[0])
    most = min(MOST_DISTURBED, (len(points.u) - 1) // 2)
    level = [h for size in range(1, min(most, 2) + 1) for h in combinations(rest, size)]
    ranked = sorted((-_top(_score(points, few, table, h)), h) for h in level)
    if most > 2 and len(ranked[0][1]) == 2:
        triples = {tuple(sorted((*h, u))) for _, h in ranked[:2] for u in rest if u not in h}
        ranked = sorted(ranked + [(-_top(_score(points, few, table, h)), h) for h in triples])
    return tried + [(tuple(sorted(h)), _score(points, found, table, h))
                    for score, h in ranked[:TRIED] if score < ranked[0][0] + log(WINDOW)]


def _top(scored: dict[int, _Scored]) -> float:
    return max(float(s.score.max()) for s in scored.values())


def _likely_units(points: Measured, found: Designs, table: np.ndarray,
                  best: _Hypothesis) -> list[int]:
    """Return the units that lie highest above some good design: runs, and points above their run.

    A unit is a run, or a point of a run with several: numbers from 0 for runs, then points.
    """
    above = np.full(len(points.u), -np.inf)
    for k, s in best[1].items():
        for i in np.argsort(-s.score, kind="stable")[:12]:
            above = np.maximum(above, 1.0 - table[:, found.of[k][i]] @ s.beta[i])
    size = np.bincount(points.run)
    mean = np.bincount(points.run, above) / size
    own = np.where(size[points.run] > 1, above - mean[points.run], -np.inf)
    runs = np.argsort(-mean, kind="stable")[:CANDIDATES]
    alone = [i for i in np.argsort(-own, kind="stable")[:CANDIDATES_ALONE]
             if own[i] > 2 * points.error]
    return [*(int(r) for r in runs), *(len(size) + int(i) for i in alone)]


def _precision(points: Measured, disturbed: tuple[int, ...]) -> tuple[np.ndarray, float]:
    """Return the inverse of the errors' covariance (in units of their common size squared), and
    the logarithm of its determinant."""
    runs = int(points.run.max()) + 1
    extra = (AMOUNT / points.error) ** 2
    common = np.full(runs, RUN_SHARE)
    own = (1.0 - RUN_SHARE) / points.weight
    for unit in disturbed:
        if unit < runs:
            common[unit] += extra
        else:
            own[unit - runs] += extra
    same = points.run[:, None] == points.run[None, :]
    covariance = np.where(same, common[points.run][:, None], 0.0) + np.diag(own)
    covariance *= points.scale[:, None] * points.scale[None, :]
    factor = np.linalg.inv(np.linalg.cholesky(covariance))
    return factor, 2.0 * float(np.log(np.diag(factor)).sum())


def _score(points: Measured, found: Designs, table: np.ndarray,
           disturbed: tuple[int, ...]) -> dict[int, _Scored]:
    """Return the scores of all designs under one hypothesis."""
    factor, logdet = _precision(points, disturbed)
    a = np.ascontiguousarray(np.einsum("ij,jc->ci", factor, table))
    z = factor.sum(axis=1)
    right, total = a @ z, float(z @ z)
    dof = len(z) + PRIOR_DOF
    runs = int(points.run.max()) + 1
    out = {}
    for k, which in found.of.items():
        rows = a[which]
        m = np.matmul(rows, rows.transpose(0, 2, 1))
        # coefficients beyond the first are known beforehand to be no more than LARGE
        diagonal = np.arange(1, k)
        m[:, diagonal, diagonal] += (points.error / LARGE) ** 2
        b = right[which]
        low = _cholesky(m)
        beta = _solve(low, b)
        square = np.maximum(total - (beta * b).sum(axis=1), 0.0) + PRIOR_DOF * points.error ** 2
        size = square / dof
        sd = np.sqrt(np.maximum(_variances(low), 0.0) * size[:, None])
        diag = low[:, np.arange(k), np.arange(k)]
        score = (found.prior[k] + 0.5 * logdet - 0.5 * dof * np.log(square / dof)
                 + lgamma(0.5 * (dof - 1.0)) - np.log(diag[:, 0]))
        for j in range(1, k):
            t = beta[:, j] / sd[:, j]
            wide = 0.5 * np.log(2 * np.pi * size) - np.log(diag[:, j])
            height = np.log((np.maximum(beta[:, j], sd[:, j]) + SMALL)
                            * log((LARGE + SMALL) / SMALL))
            score += np.minimum(wide - height, 0.0) + _log_positive(t)
        score += np.where(beta[:, 0] > 0, 0.0, -50.0)
        for unit in disturbed:
            of = points.run == unit if unit < runs else np.arange(len(z)) == unit - runs
            above = 1.0 - np.einsum("pdk,dk->d", table[of][:, which], beta) / of.sum()
            score += log(DISTURBED) + np.minimum(0.7, _log_positive(above / points.error) + 0.7)
        out[k] = _Scored(score, beta, low, square)
    return out


def _log_positive(t: np.ndarray) -> np.ndarray:
    """Return about log of the share of a normal distribution around ``t`` above zero."""
    below = np.minimum(t, 0.0)
    return np.where(t > 0, -0.69 * np.exp(-1.2 * np.maximum(t, 0.0)),
                    -0.69 - 0.5 * below * below - np.log1p(-below))


def _cholesky(m: np.ndarray) -> np.ndarray:
    """Return the Cholesky factors of many small matrices."""
    k = m.shape[1]
    low = np.zeros_like(m)
    for i in range(k):
        for j in range(i + 1):
            s = m[:, i, j] - (low[:, i, :j] * low[:, j, :j]).sum(axis=1)
            low[:, i, j] = np.sqrt(np.maximum(s, 1e-12)) if i == j else s / low[:, j, j]
    return low


def _forward(low: np.ndarray, b: np.ndarray) -> np.ndarray:
    y = np.zeros_like(b)
    for i in range(b.shape[1]):
        y[:, i] = (b[:, i] - (low[:, i, :i] * y[:, :i]).sum(axis=1)) / low[:, i, i]
    return y


def _backward(low: np.ndarray, y: np.ndarray) -> np.ndarray:
    x = np.zeros_like(y)
    k = y.shape[1]
    for i in reversed(range(k)):
        x[:, i] = (y[:, i] - (low[:, i + 1:, i] * x[:, i + 1:]).sum(axis=1)) / low[:, i, i]
    return x


def _solve(low: np.ndarray, b: np.ndarray) -> np.ndarray:
    return _backward(low, _forward(low, b))


def _variances(low: np.ndarray) -> np.ndarray:
    """Return the diagonals of the inverses."""
    out = np.zeros(low.shape[:2])
    for i in range(low.shape[1]):
        unit = np.zeros(low.shape[:2])
        unit[:, i] = 1.0
        out[:, i] = (_forward(low, unit) ** 2).sum(axis=1)
    return out


@lru_cache(maxsize=4)
def _random(number: int) -> np.ndarray:
    """Return the same normal draws always: (number, 4)."""
    return np.random.Generator(np.random.PCG64(20110711)).standard_normal((number, 4))


def _drawn(points: Measured, found: Designs,
           tried: Sequence[_Hypothesis], middle: float) -> tuple[Draws, Best]:
    """Draw curves from all designs and hypotheses, each as often as it weighs."""
    parts: list[_Part] = [(h, k, s, np.flatnonzero(s.score > -np.inf))
                          for h, by in tried for k, s in by.items()]
    score = np.concatenate([s.score[i] for _, _, s, i in parts])
    weight = np.exp(score - score.max())
    weight[weight < 1.0 / WINDOW] = 0.0
    upto = np.cumsum(weight / weight.sum())
    picks = np.searchsorted(upto, (np.arange(DRAWS) + 0.5) / DRAWS).clip(0, len(score) - 1)
    dof = len(points.u) + PRIOR_DOF
    normal = _random(DRAWS)
    # sums of squares of errors, by the cube-root approximation (Wilson and Hilferty)
    chi = dof * np.maximum(1 - 2 / (9 * dof) + normal[:, 3] * np.sqrt(2 / (9 * dof)), 0.1) ** 3
    which = np.zeros((DRAWS, 3), dtype=np.int64)
    coefficient, error, importance = np.zeros((DRAWS, 3)), np.zeros(DRAWS), np.zeros(DRAWS)
    families: dict[str, float] = {}
    start = 0
    for _, k, s, i in parts:
        inside = np.flatnonzero((picks >= start) & (picks < start + len(i)))
        at = i[picks[inside] - start]
        which[inside, :k] = found.of[k][at]
        size = np.sqrt(s.square[at] / chi[inside])
        beta = s.beta[at] + _backward(s.factor[at], normal[inside, :k] * size[:, None])
        # where a coefficient came out negative, its mirror image around zero
        beta = np.abs(beta)
        estimate = np.maximum(s.beta[at], 0.0)
        ratio = np.prod((estimate[:, 1:] + SMALL) / (beta[:, 1:] + SMALL), axis=1)
        importance[inside] = np.clip(ratio, 0.2, 5.0)
        coefficient[inside, :k] = beta * middle
        error[inside] = size
        for name, w in zip(found.family[k][i], weight[start:start + len(i)], strict=True):
            if w > 0:
                families[str(name)] = families.get(str(name), 0.0) + float(w)
        start += len(i)
    total = sum(families.values())
    shares = {name: w / total for name, w in families.items()}
    best = _best(points, found, parts, shares, middle)
    return Draws(found.columns, which, coefficient, importance / importance.sum(), error), best


def _best(points: Measured, found: Designs, parts: Sequence[_Part], shares: dict[str, float],
          middle: float) -> Best:
    """Return the likeliest design of the family that weighs most in all."""
    family = max(shares, key=lambda name: shares[name])
    top, where = -np.inf, (0, 0)
    for number, (_, k, s, i) in enumerate(parts):
        score = np.where(found.family[k][i] == family, s.score[i], -np.inf)
        if score.max() > top:
            top, where = float(score.max()), (number, int(i[np.argmax(score)]))
    h, k, s, _ = parts[where[0]]
    j = where[1]
    return Best(family, tuple(found.columns[c] for c in found.of[k][j]),
                tuple(float(b) * middle for b in np.maximum(s.beta[j], 0.0)), h, shares,
                float(np.sqrt(s.square[j] / (len(points.u) + PRIOR_DOF))))
