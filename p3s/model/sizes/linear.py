"""Sizes that rise or fall by as much from rank to rank, and those in proportion to a branch."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import numpy as np

from p3s.laws.expr import Expr, add, mul, num, sym
from p3s.laws.whole import evaluate_int
from p3s.model.sizes.blocks import FittedSize, Observations

#: Different values that a symbol needs at one count, and rows beyond the numbers of a law.
_VALUES, _SPARE = 3, 3


def fit_branch(obs: Observations) -> FittedSize | None:
    """Return a size as a number times the ranks of a tree's branch: data dealt down a tree."""
    if "b" not in obs.env or np.any(obs.env["b"] <= 0):
        return None
    ranks = obs.env["b"]
    factor = int(obs.value[0]) // int(ranks[0])
    several = len(np.unique(ranks)) >= _VALUES
    if not (several and factor and np.array_equal(obs.value, factor * ranks)):
        return None
    return FittedSize(mul(num(factor), sym("b")), 1, len(np.unique(obs.env["n"])))


def fit_linear(obs: Observations) -> FittedSize | None:
    """Return a size as a * x + b or a * x + e * p + b, with whole numbers.

    x: the rank or a coordinate, or the partner's, the iteration or the stage; p: n or an extent.
    Laws of other symbols that meet all sizes, too, are kept beside the first.
    """
    found = list(_met(obs))
    if not found:
        return None
    (free, expr), *others = sorted(found, key=lambda each: each[0])
    points = len(np.unique(obs.env["n"]))
    return FittedSize(expr, free, points, others=tuple(e for _, e in others))


def _met(obs: Observations) -> Iterator[tuple[int, Expr]]:
    steps = [u for u in _symbols(obs, "rcqts") if _several(obs, u)]
    extents = [u for u in _symbols(obs, "np") if len(np.unique(obs.env[u])) > 1]
    for names in (*((x,) for x in steps), *((x, p) for x in steps for p in extents)):
        expr = _solved(obs, names)
        if expr is not None:
            yield len(names) + 1, expr
    if not steps:
        return
    for pair in combinations(steps, 2):
        expr = _solved(obs, pair)
        if expr is not None:
            yield len(pair) + 1, expr


def _symbols(obs: Observations, letters: str) -> list[str]:
    names = {"n", "r", "t", "s"} | {f"{k}{d}" for k in "pcq" for d in range(obs.ndims)}
    if obs.ndims == 1:
        names -= {"p0", "c0"}
    return [u for u in obs.env if u in names and u[0] in letters]


def _several(obs: Observations, name: str) -> bool:
    n = obs.env["n"]
    return any(len(np.unique(obs.env[name][n == m])) >= _VALUES for m in np.unique(n))


def _solved(obs: Observations, names: tuple[str, ...]) -> Expr | None:
    """Return the sum that meets every size, None where there is none or too little to show it."""
    columns = np.stack(
        [*(obs.env[u].astype(float) for u in names), np.ones(len(obs.value))], axis=1
    )
    if len(np.unique(columns, axis=0)) < columns.shape[1] + _SPARE:
        return None
    numbers, _, rank, _ = np.linalg.lstsq(columns, obs.value.astype(float), rcond=None)
    whole = np.rint(numbers).astype(np.int64)
    if rank < columns.shape[1] or np.any(np.abs(numbers - whole) > 1e-6) or np.any(whole[:-1] == 0):
        return None
    terms = [mul(num(int(k)), sym(u)) for k, u in zip(whole[:-1], names, strict=True)]
    expr = add(*terms, num(int(whole[-1])))
    return expr if np.array_equal(evaluate_int(expr, obs.env), obs.value) else None
