"""Element counts of one slot as a law of grid extents, coordinates, stages and iterations."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from p3s.laws.expr import num, sym
from p3s.model.sizes.attempts import Attempts
from p3s.model.sizes.blocks import Axis, ExtentPool, FittedSize, Observations
from p3s.model.sizes.diagonal import fit_diagonal
from p3s.model.sizes.levels import fit_chunks, fit_levels
from p3s.model.sizes.linear import fit_branch, fit_linear
from p3s.model.sizes.positions import decides, moving


def fit_elements(obs: Observations, pool: ExtentPool) -> FittedSize | None:
    """Return an exact law of the element counts, or None.

    obs: every (count, rank, stage, iteration) at which the slot was seen. A constant first, then
    products of blocks, then what is none: a law of n and the extents alone, blocks at affine
    positions, sums over the cells of a multi-partition. Sizes that change from turn to turn have
    laws of their own. The extents of the law are noted in ``pool``.
    """
    obs = distinct(obs)
    if len(obs.value) == 0:
        return None
    key = obs.digest()
    state, law = pool.known.get(key, (None, None))
    if state is None or (state != pool.state() and (law is None or law.open())):
        before = pool.state()
        law = _fit(obs, pool)
        pool.known[key] = (before, law)
    result: FittedSize | None = law
    return result


def known_law(obs: Observations, pool: ExtentPool) -> FittedSize | None:
    """Return the law that was found for element counts."""
    law: FittedSize | None = pool.known.get(distinct(obs).digest(), (None, None))[1]
    return law


def distinct(obs: Observations) -> Observations:
    """Return the observations that tell something: each once, idle iterations forgotten."""
    return _without_idle(obs).unique()


def _without_idle(obs: Observations) -> Observations:
    """Forget iterations and stages that tell no sizes apart."""
    for u in moving(obs):
        rest = [obs.env[v] for v in ("t", "s") if v in obs.env and v != u]
        ranks = Axis(sym("n"), sym("r"), obs.env["n"], obs.env["r"])
        if decides(obs, [ranks], rest) or (
            "q0" in obs.env and decides(obs, _partner(obs), rest)  # the sender's own sizes
        ):
            env = {**obs.env, u: np.zeros(len(obs.value), dtype=np.int64)}
            obs = Observations(env, obs.value, obs.ndims, obs.across, obs.whole)
    return obs


def _partner(obs: Observations) -> list[Axis]:
    """Return the axes of the partner's place."""
    names = [(sym(f"p{d}"), sym(f"q{d}")) for d in range(obs.ndims)]
    return [Axis(p, q, obs.env[str(p[1])], obs.env[str(q[1])]) for p, q in names]


def _fit(obs: Observations, pool: ExtentPool) -> FittedSize | None:
    counts = np.unique(obs.env["n"])
    if np.all(obs.value == obs.value[0]):
        return FittedSize(num(int(obs.value[0])), 1, len(counts))
    if len(counts) < 2 or np.any(obs.value < 0):
        return None
    return next((law for step in _steps(obs, pool) if (law := step()) is not None), None)


def _steps(obs: Observations, pool: ExtentPool) -> Iterator[Callable[[], FittedSize | None]]:
    fit = Attempts(obs, pool)
    yield lambda: fit_branch(obs)
    if moving(obs):
        yield fit.level_scalar
        yield fit.affine
        yield lambda: fit_linear(obs)
        yield lambda: fit_levels(obs, pool, fit_elements)
        yield lambda: fit_chunks(obs, pool, fit_elements)
        return
    yield fit.blocks
    yield fit.scalar
    yield fit.header
    yield fit.multiplied
    yield fit.over_two
    yield lambda: fit_linear(obs)
    yield fit.affine
    yield lambda: fit_diagonal(obs, pool)
    yield fit.complement
