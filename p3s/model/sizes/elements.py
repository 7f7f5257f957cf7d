"""Element counts as laws of grid extents, coordinates, stages and iterations, simplest first."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from p3s.laws.expr import num, sym
from p3s.model.sizes.attempts import Attempts
from p3s.model.sizes.blocks import Axis, ExtentPool, FittedSize, Observations
from p3s.model.sizes.diagonal import fit_diagonal
from p3s.model.sizes.joint import alone
from p3s.model.sizes.levels import blocks_in, fit_chunks, fit_levels
from p3s.model.sizes.linear import fit_branch, fit_linear
from p3s.model.sizes.positions import decides, moving


def fit_elements(obs: Observations, pool: ExtentPool) -> FittedSize | None:
    """Return the simplest exact law for the element counts, or None.

    obs: every (count, rank, stage, iteration) at which the slot was seen. A constant first; then
    the cheapest product of blocks, or a law of n and the extents alone where that is cheaper; other
    forms only where no blocks fit. Sizes that change from turn to turn have laws of their own. The
    extents of the law found are noted in ``pool``."""
    obs = distinct(obs)
    if len(obs.value) == 0:
        return None
    key = obs.digest()
    state, law = pool.known.get(key, (None, None))
    if state is None or (state != pool.state() and (law is None or law.open())):
        law = _fit(obs, pool)
        pool.known[key] = (pool.state(), law)
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
    fit = Attempts(obs, pool, counts)
    if moving(obs):
        return _first(_turned(fit))
    law = fit_branch(obs)
    if law is not None:
        return law
    found = alone(obs, pool.typed)
    law = None if obs.across or found.plain or not found.usual else fit.scalar(1)
    if not found.usual:
        law = _first(_others(fit))
    if law is not None and found.law is not None:
        found = alone(obs, pool.typed, law)
    if found.law is None:
        return law
    for _, kind, extent, *_ in blocks_in(found.law.expr):
        if extent[0] == "num":
            pool.note(extent[1], kind, sure=not found.law.others)
    return found.law


def _first(steps: Iterable[Callable[[], FittedSize | None]]) -> FittedSize | None:
    """Return what the first of attempts that has a law leads to."""
    return next((law for step in steps if (law := step()) is not None), None)


def _turned(fit: Attempts) -> Iterable[Callable[[], FittedSize | None]]:
    """Return the attempts for sizes that change from turn to turn."""
    return (
        fit.level_scalar,
        fit.header,
        fit.affine,
        lambda: fit_linear(fit.obs),
        lambda: fit_levels(fit.obs, fit.pool, fit_elements),
        lambda: fit_chunks(fit.obs, fit.pool, fit_elements),
    )


def _others(fit: Attempts) -> Iterable[Callable[[], FittedSize | None]]:
    """Return the attempts for sizes that are no product of blocks."""
    return (
        fit.empty,
        fit.header,
        fit.scalar,
        fit.multiplied,
        fit.over_two,
        lambda: fit_linear(fit.obs),
        fit.affine,
        lambda: fit_diagonal(fit.obs, fit.pool),
        fit.complement,
    )
