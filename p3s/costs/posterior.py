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
from itertools import combinations
from math import log

import numpy as np

from p3s.costs.families import Column, Designs, designs, refined, values, with_three_steps
from p3s.costs.scoring import PRIOR_DOF, SMALL, Measured, Scored, score

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
    error: float


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
    best = _best(points, found, parts, shares, middle)
    return Draws(found.columns, which, coefficient, importance / importance.sum(), error), best


def _best(
    points: Measured,
    found: Designs,
    parts: Sequence[_Part],
    shares: dict[str, float],
    middle: float,
) -> Best:
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
        float(np.sqrt(s.square[j] / (len(points.u) + PRIOR_DOF))),
    )
