"""Which curves the points leave, each with its weight: designs x what may have been disturbed.

A design is a choice of columns (families.py), a hypothesis says which runs or points something
disturbed (scoring.py). The weight of both is their marginal likelihood (Hoeting et al., Bayesian
Model Averaging, 1999), which is how well each point is predicted from the others, so that needless
columns cost. Steps are tried on a grid, and the likely ones again closer by. Equal points give
equal results: the draws are always the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, groupby
from math import isfinite, lgamma, log, log2

import numpy as np

from p3s.costs.families import Column, Designs, designs, refined, values, with_three_steps
from p3s.costs.points import Point, per_rank

#: Share of the variance that is common to a run; the rest is a point's own.
RUN_SHARE = 0.5
#: Prior of the relative error: as if PRIOR_DOF errors had been seen, of the size that the repeats
#: tell (KEPT of it is left in the least of them), at least LEAST_ERROR, ASSUMED where nothing was
#: repeated.
PRIOR_DOF, LEAST_ERROR, ASSUMED, KEPT = 4.0, 0.007, 0.015, 0.7
#: How often a run or a point is disturbed, by what typical amount (share of what is then seen).
DISTURBED, AMOUNT = 0.05, 0.12
#: Relative, of squares of columns: keeps those that are alike but for rounding apart.
ROUNDING = 1e-12
#: Prior of a coefficient h (share of the middle cost): 1/(h + SMALL) up to LARGE.
SMALL, LARGE = 0.04, 4.0


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
class Scored:
    """Designs of k columns under one hypothesis: score (log weight), coefficients (designs, k),
    lower Cholesky factor of the precision (designs, k, k), sum of squares."""

    score: np.ndarray
    beta: np.ndarray
    factor: np.ndarray
    square: np.ndarray


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


def score(
    points: Measured,
    found: Designs,
    table: np.ndarray,
    disturbed: tuple[int, ...],
    grid: float = 0.0,
) -> dict[int, Scored]:
    """Return the scores of all designs under one hypothesis, by the number of columns.

    table: the columns at the points, relative to the costs (points, columns). grid: relative error
    that the distance of the steps' places makes; errors count as no smaller.
    """
    factor, logdet = _precision(points, disturbed)
    a = np.ascontiguousarray((factor @ table).T)
    z = factor.sum(axis=1)
    right, total = a @ z, float(z @ z)
    ridge = (points.error / LARGE) ** 2
    out = {}
    for k, which in found.of.items():
        # designs of several columns begin with the constant; coefficients beyond the first are
        # known beforehand to be no more than LARGE
        columns = a[which]
        matrix = columns @ columns.transpose(0, 2, 1)
        matrix[:, range(k), range(k)] *= 1.0 + ROUNDING
        matrix[:, range(1, k), range(1, k)] += ridge
        b = right[which]
        low = np.linalg.cholesky(matrix)
        beta = np.linalg.solve(matrix, b[..., None])[..., 0]
        square = total + PRIOR_DOF * points.error**2 - (beta * b).sum(axis=1)
        square = np.maximum(square, PRIOR_DOF * points.error**2)
        worth = found.prior[k] + 0.5 * logdet + _worth(points, low, beta, square, grid)
        for unit in disturbed:
            worth += log(DISTURBED) + _above(points, table, which, beta, unit)
        out[k] = Scored(worth, beta, low, square)
    return out


def _worth(
    points: Measured, low: np.ndarray, beta: np.ndarray, square: np.ndarray, grid: float
) -> np.ndarray:
    """Return the logarithm of the marginal likelihood, up to what all designs share."""
    dof = len(points.u) + PRIOR_DOF
    size = np.maximum(square / dof, grid**2)
    worth: np.ndarray = -np.log(low[:, 0, 0]) + np.where(beta[:, 0] > 0, 0.0, -50.0)
    if grid > points.error:
        worth -= 0.5 * square / grid**2 + len(points.u) * log(grid)
    else:
        worth -= 0.5 * dof * np.log(size) - lgamma(0.5 * (dof - 1.0))
    variance = (np.linalg.inv(low) ** 2).sum(axis=1)  # the diagonal of the inverse of the precision
    for j in range(1, low.shape[1]):
        sd = np.sqrt(variance[:, j] * size)
        # what the prior of the coefficient holds of its likelihood, at most all
        share = 0.5 * np.log(2 * np.pi * size) - np.log(
            low[:, j, j] * (np.maximum(beta[:, j], sd) + SMALL) * log((LARGE + SMALL) / SMALL)
        )
        worth += np.minimum(share, 0.0) + _log_positive(beta[:, j] / sd)
    return worth


def _above(
    points: Measured, table: np.ndarray, which: np.ndarray, beta: np.ndarray, unit: int
) -> np.ndarray:
    """Return what it adds that a disturbed unit lies above the curve, as it should."""
    runs = int(points.run.max()) + 1
    of = points.run == unit if unit < runs else np.arange(len(points.u)) == unit - runs
    above = 1.0 - (beta * table[of].mean(axis=0)[which]).sum(axis=1)
    return np.asarray(np.minimum(0.7, _log_positive(above / points.error) + 0.7))


def _log_positive(t: np.ndarray) -> np.ndarray:
    """Return about log of the share of a normal distribution around ``t`` above zero."""
    below = np.minimum(t, 0.0)
    result: np.ndarray = np.where(
        t > 0,
        -0.69 * np.exp(-1.2 * np.maximum(t, 0.0)),
        -0.69 - 0.5 * below * below - np.log1p(-below),
    )
    return result


#: How many repeats the error common to all points counts as, against those of similar x.
LOCAL = 6.0
#: Groups of ranks of a run are joined where x differs by less than this many doublings; at most so
#: many are left of a run.
SAME, MOST_GROUPS = 0.07, 6


def usable_points(points: Sequence[Point]) -> list[Point]:
    """Return the points with work and time, by x; similar groups of ranks of a run are one."""
    good = sorted(
        (p for p in points if all(isfinite(v) and v > 0 for v in (p.work, p.least_ns, p.x))),
        key=lambda p: (p.source, p.traced, p.x, p.work, p.least_ns, p.typical_ns),
    )
    out: list[Point] = []
    for _, of in groupby(good, key=lambda p: (p.source, p.traced)):
        run = list(of)
        width = max(SAME, log2(run[-1].x / run[0].x) / MOST_GROUPS)
        start, group = run[0].x, [run[0]]
        for p in run[1:]:
            if log2(p.x / start) > width:
                out.append(_joined(group))
                start, group = p.x, []
            group.append(p)
        out.append(_joined(group))
    return sorted(out, key=lambda p: (p.x, p.source, p.traced))


def _joined(group: Sequence[Point]) -> Point:
    """Return the mean of groups of ranks, each weighing as its ranks."""
    if len(group) == 1:
        return group[0]
    group = [p._replace(ranks=max(p.ranks, 1)) for p in group]
    ranks = sum(p.ranks for p in group)
    out = per_rank(group, ranks, group[0].place)
    return out._replace(
        x=float(sum(p.x * p.ranks for p in group) / ranks),
        typical_ns=max(out.typical_ns, out.least_ns),
    )


def measured_points(points: Sequence[Point]) -> tuple[Measured, list[str]]:
    """Return usable points as arrays, and the names of the runs ("source@count")."""
    names = sorted({(p.source, p.traced) for p in points})
    number = {name: i for i, name in enumerate(names)}
    weight = np.array([min(8.0, max(1, p.ranks * p.repeats)) for p in points]) ** (1 / 3)
    u = np.log2([p.x for p in points])
    error, scale = _errors(points, u)
    measured = Measured(
        u,
        np.array([p.cost for p in points]),
        np.array([number[p.source, p.traced] for p in points]),
        weight / weight.mean(),
        error,
        scale,
    )
    return measured, [f"{source}@{traced}" for source, traced in names]


def _errors(points: Sequence[Point], u: np.ndarray) -> tuple[float, np.ndarray]:
    """Return the error to expect of a point, from its repeats, and each one's relative to that.

    How far the median of the repeats lies above the least tells more than their range, which one
    disturbed repeat makes. Runs at similar x tell about one another: what comes from memory
    differs more from run to run than what comes from caches.
    """
    repeats = np.array([p.repeats for p in points])
    gap = np.array([max(p.typical_ns / p.least_ns - 1.0, 0.0) for p in points])
    # mean distance of the median of so many normal values from the least, in standard deviations
    sigma = gap / np.interp(repeats, (2, 3, 4, 5, 7, 10), (0.56, 0.85, 1.03, 1.16, 1.35, 1.54))
    told = np.minimum(repeats - 1.0, 4.0)
    if not told.any():
        return ASSUMED, np.ones(len(points))
    error = float(np.hypot(LEAST_ERROR, KEPT * np.median(sigma[told > 0])))
    near = np.exp(-0.5 * (u[:, None] - u[None, :]) ** 2) * told
    own = np.hypot(LEAST_ERROR, KEPT * np.minimum(sigma, 0.3)) ** 2
    each = np.sqrt((LOCAL * error**2 + near @ own) / (LOCAL + near.sum(axis=1)))
    return min(error, 0.2), np.clip(each / error, 0.5, 4.0)


#: How many disturbed units at most; how many of them are tried with all designs, and how many
#: single points of runs are thought of.
MOST_DISTURBED, CANDIDATES, POINTS_ALONE = 3, 4, 2
#: Kept: pairs of design and hypothesis within this factor of the best.
WINDOW = 1000.0
#: How many hypotheses of several disturbed units are tried with all designs.
SEVERAL = 2
#: Steps are looked at again, closer, twice: of how many designs, under which hypotheses (within
#: this factor of the best), and what relative error the grid makes before that.
REFINED = ((30, 60.0, 0.03), (14, 30.0, 0.01))
DRAWS = 500


@dataclass(frozen=True)
class Draws:
    """Draws of curves: coefficient (draws, 4) of the columns ``which`` (draws, 4; unused ones have
    coefficient 0), weight (sums to one), error: the relative size of errors in each draw."""

    columns: list[Column]
    which: np.ndarray
    coefficient: np.ndarray
    weight: np.ndarray
    error: np.ndarray

    def curves(self, u: np.ndarray) -> np.ndarray:
        """Return the cost of every draw at ``u``: (draws, points)."""
        table = values(self.columns, u).T
        result: np.ndarray = np.einsum("dk,dkp->dp", self.coefficient, table[self.which])
        return result


@dataclass(frozen=True)
class Best:
    """The likeliest design: family, columns, coefficients; what was disturbed; families' shares."""

    family: str
    columns: tuple[Column, ...]
    coefficient: tuple[float, ...]
    disturbed: tuple[int, ...]
    families: dict[str, float]


#: What was disturbed, and the scores under it by the number of columns.
_Hypothesis = tuple[tuple[int, ...], dict[int, Scored]]
#: What was disturbed, number of columns, scores, numbers of the designs.
_Part = tuple[tuple[int, ...], int, Scored, np.ndarray]


def posterior(points: Measured) -> tuple[Draws, Best]:
    """Return draws of the curves that the points leave, and the likeliest of them."""
    middle = float(np.median(points.cost))
    found = designs(points.u, np.log2(points.cost))
    table = values(found.columns, points.u) * (middle / points.cost)[:, None]
    tried = _hypotheses(points, found, table, REFINED[0][2])
    more = with_three_steps(found, _likely_designs(tried, REFINED[0][0]), points.u)
    if more is not found:
        found = more
        tried = [
            (h, score(points, found, table, h, REFINED[0][2]))
            for h in _likely_hypotheses(tried, REFINED[0][1])
        ]
    for look, (number, window, _) in enumerate(REFINED):
        found = refined(found, _likely_designs(tried, number), look)
        table = values(found.columns, points.u) * (middle / points.cost)[:, None]
        grid = REFINED[look + 1][2] if look + 1 < len(REFINED) else 0.0
        tried = [
            (h, score(points, found, table, h, grid)) for h in _likely_hypotheses(tried, window)
        ]
    return _drawn(points, found, tried, middle)


def _likely_hypotheses(tried: Sequence[_Hypothesis], window: float) -> list[tuple[int, ...]]:
    """Return the hypotheses within a factor of the best, and always that nothing was disturbed."""
    top = max(_top(by) for _, by in tried)
    return [h for h, by in tried if not h or _top(by) > top - log(window)]


def _likely_designs(tried: Sequence[_Hypothesis], number: int) -> dict[int, np.ndarray]:
    """Return by number of columns which designs weigh most, at most ``number`` of them."""
    best = {k: np.max([by[k].score for _, by in tried], axis=0) for k in tried[0][1]}
    top = max(float(s.max()) for s in best.values())
    flat = sorted(
        (-float(s[i]), k, int(i))
        for k, s in best.items()
        for i in np.flatnonzero(s > top - log(WINDOW))
    )[:number]
    return {
        k: np.array([i for _, of, i in flat if of == k], dtype=np.int64)
        for k in {k for _, k, _ in flat}
    }


def _hypotheses(
    points: Measured, found: Designs, table: np.ndarray, grid: float
) -> list[_Hypothesis]:
    """Score all designs with nothing disturbed, with one unit, and with the likeliest two or three.

    Which are likely is found with the designs of few columns.
    """
    tried: list[_Hypothesis] = [((), score(points, found, table, (), grid))]
    most = min(MOST_DISTURBED, (len(points.u) - 1) // 2)
    if most < 1:
        return tried
    of, family, prior = (
        {k: v for k, v in by.items() if k < 3} for by in (found.of, found.family, found.prior)
    )
    few = Designs(found.columns, of, family, prior, found.spacing)

    def ranked(several: Iterable[tuple[int, ...]]) -> list[tuple[int, ...]]:
        worth = {h: _top(score(points, few, table, h, grid)) for h in several}
        return sorted(worth, key=lambda h: (-worth[h], h))

    alone = ranked((u,) for u in _units(points, found, table, tried[0][1]))[:CANDIDATES]
    units = sorted(h[0] for h in alone)
    best = ranked(combinations(units, 2))[:SEVERAL] if most > 1 else []
    if most > 2:
        best = ranked(
            {*best, *(tuple(sorted((*h, u))) for h in best[:2] for u in units if u not in h)}
        )[:SEVERAL]
    return tried + [(h, score(points, found, table, h, grid)) for h in (*alone, *best)]


def _top(scored: dict[int, Scored]) -> float:
    return max(float(s.score.max()) for s in scored.values())


def _units(
    points: Measured, found: Designs, table: np.ndarray, scored: dict[int, Scored]
) -> list[int]:
    """Return what may have been disturbed: runs, and single points that lie above their run.

    Numbers from 0 for runs, then for points of runs with several.
    """
    above = np.full(len(points.u), -np.inf)
    for k, s in scored.items():
        for i in np.argsort(-s.score, kind="stable")[:12]:
            above = np.maximum(above, 1.0 - table[:, found.of[k][i]] @ s.beta[i])
    size = np.bincount(points.run)
    mean = np.bincount(points.run, above) / size
    own = np.where(size[points.run] > 1, above - mean[points.run], -np.inf)
    alone = [
        len(size) + int(i)
        for i in np.argsort(-own, kind="stable")[:POINTS_ALONE]
        if own[i] > 2 * points.error
    ]
    return [*range(len(size)), *alone]


@lru_cache(maxsize=4)
def _random(number: int) -> np.ndarray:
    """Return the same normal draws always: (number, 5)."""
    return np.random.Generator(np.random.PCG64(20110711)).standard_normal((number, 5))


def _drawn(
    points: Measured, found: Designs, tried: Sequence[_Hypothesis], middle: float
) -> tuple[Draws, Best]:
    """Draw curves from all designs and hypotheses, each as often as it weighs."""
    parts: list[_Part] = [
        (h, k, s, np.flatnonzero(s.score > -np.inf)) for h, by in tried for k, s in by.items()
    ]
    total = np.concatenate([s.score[i] for _, _, s, i in parts])
    weight = np.exp(total - total.max())
    weight[weight < 1.0 / WINDOW] = 0.0
    upto = np.cumsum(weight / weight.sum())
    picks = np.searchsorted(upto, (np.arange(DRAWS) + 0.5) / DRAWS).clip(0, len(total) - 1)
    dof = len(points.u) + PRIOR_DOF
    normal = _random(DRAWS)
    # sums of squares of errors, by the cube-root approximation (Wilson and Hilferty)
    chi = dof * np.maximum(1 - 2 / (9 * dof) + normal[:, 4] * np.sqrt(2 / (9 * dof)), 0.1) ** 3
    which = np.zeros((DRAWS, 4), dtype=np.int64)
    coefficient, error, importance = np.zeros((DRAWS, 4)), np.zeros(DRAWS), np.zeros(DRAWS)
    families: dict[str, float] = {}
    start = 0
    for _, k, s, i in parts:
        inside = np.flatnonzero((picks >= start) & (picks < start + len(i)))
        at = i[picks[inside] - start]
        which[inside, :k] = found.of[k][at]
        size = np.sqrt(s.square[at] / chi[inside])
        middle_of = s.beta[at]
        upper = s.factor[at].transpose(0, 2, 1)
        away = np.linalg.solve(upper, (normal[inside, :k] * size[:, None])[..., None])[..., 0]
        # where a coefficient comes out negative, its mirror image around zero
        beta = np.abs(middle_of + away)
        estimate = np.maximum(middle_of, 0.0)
        ratio = np.prod((estimate[:, 1:] + SMALL) / (beta[:, 1:] + SMALL), axis=1)
        importance[inside] = np.clip(ratio, 0.2, 5.0)
        coefficient[inside, :k] = beta * middle
        error[inside] = size
        for name, w in zip(found.family[k][i], weight[start : start + len(i)], strict=True):
            if w > 0:
                families[str(name)] = families.get(str(name), 0.0) + float(w)
        start += len(i)
    shares = {name: w / sum(families.values()) for name, w in families.items()}
    best = _best(found, parts, shares, middle)
    return Draws(found.columns, which, coefficient, importance / importance.sum(), error), best


def _best(found: Designs, parts: Sequence[_Part], shares: dict[str, float], middle: float) -> Best:
    """Return the likeliest design of the family that weighs most in all."""
    family = max(shares, key=lambda name: shares[name])
    top, where = -np.inf, (0, 0)
    for number, (_, k, s, i) in enumerate(parts):
        worth = np.where(found.family[k][i] == family, s.score[i], -np.inf)
        if worth.max() > top:
            top, where = float(worth.max()), (number, int(i[np.argmax(worth)]))
    h, k, s, _ = parts[where[0]]
    j = where[1]
    return Best(
        family,
        tuple(found.columns[c] for c in found.of[k][j]),
        tuple(max(0.0, float(b)) * middle for b in s.beta[j]),
        h,
        shares,
    )
