"""Element counts as laws of grid extents, coordinates, stages and iterations, simplest first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from p3s.laws.expr import num, sym
from p3s.model.sizes.affine import different
from p3s.model.sizes.attempts import Attempts
from p3s.model.sizes.blocks import PADDED, RARE, Axis, ExtentPool, FittedSize, Observations
from p3s.model.sizes.diagonal import fit_diagonal
from p3s.model.sizes.levels import fit_chunks, fit_levels
from p3s.model.sizes.linear import fit_branch, fit_linear
from p3s.model.sizes.positions import decides, moving


def fit_elements(obs: Observations, pool: ExtentPool) -> FittedSize | None:
    """Return the simplest exact law for the element counts, or None.

    obs: every (count, rank, stage, iteration) at which the slot was seen. A constant first, then
    laws without a factor (one block, a law of n and the extents alone, products of blocks), then
    with a factor, a ghost width, both; then blocks at affine positions and sums over the cells of a
    multi-partition. Sizes that change from turn to turn have laws of their own. The extents of the
    law found are noted in ``pool``."""
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
    law = next((law for step in _steps(fit) if (law := step()) is not None), None)
    if law is None or moving(obs) or law.even or law.others:
        return law
    return replace(
        law,
        even=law.free <= 2 and fit.fractional(law.expr),
        others=different(
            obs,
            law.expr,
            pool.possible(law.expr, [*fit.alike(law.free + 1), *fit.multiples(law.expr)]),
        ),
    )


def _steps(fit: Attempts) -> Iterator[Callable[[], FittedSize | None]]:
    yield lambda: fit_branch(fit.obs)
    if moving(fit.obs):
        turned = [
            fit.level_scalar,
            fit.one,
            fit.header,
            fit.affine,
            lambda: fit_linear(fit.obs),
            lambda: fit_levels(fit.obs, fit.pool, fit_elements),
            lambda: fit_chunks(fit.obs, fit.pool, fit_elements),
        ]
        yield from turned
        return
    yield fit.typed
    if fit.obs.across:  # the face of a halo is a product over the grid before a share of all ranks
        on_grid = [a for a in fit.axes if a.name != "n"]
        in_line = [a for a in fit.axes if a.name == "n"]
        yield from (fit.known_product, lambda: fit.one_block(on_grid), fit.products)
        if len(fit.obs.across) > 1:
            yield from (fit.products_with_factor, fit.widened)
        yield from (lambda: fit.one_block(in_line), lambda: fit.scalar(1))
    else:
        yield from (lambda: fit.one_block(fit.axes), lambda: fit.scalar(1), fit.products)
    for kinds in (fit.common, RARE):
        yield from (
            lambda kinds=kinds: fit.factor(kinds),
            lambda kinds=kinds: fit.ghost(kinds),
            lambda kinds=kinds: fit.products_with_factor(kinds),
            lambda kinds=kinds: fit.factor_and_ghost(kinds),
        )
    yield from (
        fit.header,
        fit.widened,
        lambda: fit.products(PADDED),
        lambda: fit.products_with_factor(PADDED),
        fit.scalar,
        fit.multiplied,
        fit.over_two,
        lambda: fit_linear(fit.obs),
        fit.affine,
        lambda: fit_diagonal(fit.obs, fit.pool),
        fit.complement,
    )
