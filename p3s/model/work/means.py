"""The mean work of a rank as a law of the process grid: sums of few terms (p3s.laws.sums).

Sums that predict counts left out about equally well are averaged in the logarithm, so that noise
does not decide between them; of exact work one is so much better that the others have no weight.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np

from p3s.laws.expr import Expr, evaluate
from p3s.laws.sums import columns, near, search_sums, shapes
from p3s.model.work_types import MeanLaw


def fit_mean(
    grids: Sequence[Mapping[str, int]], values: Sequence[float], logs: bool = False
) -> MeanLaw | None:
    """Return the law of values at grids (n, p0, ... each), ascending counts; None of no work."""
    known = [i for i, v in enumerate(values) if v > 0]
    if not known:
        return None
    at = tuple(tuple(sorted(grids[i].items())) for i in known)
    points = tuple(float(values[i]) for i in known)
    error = None
    if len(points) > 2:
        held = MeanLaw(_laws(at[:-1], points[:-1], logs), None)
        error = abs(float(np.log(mean_at(held, dict(at[-1])) / points[-1])))
    return MeanLaw(_laws(at, points, logs), error)


def mean_at(law: MeanLaw, grid: Mapping[str, int]) -> float:
    """Return the mean at a grid (n, p0, ...)."""
    logs = [weight * np.log(max(v, 1e-300)) for weight, v in _values(law, grid)]
    return float(np.exp(sum(logs)))


def spread_at(law: MeanLaw, grid: Mapping[str, int]) -> float:
    """Return how far the laws that are averaged lie apart there: a deviation of logarithms."""
    found = _values(law, grid)
    weight = np.array([w for w, _ in found])
    logs = np.log(np.maximum([v for _, v in found], 1e-300))
    return float(np.sqrt(weight @ (logs - weight @ logs) ** 2))


def _values(law: MeanLaw, grid: Mapping[str, int]) -> list[tuple[float, float]]:
    env = {name: np.array([float(v)]) for name, v in grid.items()}
    return [
        (weight, sum(c * float(np.broadcast_to(evaluate(e, env), 1)[0]) for c, e in terms))
        for weight, terms in law.laws
    ]


@lru_cache(maxsize=1024)
def _laws(
    grids: tuple[tuple[tuple[str, int], ...], ...], values: tuple[float, ...], logs: bool
) -> tuple[tuple[float, tuple[tuple[float, Expr], ...]], ...]:
    y = np.array(values)
    terms = shapes(len(grids[0]) - 1, logs)
    x = columns([dict(g) for g in grids], [term for term, _ in terms])
    found = near(search_sums(x, y, np.arange(len(y)), [bits for _, bits in terms]))
    return tuple(
        (weight, tuple((c, terms[i][0]) for i, c in zip(s.which, s.coef, strict=True)))
        for weight, s in found
    )
